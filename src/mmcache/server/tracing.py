"""Spans of requests: what the proxy tells a tracer, where it has one. `telemetry.requests` is the one that speaks
OpenTelemetry.

Without a tracer, and for requests that are not recorded, the headers of tracing go through untouched. A tracer never
raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from mmcache.server.exchange import Headers

if TYPE_CHECKING:
    from mmcache.answer import Answers
    from mmcache.model.key import Key


class Sending(Protocol):
    """One request to the upstream."""

    def headers(self, headers: Headers) -> Headers:
        """The same, with this span as what the upstream's spans are children of."""
        ...

    def answered(self, status: int) -> None:
        """The head of an answer has come."""
        ...

    def end(self, error: str = "") -> None:
        """The answer is read, given up, or did not come (error: a word for why). Idempotent."""
        ...


class Peeking(Protocol):
    """Looks at what memory holds, which tells no observer of each hit."""

    def done(self, answers: Answers, hits: Sequence[Key]) -> None:
        """Tell of these."""
        ...


class Traced(Protocol):
    """One request to the proxy that is recorded."""

    def sending(self, method: str, path: str | None, host: str, port: int | None) -> Sending:
        """Something goes upstream on behalf of what runs now. path: a route's; None = of the request's own route."""
        ...

    def peeking(self) -> Peeking:
        """Until it is done, hits of memory are not drawn by chance: those of this request are told, each."""
        ...

    def joined(self, leader: Traced) -> None:
        """It waits for what another one has asked for."""
        ...

    def end(
        self,
        *,
        status: int = 0,
        outcome: str = "",
        reason: str = "",
        saved_seconds: float = 0.0,
        route: str = "",
        tenant: str = "",
        namespace: str = "",
        client: str = "",
        region: str = "",
        error: str = "",
    ) -> None:
        """It is answered, or given up (status 0), in the context in which it has begun. error: a word for what went
        wrong; else empty."""
        ...  # fmt: skip


class Tracer(Protocol):
    """Decides which requests are recorded."""

    def begin(self, method: str, route: str | None, headers: Headers) -> Traced | None:
        """A request has come, and is current in this context until its end. route: None = none that is cached.

        None = it is not recorded: nor is anything between `skip()` and `resume(what that gave)`."""
        ...

    @property
    def skip(self) -> Callable[[], Any]: ...

    @property
    def resume(self) -> Callable[[Any], object]: ...


_now: ContextVar[Traced | None] = ContextVar("mmcache_traced", default=None)
current = _now.get
"""The request on whose behalf this runs, where it is recorded."""
enter, leave = _now.set, _now.reset
