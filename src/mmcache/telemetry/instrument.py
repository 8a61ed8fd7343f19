"""`instrument`: spans and metrics of a cache, in one call."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from mmcache import forks
from mmcache.cache import Cache
from mmcache.forks import Lock
from mmcache.model.errors import SettingsError
from mmcache.settings import TelemetrySettings
from mmcache.telemetry.counts import Counts, counts_of
from mmcache.telemetry.providers import Providers

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from mmcache.telemetry.metrics import Metrics
    from mmcache.telemetry.spans import Spans

_watched: weakref.WeakSet[Cache] = weakref.WeakSet()
_gate = Lock()


def instrument(
    cache: Cache,
    *,
    otlp: str | None = None,
    headers: Mapping[str, str] | None = None,
    sample: float = 0.01,
    spans_per_second: float = 500.0,
    service: str = "",
    instance: str = "",
    region: str = "",
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    interval: float = 10.0,
) -> Telemetry:
    """Tell OpenTelemetry what `cache` does, until `close()`; a process may do so for several caches, for each once.

    otlp: base address of a receiver, `"http://localhost:4318"`; None = the providers given, or OpenTelemetry's global
    ones. headers: sent with each request to it. sample: share of lookups that become spans, 0…1.
    spans_per_second: most. service, instance, region: who tells; "" = what the environment says to OpenTelemetry, else
    `mmcache`, host and process. interval: seconds between two reports of metrics to `otlp`.

    A receiver that is down costs nobody anything: what does not arrive is dropped, counted and logged once. Raises
    `SettingsError` for what cannot be, also where the package's extra `otel` is missing.
    """
    settings = TelemetrySettings(otlp, headers, sample, spans_per_second, service, instance, region, interval)
    if otlp is not None and (tracer_provider is not None or meter_provider is not None):
        raise SettingsError("telemetry: give otlp, or providers that send elsewhere, not both")
    return Telemetry(cache, settings, tracer_provider, meter_provider)


class Telemetry:
    """What `instrument` started. A forked child goes on as an instance of its own, and counts from zero."""

    fork_order = 0  # goes on last, when all that it shows does

    def __init__(
        self,
        cache: Cache,
        settings: TelemetrySettings,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        self.settings = settings
        self._cache, self._closed = cache, False
        self._providers: Providers | None = None
        self._renewing: threading.Thread | None = None
        self.counts: Counts = counts_of(cache)
        """The cache's counters by labels, which `metrics` shows."""
        with _gate:
            if cache in _watched:
                raise SettingsError("this cache is instrumented already: close that before, or keep it")
            _watched.add(cache)
        try:
            if settings.otlp is not None:
                self._providers = Providers(settings)
                tracer_provider, meter_provider = self._providers.switched, self._providers.meter
            self.tracer_provider = tracer_provider
            """Who makes the spans, for a door that makes its own; None = OpenTelemetry's global one."""
            self._start(tracer_provider, meter_provider)
        except BaseException:
            self._release()
            raise
        atexit.register(self.close)
        forks.join(self)

    def _start(self, tracer_provider: TracerProvider | None, meter_provider: MeterProvider | None) -> None:
        try:
            from mmcache.telemetry.metrics import Metrics
            from mmcache.telemetry.spans import Spans
        except ImportError as error:
            raise SettingsError(f"telemetry needs pip install 'mmcache[otel]': {error}") from error
        self._metrics: Metrics = Metrics.of(meter_provider)
        self._metrics.add(self.counts)
        self._spans: Spans = Spans(
            self._cache, tracer_provider, self.settings.sample,
            spans_per_second=self.settings.spans_per_second, measured=self._measured, met=self.counts.met,
        )  # fmt: skip

    def _measured(self, kind: str, outcome: str, seconds: float, weight: float, context: Context) -> None:
        from mmcache.telemetry.metrics import exemplar

        self.counts.durations[kind].observe(outcome, seconds, exemplar(seconds, context))
        self._metrics.record(kind, outcome, seconds, context)

    def _release(self) -> None:
        with _gate:
            _watched.discard(self._cache)
        if self._providers is not None:
            self._providers.close(self.settings.timeout_seconds)

    @property
    def dropped(self) -> int:
        """Spans that were not made, for there were too many, or that no receiver took."""
        return self._spans.dropped + (self._providers.sending.lost if self._providers is not None else 0)

    def flush(self) -> bool:
        """Send what there is; False when that did not end in time."""
        self._renewed()
        self._spans.flush()
        return self._providers is None or self._providers.flush(self.settings.timeout_seconds)

    def close(self) -> None:
        """Send what is left, for at most `settings.timeout_seconds`, and watch no more. Idempotent."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        self._renewed()
        self._spans.close()
        self._release()
        self._metrics.remove(self.counts)

    def before_fork(self) -> None:
        """See `forks.Forkable`."""

    def after_fork(self, child: bool) -> None:
        """The child's reports are its own, under its own instance id."""
        if child and not self._closed and self._providers is not None:
            self._metrics.forget()
            self._providers.abandon()
            # In a thread, which waits for the locks that others hold until they hear of the fork.
            self._renewing = threading.Thread(target=self._renew, args=[self._providers], daemon=True)
            self._renewing.start()

    def _renew(self, providers: Providers) -> None:
        with suppress(Exception):  # the SDK's; a child that cannot tell goes on all the same
            providers.renew()
            self._metrics = type(self._metrics).of(providers.meter)
            self._metrics.add(self.counts)

    def _renewed(self) -> None:
        if self._renewing is not None:
            self._renewing.join(self.settings.timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
