"""`Requests`: OpenTelemetry spans of a door's requests. What the cache does for one is a child of its span.

Which requests are recorded is drawn here, and not believed from whoever asks: a share of `sample`, each of which stands
for 1 / sample requests. A request that its caller records (W3C Trace Context, `traceparent` with the flag `sampled`) is
recorded as well, so that his trace is whole, but stands for none besides itself (weight 0) and is limited by the
second: nobody can shift counts, or cost us much, by what he sends.

Nothing in here raises; what goes wrong costs a span.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Token
from functools import partial
from typing import TYPE_CHECKING

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    TraceFlags,
    TracerProvider,
    TraceState,
)
from opentelemetry.trace.status import Status, StatusCode

from mmcache.model.key import Key
from mmcache.telemetry.parents import variable
from mmcache.telemetry.sampling import Pace

if TYPE_CHECKING:
    from mmcache.answer import Answers

Headers = list[tuple[bytes, bytes]]
Attributes = dict[str, str | int | float | bool]

PER_SECOND = 500.0
ASKED_PER_SECOND = 100.0
"""Requests that are recorded because their callers ask for it."""
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "QUERY"})
WEIGHT = "cache.sampling.weight"

_PARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.A | re.S)
_LONGEST_PARENT, _LONGEST_STATE, _MOST_STATES, _MOST = 256, 512, 32, 1 << 56
_NAME = r"[a-z][a-z0-9_*/-]{0,%d}"
_STATE = re.compile(
    rf"({_NAME % 255}|[a-z0-9][a-z0-9_*/-]{{0,240}}@{_NAME % 13})=([ -+\--<>-~]{{0,255}}[!-+\--<>-~])", re.A
)
_OURS = frozenset({b"traceparent", b"tracestate"})
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_NOTHING = trace.set_span_in_context(NonRecordingSpan(SpanContext(1, 1, False, TraceFlags(0))), Context())
"""In which nothing is recorded: the draw is made."""


class Requests:
    """The tracer of one door. tracer_provider: None = OpenTelemetry's global one. sample: share of requests, 0…1.
    per_second: most that are drawn; the share sinks until that holds, and weights rise. asked_per_second: most of those
    that callers ask for."""

    def __init__(
        self, tracer_provider: TracerProvider | None = None, sample: float = 0.01, *, per_second: float = PER_SECOND,
        asked_per_second: float = ASKED_PER_SECOND, draw: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._tracer = trace.get_tracer("mmcache.server", tracer_provider=tracer_provider)
        self._pace, self._draw, self._clock = Pace(sample, per_second), draw, clock
        self._share, self._made = self._pace.share, 0
        self._looked = self._when = clock()
        self._rate = self._left = asked_per_second
        held = variable()
        self.skip: Callable[[], Token[Context]] = partial(contexts.attach if held is None else held.set, _NOTHING)
        """What runs in this context from now on is not recorded, until `resume`."""
        self.resume: Callable[[Token[Context]], object] = contexts.detach if held is None else held.reset

    def begin(self, method: str, route: str | None, headers: Headers) -> Request | None:
        """A request has come; its span is current in this context until `Request.end`. route: its template. None = it
        is not recorded: see `skip`."""
        chosen = self._draw() < self._share
        parent = None
        for name, _ in headers:
            if name == b"traceparent":
                parent = parent_of(headers)
                break
        if not (chosen or (parent is not None and parent.trace_flags.sampled and self._may())):
            return None
        try:
            return self._recorded(method, route, parent, self._chosen() if chosen else 0.0)
        except Exception:  # noqa: BLE001 - samplers and processors are plug-ins
            return None

    def _recorded(self, method: str, route: str | None, parent: SpanContext | None, weight: float) -> Request | None:
        base = Context()
        if parent is not None:  # whether its caller records it has been thought of
            known = SpanContext(parent.trace_id, parent.span_id, True, _SAMPLED, parent.trace_state)
            base = trace.set_span_in_context(NonRecordingSpan(known), base)
        known_method = method if method in METHODS else "_OTHER"
        told: Attributes = {"http.request.method": known_method, WEIGHT: weight}
        name = known_method if known_method != "_OTHER" else "HTTP"
        if route is not None:
            told["http.route"] = route
            name += " " + route
        span = self._tracer.start_span(name, base, SpanKind.SERVER, told)
        if not span.is_recording():
            return None
        return Request(self._tracer, span, contexts.attach(trace.set_span_in_context(span, Context())), route, weight)

    def _chosen(self) -> float:
        """One more that was drawn; how many it stands for. Decides anew, once a second, how many are drawn."""
        weight = self._pace.weight
        self._made += 1
        seconds = self._clock() - self._looked
        if seconds >= 1.0:
            self._share = self._pace.after(self._made, seconds)
            self._made, self._looked = 0, self._looked + seconds
        return weight

    def _may(self) -> bool:
        now = self._clock()
        self._left = min(self._rate, self._left + (now - self._when) * self._rate)
        self._when = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class Request:
    """One request that is recorded."""

    __slots__ = ("_route", "_token", "_tracer", "_weight", "span")

    def __init__(
        self, tracer: trace.Tracer, span: Span, token: Token[Context], route: str | None, weight: float
    ) -> None:
        self._tracer, self.span, self._token, self._route, self._weight = tracer, span, token, route, weight

    def sending(self, method: str, path: str | None, host: str, port: int | None) -> Sending:
        """A request that is sent on: a child of what is current. path: a template; None = the request's own route."""
        where = self._route if path is None else path
        told: Attributes = {"http.request.method": method if method in METHODS else "_OTHER", "server.address": host}
        if port is not None:
            told["server.port"] = port
        try:
            name = f"upstream {told['http.request.method']}" + (f" {where}" if where else "")
            told[WEIGHT] = self._weight
            return Sending(self._tracer.start_span(name, None, SpanKind.CLIENT, told), self._weight)
        except Exception:  # noqa: BLE001 - as in `Requests.begin`
            return Sending(trace.INVALID_SPAN, 0.0)

    def peeking(self) -> Peeking:
        """See `Peeking`."""
        return Peeking(contexts.attach(_NOTHING))

    def joined(self, leader: object) -> None:
        """It waits for what `leader` has asked for: a link to that one's span."""
        if isinstance(leader, Request):
            self.span.add_link(leader.span.get_span_context())

    def end(
        self, *, status: int = 0, outcome: str = "", reason: str = "", saved_seconds: float = 0.0, route: str = "",
        tenant: str = "", namespace: str = "", client: str = "", region: str = "", error: str = "",
    ) -> None:  # fmt: skip
        """It is answered, or given up (status 0). error: a word; a status of 500 and above is one by itself."""
        texts = {
            "cache.outcome": outcome, "cache.miss.reason": "" if outcome == "hit" else reason, "cache.tenant": tenant,
            "cache.namespace": namespace, "cache.route": route, "cache.client": client, "cache.client.region": region,
            "error.type": error or (str(status) if status >= 500 else ""),
        }  # fmt: skip
        told: Attributes = {name: str(text) for name, text in texts.items() if text}
        if status:
            told["http.response.status_code"] = status
        if saved_seconds > 0:
            told["cache.saved_ms"] = saved_seconds * 1e3
        _end(self.span, told, failed="error.type" in told)
        contexts.detach(self._token)


