"""Answers that look whole and are not, and what is stored but cannot be read."""

from __future__ import annotations

import tempfile
from typing import Any, cast

import pytest
from tests.unit.server.chat_world import CHAT, DONE, Scripted, World, chunk, completion, events, stream, whole

from mmcache import Cache
from mmcache.model.errors import ProxyError
from mmcache.server.answers_stored import filtered, is_whole
from mmcache.server.chat import PATH, ROUTES
from mmcache.server.config import RouteRules, ServerSettings
from mmcache.server.exchange import Proxy
from mmcache.server.meant import semantic_for
from mmcache.server.responses import flaw as flaw_of_response
from mmcache.server.reuse import Reuse
from mmcache.server.shelf import signed

ROUTE = cast(Reuse, ROUTES["POST", PATH])
STREAM = CHAT | {"stream": True}


def called(arguments: Any, *, legacy: bool = False) -> dict[str, Any]:
    function = {"name": "look", "arguments": arguments}
    call = {"index": 0, "id": "c1", "type": "function", "function": function}
    return {"function_call": function} if legacy else {"tool_calls": [call]}


def answer(message: dict[str, Any], ended: str = "tool_calls", spent: int = 2, **choice: Any) -> dict[str, Any]:
    told = completion("", ended)
    told["choices"][0]["message"] |= message
    told["choices"][0] |= choice
    told["usage"]["completion_tokens"] = spent
    return told


async def kept(world: World, request: dict[str, Any]) -> bool:
    """Whether the second who asks gets what the first got."""
    assert (await world.read(request))[0] == "miss absent"
    return (await world.read(request))[0] == "hit"


def told(answer: Any) -> World:
    return World(ROUTE, PATH, lambda: whole(answer))


def streamed(*pieces: bytes) -> World:
    return World(ROUTE, PATH, lambda: events(pieces))


@pytest.mark.parametrize("arguments", ['{"a": 1}', "{}", "[]"])
async def test_calls_whose_arguments_are_whole(arguments: str) -> None:
    assert await kept(told(answer(called(arguments))), CHAT)
    assert await kept(told(answer(called(arguments, legacy=True), "function_call")), CHAT)
    pieces = [chunk(called(part)) for part in (arguments[:1], arguments[1:])]
    assert await kept(streamed(*pieces, chunk({}, "tool_calls"), DONE), STREAM)


@pytest.mark.parametrize("arguments", ['{"a": ', "", '{"a": 1}}', '{"a": NaN}', "[" * 100_000, "\ud800", None, 7])
def test_arguments_that_are_not(arguments: Any) -> None:
    assert not is_whole({"arguments": arguments})


@pytest.mark.parametrize("legacy", [False, True])
async def test_a_call_cut_off_within_its_arguments(legacy: bool) -> None:
    """vLLM says `tool_calls` of it, not `length`."""
    cut = called('{"a": ', legacy=legacy)
    assert not await kept(told(answer(cut)), CHAT)
    assert not await kept(streamed(chunk(cut), chunk({}, "tool_calls"), DONE), STREAM)
    item = {"type": "function_call", "status": "completed", "name": "look", "arguments": '{"a": '}
    assert flaw_of_response({"status": "completed", "output": [item]}) == "truncated"


async def test_calls_that_took_all_tokens_may_not_be_all() -> None:
    limited = CHAT | {"max_tokens": 9, "max_completion_tokens": 5}
    assert not await kept(told(answer(called("{}"), spent=5)), limited)
    assert await kept(told(answer(called("{}"), spent=4)), limited)
    assert await kept(told(answer({"content": "A cat."}, "stop", spent=5)), limited), "it says that it ended by itself"
    usage = chunk(None, usage={"completion_tokens": 5, "total_tokens": 9})
    pieces = [chunk(called("{}")), chunk({}, "tool_calls"), usage, DONE]
    assert not await kept(streamed(*pieces), limited | {"stream": True})
    assert await kept(streamed(*pieces), STREAM)


async def test_a_choice_with_an_error() -> None:
    assert not await kept(told(answer({}, "stop", error={"code": 502})), CHAT)
    choice = {"index": 0, "delta": {}, "finish_reason": "stop", "error": {"code": 502}}
    assert not await kept(streamed(chunk(None, choices=[choice]), DONE), STREAM)


