"""Parts of requests: what is equal, what must not be, what is sent on."""

from __future__ import annotations

import base64
import io
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.unit.server.media_world import asked, closed, pixels, proxy, saved
from tests.unit.server.test_media_plain import NOT_PLAIN, PLAIN

from mmcache import Cache
from mmcache.model.errors import InvalidInputError
from mmcache.server.exchange import Asked, Proxy
from mmcache.server.media import data_urls, identity
from mmcache.server.media.parts import Identified, Unknown, all_identified, identified

PICTURE = pixels()
PNG, BMP = saved(PICTURE), saved(PICTURE, "BMP")
JPEG = saved(PICTURE, "JPEG")
WAV = b"RIFF$\0\0\0WAVEfmt "
ASKED = asked()


@pytest.fixture
async def world() -> AsyncIterator[Proxy]:
    with Cache(memory="16MiB") as cache:
        one = proxy(cache)
        yield one
        await closed(one)


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def url(raw: bytes, mime: str = "image/png") -> str:
    return f"data:{mime};base64,{b64(raw)}"


def image(raw: bytes = PNG, mime: str = "image/png", **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url(raw, mime), **more}}


def audio(raw: bytes = WAV, kind: str = "wav") -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": b64(raw), "format": kind}}


def one_pixel_off() -> Image.Image:
    other = PICTURE.copy()
    red, green, blue = np.asarray(other)[5, 7].tolist()
    other.putpixel((7, 5), (red, green, blue ^ 1))
    return other


async def known(part: dict[str, Any], world: Proxy, request: Asked = ASKED) -> Identified:
    found = await identified(part, request, world)
    assert isinstance(found, Identified), found
    return found


EQUAL: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "another file of the same pixels": (image(), image(BMP, "image/bmp")),
    "another compression": (image(), image(saved(PICTURE, compress_level=0))),
    "another label": (image(), image(mime="image/jpeg")),
    "no label": (image(), image(mime="")),
    "a charset": (image(), image(mime="image/png;charset=utf-8")),
    "URL-safe": (
        image(),
        {
            "type": "image_url",
            "image_url": {"url": "data:image/png;base64," + base64.urlsafe_b64encode(PNG).decode().rstrip("=")},
        },
    ),
    "the address itself": (image(), {"type": "image_url", "image_url": url(PNG)}),
    "of the responses' form": (image(), {"type": "input_image", "image_url": url(PNG)}),
    "the default detail": (image(), image(detail="auto")),
    "a detail that is null": (image(), image(detail=None)),
    "a uuid": (image(), image() | {"uuid": "another picture's"}),
    "a uuid that is null": (image(), image() | {"uuid": None}),
    "a jpeg with another label": (image(JPEG, "image/jpeg"), image(JPEG)),
    "a video's two forms": (
        {"type": "video_url", "video_url": {"url": url(WAV, "video/mp4")}},
        {"type": "video_url", "video_url": url(WAV, "Video/MP4")},
    ),
    "audio with white space": (
        audio(),
        {"type": "input_audio", "input_audio": {"data": b64(WAV) + "\n", "format": "wav"}},
    ),
    "a file's two forms": (
        {"type": "file", "file": {"file_data": url(b"%PDF", "application/pdf"), "filename": "a.pdf"}},
        {"type": "input_file", "file_data": url(b"%PDF", "application/pdf"), "filename": "a.pdf", "file_id": None},
    ),
}


@pytest.mark.parametrize("name", EQUAL)
async def test_pairs_that_are_the_same(name: str, world: Proxy) -> None:
    one, other = [await known(part, world) for part in EQUAL[name]]
    assert one.identity == other.identity
    assert len(one.identity) == len(one.exact) == 32


