"""Table `prefetch`: its streams, its world in virtual time, and that it adds up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mmcache.lab.prefetch_arms import ARMS, FORESEEN, NONE, OURS, UNSTOPPABLE, WRONG, Arm
from mmcache.lab.prefetch_world import HIT_SECONDS, Outcome, World
from mmcache.lab.table import Result, silent
from mmcache.lab.table_prefetch import PrefetchTable
from mmcache.lab.traces.sessions import Shop, View, Views, conversations, noise, shop
from mmcache.model.errors import AssetError

SMALL = Shop(categories=2, products=12)


def run(arm: Arm, views: Views, percent: float = 20.0, seed: int = 0) -> Outcome:
    return arm.run(views, percent, seed)


def test_streams_are_the_same_for_a_seed() -> None:
    assert shop(3, 200) == shop(3, 200)
    assert shop(3, 200) != shop(4, 200)
    for views in (shop(0, 500), noise(0, 500)):
        assert len(views.views) == 500
        assert [view.at for view in views.views] == sorted(view.at for view in views.views)
        assert {block for view in views.views for block in view.blocks} <= set(range(len(views.costs)))
        assert len(views.costs) == len(views.sizes)


def test_first_paint_waits_for_the_one_encoder() -> None:
    """Two visitors at once, each with a block of a second: the second one waits for both; a third finds it there."""
    views = Views(
        "two",
        (View(0.0, "a", (0,)), View(0.25, "b", (1,)), View(0.5, "c", (1,)), View(9.0, "d", (0, 1))),
        (1.0, 1.0),
        (64, 64),
    )
    outcome = World(views, 1 << 20, None, learns=-1.0).run()
    assert outcome.paints == pytest.approx([1.0 + HIT_SECONDS, 1.75 + HIT_SECONDS, 1.5 + HIT_SECONDS, 2 * HIT_SECONDS])
    assert (outcome.lookups, outcome.hits, outcome.computed, outcome.busy) == (5, 3, 2, 2.0)


@pytest.mark.slow
def test_arms_see_the_same_visitors_and_add_up() -> None:
    views = shop(0, 240, SMALL)
    for arm in ARMS:
        outcome = run(arm, views)
        assert outcome.lookups == outcome.hits + outcome.computed, arm.name
        assert len(outcome.paints) == 160
        assert outcome.used <= outcome.prefetched
        assert outcome.joined <= outcome.used
        assert 0.0 <= outcome.off <= outcome.seconds
        assert arm.prefetches or outcome.prefetched == 0


@pytest.mark.slow
def test_the_same_run_twice_is_the_same() -> None:
    views = shop(0, 300, SMALL)
    assert run(OURS, views) == run(OURS, views)
    assert run(WRONG, views) == run(WRONG, views)


def test_whoever_knows_the_next_page_waits_less() -> None:
    views = shop(1, 1000)
    none, foreseen = run(NONE, views, 10.0), run(FORESEEN, views, 10.0)
    assert foreseen.hit_rate > none.hit_rate
    assert foreseen.busy < none.busy
    assert foreseen.use > 0.9


def test_work_that_cannot_stop_is_never_cancelled() -> None:
    views = shop(0, 400, SMALL)
    assert run(UNSTOPPABLE, views).cancelled == 0


def test_brings_next_to_nothing_on_noise() -> None:
    outcome = OURS.run(noise(0, 600), 10.0, 0, learns=0.0)
    assert outcome.prefetched <= 0.05 * outcome.computed


def row(hashes: list[int], at: int) -> str:
    return json.dumps({"timestamp": at, "input_length": 1, "output_length": 1, "hash_ids": hashes})


def test_sessions_are_inferred_from_shared_prefixes(tmp_path: Path) -> None:
    folder = tmp_path / "mooncake"
    folder.mkdir()
    rows = [[0, 1, 2], [0, 5], [0, 1, 2, 3], [0, 6, 7], [0, 5, 8], [0, 1, 2, 3, 4]]
    path = folder / "conversation_trace.jsonl"
    path.write_text("\n".join(row(hashes, 1000 * at) for at, hashes in enumerate(rows)))
    views = conversations(tmp_path, 100).views
    names = [view.session for view in views]
    assert names == [names[0], names[1], names[0], names[3], names[1], names[0]]
    assert len(set(names)) == 3
    assert [view.at for view in views] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert len(conversations(tmp_path, 2).views) == 2
    path.write_text("{}")
    with pytest.raises(AssetError, match="damaged"):
        conversations(tmp_path, 1)
    with pytest.raises(AssetError, match="MMCACHE_TRACES"):
        conversations(tmp_path / "elsewhere", 1)


@pytest.mark.slow
def test_quick_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MMCACHE_TRACES", str(tmp_path))
    table = PrefetchTable()
    result: Result = table.run(True, (0,), silent)
    ids = {row.id for row in result.rows}
    assert {"shop/hit/behaviour", "shop/paint/none", "shop/use/behaviour", "noise/quiet", "shop/wrong/kept"} <= ids
    assert any("Mooncake" in line for line in result.simulated)
    pytest.importorskip("matplotlib")
    from mmcache.lab.plot import svg

    assert "<svg" in svg(table, result)
