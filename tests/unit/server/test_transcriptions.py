"""`/v1/audio/transcriptions` and `/v1/audio/translations`: what is the same question, what is kept, who joins."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.unit.server.media_world import Answer, FakeUpstream, answer, asked, closed, proxy, refuse

from mmcache import Cache
from mmcache.model.errors import UpstreamError
from mmcache.server.calls import calls_of
from mmcache.server.exchange import Answered, Asked, BypassedError, Proxy
from mmcache.server.media.multipart import Field
from mmcache.server.transcriptions import ROUTES, flaw, form_of, key_bytes

PATH, OTHER = "/v1/audio/transcriptions", "/v1/audio/translations"
TYPE = [(b"content-type", b"multipart/form-data; boundary=xyz")]
WAV = b"RIFF$\0\0\0WAVEfmt " + bytes(100)
Piece = tuple[str, bytes] | tuple[str, bytes, str] | tuple[str, bytes, str, str]
FILE: Piece = ("file", WAV, "a.wav", "audio/wav")
MODEL: Piece = ("model", b"whisper-1")


def body(*pieces: Piece) -> bytes:
    found = b""
    for name, value, *more in pieces:
        head = f'Content-Disposition: form-data; name="{name}"'
        head += f'; filename="{more[0]}"' if more else ""
        head += f"\r\nContent-Type: {more[1]}" if len(more) > 1 else ""
        found += b"--xyz\r\n" + head.encode() + b"\r\n\r\n" + value + b"\r\n"
    return found + b"--xyz--\r\n"


def question(*pieces: Piece, file: Piece = FILE, model: Piece = MODEL, path: str = PATH, **more: Any) -> Asked:
    return asked(body(model, file, *pieces), headers=TYPE, path=path, **more)


@pytest.fixture
async def world() -> AsyncIterator[Proxy]:
    with Cache(memory="16MiB") as cache:
        one = proxy(cache, lambda raw: answer({"text": "hello", "usage": {"total_tokens": 7}}))
        yield one
        await closed(one)


def wire(world: Proxy) -> FakeUpstream:
    assert isinstance(world.upstream, FakeUpstream)
    return world.upstream


async def ask(world: Proxy, one: Asked) -> Answered:
    return await ROUTES["POST", one.path](one, world)


async def outcome(world: Proxy, one: Asked) -> str:
    return (await ask(world, one)).verdict.outcome


async def test_the_second_time_it_is_a_hit_that_says_what_it_saved(world: Proxy) -> None:
    first, second = await ask(world, question()), await ask(world, question())
    assert (first.verdict.outcome, second.verdict.outcome) == ("miss", "hit")
    assert first.body == second.body
    assert first.headers == second.headers == [(b"content-type", b"application/json")]
    assert (second.status, second.model, second.verdict.saved_tokens) == (200, "whisper-1", 7)
    assert second.verdict.age_seconds is not None
    assert wire(world).bodies == [question().body]


SAME: dict[str, Asked] = {
    "another order": asked(body(FILE, MODEL), headers=TYPE, path=PATH),
    "another boundary": asked(
        body(MODEL, FILE).replace(b"--xyz", b"--abc"), path=PATH,
        headers=[(b"content-type", b"multipart/form-data; boundary=abc")],
    ),
    "the default temperature": question(("temperature", b"0")),
    "the default temperature, as a fraction": question(("temperature", b"0.0")),
    "the default format": question(("response_format", b"json")),
    "no stream": question(("stream", b"false")),
    "another name of the file": question(file=("file", WAV, "b.wav", "audio/wav")),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
async def test_questions_that_are_the_same(name: str, world: Proxy) -> None:
    await ask(world, question())
    assert await outcome(world, SAME[name]) == "hit"


DIFFERENT: dict[str, Asked] = {
    "another file": question(file=("file", WAV + b"\0", "a.wav", "audio/wav")),
    "another ending": question(file=("file", WAV, "a.mp3", "audio/wav")),
    "no ending": question(file=("file", WAV, "wav", "audio/wav")),
    "another type": question(file=("file", WAV, "a.wav", "audio/mpeg")),
    "no type": question(file=("file", WAV, "a.wav")),
    "another model": question(model=("model", b"whisper-2")),
    "a language": question(("language", b"de")),
    "no language": question(("language", b"")),
    "a prompt": question(("prompt", b"a")),
    "a format": question(("response_format", b"verbose_json")),
    "words": question(("timestamp_granularities[]", b"word")),
    "what else": question(("include[]", b"logprobs")),
    "pieces": question(("chunking_strategy", b"auto")),
    "a seed": question(("seed", b"1")),
    "a temperature with a seed": question(("temperature", b"0.5"), ("seed", b"1")),
    "the other path": question(path=OTHER),
    "another tenant": question(tenant="bob"),
}


@pytest.mark.parametrize("name", DIFFERENT)
async def test_questions_that_are_not(name: str, world: Proxy) -> None:
    await ask(world, question())
    assert await outcome(world, DIFFERENT[name]) == "miss"
    assert await outcome(world, DIFFERENT[name]) == "hit"


async def test_values_do_not_run_into_each_other(world: Proxy) -> None:
    for one in (question(("language", b"ab"), ("prompt", b"c")), question(("language", b"a"), ("prompt", b"bc"))):
        assert await outcome(world, one) == "miss"
    granular = [("timestamp_granularities[]", b"word"), ("timestamp_granularities[]", b"segment")]
    assert await outcome(world, question(*granular)) == "miss"
    assert await outcome(world, question(granular[0])) == "miss"


async def test_versions_and_upstreams_share_nothing() -> None:
    with Cache(memory="16MiB") as cache:
        variants: list[dict[str, Any]] = [{}, {"version": "2"}, {"kind": "vllm"}]
        for settings in variants:
            one = proxy(cache, lambda raw: answer({"text": "hello"}), **settings)
            assert await outcome(one, question()) == "miss"
            await closed(one)


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (question(("surprise", b"1")), "unknown-field"),
        (question(("user", b"ann")), "unknown-field"),
        (question(("stream", b"true")), "stream"),
        (question(("stream", b"yes")), "stream"),
        (question(("temperature", b"0.2")), "not-deterministic"),
        (question(("temperature", b"warm")), "malformed"),
        (question(("temperature", b"0"), ("temperature", b"1")), "odd-form"),
        (question(("model", b"other")), "odd-form"),
        (question(FILE), "odd-form"),
        (question(("prompt", b"a", "prompt.txt")), "odd-form"),
        (question(file=("file", WAV)), "odd-form"),
        (question(model=("model", b"\xff")), "malformed"),
        (question(model=("model", b"")), "malformed"),
        (asked(body(MODEL), headers=TYPE, path=PATH), "malformed"),
        (asked(body(FILE), headers=TYPE, path=PATH), "malformed"),
        (asked(body(MODEL, FILE), path=PATH), "odd-form"),
        (asked(b"", headers=TYPE, path=PATH), "odd-form"),
        (question(no_store=True), "no-store"),
    ],
)
async def test_questions_that_are_passed_on(one: Asked, reason: str, world: Proxy) -> None:
    with pytest.raises(BypassedError) as error:
        await ask(world, one)
    assert error.value.reason == reason
    assert not wire(world).bodies


async def test_sampled_ones_where_the_rules_say_so(world: Proxy) -> None:
    one = question(("temperature", b"0.2"), sampled=True)
    assert [await outcome(world, one) for _ in range(2)] == ["miss", "hit"]
    assert await outcome(world, question(("temperature", b"0.3"), sampled=True)) == "miss"


JSON = b"application/json"


@pytest.mark.parametrize(
    ("wanted", "status", "kind", "said", "why"),
    [
        (b"json", 200, JSON, b'{"text": ""}', ""),
        (b"json", 200, JSON, b'{"text": "a"', "malformed-answer"),
        (b"json", 200, JSON, b'{"texts": "a"}', "malformed-answer"),
        (b"json", 200, JSON, b'{"text": "a", "error": {"code": 1}}', "malformed-answer"),
        (b"json", 200, b"text/plain", b'{"text": "a"}', "malformed-answer"),
        (b"verbose_json", 200, JSON, b'{"text": "a", "segments": []}', ""),
        (b"text", 200, b"text/plain; charset=utf-8", b"a\n", ""),
        (b"text", 200, JSON, b'"a"', ""),
        (b"text", 200, JSON, b'{"error": 1}', "malformed-answer"),
        (b"text", 200, b"text/html", b"<html>", "malformed-answer"),
        (b"srt", 200, b"application/x-subrip", b"1\n", ""),
        (b"vtt", 200, b"text/vtt", b"WEBVTT\n", ""),
        (b"vtt", 200, b"text/event-stream", b"data: 1\n\n", "malformed-answer"),
        (b"text", 200, b"", b"a", "malformed-answer"),
        (b"json", 500, JSON, b'{"text": "a"}', "error"),
        (b"json", 206, JSON, b'{"text": "a"}', "error"),
    ],
)
async def test_which_answers_are_kept(wanted: bytes, status: int, kind: bytes, said: bytes, why: str) -> None:
    headers = [(b"content-type", kind), (b"set-cookie", b"a=b"), (b"x-request-id", b"1")] if kind else []
    form = form_of([Field("model", b"m"), Field("file", b"f", b"f"), Field("response_format", wanted)])
    assert flaw(form, status, headers, said) == why
    with Cache(memory="16MiB") as cache:
        world = proxy(cache, lambda raw: Answer(status, headers, [said]))
        one = question(("response_format", wanted))
        first, second = await ask(world, one), await ask(world, one)
        assert (first.status, first.body, first.headers) == (status, said, headers)
        assert second.verdict.outcome == ("miss" if why else "hit")
        assert second.body == said
        if not why:
            assert second.headers == [(b"content-type", kind)]
        await closed(world)


async def test_answers_that_forbid_it_or_break_off_are_not_kept(world: Proxy) -> None:
    for headers in ([(b"cache-control", b"no-store")], [(b"content-encoding", b"gzip")]):
        wire(world).reply = lambda raw, headers=headers: Answer(
            200, [(b"content-type", JSON), *headers], [b'{"text":""}']
        )  # type: ignore[misc]
        assert [await outcome(world, question()) for _ in range(2)] == ["miss", "miss"]
    wire(world).reply = lambda raw: Answer(200, [(b"content-type", JSON)], [b'{"text":""}'], broken=True)
    for _ in range(2):
        with pytest.raises(UpstreamError):
            await ask(world, question())


async def test_directives(world: Proxy) -> None:
    missing = await ask(world, question(only_if_cached=True))
    assert (missing.status, missing.verdict.outcome) == (504, "miss")
    with pytest.raises(BypassedError, match="stream"):
        await ask(world, question(("stream", b"true"), only_if_cached=True))
    assert not wire(world).bodies
    await ask(world, question())
    assert await outcome(world, question(only_if_cached=True)) == "hit"
    assert await outcome(world, question(max_age=60.0)) == "hit"
    old = await ask(world, question(max_age=-1.0))
    assert (old.verdict.outcome, old.verdict.reason) == ("miss", "expired")
    wire(world).reply = lambda raw: answer({"text": "anew"})
    assert await outcome(world, question(no_cache=True)) == "miss"
    await calls_of(world).idle()
    assert json.loads(bytes((await ask(world, question())).body)) == {"text": "anew"}  # type: ignore[arg-type]


@pytest.mark.parametrize("where", ["rules", "cache"])
async def test_in_shadow_mode_everybody_asks_and_both_are_compared(where: str) -> None:
    seen: list[tuple[str, bool]] = []
    with Cache(memory="16MiB") as cache:
        plain = proxy(cache, lambda raw: answer({"text": "hello"}))
        world = Proxy(cache, plain.upstream, plain.settings, lambda path, same: seen.append((path, same)))
        shadow: dict[str, Any] = {"mode": "shadow"} if where == "rules" else {}
        await ask(world, question(**shadow))
        if where == "cache":
            cache.switch("shadow")
        one = await ask(world, question(**shadow))
        assert (one.verdict.outcome, one.verdict.reason) == ("miss", "shadow")
        wire(world).reply = lambda raw: answer({"text": "other"})
        await ask(world, question(**shadow))
        assert seen == [(PATH, True), (PATH, False)]
        assert len(wire(world).bodies) == 3
        await closed(world)


async def test_a_cache_that_is_off_or_closed(world: Proxy) -> None:
    world.cache.switch("off")
    with pytest.raises(BypassedError):
        await ask(world, question())
    world.cache.switch("on")
    world.cache.close()
    assert await outcome(world, question()) == "miss"


class Held:
    """An upstream whose answers wait until they are let go."""

    def __init__(self, make: Callable[[], Answer]) -> None:
        self.free, self.make, self.begun, self.given_up = asyncio.Event(), make, 0, 0
        self.first = asyncio.Event()

    async def send(self, *request: Any) -> Answer:
        self.begun += 1
        self.first.set()
        try:
            await self.free.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        return self.make()

    async def close(self) -> None:
        pass


def held(world: Proxy, make: Callable[[], Answer]) -> tuple[Proxy, Held]:
    upstream = Held(make)
    return Proxy(world.cache, upstream, world.settings, kept=world.kept, closers=world.closers), upstream


async def waiting(one: Proxy, count: int, **more: Any) -> list[asyncio.Task[Answered]]:
    tasks = [asyncio.create_task(ask(one, question(**more))) for _ in range(count)]
    for _ in range(100_000):
        calls = one.kept.get("mmcache.server.calls")
        if calls is not None and sum(call.waiting for call in calls._under_way.values()) == count:
            return tasks
        await asyncio.to_thread(int)
    raise AssertionError("they did not all ask or join")


async def test_who_asks_the_same_meanwhile_joins(world: Proxy) -> None:
    one, upstream = held(world, lambda: answer({"text": "hello"}))
    tasks = await waiting(one, 5)
    upstream.free.set()
    found = await asyncio.gather(*tasks)
    assert upstream.begun == 1
    assert sorted(each.verdict.outcome for each in found) == ["hit"] * 4 + ["miss"]
    assert {each.verdict.reason for each in found if each.verdict.outcome == "hit"} == {"joined"}
    assert {bytes(each.body) for each in found} == {b'{"text": "hello"}'}  # type: ignore[arg-type]


async def test_what_one_is_refused_is_not_for_those_who_joined(world: Proxy) -> None:
    one, upstream = held(world, lambda: answer({"error": {}}, 401))
    tasks = await waiting(one, 3)
    upstream.free.set()
    found = await asyncio.gather(*tasks)
    assert [each.status for each in found] == [401] * 3
    assert upstream.begun == 3


async def test_who_leaves_takes_nothing_from_those_who_stay(world: Proxy) -> None:
    one, upstream = held(world, lambda: answer({"text": "hello"}))
    tasks = await waiting(one, 2)
    tasks[0].cancel()
    await asyncio.wait([tasks[0]])
    upstream.free.set()
    assert (await tasks[1]).status == 200
    assert (upstream.begun, upstream.given_up) == (1, 0)


async def test_when_all_have_left_the_call_is_given_up(world: Proxy) -> None:
    one, upstream = held(world, lambda: answer({"text": "hello"}))
    (task,) = await waiting(one, 1)
    task.cancel()
    await asyncio.wait([task])
    for _ in range(100):
        await asyncio.to_thread(int)
        if upstream.given_up:
            break
    assert (upstream.begun, upstream.given_up) == (1, 1)
    assert await outcome(world, question()) == "miss"


async def test_a_large_file_is_read_in_a_thread_and_alike(world: Proxy) -> None:
    one = question(file=("file", WAV + bytes(300_000), "a.wav", "audio/wav"))
    assert [await outcome(world, one) for _ in range(2)] == ["miss", "hit"]


async def test_an_answer_at_rest_that_cannot_be_read_is_a_miss(world: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    await ask(world, question())
    monkeypatch.setattr("mmcache.server.answers_stored.VERSION", 2)
    found = await ask(world, question())
    assert (found.verdict.outcome, found.verdict.reason) == ("miss", "corrupt")


async def test_after_a_restart(tmp_path: Any) -> None:
    outcomes = []
    for reply in (lambda raw: answer({"text": "hello"}), refuse):
        with Cache(tmp_path, memory="16MiB") as cache:
            world = proxy(cache, reply)
            outcomes.append(await outcome(world, question()))
            await closed(world)
    assert outcomes == ["miss", "hit"]


def test_a_key_says_where_each_thing_ends() -> None:
    def told(*fields: Field) -> bytes:
        return key_bytes(form_of([Field("model", b"m"), Field("file", b"", b"a.wav", b"k"), *fields]), b"i" * 32)

    seen = {
        told(),
        told(Field("prompt", b"")),
        told(Field("prompt", b"language")),
        told(Field("language", b"prompt")),
        told(Field("prompt", b"a"), Field("language", b"b")),
        told(Field("prompt", b"b"), Field("language", b"a")),
        told(Field("include[]", b"a"), Field("include[]", b"b")),
        told(Field("include[]", b"b"), Field("include[]", b"a")),
        told(Field("include[]", b"ab")),
    }
    assert len(seen) == 9