DIFFERENT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "other pixels": (image(), image(saved(pixels(1)))),
    "one pixel": (image(), image(saved(one_pixel_off()))),
    "another shape of the same bytes": (
        image(saved(pixels(0, 4, 6))),
        image(saved(Image.frombytes("RGB", (6, 4), pixels(0, 4, 6).tobytes()))),
    ),
    "grey and RGB": (image(saved(pixels(channels=1))), image(saved(pixels(channels=1).convert("RGB")))),
    "detail": (image(), image(detail="low")),
    "detail of the responses' form": (
        {"type": "input_image", "image_url": url(PNG)},
        {"type": "input_image", "image_url": url(PNG), "detail": "high"},
    ),
    "jpegs of nearly the same pixels": (image(JPEG), image(saved(PICTURE, "JPEG", quality=76))),
    "a jpeg and its pixels": (image(JPEG), image(saved(Image.open(io.BytesIO(JPEG))))),
    "the same pixels, alpha": (image(), image(NOT_PLAIN["png with alpha"])),
    "the same pixels, turned": (image(), image(NOT_PLAIN["oriented png"])),
    "the same pixels, gamma": (image(), image(NOT_PLAIN["png with gamma"])),
    "the same pixels, and more behind": (image(), image(PNG + b"\0")),
    "format": (audio(), audio(kind="mp3")),
    "audio and video": (
        {"type": "audio_url", "audio_url": url(WAV, "audio/wav")},
        {"type": "video_url", "video_url": url(WAV, "audio/wav")},
    ),
    "audio and a picture": (image(WAV, "audio/wav"), {"type": "audio_url", "audio_url": url(WAV, "audio/wav")}),
    "audio's label": (
        {"type": "audio_url", "audio_url": url(WAV, "audio/wav")},
        {"type": "audio_url", "audio_url": url(WAV, "audio/pcm")},
    ),
    "audio's rate": (
        {"type": "audio_url", "audio_url": url(WAV, "audio/pcm;rate=8000")},
        {"type": "audio_url", "audio_url": url(WAV, "audio/pcm;rate=16000")},
    ),
    "a label that pictures do not have": (image(), image(mime="text/plain")),
    "a label of what nobody can tell": (image(WAV, "image/heic"), image(WAV, "image/avif")),
    "frames and a video": (
        {"type": "video_url", "video_url": f"data:video/jpeg;base64,{b64(JPEG)}"},
        {"type": "video_url", "video_url": f"data:video/jpeg;base64,{b64(JPEG)},{b64(JPEG)}"},
    ),
    "a file's name": (
        {"type": "file", "file": {"file_data": url(b"%PDF", "application/pdf"), "filename": "a.pdf"}},
        {"type": "file", "file": {"file_data": url(b"%PDF", "application/pdf"), "filename": "b.pdf"}},
    ),
    "no name": (
        {"type": "file", "file": {"file_data": url(b"%PDF", "application/pdf"), "filename": ""}},
        {"type": "file", "file": {"file_data": url(b"%PDF", "application/pdf")}},
    ),
    "embeddings by name": (
        {"type": "image_embeds", "image_embeds": {"a": b64(b"1"), "b": b64(b"2")}},
        {"type": "image_embeds", "image_embeds": {"a": b64(b"2"), "b": b64(b"1")}},
    ),
    "embeddings of pictures and sounds": (
        {"type": "image_embeds", "image_embeds": b64(b"1")},
        {"type": "audio_embeds", "audio_embeds": b64(b"1")},
    ),
    "numbers": (
        {"type": "image_embeds", "image_embeds": {"grid": [1, 2]}},
        {"type": "image_embeds", "image_embeds": {"grid": [1, 3]}},
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
async def test_pairs_that_are_not(name: str, world: Proxy) -> None:
    one, other = [await known(part, world) for part in DIFFERENT[name]]
    assert one.identity != other.identity


@pytest.mark.parametrize("name", PLAIN)
async def test_by_bytes_only_the_same_file_is_the_same(name: str, world: Proxy) -> None:
    request = asked(identity="bytes")
    by_bytes = [await known(image(raw), world, request) for raw in (PLAIN[name], PNG)]
    assert (by_bytes[0].identity == by_bytes[1].identity) == (PLAIN[name] == PNG)
    assert by_bytes[0].identity != (await known(image(PLAIN[name]), world)).identity


async def test_two_tenants_have_nothing_in_common(world: Proxy) -> None:
    for part in (image(), image(JPEG), audio()):
        ann, bob = await known(part, world), await known(part, world, asked(tenant="bob"))
        assert ann.identity != bob.identity
        assert ann.exact != bob.exact


UNKNOWN: list[tuple[Any, str]] = [
    ({}, "unknown-part"),
    ([], "unknown-part"),
    (None, "unknown-part"),
    ({"type": ["image_url"]}, "unknown-part"),
    ({"type": "text", "text": "x"}, "unknown-part"),
    ({"image_url": {"url": url(PNG)}}, "unknown-part"),
    ({"type": "input_video", "input_video": {}}, "unknown-part"),
    (image() | {"cache_control": {}}, "unknown-part"),
    (image(max_pixels=1), "unknown-part"),
    (image(detail=1), "unknown-part"),
    (image() | {"uuid": 1}, "unknown-part"),
    ({"type": "image_url", "image_url": {"url": 1}}, "unknown-part"),
    ({"type": "image_url", "image_url": 1}, "unknown-part"),
    ({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}, "unknown-part"),
    ({"type": "image_url", "image_url": {"url": b64(PNG)}}, "unknown-part"),
    ({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}, "remote-media"),
    ({"type": "image_url", "image_url": "HTTP://example.org/a.png"}, "remote-media"),
    ({"type": "image_url", "image_url": None, "uuid": "a"}, "uuid-without-body"),
    ({"type": "image_url", "image_url": {}, "uuid": "a"}, "uuid-without-body"),
    ({"type": "image_url", "image_url": {"url": ""}, "uuid": "a"}, "uuid-without-body"),
    ({"type": "image_url", "uuid": "a"}, "uuid-without-body"),
    ({"type": "input_audio", "input_audio": None, "uuid": "a"}, "uuid-without-body"),
    ({"type": "input_audio", "input_audio": {"data": b64(WAV)}}, "unknown-part"),
    ({"type": "input_audio", "input_audio": {"data": url(WAV), "format": "wav"}}, "odd-spelling"),
    ({"type": "image_url", "image_url": {"url": "data:image/png;base64,A"}}, "odd-spelling"),
    ({"type": "file", "file": {"file_id": "file-1"}}, "file-id"),
    ({"type": "input_file", "file_id": "file-1"}, "file-id"),
    ({"type": "input_image", "file_id": "file-1"}, "file-id"),
    ({"type": "input_file", "file_url": "https://example.org/a.pdf"}, "remote-media"),
    ({"type": "image_embeds", "image_embeds": {"a": {"b": 1}}}, "unknown-part"),
    ({"type": "image_embeds", "image_embeds": {"a": [True]}}, "unknown-part"),
    ({"type": "image_embeds", "image_embeds": b64(b"1").rstrip("=")}, "odd-spelling"),
    ({"type": "image_embeds", "image_embeds": None, "uuid": "a"}, "uuid-without-body"),
]


@pytest.mark.parametrize(("part", "reason"), UNKNOWN)
async def test_parts_of_which_nobody_knows_what_the_model_sees(part: Any, reason: str, world: Proxy) -> None:
    assert await identified(part, ASKED, world) == Unknown(reason)


async def test_what_is_plain_goes_as_it_is_and_the_rest_as_the_key_says(world: Proxy) -> None:
    part = image(detail="low")
    found = await known(part, world)
    assert found.part is part
    assert not found.rewritten
    assert found.raw == PNG
    odd = {"type": "image_url", "image_url": {"url": "DATA:image/png;base64," + b64(PNG), "detail": "low"}, "uuid": "x"}
    found = await known(odd, world)
    assert found.part == part
    assert found.rewritten
    found = await known(audio() | {"uuid": "x"}, world)
    assert found.part == audio()
    bare = {"type": "input_image", "image_url": url(PNG).replace(";base64", ";BASE64"), "detail": "low", "uuid": "x"}
    assert (await known(bare, world)).part == {"type": "input_image", "image_url": url(PNG), "detail": "low"}
    whole = {"type": "input_file", "file_data": b64(b"%PDF").rstrip("="), "filename": "a.pdf"}
    assert (await known(whole, world)).part == {**whole, "file_data": b64(b"%PDF")}
    tensors = {"type": "image_embeds", "image_embeds": {"a": b64(b"1")}}
    assert (await known(tensors | {"uuid": "x"}, world)).part == tensors
    assert odd["uuid"] == "x"  # nothing that was given is written to


async def test_what_cannot_be_decoded_is_known_by_bytes(world: Proxy) -> None:
    for raw in (PNG[:60] + b"\xff" * 20 + PNG[80:], JPEG[:100], b"\x89PNG\r\n\x1a\n"):
        one, other = await known(image(raw), world), await known(image(raw + b"\0"), world)
        assert one.raw == raw
        assert one.identity != other.identity


async def test_a_picture_seen_before_is_not_decoded_again(world: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await known(image(), world)

    def decode(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("decoded again")

    monkeypatch.setattr(identity, "identify", decode)
    assert await known(image(), world) == first
    assert (await known(image(detail="low"), world)).exact == first.exact


async def test_base64_spelt_as_before_is_not_decoded_again(world: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await known(image(), world)

    def decode(text: str) -> Any:
        raise AssertionError("decoded again")

    with monkeypatch.context() as changed:
        changed.setattr(data_urls, "read", decode)
        again = await known(image() | {"uuid": "x"}, world)
        for other in (image(detail="low"), image(mime="image/jpeg"), image(BMP)):
            with pytest.raises(AssertionError):
                await identified(other, ASKED, world)
        for request in (asked(tenant="bob"), asked(identity="bytes")):
            with pytest.raises(AssertionError):
                await identified(image(), request, world)
    assert (again.identity, again.exact, again.part, again.size) == (first.identity, first.exact, image(), len(PNG))
    assert (await known(image(), world)).raw == PNG


async def test_who_waits_too_long_for_pixels_is_known_by_bytes(world: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = await known(image(), world)
    with monkeypatch.context() as hurried:
        hurried.setattr(identity, "PATIENCE_SECONDS", 0.0)
        late = await known(image(BMP), world)
    assert late.identity != usual.identity
    assert (await known(image(BMP), world)).identity == usual.identity  # and only this once


async def test_a_decoder_that_refuses_costs_a_hit_and_nothing_else(
    world: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any, **options: Any) -> Any:
        raise InvalidInputError("no")

    monkeypatch.setattr(identity, "identify", refuse)
    one, other = await known(image(), world), await known(image(BMP), world)
    assert one.identity != other.identity


@pytest.mark.parametrize("size", [identity.INLINE_BYTES // 2, identity.INLINE_BYTES * 2])
async def test_large_ones_are_read_in_a_thread_and_alike(size: int, world: Proxy) -> None:
    raw = WAV + bytes(size)
    found = await known(audio(raw), world)
    assert found.raw == raw
    assert found.exact == (await known({"type": "audio_url", "audio_url": url(raw, "audio/wav")}, world)).exact


async def test_all_parts_of_a_request_or_why_not(world: Proxy) -> None:
    many = [image(), audio(), image(JPEG)] * 4
    found = await all_identified(many, ASKED, world)
    assert isinstance(found, list)
    assert [one.part for one in found] == many
    assert await all_identified(many, asked(most_parts=11), world) == Unknown("too-many-parts")
    assert await all_identified([*many, {"type": "?"}], ASKED, world) == Unknown("unknown-part")
    assert await all_identified(many, asked(largest_body_bytes=len(PNG)), world) == Unknown("too-many-parts")
    assert await all_identified([], ASKED, world) == []


MAKERS: list[Callable[[str], dict[str, Any]]] = [
    lambda body: {"type": "image_url", "image_url": {"url": body}},
    lambda body: {"type": "input_audio", "input_audio": {"data": body, "format": "wav"}},
    lambda body: {"type": "file", "file": {"file_data": body}},
    lambda body: {"type": "image_embeds", "image_embeds": body},
]


@pytest.mark.parametrize(
    "body", ["\ud800", "data:\ud800", "data:image/png;base64,\ud800", "https://\ud800/", "\0", "%"]
)
@pytest.mark.parametrize("make", MAKERS)
async def test_strange_text_raises_nothing(make: Callable[[str], dict[str, Any]], body: str, world: Proxy) -> None:
    assert isinstance(await identified(make(body), ASKED, world), Unknown)
    named = {"type": "file", "file": {"filename": body, "file_data": "QUFB"}}
    assert isinstance(await identified(named, ASKED, world), Unknown | Identified)
    assert isinstance(await identified(image(detail=body), ASKED, world), Unknown | Identified)
