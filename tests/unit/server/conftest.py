"""What the tests of the proxy share: a real upstream, and a real proxy in front of it, both over TCP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("uvloop")
pytest.importorskip("aiohttp")
httpx = pytest.importorskip("httpx")

from tests.unit.server.echo import ECHO, echoed  # noqa: E402
from tests.unit.server.upstream import Upstream, run, served  # noqa: E402

from mmcache import Cache  # noqa: E402
from mmcache.server.app import build  # noqa: E402
from mmcache.server.asgi import Frame, close  # noqa: E402
from mmcache.server.config import RouteRules, ServerSettings  # noqa: E402
from mmcache.server.drain import BoundedProtocol  # noqa: E402
from mmcache.server.exchange import Proxy, Route  # noqa: E402
from mmcache.server.journal import Journal  # noqa: E402
from mmcache.server.tracing import Tracer  # noqa: E402
from mmcache.server.upstream_http import HttpUpstream  # noqa: E402

KEY = {"authorization": "Bearer sk-one"}


@dataclass
class World:
    """An upstream, the proxy in front of it, and a client of the proxy."""

    upstream: Upstream
    behind: str
    """The upstream's address."""
    address: str
    frame: Frame
    client: Any
    lines: list[str]
    """The access log."""

    def ask(self, text: str = "a", *, path: str = ECHO, model: str = "small", **headers: str) -> Any:
        """POST to the route that echoes; header names with `_` for `-`."""
        given = KEY | {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post(path, json={"model": model, "text": text}, headers=given)

    @property
    def port(self) -> int:
        """Of the proxy."""
        return int(self.address.rpartition(":")[2])


@pytest.fixture
def upstream() -> Iterator[tuple[Upstream, str]]:
    """A fresh upstream, and its address."""
    app = Upstream()
    with served(app) as address:
        yield app, address


@pytest.fixture
def proxied(upstream: tuple[Upstream, str]) -> Iterator[Callable[..., World]]:
    """`proxied(routes=…, cache=…, **settings)`: a proxy in front of the upstream."""
    with ExitStack() as stack:

        def make(
            routes: Mapping[tuple[str, str], Route] | None = None, cache: Cache | None = None, reload: Any = None,
            routes_rules: Mapping[str, RouteRules] | None = None, tracer: Tracer | None = None, **settings: Any,
        ) -> World:  # fmt: skip
            app, behind = upstream
            chosen = replace(ServerSettings(behind, routes=routes_rules or {}), **settings)
            cache = stack.enter_context(Cache(memory="16MiB")) if cache is None else cache
            lines: list[str] = []
            frame = build(
                Proxy(cache, HttpUpstream(chosen), chosen), {("POST", ECHO): echoed} if routes is None else routes,
                journal=Journal(lambda line: lines.extend(line.splitlines()), as_json=True), reload=reload,
                tracer=tracer,
            )  # fmt: skip
            address = stack.enter_context(served(frame, BoundedProtocol))
            stack.callback(run, close, frame.live.proxy)
            client = stack.enter_context(httpx.Client(base_url=address, timeout=10))
            return World(app, behind, address, frame, client, lines)

        yield make
