"""Table `gateways`: the stream of requests, and what the upstream answers to them. A stub stands in for the model."""

from __future__ import annotations

import base64
import io
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from mmcache.lab.data.picture_questions import asked
from mmcache.lab.data.pictures import shapes
from mmcache.lab.gateways.answering import reply, texts
from mmcache.lab.gateways.contest import perfect, unseen
from mmcache.lab.gateways.said import Said, joined, whole
from mmcache.lab.gateways.stream import (
    CHANCE,
    FAMILIES,
    OTHER_TENANT,
    REPEATS,
    TWO,
    Base,
    bases,
    data_url,
    plain,
    reworded,
    stream,
    user,
)
from mmcache.lab.gateways.upstream import events
from mmcache.model.errors import AssetError, InvalidInputError


@pytest.fixture(autouse=True)
def pictures() -> None:
    try:
        asked("test")
        shapes("test")
    except AssetError as error:
        pytest.skip(str(error))


def look(url: str, question: str | None, temperature: float, seed: int) -> str:
    """Depends on the pixels, the question and, with a temperature, the seed."""
    pixels = Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).convert("RGB").tobytes()
    return f"red {sum(pixels) % 9973} {question} {seed if temperature else ''}".strip()


def said(body: dict[str, Any]) -> list[dict[str, Any]]:
    return reply(body, look)[0]


def base(seed: int = 0) -> Base:
    return bases(random.Random(seed), 4)[seed % 4]


def test_a_stream_repeats_for_a_seed_and_keeps_its_shares() -> None:
    one = stream(3, 2000, 10)
    assert one == stream(3, 2000, 10)
    assert one != stream(4, 2000, 10)
    shares = {family: sum(request.family == family for request in one) / 2000 for family in FAMILIES}
    assert shares["plain"] == pytest.approx(REPEATS, abs=0.04)
    assert min(shares.values()) > 0.01
    assert {request.tenant for request in one if request.family == OTHER_TENANT} == {TWO}


SAME_PIXELS = ("plain", "spelled otherwise", "defaults spelled out", "lossless re-encoding", "stream", OTHER_TENANT)
SEEN_OTHERWISE = ("JPEG of it", "other words")


@pytest.mark.parametrize("seed", range(4))
def test_each_family_differs_from_the_plain_request_as_it_says(seed: int) -> None:
    known, draw = base(seed), random.Random(seed)
    expected = said(plain(known))
    for family, make in FAMILIES.items():
        body, differs = make(known, draw)
        if family in SAME_PIXELS:
            assert said(body) == expected, family
            assert differs == ()
        elif family in SEEN_OTHERWISE:
            assert differs == ()
            assert body != plain(known)
        else:
            assert said(body) != expected, family
            assert differs, family


def test_what_means_the_same_has_one_truth() -> None:
    found: dict[object, object] = {}
    for request in stream(1, 1500, 6):
        if request.family not in (*SEEN_OTHERWISE, CHANCE):
            truth = said(request.body)
            assert found.setdefault(request.meaning, truth) == truth, request.family


def test_a_lossless_encoding_has_the_same_pixels_and_another_file() -> None:
    urls = {form: data_url(7, form) for form in ("file", "BMP", "WEBP", "PNG", "JPEG")}
    assert len(set(urls.values())) == 5
    answers = {form: look(url, "x", 0, 0) for form, url in urls.items()}
    assert answers["file"] == answers["BMP"] == answers["WEBP"] == answers["PNG"]


def test_other_words_ask_for_the_same() -> None:
    assert "what is the color of the shape?" in reworded("what color is the shape?")
    assert "is there not a circle?" not in reworded("is there a circle?")
    assert "is there a triangle?" not in reworded("is there a circle?")


def test_misses_are_all_different_and_in_no_stream() -> None:
    bodies = [json.dumps(body["messages"]) for body in unseen(30)]
    assert len(set(bodies)) == 30
    assert not set(bodies) & {json.dumps(request.body["messages"]) for request in stream(0, 500, 10)}


def test_a_perfect_cache_knows_meaning_and_tenant() -> None:
    requests = stream(2, 400, 6)
    truths = [whole({"choices": said(request.body)}) for request in requests]
    assert 30 < perfect(requests, truths) < 90
    assert perfect(requests[:1], truths[:1]) == 0


# The upstream -----------------------------------------------------------------------------------------------------


def test_every_field_that_may_change_an_answer_does() -> None:
    known = base()
    text = said(plain(known))[0]["message"]["content"]
    assert text.startswith("The answer is red")
    cut = said(plain(known, max_tokens=2))[0]
    assert (cut["message"]["content"], cut["finish_reason"]) == ("The answer", "length")
    stopped = said(plain(known, stop="is"))[0]
    assert (stopped["message"]["content"], stopped["finish_reason"]) == ("The answer ", "stop")
    assert json.loads(said(plain(known, response_format={"type": "json_object"}))[0]["message"]["content"])["answer"]
    tool = {"tools": [{"type": "function", "function": {"name": "tell"}}]}
    called = said(plain(known) | tool)[0]
    assert called["finish_reason"] == "tool_calls"
    assert called["message"]["tool_calls"][0]["function"]["name"] == "tell"
    assert said(plain(known) | tool | {"tool_choice": "none"}) == said(plain(known))
    seeds = [said(plain(known, temperature=1.0, seed=seed)) for seed in (1, 2, 1)]
    assert seeds[0] == seeds[2] != seeds[1]
    several = said(plain(known, temperature=1.0, seed=1, n=3))
    assert [choice["index"] for choice in several] == [0, 1, 2]
    assert several[0] == seeds[0][0]
    urls = data_url(known.picture), data_url(known.other)
    there, back = (plain(known, messages=[user("x", *pair)]) for pair in (urls, urls[::-1]))
    assert said(there) != said(back)


@pytest.mark.parametrize("wrong", [{"model": "other"}, {"messages": []}, {"n": 99}, {"messages": [user("no picture")]}])
def test_what_cannot_be_answered_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        said(plain(base()) | wrong)


@given(st.sampled_from(sorted(FAMILIES)), st.integers(0, 50))
def test_a_stream_says_what_the_whole_answer_says(family: str, seed: int) -> None:
    body, _ = FAMILIES[family](base(seed % 4), random.Random(seed))
    choices, usage = reply(body, look)
    answer = {
        "id": "c", "created": 1, "model": body["model"], "choices": choices, "usage": usage,
        "system_fingerprint": "fp_17",
    }  # fmt: skip
    raw = b"".join(events({"stream_options": {"include_usage": True}}, answer)).decode()
    lines = [line.removeprefix("data: ") for line in raw.split("\n") if line]
    assert lines.pop() == "[DONE]"
    chunks = [json.loads(line) for line in lines]
    assert joined(chunks) == Said(whole(answer).choices, True, 17)
    assert chunks[-1]["usage"] == usage


def test_words_of_a_message() -> None:
    assert texts({"content": "one"}) == ["one"]
    assert texts(user("two", "data:")) == ["two"]
    assert texts({"content": None}) == []
