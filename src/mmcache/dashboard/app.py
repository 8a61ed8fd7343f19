"""The dashboard as an ASGI application: page, API, OTLP; what every answer carries, and who may ask."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from importlib.metadata import version
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mmcache.dashboard.api import Api, failed, reply
from mmcache.dashboard.live import Live
from mmcache.dashboard.page_files import page, static
from mmcache.dashboard.receiver import Receiver
from mmcache.dashboard.store import Store
from mmcache.model.errors import DashboardError

Scope = MutableMapping[str, Any]
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
]
_log = logging.getLogger("mmcache.dashboard")


class Dashboard:
    """An application over a store; `close` ends what it began, and not the store.

    guarded: only requests to a loopback name are answered, so that no web page reaches it by another name for this
    machine (DNS rebinding). otlp, pages: which halves it serves. receives: where another
    door of the store takes OTLP, for the page to say.
    """

    def __init__(
        self,
        store: Store,
        *,
        guarded: bool = True,
        otlp: bool = True,
        pages: bool = True,
        receives: str | None = None,
    ) -> None:
        self.store = store
        self._guarded = guarded
        self.api, self.live, self.receiver = Api(store, version("mmcache"), receives), Live(store), Receiver(store)
        routes = [Route("/healthz", self._health, methods=["GET"])]
        if otlp:
            signals = ("traces", "metrics", "logs")
            routes += [Route(f"/v1/{name}", self.receiver.take, methods=["POST"]) for name in signals]
        if pages:
            routes += [
                Route("/", page, methods=["GET"]),
                Route("/static/{path:path}", static, methods=["GET"]),
                Route("/api/v1/live", self.live.listen, methods=["GET"]),
                Route("/api/v1/traces/{trace}", self.api.trace, methods=["GET"]),
                Route("/api/v1/explain/{trace}/{span}", self.api.explain, methods=["GET"]),
                Route("/api/v1/admin/{action}", self.api.admin, methods=["POST"]),
                Route("/api/v1/{name}", self.api.ask, methods=["GET"]),
            ]
        handlers = {DashboardError: _told, HTTPException: _missing, Exception: _broken}
        self._app = Starlette(routes=routes, exception_handlers=handlers)
        self._app.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Any, send: Callable[[Scope], Awaitable[None]]) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def sent(message: Scope) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        headers, error = dict(scope["headers"]), None
        if self._guarded and not _local(headers.get(b"host", b"")):
            error = DashboardError("ask for it by the name localhost or 127.0.0.1", status=421, code="host")
        elif _foreign(scope["method"], headers):
            error = DashboardError("no other web page may ask or send here", status=403, code="origin")
        await (self._app if error is None else failed(error))(scope, receive, sent)

    def drain(self) -> None:
        """Streams end; what is asked is answered."""
        self.live.end()

    def close(self) -> None:
        """Its threads end."""
        self.api.close()
        self.receiver.close()

    async def _health(self, request: Request) -> Response:
        came = self.store.came
        counts = {"spans": came.spans, "again": came.again, **self.receiver.counts}
        return reply({"status": "ok", "received": counts})


def _local(host: bytes) -> bool:
    """Whether a Host header names this machine from within: `localhost`, `127.0.0.1:4318`, `[::1]`."""
    name = host.decode("latin-1").lower()
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    if name in ("localhost", "localhost."):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _foreign(method: str, headers: Mapping[bytes, bytes]) -> bool:
    """Whether a web page of another origin asks, as browsers say it; to follow a link to here is allowed."""
    origin = headers.get(b"origin")
    if method not in ("GET", "HEAD") and origin is not None:
        return origin.partition(b"://")[2].lower() != headers.get(b"host", b"").lower()
    site, mode = headers.get(b"sec-fetch-site", b""), headers.get(b"sec-fetch-mode", b"")
    return site in (b"cross-site", b"same-site") and mode != b"navigate"


async def _told(request: Request, error: Exception) -> Response:
    assert isinstance(error, DashboardError)
    return failed(error)


async def _missing(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {
        404: "there is nothing here",
        405: "this is only read" if request.method != "GET" else "this is sent by POST",
    }
    code = {404: "unknown", 405: "method"}.get(error.status_code, "request")
    answer = failed(
        DashboardError(words.get(error.status_code, str(error.detail)), status=error.status_code, code=code)
    )
    answer.headers.update(error.headers or {})
    return answer


async def _broken(request: Request, error: Exception) -> Response:
    _log.error("a request failed: %s %r: %r", request.method, request.url.path, error)
    return failed(DashboardError("something is wrong here; the log says what", status=500, code="internal"))
