"""`HotView`: the hot keys of one process as others see them: `mmcache hot`, the dashboard's graph.

It names keys as spans do (`Key.short`): never an input, never a session.
"""

from __future__ import annotations

import json
from typing import Literal

import msgspec

EVENT_NAME = "mmcache.hot_keys"
"""Of the OTLP log record whose body is a view as JSON."""
MOST_KEYS = 200
MOST_EDGES = 600
MOST_COMMUNITIES = 64
MOST_BYTES = 256 << 10
"""Of a view as JSON; a reader refuses a longer one."""


class HotKey(msgspec.Struct, frozen=True):
    """One key, hottest first in a view."""

    key: str
    """`Key.short`: 16 hex digits."""
    score: float
    parts: dict[str, float] = {}
    """What the score is made of, by name."""
    heat: float = 0.0
    """Decayed uses."""
    modality: str = ""
    tenant: str = ""
    tier: str = ""
    """Nearest tier that holds it; empty: none."""
    bytes: int = 0
    expected_hours: float | None = None
    """How long it will stay hot; None: nobody says."""
    confidence: float | None = None
    """That it will, 0…1."""
    community: int = 0
    """Id of its community; 0: none."""


class HotEdge(msgspec.Struct, frozen=True):
    """`target` is used after `source`."""

    source: int
    """Index in `HotView.keys`."""
    target: int
    weight: float


class Community(msgspec.Struct, frozen=True):
    """Keys that are used together; its id is the same as long as it lives."""

    id: int
    size: int
    """Keys in it, shown or not."""
    weight: float
    """Sum of its edges' weights."""
    state: Literal["appeared", "living", "fading", "faded"]
    since: float
    """When it appeared, Unix seconds."""
    merged: list[int] = []
    """Ids of those that became part of it."""


class HotView(msgspec.Struct, frozen=True):
    """A snapshot."""

    at: float
    """Unix seconds."""
    service: str
    instance: str
    """Which process: host and pid."""
    keys: list[HotKey]
    edges: list[HotEdge] = []
    communities: list[Community] = []
    tracked_keys: int = 0
    tracked_edges: int = 0
    """Of which keys and edges are the largest."""
    seconds: float = 0.0
    """That making it took."""


def whole(text: str) -> str:
    """Without lone surrogates, which no encoding has."""
    return text.encode("utf-8", "replace").decode()


def encode(view: HotView) -> bytes:
    """As JSON; a lone surrogate, which a name from a file system may hold, as `?`."""
    try:
        return msgspec.json.encode(view)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(view), ensure_ascii=False).encode("utf-8", "replace")


def decode(raw: bytes | str) -> HotView:
    """Raises `msgspec.ValidationError` or `msgspec.DecodeError` for what is no view, `ValueError` for too large a one
    or for edges that lead nowhere."""
    if len(raw) > MOST_BYTES:
        raise ValueError(f"a view has at most {MOST_BYTES} bytes, not {len(raw)}")
    view = msgspec.json.decode(raw, type=HotView)
    if len(view.keys) > MOST_KEYS or len(view.edges) > MOST_EDGES or len(view.communities) > MOST_COMMUNITIES:
        raise ValueError("a view with more keys, edges or communities than are allowed")
    if any(not (0 <= edge.source < len(view.keys) and 0 <= edge.target < len(view.keys)) for edge in view.edges):
        raise ValueError("a view whose edges lead to keys that it does not have")
    return view
