"""Streams: recorded once, given again event by event; who comes, who goes, and what is not kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.chat_world import CHAT, DONE, World, chunk, completion, events, settled, stream, whole

from mmcache.model.errors import UpstreamError
from mmcache.server.answers_stored import events_of
from mmcache.server.calls import Feed, Room
from mmcache.server.chat import PATH, ROUTES
from mmcache.server.config import RouteRules
from mmcache.server.exchange import Answered
from mmcache.server.recording import ChatRecorder, Event, Events

ASKED = CHAT | {"stream": True}
TOLD = stream("A ", "cat", ".")
USAGE = chunk(None, usage={"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7})


@pytest.fixture
def world() -> Iterator[World]:
    made = World(ROUTES["POST", PATH], PATH, lambda: events(TOLD))
    with made.cache:
        yield made


def body(answered: Answered) -> Any:
    assert not isinstance(answered.body, bytes)
    return answered.body


async def pieces(answered: Answered) -> list[bytes]:
    return [piece async for piece in body(answered)]


async def test_replayed_event_by_event(world: World) -> None:
    first = await world.ask(ASKED)
    assert first.verdict.outcome == "miss"
    assert (b"x-request-id", b"r1") in first.headers
    assert await pieces(first) == TOLD
    await settled()
    second = await world.ask(ASKED)
    assert second.verdict.outcome == "hit"
    assert second.headers == [(b"content-type", b"text/event-stream")]
    assert await pieces(second) == TOLD
    assert world.upstream.calls == 1


async def test_a_stream_is_no_whole_answer(world: World) -> None:
    await world.read(ASKED)
    await settled()
    world.upstream.reply = lambda: whole({})
    assert (await world.read(CHAT))[0] == "miss absent"


async def test_usage_is_told_only_to_who_asked_for_it(world: World) -> None:
    await world.read(ASKED)
    await settled()
    with_usage = ASKED | {"stream_options": {"include_usage": True}}
    assert (await world.ask(with_usage)).verdict.outcome == "miss"  # and this one has none: not kept
    await settled()
    world.upstream.reply = lambda: events([*TOLD[:-1], USAGE, DONE])
    await world.read(with_usage)
    await settled()
    answered = await world.ask(with_usage)
    assert (answered.verdict.outcome, answered.verdict.saved_tokens) == ("hit", 7)
    assert (await world.ask(ASKED | {"stream_options": {"include_usage": False}})).verdict.outcome == "hit"


async def test_keep_alives_are_passed_on_and_not_recorded(world: World) -> None:
    world.upstream.reply = lambda: events([b": ping\n\n", *TOLD[:2], b": ping\r\n\r\n", *TOLD[2:]])
    assert (await world.read(ASKED))[1].count(b": ping\n\n") == 2
    await settled()
    assert await pieces(await world.ask(ASKED)) == TOLD


async def test_joined_from_its_beginning(world: World) -> None:
    gate = asyncio.Event()
    world.upstream.reply = lambda: events([*TOLD[:3], gate, *TOLD[3:]])
    first = await world.ask(ASKED)
    await settled()
    second = await world.ask(ASKED)
    assert (second.verdict.outcome, second.verdict.reason, second.model) == ("hit", "joined", "llava")
    assert (b"x-request-id", b"r1") not in second.headers
    early = [await anext(body(second)) for _ in range(3)]
    gate.set()
    assert early + await pieces(second) == await pieces(first) == TOLD
    assert world.upstream.calls == 1


async def test_the_first_reader_may_go(world: World) -> None:
    gate = asyncio.Event()
    world.upstream.reply = lambda: events([*TOLD[:2], gate, *TOLD[2:]])
    first, second = await world.ask(ASKED), await world.ask(ASKED)
    await body(first).aclose()
    gate.set()
    assert await pieces(second) == TOLD
    await settled()
    assert (await world.read(ASKED))[0] == "hit"


async def test_when_all_have_gone_it_is_cut_and_nothing_kept(world: World) -> None:
    gate = asyncio.Event()
    world.upstream.reply = lambda: events([*TOLD[:2], gate, *TOLD[2:]])
    readers = [await world.ask(ASKED) for _ in range(3)]
    for one in readers:
        await body(one).aclose()
        await body(one).aclose()
    await settled()
    assert world.upstream.replies[0].closed
    gate.set()
    assert (await world.read(ASKED))[0] == "miss absent"
    assert world.upstream.calls == 2


async def test_who_goes_before_the_head_has_come(world: World) -> None:
    gate = asyncio.Event()

    class Late:
        async def send(self, *_: Any) -> Any:
            await gate.wait()
            raise AssertionError("nobody waited")

    world.proxy = replace(world.proxy, upstream=Late())  # type: ignore[arg-type]
    asking = asyncio.ensure_future(world.ask(ASKED))
    await settled()
    asking.cancel()
    await settled()
    gate.set()
    await settled()
    await world.idle()
    assert not world.proxy.kept["mmcache.server.calls"]._under_way


async def test_at_the_end_what_is_whole_is_stored_and_the_rest_given_up(world: World) -> None:
    gate = asyncio.Event()
    world.upstream.reply = lambda: events([*TOLD[:2], gate, *TOLD[2:]])
    reader = await world.ask(ASKED)
    await settled()
    for close in world.proxy.closers:
        await close()
    assert world.upstream.replies[0].closed
    assert await anext(body(reader)) == TOLD[0]
    assert await anext(body(reader)) == TOLD[1]
    with pytest.raises(UpstreamError, match="given up"):
        await anext(body(reader))


async def test_readers_keep_their_own_pace(world: World) -> None:
    slow, fast = await world.ask(ASKED), await world.ask(ASKED)
    assert await anext(body(slow)) == TOLD[0]
    assert await pieces(fast) == TOLD
    assert await pieces(slow) == TOLD[1:]


async def test_all_hear_that_it_broke_off(world: World) -> None:
    gate = asyncio.Event()
    world.upstream.reply = lambda: events([*TOLD[:2], gate, UpstreamError("broke off")])
    readers = [await world.ask(ASKED) for _ in range(2)]
    gate.set()
    for one in readers:
        assert await anext(body(one)) == TOLD[0]
        assert await anext(body(one)) == TOLD[1]
        with pytest.raises(UpstreamError, match="broke off"):
            await anext(body(one))
    await settled()
    world.upstream.reply = lambda: events(TOLD)
    assert (await world.read(ASKED))[0] == "miss absent"


ERROR = b'data: {"error": {"message": "out of memory"}}\n\n'
NOT_WHOLE: dict[str, list[bytes]] = {
    "no [DONE]": TOLD[:-1],
    "no end": [*TOLD[:-2], DONE],
    "half an event": [*TOLD[:-1], b"data: [DONE]\n"],
    "nothing": [],
    "length": stream("A", ended="length"),
    "content_filter": stream("A", ended="content_filter"),
    "abort": stream("A", ended="abort"),
    "an error": [*TOLD[:2], ERROR, DONE],
    "an error event": [*TOLD[:-1], b"event: error\ndata: {}\n\n", DONE],
    "more after [DONE]": [*TOLD, TOLD[1]],
    "no JSON": [TOLD[0], b"data: {nope\n\n", *TOLD[1:]],
    "a refusal": [chunk({"refusal": "I will not"}), *TOLD],
    "spoken": [chunk({"audio": {"id": "a"}}), *TOLD],
    "a second choice that does not end": [TOLD[0].replace(b'"index": 0', b'"index": 1'), *TOLD],
    "filtered": [
        TOLD[1].replace(b'"index": 0', b'"content_filter_results": {"hate": {"filtered": true}}, "index": 0'),
        *TOLD,
    ],
    "a filtered prompt": [
        chunk(None, prompt_filter_results=[{"content_filter_results": {"jailbreak": {"filtered": True}}}]),
        *TOLD,
    ],
    "nonsense": [b'data: {"choices": [{"index": 0, "delta": {"tool_calls": [7]}}]}\n\n', *TOLD],
}


@pytest.mark.parametrize("case", NOT_WHOLE)
async def test_half_answers_are_given_and_not_kept(world: World, case: str) -> None:
    world.upstream.reply = lambda: events(NOT_WHOLE[case])
    assert (await world.read(ASKED))[1] == b"".join(NOT_WHOLE[case])
    await settled()
    world.upstream.reply = lambda: events(TOLD)
    assert (await world.read(ASKED))[0] == "miss absent"


async def test_an_error_instead_of_a_stream(world: World) -> None:
    world.upstream.reply = lambda: whole({"error": {}}, status=503)
    answered = await world.ask(ASKED)
    assert (answered.status, answered.body) == (503, b'{"error": {}}')
    world.upstream.reply = lambda: whole({"choices": []})
    assert (await world.ask(ASKED)).verdict.details["kept"] == "no-stream"


async def test_tools_called_in_pieces_are_whole(world: World) -> None:
    calls = [
        chunk({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "look", "arguments": ""}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"at":'}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}),
        chunk({}, "tool_calls"),
        DONE,
    ]
    world.upstream.reply = lambda: events(calls)
    await world.read(ASKED)
    await settled()
    assert await pieces(await world.ask(ASKED)) == calls


async def test_no_cache_takes_the_place_of_what_is_stored(world: World) -> None:
    await world.read(ASKED)
    world.upstream.reply = lambda: events(stream("New."))
    assert (await world.read(ASKED, no_cache=True))[0] == "miss bypassed"
    await settled()
    outcome, told = await world.read(ASKED)
    assert (outcome, b"New." in told) == ("hit", True)


async def test_shadow_compares_what_was_said_in_other_pieces(world: World) -> None:
    await world.read(ASKED)
    await settled()
    shadow = RouteRules(mode="shadow")
    world.upstream.reply = lambda: events(stream("A c", "at."))
    assert (await world.read(ASKED, rules=shadow))[0] == "miss shadow"
    await settled()
    world.upstream.reply = lambda: events(stream("A dog."))
    await world.read(ASKED, rules=shadow)
    await settled()
    assert world.compared == [True, False]


async def test_a_disk_keeps_streams(tmp_path: Any) -> None:
    for outcome in "miss", "hit":
        world = World(ROUTES["POST", PATH], PATH, lambda: events(TOLD), root=tmp_path)
        with world.cache:
            answered = await world.ask(ASKED)
            assert answered.verdict.outcome == outcome
            assert await pieces(answered) == TOLD
            await world.idle()


# Feeds -------------------------------------------------------------------------------------------------------------


async def test_a_feed_is_bounded() -> None:
    feed = Feed(largest_bytes=10, ahead_bytes=4)
    left: list[str] = []
    slow, fast = feed.reader(lambda: left.append("slow")), feed.reader(lambda: left.append("fast"))
    for number in range(6):
        feed.push(b"%d234" % number)
        assert await anext(fast) == b"%d234" % number
    assert not feed.whole
    with pytest.raises(UpstreamError, match="too slow"):
        await anext(slow)
    with pytest.raises(UpstreamError, match="too slow"):
        await anext(feed.reader(lambda: None))
    feed.end()
    with pytest.raises(StopAsyncIteration):
        await anext(fast)
    assert left == ["slow", "fast"]


async def test_all_feeds_together_are_bounded() -> None:
    room = Room(most=10)
    one, other = Feed(room), Feed(room)
    reader = one.reader(lambda: None)
    one.push(b"123456")
    other.push(b"123456")  # nobody reads it: let go
    assert (one.whole, other.whole, room.held) == (True, False, 6)
    one.push(b"123456")  # unread as yet: kept
    assert (one.whole, room.held) == (True, 12)
    assert [await anext(reader), await anext(reader)] == [b"123456"] * 2
    one.push(b"1")
    assert (one.whole, await anext(reader), room.held) == (False, b"1", 1)
    other.end()
    one.end()
    reader.close()
    assert room.held == 0


async def test_what_is_too_large_is_passed_on_and_not_kept(world: World) -> None:
    world.upstream.reply = lambda: events(stream(*["x" * (1 << 20)] * 17))
    assert len((await world.read(ASKED))[1]) > 17 << 20
    world.upstream.reply = lambda: events(TOLD)
    assert (await world.read(ASKED))[0] == "miss absent"


async def test_the_upstream_waits_for_the_fastest_reader_alone() -> None:
    feed = Feed(ahead_bytes=4)
    slow, fast = feed.reader(lambda: None), feed.reader(lambda: None)
    feed.push(b"12345")
    waiting = asyncio.ensure_future(feed.room())
    await settled()
    assert not waiting.done()
    await anext(fast)
    await settled()
    assert waiting.done()
    feed.push(b"12345")
    waiting = asyncio.ensure_future(feed.room())
    await settled()
    assert not waiting.done()
    fast.close()
    slow.close()
    await settled()
    assert waiting.done()


# Events ------------------------------------------------------------------------------------------------------------

_LINES = st.lists(
    st.sampled_from(
        [b"data: {}", b"data:x", b"data", b"data: \xc3\xa4\xf0\x9f\x90\xb1", b": ping", b":", b"event: error", b"id: 7",
         b"retry: 5", b"", b"", b"data: a: b"]
    ),
    max_size=12,
)  # fmt: skip


@given(_LINES, st.lists(st.sampled_from([b"\n", b"\r\n", b"\r"]), min_size=12, max_size=12), st.booleans(), st.data())
def test_wherever_it_is_cut_the_recording_is_the_same(
    lines: list[bytes], ends: list[bytes], marked: bool, data: st.DataObject
) -> None:
    body = b"\xef\xbb\xbf" * marked + b"".join(line + end for line, end in zip(lines, ends, strict=False))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=len(body))))
    at_once, in_pieces = Events(), Events()
    expected = at_once.feed(body)
    found: list[Event] = []
    for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True):
        found += in_pieces.feed(body[start:end])
    assert found == expected
    assert in_pieces.rest == at_once.rest
    told = [event.raw for event in expected if not event.comment]
    assert [*events_of(b"".join(told))] == told


def test_fields_of_an_event() -> None:
    found = Events().feed(b"event: error\r\ndata: a\rdata:b\n: note\nid: 7\n\n: ping\n\n\n\nretry: 3\n\n")
    assert found == [
        Event(b"event: error\ndata: a\ndata:b\nid: 7\n\n", "error", b"a\nb"),
        Event(b": ping\n\n", comment=True),
        Event(b"retry: 3\n\n"),
    ]


def test_an_event_that_does_not_end() -> None:
    with pytest.raises(UpstreamError):
        Events(largest_bytes=10).feed(b"data: 0123456789")


def test_n_choices_end_one_by_one() -> None:
    recorder = ChatRecorder(2, False)
    other = json.loads(TOLD[-2][6:])
    other["choices"][0]["index"] = 1
    for event in Events().feed(b"".join(TOLD[:-1])):
        recorder.see(event)
    assert recorder.flaw() == "unfinished"
    for event in Events().feed(b"data: " + json.dumps(other).encode() + b"\n\n" + DONE):
        recorder.see(event)
    assert recorder.flaw() == ""
    assert recorder.gist() == [[0, "A cat.", []], [1, "", []]]


@pytest.mark.parametrize("asked", [ASKED, CHAT], ids=["stream", "whole"])
async def test_what_was_asked_for_later_stands(world: World, asked: dict[str, Any]) -> None:
    gate = asyncio.Event()
    streams = asked is ASKED
    old, new = (events([*TOLD[:1], gate, *TOLD[1:]]), events(stream("New."))) if streams else (
        whole(completion("Old."), gate), whole(completion("New.")))  # fmt: skip
    world.upstream.reply = lambda: old
    slow = asyncio.create_task(world.read(asked, no_cache=True))
    await settled()
    world.upstream.reply = lambda: new
    first = asyncio.create_task(world.ask(asked, no_cache=True))
    await settled()
    if streams:
        await pieces(first.result())
    await settled()
    gate.set()
    await slow
    outcome, told = await world.read(asked)
    assert (outcome, b"New." in told, world.upstream.calls) == ("hit", True, 2)


async def test_what_was_invalidated_while_it_came_is_not_kept(world: World) -> None:
    gate = asyncio.Event()
    world.upstream.reply = lambda: events([*TOLD[:1], gate, *TOLD[1:]])
    answered = await world.ask(ASKED)
    wanted = await world.route._wanted(world.asked(ASKED), world.proxy)
    world.cache.invalidate(wanted.key)
    gate.set()
    assert await pieces(answered) == TOLD
    await world.idle()
    world.upstream.reply = lambda: events(TOLD)
    assert (await world.read(ASKED))[0] == "miss absent"
    assert (await world.read(ASKED))[0] == "hit"
