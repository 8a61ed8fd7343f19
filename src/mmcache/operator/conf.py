"""`valkey.conf` of a node: everything but its address and its secrets."""

from __future__ import annotations

from mmcache.operator.resource import Wish

_LEAST_BACKLOG = 1 << 20
"""It counts as memory in use: a small node must not be full of it."""
_LEAST_BUFFER = 256 << 20


def valkey_conf(wish: Wish) -> str:
    """For Valkey 7.2 and later, and Redis 7."""
    memory = wish.cluster.memory_bytes
    buffer = max(_LEAST_BUFFER, memory // 2)
    lines = [
        "protected-mode no",  # who may connect, a NetworkPolicy says, and the password
        # What a cache holds can be computed again, and what was in memory is not to come back older than it was.
        'save ""',
        "appendonly no",
        "stop-writes-on-bgsave-error no",
        f"maxmemory {memory}",
        *_chosen(wish),
        # Replicas are filled from memory to memory, and a short break of the link does not fill them anew.
        "repl-diskless-sync yes",
        "repl-diskless-sync-delay 0",
        "repl-diskless-load on-empty-db",
        f"repl-backlog-size {max(_LEAST_BACKLOG, memory // 16)}",
        f"client-output-buffer-limit replica {buffer} {buffer // 4} 60",
        "cluster-enabled yes",
        "cluster-config-file nodes.conf",
        f"cluster-node-timeout {wish.pods.node_timeout_seconds * 1000}",
        # A lost shard costs its own keys, not those of the others; a replica stays with its shard.
        "cluster-require-full-coverage no",
        "cluster-allow-replica-migration no",
    ]
    return "\n".join(lines) + "\n"


def _chosen(wish: Wish) -> list[str]:
    """What the user may say otherwise."""
    chosen = {
        "maxmemory-policy": "allkeys-lru",
        "lazyfree-lazy-eviction": "yes",
        "lazyfree-lazy-expire": "yes",
        "lazyfree-lazy-server-del": "yes",
        "replica-lazy-flush": "yes",
        **wish.pods.config,
    }
    return [f"{name} {value}" for name, value in sorted(chosen.items())]
