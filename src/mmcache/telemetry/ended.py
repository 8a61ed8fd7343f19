"""`Ended`: spans of what has ended already, without what the SDK does for spans that are under way."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, TraceFlags

from mmcache.telemetry.describing import Attributes
from mmcache.telemetry.names import SCOPE

_SCOPE = InstrumentationScope(SCOPE)
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class Ended:
    """Hands spans of `provider` to `processor`, which is its only one, and whose sampler takes all."""

    def __init__(self, provider: TracerProvider, processor: SpanProcessor) -> None:
        self._resource, self._ids, self._processor = provider.resource, provider.id_generator, processor

    def __call__(self, name: str, context: Context, told: Attributes, began: int, ended: int) -> Span:
        """What stands for a span of that parent. Times in Unix nanoseconds."""
        parent: SpanContext | None = trace.get_current_span(context).get_span_context()
        if parent is None or not parent.is_valid:
            parent, trace_id, state = None, self._ids.generate_trace_id(), None
        else:
            trace_id, state = parent.trace_id, parent.trace_state
        own = SpanContext(trace_id, self._ids.generate_span_id(), False, _SAMPLED, state)
        self._processor.on_end(
            ReadableSpan(
                name, own, parent, self._resource, told, start_time=began, end_time=ended, instrumentation_scope=_SCOPE
            )
        )
        return NonRecordingSpan(own)
