"""Whose child a span is, found at little cost, and how many the parent's trace stands for."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, copy_context
from dataclasses import dataclass

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context

from mmcache.telemetry.describing import WEIGHT
from mmcache.telemetry.sampling import weight_of

ROOT, INSIDE, LEFT_OUT = 0, 1, 2
"""Without a parent; inside one that is sampled; inside one that is not."""


def variable() -> ContextVar[Context] | None:
    """Where OpenTelemetry keeps its context, found by what is in it; None = somewhere else."""
    mark = contexts.set_value("mmcache", "mark", Context())
    token = contexts.attach(mark)
    try:
        found = [variable for variable, value in copy_context().items() if value is mark]
    finally:
        contexts.detach(token)
    return found[0] if len(found) == 1 else None


def reader() -> Callable[[], Context]:
    """`contexts.get_current`, or the same in one call of C."""
    found = variable()
    if found is None:
        return contexts.get_current  # type: ignore[no-any-return]
    get: Callable[[], Context] = found.get
    try:
        return get if get() == contexts.get_current() else contexts.get_current
    except LookupError:  # it has no default
        return contexts.get_current  # type: ignore[no-any-return]


def place(context: Context) -> int:
    """Where what begins in `context` stands."""
    if not context:
        return ROOT
    parent = trace.get_current_span(context).get_span_context()
    if not parent.is_valid:
        return ROOT
    return INSIDE if parent.trace_flags.sampled else LEFT_OUT


@dataclass(slots=True)
class Parent:
    """Under which a span is made."""

    context: Context
    weight: float
    """Of the parent; of a root, its own."""
    span_id: str = ""
    """16 hex digits; empty = a root."""

    @staticmethod
    def of(context: Context, weight: float) -> Parent:
        """What is current in `context`; where that is nothing, a root that stands for `weight`.

        What a parent stands for it says in its own attributes, where it is of this process; else in its trace state;
        else it is taken to be 1.
        """
        if place(context) == ROOT:
            return Parent(context, weight)
        span = trace.get_current_span(context)
        found = span.get_span_context()
        told = (getattr(span, "attributes", None) or {}).get(WEIGHT)
        if not isinstance(told, int | float):
            told = weight_of(found.trace_state.get("ot") or "")
        return Parent(context, float(told), f"{found.span_id:016x}")

    def above(self, span: trace.Span) -> Parent:
        """What is made under `span`, which was made under this."""
        found = span.get_span_context()
        context = trace.set_span_in_context(span, self.context)
        return Parent(context, self.weight, f"{found.span_id:016x}")
