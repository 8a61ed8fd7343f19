"""OpenTelemetry's instruments over the counters that the cache keeps anyway: read when they are collected."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics as api
from opentelemetry import trace

from mmcache import forks
from mmcache.forks import Lock
from mmcache.ledger import Labels
from mmcache.telemetry.counts import NOTHING_SEEN, Counts, Values, together
from mmcache.telemetry.histograms import Exemplar
from mmcache.telemetry.names import BOUNDS, METRICS, SCOPE, Metric

if TYPE_CHECKING:
    from opentelemetry.context import Context

_all: weakref.WeakKeyDictionary[Any, Metrics] = weakref.WeakKeyDictionary()
_global: list[Metrics] = []
_gate = Lock()


class Metrics:
    """The instruments of one meter provider, for any number of caches: they are added up.

    A cache that is taken away leaves what it counted: a counter never falls.
    """

    fork_order = 8

    @staticmethod
    def of(provider: api.MeterProvider | None) -> Metrics:
        """Those of `provider`, made once; None = OpenTelemetry's global one."""
        with _gate:
            if provider is None:
                if not _global:
                    _global.append(Metrics(api.get_meter_provider()))
                return _global[0]
            if provider not in _all:
                _all[provider] = Metrics(provider)
            return _all[provider]

    def __init__(self, provider: api.MeterProvider) -> None:
        self._lock = Lock()
        self._watched: list[Counts] = []
        self._left: dict[int, tuple[Callable[[], Counts | None], Values]] = {}
        self._last: Values = {}
        self._read: set[str] = set(METRICS)
        meter = provider.get_meter(SCOPE)
        self._histograms: dict[str, Any] = {}
        for metric in METRICS.values():
            if metric.kind == "histogram":
                self._histograms[metric.name] = meter.create_histogram(
                    metric.name, metric.unit, metric.help, explicit_bucket_boundaries_advisory=BOUNDS
                )
            else:
                create = meter.create_observable_counter if metric.kind == "counter" else meter.create_observable_gauge
                create(metric.name, [self._reader(metric)], metric.unit, metric.help)
        forks.join(self)

    def add(self, counts: Counts) -> None:
        """Show these too."""
        with self._lock:
            self._watched.append(counts)
            self._left.pop(counts.serial, None)

    def remove(self, counts: Counts) -> None:
        """Count no further, and forget none."""
        with self._lock:
            if counts in self._watched:
                self._watched.remove(counts)
                final = {n: values for n, values in counts.collect()[0].items() if METRICS[n].kind == "counter"}
                self._left[counts.serial] = weakref.ref(counts), final
            gone = [serial for serial, (found, _) in self._left.items() if found() is None]
            if len(gone) > 1:  # they cannot come back: one sum is enough
                left = together((self._left.pop(serial)[1], NOTHING_SEEN) for serial in gone)
                self._left[gone[0]] = _dead, left

    def forget(self) -> None:
        """Show nothing any more."""
        with self._lock:
            self._watched.clear()
            self._left.clear()

    def record(self, kind: str, outcome: str, seconds: float, context: Context) -> None:
        """One duration; the span in `context` is its exemplar where the SDK takes it."""
        self._histograms[f"mmcache.{kind}.duration"].record(seconds, {"outcome": outcome}, context)

    def _reader(self, metric: Metric) -> Callable[[api.CallbackOptions], Iterator[api.Observation]]:
        me = weakref.ref(self)

        def read(_: api.CallbackOptions) -> Iterator[api.Observation]:
            metrics = me()
            for labels, value in (metrics.values(metric.name) if metrics is not None else {}).items():
                named = {name: said for name, said in zip(metric.labels, labels, strict=True) if said}
                yield api.Observation(value, named)

        return read

    def values(self, name: str) -> dict[Labels, float]:
        """Of one metric. All are collected together, and again as soon as one of them is read again."""
        with self._lock:
            if name in self._read:
                self._read.clear()
                left = [(values, NOTHING_SEEN) for _, values in self._left.values()]
                self._last = together([*left, *(counts.collect() for counts in self._watched)])
            self._read.add(name)
            return self._last.get(name, {})

    def before_fork(self) -> None:
        """See `forks.Forkable`."""

    def after_fork(self, child: bool) -> None:
        """What is left was the parent's."""
        if child:
            self._left.clear()
            self._read |= set(METRICS)


def exemplar(value: float, context: Context) -> Exemplar | None:
    """The span in `context`, as an exemplar of `value`."""
    span = trace.get_current_span(context).get_span_context()
    if not (span.is_valid and span.trace_flags.sampled):
        return None
    return Exemplar(value, trace.format_trace_id(span.trace_id), trace.format_span_id(span.span_id), time.time())


def _dead() -> None:
    """A reference to what is gone."""