class Peeking:
    """Looks at what memory holds. It tells of a share of its hits, drawn by chance; here of none, and `done` of all, so
    that a request that is recorded has them in its trace and none stands for two."""

    __slots__ = ("_token",)

    def __init__(self, token: Token[Context]) -> None:
        self._token = token

    def done(self, answers: Answers, hits: Sequence[Key]) -> None:
        """These were hits."""
        contexts.detach(self._token)
        observer = answers.observer
        if hits and observer is not None and (began := observer.begin()):
            observer.looked_up(hits, [answers.resident(key) for key in hits], began, "exact")


class Sending:
    """One request to the upstream."""

    __slots__ = ("_ended", "_span", "_status", "_weight")

    def __init__(self, span: Span, weight: float) -> None:
        self._span, self._weight, self._status, self._ended = span, weight, 0, False

    def headers(self, headers: Headers) -> Headers:
        """The same, with this span as the parent of what the upstream records, and how many it stands for. Baggage goes
        on as it came."""
        found = self._span.get_span_context()
        if not found.is_valid:
            return headers
        kept = [pair for pair in headers if pair[0] not in _OURS]
        kept.append((b"traceparent", parent_text(found).encode()))
        told = [("ot", drawn(self._weight))] if self._weight > 1.0 else []  # whatever the caller says of his draw
        told += [pair for pair in found.trace_state.items() if pair[0] != "ot"]
        if told:
            kept.append((b"tracestate", ",".join(f"{name}={value}" for name, value in told[:_MOST_STATES]).encode()))
        return kept

    def answered(self, status: int) -> None:
        """The head of an answer has come."""
        self._status = status

    def end(self, error: str = "") -> None:
        """The answer is read, given up, or did not come (error: a word for why). Idempotent."""
        if not self._ended:
            self._ended = True
            failed = error or (str(self._status) if self._status >= 400 else "")
            told: Attributes = {"http.response.status_code": self._status} if self._status else {}
            _end(self._span, told | ({"error.type": failed} if failed else {}), failed=bool(failed))


