"""Requests of OpenAI's chat interface as prompts."""

from __future__ import annotations

import base64
import io
from typing import Any

import pytest
from tests.unit.semantic.world import MODEL, Model, picture

from mmcache import Cache
from mmcache.model.errors import InvalidInputError
from mmcache.semantic.openai import prompt_of

Image = pytest.importorskip("PIL.Image")


def png(number: int, **options: Any) -> str:
    """A picture as a data address."""
    file = io.BytesIO()
    Image.fromarray(picture(number)).save(file, **({"format": "PNG"} | options))
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def request(*parts: Any, **fields: Any) -> dict[str, Any]:
    return {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [*parts]}],
    } | fields


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def image(address: str, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": address} | more}


BASE = request(text("What is it?"), image(png(1)), temperature=0.0)


def source(cache: Cache, other: dict[str, Any]) -> str:
    model = Model()
    cache.ask(prompt_of(BASE), model, model=MODEL)
    return cache.ask(prompt_of(other), model, model=MODEL).source


@pytest.mark.parametrize(
    "same",
    [
        BASE,
        BASE | {"stream": True},
        request(text("What is it?"), image(png(1, compress_level=1)), temperature=0.0),
    ],
    ids=["itself", "streamed", "the same pixels"],
)
def test_equal_requests_hit(same: dict[str, Any]) -> None:
    with Cache() as cache:
        assert source(cache, same) == "exact"


@pytest.mark.parametrize(
    "other",
    [
        BASE | {"temperature": 1.0},
        BASE | {"user": "anna"},
        BASE | {"tools": [{"type": "function", "function": {"name": "zoom"}}]},
        BASE | {"response_format": {"type": "json_object"}},
        BASE | {"messages": BASE["messages"][1:]},
        BASE | {"messages": [BASE["messages"][0], {"role": "user", "content": "hi"}, BASE["messages"][1]]},
        request(image(png(1)), text("What is it?"), temperature=0.0),
        request(text("What "), image(png(1)), text("is it?"), temperature=0.0),
        request(text("What is it?"), image(png(2)), temperature=0.0),
        request(text("What is it?"), image(png(1)), image(png(1)), temperature=0.0),
        {**BASE, "messages": [BASE["messages"][0], BASE["messages"][1] | {"name": "anna"}]},
    ],
)
def test_other_requests_do_not(other: dict[str, Any]) -> None:
    with Cache() as cache:
        assert source(cache, other) == "computed"


@pytest.mark.parametrize(
    "unknown",
    [
        request(text("What is it?"), image("https://example.org/cat.png")),
        request(text("What is it?"), image(png(1), detail="low")),
        request(text("What is it?"), {"type": "video_url", "video_url": {"url": "x"}}),
        request(text("What is it?"), {"type": "file", "file": {"file_id": "f"}}),
        request(text("What is it?") | {"cache_control": {"type": "ephemeral"}}),
        request({"type": "input_audio", "input_audio": {"data": "??", "format": "wav"}}),
        {"messages": [{"role": "assistant", "content": "hello"}]},
        {"messages": [{"role": "user", "content": None}]},
    ],
)
def test_unknown_parts_make_the_cache_step_aside(unknown: dict[str, Any]) -> None:
    model = Model()
    with Cache() as cache:
        for _ in range(2):
            assert cache.ask(prompt_of(unknown), lambda prompt: "x", model=MODEL).key is None
    assert model.calls == 0


@pytest.mark.parametrize("bad", [{}, {"messages": []}, {"messages": "hi"}, {"messages": [{"content": "hi"}]}])
def test_what_is_no_request_is_told(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        prompt_of(bad)
