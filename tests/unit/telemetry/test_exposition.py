"""The text that is scraped: by the parsers of those who scrape, and with names as hostile as callers may choose."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache import Cache
from mmcache.ledger import Labels
from mmcache.model.event import MissReason
from mmcache.telemetry import attributed, exposition, render
from mmcache.telemetry.counts import counts_of
from mmcache.telemetry.histograms import EMPTY, Exemplar, Histogram
from mmcache.telemetry.names import BOUNDS, METRICS

HOSTILE = ['qu"ote', "new\nline", "back\\slash", "\x00\x1b[31m", "\ud800", "\u2028", "a\r\nb", "{}", "é漢字", " "]


def busy(tenants: list[str] = HOSTILE) -> Cache:
    cache = Cache(memory="64MiB")
    for n, tenant in enumerate(tenants):
        key = cache.key(f"{n}", modality="text", signature="model-1", tenant="t")
        with attributed(route="/search", region="eu-west"):
            cache.get_or_compute(key, lambda: "value")
        cache.answers.look_up([key])
        cache._tally.miss(MissReason.ABSENT, "text", tenant=tenant)
    cache.invalidate(cache.key("0", modality="text", signature="model-1", tenant="t"))
    counts = counts_of(cache)
    counts.requests.add(("/v1/embeddings", "hit", ""))
    for seconds in (0.0, 0.000_01, 0.002, 1e6):
        counts.durations["lookup"].observe("hit", seconds, Exemplar(seconds, "a" * 32, "b" * 16, 1_800_000_000.5))
    counts.durations["compute"].observe("done", 0.02)
    return cache


@pytest.mark.parametrize("openmetrics", [False, True])
def test_the_reference_parsers_read_all_of_it(openmetrics: bool) -> None:
    pytest.importorskip("prometheus_client", reason="the reference parser is not here")
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as openly
    from prometheus_client.parser import text_string_to_metric_families as plainly

    with busy() as cache:
        text = render(cache, openmetrics).decode()
        read = {family.name: family for family in (openly if openmetrics else plainly)(text)}
        assert set(read) == {metric.prometheus for metric in METRICS.values()}
        total = sum(sample.value for sample in read["mmcache_lookups"].samples)
        stats = cache.stats()
        assert total == stats.hits + stats.misses
        found = [sample for sample in read["mmcache_lookups"].samples if sample.labels.get("tenant") == 'qu"ote']
        assert [sample.value for sample in found] == [1]
        tenants = {sample.labels["tenant"] for sample in read["mmcache_lookups"].samples if "tenant" in sample.labels}
        assert {'qu"ote', "new\nline", "back\\slash", "{}", "é漢字", "\ufffd"} <= tenants
        buckets = [s for s in read["mmcache_lookup_duration_seconds"].samples if s.name.endswith("_bucket")]
        assert [bucket.value for bucket in buckets] == [2, *[2] * 4, *[3] * 10, 4]
        assert len(buckets) == len(BOUNDS) + 1
        told = [bucket.exemplar for bucket in buckets if bucket.exemplar is not None]
        assert bool(told) == openmetrics
        assert all(one.labels == {"trace_id": "a" * 32, "span_id": "b" * 16} for one in told)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not here")
def test_promtool_finds_nothing_to_say() -> None:
    with busy() as cache:
        done = subprocess.run(
            ["promtool", "check", "metrics"], input=render(cache), capture_output=True, timeout=300, check=False
        )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


@given(st.lists(st.text(st.characters(), min_size=0, max_size=6), max_size=8))
def test_no_label_value_breaks_a_line_or_makes_a_series_twice(values: list[str]) -> None:
    metric, samples = METRICS["mmcache.checks"], dict[Labels, float]()
    for value in values:
        samples[value,] = samples.get((value,), 0) + 1
    lines = list(exposition._samples(metric, samples))
    for line in lines:
        line.encode()
        assert "\n" not in line
        assert len(line.splitlines()) == 1
    assert len({line.rpartition(" ")[0] for line in lines}) == len(lines)
    assert sum(float(line.rpartition(" ")[2]) for line in lines) == len(values)


def test_no_key_and_no_client_is_ever_in_a_label() -> None:
    with busy() as cache:
        key = cache.key("who", modality="text", signature="model-1")
        with attributed(client="someone/1.0", route="/search"):
            cache.get_or_compute(key, lambda: "secret answer")
        for metric in METRICS.values():
            assert not {"key", "client", "content_id", "signature"} & set(metric.labels)
        text = render(cache, True).decode()
        for unsaid in (key.hex(), key.digest.hex()[:16], key.scope.hex()[:16], "someone", "secret answer"):
            assert unsaid not in text


def test_several_caches_are_one_text() -> None:
    with busy() as one, busy() as other:
        text = render([one, other], True).decode()
        names = [line.rpartition(" # ")[0] or line for line in text.splitlines() if not line.startswith("#")]
        series = [line.rpartition(" ")[0] for line in names]
        assert len(series) == len(set(series))
        assert f'tier="memory",modality="text",strategy="exact",tenant="t"}} {2 * len(HOSTILE)}' in text


def test_the_kind_that_is_asked_for() -> None:
    assert exposition.wanted("application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1")
    assert not exposition.wanted("text/plain;version=0.0.4")
    assert not exposition.wanted("*/*")


def test_the_reference_page_has_the_same_metrics() -> None:
    from pathlib import Path

    page = Path(__file__).parents[3] / "docs" / "reference" / "telemetry.md"
    text = page.read_text(encoding="utf-8")
    for metric in METRICS.values():
        assert f"`{metric.name}`" in text
        assert f"`{metric.unit}`" in text


@given(st.lists(st.floats(0, 1e4), max_size=50))
def test_a_histogram_counts_every_value_once(values: list[float]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.observe("hit", value)
    found = histogram.read().get("hit", EMPTY)
    assert sum(found.counts) == len(values)
    assert found.sum == pytest.approx(sum(values))
    for place, bound in enumerate(BOUNDS):
        assert sum(found.counts[: place + 1]) == sum(value <= bound for value in values)
    assert found.plus(found).counts == tuple(2 * count for count in found.counts)
