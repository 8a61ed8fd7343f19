"""What is kept of whole answers, and who is given it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.server.chat_world import CHAT, World, completion, settled, whole

from mmcache.model.errors import ProxyError, UpstreamError
from mmcache.server.answers_stored import Stored, judge
from mmcache.server.chat import PATH, ROUTES
from mmcache.server.config import RouteRules
from mmcache.server.exchange import BypassedError


@pytest.fixture
def world() -> Iterator[World]:
    made = World(ROUTES["POST", PATH], PATH, lambda: whole(completion()))
    with made.cache:
        yield made


async def test_the_second_is_given_what_the_first_was(world: World) -> None:
    first, second = await world.ask(CHAT), await world.ask(CHAT)
    assert first.body == second.body == json.dumps(completion()).encode()
    assert (first.verdict.outcome, first.verdict.reason) == ("miss", "absent")
    assert second.verdict.outcome == "hit"
    assert second.verdict.saved_tokens == 7
    assert second.model == "llava"
    assert world.upstream.calls == 1
    assert world.upstream.replies[0].closed


async def test_key_order_and_spacing_mean_nothing(world: World) -> None:
    await world.read(CHAT)
    message = '{"content": "What animal is it?", "role": "user"}'
    written = '{"n": 1, "stream": false,\n "messages": [%s], "temperature": 0.0, "model": "llava"}' % message  # noqa: UP031
    assert (await world.read(written.encode()))[0] == "hit"


async def test_tenants_share_nothing(world: World) -> None:
    await world.read(CHAT)
    assert (await world.read(CHAT, tenant="other"))[0] == "miss absent"


async def test_versions_and_upstreams_share_nothing(world: World) -> None:
    await world.read(CHAT)
    changed: list[dict[str, Any]] = [{"version": "2"}, {"upstream": "http://other"}, {"kind": "vllm"}]
    for changes in changed:
        world.proxy = replace(world.proxy, settings=replace(world.settings, **changes))
        assert (await world.read(CHAT))[0].startswith("miss")


async def test_headers_of_the_exchange_are_the_first_callers_alone(world: World) -> None:
    world.upstream.reply = lambda: whole(completion(), set_cookie="a=b", x_request_id="r", openai_model="llava-7b")
    first, second = await world.ask(CHAT), await world.ask(CHAT)
    assert (b"set-cookie", b"a=b") in first.headers
    assert second.headers == [(b"content-type", b"application/json"), (b"openai-model", b"llava-7b")]


BAD: dict[str, Any] = {
    "truncated": completion(ended="length"),
    "content-filter": completion(ended="content_filter"),
    "unfinished": completion(ended="abort"),
    "error": {"error": {"message": "no"}},
    "choices-missing": completion(choices=[]),
    "malformed-answer": ["no"],
    "refusal": completion(
        choices=[{"index": 0, "message": {"content": None, "refusal": "I will not"}, "finish_reason": "stop"}]
    ),
    "audio-output": completion(
        choices=[{"index": 0, "message": {"content": None, "audio": {"id": "a"}}, "finish_reason": "stop"}]
    ),
}


@pytest.mark.parametrize("why", BAD)
async def test_what_is_not_whole_is_given_and_not_kept(world: World, why: str) -> None:
    world.upstream.reply = lambda: whole(BAD[why])
    answered = await world.ask(CHAT)
    assert answered.body == json.dumps(BAD[why]).encode()
    assert answered.verdict.details["kept"] == why
    assert (await world.read(CHAT))[0].startswith("miss")
    assert world.upstream.calls == 2


async def test_what_a_filter_touched_is_not_kept(world: World) -> None:
    results = {"hate": {"filtered": True, "severity": "high"}}
    choice = completion()["choices"][0] | {"content_filter_results": results}
    world.upstream.reply = lambda: whole(completion(choices=[choice]))
    assert (await world.ask(CHAT)).verdict.details["kept"] == "content-filter"


async def test_an_upstream_may_forbid_it(world: World) -> None:
    world.upstream.reply = lambda: whole(completion(), cache_control="private, No-Store")
    assert (await world.ask(CHAT)).verdict.details["kept"] == "upstream-no-store"
    assert (await world.read(CHAT))[0] == "miss absent"


@pytest.mark.parametrize("status", [400, 401, 429, 500, 503])
async def test_errors_go_through_and_are_not_kept(world: World, status: int) -> None:
    world.upstream.reply = lambda: whole({"error": {"message": "no"}}, status=status)
    answered = await world.ask(CHAT)
    assert answered.status == status
    world.upstream.reply = lambda: whole(completion())
    assert (await world.read(CHAT))[0] == "miss absent"


async def test_n_choices_must_all_be_there(world: World) -> None:
    asked = CHAT | {"n": 2}
    choice = completion()["choices"][0]
    world.upstream.reply = lambda: whole(completion(choices=[choice]))
    assert (await world.ask(asked)).verdict.details["kept"] == "choices-missing"
    world.upstream.reply = lambda: whole(completion(choices=[choice | {"index": 1}, choice]))
    await world.read(asked)
    assert (await world.read(asked))[0] == "hit"


# Who asks at the same time -----------------------------------------------------------------------------------------


async def test_a_crowd_causes_one_call(world: World) -> None:
    gate = asyncio.Event()
    world.upstream.reply = lambda: whole(completion(), gate)
    asking = [asyncio.ensure_future(world.ask(CHAT)) for _ in range(20)]
    await settled()
    gate.set()
    answers = await asyncio.gather(*asking)
    assert world.upstream.calls == 1
    assert len({bytes(answered.body) for answered in answers}) == 1  # type: ignore[arg-type]
    told = sorted((answered.verdict.outcome, str(answered.verdict.reason)) for answered in answers)
    assert told == [("hit", "joined")] * 19 + [("miss", "absent")]


async def test_the_first_caller_may_go(world: World) -> None:
    gate = asyncio.Event()
    world.upstream.reply = lambda: whole(completion(), gate)
    first, second = (asyncio.ensure_future(world.ask(CHAT)) for _ in range(2))
    await settled()
    first.cancel()
    await settled()
    gate.set()
    assert (await second).verdict.reason == "joined"
    assert world.upstream.calls == 1
    await world.idle()
    assert (await world.read(CHAT))[0] == "hit"


async def test_when_all_have_gone_the_call_is_cancelled_and_nothing_kept(world: World) -> None:
    gate = asyncio.Event()
    world.upstream.reply = lambda: whole(completion(), gate)
    asking = [asyncio.ensure_future(world.ask(CHAT)) for _ in range(3)]
    await settled()
    for one in asking:
        one.cancel()
    await settled()
    assert world.upstream.replies[0].closed
    gate.set()
    await settled()
    world.upstream.reply = lambda: whole(completion("Another."))
    outcome, body = await world.read(CHAT)
    assert outcome == "miss absent"
    assert b"Another." in body


async def test_all_hear_that_the_upstream_broke_off(world: World) -> None:
    gate = asyncio.Event()

    def broken() -> Any:
        reply = whole(completion(), gate)
        reply.pieces.append(UpstreamError("broke off"))
        return reply

    world.upstream.reply = broken
    asking = [asyncio.ensure_future(world.ask(CHAT)) for _ in range(3)]
    await settled()
    gate.set()
    found = await asyncio.gather(*asking, return_exceptions=True)
    assert all(isinstance(one, UpstreamError) for one in found)
    world.upstream.reply = lambda: whole(completion())
    assert (await world.read(CHAT))[0] == "miss absent"


async def test_an_error_is_shared_by_who_asked_meanwhile(world: World) -> None:
    gate = asyncio.Event()
    world.upstream.reply = lambda: whole({"error": {}}, gate, status=503, retry_after="3", x_request_id="r")
    asking = [asyncio.ensure_future(world.ask(CHAT)) for _ in range(2)]
    await settled()
    gate.set()
    first, second = await asyncio.gather(*asking)
    assert first.status == second.status == 503
    assert world.upstream.calls == 1
    assert second.verdict.outcome == "miss"
    assert sorted(second.headers) == [(b"content-type", b"application/json"), (b"retry-after", b"3")]


@pytest.mark.parametrize("status", [401, 402, 403, 404, 429])
async def test_what_was_meant_for_one_key_is_told_to_no_other(world: World, status: int) -> None:
    gate = asyncio.Event()
    world.upstream.reply = lambda: whole({"error": {}}, gate, status=status)
    asking = [asyncio.ensure_future(world.ask(CHAT)) for _ in range(2)]
    await settled()
    world.upstream.reply = lambda: whole(completion())
    gate.set()
    first, second = await asyncio.gather(*asking)
    assert (first.status, second.status) == (status, 200)
    assert second.verdict.outcome == "miss"


# What the request says ---------------------------------------------------------------------------------------------


async def test_directives(world: World) -> None:
    assert (await world.ask(CHAT, only_if_cached=True)).status == 504
    await world.read(CHAT)
    assert (await world.read(CHAT, only_if_cached=True))[0] == "hit"
    with pytest.raises(BypassedError, match="no-store"):
        await world.ask(CHAT, no_store=True)
    world.clock.advance(10)
    assert (await world.ask(CHAT, max_age=11.0)).verdict.age_seconds == 10.0
    world.upstream.reply = lambda: whole(completion("Newer."))
    outcome, body = await world.read(CHAT, max_age=9.0)
    assert (outcome, b"Newer." in body) == ("miss expired", True)
    outcome, body = await world.read(CHAT)
    assert (outcome, b"Newer." in body) == ("hit", True)
    world.upstream.reply = lambda: whole(completion("Newest."))
    assert (await world.read(CHAT, no_cache=True))[0] == "miss bypassed"
    outcome, body = await world.read(CHAT)
    assert (outcome, b"Newest." in body) == ("hit", True)


async def test_a_lifetime_of_the_route(world: World) -> None:
    rules = RouteRules(ttl_seconds=5)
    await world.read(CHAT, rules=rules)
    world.clock.advance(4)
    assert (await world.read(CHAT, rules=rules))[0] == "hit"
    world.clock.advance(2)
    assert (await world.read(CHAT, rules=rules))[0] == "miss expired"


async def test_shadow_serves_nothing_and_compares(world: World) -> None:
    shadow = RouteRules(mode="shadow")
    assert (await world.read(CHAT, rules=shadow))[0] == "miss shadow"
    world.upstream.reply = lambda: whole(completion(id="chatcmpl-2", created=99))
    answered = await world.ask(CHAT, rules=shadow)
    assert (answered.verdict.outcome, answered.verdict.details["same"]) == ("miss", "yes")
    world.upstream.reply = lambda: whole(completion("A dog."))
    answered = await world.ask(CHAT, rules=shadow)
    assert answered.verdict.details["same"] == "no"
    assert world.compared == [True, False]
    assert world.upstream.calls == 3
    await world.idle()
    assert b"A dog." in (await world.read(CHAT))[1]  # the new one took its place


async def test_a_share_of_hits_is_checked() -> None:
    world = World(ROUTES["POST", PATH], PATH, lambda: whole(completion()), verify_share=1.0)
    with world.cache:
        for _ in range(3):
            await world.read(CHAT)
    assert world.compared == [True, True]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"temperature": 0.1}, "not-deterministic"),
        ({"temperature": None}, "not-deterministic"),
        ({"frobnicate": 1}, "unknown-field"),
        ({"messages": []}, "malformed"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "unknown-part",
        ),
        ({"stop": "\ud800"}, "unreadable"),
    ],
)
async def test_what_is_not_understood_is_left_to_the_upstream(
    world: World, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(BypassedError, match=reason):
        await world.ask(CHAT | changes)


async def test_a_name_given_twice_is_not_read(world: World) -> None:
    body = json.dumps(CHAT)[:-1] + ', "model": "other"}'
    with pytest.raises(BypassedError, match="unreadable"):
        await world.ask(body.encode())


async def test_only_json(world: World) -> None:
    asked = replace(world.asked(CHAT), headers=[(b"content-type", b"text/plain")])
    with pytest.raises(BypassedError, match="content-type"):
        await world.route(asked, world.proxy)


async def test_a_cache_that_is_closed_costs_no_answer(world: World) -> None:
    await world.read(CHAT)
    world.cache.close()
    try:
        _, body = await world.read(CHAT)
    except ProxyError:
        pytest.fail("a cache's failure reached the caller")
    assert json.loads(body) == completion()


async def test_one_answer_for_all_processes(tmp_path: Any) -> None:
    """What one process stores, another finds, after a restart too."""
    one = World(ROUTES["POST", PATH], PATH, lambda: whole(completion()), root=tmp_path)
    with one.cache:
        await one.read(CHAT)
    other = World(ROUTES["POST", PATH], PATH, lambda: whole(completion("Another.")), root=tmp_path)
    with other.cache:
        outcome, body = await other.read(CHAT)
    assert (outcome, json.loads(body)) == ("hit", completion())


async def test_processes_share_one_call(tmp_path: Any) -> None:
    """Two caches on one folder, as two processes have them."""
    gate = asyncio.Event()
    one, other = (
        World(ROUTES["POST", PATH], PATH, lambda: whole(completion(), gate), root=tmp_path, secret=b"s" * 32)
        for _ in range(2)
    )
    with one.cache, other.cache:
        first = asyncio.ensure_future(one.read(CHAT))
        while not one.upstream.calls:
            await asyncio.sleep(0)
        second = asyncio.ensure_future(other.read(CHAT))
        while "mmcache.server.calls" not in other.proxy.kept:
            await asyncio.sleep(0)
        gate.set()
        assert (await first)[0] == "miss absent"
        assert (await second)[0] == "hit"
    assert (one.upstream.calls, other.upstream.calls) == (1, 0)


async def test_who_is_gone_frees_the_others(tmp_path: Any) -> None:
    gate = asyncio.Event()
    one, other = (
        World(ROUTES["POST", PATH], PATH, lambda: whole(completion(), gate), root=tmp_path, secret=b"s" * 32)
        for _ in range(2)
    )
    with one.cache, other.cache:
        first = asyncio.ensure_future(one.read(CHAT))
        while not one.upstream.calls:
            await asyncio.sleep(0)
        second = asyncio.ensure_future(other.read(CHAT))
        while "mmcache.server.calls" not in other.proxy.kept:
            await asyncio.sleep(0)
        first.cancel()
        gate.set()
        assert (await second)[0] == "miss absent"
    assert other.upstream.calls == 1


@pytest.mark.parametrize("calls", [7, [7], {"a": 1}, [{"function": 7}], None])
async def test_odd_answers_are_compared_too(world: World, calls: Any) -> None:
    choice = {"index": 0, "message": {"content": 5, "tool_calls": calls}, "finish_reason": "stop"}
    world.upstream.reply = lambda: whole(completion(choices=[choice]))
    for _ in range(2):
        assert (await world.ask(CHAT, rules=RouteRules(mode="shadow"))).status == 200
        await world.idle()
    assert world.compared == [True]


def test_judged_by_what_they_say() -> None:
    def stored(answer: Any) -> bytes:
        return Stored(1, 0.0, 1.0, 7, [], json.dumps(answer).encode()).to_bytes()

    one = stored(completion())
    assert judge(one, stored(completion(id="other", created=5))) is True
    assert judge(one, stored(completion("A dog."))) is False
    assert judge(one, b"nonsense") is None
