"""What every node is told in its settings, wherever it runs; its address and its secrets, a platform adds."""

from __future__ import annotations

from collections.abc import Mapping

_LEAST_BACKLOG, _MOST_BACKLOG = 1 << 20, 256 << 20
"""Of a sixteenth of the memory: it counts as used."""
_LEAST_BUFFER = 256 << 20
_CHOSEN = {
    "maxmemory-policy": "allkeys-lru",
    "lazyfree-lazy-eviction": "yes",
    "lazyfree-lazy-expire": "yes",
    "lazyfree-lazy-server-del": "yes",
    "replica-lazy-flush": "yes",
}


def directives(
    memory_bytes: int, node_timeout_ms: int, *, chosen: Mapping[str, str] | None = None, before_7: bool = False
) -> list[str]:
    """For Valkey 7.2 and later and Redis 7; before_7: for Redis 6. chosen: what a user says otherwise, or beside it."""
    buffer = max(_LEAST_BUFFER, memory_bytes // 2)
    return [
        # What a cache holds can be computed again, and what was in memory is not to come back older than it was.
        'save ""',
        "appendonly no",
        "stop-writes-on-bgsave-error no",
        f"maxmemory {memory_bytes}",
        *(f"{name} {value}" for name, value in sorted({**_CHOSEN, **(chosen or {})}.items())),
        # Replicas are filled from memory to memory, and a short break of the link does not fill them anew. One that has
        # something already takes the way over a file, which is to be gone afterwards.
        "repl-diskless-sync yes",
        "repl-diskless-sync-delay 0",
        "repl-diskless-load on-empty-db",
        "rdb-del-sync-files yes",
        f"repl-backlog-size {min(max(_LEAST_BACKLOG, memory_bytes // 16), _MOST_BACKLOG)}",
        f"client-output-buffer-limit replica {buffer} {buffer // 4} 60",
        "cluster-enabled yes",
        "cluster-config-file nodes.conf",
        f"cluster-node-timeout {node_timeout_ms}",
        # A lost shard costs its own keys, not those of the others; a replica stays with its shard, as the planner put
        # it. Reads while the cluster is down stay refused: such a node may be cut off, and not know what was dropped.
        "cluster-require-full-coverage no",
        "cluster-migration-barrier 1000" if before_7 else "cluster-allow-replica-migration no",
    ]
