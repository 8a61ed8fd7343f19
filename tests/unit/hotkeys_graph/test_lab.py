"""Table `graph`'s parts: agreement as others define it, a world that says what is true, traces."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mmcache.lab import graph_costs, graph_world
from mmcache.lab.graph_world import EACH, World, adjusted_rand, followed, from_scratch, normalised_information, tracked
from mmcache.model.errors import AssetError


def test_agreement_is_what_others_say() -> None:
    one, other = np.array([0, 0, 1, 1]), np.array([0, 0, 1, 2])
    assert normalised_information(one, one) == pytest.approx(1.0)
    assert normalised_information(one, other) == pytest.approx(0.8)  # scikit-learn's example
    assert adjusted_rand(one, other) == pytest.approx(0.5714, abs=1e-4)
    assert adjusted_rand(one, 7 - one) == 1.0
    assert normalised_information(one, np.array([0, 1, 0, 1])) == pytest.approx(0.0, abs=1e-12)
    assert adjusted_rand(one, np.array([0, 1, 0, 1])) == pytest.approx(-0.5)


def test_a_world_is_the_same_again_and_its_truth_changes_as_said() -> None:
    world = World(1, 0.1, end=5)
    assert list(world.steps()) == list(World(1, 0.1, end=5).steps())
    assert list(world.steps()) != list(World(2, 0.1, end=5).steps())
    changes = (0, graph_world.APPEAR, graph_world.MERGE, graph_world.FADE)
    counts = [len(set(world.truth(tick).tolist()) - {-1}) for tick in changes]
    groups, merged = world.groups, world.groups - graph_world.PAIRS
    assert counts == [groups - graph_world.LATER, groups, merged, merged - graph_world.GOING]
    assert len(world.keys) == groups * EACH


def test_communities_of_a_world_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_world, "SETTLED", 40)
    monkeypatch.setattr(graph_world, "APPEAR", 60)
    monkeypatch.setattr(graph_world, "MERGE", 120)
    monkeypatch.setattr(graph_world, "FADE", 1000)
    follow, events = tracked()
    ours = followed(World(0, 0.1, end=200), follow, events)
    assert ours.nmi > 0.95
    assert ours.kept > 0.98
    assert max(ours.appear) < 60
    assert max(ours.merge) < 80
    assert followed(World(0, 0.1, end=60), from_scratch).nmi > 0.95


def test_costs_are_measured() -> None:
    assert graph_costs.churned(2_000).nodes == 2_000
    assert graph_costs.resident() > 1 << 20
    graph, made = graph_costs.filled(2_000, 0)
    assert graph.edges == len(made) == 2_000


def test_a_trace_is_replayed_by_its_prompts(tmp_path: Path) -> None:
    folder = tmp_path / "mooncake"
    folder.mkdir()
    rows = [{"timestamp": 1000 * at, "hash_ids": [10 * (at % 3) + step for step in range(4)]} for at in range(200)]
    (folder / "conversation_trace.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = graph_costs.replayed("mooncake", tmp_path, quick=True)
    assert (found.requests, found.edges) == (800, 9)
    assert found.communities == 3.0
    assert found.kept == 1.0
    assert found.modularity == pytest.approx(2 / 3, abs=0.02)


def test_a_trace_that_is_not_there_is_said(tmp_path: Path) -> None:
    for name in ("mooncake", "web12"):
        with pytest.raises(AssetError):
            graph_costs.replayed(name, tmp_path, quick=True)
