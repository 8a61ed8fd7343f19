"""Table `boundary`: its requests are what it says, and a scene counts only whole."""

from __future__ import annotations

import numpy as np
import pytest

from mmcache.lab import contenders, policy_growth
from mmcache.lab.attended import Material
from mmcache.lab.replay import policy_named
from mmcache.lab.scene_load import CHANGED, SCENES, Load, draw, linked
from mmcache.lab.table_boundary import _ends, _gaps
from mmcache.policies.ranked import Ranked

MADE_OF = Material(50, 200, 6, np.linspace(0.1, 4.0, 50), np.linspace(0.5, 5.0, 50), real=False)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_the_mixture_is_what_was_asked_for(share: float) -> None:
    load = draw(share, 6000, 1, MADE_OF)
    costs = load.trace.costs[load.trace.ids]
    of_scenes = float(costs[load.scene[load.whole]].sum() / costs.sum())
    assert of_scenes == pytest.approx(share, abs=0.01)
    assert len(load.trace) == pytest.approx(6000, rel=0.01)
    assert np.all(np.diff(load.trace.times) >= 0)
    assert set(np.bincount(load.whole)[load.scene].tolist()) <= {MADE_OF.tiles}
    assert set(np.bincount(load.whole)[~load.scene].tolist()) <= {1}


def test_a_seed_gives_the_same_requests() -> None:
    one, same, other = (draw(0.5, 3000, seed, MADE_OF) for seed in (1, 1, 2))
    assert np.array_equal(one.trace.ids, same.trace.ids)
    assert np.array_equal(one.entropies, same.entropies)
    assert not np.array_equal(one.trace.ids[:500], other.trace.ids[:500])


def tiles_of(load: Load) -> list[list[int]]:
    return load.trace.ids.reshape(-1, MADE_OF.tiles).tolist()


def test_a_scene_that_changes_keeps_two_thirds_of_its_tiles() -> None:
    shared = set[int]()
    seen: list[set[int]] = []
    for tiles in map(set, tiles_of(draw(1.0, 12_000, 3, MADE_OF))):
        assert len(tiles) == MADE_OF.tiles
        latest = next((old for old in reversed(seen) if old & tiles), None)
        if latest is not None:
            shared.add(len(latest & tiles))
        seen.append(tiles)
    assert {MADE_OF.tiles, MADE_OF.tiles - MADE_OF.tiles // CHANGED} <= shared
    assert len({frozenset(tiles) for tiles in seen}) > SCENES


def test_a_scene_is_served_only_whole() -> None:
    load = draw(1.0, 600, 1, MADE_OF)
    hits = np.ones(len(load.trace), np.bool_)
    assert load.saved(hits) == {"work": 1.0, "scene": 1.0}
    hits[:: MADE_OF.tiles] = False
    assert load.saved(hits) == {"work": 0.0, "scene": 0.0}
    hits[0 : len(hits) // 2 : MADE_OF.tiles] = True
    assert load.served(hits).sum() == pytest.approx(len(load.scene) / 2, abs=1)


def test_linked_entropies_are_the_same_ones_and_tell_of_use() -> None:
    load = draw(0.0, 6000, 1, MADE_OF)
    other = linked(load, 1)
    uses = np.bincount(load.trace.ids)
    assert sorted(load.entropies) == sorted(other.entropies)
    assert abs(np.corrcoef(np.log(uses), load.entropies)[0, 1]) < 0.1
    assert np.corrcoef(np.log(uses), other.entropies)[0, 1] < -0.4


@pytest.mark.parametrize("name", contenders.names())
def test_every_contender_serves_something(name: str) -> None:
    load = draw(0.5, 2000, 1, MADE_OF)
    hits = contenders.contend(name, load, 20_000, 1)
    assert 0 < hits.sum() < len(hits)
    assert np.array_equal(hits, contenders.contend(name, load, 20_000, 1))


def test_a_memory_that_holds_all_misses_only_what_is_new() -> None:
    load = draw(0.5, 2000, 1, MADE_OF)
    for name in contenders.names():
        if name != contenders.LFU_TTL:
            assert (~contenders.contend(name, load, 1 << 40, 1)).sum() == len(load.trace.sizes)


def test_a_forecast_is_judged_while_it_is_replayed() -> None:
    pytest.importorskip("torch", reason="the forecast is trained by torch")
    load = draw(0.5, 2300, 1, MADE_OF)
    found = contenders.foreseen(load, 20_000, 1)
    assert 0 < found.hits.sum() < len(found.hits)
    assert found.report["verdicts"] > 0
    assert 0.0 <= found.report["trusted"] <= 1.0


def test_rows_of_a_sweep() -> None:
    sweep = {
        "lru": {share: [{"work": 30.0, "patch": 40.0, "scene": 20.0}] for share in (0.0, 0.5, 1.0)},
        "auto": {share: [{"work": 36.0 - 2 * share, "patch": 39.5, "scene": 30.0}] for share in (0.0, 0.5, 1.0)},
    }
    rows = {row.id: row for row in _ends(sweep)}
    assert rows["0/patch/lru"].published == 41.2
    assert rows["0/patch/auto"].met is True
    assert rows["100/scene/auto"].target == 29.0
    assert rows["50/scene/lru"].target is None
    gaps = {row.id: row for row in _gaps(sweep)}
    assert gaps["gap/lru"].ours == 6.0
    assert "at 0 % scenes" in gaps["gap/lru"].metric
    assert gaps["gap/auto"].met is True


@pytest.mark.parametrize("name", ["lru", "heat", "entropy-lfu", "heat-freshness"])
def test_growth_is_measured_in_a_steady_state(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = policy_named(name)
    monkeypatch.setattr(policy_growth, "policy_named", lambda name: made)
    call = policy_growth.requests(name, 200)
    for _ in range(3):
        call()
        assert len(set(made.victims(1e6))) == 200


def test_an_lfu_is_a_score() -> None:
    policy = Ranked(contenders.uses)
    assert list(policy.victims(0.0)) == []
