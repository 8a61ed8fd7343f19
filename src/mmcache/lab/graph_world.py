"""A generated world of keys whose communities appear, merge and fade at known ticks, and how well they are followed.

Each tick every living group is walked through: pairs of its keys follow each other, and a share of all steps goes
anywhere. Agreement is that of partitions: normalised mutual information (arithmetic mean; Danon et al., 2005) and the
adjusted Rand index (Hubert & Arabie, 1985).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from mmcache.hotkeys.communities import communities
from mmcache.hotkeys.graph import HotGraph, Integers
from mmcache.hotkeys.tracking import Tracker, refresh
from mmcache.model.key import PART_BYTES, Key

EACH, STEPS = 25, 8
"""Keys of a group, and steps of a group in a tick."""
LOOK_TICKS = 10
"""Between two looks."""
ALWAYS, LATER, PAIRS, GOING = 8, 4, 3, 4
"""Groups that are there from first to last, that appear, pairs that merge, and groups that fade."""
APPEAR, MERGE, FADE, END = 200, 400, 700, 1300
"""Ticks."""
SETTLED = 150
"""Ticks after a change from which agreement is measured."""
_SCOPE = b"mmcache.lab.hotgraph"[:PART_BYTES]


def key(number: int) -> Key:
    """The key of that number."""
    return Key(_SCOPE, number.to_bytes(PART_BYTES, "big"))


@dataclass
class World:
    """Who is together at which tick."""

    seed: int
    noise: float
    """Share of the steps that go anywhere."""
    end: int = END
    groups: int = ALWAYS + LATER + 2 * PAIRS + GOING
    keys: list[Key] = field(init=False)

    def __post_init__(self) -> None:
        self.keys = [key(number) for number in range(self.groups * EACH)]

    def truth(self, tick: int) -> Integers:
        """[keys] Its group, -1 = in none that is walked through. Two that merged are one, by the number of the
        first."""
        group = np.repeat(np.arange(self.groups), EACH)
        pairs = ALWAYS + LATER
        if tick < APPEAR:
            group[(group >= ALWAYS) & (group < pairs)] = -1
        if tick >= MERGE:
            merged = (group >= pairs) & (group < pairs + 2 * PAIRS)
            group[merged] = pairs + (group[merged] - pairs) // 2 * 2
        if tick >= FADE:
            group[group >= pairs + 2 * PAIRS] = -1
        return group

    def steps(self) -> Iterator[tuple[int, list[tuple[Key, Key]]]]:
        """Tick by tick: which key is used after which."""
        random = np.random.default_rng(self.seed)
        for tick in range(self.end):
            truth = self.truth(tick)
            source: list[npt.NDArray[np.int64]] = []
            target: list[npt.NDArray[np.int64]] = []
            for group in np.unique(truth[truth >= 0]):
                members = np.flatnonzero(truth == group)
                count = STEPS * len(members) // EACH
                source.append(random.choice(members, count))
                target.append(random.choice(members, count))
            one, other = np.concatenate(source), np.concatenate(target)
            anywhere = random.random(len(one)) < self.noise
            other[anywhere] = random.integers(0, len(self.keys), int(anywhere.sum()))
            yield tick, [(self.keys[a], self.keys[b]) for a, b in zip(one.tolist(), other.tolist(), strict=True)]


Follow = Callable[[HotGraph, int, int], dict[Key, int]]
"""`(graph, tick, seed)` → the community of each key that is in one."""


def tracked() -> tuple[Follow, list[tuple[int, str, int, int]]]:
    """Ours; and the events: tick, what, id, into."""
    tracker, events = Tracker(), list[tuple[int, str, int, int]]()

    def follow(graph: HotGraph, tick: int, seed: int) -> dict[Key, int]:
        look = refresh(graph, tracker, float(tick), float(tick))
        events.extend((tick, event.what, event.id, event.into) for event in look.events)
        living = {one.id for one in look.living}
        return {graph.key(place): id for place, id in enumerate(look.ids.tolist()) if id in living}

    return follow, events


def from_scratch(graph: HotGraph, tick: int, seed: int) -> dict[Key, int]:
    """Ours, each time from single keys, numbered by size and not followed."""
    graph.prune(float(tick), 0.02)
    source, target, weight = graph.arrays(float(tick))
    found = communities(source, target, weight, graph.size)
    sizes = np.bincount(found)
    rank = np.empty(len(sizes), np.int64)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    return {graph.key(p): int(rank[label]) + 1 for p, label in enumerate(found.tolist()) if sizes[label] > 1}


def louvain(graph: HotGraph, tick: int, seed: int) -> dict[Key, int]:
    """networkx's Louvain, each time from single keys, numbered by size and not followed."""
    import networkx  # type: ignore[import-untyped,unused-ignore]

    graph.prune(float(tick), 0.02)
    found = networkx.community.louvain_communities(undirected(graph, tick), seed=seed)
    found.sort(key=lambda one: (-len(one), min(one)))
    return {graph.key(place): number for number, one in enumerate(found, 1) for place in one}


def undirected(graph: HotGraph, tick: float) -> Any:
    """As networkx has it."""
    import networkx  # type: ignore[import-untyped,unused-ignore]

    whole = networkx.Graph()
    for one, other, weight in zip(*(column.tolist() for column in graph.arrays(tick)), strict=True):
        known = whole.get_edge_data(one, other)
        whole.add_edge(one, other, weight=weight + (known["weight"] if known else 0.0))
    return whole


