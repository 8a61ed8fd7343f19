"""Advice from a log: the knee, the lifetime that costs nothing, who is batch, samples, and a file that reads back."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.config_file import read_config
from mmcache.lab.advice import Study, study
from mmcache.lab.advice.inquiry import knee
from mmcache.lab.advice.lifetimes import lifetimes
from mmcache.lab.advice.page import html, markdown
from mmcache.lab.advice.tenants import TenantShare, tenant_shares
from mmcache.lab.advice.words import config, lived, size, span
from mmcache.lab.replay import replay
from mmcache.lab.traces import Trace, synthetic
from mmcache.lab.traces.encoder_costs import costed
from mmcache.policies.lru import LRU
from mmcache.settings import MemorySettings, parse_bytes


@pytest.fixture(scope="module")
def found() -> Study:
    return study(costed(synthetic.pattern("popular", 3000), 0), policies=("lru", "heat"))


def test_the_knee_is_where_more_memory_saves_little() -> None:
    limits = [1, 2, 10, 20, 100]
    assert knee([0.0, 0.4, 0.8, 0.85, 0.9], limits) == 2
    assert knee([0.0, 0.0, 0.0, 0.0, 0.0], limits) == 0
    assert knee([0.5], [7]) == 0


def test_a_lifetime_that_costs_nothing_is_advised() -> None:
    keys = np.tile(np.arange(20), 200)
    trace = Trace.of("t", keys, np.arange(len(keys)) * 10.0)
    points, ttl = lifetimes(trace, "lru", 100)
    assert points[-1].ttl is None
    fixed = [point for point in points if isinstance(point.ttl, float)]
    assert [point.ttl for point in fixed] == sorted(point.ttl for point in fixed)  # type: ignore[type-var]
    assert [point.saved for point in fixed] == sorted(point.saved for point in fixed)
    assert ttl is None or isinstance(ttl, str) or ttl > 200
    for point in fixed:
        assert point.old_age <= point.ttl  # type: ignore[operator]


def test_an_age_that_was_asked_for_is_advised_and_tried() -> None:
    trace = synthetic.pattern("drift", 2000)
    points, ttl = lifetimes(trace, "lru", trace.capacity(20), 7.0)
    assert ttl == 7.0
    assert 7.0 in [point.ttl for point in points]


def test_a_tenant_that_fills_much_and_saves_little_is_batch() -> None:
    trace = Trace(
        "t", np.array([0, 0, 0, 1, 2, 3], np.uint32), np.arange(6.0), np.array([10, 10, 10, 10]), np.ones(4),
        np.zeros(4, np.int64), np.array([0, 1, 1, 1]), ("image",), ("shop", "export"),
    )  # fmt: skip
    shop, export = tenant_shares(trace, replay(trace, LRU(), 20).hits, 20, 2.0)
    assert (shop.name, shop.service, shop.quota, shop.saved) == ("shop", "normal", None, 1.0)
    assert (export.name, export.service, export.quota) == ("export", "batch", 20)


def test_a_thinned_log_is_scaled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmcache.lab.advice.inquiry.MOST_REPLAYED", 2000)
    monkeypatch.setattr("mmcache.lab.advice.inquiry.LEAST_BLOCKS", 10)
    monkeypatch.setattr("mmcache.lab.advice.inquiry.SIZES", (10.0, 100.0))
    trace = costed(synthetic.pattern("popular", 8000), 0)
    limit = trace.capacity(10)
    whole, thin = (study(trace, policies=("lru",), memory=limit, exact=exact) for exact in (True, False))
    assert whole.rate == 1
    assert 0.15 < thin.rate < 0.35
    assert (thin.footprint, thin.requests) == (whole.footprint, whole.requests)
    assert thin.memory == pytest.approx(limit, rel=0.001)
    assert thin.curves["lru"][-1].memory == pytest.approx(whole.curves["lru"][-1].memory, rel=0.001)
    assert thin.best.saved == pytest.approx(whole.best.saved, abs=0.1)


def test_memory_is_advised_that_keeps_the_blocks() -> None:
    """The memory tier refuses what is larger than half of it: memory for one of these blocks would keep none."""
    rng = np.random.default_rng(0)
    ids = np.where(rng.random(400) < 0.9, 0, rng.integers(0, 4, 400))
    trace = Trace.of("t", ids, np.arange(400.0), 8 << 20)
    advised = study(trace, policies=("lru",))
    held = parse_bytes(tomllib.loads(config(advised))["cache"]["memory"]) * MemorySettings().largest_share
    assert held > 8 << 20
    small = study(trace, policies=("lru",), memory=12 << 20)
    assert small.best.saved == 0
    assert any("4 of 4 blocks are larger than half of that memory" in note for note in small.notes)


def test_what_is_promised_is_what_the_advised_lifetime_leaves() -> None:
    trace = Trace.of("t", np.tile(np.arange(20), 200), np.arange(4000) * 10.0)
    endless, short = (study(trace, policies=("lru",), fresh_within=age) for age in (None, 20.0))
    assert endless.best.saved > 0.9
    assert short.ttl == 20.0
    assert short.best.saved == 0
    assert short.saved_seconds == 0


def test_an_age_that_was_asked_for_is_advised_without_times_too() -> None:
    trace = replace(synthetic.pattern("popular", 1000), notes=("no times: made up",))
    advised = study(trace, policies=("lru",), fresh_within=60.0)
    assert tomllib.loads(config(advised))["cache"]["ttl"] == 60
    assert advised.best.saved > 0  # made-up times end no block


def test_nothing_is_said_of_lifetimes_where_nothing_is_known() -> None:
    keys = np.tile(np.arange(20), 200)
    assert lifetimes(Trace.of("t", keys, np.arange(len(keys)) * 1e-5), "lru", 100)[1] is None
    assert (
        lifetimes(replace(Trace.of("t", keys, np.arange(len(keys)) * 1.0), costs=np.zeros(20)), "lru", 100)[1] is None
    )


def test_a_long_log_of_few_blocks_is_not_thinned_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmcache.lab.advice.inquiry.MOST_REPLAYED", 10)
    found = study(Trace.of("t", np.zeros(1000, np.int64), np.arange(1000.0)), policies=("lru",))
    assert found.rate == 1
    assert found.best.hit_ratio == pytest.approx(0.999, abs=0.02)


def test_a_study_is_consistent(found: Study) -> None:
    assert found.best.saved <= found.bound + 1e-9
    assert found.saved_seconds <= found.cost
    assert found.a_day(found.saved_seconds) is None  # 30 s of log
    for name, points in found.curves.items():
        assert found.at[name].memory == found.memory
        assert points[-1].memory >= found.footprint


@given(
    name=st.text(min_size=1), quota=st.none() | st.integers(1, 1 << 40), ttl=st.sampled_from([None, 3.5, "survival"])
)
def test_any_configuration_reads_back(found: Study, name: str, quota: int | None, ttl: float | str | None) -> None:
    tenant = TenantShare(name, 0.5, 0.5, 0.1, 0.1, "batch", quota)
    told = tomllib.loads(config(replace(found, tenants=(tenant,), ttl=ttl)))
    assert told["cache"].get("ttl") == ttl
    written = name.encode("utf-8", "replace").decode()
    assert told["tenants"] == {
        written: {"service": "batch"} | ({"quota": told["tenants"][written]["quota"]} if quota else {})
    }


def test_the_cache_reads_the_configuration(found: Study, tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "mmcache.toml"
    path.write_text(config(found))
    assert read_config(path)["policy"] == found.policy


def test_pages_escape_what_a_log_says(found: Study) -> None:
    named = replace(found, name="<script>`|`", notes=("<b>",))
    page = html(named, "<svg/>")
    assert "<script>" not in page
    assert "<b>" not in page
    assert "<script>" not in markdown(named).split("```toml")[0]


def test_words() -> None:
    assert [span(one) for one in (1.5, 119, 150, 7300, 200_000)] == ["1.5 s", "119 s", "2.5 min", "2.03 h", "2.31 d"]
    assert [size(one) for one in (12, 2048, 5 << 30)] == ["12 B", "2.0 KiB", "5.0 GiB"]
    assert [lived(one) for one in (None, "survival", 90.0)] == ["for ever", "survival", "90 s"]
