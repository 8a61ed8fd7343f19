"""The frame end to end: hits, misses, what passes, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

from tests.unit.server.conftest import World


def test_the_second_time_is_a_hit_and_the_upstream_is_asked_once(proxied: Callable[..., World]) -> None:
    world = proxied()
    first, second = world.ask(), world.ask()
    assert first.status_code == second.status_code == 200
    assert (first.headers["x-mmcache"], second.headers["x-mmcache"]) == ("miss; reason=absent", "hit")
    assert first.content == second.content
    assert world.upstream.count("/v1/echo") == 1


def test_what_is_no_route_passes(proxied: Callable[..., World]) -> None:
    world = proxied()
    answer = world.client.put("/v1/files/a?b=c", content=b"x" * 300_000, headers={"x-other": "1"})
    assert answer.headers["x-mmcache"] == "pass"
    shown = answer.json()
    assert (shown["method"], shown["path"], shown["query"]) == ("PUT", "/v1/files/a", "b=c")
    assert len(shown["body"]) == 300_000
    assert ["x-other", "1"] in shown["headers"]
