"""From graph and communities to a `HotView`: the hottest keys by score, the heaviest edges between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from mmcache.hotkeys.graph import HotGraph
from mmcache.hotkeys.tracking import Look, Tracked
from mmcache.hotkeys.view import (
    MOST_BYTES,
    MOST_COMMUNITIES,
    MOST_EDGES,
    MOST_KEYS,
    Community,
    HotEdge,
    HotKey,
    HotView,
    encode,
)
from mmcache.model.key import Key

_SCORED = 2 * MOST_KEYS
"""Keys, the ones of most heat, of which the ones of the highest score are shown."""
_NAME = 128
"""Characters of a tenant's name, or another's."""


class Scores(Protocol):
    """How hot a key is: see `scores.HotScores`."""

    def score(self, key: Key, heat: float) -> tuple[float, dict[str, float]]:
        """And what that is made of, by name. heat: decayed uses."""


class Expects(Protocol):
    """How long keys will stay hot."""

    def expect(self, key: Key) -> tuple[float, float] | None:
        """Hours, and the confidence (0…1) that it will; None: nobody knows."""


class Seen(NamedTuple):
    """What else is known of a key."""

    modality: str = ""
    tenant: str = ""
    tier: str = ""
    bytes: int = 0


def viewed(
    graph: HotGraph,
    look: Look,
    tick: float,
    *,
    at: float,
    service: str,
    instance: str,
    score: Callable[[Key, float], tuple[float, Mapping[str, float]]],
    expect: Callable[[Key], tuple[float, float] | None],
    seen: Callable[[Key], Seen],
) -> HotView:
    """At most what a view may have; names too long are cut, and keys left out until it fits."""
    scored = [(key, place, heat, *score(key, heat)) for key, place, heat in graph.hottest(_SCORED, tick)]
    scored.sort(key=lambda one: (-one[3], -one[2], one[0]))
    shown = scored[:MOST_KEYS]
    living = {one.id for one in look.living}
    keys = []
    for key, place, heat, value, parts in shown:
        hours, confidence = expect(key) or (None, None)
        known = seen(key)
        community = int(look.ids[place]) if place < len(look.ids) else 0
        keys.append(
            HotKey(
                key.short, float(value), {name[:_NAME]: float(part) for name, part in list(parts.items())[:16]},
                round(heat, 6), known.modality[:_NAME], known.tenant[:_NAME], known.tier[:_NAME], known.bytes,
                hours, confidence, community if community in living else 0,
            )
        )  # fmt: skip
    edges = _edges(graph, [place for _, place, *_ in shown], tick)
    communities = [_community(one) for one in [*look.over[: MOST_COMMUNITIES // 4], *look.living]][:MOST_COMMUNITIES]
    while True:
        view = HotView(at, service[:_NAME], instance[:_NAME], keys, edges, communities, len(graph), graph.edges)
        if len(encode(view)) <= MOST_BYTES - 1024 or not keys:
            return view
        keys = keys[: len(keys) // 2]
        edges = [edge for edge in edges if max(edge.source, edge.target) < len(keys)]


def _edges(graph: HotGraph, places: Sequence[int], tick: float) -> list[HotEdge]:
    source, target, weight = graph.arrays(tick)
    index = np.full(max(1, graph.size), -1)
    index[np.array(places, np.int64)] = np.arange(len(places))
    inner = np.flatnonzero((index[source] >= 0) & (index[target] >= 0))
    heaviest = inner[np.argsort(-weight[inner], kind="stable")[:MOST_EDGES]]
    return [
        HotEdge(int(index[source[edge]]), int(index[target[edge]]), round(float(weight[edge]), 6))
        for edge in heaviest.tolist()
    ]


def _community(one: Tracked) -> Community:
    return Community(one.id, one.size, round(one.weight, 6), one.state, one.since, list(one.merged))
