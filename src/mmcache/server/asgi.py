"""The frame, as an ASGI application: reads a request, finds who asks, calls the route, makes sure that the caller may
have what is stored, and sends the answer. Everything that is no cached route goes through untouched.

Written for the hits: no middleware, one pass over the headers, no task and no future of its own for an answer from
memory. Where a request takes longer, somebody watches whether its client is still there (`watch`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from mmcache import attribution, visits
from mmcache.model.errors import MMCacheError, ProxyError, UpstreamError
from mmcache.server import clients, directives, limits, tracing
from mmcache.server.accounts import Account, Accounts
from mmcache.server.answers import refusal, throw_away
from mmcache.server.authority import Answer, Authority
from mmcache.server.config import RouteRules
from mmcache.server.exchange import Answered, Asked, BypassedError, Headers, Proxy, Route, Verdict
from mmcache.server.header_kinds import HOP_BY_HOP, session
from mmcache.server.journal import Journal
from mmcache.server.operations import Operations
from mmcache.server.passing import SILENT_SECONDS, Forwarding, answered, pass_on
from mmcache.server.rate import TooManyError
from mmcache.server.tenants import Principal, Seen, Tenants
from mmcache.server.tracing import Traced, Tracer
from mmcache.server.verdict import HEADER, rendered
from mmcache.server.watch import Flight, Receive, Watch

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

AtOnce = Callable[[int, Headers, bytes], bool]
AT_ONCE = "mmcache.at_once"
"""Where our own server puts into the scope what sends a whole answer in one go; False = it could not."""

BODY_SECONDS = 300.0
"""For the whole body of a request that may be cached; what only passes may take longer."""
MOST_COMING_BYTES = 1 << 30
"""Of all such bodies that are still coming; beyond it the next piece is refused, before memory ends."""

_NEVER_SENT = HOP_BY_HOP | {HEADER}
_WRITTEN_ANEW = _NEVER_SENT | {b"content-length"}


class ClientGoneError(MMCacheError):
    """Nobody waits for the answer any more."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A route of the cache's, with its rules of this moment."""

    path: str
    route: Route
    rules: RouteRules


@dataclass(frozen=True, slots=True)
class Live:
    """What requests work with; replaced as a whole when the configuration changes. Requests under way keep theirs."""

    proxy: Proxy
    forwarding: Forwarding
    table: Mapping[tuple[str, bytes], Entry]
    """By method and path, byte for byte; nothing that is off."""
    tenants: Tenants
    authority: Authority
    rate: float | None
    at_once: int | None


