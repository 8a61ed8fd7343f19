"""Media that the upstream has goes by uuid: an upstream that believes uuids as vLLM 0.32 does is never fooled."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.unit.server.media_world import Answer, FakeUpstream, answer, asked, closed, pixels, proxy, saved

from mmcache import Cache
from mmcache.model.errors import UpstreamError
from mmcache.server.exchange import Asked, Proxy
from mmcache.server.media import uuids
from mmcache.server.media.parts import Identified, identified
from mmcache.server.media.uuids import Known, Place, Sent, known_uuids, replaced, send

PNG, OTHER, WAV = saved(pixels()), saved(pixels(1)), b"RIFF$\0\0\0WAVE"
AT: Place = ("messages", 0, "content", 1)


class LikeVLLM:
    """Keeps media under its uuid, and believes it. Says which media it answered about."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.seen: list[dict[str, Any]] = []
        self.keeps = True
        self.error = answer({"error": {"message": "Cache miss for image at index 0 but data is not provided."}}, 400)
        self.stream_error: bytes | None = None
        self.replies: list[Answer] = []

    def __call__(self, raw: bytes) -> Answer:
        reply = self._answer(raw)
        self.replies.append(reply)
        return reply

    def _answer(self, raw: bytes) -> Answer:
        body = json.loads(raw)
        self.seen.append(body)
        about = []
        for message in body["messages"]:
            for part in message["content"]:
                if part["type"] == "text":
                    continue
                held, uuid = part[part["type"]], part.get("uuid")
                if held is None:
                    if uuid not in self.kept:
                        return self._missing(body)
                    about.append(self.kept[uuid])
                else:
                    shown = json.dumps(held)
                    about.append(self.kept.setdefault(uuid, shown) if uuid and self.keeps else shown)
        if body.get("stream"):
            return Answer(200, [(b"content-type", b"text/event-stream")], [b"data: 1\n\n", b"data: [DONE]\n\n"])
        return answer({"about": about})

    def _missing(self, body: dict[str, Any]) -> Answer:
        if body.get("stream") and self.stream_error is not None:
            return Answer(200, [(b"content-type", b"text/event-stream; charset=utf-8")], [self.stream_error])
        return Answer(self.error.status, self.error.headers, self.error.pieces)


@pytest.fixture
def vllm() -> LikeVLLM:
    return LikeVLLM()


@pytest.fixture
async def world(vllm: LikeVLLM) -> AsyncIterator[Proxy]:
    with Cache(memory="16MiB", secret=b"s" * 32) as cache:
        one = proxy(cache, vllm, kind="vllm")
        yield one
        await closed(one)


def picture(raw: bytes = PNG, uuid: str | None = None) -> dict[str, Any]:
    url = f"data:image/png;base64,{base64.b64encode(raw).decode()}"
    part: dict[str, Any] = {"type": "image_url", "image_url": {"url": url}}
    return part if uuid is None else part | {"uuid": uuid}


def body(part: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "?"}, part]}], **more}


def wire(world: Proxy) -> FakeUpstream:
    assert isinstance(world.upstream, FakeUpstream)
    return world.upstream


async def sent(world: Proxy, part: dict[str, Any], request: Asked | None = None, **more: Any) -> Sent:
    request = request or asked()
    found = await identified(part, request, world)
    assert isinstance(found, Identified)
    return await send(request, world, body(part, **more), {AT: found})


async def about(one: Sent) -> Any:
    return json.loads(await one.reply.read()).get("about")


def parts(vllm: LikeVLLM) -> list[dict[str, Any]]:
    return [seen["messages"][0]["content"][1] for seen in vllm.seen]


async def test_the_second_time_it_goes_by_its_uuid_alone(vllm: LikeVLLM, world: Proxy) -> None:
    first, second = await sent(world, picture()), await sent(world, picture())
    assert await about(first) == await about(second) == [json.dumps(picture()["image_url"])]
    assert (first.uuids, second.uuids) == (0, 1)
    full, small = parts(vllm)
    assert full == picture(uuid=full["uuid"])
    assert small == {"type": "image_url", "image_url": None, "uuid": full["uuid"]}
    assert len(full["uuid"]) == 32


async def test_a_megabyte_becomes_less_than_300_bytes(world: Proxy) -> None:
    large = saved(pixels(2, 700, 600))
    assert len(large) > 1_200_000
    await sent(world, picture(large))
    await sent(world, picture(large))
    first, second = map(len, wire(world).bodies)
    assert first > 1_600_000
    assert second < 300


async def test_a_callers_uuid_is_never_believed(vllm: LikeVLLM, world: Proxy) -> None:
    """Stock vLLM answers about the first picture, whatever comes under its uuid."""
    assert await about(await sent(world, picture(PNG, "mine"))) == [json.dumps(picture(PNG)["image_url"])]
    assert await about(await sent(world, picture(OTHER, "mine"))) == [json.dumps(picture(OTHER)["image_url"])]
    assert "mine" not in vllm.kept
    assert len(vllm.kept) == 2


