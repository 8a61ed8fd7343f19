"""A hit is authorised like a miss."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.unit.server.conftest import World
from tests.unit.server.echo import ECHO
from tests.unit.server.upstream import Asked as Reached
from tests.unit.server.upstream import reply

from mmcache.server.asgi import Send
from mmcache.server.config import TrustRules
from mmcache.server.exchange import Answered, Asked, Proxy, Verdict

MODELS = "/v1/models"
FRONT = {"x-mmcache-front-token": "a front proxy's token", "x-mmcache-tenant": "shop"}
ALWAYS = TrustRules(authority_seconds=1e-9, front_token="a front proxy's token")
"""Nothing is believed from one request to the next."""
LONG = TrustRules(authority_seconds=1e6, front_token="a front proxy's token")


def test_an_own_success_is_a_yes(proxied: Callable[..., World]) -> None:
    world = proxied(trust=LONG)
    world.ask()
    assert world.ask().headers["x-mmcache"] == "hit"
    assert world.upstream.count(MODELS) == 0


def test_after_its_time_the_upstream_is_asked_again(proxied: Callable[..., World]) -> None:
    world = proxied(trust=ALWAYS)
    world.ask()
    for asked in (1, 2):
        assert world.ask().headers["x-mmcache"] == "hit"
        assert world.upstream.count(MODELS) == asked
    probe = world.upstream.asked[-1]
    assert probe.method == "GET"
    assert probe.header(b"authorization") == b"Bearer sk-one"
    assert probe.header(b"content-type") is None


def test_a_revoked_key_gets_the_upstreams_own_answer(proxied: Callable[..., World]) -> None:
    world = proxied(trust=ALWAYS)
    world.ask()
    world.upstream.refused.add(b"Bearer sk-one")
    answer = world.ask()
    assert answer.status_code == 401
    assert answer.json() == {"error": {"message": "revoked", "code": "invalid_api_key"}}
    assert answer.headers["x-mmcache"] == "miss; reason=denied"
    assert world.upstream.count(ECHO) == 1


def test_a_refusal_of_anything_else_ends_the_belief(proxied: Callable[..., World]) -> None:
    world = proxied(trust=LONG)
    world.ask("a")
    world.upstream.refused.add(b"Bearer sk-one")
    assert world.ask("b").status_code == 401
    assert world.ask("a").status_code == 401


def test_a_model_that_is_no_longer_listed_is_asked_for_upstream(proxied: Callable[..., World]) -> None:
    world = proxied(trust=ALWAYS)
    world.ask(model="large")
    world.upstream.models.remove("large")
    assert world.ask(model="large").headers["x-mmcache"] == "bypass; reason=denied"
    assert world.upstream.count(ECHO) == 2

    async def refuse(asked: Reached, send: Send) -> None:
        await reply(send, 404, {"error": {"message": "no such model"}})

    world.upstream.on(ECHO, refuse)
    assert world.ask(model="large").status_code == 404


@pytest.mark.parametrize("status", [500, 502, 503])
def test_where_nobody_can_be_asked_nothing_is_served(proxied: Callable[..., World], status: int) -> None:
    world = proxied(trust=ALWAYS)
    world.ask()

    async def fail(asked: Reached, send: Send) -> None:
        await reply(send, status, b"")

    world.upstream.on(MODELS, fail)
    answer = world.ask()
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "denied")


def test_within_its_time_a_yes_outlives_the_upstream(proxied: Callable[..., World]) -> None:
    world = proxied(trust=LONG)
    world.ask()
    world.upstream.down = True
    assert world.ask().headers["x-mmcache"] == "hit"


@pytest.mark.parametrize("status", [404, 405, 429, 302])
def test_an_answer_that_says_nothing_leaves_it_to_the_request_itself(
    proxied: Callable[..., World], status: int
) -> None:
    world = proxied(trust=ALWAYS)
    world.ask()

    async def odd(asked: Reached, send: Send) -> None:
        await reply(send, status, b"")

    world.upstream.on(MODELS, odd)
    assert world.ask().headers["x-mmcache"] == "bypass; reason=denied"


@pytest.mark.parametrize(
    ("body", "hits"),
    [
        (b'{"user": "me"}', True), (b'{"data": 1}', True), (b'{"error": null}', True),
        (b"<!doctype html>", False), (b"", False), (b"[]", False), (b"true", False), (b"[" * 10_000, False),
        (b'{"error": {"message": "no such key"}}', False), (b'{"data": []}', False), (b'{"data": ["small"]}', False),
    ],
)  # fmt: skip
def test_an_object_that_lists_nothing_says_yes_to_the_key_and_a_page_says_nothing(
    proxied: Callable[..., World], body: bytes, hits: bool
) -> None:
    world = proxied(trust=ALWAYS)
    world.ask()

    async def say(asked: Reached, send: Send) -> None:
        await reply(send, 200, body)

    world.upstream.on(MODELS, say)
    assert world.ask().headers["x-mmcache"] == ("hit" if hits else "bypass; reason=denied")


def test_an_upstream_that_asks_nobody_is_not_asked(proxied: Callable[..., World]) -> None:
    world = proxied(trust=TrustRules(authority=None))
    world.ask()
    assert world.ask().headers["x-mmcache"] == "hit"
    assert world.upstream.count(MODELS) == 0


def test_each_key_behind_a_shared_tenant_needs_a_yes_of_its_own(proxied: Callable[..., World]) -> None:
    world = proxied(trust=LONG)
    given = {name.replace("-", "_"): value for name, value in FRONT.items()}
    assert world.ask(**given, authorization="Bearer sk-one").status_code == 200
    world.upstream.refused.add(b"Bearer sk-two")
    answer = world.ask(**given, authorization="Bearer sk-two")
    assert answer.status_code == 401
    assert world.ask(**given, authorization="Bearer sk-three").headers["x-mmcache"] == "hit"
    assert world.upstream.count(MODELS) >= 2
    assert world.upstream.count(ECHO) == 1
    sent = [asked.headers for asked in world.upstream.asked]
    assert not any(name.startswith(b"x-mmcache") for headers in sent for name, _ in headers)


def test_a_joined_miss_behind_a_shared_tenant_is_asked_for_too(proxied: Callable[..., World]) -> None:
    """Another key's question was just answered: this key must be allowed to have it."""

    async def joined(asked: Asked, proxy: Proxy) -> Answered:
        return Answered(200, [], b"another's answer", Verdict("miss", "absent"), "small")

    world = proxied({("POST", ECHO): joined}, trust=LONG)
    world.upstream.refused.add(b"Bearer sk-two")
    given = {name.replace("-", "_"): value for name, value in FRONT.items()}
    assert world.ask(**given, authorization="Bearer sk-two").status_code == 401
    assert world.ask(**given, authorization="Bearer sk-one").content == b"another's answer"


