"""`Tracker`: the same community keeps its id from look to look, and is said to appear, merge, fade and be over. Pure.

New communities are held against the ids that their nodes had: the pair that shares most goes first (greedy matching by
Jaccard's index; Greene et al., "Tracking the Evolution of Communities in Dynamic Social Networks", 2010).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from mmcache.hotkeys.communities import communities
from mmcache.hotkeys.graph import Floats, HotGraph, Integers, summed

State = Literal["appeared", "living", "fading", "faded"]
What = Literal["appeared", "merged", "fading", "faded"]

FAINT = 0.02
"""Weight below which an edge is let go: what was used once is, after 781 ticks."""
LEAST_NODES, LEAST_WEIGHT = 3, 3.0
"""Of a community that appears."""
_SHARED = 0.5
"""Share of the smaller of two that must be the other's, for them to be one."""
_NEW_TICKS = 30.0
"""For which it has just appeared."""
_FADING, _REVIVED, _FADED = 0.7, 0.85, 0.1
"""Weight by the largest of lately: below, above, and below."""
_AGAIN = 2.0
"""Times its weight at which what has faded is a new community."""
_PEAK_DECAY = 0.999
"""A tick: so that a rush of long ago does not make fading what lives."""
MOST_EVENTS = 1024
"""Of one look."""


class Happened(NamedTuple):
    """An event of a community's life."""

    what: What
    id: int
    into: int = 0
    """Of one that merged: in which."""


@dataclass
class Tracked:
    """One community."""

    id: int
    since: float
    """Unix seconds."""
    born: float
    """Tick."""
    size: int = 0
    weight: float = 0.0
    peak: float = 0.0
    state: State = "appeared"
    merged: list[int] = field(default_factory=list)
    """Ids of those that became part of it, the last `MOST_MERGED`."""


MOST_MERGED = 16


class Look(NamedTuple):
    """One look's outcome."""

    ids: Integers
    """[N] Each node's community, 0 = none; also of one that has faded, until its nodes go or it comes back."""
    living: list[Tracked]
    """Heaviest first."""
    over: list[Tracked]
    """Faded since the last look, by id."""
    events: list[Happened]
    """The first `MOST_EVENTS`."""


class Tracker:
    """Ids count up from 1 and never come again. Holds as many communities as there were at the last look."""

    def __init__(self) -> None:
        self._next = 1
        self._tick = 0.0
        self._held: dict[int, Tracked] = {}

    def look(
        self, before: Integers, labels: Integers, strength: Floats, weight: Floats, tick: float, now: float
    ) -> Look:
        """before: [N] `Look.ids` of the last time, 0 = none; labels: [N] 0 … n - 1, which are together now, -1:
        none; strength: [N] what a node counts, over 0; weight: [n] of each community's edges. now: Unix seconds."""
        labels, weight = _by_first_node(labels, weight)
        count = len(weight)
        size = np.bincount(labels[labels >= 0], minlength=count)
        kept = self._matched(before, labels, strength)
        ids, events, over = np.zeros(count, np.int64), list[Happened](), list[Tracked]()
        held: dict[int, Tracked] = {}
        fade = _PEAK_DECAY ** max(0.0, tick - self._tick)
        for label in sorted(range(count), key=lambda one: (kept.get(one, self._next), one)):
            one = self._held.get(kept.get(label, 0))
            big = size[label] >= LEAST_NODES and weight[label] >= LEAST_WEIGHT
            if one is None or (one.state == "faded" and big and weight[label] >= _AGAIN * one.weight):
                if not big:
                    continue
                one = Tracked(self._next, now, tick)
                self._next += 1
                events.append(Happened("appeared", one.id))
            held[one.id] = one
            ids[label] = one.id
            one.size = int(size[label])
            if one.state == "faded":
                one.weight = min(one.weight, float(weight[label]))
                continue
            one.weight = float(weight[label])
            one.peak = max(one.weight, one.peak * fade)
            if not _lives(one, tick, events):
                over.append(one)
        node_ids = np.where(labels >= 0, ids[labels], 0) if count else np.zeros(len(labels), np.int64)
        into = _heirs(before, node_ids, strength)
        for id, one in sorted(self._held.items()):
            if id in held or one.state == "faded":
                continue
            heir = held.get(into.get(id, 0))
            if heir is not None and heir.state != "faded" and one.state != "fading":
                heir.merged = [*heir.merged, id][-MOST_MERGED:]
                events.append(Happened("merged", id, heir.id))
            else:
                one.state, one.weight, one.size = "faded", 0.0, 0
                over.append(one)
                events.append(Happened("faded", id))
        self._held, self._tick = held, tick
        living = [one for one in held.values() if one.state != "faded"]
        living.sort(key=lambda one: (-one.weight, one.id))
        return Look(node_ids, living, sorted(over, key=lambda one: one.id), events[:MOST_EVENTS])

    def _matched(self, before: Integers, labels: Integers, strength: Floats) -> dict[int, int]:
        """Label → id, each at most once."""
        id, label, shared, of_id, of_label = _crossed(before, labels + 1, strength)
        index = shared / np.maximum(of_id + of_label - shared, np.finfo(np.float64).tiny)
        fits = shared >= _SHARED * np.minimum(of_id, of_label)
        # Ties go to the older id, then to the one that shares more: no label decides unless all else is equal.
        order = np.lexsort((label, -shared, id, -index))
        found: dict[int, int] = {}
        taken: set[int] = set()
        for at in order[fits[order]].tolist():
            one, other = int(label[at]) - 1, int(id[at])
            if one not in found and other not in taken and other in self._held:
                found[one] = other
                taken.add(other)
        return found


