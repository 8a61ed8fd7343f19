"""Whether the compiled search serves, or numpy does. Both give the same results to the bit (see `tests/parity`)."""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

from mmcache.settings import accelerated


@cache
def _built() -> ModuleType | None:
    try:
        from mmcache.near import _near
    except ImportError:  # no compiler when it was installed, or another architecture
        return None
    return _near


def search() -> Any:
    """The C extension, or None where it was not built or `MMCACHE_PURE=1` turns it off."""
    return _built() if accelerated() else None
