"""Media through the whole proxy, over TCP: OpenAI's own client, an upstream that believes uuids, revoked keys."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.server.conftest import KEY, World
from tests.unit.server.media_world import pixels, saved
from tests.unit.server.upstream import Asked, reply

from mmcache.server import chat, transcriptions
from mmcache.server.config import RouteRules

AUDIO, CHAT = "/v1/audio/transcriptions", "/v1/chat/completions"
WAV = b"RIFF$\0\0\0WAVEfmt " + bytes(2000)
Make = Callable[..., World]


async def hello(asked: Asked, send: Any) -> None:
    await reply(send, 200, {"text": "hello", "usage": {"type": "tokens", "total_tokens": 7}})


@pytest.fixture
def listening(proxied: Make) -> World:
    """A proxy in front of something that transcribes."""
    world = proxied(transcriptions.ROUTES)
    world.upstream.on(AUDIO, hello)
    return world


def transcribe(world: World, **headers: str) -> Any:
    files = {"file": ("a.wav", WAV, "audio/wav")}
    return world.client.post(AUDIO, files=files, data={"model": "small"}, headers=KEY | headers)


def test_openais_client_gets_the_same_words_and_says_nothing_twice(listening: World) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(api_key="sk-one", base_url=f"{listening.address}/v1", max_retries=0)
    said = []
    with client:
        for name in ("a.wav", "b.wav"):
            raw = client.audio.transcriptions.with_raw_response.create(model="small", file=(name, WAV, "audio/wav"))
            said.append((raw.parse().text, raw.headers["x-mmcache"].partition(";")[0]))
    assert said == [("hello", "miss"), ("hello", "hit")]
    assert listening.upstream.count(AUDIO) == 1


def test_a_hit_is_authorised_like_a_miss(listening: World) -> None:
    assert transcribe(listening).status_code == 200
    assert transcribe(listening).headers["x-mmcache"].startswith("hit")
    assert listening.client.post(AUDIO, files={"file": WAV}, data={"model": "small"}).status_code == 401
    other = transcribe(listening, authorization="Bearer sk-two")
    assert other.headers["x-mmcache"].startswith("miss")


def test_what_cannot_be_read_for_certain_is_passed_on_as_it_came(listening: World) -> None:
    for data in ({"model": "small", "surprise": "1"}, {"model": "small", "stream": "true"}):
        for _ in range(2):
            found = listening.client.post(AUDIO, files={"file": ("a.wav", WAV)}, data=data, headers=KEY)
            assert found.json()["text"] == "hello"
            assert found.headers["x-mmcache"].startswith("bypass; reason=")
    assert listening.upstream.count(AUDIO) == 4
    assert WAV in listening.upstream.asked[-1].body
    again = transcribe(listening, **{"cache-control": "no-store"})
    assert again.headers["x-mmcache"] == "bypass; reason=no-store"


class Believing:
    """Answers about the media that it keeps under a uuid, as vLLM does."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    async def __call__(self, asked: Asked, send: Any) -> None:
        (part,) = json.loads(asked.body)["messages"][0]["content"]
        body, uuid = part["image_url"], part.get("uuid")
        if body is None and uuid not in self.kept:
            text = "Cache miss for image at index 0 but data is not provided."
            return await reply(send, 400, {"error": {"message": text, "code": 400}})
        shown = self.kept.setdefault(uuid, body) if uuid else body
        message = {"role": "assistant", "content": json.dumps(shown)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return await reply(send, 200, {"object": "chat.completion", "choices": [choice], "usage": {"total_tokens": 1}})


def body(raw: bytes, seed: int = 0, **more: Any) -> dict[str, Any]:
    url = f"data:image/png;base64,{base64.b64encode(raw).decode()}"
    part = {"type": "image_url", "image_url": {"url": url}, **more}
    message = {"role": "user", "content": [part]}
    return {"model": "small", "temperature": 0, "seed": seed, "messages": [message]}


def ask(world: World, request: dict[str, Any]) -> tuple[str, str]:
    """What it is about, and what the cache did."""
    found = world.client.post(CHAT, json=request, headers=KEY)
    assert found.status_code == 200, found.text
    return json.loads(found.json()["choices"][0]["message"]["content"])["url"], found.headers["x-mmcache"]


@pytest.fixture
def believing(proxied: Make) -> tuple[World, Believing]:
    """A proxy in front of something like vLLM."""
    upstream = Believing()
    world = proxied(chat.ROUTES, kind="vllm")
    world.upstream.on(CHAT, upstream)
    return world, upstream


def url_of(raw: bytes) -> str:
    return str(body(raw)["messages"][0]["content"][0]["image_url"]["url"])


def test_a_megabyte_goes_once(believing: tuple[World, Believing]) -> None:
    world, upstream = believing
    large = saved(pixels(2, 700, 600))
    assert ask(world, body(large)) == (url_of(large), "miss; reason=absent")
    about, said = ask(world, body(large, seed=1))
    assert about == url_of(large)
    assert "uuids=1" in said
    sizes = [len(asked.body) for asked in world.upstream.asked if asked.path == CHAT]
    assert sizes[0] > 1_600_000
    assert sizes[1] < 300
    upstream.kept.clear()  # restarted
    assert ask(world, body(large, seed=2))[0] == url_of(large)
    assert ask(world, body(large, seed=2))[1].startswith("hit")
    assert world.upstream.count(CHAT) == 4


def test_one_picture_under_anothers_uuid_is_answered_about_itself(believing: tuple[World, Believing]) -> None:
    world, _ = believing
    one, other = saved(pixels(3)), saved(pixels(4))
    assert ask(world, body(one, uuid="A"))[0] == url_of(one)
    assert ask(world, body(other, uuid="A"))[0] == url_of(other)
    assert ask(world, body(other))[0] == url_of(other)


def test_the_same_pixels_in_another_file_are_a_hit(believing: tuple[World, Believing]) -> None:
    world, _ = believing
    ask(world, body(saved(pixels(5))))
    assert ask(world, body(saved(pixels(5), compress_level=0)))[1].startswith("hit")
    assert ask(world, body(saved(pixels(5), "JPEG")))[1].startswith("miss")


def test_by_bytes_where_the_rules_say_so(proxied: Make) -> None:
    world = proxied(chat.ROUTES, routes_rules={CHAT: RouteRules(identity="bytes")})
    world.upstream.on(CHAT, Believing())
    ask(world, body(saved(pixels(5))))
    assert ask(world, body(saved(pixels(5), compress_level=0)))[1].startswith("miss")
    assert ask(world, body(saved(pixels(5))))[1].startswith("hit")


def test_an_address_that_may_not_be_fetched_is_the_upstreams_business(believing: tuple[World, Believing]) -> None:
    world, _ = believing
    request = body(b"x")
    request["messages"][0]["content"][0]["image_url"]["url"] = "https://127.0.0.1/a.png"
    for _ in range(2):
        assert ask(world, request) == ("https://127.0.0.1/a.png", "bypass; reason=remote-media")
