"""`Computing`: the span of a computation, current while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import Token

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.status import Status, StatusCode

from mmcache.telemetry.describing import Attributes

Ended = Callable[[str, float, Context], None]
"""(`ok` or `error`, seconds, context with the span)."""


class Computing:
    """Around a computation, in whatever thread or task. What it raises passes; of it only the type is told, for its
    words may be of what was computed. What the tracer raises ends here."""

    def __init__(
        self,
        tracer: trace.Tracer,
        context: Context,
        told: Attributes,
        ended: Ended,
        failed: Callable[[Exception], None],
    ) -> None:
        self._tracer, self._context, self._told, self._ended, self._failed = tracer, context, told, ended, failed
        self._span: trace.Span | None = None
        self._token: Token[Context] | None = None

    def __enter__(self) -> None:
        try:
            span = self._tracer.start_span("cache.compute", self._context, attributes=self._told)
            self._context = trace.set_span_in_context(span, contexts.get_current())
            self._token = contexts.attach(self._context)
            self._span = span
        except Exception as error:  # noqa: BLE001 - samplers and processors are plug-ins
            self._failed(error)
        self._began = time.perf_counter()

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        seconds = time.perf_counter() - self._began
        try:
            if self._token is not None:
                contexts.detach(self._token)
            if (span := self._span) is not None:
                span.set_attribute("cache.cost_ms", seconds * 1e3)
                if kind is not None:
                    span.set_attribute("error.type", kind.__qualname__)
                    span.set_status(Status(StatusCode.ERROR))
                span.end()
                self._ended("ok" if kind is None else "error", seconds, self._context)
        except Exception as failure:  # noqa: BLE001 - as above
            self._failed(failure)
