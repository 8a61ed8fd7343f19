"""The front door: what is sent, what is refused, and that nobody waits for a receiver that is not there."""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import os
import socket
import subprocess
import sys
from functools import partial

import pytest

pytest.importorskip("opentelemetry.sdk", reason="mmcache[otel] is not here")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.unit.telemetry.receiver import PATIENCE, Receiver, until

from mmcache import Cache
from mmcache.model.errors import SettingsError
from mmcache.model.event import MissReason
from mmcache.model.key import Key
from mmcache.settings import TelemetrySettings
from mmcache.telemetry import Telemetry, attributed, instrument, providers, render
from mmcache.telemetry.providers import within
from mmcache.telemetry.quiet import Sending


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sent at the end has time to arrive, however busy the machine is."""
    patient = partial(TelemetrySettings, timeout_seconds=PATIENCE)
    monkeypatch.setattr(importlib.import_module("mmcache.telemetry.instrument"), "TelemetrySettings", patient)


def key_of(cache: Cache, name: str) -> Key:
    return cache.key(name, modality="text", signature="model-1")


def use(cache: Cache, times: int = 10) -> None:
    """One miss, and hits."""
    with attributed(route="/search", client="someone/1.0", region="eu-west"):
        for _ in range(times):
            cache.get_or_compute(key_of(cache, "a"), lambda: "value")


def test_spans_and_metrics_arrive() -> None:
    with Receiver() as receiver, Cache(memory="64MiB") as cache:
        with instrument(
            cache, otlp=receiver.address + "/", headers={"X-Who": "me"}, sample=1.0, service="search", region="eu-1"
        ) as watch:
            use(cache)
        assert watch.dropped == 0
        (told,) = receiver.resources()
        assert told["service.name"] == "search"
        assert told["service.instance.id"].startswith(f"{socket.gethostname()}-{os.getpid()}")
        assert told["process.pid"] == os.getpid()
        assert told["host.name"] == socket.gethostname()
        assert told["service.version"]
        assert told["cloud.region"] == "eu-1"
        assert sorted({span.name for span in receiver.spans()}) == ["cache.compute", "cache.lookup", "cache.put"]
        assert len([span for span in receiver.spans() if span.name == "cache.lookup"]) == 10
        by_labels = receiver.sums("mmcache.lookups")
        assert sum(by_labels.values()) == 10
        assert all(dict(labels)["client_region"] == "eu-west" for labels in by_labels)
        assert all(dict(labels)["route"] == "/search" for labels in by_labels)
        assert all(header["x-who"] == "me" for header in receiver.headers)


def test_an_exemplar_leads_to_its_trace() -> None:
    with Receiver() as receiver, Cache(memory="64MiB") as cache:
        with instrument(cache, otlp=receiver.address, sample=1.0) as watch:
            use(cache)
            found = [one for one in watch.counts.durations["lookup"].read()["miss"].exemplars if one is not None]
        (lookup,) = [span for span in receiver.spans() if span.name == "cache.lookup" and not span.parent_span_id][:1]
        exemplars = [
            exemplar
            for request in receiver.metrics
            for by in request.resource_metrics
            for scope in by.scope_metrics
            for metric in scope.metrics
            if metric.name == "mmcache.lookup.duration"
            for point in metric.histogram.data_points
            for exemplar in point.exemplars
        ]
        spans = {(span.trace_id, span.span_id) for span in receiver.spans()}
        assert exemplars
        assert all((exemplar.trace_id, exemplar.span_id) in spans for exemplar in exemplars)
        assert [(one.trace, one.span) for one in found] == [(lookup.trace_id.hex(), lookup.span_id.hex())]


def test_metrics_add_up_to_the_stats_and_hold_no_key() -> None:
    reader, spans = InMemoryMetricReader(), InMemorySpanExporter()
    meters, tracers = MeterProvider([reader], shutdown_on_exit=False), TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    with Cache(memory="64MiB") as cache:
        with instrument(cache, tracer_provider=tracers, meter_provider=meters, sample=0.5):
            use(cache, 200)
            for n in range(50):
                cache.get_or_compute(key_of(cache, f"{n}"), lambda: "value", bypass=n % 2 == 0)
            stats = cache.stats()
            by_name = metrics_of(reader)
        assert sum(value for _, value in by_name["mmcache.lookups"]) == stats.hits + stats.misses
        missed = [(labels, value) for labels, value in by_name["mmcache.lookups"] if labels["outcome"] == "miss"]
        assert sum(value for _, value in missed) == stats.misses
        assert all(labels["reason"] for labels, _ in missed)
        assert sum(value for _, value in by_name["mmcache.miss_reason_distribution"]) == pytest.approx(1.0)
        unsaid = [key_of(cache, "a").hex(), "someone/1.0"]
        for labels in (labels for found in by_name.values() for labels, _ in found):
            assert not any(word in value for word in unsaid for value in labels.values())
            assert not set(labels) & {"key", "client", "content"}
        after = metrics_of(reader)  # closed: what was counted stays, and nothing comes to it
        use(cache)
        assert metrics_of(reader)["mmcache.lookups"] == after["mmcache.lookups"] == by_name["mmcache.lookups"]
        again = instrument(cache, tracer_provider=tracers, meter_provider=meters)
        stats = cache.stats()
        assert sum(value for _, value in metrics_of(reader)["mmcache.lookups"]) == stats.hits + stats.misses
        again.close()


def metrics_of(reader: InMemoryMetricReader) -> dict[str, list[tuple[dict[str, str], float]]]:
    data = reader.get_metrics_data()
    return {
        metric.name: [(dict(point.attributes), point.value) for point in metric.data.data_points]
        for by in data.resource_metrics
        for scope in by.scope_metrics
        for metric in scope.metrics
        if not metric.name.endswith(".duration")
    }


def test_two_caches_of_one_provider_are_added_up() -> None:
    reader = InMemoryMetricReader()
    meters, tracers = MeterProvider([reader], shutdown_on_exit=False), TracerProvider(shutdown_on_exit=False)
    with Cache(memory="64MiB") as one, Cache(memory="64MiB") as other:
        watches = [instrument(cache, tracer_provider=tracers, meter_provider=meters) for cache in (one, other)]
        use(one, 3)
        use(other, 4)
        assert sum(value for _, value in metrics_of(reader)["mmcache.lookups"]) == 7
        watches[0].close()
        use(other, 4)
        assert sum(value for _, value in metrics_of(reader)["mmcache.lookups"]) == 11
        watches[1].close()


def test_two_caches_of_one_process_are_two_instances() -> None:
    with Receiver() as receiver, Cache(memory="64MiB") as one, Cache(memory="64MiB") as other:
        with instrument(one, otlp=receiver.address), instrument(other, otlp=receiver.address):
            use(one)
            use(other)
        assert len({told["service.instance.id"] for told in receiver.resources()}) == 2


def test_the_same_cache_twice_is_refused_until_the_first_is_closed() -> None:
    tracers, meters = TracerProvider(shutdown_on_exit=False), MeterProvider(shutdown_on_exit=False)
    with Cache(memory="64MiB") as cache:
        first = instrument(cache, tracer_provider=tracers, meter_provider=meters)
        with pytest.raises(SettingsError, match="already"):
            instrument(cache, tracer_provider=tracers, meter_provider=meters)
        first.close()
        first.close()
        instrument(cache, tracer_provider=tracers, meter_provider=meters).close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"otlp": "localhost:4318"}, {"otlp": ""}, {"otlp": "http://"}, {"otlp": "ftp://a"}, {"otlp": "http://a:x"},
        {"otlp": "http://a:99999"}, {"otlp": "http://user:secret@a"}, {"otlp": "http://a/v1/traces"},
        {"otlp": "http://a?b=c"}, {"otlp": 4318}, {"otlp": "http://a", "headers": {"a": "b\r\nc: d"}},
        {"otlp": "http://a", "headers": {"": "b"}}, {"sample": 1.5}, {"sample": -0.1}, {"sample": float("nan")},
        {"sample": "1"}, {"sample": True}, {"interval": 0}, {"spans_per_second": -1}, {"service": 5},
        {"otlp": "http://a", "tracer_provider": TracerProvider(shutdown_on_exit=False)},
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_and_leaves_nothing_behind(wrong: dict[str, object]) -> None:
    with Cache(memory="64MiB") as cache:
        with pytest.raises(SettingsError) as raised:
            instrument(cache, **wrong)  # type: ignore[arg-type]
        assert "secret" not in str(raised.value)
        instrument(cache, tracer_provider=TracerProvider(shutdown_on_exit=False),
                   meter_provider=MeterProvider(shutdown_on_exit=False)).close()  # fmt: skip


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@pytest.mark.parametrize("how", ["nobody there", "refuses", "never answers"])
def test_a_receiver_that_is_down_costs_nothing_but_what_was_to_be_sent(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Receiver(status=500 if how == "refuses" else 200) as receiver, Cache(memory="64MiB") as cache:
        if how == "never answers":
            receiver.hold.clear()
        address = f"http://127.0.0.1:{free_port()}" if how == "nobody there" else receiver.address
        with caplog.at_level(logging.DEBUG):
            watch = Telemetry(cache, TelemetrySettings(address, sample=1.0, interval=0.1, timeout_seconds=0.3))
            for n in range(300):
                cache.get_or_compute(key_of(cache, f"{n}"), lambda: "value")
            watch.close()
            assert not receiver.traces  # of which the one that never answers would have some, had it been waited for
        ours = [record for record in caplog.records if record.name == "mmcache.telemetry"]
        noise = [
            record
            for record in caplog.records
            if record.name.startswith("opentelemetry.exporter")
            or (
                record.name.startswith("urllib3") and "127.0.0.1" in record.getMessage()
            )  # not what frameworks send home
        ]
        assert len(ours) <= 1
        assert not noise
        assert cache.stats().misses == 300


def test_what_is_lost_is_counted_and_a_return_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with Receiver(status=400) as receiver, Cache(memory="64MiB") as cache:
        with instrument(cache, otlp=receiver.address, sample=1.0) as watch:
            use(cache)
            watch.flush()
            until(lambda: watch.dropped == 12)
            receiver.status = 200
            use(cache, 5)
            watch.flush()
            until(receiver.spans)
        assert watch.dropped == 12
        said = [record.getMessage() for record in caplog.records if record.name == "mmcache.telemetry"]
        assert len(said) == 2
        assert "again" in said[1]


def test_a_forked_child_is_an_instance_of_its_own() -> None:
    with Receiver() as receiver, Cache(memory="64MiB") as cache:
        watch = instrument(cache, otlp=receiver.address, sample=1.0)
        use(cache)
        child = os.fork()
        if child == 0:
            try:
                use(cache, 7)
                watch.close()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        watch.close()
        instances = {told["process.pid"]: told["service.instance.id"] for told in receiver.resources()}
        assert set(instances) == {os.getpid(), child}
        assert len(set(instances.values())) == 2
        lookups = {pid: receiver.sums("mmcache.lookups", name) for pid, name in instances.items()}
        assert sum(lookups[os.getpid()].values()) == 10
        assert sum(lookups[child].values()) == 7
        spans = [len([s for s in receiver.spans(instances[pid]) if s.name == "cache.lookup"])
                 for pid in (os.getpid(), child)]  # fmt: skip
        assert spans == [10, 7]


def test_the_environment_names_the_service_where_nobody_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    with Receiver() as receiver, Cache(memory="64MiB") as cache:
        with instrument(cache, otlp=receiver.address, instance="one"):
            use(cache)
        (told,) = receiver.resources()
        assert (told["service.name"], told["service.instance.id"]) == ("shop", "one")
        assert told["deployment.environment.name"] == "test"


def test_the_core_imports_no_opentelemetry_and_says_what_is_missing() -> None:
    script = """