@pytest.mark.parametrize("name", ["annotations", "citations", "search_results"])
async def test_what_rests_on_the_web(name: str) -> None:
    cited: dict[str, Any] = {name: [{"type": "url_citation"}]}
    assert not await kept(told(answer(cited, "stop")), CHAT)
    assert not await kept(told(completion() | cited), CHAT)
    assert not await kept(streamed(chunk(cited), *stream("A cat.")), STREAM)
    assert not await kept(streamed(chunk({}, None, **cited), *stream("A cat.")), STREAM)
    assert await kept(told(answer({name: []}, "stop")), CHAT)
    part = {"type": "output_text", "text": "x"} | cited
    message = {"type": "message", "status": "completed", "content": [part]}
    assert flaw_of_response({"status": "completed", "output": [message]}) == "web-search"


async def test_an_end_is_the_end() -> None:
    begun = chunk({"content": "A"})
    assert not await kept(streamed(begun, chunk({}, "length"), chunk({}, "stop"), DONE), STREAM)
    assert not await kept(streamed(begun, chunk({}, "stop"), chunk({"content": "B"}), DONE), STREAM)
    assert not await kept(streamed(begun, chunk({}, "stop"), chunk(called("{}")), DONE), STREAM)
    assert await kept(streamed(begun, chunk({}, "stop"), chunk({"content": ""}, "stop"), DONE), STREAM)


async def test_no_answer_is_too_deep() -> None:
    deep = "{" + '"a":{' * 500 + "}" * 501
    body = '{"choices":[{"index":0,"finish_reason":"stop","message":{"content":"x"}}],"prompt_filter_results":' + deep
    assert not await kept(World(ROUTE, PATH, lambda: Scripted([body.encode() + b"}"])), CHAT)
    assert not await kept(streamed(b"data: " + body.encode() + b"}\n\n", DONE), STREAM)
    assert not filtered({"hate": {"filtered": False}})
    assert filtered([{"a": {"b": {"filtered": True}}}])


async def test_a_stream_cut_anywhere_is_not_kept() -> None:
    body = b"".join(stream("A", " cat."))
    for end in range(len(body)):
        assert not await kept(streamed(body[:end]), STREAM), end
    assert await kept(streamed(body), STREAM)


@pytest.mark.parametrize("form", [CHAT, STREAM])
@pytest.mark.parametrize("stored", [b"of another version", "a string", 7])
@pytest.mark.parametrize("disk", [False, True])
async def test_what_cannot_be_read_is_replaced(form: dict[str, Any], stored: Any, disk: bool) -> None:
    with tempfile.TemporaryDirectory() as folder, Cache(folder if disk else None, memory="16MiB") as cache:
        world = streamed(*stream("A cat.")) if "stream" in form else told(completion())
        world.cache, world.proxy = cache, Proxy(cache, world.upstream, world.settings)
        wanted = await ROUTE._wanted(world.asked(form), world.proxy)
        cache.put(wanted.key, stored)
        assert [(await world.read(form))[0] for _ in range(2)] == ["miss corrupt", "hit"]


def part(address: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": address}}


@pytest.mark.parametrize("medium", [
    part("data:image/png;base64,AAAA"), part("data:image/svg+xml;base64,PHN2Zy8+"),
    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
])  # fmt: skip
async def test_by_meaning_or_not_what_cannot_be_decoded_is_the_upstreams_business(medium: dict[str, Any]) -> None:
    rules = RouteRules(semantic_max_error=0.1)
    settings = ServerSettings("http://upstream", routes={PATH: rules})
    world = World(ROUTE, PATH, lambda: whole(completion()), semantic=semantic_for(settings))
    request = CHAT | {"messages": [{"role": "user", "content": [{"type": "text", "text": "What?"}, medium]}]}
    with pytest.raises(ProxyError, match="not stored"):
        await world.ask(request, rules=rules, only_if_cached=True)
    assert (await world.read(request, rules=rules, no_cache=True))[0].startswith("miss")
    assert (await world.read(request, rules=rules))[0] == "hit"
    assert (await world.read(request, rules=rules, tenant="another"))[0].startswith("miss")


async def test_by_meaning_a_closed_cache_costs_no_answer() -> None:
    rules = RouteRules(semantic_max_error=0.1)
    settings = ServerSettings("http://upstream", routes={PATH: rules})
    world = World(ROUTE, PATH, lambda: whole(completion()), semantic=semantic_for(settings))
    world.cache.close()
    assert (await world.read(CHAT, rules=rules))[0].startswith("miss")


async def test_no_password_of_the_upstream_is_signed() -> None:
    signature = signed(ServerSettings("https://ann:secret@upstream/v1"), PATH, "json")
    assert "secret" not in repr(signature)
    assert signature == signed(ServerSettings("https://upstream/v1"), PATH, "json")
    assert signature != signed(ServerSettings("https://another/v1"), PATH, "json")
