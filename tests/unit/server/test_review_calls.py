"""Whoever goes, and whenever: the others are answered, what is whole is kept, and nothing is left over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.server.chat_world import CHAT, Scripted, World, body_of, completion, events, stream

from mmcache.server.calls import Calls
from mmcache.server.chat import PATH, ROUTES
from mmcache.server.config import RouteRules, ServerSettings
from mmcache.server.exchange import Answered
from mmcache.server.meant import semantic_for
from mmcache.store import Store

ROUTE, RULES, NEAR = ROUTES["POST", PATH], RouteRules(), RouteRules(semantic_max_error=0.1)
WHOLE = json.dumps(completion()).encode()


def in_pieces() -> Scripted:
    return Scripted([WHOLE[:20], WHOLE[20:]])


CASES: dict[str, tuple[dict[str, Any], RouteRules, Callable[[], Scripted]]] = {
    "whole": (CHAT, RULES, in_pieces),
    "stream": (CHAT | {"stream": True}, RULES, lambda: events(stream("A", " cat."))),
    "by meaning": (CHAT, NEAR, in_pieces),
}


async def drive(world: World, request: dict[str, Any], rules: RouteRules) -> tuple[Answered, bytes]:
    """Ask and read, as the frame does: what is not read to its end is closed."""
    answered = await world.ask(request, rules=rules)
    try:
        return answered, await body_of(answered)
    finally:
        if not isinstance(answered.body, bytes):
            await answered.body.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize("going", [{0}, {1}, {0, 1}, {0, 1, 2}], ids=str)
@pytest.mark.parametrize("name", CASES)
async def test_whoever_goes_at_any_step(name: str, going: set[int]) -> None:
    request, rules, reply = CASES[name]
    settings = ServerSettings("http://upstream", routes={PATH: rules})
    for step in range(40):
        world = World(ROUTE, PATH, reply, semantic=semantic_for(settings))
        asking = [asyncio.ensure_future(drive(world, request, rules)) for _ in range(3)]
        for _ in range(step):
            await asyncio.sleep(0)
        for one in going:
            asking[one].cancel()
        done = await asyncio.gather(*asking, return_exceptions=True)
        assert not [one for at, one in enumerate(done) if at not in going and isinstance(one, BaseException)]
        await world.idle()
        calls: Calls = world.proxy.kept.get("mmcache.server.calls", Calls())
        assert (calls._under_way, calls._all, calls._room.held) == ({}, {}, 0)
        assert all(reply.closed for reply in world.upstream.replies)
        staying = len(going) < 3
        first = await world.read(request, rules=rules)
        assert (await world.read(request, rules=rules)) == ("hit", first[1])
        assert not staying or first[0] == "hit"
        assert world.upstream.calls <= (1 if staying else 2)
        world.cache.close()


@pytest.mark.parametrize("name", CASES)
async def test_nobody_waits_until_it_is_stored(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    request, rules, reply = CASES[name]
    told: list[str] = []
    put = Store.put

    def noted(*arguments: Any, **options: Any) -> Any:
        told.append("stored")
        return put(*arguments, **options)

    monkeypatch.setattr(Store, "put", noted)
    world = World(ROUTE, PATH, reply, semantic=semantic_for(ServerSettings("http://upstream", routes={PATH: rules})))
    for directives in ({}, {"no_cache": True}):
        told.clear()
        await body_of(await world.ask(request, rules=rules, **directives))
        told.append("answered")
        await world.idle()
        assert told[0] == "answered"
