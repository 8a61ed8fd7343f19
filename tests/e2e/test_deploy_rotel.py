"""Spans and metrics from OpenTelemetry's SDK through a real collector, rotel, started by the kit's own script."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

pytest.importorskip("rotel")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from tests.e2e.deploy_stage import receiver, rotel, until

SPANS = 3000
"""Fewer than a batch of rotel's may have: it cuts none, see rotel.env."""
OURS = Resource({"service.name": "mmcache", "service.instance.id": "one"})


def test_spans_pass_through_rotel_in_batches_with_all_that_they_say(tmp_path: Path) -> None:
    with receiver() as end, rotel(end.address, tmp_path / "rotel.log") as port:
        exporter = OTLPSpanExporter(f"http://127.0.0.1:{port}/v1/traces", timeout=60)
        provider = TracerProvider(resource=OURS)
        # Small parts: that what arrives is larger is rotel's doing.
        provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=SPANS, max_export_batch_size=50))
        tracer = provider.get_tracer("mmcache")
        for number in range(SPANS):
            said = {"cache.hit": False, "cache.miss.reason": "signature", "cache.sampling.weight": 100.0}
            tracer.start_span("cache.lookup", attributes=said | {"number": number}).end()
        assert provider.force_flush(120_000)
        until(lambda: len(end.spans) >= SPANS, "all spans")
        provider.shutdown()
        numbers = sorted(said["number"] for _, said, _ in end.spans)
        assert numbers == list(range(SPANS))
        for name, said, of in end.spans:
            assert name == "cache.lookup"
            assert said["cache.hit"] is False
            assert (said["cache.miss.reason"], said["cache.sampling.weight"]) == ("signature", 100.0)
            assert (of["service.name"], of["service.instance.id"]) == ("mmcache", "one")
        sizes = [count for path, _, count in end.requests if path == "/v1/traces"]
        assert len(sizes) < SPANS / 50, "rotel made no batches"
        assert {encoding for _, encoding, _ in end.requests} == {"gzip"}


def test_metrics_pass_through_rotel(tmp_path: Path) -> None:
    with receiver() as end, rotel(end.address, tmp_path / "rotel.log") as port:
        exporter = OTLPMetricExporter(f"http://127.0.0.1:{port}/v1/metrics", timeout=60)
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
        provider = MeterProvider([reader], resource=OURS)
        counter = provider.get_meter("mmcache").create_counter("mmcache.lookups", "{lookup}")
        for reason, _ in itertools.product(("absent", "signature"), range(3)):
            counter.add(1, {"outcome": "miss", "reason": reason})
        assert provider.force_flush(60_000)
        until(lambda: "mmcache.lookups" in end.metrics, "the counter")
        provider.shutdown()
