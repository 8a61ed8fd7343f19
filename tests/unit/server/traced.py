"""A tracer for the proxy of the tests, and what its spans say."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.trace import SpanKind
from tests.unit.server.conftest import World
from tests.unit.server.echo import ECHO
from tests.unit.server.upstream import Asked as Reached

from mmcache.telemetry.requests import Requests

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
PATIENCE = 60.0


class Ended(SpanProcessor):  # type: ignore[misc]  # untyped
    """Spans that have ended, in order; whoever waits for one is told."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []
        self._more = threading.Condition()

    def on_end(self, span: ReadableSpan) -> None:
        with self._more:
            self.spans.append(span)
            self._more.notify_all()

    def of(self, kind: SpanKind, count: int = 1) -> list[ReadableSpan]:
        """The first `count` of this kind, once they have ended."""
        with self._more:
            assert self._more.wait_for(lambda: sum(span.kind is kind for span in self.spans) >= count, PATIENCE)
            return [span for span in self.spans if span.kind is kind]


@dataclass
class Traced:
    """A tracer, and what it recorded."""

    sample: float = 1.0
    asked_per_second: float = 100.0
    ended: Ended = field(default_factory=Ended)

    def __post_init__(self) -> None:
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(self.ended)
        self.requests = Requests(self.provider, self.sample, asked_per_second=self.asked_per_second, clock=lambda: 0.0)

    def server(self, count: int = 1) -> list[ReadableSpan]:
        return self.ended.of(SpanKind.SERVER, count)

    def client(self, count: int = 1) -> list[ReadableSpan]:
        return self.ended.of(SpanKind.CLIENT, count)


def told(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def ids(span: ReadableSpan) -> tuple[str, str]:
    context = span.get_span_context()
    assert context is not None
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


def parent(span: ReadableSpan) -> str:
    return "" if span.parent is None else f"{span.parent.span_id:016x}"


def last(world: World, path: str = ECHO) -> Reached:
    return [asked for asked in world.upstream.asked if asked.path == path][-1]