def test_a_route_that_forgets_the_model_serves_nothing(proxied: Callable[..., World]) -> None:
    async def forgets(asked: Asked, proxy: Proxy) -> Answered:
        return Answered(200, [], b"stored", Verdict("hit"))

    world = proxied({("POST", ECHO): forgets})
    answer = world.ask()
    assert answer.headers["x-mmcache"] == "bypass; reason=denied"
    assert answer.json()["method"] == "POST"


def test_other_organisations_and_other_keys_share_neither_answers_nor_a_yes(proxied: Callable[..., World]) -> None:
    world = proxied(trust=LONG)
    world.ask()
    others = [{"openai_organization": "o"}, {"openai_project": "p"}, {"authorization": "Bearer sk-two"},
              {"x_anything": "1"}]  # fmt: skip
    for headers in others:
        assert world.ask(**headers).headers["x-mmcache"] == "miss; reason=absent"
    for headers in others:
        assert world.ask(**headers).headers["x-mmcache"] == "hit"


def test_many_who_ask_at_once_ask_the_upstream_once(proxied: Callable[..., World]) -> None:
    world = proxied(trust=LONG)
    world.ask()
    principal = next(iter(world.frame.live.tenants._known.values()))
    principal.yes.clear()
    hold = threading.Event()

    async def slowly(asked: Reached, send: Send) -> None:
        await asyncio.to_thread(hold.wait, 10)
        await reply(send, 200, {"data": [{"id": "small"}]})

    world.upstream.on(MODELS, slowly)
    with ThreadPoolExecutor(20) as pool:
        asking = [pool.submit(world.ask) for _ in range(20)]
        while len(world.frame.watch.flights) < 20:
            hold.wait(0.01)
        hold.set()
        assert {future.result().headers["x-mmcache"] for future in asking} == {"hit"}
    assert world.upstream.count(MODELS) == 1


def test_a_stream_that_may_not_be_sent_is_closed(proxied: Callable[..., World]) -> None:
    closed = []

    class Stored:
        def __aiter__(self) -> AsyncIterator[bytes]:
            return self

        async def __anext__(self) -> bytes:
            return b"data"

        async def aclose(self) -> None:
            closed.append(True)

    async def streams(asked: Asked, proxy: Proxy) -> Answered:
        return Answered(200, [], Stored(), Verdict("hit"), "small")

    world = proxied({("POST", ECHO): streams})
    world.upstream.refused.add(b"Bearer sk-one")
    assert world.ask().status_code == 401
    assert closed == [True]