def _by_first_node(labels: Integers, weight: Floats) -> tuple[Integers, Floats]:
    """The same, numbered in the order of their first nodes: how they were numbered changes nothing."""
    count = len(weight)
    first = np.full(count + 1, len(labels), np.int64)
    first[labels[::-1]] = np.arange(len(labels))[::-1]  # no community's are at -1; the first node is assigned last
    order = np.argsort(first[:count], kind="stable")
    rank = np.full(count + 1, -1, np.int64)
    rank[order] = np.arange(count)
    return rank[labels], weight[order]


def _crossed(ones: Integers, others: Integers, strength: Floats) -> tuple[Integers, Integers, Floats, Floats, Floats]:
    """Of each pair of a group of `ones` and one of `others` with nodes in both: the two, the strength of those nodes,
    and each group's own. 0 = in no group."""
    names, one = np.unique(ones, return_inverse=True)
    also, other = np.unique(others, return_inverse=True)
    pairs, where = np.unique(one * len(also) + other, return_inverse=True)
    shared = summed(where, strength, len(pairs))
    first, second = np.divmod(pairs, max(1, len(also)))
    of_one, of_other = summed(one, strength, len(names)), summed(other, strength, len(also))
    real = (names[first] > 0) & (also[second] > 0)
    first, second = first[real], second[real]
    return names[first], also[second], shared[real], of_one[first], of_other[second]


def _heirs(before: Integers, ids: Integers, strength: Floats) -> dict[int, int]:
    """Id → the one in which at least half of its nodes are now, if there is one."""
    id, heir, shared, of_id, _ = _crossed(before, ids, strength)
    half = shared >= _SHARED * of_id
    order = np.argsort(shared[half], kind="stable")  # of two halves the later, heavier one stands
    return dict(zip(id[half][order].tolist(), heir[half][order].tolist(), strict=True))


def _lives(one: Tracked, tick: float, events: list[Happened]) -> bool:
    """Bring its state up to date."""
    level = one.weight / one.peak if one.peak > 0.0 else 0.0
    if level < _FADED or one.weight < LEAST_WEIGHT * _FADED:
        one.state = "faded"
        events.append(Happened("faded", one.id))
        return False
    if level < _FADING and one.state != "fading":
        one.state = "fading"
        events.append(Happened("fading", one.id))
    elif one.state == "fading":
        one.state = "living" if level > _REVIVED else "fading"
    elif tick - one.born >= _NEW_TICKS:
        one.state = "living"
    return True


def refresh(graph: HotGraph, tracker: Tracker, tick: float, now: float) -> Look:
    """Find the communities of `graph` as it is at `tick`, going on from those of the last time, and follow them."""
    graph.prune(tick, FAINT)
    source, target, weight = graph.arrays(tick)
    before = graph.communities
    found = communities(source, target, weight, graph.size, np.where(before > 0, before, -1))
    many = np.bincount(found, minlength=1) > 1  # a key without edges is in no community
    rank = np.where(many, np.cumsum(many) - 1, -1)
    labels = rank[found]
    inside = labels[source] == labels[target]
    weights = summed(labels[source[inside]], weight[inside], int(many.sum()))
    strength = summed(source, weight, graph.size) + summed(target, weight, graph.size)
    look = tracker.look(before, labels, strength, weights, tick, now)
    graph.assign(look.ids)
    return look
