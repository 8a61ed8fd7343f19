"""Exporters that never make a noise of a receiver that is down: said once, counted, and said when it is back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from mmcache.forks import Lock

_log = logging.getLogger("mmcache.telemetry")
_exporting = threading.local()
_CHATTY = ("opentelemetry.exporter.otlp.proto.http.trace_exporter",
           "opentelemetry.exporter.otlp.proto.http.metric_exporter",
           "opentelemetry.exporter.otlp.common.http", "urllib3.connectionpool")  # fmt: skip


def _is_not_ours(record: logging.LogRecord) -> bool:
    return not getattr(_exporting, "now", False)


class Sending:
    """What became of what was sent; both exporters of one address share it. Nothing of the address's is logged."""

    def __init__(self) -> None:
        self._lock = Lock()  # also spans of requests take it: in a forked child it is free
        self.given = self.sent = self.lost = self.refused = 0
        """Spans, those that arrived, and that did not or found no room; collections of metrics that did not arrive."""
        self.muted = False
        """Nothing is sent any more: in a forked child, what is left belongs to its parent."""
        self.silent = False
        """Nothing is said any more: it is over, and what still happens is nobody's concern."""
        self._down = False
        for name in _CHATTY:
            logging.getLogger(name).addFilter(_is_not_ours)

    def room(self, most: int) -> bool:
        """Whether one more span may wait; it counts as lost where not."""
        with self._lock:
            room = self.given - self.sent - self.lost < most
            self.given += 1
            self.lost += not room
            return room

    def attempt(self, export: Callable[[], Any], good: object, bad: Any, spans: int) -> Any:
        """Export, and keep count."""
        if self.muted:
            return good
        _exporting.now = True
        try:
            result = export()
        except Exception as error:  # noqa: BLE001 - whatever a transport raises ends here
            result, why = bad, type(error).__name__  # its words may hold the address
        else:
            why = "no answer, or a refusal"
        finally:
            _exporting.now = False
        with self._lock:
            came = result is good
            self.sent += spans if came else 0
            self.lost += 0 if came else spans
            self.refused += not came and not spans
            turned, self._down = self._down == came and not self.silent, not came
        if turned and came:
            _log.warning("telemetry is received again")
        elif turned:
            _log.warning("telemetry is not received (%s); it is dropped, and counted, until it is", why)
        return result


class QuietSpans(SpanExporter):  # type: ignore[misc]
    """In front of an exporter of spans."""

    def __init__(self, inner: SpanExporter, sending: Sending) -> None:
        self._inner, self._sending = inner, sending

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See `SpanExporter`; never raises."""
        good, bad = SpanExportResult.SUCCESS, SpanExportResult.FAILURE
        result: SpanExportResult = self._sending.attempt(lambda: self._inner.export(spans), good, bad, len(spans))
        return result

    def shutdown(self) -> None:
        """See `SpanExporter`."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """See `SpanExporter`."""
        return True


class BoundedSpans(BatchSpanProcessor):  # type: ignore[misc]
    """Of which at most `queue` wait to be sent. What finds no room is counted, and not logged once each."""

    def __init__(self, exporter: SpanExporter, sending: Sending, queue: int, every_ms: float, batch: int) -> None:
        super().__init__(QuietSpans(exporter, sending), queue, every_ms, batch)
        self._sending, self._queue = sending, queue

    def on_end(self, span: ReadableSpan) -> None:
        """See `SpanProcessor`."""
        if self._sending.room(self._queue):
            super().on_end(span)


class QuietMetrics(MetricExporter):  # type: ignore[misc]
    """In front of an exporter of metrics."""

    def __init__(self, inner: MetricExporter, sending: Sending) -> None:
        super().__init__(inner._preferred_temporality, inner._preferred_aggregation)
        self._inner, self._sending = inner, sending

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **options: Any) -> MetricExportResult:
        """See `MetricExporter`; never raises."""
        good, bad = MetricExportResult.SUCCESS, MetricExportResult.FAILURE
        result: MetricExportResult = self._sending.attempt(
            lambda: self._inner.export(metrics_data, timeout_millis, **options), good, bad, 0
        )
        return result

    def shutdown(self, timeout_millis: float = 30_000, **options: Any) -> None:
        """See `MetricExporter`."""
        self._inner.shutdown(timeout_millis, **options)

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """See `MetricExporter`."""
        return True
