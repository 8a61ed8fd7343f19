"""A tracer provider that another one can be put under, for tracers that outlive a fork."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.trace import Span, Tracer, TracerProvider

from mmcache.telemetry.ended import Ended


class Switched(TracerProvider):  # type: ignore[misc]
    """Passes on to `now`, also for tracers that were had before it was set."""

    def __init__(self, now: TracerProvider) -> None:
        self.now = now
        self.ended: Ended | None = None
        """The shorter way for what has ended, where there is one."""

    def get_tracer(self, *arguments: Any, **options: Any) -> Tracer:
        """See `TracerProvider`."""
        return _Tracer(self, arguments, options)


class _Tracer(Tracer):  # type: ignore[misc]
    def __init__(self, provider: Switched, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        self._provider, self._arguments, self._options = provider, arguments, options
        self._had: tuple[TracerProvider, Tracer] = self._get()

    def _get(self) -> tuple[TracerProvider, Tracer]:
        now = self._provider.now
        return now, now.get_tracer(*self._arguments, **self._options)

    def _tracer(self) -> Tracer:
        provider, tracer = self._had
        if provider is not self._provider.now:
            self._had = self._get()
            tracer = self._had[1]
        return tracer

    def start_span(self, *arguments: Any, **options: Any) -> Span:
        """See `Tracer`."""
        return self._tracer().start_span(*arguments, **options)

    @contextmanager
    def start_as_current_span(self, *arguments: Any, **options: Any) -> Iterator[Span]:
        """See `Tracer`."""
        with self._tracer().start_as_current_span(*arguments, **options) as span:
            yield span