async def test_no_two_share_a_uuid_that_vllm_might_treat_differently(vllm: LikeVLLM, world: Proxy) -> None:
    await sent(world, picture())
    await sent(world, picture(OTHER))
    await sent(world, picture(saved(pixels(), compress_level=0)))  # other bytes, though the same pixels
    await sent(world, picture(), asked(tenant="bob"))
    await sent(world, picture(), mm_processor_kwargs={"num_crops": 4})
    await sent(world, picture(), media_io_kwargs={"image": {"mode": "L"}})
    await sent(world, picture(), model="other")
    await sent(world, {"type": "image_url", "image_url": picture()["image_url"] | {"detail": "low"}})
    await sent(world, {"type": "input_audio", "input_audio": {"data": base64.b64encode(PNG).decode(), "format": "wav"}})
    await sent(world, {"type": "audio_url", "audio_url": {"url": picture()["image_url"]["url"]}})
    await sent(world, {"type": "image_url", "image_url": picture()["image_url"]["url"]})  # the same as the first
    assert len({part["uuid"] for part in parts(vllm)}) == len(vllm.seen) - 1


async def test_another_secret_gives_other_uuids(vllm: LikeVLLM, world: Proxy) -> None:
    await sent(world, picture())
    with Cache(memory="1MiB", secret=b"t" * 32) as cache:
        other = proxy(cache, vllm, kind="vllm")
        await sent(other, picture())
        await closed(other)
    one, two = parts(vllm)
    assert one["uuid"] != two["uuid"]


@pytest.mark.parametrize(
    "error",
    [
        (400, "Cache miss for image at index 0 but data is not provided."),
        (400, "Failed to apply LlavaProcessor on data={'images': [None]}"),  # whose cache is switched off
        (400, "anything else"),
        (422, "no uuid is known here"),
        (500, "Expected a cached item for mm_hash='…'"),
        (404, ""),
    ],
)
async def test_what_the_upstream_forgot_is_sent_again_in_full_once(
    error: tuple[int, str], vllm: LikeVLLM, world: Proxy
) -> None:
    vllm.error = answer({"error": {"message": error[1]}}, error[0])
    await sent(world, picture())
    vllm.kept.clear()  # it was restarted
    again = await sent(world, picture())
    assert (again.reply.status, again.resent, again.uuids) == (200, True, 0)
    assert await about(again) == [json.dumps(picture()["image_url"])]
    assert vllm.replies[1].closed
    assert (await sent(world, picture())).uuids == 1  # and then it has it
    assert len(vllm.seen) == 4


async def test_a_request_that_is_wrong_anyway_says_what_is_wrong(vllm: LikeVLLM, world: Proxy) -> None:
    await sent(world, picture())
    wire(world).reply = lambda raw: answer({"error": {"message": "max_tokens is too large"}}, 400)
    again = await sent(world, picture())
    assert again.reply.status == 400
    assert b"max_tokens" in await again.reply.read()
    wire(world).reply = vllm
    assert (await sent(world, picture())).uuids == 1  # it was not the uuid's fault


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"error": {"message": "Cache miss for image at index 0 but data is not provided.", "code": 400}}\n\n',
        b'data: {"error": {"message": "Expected a cached item for mm_hash=1"}}\n\n',
    ],
)
async def test_a_stream_that_begins_with_it(event: bytes, vllm: LikeVLLM, world: Proxy) -> None:
    vllm.stream_error = event
    await sent(world, picture(), stream=True)
    vllm.kept.clear()
    again = await sent(world, picture(), stream=True)
    assert again.resent
    assert await again.reply.read() == b"data: 1\n\ndata: [DONE]\n\n"
    small = await sent(world, picture(), stream=True)
    assert small.uuids == 1
    assert [chunk async for chunk in small.reply.chunks()] == [b"data: 1\n\n", b"data: [DONE]\n\n"]
    assert small.reply.status == 200
    assert small.reply.headers[0] == (b"content-type", b"text/event-stream")
    await small.reply.close()
    assert vllm.replies[-1].closed


async def test_an_answer_that_only_speaks_of_it_is_an_answer(vllm: LikeVLLM, world: Proxy) -> None:
    await sent(world, picture(), stream=True)
    said = b'data: {"choices": [{"delta": {"content": "data is not provided"}}]}\n\n'
    wire(world).reply = lambda raw: Answer(200, [(b"content-type", b"text/event-stream")], [said])
    one = await sent(world, picture(), stream=True)
    assert not one.resent
    assert await one.reply.read() == said


