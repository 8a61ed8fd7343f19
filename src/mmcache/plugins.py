"""One registry over entry points. Built-ins are entry points of this distribution and have no privilege."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from mmcache.model.errors import UnknownPluginError

KINDS = ("policies", "admission", "ttl", "refs", "codecs", "prefetch", "lab")


@cache
def _table(kind: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=f"mmcache.{kind}")}


def names(kind: str) -> list[str]:
    """Registered names of a kind, sorted."""
    return sorted(_table(kind))


def load(kind: str, name: str) -> Any:
    """The object registered as `name`. Raises `UnknownPluginError` naming what there is."""
    point = _table(kind).get(name)
    if point is None:
        known = ", ".join(names(kind)) or "none; is mmcache installed (pip install -e .)?"
        raise UnknownPluginError(f"no {kind} plug-in named {name!r}; known: {known}")
    return point.load()
