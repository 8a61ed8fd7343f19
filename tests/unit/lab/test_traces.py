"""Traces: numbering, costs drawn and measured, samples, published files, made-up patterns."""

from __future__ import annotations

import lzma
from pathlib import Path

import numpy as np
import pytest

from mmcache.lab.traces import Trace, encoder_costs, published, synthetic
from mmcache.lab.traces.encoder_costs import CURVES, MODALITIES, MODALITY_SHARES, costed
from mmcache.lab.traces.trace import renumber, uniform
from mmcache.model.errors import AssetError


def test_blocks_are_numbered_by_first_appearance_and_keep_one_size() -> None:
    trace = Trace.of("t", [7, -2, 7, 9], [0, 1, 2, 3], [5, 1, 8, 2])
    assert trace.ids.tolist() == [0, 1, 0, 2]
    assert trace.sizes.tolist() == [8, 1, 2]
    assert trace.footprint == 11
    assert trace.capacity(50) == 5
    assert [fact.size for fact in trace.facts] == [8, 1, 2]
    assert len(set(trace.keys)) == 3
    assert renumber(np.array([])).tolist() == []


def test_the_parts_are_disjoint_and_whole() -> None:
    trace = Trace.of("t", range(10))
    assert (trace.tuned, trace.held_out) == (slice(0, 7), slice(7, 10))


def test_a_prefix_keeps_only_its_own_blocks() -> None:
    trace = Trace.of("t", [1, 2, 1, 3, 4], None, [1, 2, 3, 4, 5]).first(3)
    assert trace.ids.tolist() == [0, 1, 0]
    assert trace.sizes.tolist() == [3, 2]
    assert trace.first(9) is trace


def test_draws_are_uniform_and_streams_differ() -> None:
    one, two = uniform(np.arange(20_000), 1), uniform(np.arange(20_000), 2)
    assert abs(float(one.mean()) - 0.5) < 0.01
    assert abs(float(np.corrcoef(one, two)[0, 1])) < 0.03


def test_encoder_costs_follow_the_shares_and_the_curves() -> None:
    trace = costed(Trace.of("t", range(20_000), None, 4096), 0)
    shares = np.bincount(trace.kinds, minlength=4) / len(trace.kinds)
    assert shares == pytest.approx(MODALITY_SHARES, abs=0.02)
    for kind, name in enumerate(MODALITIES):
        pairs = set(zip(CURVES[name].bytes, (ms / 1e3 for ms in CURVES[name].milliseconds), strict=True))
        mine = trace.kinds == kind
        assert set(zip(trace.sizes[mine].tolist(), trace.costs[mine].tolist(), strict=True)) == pairs
    assert (costed(trace, 0).kinds == trace.kinds).all()
    assert (costed(trace, 1).kinds != trace.kinds).any()


def test_a_trace_with_sizes_keeps_them_and_pays_by_the_byte() -> None:
    plain = Trace.of("t", [1, 2, 3, 4], None, [10, 20, 30, 40])
    trace = costed(plain, 0)
    assert trace.sizes.tolist() == plain.sizes.tolist()
    rates = {round(ms / size, 12) for curve in CURVES.values() for size, ms in zip(*_columns(curve), strict=True)}
    assert {round(cost * 1e3 / size, 12) for cost, size in zip(trace.costs, trace.sizes, strict=True)} <= rates


def _columns(curve: encoder_costs.Curve) -> tuple[tuple[int, ...], tuple[float, ...]]:
    return curve.bytes, curve.milliseconds


def test_a_sample_takes_blocks_with_all_their_requests() -> None:
    whole = costed(synthetic.pattern("popular", 20_000), 0)
    some = whole.sampled(0.25)
    assert 0.15 < len(some.sizes) / len(whole.sizes) < 0.35
    uses = np.bincount(whole.ids)
    assert set(np.bincount(some.ids).tolist()) <= set(uses.tolist())
    assert some.ids[0] == 0
    assert whole.sampled(1.0) is whole


@pytest.mark.parametrize("name", sorted(synthetic.PATTERNS))
def test_patterns_repeat_for_a_seed(name: str) -> None:
    one, again, other = (synthetic.pattern(name, 2000, seed).ids.tolist() for seed in (1, 1, 2))
    assert one == again
    assert one != other
    assert len(set(one)) < 2000


def test_a_missing_and_a_damaged_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(AssetError, match="MMCACHE_TRACES"):
        published.read("web12", tmp_path)
    for name, content in (("web12", b"no xz"), ("mooncake", b"{}\n"), ("cloudphysics", b"a,b\n1,2\n")):
        path = tmp_path / published.PUBLISHED[name].file
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        with pytest.raises(AssetError, match="damaged"):
            published.read(name, tmp_path)


def test_big_endian_keys(tmp_path: Path) -> None:
    path = tmp_path / published.PUBLISHED["web12"].file
    path.parent.mkdir()
    path.write_bytes(lzma.compress(np.array([5, -1, 5], ">i4").tobytes()))
    assert published.read("web12", tmp_path).ids.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("name", "requests", "blocks"),
    [
        ("mooncake", 288_500, 182_790),
        ("web12", 95_607, 13_756),
        ("adaptsize", 66_987, 36_815),
        ("cloudphysics", 113_872, 48_974),
        ("w106", 1_500_000, 41_231),
    ],
)
def test_the_published_traces_are_what_was_published(traces: Path, name: str, requests: int, blocks: int) -> None:
    trace = published.read(name, traces)
    assert (len(trace), len(trace.sizes)) == (requests, blocks)
    assert (np.diff(trace.times) >= 0).all()
    assert (trace.sizes > 0).all()