class Frame:
    """See the module. `operations` answers what is under `/mmcache/`, `/healthz` and `/readyz`."""

    def __init__(
        self, live: Live, accounts: Accounts, journal: Journal, operations: Operations, tracer: Tracer | None = None
    ) -> None:
        self.live, self.accounts, self.journal, self.operations = live, accounts, journal, operations
        self.tracer = tracer
        self.watch = Watch()
        self._coming = 0
        """Bytes of bodies that have not come to their end."""
        self.draining = False
        """The end is near: `/readyz` says no before the port closes."""

    def drain(self) -> None:
        """Say so."""
        self.draining = True
        self.journal.say("draining", in_flight=len(self.watch.flights))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            return await self._other(scope, receive, send)
        begun = time.perf_counter()
        live = self.live
        path = scope.get("raw_path") or scope["path"].encode()
        entry = live.table.get((scope["method"], path))
        flight = self.watch.begin(receive)
        account: Account | None = None
        label = "other" if entry is None else entry.path
        own = entry is None and self.operations.own(path)
        # Both are said anew by every request: the next one of a connection may begin in this one's context.
        asker = traced = skipped = visitor = None
        tracer = self.tracer
        if tracer is not None:
            if not own:
                traced = tracer.begin(scope["method"], None if entry is None else entry.path, scope["headers"])
            tracing.enter(traced)
            skipped = tracer.skip() if traced is None else None
        status, verdict = 499, None
        try:
            try:
                if entry is not None:
                    flight.seen = seen = live.tenants.see(scope["headers"], scope["query_string"], _peer(scope))
                    account = seen.principal.account
                    asker = attribution.enter(clients.attribution(label, seen.agent, seen.region))
                    if live.proxy.cache.prefetcher is not None:
                        visitor = visits.enter(session(scope["headers"]))
                    if live.rate is not None or live.at_once is not None:
                        self._limit(account, live, flight)
                    found = await self._cached(live, entry, scope, flight, seen)
                elif own:
                    label = "own"
                    found = await self.operations.answer(scope, flight)
                else:
                    found = await self._passed(live, scope, path, flight)
            except ProxyError as error:
                self.accounts.refused[error.status] += 1
                found = refusal(error)
                if isinstance(error, TooManyError):
                    found.headers.append((b"retry-after", str(ceil(error.seconds)).encode()))
            except MMCacheError as error:
                flight.fault = type(error).__name__
                raise
            except Exception as error:  # noqa: BLE001 - a bug costs one request, and is told like every refusal
                self.journal.trouble(label, error)
                flight.fault = type(error).__name__
                found = refusal(ProxyError("a fault of the proxy, see its log", status=500, code="failed"))
            status, verdict = found.status, found.verdict
            await self._send(found, flight, send, scope.get(AT_ONCE))
        except ClientGoneError:
            pass
        except asyncio.CancelledError:
            if not flight.gone:
                raise
        finally:
            self.watch.end(flight)
            seconds = time.perf_counter() - begun
            if verdict is not None and label != "own":
                self.accounts.count(label, verdict, account, seconds)
            self.journal.tell(scope["method"], label, status, verdict, seconds)
            if asker is not None:
                attribution.leave(asker)
            if visitor is not None:
                visits.leave(visitor)
            if traced is not None:
                _told(traced, flight, scope, label, status, verdict)
            elif tracer is not None and skipped is not None:
                tracer.resume(skipped)

    async def _cached(self, live: Live, entry: Entry, scope: Scope, flight: Flight, seen: Seen) -> Answered:
        headers = list(scope["headers"])  # the server's own list grows by what comes behind a body in chunks
        message = await flight.receive()
        body: bytes = message.get("body", b"")
        if message.get("more_body") or message["type"] != "http.request":
            body = await self._rest(flight, message, entry.rules.largest_body_bytes)
        elif len(body) > entry.rules.largest_body_bytes:
            raise limits.too_large(entry.rules.largest_body_bytes)
        flight.readable = True
        if seen.encoding is not None:
            body = limits.inflated(body, seen.encoding, entry.rules.largest_body_bytes)
            headers = [pair for pair in headers if pair[0] != b"content-encoding"]
        principal = seen.principal
        asked = Asked(
            scope["method"], entry.path, scope["query_string"], headers, body, principal.tenant,
            directives.NOTHING_ASKED
            if seen.control is None and seen.pragma is None
            else directives.read(seen.control, seen.pragma),
            entry.rules, principal.namespace,
        )  # fmt: skip
        if asked.directives.no_store:
            return await self._bypass(live, asked, "no-store")
        try:
            found = await entry.route(asked, live.proxy)
        except BypassedError as error:
            return await self._bypass(live, asked, error.reason)
        except ProxyError:
            raise
        except Exception as error:  # noqa: BLE001 - a fault of the cache must not fail the caller's request
            self.journal.trouble(entry.path, error)
            return await self._bypass(live, asked, "failed")
        outcome = found.verdict.outcome
        if outcome == "hit" or outcome == "partial" or (outcome == "miss" and principal.shared):
            # What several keys share must be allowed to each, also where another one's question was just answered.
            if not (found.model and live.authority.believes(principal, found.model)):
                return await self._judged(live, asked, principal, found)
        elif found.status in (401, 403):
            principal.yes.clear()
        elif found.model and 200 <= found.status < 300:
            live.authority.succeeded(principal, found.model)
        return found

    async def _judged(self, live: Live, asked: Asked, principal: Principal, found: Answered) -> Answered:
        """`found`, where the upstream allows it to this caller; else what the upstream says."""
        judged: Answer | Answered = Answer.ASK
        try:
            if found.model:
                judged = await live.authority.ask(principal, found.model, asked.headers)
        except BaseException:
            await throw_away(found)
            raise
        if judged is Answer.YES:
            return found
        await throw_away(found)
        if isinstance(judged, Answered):
            return judged
        if judged is Answer.DOWN:
            raise ProxyError(
                "whether this key may still ask is not known: the server behind the proxy does not say",
                status=503, code="denied",
            )  # fmt: skip
        answer = await self._bypass(live, asked, "denied")
        if found.model and 200 <= answer.status < 300:
            live.authority.succeeded(principal, found.model)
        return answer

    async def _rest(self, flight: Flight, message: Mapping[str, Any], limit: int) -> bytes:
        """A body that comes in several pieces."""
        pieces: list[bytes] = []
        size = 0
        end = time.monotonic() + BODY_SECONDS
        try:
            while True:
                if message["type"] != "http.request":
                    raise ClientGoneError
                pieces.append(message.get("body", b""))
                size += len(pieces[-1])
                self._coming += len(pieces[-1])
                if size > limit:
                    raise limits.too_large(limit)
                if not message.get("more_body"):
                    return b"".join(pieces)
                if self._coming > MOST_COMING_BYTES:
                    raise ProxyError("too many large requests are being read; try again", status=503, code="busy")
                left = min(SILENT_SECONDS, end - time.monotonic())
                message = await asyncio.wait_for(flight.receive(), left)
        except TimeoutError as error:
            raise ProxyError("the body does not come", status=408, code="slow_body") from error
        finally:
            self._coming -= size

    async def _bypass(self, live: Live, asked: Asked, reason: str) -> Answered:
        if asked.directives.only_if_cached:
            raise ProxyError("nothing stored may be served for this request", status=504, code="only_if_cached")
        reply = await live.forwarding.forward(
            asked.method, asked.path, asked.query, asked.headers, asked.body, len(asked.body)
        )
        return answered(reply, Verdict("bypass", reason))

    async def _send(self, found: Answered, flight: Flight, send: Send, at_once: AtOnce | None) -> None:
        body = found.body
        if type(body) is bytes:
            headers = [pair for pair in found.headers if pair[0] not in _WRITTEN_ANEW]
            headers.append((b"content-length", b"%d" % len(body)))
        else:
            headers = [pair for pair in found.headers if pair[0] not in _NEVER_SENT]
        headers.append((HEADER, rendered(found.verdict)))
        if found.verdict.age_seconds is not None:
            headers.append((b"age", b"%d" % max(0.0, found.verdict.age_seconds)))
        if at_once is not None and type(body) is bytes and at_once(found.status, headers, body):
            return
        start = {"type": "http.response.start", "status": found.status, "headers": headers}
        if type(body) is bytes:
            await send(start)
            await send({"type": "http.response.body", "body": body})
            return
        self.watch.follow(flight)
        try:
            await send(start)
            async for piece in body:  # type: ignore[union-attr]  # not bytes
                if piece:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        except UpstreamError as error:
            self.journal.say("broke off", error=error.code)
            flight.fault = error.code
            return  # the server cuts the connection, and so the client knows that something is missing
        finally:
            flight.done = True
            await throw_away(found)
        await send({"type": "http.response.body", "body": b""})

    async def _passed(self, live: Live, scope: Scope, path: bytes, flight: Flight) -> Answered:
        """What is no cached route. Whether the caller may ask is the upstream's to say."""
        principal = None
        try:
            flight.seen = live.tenants.see(scope["headers"], scope["query_string"], _peer(scope))
            principal = flight.seen.principal
        except ProxyError as error:
            if error.status == 403:
                raise
        if principal is not None and (live.rate is not None or live.at_once is not None):
            self._limit(principal.account, live, flight)
        found = await pass_on(
            live.forwarding, scope["method"], path.decode("latin-1"), scope["query_string"], list(scope["headers"]),
            flight, Verdict("pass"),
        )  # fmt: skip
        if principal is not None and found.status in (401, 403):
            principal.yes.clear()
        return found

    def _limit(self, account: Account, live: Live, flight: Flight) -> None:
        if live.at_once is not None:
            if account.flying >= live.at_once:
                raise TooManyError(1.0, at_once=True)
            account.flying += 1
            flight.account = account
        if live.rate is not None and (seconds := self.accounts.wait(account, live.rate)):
            raise TooManyError(seconds)

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": 1003})
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": f"{message['type']}.complete"})
        self.journal.flush()
        await close(self.live.proxy)
        await send({"type": "lifespan.shutdown.complete"})


