"""Chat through the whole proxy, over TCP, with OpenAI's own client."""

from __future__ import annotations

import asyncio
import base64
import http.client
import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

openai = pytest.importorskip("openai")
httpx = pytest.importorskip("httpx")
Image = pytest.importorskip("PIL.Image")

from tests.unit.server.chat_world import CHAT, completion, stream  # noqa: E402
from tests.unit.server.conftest import KEY  # noqa: E402
from tests.unit.server.test_chat_responses import ASKED as RESPONSE  # noqa: E402
from tests.unit.server.test_chat_responses import TOLD, response  # noqa: E402
from tests.unit.server.upstream import Asked, reply, run  # noqa: E402

from mmcache import Cache  # noqa: E402
from mmcache.server import chat, responses  # noqa: E402
from mmcache.server.asgi import Send, close  # noqa: E402

ROUTES = {**chat.ROUTES, **responses.ROUTES}


class Model:
    """Answers whole or in events; a gate holds a stream after its third event."""

    streams = True

    def __init__(self, whole: dict[str, Any], told: list[bytes]) -> None:
        self.whole, self.told = whole, told
        self.bodies: list[dict[str, Any]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.hung_up = threading.Event()

    async def __call__(self, asked: Asked, send: Send) -> None:
        self.bodies.append(json.loads(await asked.read()))
        if not self.bodies[-1].get("stream"):
            if not self.gate.is_set() and not await self._open(asked):
                self.hung_up.set()
                return None
            return await reply(send, 200, self.whole)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for number, event in enumerate(self.told):
            if number == 3 and not await self._open(asked):
                self.hung_up.set()
                return None
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        return None

    async def _open(self, asked: Asked) -> bool:
        """Wait for the gate; False when the proxy has hung up before."""
        opened = asyncio.ensure_future(asyncio.to_thread(self.gate.wait, 10))
        gone = asyncio.ensure_future(asked.receive())
        await asyncio.wait((opened, gone), return_when=asyncio.FIRST_COMPLETED)
        self.gate.set()
        gone.cancel()
        return opened.done()


@pytest.fixture
def model(upstream: Any) -> Model:
    app, _ = upstream
    app.models = ["llava"]
    made = Model(completion(), stream("A ", "cat", "."))
    app.on(chat.PATH, made)
    app.on(responses.PATH, Model(response(), TOLD))
    return made


@contextmanager
def client(address: str, key: str = "sk-one") -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{address}/v1", api_key=key, max_retries=0, http_client=httpx.Client()) as made:
        yield made


def picture(form: str, shade: int = 0) -> dict[str, Any]:
    """One part; equal pixels for equal shades, whatever the form."""
    image = Image.new("RGB", (8, 6), (200, shade, 40))
    image.putpixel((1, 2), (0, 0, 255))
    written = io.BytesIO()
    image.save(written, form)
    data = base64.b64encode(written.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/{form.lower()};base64,{data}"}}


def about(part: dict[str, Any], **changes: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": "What is it?"}, part]
    return CHAT | {"messages": [{"role": "user", "content": content}]} | changes


def test_a_picture_by_its_pixels(proxied: Callable[..., Any], model: Model) -> None:
    world = proxied(routes=ROUTES)
    with client(world.address) as ask:
        create = ask.chat.completions.with_raw_response.create
        first, again, bitmap, other = (
            create(**about(part)) for part in (picture("PNG"), picture("PNG"), picture("BMP"), picture("PNG", 1))
        )
    outcomes = [one.headers["x-mmcache"].partition(";")[0] for one in (first, again, bitmap, other)]
    assert outcomes == ["miss", "hit", "hit", "miss"]
    assert first.parse().choices[0].message.content == bitmap.parse().choices[0].message.content == "A cat."
    assert "saved_ms" in bitmap.headers["x-mmcache"]
    assert [body["messages"][0]["content"][1] for body in model.bodies] == [picture("PNG"), picture("PNG", 1)]


def test_a_stream_is_given_again(proxied: Callable[..., Any], model: Model) -> None:
    world = proxied(routes=ROUTES)
    told = []
    with client(world.address) as ask:
        for _ in range(2):
            answer = ask.chat.completions.create(**about(picture("PNG"), stream=True))
            told.append(([event.model_dump() for event in answer], answer.response.headers["x-mmcache"]))
    assert told[0][0] == told[1][0]
    assert "".join(event["choices"][0]["delta"]["content"] or "" for event in told[1][0]) == "A cat."
    assert [verdict.partition(";")[0] for _, verdict in told] == ["miss", "hit"]
    assert len(model.bodies) == 1


def test_another_key_shares_nothing(proxied: Callable[..., Any], model: Model) -> None:
    world = proxied(routes=ROUTES)
    for key in "sk-one", "sk-two":
        with client(world.address, key) as ask:
            answer = ask.chat.completions.with_raw_response.create(**CHAT)
            assert answer.headers["x-mmcache"].startswith("miss")


def test_a_stream_outlives_its_first_reader(proxied: Callable[..., Any], model: Model) -> None:
    world = proxied(routes=ROUTES)
    model.gate.clear()
    with client(world.address) as ask, client(world.address) as other:
        first = iter(ask.chat.completions.create(**CHAT, stream=True))
        next(first)
        joined = other.chat.completions.create(**CHAT, stream=True)
        assert joined.response.headers["x-mmcache"].startswith("hit; reason=joined")
        first.close()
        ask.close()
        model.gate.set()
        assert "".join(event.choices[0].delta.content or "" for event in joined) == "A cat."
    assert not model.hung_up.is_set()


def test_a_stream_ends_with_its_last_reader(proxied: Callable[..., Any], model: Model) -> None:
    world = proxied(routes=ROUTES)
    model.gate.clear()
    with client(world.address) as ask:
        answer = ask.chat.completions.create(**CHAT, stream=True)
        next(iter(answer))
        answer.close()
    assert model.hung_up.wait(10)
    assert (
        world.client.post(chat.PATH, json=CHAT | {"stream": True}, headers=KEY).headers["x-mmcache"].startswith("miss")
    )
    assert len(model.bodies) == 2


def test_a_whole_answer_ends_with_its_last_caller(proxied: Callable[..., Any], model: Model) -> None:
    world = proxied(routes=ROUTES)
    model.gate.clear()
    first, second, alone = (http.client.HTTPConnection("127.0.0.1", world.port, timeout=10) for _ in range(3))

    def ask(caller: http.client.HTTPConnection, **changes: Any) -> None:
        headers = KEY | {"content-type": "application/json"}
        came = len(model.bodies)
        caller.request("POST", chat.PATH, json.dumps(CHAT | changes), headers)
        while caller is not second and len(model.bodies) == came:
            assert not model.hung_up.wait(0.01)

    ask(first)
    ask(second)
    first.close()
    model.gate.set()
    answer = second.getresponse()
    assert json.loads(answer.read()) == completion()
    second.close()
    model.gate.clear()
    ask(alone, seed=7)
    alone.close()
    assert model.hung_up.wait(10)


def test_a_hit_after_a_restart(proxied: Callable[..., Any], model: Model, tmp_path: Any) -> None:
    found = []
    for _ in range(2):
        with Cache(tmp_path) as cache:
            world = proxied(routes=ROUTES, cache=cache)
            with client(world.address) as ask:
                found.append(ask.chat.completions.with_raw_response.create(**CHAT).headers["x-mmcache"])
                run(close, world.frame.live.proxy)  # as at the end, before the cache is closed
    assert [verdict.partition(";")[0] for verdict in found] == ["miss", "hit"]
    assert len(model.bodies) == 1


def test_responses(proxied: Callable[..., Any], model: Model) -> None:
    world = proxied(routes=ROUTES)
    with client(world.address) as ask:
        create = ask.responses.with_raw_response.create
        first, second = create(**RESPONSE), create(**RESPONSE)
        assert second.headers["x-mmcache"].startswith("hit")
        assert first.parse().id == second.parse().id == "resp_1"
        assert second.parse().output_text == "A cat."
        kept = create(**(RESPONSE | {"store": True}))
        assert kept.headers["x-mmcache"] == "bypass; reason=store"
        told = [[event.model_dump() for event in ask.responses.create(**RESPONSE, stream=True)] for _ in range(2)]
    assert told[0] == told[1]
    assert told[0][-1]["type"] == "response.completed"


def test_what_is_not_known_goes_through(proxied: Callable[..., Any], model: Model) -> None:
    world = proxied(routes=ROUTES)
    asked = CHAT | {"frobnicate": [1.50], "temperature": 0}
    answer = world.client.post(chat.PATH, json=asked, headers=KEY)
    assert answer.headers["x-mmcache"] == "bypass; reason=unknown-field"
    assert answer.json() == completion()
    assert model.bodies == [asked]
