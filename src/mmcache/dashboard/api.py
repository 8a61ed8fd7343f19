"""`/api/v1`: questions to the store, answered as JSON. Each has a cursor, a thread and a time limit of its own."""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import blake2b
from typing import Any

import duckdb
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mmcache.dashboard import browse, causation, evidence, explained, graph, hot, levels, meta, overview
from mmcache.dashboard.asking import Question, WrongQuestionError, question, whole
from mmcache.dashboard.counting import View
from mmcache.dashboard.deadline import within
from mmcache.dashboard.retention import used
from mmcache.dashboard.store import Store
from mmcache.model.errors import DashboardError
from mmcache.settings import parse_bytes

POINTS = 1000
TOP = 200
REQUESTS = 500
WAITING = 128
"""Questions that wait for a thread; further ones are refused."""
_log = logging.getLogger("mmcache.dashboard")
_encode = msgspec.json.Encoder().encode


class Api:
    """All of it but the live stream."""

    def __init__(self, store: Store, version: str, otlp: str | None = None) -> None:
        self._store, self._settings, self._version, self._otlp = store, store.settings, version, otlp
        self._threads = ThreadPoolExecutor(store.settings.readers, "mmcache-dashboard-reader")
        self._waiting = 0
        self._nonce = secrets.token_hex(8)

    def close(self) -> None:
        """No more questions."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    async def ask(self, request: Request) -> Response:
        """`GET /api/v1/NAME`."""
        name = request.path_params["name"]
        kind = QUESTIONS.get(name)
        if kind is None:
            raise DashboardError("there is nothing here", status=404, code="unknown")
        query, also = kind
        parameters = dict(request.query_params)
        asked = question(request.query_params.multi_items(), also)
        task = partial(query, self, asked=asked, given=parameters)
        over = "to" in parameters and (name != "graph" or asked.window.end <= time.time())
        return await self._answered(request, task, settled=over)

    async def trace(self, request: Request) -> Response:
        """`GET /api/v1/traces/{trace}`."""
        name = request.path_params["trace"].lower()
        return await self._answered(request, lambda view: browse.trace(view, name), settled=True)

    async def explain(self, request: Request) -> Response:
        """`GET /api/v1/explain/{trace}/{span}`."""
        names = request.path_params["trace"].lower(), request.path_params["span"].lower()
        return await self._answered(request, lambda view: _explained(view, *names), settled=True)

    async def admin(self, request: Request) -> Response:
        """`POST /api/v1/admin/retention` and `/clear`."""
        token, given = self._settings.admin_token, request.headers.get("authorization", "")
        if token is None:
            raise DashboardError("there is nothing here", status=404, code="unknown")
        if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            raise DashboardError("this needs the admin token: authorization: Bearer TOKEN", status=401, code="token")
        action = request.path_params["action"]
        if action == "clear":
            done = self._store.clear()
        elif action == "retention":
            done = self._store.limit(_bytes(await _small(request)))
        else:
            raise DashboardError("there is nothing here", status=404, code="unknown")
        return reply({"bytes": await asyncio.wrap_future(done), "limit_bytes": self._store.limit_bytes})

    async def _answered(self, request: Request, task: Callable[[View], Any], settled: bool) -> Response:
        """settled: the same question has the same answer until something comes."""
        headers = {"cache-control": "no-store"}
        if settled:
            said = f"{self._nonce}|{self._store.came.changes}|{request.url.path}?{request.url.query}"
            tag = f'"{blake2b(said.encode(), digest_size=16).hexdigest()}"'
            headers = {"cache-control": "private, no-cache", "etag": tag}
            if tag in request.headers.get("if-none-match", ""):
                return Response(status_code=304, headers=headers)
        return reply(await self.run(task), headers=headers)

    async def run(self, task: Callable[[View], Any]) -> Any:
        """The task in a thread of its own, with a cursor; interrupted when it takes too long."""
        if self._waiting >= WAITING:
            raise DashboardError("too many questions at once; ask again", status=503, code="busy")
        cursor = self._store.cursor()
        self._waiting += 1
        loop = asyncio.get_running_loop()
        timed = within(self._settings.query_seconds, cursor, task)
        work = loop.run_in_executor(self._threads, self._store.read, cursor, timed)
        try:
            return await asyncio.shield(work)
        except duckdb.InterruptException as error:
            raise DashboardError(
                "this takes too long; ask for less time, or filter", status=504, code="slow"
            ) from error
        except duckdb.Error as error:
            _log.warning("a question could not be answered: %s", error)
            raise DashboardError("the store could not be read", status=500, code="store") from error
        finally:
            self._waiting -= 1

    # One function a question.

    def _meta(self, view: View, asked: Question, given: Mapping[str, str]) -> Any:
        views = len(self._store.views.latest(time.time()))
        return meta.meta(view, self._version, used(view.cursor), self._store.limit_bytes, self._otlp, views)

    def _ratio(self, view: View, asked: Question, given: Mapping[str, str]) -> Any:
        return overview.ratio(view, asked, given.get("by"), whole(given, "points", 120, POINTS))

    def _reasons(self, view: View, asked: Question, given: Mapping[str, str]) -> Any:
        return overview.reasons(view, asked, whole(given, "points", 120, POINTS))

    def _saved(self, view: View, asked: Question, given: Mapping[str, str]) -> Any:
        price, currency = self._settings.gpu_hour, self._settings.currency
        return overview.saved(view, asked, whole(given, "points", 120, POINTS), price, currency)

    def _tiers(self, view: View, asked: Question, given: Mapping[str, str]) -> Any:
        return levels.tiers(view, asked, whole(given, "points", 60, POINTS))

    def _keys(self, view: View, asked: Question, given: Mapping[str, str]) -> Any:
        return hot.keys(view, asked, whole(given, "top", 40, TOP), whole(given, "points", 60, POINTS))

    def _requests(self, view: View, asked: Question, given: Mapping[str, str]) -> Any:
        return browse.requests(view, asked, whole(given, "limit", 100, REQUESTS), given.get("before"))

    def _causes(self, view: View, asked: Question, given: Mapping[str, str]) -> Any:
        return causation.causes_of(view, asked)

    def _graph(self, view: View, asked: Question, given: Mapping[str, str]) -> Any:
        return graph.graph(view, self._store.views, asked)


QUESTIONS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "meta": (Api._meta, ()),
    "ratio": (Api._ratio, ("by", "points")),
    "reasons": (Api._reasons, ("points",)),
    "saved": (Api._saved, ("points",)),
    "tiers": (Api._tiers, ("points",)),
    "keys": (Api._keys, ("top", "points")),
    "requests": (Api._requests, ("limit", "before")),
    "causes": (Api._causes, ()),
    "graph": (Api._graph, ()),
}


def _explained(view: View, trace: str, span: str) -> dict[str, Any]:
    return explained.explain(evidence.of_span(view, trace, span)).to_dict()


def reply(said: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON."""
    return Response(_encode(said), status, dict(headers or {"cache-control": "no-store"}), "application/json")


def failed(error: DashboardError) -> Response:
    """An error, as JSON."""
    headers = {"cache-control": "no-store"} | ({"retry-after": "2"} if error.status in (429, 503) else {})
    return reply({"error": {"message": str(error), "code": error.code}}, error.status, headers)


async def _small(request: Request) -> bytes:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > 4096:
            raise WrongQuestionError("the body is too large")
    return body


def _bytes(body: bytes) -> int:
    try:
        given = msgspec.json.decode(body)
        size = parse_bytes(given["bytes"])
    except (msgspec.DecodeError, ValueError, TypeError, KeyError, OverflowError) as error:
        raise WrongQuestionError('the body is {"bytes": 2147483648}') from error
    if not 32 << 20 <= size < 2**62:
        raise WrongQuestionError("a store holds 32 MiB or more")
    return size
