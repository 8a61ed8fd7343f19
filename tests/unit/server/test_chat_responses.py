"""`/v1/responses`: whole answers and typed events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.server.chat_world import DONE, World, body_of, events, settled, whole

from mmcache.server.config import RouteRules
from mmcache.server.responses import PATH, ROUTES

ASKED: dict[str, Any] = {"model": "llava", "temperature": 0, "store": False, "input": "What animal is it?"}
STREAMED = ASKED | {"stream": True}


def response(text: str = "A cat.", **changes: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
    usage = {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}
    head = {"id": "resp_1", "object": "response", "created_at": 17, "model": "llava", "status": "completed"}
    return head | {"error": None, "incomplete_details": None, "output": [item], "usage": usage} | changes


def event(kind: str, number: int, **fields: Any) -> bytes:
    told = {"type": kind, "sequence_number": number} | fields
    return f"event: {kind}\ndata: {json.dumps(told)}\n\n".encode()


TOLD = [
    event("response.created", 0, response=response(status="in_progress", output=[])),
    event("response.output_text.delta", 1, item_id="msg_1", delta="A "),
    event("response.output_text.delta", 2, item_id="msg_1", delta="cat."),
    event("response.completed", 3, response=response()),
]


@pytest.fixture
def world() -> Iterator[World]:
    made = World(ROUTES["POST", PATH], PATH, lambda: whole(response()))
    with made.cache:
        yield made


async def test_whole_answers(world: World) -> None:
    first, second = await world.ask(ASKED), await world.ask(ASKED)
    assert (first.verdict.outcome, second.verdict.outcome) == ("miss", "hit")
    assert first.body == second.body
    assert second.verdict.saved_tokens == 7


BAD: dict[str, dict[str, Any]] = {
    "error": {"status": "failed", "error": {"code": "server_error"}},
    "truncated": {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
    "unfinished": {"status": "queued"},
    "malformed-answer": {"output": []},
    "unknown-item": {"output": [{"type": "web_search_call", "status": "completed"}]},
    "refusal": {"output": [{"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}]},
}


@pytest.mark.parametrize("why", BAD)
async def test_what_is_not_whole(world: World, why: str) -> None:
    world.upstream.reply = lambda: whole(response(**BAD[why]))
    assert (await world.ask(ASKED)).verdict.details["kept"] == why
    assert (await world.ask(ASKED)).verdict.outcome == "miss"


@pytest.mark.parametrize("last", [[], [DONE]])
async def test_streams_are_given_again_event_by_event(world: World, last: list[bytes]) -> None:
    world.upstream.reply = lambda: events(TOLD + last)
    assert await body_of(await world.ask(STREAMED)) == b"".join(TOLD + last)
    await settled()
    second = await world.ask(STREAMED)
    assert (second.verdict.outcome, second.verdict.saved_tokens) == ("hit", 7)
    assert [piece async for piece in second.body] == TOLD + last  # type: ignore[union-attr]


NOT_WHOLE: dict[str, list[bytes]] = {
    "not completed": TOLD[:-1],
    "failed": [*TOLD[:-1], event("response.failed", 3, response=response(status="failed"))],
    "incomplete": [*TOLD[:-1], event("response.incomplete", 3, response=response(status="incomplete"))],
    "an error": [*TOLD[:-1], event("error", 3, message="no"), TOLD[-1]],
    "out of order": [TOLD[0], TOLD[2], TOLD[1], TOLD[3]],
    "more after the end": [*TOLD, event("response.output_text.delta", 4, delta="!")],
    "an end that is none": [*TOLD[:-1], event("response.completed", 3, response=response(status="queued"))],
    "an end that says nothing": [*TOLD[:-1], event("response.completed", 3)],
    "no type": [b"data: {}\n\n", *TOLD],
    "no JSON": [b"data: {\n\n", *TOLD],
}


@pytest.mark.parametrize("case", NOT_WHOLE)
async def test_streams_that_are_not_whole(world: World, case: str) -> None:
    world.upstream.reply = lambda: events(NOT_WHOLE[case])
    assert await body_of(await world.ask(STREAMED)) == b"".join(NOT_WHOLE[case])
    await settled()
    assert (await world.ask(STREAMED)).verdict.outcome == "miss"


async def test_shadow(world: World) -> None:
    shadow = RouteRules(mode="shadow")
    for text in ("A cat.", "A cat.", "A dog."):
        world.upstream.reply = lambda text=text: whole(response(text))  # type: ignore[misc]
        await world.ask(ASKED, rules=shadow)
        await world.idle()
    assert world.compared == [True, False]