async def test_a_stream_that_breaks_off_at_once(vllm: LikeVLLM, world: Proxy) -> None:
    await sent(world, picture(), stream=True)
    broken = Answer(200, [(b"content-type", b"text/event-stream")], [], broken=True)
    wire(world).reply = lambda raw: broken
    with pytest.raises(UpstreamError):
        await sent(world, picture(), stream=True)
    assert broken.closed


async def test_only_what_was_answered_well_is_remembered(vllm: LikeVLLM, world: Proxy) -> None:
    wire(world).reply = lambda raw: answer({"error": {}}, 503)
    assert (await sent(world, picture())).reply.status == 503
    wire(world).reply = vllm
    assert (await sent(world, picture())).uuids == 0


async def test_an_upstream_that_keeps_nothing_is_asked_twice_only_rarely(vllm: LikeVLLM, world: Proxy) -> None:
    vllm.keeps = False
    for _ in range(200):
        await sent(world, picture())
    assert len(vllm.seen) - 200 <= uuids._CREDIT + 200 // uuids._PROBE + 1


async def test_to_others_than_vllm_media_goes_in_full_and_without_a_uuid(vllm: LikeVLLM) -> None:
    with Cache(memory="1MiB") as cache:
        world = proxy(cache, vllm)
        for _ in range(2):
            assert (await sent(world, picture(uuid="x"))).uuids == 0
        await closed(world)
    assert parts(vllm) == [picture(), picture()]


def video() -> dict[str, Any]:
    return {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,QUFB"}}


@pytest.mark.parametrize(
    ("part", "options", "named"),
    [
        (video(), None, False),
        (video(), {"fps": 1}, False),
        (video(), {"use_audio_in_video": True}, False),
        (video(), {"use_audio_in_video": False}, True),
        ({"type": "input_image", "image_url": picture()["image_url"]["url"]}, None, False),
        ({"type": "image_embeds", "image_embeds": "QUFB"}, None, False),
        ({"type": "file", "file": {"file_data": "QUFB"}}, None, False),
        ({"type": "input_audio", "input_audio": {"data": "QUFB", "format": "wav"}}, None, True),
    ],
)
async def test_what_has_a_uuid(
    part: dict[str, Any], options: dict[str, Any] | None, named: bool, vllm: LikeVLLM, world: Proxy
) -> None:
    """A video may carry sound, which vLLM takes from the body: one that is null has none."""
    wire(world).reply = lambda raw: answer({})
    more: dict[str, Any] = {} if options is None else {"mm_processor_kwargs": options}
    await sent(world, part, **more)
    assert (await sent(world, part, **more)).uuids == named
    assert ("uuid" in json.loads(wire(world).bodies[0])["messages"][0]["content"][1]) == named


async def test_videos_where_the_settings_say_that_they_are_silent(vllm: LikeVLLM) -> None:
    with Cache(memory="1MiB") as cache:
        world = proxy(cache, vllm, kind="vllm", video_uuids=True)
        assert [(await sent(world, video())).uuids for _ in range(2)] == [0, 1]
        heard = {"use_audio_in_video": True}
        assert [(await sent(world, video(), mm_processor_kwargs=heard)).uuids for _ in range(2)] == [0, 0]
        await closed(world)


async def test_some_parts_are_known_and_some_are_not(vllm: LikeVLLM, world: Proxy) -> None:
    await sent(world, picture())
    both = [picture(), picture(OTHER)]
    found = [await identified(part, asked(), world) for part in both]
    request = {"model": "m", "messages": [{"role": "user", "content": both}]}
    media: dict[Place, Identified] = {
        ("messages", 0, "content", at): one for at, one in enumerate(found) if isinstance(one, Identified)
    }
    one = await send(asked(), world, request, media)
    assert one.uuids == 1
    assert await about(one) == [json.dumps(part["image_url"]) for part in both]
    vllm.kept.clear()
    assert (await send(asked(), world, request, media)).resent
    assert request == {"model": "m", "messages": [{"role": "user", "content": both}]}  # not written to


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uuids, "REMEMBERED", 3)
    known = Known()
    known.accepted({b"a", b"b", b"c"}, set())
    known.accepted({b"a"}, set())
    known.accepted({b"d"}, set())
    assert known.has(b"a")
    assert known.has(b"d")
    assert sum(known.has(one) for one in (b"b", b"c")) == 1


def test_parts_are_replaced_in_a_copy() -> None:
    inner: dict[str, Any] = {"a": [{"x": 1}, {"y": 2}], "b": {"c": 3}}
    change: Callable[..., Any] = replaced
    assert change(inner, {("a", 1): {"z": 4}}) == {"a": [{"x": 1}, {"z": 4}], "b": {"c": 3}}
    assert change(inner, {}) is inner
    assert inner == {"a": [{"x": 1}, {"y": 2}], "b": {"c": 3}}


async def test_what_is_known_is_kept_with_the_proxy(world: Proxy) -> None:
    assert known_uuids(world) is known_uuids(world)
