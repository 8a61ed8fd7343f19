"""A cache whose spans end up in a list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from mmcache import Cache

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mmcache.telemetry.ended import Ended
from mmcache.telemetry.forked import Switched
from mmcache.telemetry.spans import Spans

ALL = 1e9
"""Spans per second: no limit."""


class Recorded:
    """`cache` observed; the spans that were made of it."""

    shorter: ClassVar[bool] = True
    """Whether what has ended is made without the SDK's own way."""

    def __init__(self, cache: Cache, sample: float = 1.0, per_second: float = ALL, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        processor = SimpleSpanProcessor(self.exporter)
        self.provider.add_span_processor(processor)
        used = Switched(self.provider)
        used.ended = Ended(self.provider, processor) if self.shorter else None
        self.tracer = self.provider.get_tracer("a caller's")
        self.spans = Spans(cache, used, sample, spans_per_second=per_second, **options)

    def all(self, name: str | None = None) -> list[ReadableSpan]:
        """Of that name, in the order in which they ended."""
        self.spans.flush()
        return [span for span in self.exporter.get_finished_spans() if name in (None, span.name)]

    def told(self, name: str = "cache.lookup") -> list[dict[str, Any]]:
        """Their attributes."""
        return [dict(span.attributes or {}) for span in self.all(name)]

    def one(self, name: str) -> ReadableSpan:
        """The only one."""
        (span,) = self.all(name)
        return span

    def weight(self, wanted: Callable[[dict[str, Any]], bool]) -> float:
        """Of all lookups that are like that."""
        return sum(float(told["cache.sampling.weight"]) for told in self.told() if wanted(told))

    def unwatched(self) -> None:
        """Spans are made when `all` asks for them, and the share stays."""
        self.spans._stop.set()
        self.spans.thread.join()
        self.spans.flush()

    def close(self) -> None:
        """Observe no more."""
        self.spans.close()
        self.provider.shutdown()

    def __enter__(self) -> Recorded:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def parent_of(span: ReadableSpan) -> int | None:
    """The parent's span id."""
    return span.parent.span_id if span.parent is not None else None


def id_of(span: Any) -> int:
    """The span's id."""
    found: int = span.get_span_context().span_id
    return found


def trace_of(span: Any) -> int:
    """The trace's id."""
    found: int = span.get_span_context().trace_id
    return found
