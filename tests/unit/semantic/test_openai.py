"""Requests of OpenAI's chat interface as prompts."""

from __future__ import annotations

import base64
import io
import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.semantic.world import MODEL, Model, picture

from mmcache import Cache
from mmcache.model.errors import InvalidInputError
from mmcache.semantic.openai import PLACE, prompt_of

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


def before(content: Any, **more: Any) -> dict[str, Any]:
    """A message with `content`, then a question."""
    return {"messages": [{"role": "user", "content": content} | more, {"role": "user", "content": "What is it?"}]}


def nested(depth: int) -> Any:
    return {"x": nested(depth - 1)} if depth else 0


@pytest.mark.parametrize(
    "known",
    [
        before([text("see"), image(png(1)), "plain words"]),
        before([{"type": "refusal", "refusal": "No."}], role="assistant"),
        before(None, role="assistant", tool_calls=[{"id": "1", "function": {"name": "zoom", "arguments": "{}"}}]),
        before([{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]),
        before([{"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA", "filename": "a.pdf"}}]),
        before([text("cached") | {"cache_control": {"type": "ephemeral"}}]),
    ],
)
def test_earlier_messages_that_hold_their_content_are_known(known: dict[str, Any]) -> None:
    with Cache() as cache:
        assert cache.ask(prompt_of(known), lambda prompt: "x", model=MODEL).key is not None


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
        {"messages": [{"role": "user", "content": text("a single part, in no list")}]},
        before([image("https://example.org/cat.png")]),
        before([text("see"), {"type": "image_url", "image_url": "https://example.org/cat.png"}]),
        before([{"type": "image_url", "image_url": {"url": png(1)}, "uuid": "cat"}]),
        before([{"type": "file", "file": {"file_id": "f"}}]),
        before([{"type": "file", "file": {"file_data": "x", "file_id": "f"}}]),
        before([{"type": "input_audio", "input_audio": {"id": "f"}}]),
        before([{"type": "video_url", "video_url": {"url": "https://example.org/cat.mp4"}}]),
        before([{"type": "hologram", "hologram": {}}]),
        before([3]),
        before({"type": "text"}),
        before("said", role="assistant", audio={"id": "a"}),
        BASE | {"logit_bias": nested(900)},
    ],
)
def test_unknown_parts_make_the_cache_step_aside(unknown: dict[str, Any]) -> None:
    model = Model()
    with Cache() as cache:
        for _ in range(2):
            assert cache.ask(prompt_of(unknown), lambda prompt: "x", model=MODEL).key is None
    assert model.calls == 0


@pytest.mark.parametrize(
    "bad",
    [
        None, [], {}, {"messages": []}, {"messages": "hi"}, {"messages": b"hi"}, {"messages": [{"content": "hi"}]},
        BASE | {"tools": {"name": "zoom"}}, BASE | {"tools": "zoom"}, BASE | {"tools": 3},
    ],
)  # fmt: skip
def test_what_is_no_request_is_told(bad: Any) -> None:
    with pytest.raises(InvalidInputError):
        prompt_of(bad)


words = st.sampled_from(
    ["a", "b", "", PLACE, f"a{PLACE}b", "e\N{COMBINING ACUTE ACCENT}", "\N{LATIN SMALL LETTER E WITH ACUTE}"]
)
parts = words | st.lists(words.map(text), max_size=3)
messages = st.builds(
    lambda role, content, more: {"role": role, "content": content} | more,
    st.sampled_from(["system", "developer", "user", "assistant"]),
    parts,
    st.sampled_from([{}, {"name": "x"}]),
)
fields = st.dictionaries(
    st.sampled_from(["layout", "fields", "message", "last message", "unknown", "seed", "stop"]),
    st.integers(0, 1),
    max_size=2,
)
requests = st.builds(
    lambda earlier, last, more: {"messages": [*earlier, last | {"role": "user"}]} | more,
    st.lists(messages, max_size=3),
    messages,
    fields,
)


def meant(request: dict[str, Any]) -> str:
    """What may be the same for two requests that share a key."""
    *earlier, last = request["messages"]
    content = [text(last["content"])] if isinstance(last["content"], str) else last["content"]
    content = [text(unicodedata.normalize("NFC", part["text"])) for part in content]
    return json.dumps(request | {"messages": [*earlier, last | {"content": content}]}, sort_keys=True)


@given(st.lists(requests, min_size=2, max_size=6))
def test_requests_share_a_key_only_if_they_mean_the_same(given: list[dict[str, Any]]) -> None:
    with Cache() as cache:
        keys = [cache.ask(prompt_of(one), lambda prompt: "x", model=MODEL).key for one in given]
    assert None not in keys
    for one, its in zip(given, keys, strict=True):
        for other, others in zip(given, keys, strict=True):
            assert (its == others) == (meant(one) == meant(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            request(text(f"a{PLACE}b"), text("c")),
            request(text("a"), text(f"b{PLACE}c")),
        ),
        (
            {"messages": [{"role": role, "content": role} for role in ("system", "user", "developer", "user")]},
            {"messages": [{"role": role, "content": role} for role in ("system", "developer", "user", "user")]},
        ),
        (BASE | {"layout": "a"}, BASE | {"layout": "b"}),
        (BASE | {"tools": []}, BASE),
    ],
)
def test_requests_that_differ_in_nothing_but_order_or_cut_differ(one: dict[str, Any], other: dict[str, Any]) -> None:
    with Cache() as cache:
        first, second = (cache.ask(prompt_of(given), lambda prompt: "x", model=MODEL).key for given in (one, other))
    assert first != second


def test_how_long_the_texts_are_does_not_keep_near_questions_apart() -> None:
    one, other = (
        prompt_of(request(text(a), image(png(1)), text(b))) for a, b in (("Look:", "A cat?"), ("See", "Cat?"))
    )
    assert one.other == other.other
