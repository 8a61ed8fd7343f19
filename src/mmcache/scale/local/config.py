"""What a node is told at its start, by a file that only its owner may read: a command line is seen by everybody."""

from __future__ import annotations

from mmcache.scale.binaries import Binary
from mmcache.scale.conf import directives
from mmcache.scale.local.ports import HOST

NODE_TIMEOUT_MS = 2000
"""A node that is silent for so long is taken for dead by the others."""


def config(binary: Binary, port: int, memory_bytes: int, password: str, node_timeout_ms: int) -> str:
    """The text of `server.conf`, for a server that is started in the folder where it is to work."""
    lines = [
        f"bind {HOST}",
        f"port {port}",
        "daemonize no",
        f'requirepass "{_quoted(password)}"',
        f'masterauth "{_quoted(password)}"',
        *directives(memory_bytes, node_timeout_ms, before_7=binary.version < (7, 0, 0)),
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