@dataclass(frozen=True)
class Followed:
    """How one way fared in one world."""

    nmi: float
    """Mean over the looks at which nothing has changed for `SETTLED` ticks."""
    ari: float
    kept: float
    """Share of keys that have the same id at the next look, where both times their group is walked through and nothing
    changes between."""
    appear: list[float]
    """Ticks until a group that appears has an id of its own, which most of its keys have."""
    merge: list[float]
    """Ticks until most keys of two groups that merge have one id."""
    fading: list[float]
    """Ticks until a group that is used no more is said to fade; empty where nobody says so."""
    faded: list[float]
    false: int
    """Events that are none of the world's."""
    seconds: float
    """A look, mean."""


def followed(world: World, follow: Follow, events: Sequence[tuple[int, str, int, int]] = ()) -> Followed:
    """Run a world through a graph, looking every `LOOK_TICKS`."""
    graph, before = HotGraph(), dict[Key, int]()
    nmi, ari, same, seconds = [], [], [], 0.0
    looks = 0
    changes = (0, APPEAR, MERGE, FADE)
    pairs = ALWAYS + LATER
    waits: dict[tuple[str, int], float] = {}
    gone: dict[int, int] = {}
    for tick, steps in world.steps():
        for one, other in steps:
            graph.follow(one, other, float(tick))
        if tick % LOOK_TICKS != LOOK_TICKS - 1:
            continue
        began = time.perf_counter()
        found = follow(graph, tick, world.seed)
        seconds, looks = seconds + time.perf_counter() - began, looks + 1
        truth = world.truth(tick)
        ids = np.array([found.get(one, 0) for one in world.keys])
        known = truth >= 0
        if min(tick - change for change in changes if change <= tick) >= SETTLED:
            nmi.append(normalised_information(truth[known], ids[known]))
            ari.append(adjusted_rand(truth[known], ids[known]))
        steady = known & (world.truth(tick - LOOK_TICKS) == truth)
        if before and all(not change <= tick < change + SETTLED for change in changes):
            old = np.array([before.get(one, 0) for one in world.keys])
            same.append(float((old[steady] == ids[steady]).mean()))
        before = found
        for group in range(ALWAYS, pairs):
            if tick >= APPEAR and ("appear", group) not in waits and _own(ids, group) is not None:
                waits["appear", group] = tick - APPEAR
        for group in range(pairs, pairs + 2 * PAIRS, 2):
            one_id, other_id = _most(ids, group), _most(ids, group + 1)
            if tick >= MERGE and ("merge", group) not in waits and one_id == other_id != 0:
                waits["merge", group] = tick - MERGE
        if tick < FADE:
            gone = {_most(ids, group): group for group in range(pairs + 2 * PAIRS, world.groups)}
    said = {(what, id): at for at, what, id, _ in events if at >= FADE}
    true_fades = {what: [float(said[what, id] - FADE) for id in gone if (what, id) in said] for what in
                  ("fading", "faded")}  # fmt: skip
    expected = world.groups + PAIRS * (world.end > MERGE) + 2 * GOING * (world.end > FADE)
    return Followed(
        float(np.mean(nmi)), float(np.mean(ari)), float(np.mean(same)),
        [waits.get(("appear", group), float(END)) for group in range(ALWAYS, pairs)],
        [waits.get(("merge", group), float(END)) for group in range(pairs, pairs + 2 * PAIRS, 2)],
        true_fades["fading"], true_fades["faded"], max(0, len(events) - expected), seconds / max(1, looks),
    )  # fmt: skip


def _most(ids: Integers, group: int) -> int:
    """The id that more than half of the group's keys have; 0 = none."""
    values, counts = np.unique(ids[group * EACH : (group + 1) * EACH], return_counts=True)
    return int(values[counts.argmax()]) if counts.max() * 2 > EACH else 0


def _own(ids: Integers, group: int) -> int | None:
    """Its id, when no other group has that."""
    id = _most(ids, group)
    others = np.delete(ids, np.s_[group * EACH : (group + 1) * EACH])
    return id if id and (others == id).sum() * 2 < EACH else None


def _crossed(one: Integers, other: Integers) -> npt.NDArray[np.float64]:
    _, a = np.unique(one, return_inverse=True)
    _, b = np.unique(other, return_inverse=True)
    table = np.zeros((int(a.max()) + 1, int(b.max()) + 1))
    np.add.at(table, (a, b), 1.0)
    return table


def normalised_information(one: Integers, other: Integers) -> float:
    """0…1: mutual information over the mean of both entropies; 1 = the same partition."""
    joint = _crossed(one, other) / len(one)
    rows, columns = joint.sum(1), joint.sum(0)
    held = joint > 0
    mutual = float((joint[held] * np.log(joint[held] / np.outer(rows, columns)[held])).sum())
    entropy = -float((rows * np.log(rows)).sum() + (columns * np.log(columns)).sum())
    return 1.0 if entropy == 0.0 else 2.0 * mutual / entropy


def adjusted_rand(one: Integers, other: Integers) -> float:
    """1 = the same partition, 0 = as good as chance."""
    joint = _crossed(one, other)

    def pairs(counts: npt.NDArray[np.float64]) -> float:
        return float((counts * (counts - 1) / 2).sum())

    both, rows, columns, whole = pairs(joint), pairs(joint.sum(1)), pairs(joint.sum(0)), len(one) * (len(one) - 1) / 2
    chance, most = rows * columns / whole, (rows + columns) / 2
    return 1.0 if most == chance else (both - chance) / (most - chance)
