"""Whether the compiled kernels serve, or numpy does. Both give the same bits (see `tests/parity`)."""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

from mmcache.settings import accelerated


@cache
def _built() -> ModuleType | None:
    try:
        from mmcache.codecs import _kernels
    except ImportError:  # no compiler when it was installed, or another architecture
        return None
    return _kernels if hasattr(_kernels, "BEST_LEVEL") else None  # built from an older source


def kernels() -> Any:
    """The C extension, or None where it was not built or `MMCACHE_PURE=1` turns it off."""
    return _built() if accelerated() else None
