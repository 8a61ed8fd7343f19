"""By which way lookups come, for who counts them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from mmcache.attribution import attributed, current


def by(door: str) -> AbstractContextManager[None]:
    """Inside, lookups count for `door`, unless whoever called it has named a route of his own."""
    return nullcontext() if current().route else attributed(route=door)
