"""`x-mmcache-session`: whose visit a request is part of. It changes no answer and is not sent upstream."""

from __future__ import annotations

from typing import Any

from tests.unit.flow.test_visits import Listener
from tests.unit.server.conftest import KEY
from tests.unit.server.echo import ECHO

from mmcache import Cache


def test_lookups_of_a_request_belong_to_its_session(proxied: Any) -> None:
    listener = Listener()
    with Cache(memory="16MiB", prefetch=listener) as cache:
        world = proxied(cache=cache)
        for session in ("one", "two", None, "x" * 129, "one"):
            world.ask(**({} if session is None else {"x_mmcache_session": session}))
        assert [name for name, _, _ in listener.seen] == ["one", "two", "", "", "one"]
        assert len(set(listener.keys)) == 1  # no part of the realm
        twice = [("x-mmcache-session", "one"), ("x-mmcache-session", "two"), *KEY.items()]
        world.client.post(ECHO, json={"model": "small", "text": "a"}, headers=twice)
        assert listener.seen[-1][0] == ""
        assert world.upstream.asked
        assert all(request.header(b"x-mmcache-session") is None for request in world.upstream.asked)


def test_without_a_prefetcher_nobody_asks(proxied: Any) -> None:
    world = proxied()
    assert world.ask(x_mmcache_session="one").headers["x-mmcache"].startswith("miss")
    assert world.ask(x_mmcache_session="two").headers["x-mmcache"].startswith("hit")