import json, sys
import mmcache, mmcache.telemetry
heavy = [name for name in sys.modules if name.partition(".")[0] in ("opentelemetry", "google", "requests")]
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ImportError(name)
sys.meta_path.insert(0, Missing())
cache = mmcache.Cache(memory="64MiB")
said = []
for options in ({}, {"otlp": "http://localhost:4318"}):
    try:
        mmcache.telemetry.instrument(cache, **options)
    except mmcache.model.errors.SettingsError as error:
        said.append(str(error))
text = mmcache.telemetry.render(cache, True)
print(json.dumps([heavy, said, text.decode().splitlines()[-1]]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True)
    heavy, said, last = json.loads(done.stdout)
    assert heavy == []
    assert len(said) == 2
    assert all("mmcache[otel]" in why for why in said)
    assert last == "# EOF"


def test_steps_that_never_end_are_left_behind() -> None:
    from threading import Event

    never = Event()
    assert not within(0.05, never.wait)
    never.set()
    assert within(60, lambda: None, lambda: 1 / 0)


def test_more_series_than_the_sdk_keeps_by_itself_arrive_apart() -> None:
    with Receiver() as receiver, Cache(memory="64MiB") as cache:
        with instrument(cache, otlp=receiver.address):
            for n in range(150):
                for route in range(20):
                    with attributed(route=f"/{route}"):
                        cache._tally.miss(MissReason.ABSENT, "text", tenant=f"t{n}")
        by_labels = receiver.sums("mmcache.lookups")
        assert sum(by_labels.values()) == 3000
        if "cardinality_limits" in inspect.signature(PeriodicExportingMetricReader).parameters:
            assert len(by_labels) == 3000


def test_a_closed_cache_can_still_be_read() -> None:
    with Cache(memory="64MiB") as cache:
        watch = instrument(cache, tracer_provider=TracerProvider(shutdown_on_exit=False),
                           meter_provider=MeterProvider(shutdown_on_exit=False))  # fmt: skip
        use(cache)
    assert b'outcome="hit"' in render(cache)
    watch.close()


@pytest.mark.parametrize("name", ["\ud800", "\x00", "a\nb", "\u202e", "x" * 100_000, "<script>alert(1)</script>"])
def test_a_hostile_name_stops_nothing_from_arriving(name: str) -> None:
    with Receiver() as receiver, Cache(memory="64MiB") as cache:
        with instrument(cache, otlp=receiver.address, sample=1.0) as watch, attributed(route=name, region=name):
            cache.get_or_compute(key_of(cache, "a"), lambda: "value")
            cache._tally.miss(MissReason.ABSENT, "text", tenant=name)
        assert sum(receiver.sums("mmcache.lookups").values()) == 2
        assert len(receiver.spans()) == 3
        assert watch.dropped == 0


def test_what_finds_no_room_is_counted_and_not_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(providers, "QUEUE", 20)
    monkeypatch.setattr(providers, "BATCH", 10)
    with Receiver() as receiver, Cache(memory="64MiB") as cache:
        receiver.hold.clear()
        watch = instrument(cache, otlp=receiver.address, sample=1.0, spans_per_second=1e6)
        for n in range(100):
            cache.get_or_compute(key_of(cache, f"{n}"), lambda: "value")
        until(lambda: watch.dropped >= 280)  # of 300: the queue holds 20, with those under way
        receiver.hold.set()
        watch.close()
        assert watch.dropped == 280
        assert len(receiver.spans()) == 20
        assert not [record for record in caplog.records if "full" in record.getMessage()]


def test_what_a_transport_raises_is_said_by_its_type_only(caplog: pytest.LogCaptureFixture) -> None:
    def export() -> None:
        raise OSError("https://user:secret@receiver is not there")

    sending = Sending()
    assert sending.attempt(export, True, False, 1) is False
    (said,) = [record.getMessage() for record in caplog.records if record.name == "mmcache.telemetry"]
    assert "OSError" in said
    assert "secret" not in said