async def close(proxy: Proxy) -> None:
    """What rooms have opened, then the connections to the upstream. The cache is its opener's."""
    while proxy.closers:
        await proxy.closers.pop()()
    await proxy.upstream.close()


def _told(traced: Traced, flight: Flight, scope: Scope, label: str, status: int, verdict: Verdict | None) -> None:
    """The end of a request, to who traces it."""
    tracing.enter(None)
    seen, fault = flight.seen, flight.fault
    if not fault and (flight.gone or verdict is None):
        fault = "client-gone"
    agent = _agent(scope["headers"]) if seen is None else seen.agent
    principal = None if seen is None else seen.principal
    told = verdict or Verdict("pass")
    traced.end(
        status=0 if verdict is None else status, outcome=told.outcome if verdict is not None else "",
        reason="bypassed" if told.reason == "shadow" else told.reason, saved_seconds=told.saved_seconds, route=label,
        tenant="" if principal is None else principal.tenant,
        namespace="" if principal is None else principal.namespace, client=clients.word(agent),
        region="" if seen is None else seen.region, error=fault,
    )  # fmt: skip


def _agent(headers: Headers) -> bytes | None:
    return next((value[: clients.LONGEST] for name, value in headers if name == b"user-agent"), None)


def _peer(scope: Scope) -> str | None:
    client = scope.get("client")
    return client[0] if client else None
