"""Lookups and writes of an engine's items, in the trace of the request that needs them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed; `make test-vllm` runs these")
pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry is not installed")

import numpy as np
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from PIL import Image
from tests.vllm.test_connector import Both, config, output, request

from mmcache.integrations.vllm import caches
from mmcache.integrations.vllm import connector as module
from mmcache.lab.engines.process import Engine
from mmcache.model.errors import SettingsError
from mmcache.stats import Asked
from mmcache.telemetry import instrument
from mmcache.telemetry.counts import counts_of

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


def traced(wanted: Any, parent: str | None = PARENT) -> Any:
    wanted.trace_headers = None if parent is None else {"traceparent": parent, "tracestate": "ot=th:c"}
    return wanted


def at(span: ReadableSpan) -> tuple[str, str]:
    context, parent = span.get_span_context(), span.parent
    assert context is not None
    return f"{context.trace_id:032x}", "" if parent is None else f"{parent.span_id:016x}"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_first", lambda: True)


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Both, InMemorySpanExporter]]:
    settings, spans = config(tmp_path), InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    made = Both(settings)
    (options,) = caches._open
    cache = caches._open[options][0]
    with instrument(cache, tracer_provider=provider, sample=0.0) as watch:
        caches._watching[options] = watch
        try:
            yield made, spans
        finally:
            caches._watching.pop(options, None)
            made.close()


def finished(spans: InMemorySpanExporter) -> list[ReadableSpan]:
    (watch,) = caches._watching.values()
    watch.flush()
    return list(spans.get_finished_spans())


def test_a_requests_lookups_and_writes_are_in_its_trace(both: tuple[Both, InMemorySpanExporter]) -> None:
    engine, spans = both
    assert len(engine.ask(traced(request("a", 1)), output(1))) == 1
    engine.worker.flush()
    found = {span.name: span for span in finished(spans)}
    assert found.keys() == {"cache.lookup", "cache.put"}
    for span in found.values():
        assert at(span) == (TRACE, SPAN)
        assert (span.attributes or {})["cache.route"] == "vllm"
        assert (span.attributes or {})["cache.sampling.weight"] == 4.0
    assert (found["cache.lookup"].attributes or {})["cache.miss.reason"] == "absent"


@pytest.mark.parametrize(
    "parent",
    [None, "", "nonsense", "\udcff", f"00-{TRACE}-{SPAN}-00", f"ff-{TRACE}-{SPAN}-01"],
    ids=["none", "empty", "nonsense", "surrogate", "not sampled", "version"],
)
def test_other_headers_change_nothing(both: tuple[Both, InMemorySpanExporter], parent: str | None) -> None:
    engine, spans = both
    assert len(engine.ask(traced(request("a", 1), parent), output(1))) == 1
    engine.worker.flush()
    engine.evict()
    assert engine.ask(traced(request("b", 1), parent), output(1)) == []
    assert finished(spans) == []


def test_lookups_count_for_vllm(both: tuple[Both, InMemorySpanExporter]) -> None:
    engine, _ = both
    engine.ask(request("a", 1), output(1))
    cache = engine.scheduler._cache
    routes = {Asked(*labels).route for labels in counts_of(cache).lookups() if Asked(*labels).outcome == "miss"}
    assert routes == {"vllm"}


def test_vllms_requests_carry_the_headers() -> None:
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request

    made = Request("a", [1], SamplingParams(max_tokens=1), None, trace_headers={"traceparent": PARENT})
    assert caches.trace_of(made) == (PARENT, "")


def test_spans_are_sent_where_the_options_say(tmp_path: Path) -> None:
    engine = Both(config(tmp_path, otlp="http://127.0.0.1:9", sample=1.0))
    try:
        assert len(caches._watching) == 1
        assert len(engine.ask(traced(request("a", 1)), output(1))) == 1
    finally:
        engine.close()
    assert caches._watching == {}
    for wrong in ({"otlp": "nowhere"}, {"otlp": ""}, {"sample": 2}, {"sample": "1"}):
        with pytest.raises(SettingsError):
            Both(config(tmp_path, **wrong))
    assert caches._open == {}


@pytest.mark.slow
def test_a_real_engine_sends_them(tmp_path: Path) -> None:
    service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    taken: queue.Queue[bytes] = queue.Queue()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path == "/v1/traces":
                taken.put(body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *words: Any) -> None:
            pass

    picture = tmp_path / "a.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (336, 336, 3), dtype=np.uint8)).save(picture)
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            options = {"otlp": f"http://127.0.0.1:{server.server_port}", "sample": 1.0}
            with Engine("ours", folder=tmp_path, store=tmp_path / "store", options=options) as engine:
                assert engine.ask(picture, "w1 <image> w2").encoded == 1
        finally:
            server.shutdown()
            thread.join()
    spans = [
        span
        for body in iter(lambda: taken.get_nowait() if not taken.empty() else b"", b"")
        for group in service.ExportTraceServiceRequest.FromString(body).resource_spans
        for scoped in group.scope_spans
        for span in scoped.spans
    ]
    found = {span.name: {one.key: one.value.string_value for one in span.attributes} for span in spans}
    assert {"cache.lookup", "cache.put"} <= found.keys()
    assert {told["cache.route"] for told in found.values()} == {"vllm"}
    assert found["cache.lookup"]["cache.modality"] == "image"
