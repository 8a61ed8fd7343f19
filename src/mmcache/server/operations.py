"""What the proxy answers about itself: `/healthz`, `/readyz`, and under `/mmcache/` the status, the switch, the reload
and a description of all routes. The operators' paths ask for the admin token, and are not there without one."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

import msgspec

from mmcache.model.errors import MMCacheError, ProxyError, SettingsError
from mmcache.server import openapi, scraped
from mmcache.server.accounts import Accounts
from mmcache.server.answers import json_answer
from mmcache.server.config import Mode, ServerSettings
from mmcache.server.exchange import Answered, Route
from mmcache.server.journal import Journal
from mmcache.server.settings_file import Configured
from mmcache.server.watch import Flight

if TYPE_CHECKING:
    from mmcache.server.asgi import Frame, Live

FIXED = frozenset({"host", "port", "upstream", "kind", "connections", "keepalive_seconds", "connect_seconds",
                   "upstream_seconds", "drain_seconds", "largest_answer_bytes", "webhook_secret",
                   "telemetry"})  # fmt: skip
"""Settings of a running proxy that only a restart changes."""

READY_SECONDS = 1.0
"""How long what was found about the upstream is repeated."""
_PROBE_SECONDS = 2.0
_MOST_BODY = 64 << 10


class Switch(msgspec.Struct, forbid_unknown_fields=True):
    """Body of `POST /mmcache/switch`. `on`: as the configuration says; the stricter of the two always holds."""

    mode: Mode
    route: str = "*"


class Operations:
    """See the module."""

    def __init__(
        self, routes: Mapping[tuple[str, str], Route], accounts: Accounts, journal: Journal,
        live_of: Callable[[ServerSettings, Mapping[str, Mode]], Live], reload: Callable[[], Configured] | None,
    ) -> None:  # fmt: skip
        self._accounts, self._journal, self._live_of, self._reload = accounts, journal, live_of, reload
        self._paths = {path for _, path in routes}
        self._openapi = msgspec.json.encode(openapi.document(routes))
        self._switched: dict[str, Mode] = {}
        self._began = time.time()
        self._ready: tuple[float, str] = (float("-inf"), "")
        self._probe: asyncio.Task[str] | None = None
        self._scrapes: scraped.UnderWay = {}
        self._frame: Frame
        self.cache: Mapping[str, Any] | None = None
        """The arguments that the cache was opened with, where they come from the configuration."""

    def attend(self, frame: Frame) -> None:
        """Whom it is all about."""
        self._frame = frame

    def own(self, path: bytes) -> bool:
        """Whether the proxy itself answers there."""
        if path == b"/metrics":
            return self._frame.live.proxy.settings.telemetry.metrics != "off"
        return path.startswith(b"/mmcache/") or path in (b"/healthz", b"/readyz")

    async def answer(self, scope: MutableMapping[str, Any], flight: Flight) -> Answered:
        """Raises `ProxyError`."""
        path, method = scope["raw_path"].decode("latin-1"), scope["method"]
        settings = self._frame.live.proxy.settings
        if path == "/metrics":
            return await self._metrics(scope)
        if path in ("/healthz", "/readyz", "/mmcache/openapi.json"):
            _only(("GET", "HEAD"), method)
            if path == "/healthz":
                return json_answer({"status": "ok"})
            return await self._readiness() if path == "/readyz" else self._described()
        operators = {"/mmcache/status": "GET", "/mmcache/switch": "POST", "/mmcache/reload": "POST"}
        if path not in operators or settings.admin_token is None:
            raise ProxyError("there is nothing here", status=404, code="not_found")
        _authorised(scope, settings.admin_token)
        _only((operators[path],), method)
        if path == "/mmcache/status":
            return json_answer(await self.status())
        if path == "/mmcache/switch":
            return json_answer(self.switch(await _body(flight)))
        try:
            return json_answer(self.reload())
        except SettingsError as error:
            raise ProxyError(f"nothing was changed: {error}", code="settings") from error

    async def _metrics(self, scope: MutableMapping[str, Any]) -> Answered:
        """For whoever scrapes them, where that is allowed."""
        proxy = self._frame.live.proxy
        who, token = proxy.settings.telemetry.metrics, proxy.settings.admin_token
        if who != "open" and not (who == "loopback" and scraped.local(scope)):
            if token is None:
                raise ProxyError("metrics are told to this machine only", status=404, code="not_found")
            _authorised(scope, token)
        _only(("GET", "HEAD"), scope["method"])
        return await scraped.answer(proxy.cache, self._accounts, scope, self._scrapes)

    def switch(self, body: bytes) -> dict[str, Any]:
        """The kill switch: `{"mode": "off"}` for all routes, or with `"route"` for one. It outlives reloads."""
        try:
            wanted = msgspec.json.decode(body, type=Switch)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ProxyError(f'send {{"mode": "on" | "shadow" | "off", "route": "/v1/…"}}: {error}') from error
        if wanted.route != "*" and wanted.route not in self._paths:
            raise ProxyError(f"there is no route {wanted.route[:100]!r}; there are {', '.join(sorted(self._paths))}")
        self._switched[wanted.route] = wanted.mode
        self._frame.live = self._live_of(self._frame.live.proxy.settings, self._switched)
        self._journal.say("switched", route=wanted.route, mode=wanted.mode)
        return {"switched": self._switched}

    def reload(self) -> dict[str, Any]:
        """Read the configuration anew. Raises `SettingsError`; then nothing has changed."""
        if self._reload is None:
            raise SettingsError("the proxy was started without a configuration file")
        old, found = self._frame.live.proxy.settings, self._reload()
        changed = [each.name for each in fields(old) if getattr(old, each.name) != getattr(found.server, each.name)]
        fixed = [name for name in changed if name in FIXED]
        new = replace(found.server, **{name: getattr(old, name) for name in fixed})
        if self.cache is not None and dict(found.cache) != dict(self.cache):
            fixed.append("cache")
        self._frame.live = self._live_of(new, self._switched)
        self._journal.on = new.access_log
        done = {"changed": [name for name in changed if name not in FIXED], "needs_restart": fixed}
        self._journal.say("reloaded", **{name: ",".join(values) or "-" for name, values in done.items()})
        return done

    def hung_up(self) -> None:
        """SIGHUP: reload, and only say so where that cannot be done."""
        try:
            self.reload()
        except SettingsError as error:
            self._journal.say("not reloaded", error=str(error))

    async def status(self) -> dict[str, Any]:
        """Everything that is counted."""
        proxy = self._frame.live.proxy
        stats = asdict(await asyncio.to_thread(proxy.cache.stats))
        rules = {path: entry.rules.mode for (_, path), entry in self._frame.live.table.items()}
        return {
            "uptime_seconds": round(time.time() - self._began, 3),
            "in_flight": len(self._frame.watch.flights),
            "draining": self._frame.draining,
            "modes": {path: rules.get(path.encode(), "off") for path in sorted(self._paths)}
            | {"switched": self._switched},
            **self._accounts.report(),
            "cache": msgspec.to_builtins(stats, str_keys=True, enc_hook=str),
        }

    def _described(self) -> Answered:
        found = json_answer(None)
        found.body = self._openapi
        return found

    async def _readiness(self) -> Answered:
        reason = "draining" if self._frame.draining else await self._reachable()
        return json_answer({"status": "no", "reason": reason}, 503) if reason else json_answer({"status": "ready"})

    async def _reachable(self) -> str:
        when, found = self._ready
        if time.monotonic() - when < READY_SECONDS:
            return found
        if self._probe is None:
            self._probe = asyncio.ensure_future(self._look())
        try:
            return await asyncio.shield(self._probe)
        finally:
            self._probe = None

    async def _look(self) -> str:
        proxy = self._frame.live.proxy
        found = ""
        try:
            await asyncio.to_thread(proxy.cache.stats)
        except MMCacheError:
            found = "the cache is closed"
        try:
            path = proxy.settings.trust.authority or "/v1/models"
            async with asyncio.timeout(_PROBE_SECONDS):
                reply = await proxy.upstream.send("GET", path, b"", [], b"")
                await reply.close()
            if reply.status >= 500:
                found = "the upstream answers with an error"
        except (ProxyError, TimeoutError):
            found = "the upstream cannot be reached"
        self._ready = (time.monotonic(), found)
        return found


def _only(allowed: tuple[str, ...], method: str) -> None:
    if method not in allowed:
        raise ProxyError(f"this path takes {' and '.join(allowed)}", status=405, code="method")


def _authorised(scope: MutableMapping[str, Any], token: str) -> None:
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    scheme, _, key = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
    if scheme.lower() != b"bearer" or not hmac.compare_digest(key.strip(), token.encode()):
        raise ProxyError("send `authorization: Bearer …` with the admin token", status=401, code="admin_token")


async def _body(flight: Flight) -> bytes:
    body: bytes = b""
    while True:
        message = await flight.receive()
        body += message.get("body", b"")
        if len(body) > _MOST_BODY:
            raise ProxyError("the body is too large", status=413, code="too_large")
        if not message.get("more_body"):
            return body