def parent_of(headers: Headers) -> SpanContext | None:
    """Whose child a request is, by `traceparent` and `tracestate`; None where that is not told, told twice, or not as
    the specification says (W3C Trace Context, sections 3.2 and 3.3)."""
    parents = [value for name, value in headers if name == b"traceparent"]
    found = (
        _PARENT.fullmatch(parents[0].strip(b" \t"))
        if len(parents) == 1 and len(parents[0]) <= _LONGEST_PARENT
        else None
    )
    if found is None or found[1] == b"ff" or (found[1] == b"00" and found[5]):
        return None
    trace_id, span_id = int(found[2], 16), int(found[3], 16)
    if not trace_id or not span_id:
        return None
    states = [value.decode("latin-1") for name, value in headers if name == b"tracestate"]
    return SpanContext(trace_id, span_id, True, TraceFlags(int(found[4], 16) & TraceFlags.SAMPLED), _state(states))


def drawn(weight: float) -> str:
    """Of a trace that stands for `weight`, the entry `ot` of its trace state: the threshold of its draw, and a number
    above it (OpenTelemetry, "TraceState: Probability Sampling")."""
    threshold = min(_MOST - 1, round((1.0 - 1.0 / weight) * _MOST))
    number = random.randrange(threshold, _MOST)
    return f"th:{f'{threshold:014x}'.rstrip('0') or '0'};rv:{number:014x}"


@contextmanager
def child_of(parent: str, state: str = "") -> Iterator[None]:
    """What runs inside belongs to the trace of this `traceparent` and `tracestate`, where they name one."""
    headers = (
        [(b"traceparent", parent.encode(errors="replace")), (b"tracestate", state.encode(errors="replace"))]
        if parent
        else []
    )
    found = parent_of(headers)
    if found is None:
        yield
        return
    token = contexts.attach(trace.set_span_in_context(NonRecordingSpan(found), Context()))
    try:
        yield
    finally:
        contexts.detach(token)


def parent_text(found: SpanContext) -> str:
    """As `traceparent` has it."""
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags & TraceFlags.SAMPLED:02x}"


def _state(states: Sequence[str]) -> TraceState:
    """Empty for what is too long, or not as the specification says; that is looked at here, for the SDK would log what
    a caller wrote."""
    if sum(map(len, states)) + len(states) > _LONGEST_STATE + 1:
        return TraceState()
    members = [member for state in states for each in state.split(",") if (member := each.strip(" \t"))]
    found = [match for member in members if (match := _STATE.fullmatch(member)) is not None]
    names = {match[1] for match in found}
    if not len(names) == len(members) <= _MOST_STATES:
        return TraceState()
    return TraceState([(match[1], match[2]) for match in found])


def _end(span: Span, told: Attributes, *, failed: bool) -> None:
    try:
        span.set_attributes(told)
        if failed:
            span.set_status(Status(StatusCode.ERROR))
        span.end()
    except Exception:  # noqa: BLE001 - processors are plug-ins
        return
