"""What a node is told at its start, by a file that only its owner may read: a command line is seen by everybody."""

from __future__ import annotations

from mmcache.scale.binaries import Binary
from mmcache.scale.local.ports import HOST

NODE_TIMEOUT_MS = 2000
"""A node that is silent for so long is taken for dead by the others."""
_LEAST_BACKLOG, _MOST_BACKLOG = 1 << 20, 256 << 20
"""Of a sixteenth of the memory: it counts as used."""
_LEAST_BUFFER = 256 << 20


def config(binary: Binary, port: int, memory_bytes: int, password: str, node_timeout_ms: int) -> str:
    """The text of `server.conf`, for a server that is started in the folder where it is to work."""
    buffer = max(_LEAST_BUFFER, memory_bytes // 2)
    lines = [
        f"bind {HOST}",
        f"port {port}",
        "daemonize no",
        f'requirepass "{_quoted(password)}"',
        f'masterauth "{_quoted(password)}"',
        # What a cache holds can be computed again, and what was in memory is not to come back older than it was.
        'save ""',
        "appendonly no",
        "stop-writes-on-bgsave-error no",
        f"maxmemory {memory_bytes}",
        "maxmemory-policy allkeys-lru",
        "lazyfree-lazy-eviction yes",
        "lazyfree-lazy-expire yes",
        "lazyfree-lazy-server-del yes",
        "replica-lazy-flush yes",
        # Replicas are filled from memory to memory, and a short break of the link does not fill them anew.
        "repl-diskless-sync yes",
        "repl-diskless-sync-delay 0",
        "repl-diskless-load on-empty-db",
        f"repl-backlog-size {min(max(_LEAST_BACKLOG, memory_bytes // 16), _MOST_BACKLOG)}",
        f"client-output-buffer-limit replica {buffer} {buffer // 4} 60",
        "cluster-enabled yes",
        "cluster-config-file nodes.conf",
        f"cluster-node-timeout {node_timeout_ms}",
        # A lost shard costs its own keys, not those of the others; a replica stays with its shard, as the planner put
        # it. Reads while the cluster is down stay refused: such a node may be cut off, and not know what was dropped.
        "cluster-require-full-coverage no",
    ]
    if binary.version >= (7, 0, 0):
        lines.append("cluster-allow-replica-migration no")
    else:
        lines.append("cluster-migration-barrier 1000")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
