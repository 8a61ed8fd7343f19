"""Puts the proxy together: `build` makes the ASGI application."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import cast

from mmcache.server.accounts import Accounts
from mmcache.server.asgi import Entry, Frame, Live
from mmcache.server.authority import Authority
from mmcache.server.config import Mode, ServerSettings
from mmcache.server.exchange import Proxy, Route
from mmcache.server.journal import Journal
from mmcache.server.operations import Operations
from mmcache.server.passing import Forwarding
from mmcache.server.settings_file import Configured
from mmcache.server.tenants import Tenants
from mmcache.server.tracing import Tracer
from mmcache.telemetry.counts import counts_of

Routes = Mapping[tuple[str, str], Route]
"""By method and path."""

ROOMS = ("chat", "responses", "transcriptions", "embeddings", "rerank")
"""Modules that export `ROUTES`."""

_STRICTER: dict[Mode, int] = {"on": 0, "shadow": 1, "off": 2}


def all_routes() -> dict[tuple[str, str], Route]:
    """Every route that is cached."""
    found: dict[tuple[str, str], Route] = {}
    for room in ROOMS:
        found |= import_module(f"mmcache.server.{room}").ROUTES
    return found


def build(
    proxy: Proxy,
    routes: Routes | None = None,
    *,
    journal: Journal | None = None,
    reload: Callable[[], Configured] | None = None,
    tracer: Tracer | None = None,
) -> Frame:
    """The proxy as an ASGI application. routes: None = all. reload: reads the configuration anew, for the operators.
    tracer: makes spans of requests."""
    found = all_routes() if routes is None else routes
    accounts, journal = Accounts(counts_of(proxy.cache).requests), journal or Journal(on=False)

    current = replace(proxy, compared=accounts.compared)

    def of(settings: ServerSettings, modes: Mapping[str, Mode]) -> Live:
        nonlocal current
        if settings != current.settings:  # what rooms keep was made under the old ones
            current = replace(current, settings=settings, kept={})
        return live(current, found, accounts, modes)

    operations = Operations(found, accounts, journal, of, reload)
    frame = Frame(of(proxy.settings, {}), accounts, journal, operations, tracer)
    operations.attend(frame)
    return frame


def live(proxy: Proxy, routes: Routes, accounts: Accounts, modes: Mapping[str, Mode]) -> Live:
    """What requests work with under `proxy.settings`. modes: switched by hand, by path or `*`; the stricter holds."""
    settings = proxy.settings
    table = {}
    for (method, path), route in routes.items():
        rules = settings.rules(path)
        asked = (rules.mode, modes.get("*", "on"), modes.get(path, "on"))
        mode = max(asked, key=_STRICTER.__getitem__)
        if mode != "off" and proxy.cache.mode != "off":
            table[method, path.encode()] = Entry(path, route, replace(rules, mode=mode))
    return Live(
        proxy, cast(Forwarding, proxy.upstream), table,
        Tenants(proxy.cache, settings.trust, accounts, settings.telemetry.region),
        Authority(proxy.upstream, settings.trust), settings.rate, settings.at_once,
    )  # fmt: skip
