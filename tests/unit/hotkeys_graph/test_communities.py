"""Communities: as good as those of others, deterministic, and of one id as long as they live."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcache.hotkeys.communities import communities, modularity
from mmcache.hotkeys.graph import Floats, HotGraph, Integers
from mmcache.hotkeys.tracking import Look, Tracker, refresh
from mmcache.model.key import Key


def key(number: int) -> Key:
    return Key(b"s" * 16, number.to_bytes(16, "big"))


def planted(
    groups: int, each: int, edges: int, inside: float, seed: int
) -> tuple[Integers, Integers, Floats, Integers]:
    """Edges, distinct, and the group of each node; `inside` of them within their group."""
    random, size = np.random.default_rng(seed), groups * each
    group = np.repeat(np.arange(groups), each)
    source = random.integers(0, size, edges)
    own = group[source] * each + random.integers(0, each, edges)
    target = np.where(random.random(edges) < inside, own, random.integers(0, size, edges))
    names = np.unique((source * size + target)[source != target])
    return names // size, names % size, random.exponential(1.0, len(names)) + 0.1, group


def test_planted_groups_are_found() -> None:
    source, target, weight, group = planted(10, 30, 4000, 0.8, 0)
    found = communities(source, target, weight, len(group))
    assert (found == group).all()  # numbered by their first nodes, as the groups are


def test_modularity_is_that_of_others() -> None:
    networkx = pytest.importorskip("networkx", reason="networkx is not here")
    source, target, weight, group = planted(20, 50, 5_000, 0.6, 1)
    graph = networkx.Graph()
    for one, other, value in zip(source.tolist(), target.tolist(), weight.tolist(), strict=True):
        known = graph.get_edge_data(one, other, {"weight": 0.0})["weight"]
        graph.add_edge(one, other, weight=known + value)
    found = communities(source, target, weight, len(group))
    sets = [set(np.flatnonzero(found == label).tolist()) & set(graph) for label in range(int(found.max()) + 1)]
    theirs = networkx.community.modularity(graph, [one for one in sets if one])
    assert modularity(source, target, weight, found) == pytest.approx(theirs, abs=1e-9)
    louvain = networkx.community.louvain_communities(graph, seed=0)
    assert theirs > networkx.community.modularity(graph, louvain) - 0.02


EDGES = st.lists(st.tuples(st.integers(0, 14), st.integers(0, 14), st.floats(0.01, 10.0)), max_size=60)


@settings(derandomize=True, max_examples=80)
@given(EDGES, st.lists(st.integers(-1, 5), min_size=15, max_size=15))
def test_labels_are_a_partition_no_worse_than_where_it_began(
    edges: list[tuple[int, int, float]], start: list[int]
) -> None:
    source, target = (np.array([one[at] for one in edges], np.int64) for at in (0, 1))
    weight, began = np.array([one[2] for one in edges], np.float64), np.array(start)
    found = communities(source, target, weight, 15, began)
    assert (found == communities(source, target, weight, 15, began)).all()
    assert sorted(set(found.tolist())) == list(range(int(found.max()) + 1))
    lonely = np.setdiff1d(np.arange(15), np.concatenate([source, target]))
    assert (np.bincount(found)[found[lonely]] == 1).all()  # whatever they were together with
    alone = np.where(began < 0, 100 + np.arange(15), began)
    assert modularity(source, target, weight, found) >= modularity(source, target, weight, alone) - 1e-9


def test_what_came_apart_parts() -> None:
    source, target, weight, group = planted(4, 25, 3000, 0.95, 2)
    found = communities(source, target, weight, len(group), np.zeros(len(group), np.int64))
    assert (found == group).all()


class World:
    """Groups whose members are used one after another."""

    def __init__(self) -> None:
        self.graph, self.tracker, self.tick = HotGraph(), Tracker(), 0.0
        self.random = np.random.default_rng(3)
        self.look = Look(np.zeros(0, np.int64), [], [], [])
        self.events: list[tuple[str, int, int]] = []

    def run(self, ticks: int, *groups: Sequence[int]) -> None:
        for turn in range(ticks):
            self.tick += 1
            for group in groups:
                for _ in group:
                    one, other = self.random.choice(group, 2, replace=False).tolist()
                    self.graph.follow(key(one), key(other), self.tick)
            if turn % 5 == 4:
                self.look = refresh(self.graph, self.tracker, self.tick, 1000.0 + self.tick)
                self.events += [(event.what, event.id, event.into) for event in self.look.events]

    def id_of(self, group: Sequence[int]) -> int:
        places = {self.graph.key(place): place for place in range(self.graph.size)}
        (id,) = {int(self.look.ids[places[key(one)]]) for one in group}
        return id


A, B, C, SMALL = range(10), range(20, 30), range(40, 50), range(20, 26)


def test_ids_stay_while_others_appear() -> None:
    world = World()
    world.run(30, A, B)
    first, second = world.id_of(A), world.id_of(B)
    world.run(30, A, B, C)
    assert (world.id_of(A), world.id_of(B)) == (first, second)
    assert world.id_of(C) not in (0, first, second)
    assert [what for what, _, _ in world.events].count("appeared") == 3
    assert {one.state for one in world.look.living} <= {"appeared", "living"}


def test_two_that_become_one_keep_the_heavier_ones_id() -> None:
    world = World()
    world.run(60, A, SMALL, C)
    heavier, lighter = world.id_of(A), world.id_of(SMALL)
    world.run(300, [*A, *SMALL], C)
    assert ("merged", lighter, heavier) in world.events
    (merged,) = [one for one in world.look.living if one.id == heavier]
    assert lighter in merged.merged
    assert merged.size == 16


def test_what_is_used_no_more_fades_and_is_over_once() -> None:
    world = World()
    world.run(60, A, B)
    gone = world.id_of(B)
    world.run(700, A)
    told = [what for what, id, _ in world.events if id == gone]
    assert told == ["appeared", "fading", "faded"]
    assert [one.id for one in world.look.living] == [world.id_of(A)]
    world.run(80, A, B)  # it comes back: another life, another id
    assert world.id_of(B) > gone
    assert [what for what, id, _ in world.events if id == world.id_of(B)] == ["appeared"]


LOOKS = st.lists(
    st.tuples(st.lists(st.integers(-1, 4), min_size=12, max_size=12), st.permutations(range(5))), min_size=1, max_size=8
)


@settings(derandomize=True, max_examples=100)
@given(LOOKS)
def test_how_communities_are_numbered_changes_no_id(looks: list[tuple[list[int], list[int]]]) -> None:
    one, other = Tracker(), Tracker()
    before, also = np.zeros(12, np.int64), np.zeros(12, np.int64)
    for turn, (labels, renamed) in enumerate(looks):
        plain, strength = np.array(labels), np.arange(1.0, 13.0)
        weight = np.bincount(plain[plain >= 0], strength[plain >= 0], 5).astype(np.float64)
        rename = np.array([*renamed, -1])
        shuffled = np.zeros(5)
        shuffled[rename[:5]] = weight
        found = one.look(before, plain, strength, weight, float(turn), 0.0)
        twin = other.look(also, rename[plain], strength, shuffled, float(turn), 0.0)
        assert found.ids.tolist() == twin.ids.tolist()
        assert found.living == twin.living
        assert found.events == twin.events
        before, also = found.ids, twin.ids
        for id in set(before.tolist()) - {0}:  # an id is one community's
            assert len(set(plain[before == id].tolist())) == 1


def test_a_refresh_of_an_empty_graph_finds_nothing() -> None:
    look = refresh(HotGraph(), Tracker(), 1.0, 1.0)
    assert look.living == []
    assert look.events == []
