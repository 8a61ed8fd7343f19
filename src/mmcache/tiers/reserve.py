"""Disk space taken before it is used, so that a full disk shows there and never as a SIGBUS under a reader."""

from __future__ import annotations

import os

_STEP = 1 << 20


def reserve(fd: int, size: int) -> None:
    """Let the file have at least `size` bytes of its own; what it holds stays. Raises `OSError`."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
        return
    zeros = bytes(_STEP)  # macOS has no such call: only what was written is there
    end = os.fstat(fd).st_size
    while end < size:
        end += os.pwrite(fd, memoryview(zeros)[: size - end], end)
