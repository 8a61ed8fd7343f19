"""`mmcache dashboard` as a process: real senders, signals, and kill -9 while it writes."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.unit.dashboard.store_world import lookup, request_of

PATIENCE = 60.0
NOW = time.time() // 60 * 60 - 600


def until(true: Callable[[], Any]) -> Any:
    """Poll, patiently."""
    end = time.monotonic() + PATIENCE
    while not (found := true()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)
    return found


@contextmanager
def running(store: Path | str, *more: str) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, str]]]:
    """The command, once it listens; killed at the end."""
    command = [sys.executable, "-m", "mmcache.cli", "dashboard", "--otlp", ":0", "--store", str(store), "--json", *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.stderr and process.stderr.read()
            yield process, json.loads(line)
        finally:
            process.kill()


def get(base: str, path: str) -> Any:
    with urllib.request.urlopen(base + path, timeout=PATIENCE) as reply:
        return json.load(reply)


def post(base: str, body: bytes, path: str = "/v1/traces") -> int:
    headers = {"content-type": "application/x-protobuf", "content-encoding": "gzip"}
    request = urllib.request.Request(base + path, gzip.compress(body), headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_real_sdk_sends_and_sigterm_ends_it_with_0(tmp_path: Path) -> None:
    trace = pytest.importorskip("opentelemetry.sdk.trace")
    exporters = pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    with running(tmp_path / "traces.duckdb") as (process, said):
        assert said["page"] == said["otlp"]
        provider = trace.TracerProvider(resource=Resource({"service.name": "app", "service.instance.id": "sdk"}))
        exporter = exporters.OTLPSpanExporter(said["otlp"] + "/v1/traces", compression=exporters.Compression.Gzip)
        provider.add_span_processor(BatchSpanProcessor(exporter))
        tracer = provider.get_tracer("test")
        for at in range(300):
            with tracer.start_as_current_span("answer"), tracer.start_as_current_span("cache.lookup") as span:
                span.set_attributes(
                    {"cache.hit": at % 3 > 0, "cache.tenant": "a", "cache.outcome": "hit" if at % 3 else "miss"}
                )
        provider.shutdown()  # sends what waits, and is answered when it is on the disk
        assert get(said["page"], "/api/v1/meta")["spans"] == 600
        (series,) = get(said["page"], "/api/v1/ratio?tenant=a")["series"]
        assert (sum(series["hits"]), sum(series["misses"])) == (200, 100)
        (request,) = get(said["page"], "/api/v1/requests?limit=1")["requests"]
        names = [one["name"] for one in get(said["page"], f"/api/v1/traces/{request['trace']}")["spans"]]
        assert sorted(names) == ["answer", "cache.lookup"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_metrics_of_a_real_sdk_are_shown(tmp_path: Path) -> None:
    metrics = pytest.importorskip("opentelemetry.sdk.metrics")
    exporters = pytest.importorskip("opentelemetry.exporter.otlp.proto.http.metric_exporter")
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    def used(_: CallbackOptions) -> list[Observation]:
        return [Observation(123.0, {"tier": "memory"})]

    with running(":memory:") as (_, said):
        reader = PeriodicExportingMetricReader(exporters.OTLPMetricExporter(said["otlp"] + "/v1/metrics"), 3_600_000)
        provider = metrics.MeterProvider([reader])
        provider.get_meter("test").create_observable_gauge("mmcache.tier.used", [used])
        provider.shutdown()
        (tier,) = get(said["page"], "/api/v1/tiers?points=3")["tiers"]
        assert (tier["tier"], tier["used"][-1]) == ("memory", 123.0)


def test_live_tells_a_listener_and_ends_with_the_process(tmp_path: Path) -> None:
    with (
        running(":memory:") as (process, said),
        urllib.request.urlopen(said["page"] + "/api/v1/live", timeout=PATIENCE) as live,
    ):
        assert live.readline() == b": mmcache\n"
        assert post(said["otlp"], request_of(lookup(NOW), lookup(NOW, "absent")).SerializeToString()) == 200
        lines = iter(live.readline, b"")
        assert next(line for line in lines if line.startswith(b"event")) == b"event: tick\n"
        told = json.loads(next(lines).removeprefix(b"data: "))
        assert (told["spans"], told["lookups"], told["hits"], told["ratio"]) == (2, 2, 1, 0.5)
        process.send_signal(signal.SIGTERM)
        assert not [line for line in lines if not line.startswith(b":") and line.strip()]
        assert process.wait(PATIENCE) == 0


def test_the_page_may_have_a_port_of_its_own(tmp_path: Path) -> None:
    with running(":memory:", "--port", "0") as (_, said):
        assert said["page"] != said["otlp"]
        assert get(said["page"], "/api/v1/meta")["spans"] == 0
        assert post(said["otlp"], request_of(lookup(NOW)).SerializeToString()) == 200
        assert post(said["page"], b"") in (404, 405)
        with pytest.raises(urllib.error.HTTPError):
            get(said["otlp"], "/api/v1/meta")
        assert get(said["page"], "/api/v1/meta")["spans"] == 1


def test_tokens_come_from_files_and_a_second_process_is_told(tmp_path: Path) -> None:
    token, store = tmp_path / "token", tmp_path / "traces.duckdb"
    token.write_text("correct-horse\n")
    with running(store, "--admin-token-file", str(token), "--ingest-token-file", str(token)) as (_, said):
        assert post(said["otlp"], b"") == 401
        request = urllib.request.Request(
            said["page"] + "/api/v1/admin/clear", b"", {"authorization": "Bearer correct-horse"}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            assert reply.status == 200
        command = [sys.executable, "-m", "mmcache.cli", "dashboard", "--otlp", ":0", "--store", str(store)]
        second = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert second.returncode == 3
        assert "another process has the store" in second.stderr


@pytest.mark.parametrize(
    "wrong", [["--otlp", "nonsense"], ["--otlp", ":99999"], ["--limit", "5"], ["--gpu-hour", "-1"]]
)
def test_what_makes_no_sense_is_said_at_the_start(wrong: list[str]) -> None:
    command = [sys.executable, "-m", "mmcache.cli", "dashboard", "--store", ":memory:", "--otlp", ":0", *wrong]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode in (2, 3)
    assert done.stderr.startswith("mmcache: ")


@pytest.mark.slow
def test_what_was_answered_survives_kill_9(tmp_path: Path) -> None:
    store = tmp_path / "traces.duckdb"
    acknowledged: set[str] = set()
    for turn in range(6):
        with running(store, "--limit", "1GiB") as (process, said):
            found = spans_of(said["page"], len(acknowledged))
            assert acknowledged <= found, f"lost before turn {turn}: {len(acknowledged - found)}"
            stop = threading.Event()
            senders = [threading.Thread(target=send, args=(said["otlp"], acknowledged, stop)) for _ in range(3)]
            for sender in senders:
                sender.start()
            until(partial(more_than, acknowledged, len(acknowledged) + 1500))
            os.kill(process.pid, signal.SIGKILL)
            stop.set()
            for sender in senders:
                sender.join()
    with running(store) as (_, said):
        assert acknowledged <= spans_of(said["page"], len(acknowledged))
    assert not list(tmp_path.glob("*damaged*"))


def more_than(found: set[str], count: int) -> bool:
    return len(found) > count


def send(base: str, acknowledged: set[str], stop: threading.Event) -> None:
    """Batches until the process is gone; what is answered with 200 is acknowledged."""
    while not stop.is_set():
        spans = [lookup(NOW, tenant="a", key=f"{at + 1:016x}") for at in range(200)]
        for one in spans:
            one.trace, one.span = os.urandom(16), os.urandom(8)
        try:
            if post(base, request_of(*spans).SerializeToString()) == 200:
                acknowledged.update(one.span.hex() for one in spans)
        except (urllib.error.URLError, ConnectionError, OSError):
            return


def spans_of(base: str, least: int) -> set[str]:
    """All that the store has, by pages."""
    found: set[str] = set()
    before = ""
    while True:
        reply = get(base, f"/api/v1/requests?limit=500&from={NOW - 5}&to={NOW + 5}{before}")
        found |= {one["span"] for one in reply["requests"]}
        if reply["next"] is None:
            return found
        before = f"&before={reply['next']}"


@pytest.mark.slow
def test_a_collector_in_between(tmp_path: Path) -> None:
    """OpenTelemetry SDK → rotel, a collector → dashboard."""
    rotel = pytest.importorskip("rotel", reason="the collector rotel is not installed: pip install rotel")
    agent = Path(rotel.__file__).parent / "rotel-agent"
    if not agent.exists():
        pytest.skip("this rotel has no agent program")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        http, grpc = one.getsockname()[1], two.getsockname()[1]
    with running(tmp_path / "traces.duckdb") as (_, said):
        command = [
            str(agent), "start",
            "--otlp-http-endpoint", f"127.0.0.1:{http}", "--otlp-grpc-endpoint", f"127.0.0.1:{grpc}",
            "--exporter", "otlp", "--otlp-exporter-endpoint", said["otlp"], "--otlp-exporter-protocol", "http",
            "--otlp-exporter-compression", "gzip",
        ]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path) as collector:
            try:
                until(lambda: listening(http) or collector.poll() is not None)
                assert collector.poll() is None, "rotel did not start"
                provider = TracerProvider()
                provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"http://127.0.0.1:{http}/v1/traces")))
                with provider.get_tracer("test").start_as_current_span("cache.lookup") as span:
                    span.set_attributes({"cache.hit": False, "cache.miss.reason": "evicted", "cache.tenant": "via"})
                provider.shutdown()
                until(lambda: get(said["page"], "/api/v1/meta")["spans"] == 1)
                assert get(said["page"], "/api/v1/meta")["axes"]["reason"] == ["evicted"]
            finally:
                collector.kill()


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
