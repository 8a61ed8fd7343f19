"""OpenTelemetry's SDK, set up to send spans and metrics to one address by OTLP over HTTP; and set up anew in a fork."""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mmcache.ledger import SERIES
from mmcache.model.errors import SettingsError
from mmcache.settings import TelemetrySettings

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

BATCH, QUEUE, EVERY_MS = 1024, 8192, 1000
"""Spans in a request, spans that wait for one, and how often one goes out."""

MOST_SERIES = 4 * SERIES
"""Of one counter, that the SDK is to keep apart; it would stop at 2,000, the sum right and the labels gone."""

_instances = itertools.count(1)
_process = os.getpid()


def instance_id() -> str:
    """`host-pid`, and a number behind it for all but the first of a process."""
    global _instances, _process
    if _process != os.getpid():
        _instances, _process = itertools.count(1), os.getpid()
    number = next(_instances)
    return f"{socket.gethostname()}-{os.getpid()}" + (f"-{number}" if number > 1 else "")


def resource(settings: TelemetrySettings) -> Resource:
    """Who tells: `service.name`, `service.instance.id`, `service.version`, `process.pid`, `host.name`.

    What `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME` say stands, where the settings say nothing.
    """
    from importlib.metadata import version

    from opentelemetry.sdk.resources import Resource

    said = Resource.create().attributes
    name = str(said.get("service.name", "unknown_service"))
    own: dict[str, Any] = {
        "service.name": settings.service or ("mmcache" if name.startswith("unknown_service") else name),
        "service.instance.id": settings.instance or instance_id(),
        "service.version": version("mmcache"),
        "process.pid": os.getpid(),
        "host.name": said.get("host.name", socket.gethostname()),
    }
    return Resource.create(own | ({"cloud.region": settings.region} if settings.region else {}))


class Providers:
    """A tracer's and a meter's provider that send to `settings.otlp`. Threads of the SDK's do the sending: nobody waits
    for the receiver. Raises `SettingsError` where OpenTelemetry is missing."""

    def __init__(self, settings: TelemetrySettings) -> None:
        self._settings = settings
        try:
            from mmcache.telemetry.forked import Switched

            self._open()
        except ImportError as error:
            raise SettingsError(f"telemetry by OTLP needs pip install 'mmcache[otel]': {error}") from error
        self.switched = Switched(self._tracer)
        self.switched.ended = self._ended
        """The tracer provider, through forks."""

    def _open(self) -> None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider, ObservableCounter
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON

        from mmcache.telemetry.ended import Ended
        from mmcache.telemetry.quiet import BoundedSpans, QuietMetrics, Sending
        from mmcache.telemetry.wire_exporter import WireSpanExporter

        told, address, headers = resource(self._settings), self._settings.otlp, dict(self._settings.headers or {})
        assert address is not None
        address, patience = address.rstrip("/"), self._settings.timeout_seconds
        self.sending: Sending = Sending()
        spans = WireSpanExporter(endpoint=f"{address}/v1/traces", headers=headers, timeout=patience)
        metrics = OTLPMetricExporter(endpoint=f"{address}/v1/metrics", headers=headers, timeout=patience)
        self._tracer: TracerProvider = TracerProvider(resource=told, sampler=ALWAYS_ON, shutdown_on_exit=False)
        processor = BoundedSpans(spans, self.sending, QUEUE, EVERY_MS, BATCH)
        self._tracer.add_span_processor(processor)
        self._ended = Ended(self._tracer, processor)
        quiet, interval = QuietMetrics(metrics, self.sending), self._settings.interval * 1000
        try:
            limits = {ObservableCounter: MOST_SERIES}
            reader = PeriodicExportingMetricReader(quiet, interval, patience * 1000, cardinality_limits=limits)
        except TypeError:  # an SDK of before 1.45, whose limit is its own
            reader = PeriodicExportingMetricReader(quiet, interval, patience * 1000)
        self.meter: MeterProvider = MeterProvider([reader], resource=told, shutdown_on_exit=False)

    def abandon(self) -> None:
        """In a forked child: what is there belongs to its parent, and is sent by nobody here."""
        self.sending.muted = True

    def renew(self) -> None:
        """Begin anew, after `abandon`."""
        within(0.0, self._tracer.shutdown, self.meter.shutdown)
        self._open()
        self.switched.now, self.switched.ended = self._tracer, self._ended

    def close(self, seconds: float) -> bool:
        """Send what is left, for at most so long; whether it ended in time."""
        ended = within(seconds, self._tracer.shutdown, self.meter.shutdown)
        self.sending.silent = True
        return ended

    def flush(self, seconds: float) -> bool:
        """Send what there is, for at most so long; whether it ended in time."""
        return within(seconds, self._tracer.force_flush, self.meter.force_flush)


def within(seconds: float, *steps: Callable[[], object]) -> bool:
    """Take steps, side by side, in threads that are left behind when the time is over; whether all ended in it."""
    ended = [threading.Event() for _ in steps]

    def take(step: Callable[[], object], end: threading.Event) -> None:
        with suppress(Exception):  # the SDK's; nobody is left to hear of it
            step()
        end.set()

    for step, end in zip(steps, ended, strict=True):
        threading.Thread(target=take, args=(step, end), name="mmcache-telemetry-end", daemon=True).start()
    until = time.monotonic() + seconds
    return all(end.wait(max(0.0, until - time.monotonic())) for end in ended)
