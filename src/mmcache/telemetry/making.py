"""`Making`: spans of what has ended, and of computations under way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from opentelemetry import trace
from opentelemetry.context import Context

from mmcache.attribution import Attribution
from mmcache.observing import Strategy
from mmcache.telemetry.computing import Computing
from mmcache.telemetry.describing import WEIGHT, Attributes, Describing, Seen, asked
from mmcache.telemetry.names import SCOPE
from mmcache.telemetry.parents import Parent
from mmcache.telemetry.sampling import MOST_OF_A_CALL, Draw, thinned

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

Measured = Callable[[str, str, float, float, Context], object]
"""(`lookup` or `compute`, outcome, seconds, weight, context with its span: for exemplars)."""

Ending = Callable[[str, Context, Attributes, int, int], trace.Span]
"""See `ended.Ended`."""


@dataclass(slots=True)
class Call:
    """The lookups of one call."""

    parent: Parent
    by: Attribution
    seen: Sequence[Seen]
    strategy: Strategy
    began: int
    ended: int
    """Both in Unix nanoseconds; equal = not measured."""

    MOST: ClassVar[int] = MOST_OF_A_CALL

    def thinned(self, start: float) -> list[tuple[Seen, float]]:
        """At most `MOST` of them, and how many each stands for: of hits and of misses in their proportion. start: see
        `sampling.thinned`."""
        if len(self.seen) <= self.MOST:
            return [(one, 1.0) for one in self.seen]
        found: list[tuple[Seen, float]] = []
        for missed in (False, True):
            of_kind = [one for one in self.seen if (one.outcome == "miss") is missed]
            most = max(1, self.MOST * len(of_kind) // len(self.seen))
            some, weight = thinned(of_kind, most, start)
            found += [(one, weight) for one in some]
        return found


class Making:
    """tracer_provider: None = OpenTelemetry's global one. Raises what samplers and processors raise."""

    def __init__(
        self, describing: Describing, tracer_provider: TracerProvider | None, measured: Measured | None
    ) -> None:
        self._describing, self._measured, self._draw = describing, measured, Draw()
        self.rebind(tracer_provider)

    def rebind(self, tracer_provider: TracerProvider | None) -> None:
        """By another provider from now on."""
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        self._provider = tracer_provider

    def _ended(self, name: str, context: Context, told: Attributes, began: int, ended: int) -> trace.Span:
        """A span of what has ended; by a provider of ours in a shorter way."""
        shorter: Ending | None = getattr(self._provider, "ended", None)
        if shorter is not None:
            return shorter(name, context, told, began, ended)
        span = self._tracer.start_span(name, context, attributes=told, start_time=began)
        span.end(ended)
        return span

    def make(self, call: Call) -> Parent:
        """A span for each lookup; under which belongs what follows from them. Several without a parent get one, so that
        they are one trace."""
        under = call.parent
        if not under.span_id and len(call.seen) > 1:
            told: Attributes = {"cache.count": len(call.seen), WEIGHT: under.weight}
            under = under.above(self._ended("cache.batch", under.context, told, call.began, call.ended))
        by, last = asked(call.by), under
        if call.parent.span_id:
            by["cache.upstream.span_id"] = call.parent.span_id
        seconds = (call.ended - call.began) * 1e-9
        for one, stands_for in call.thinned(self._draw.random()):
            weight = under.weight * stands_for
            told = self._describing.lookup(one, call.strategy) | by
            told[WEIGHT] = weight
            last = under.above(self._ended("cache.lookup", under.context, told, call.began, call.ended))
            if self._measured is not None and seconds > 0:
                self._measured("lookup", one.outcome, seconds / len(call.seen), weight, last.context)
        return last if under is call.parent else under

    def one(self, name: str, told: Attributes, parent: Parent, began: int, ended: int) -> None:
        """A span of something that has ended; times in Unix nanoseconds."""
        told |= {WEIGHT: parent.weight}
        self._ended(name, parent.context, told, began, ended)

    def computing(self, parent: Parent, told: Attributes, failed: Callable[[Exception], None]) -> Computing:
        """Around a computation."""
        measured = self._measured

        def ended(outcome: str, seconds: float, context: Context) -> None:
            if measured is not None:
                measured("compute", outcome, seconds, parent.weight, context)

        return Computing(self._tracer, parent.context, told, ended, failed)
