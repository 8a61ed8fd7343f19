"""Many at once: equal prompts, near-equal prompts, streams."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from tests.unit.semantic.world import MODEL, WORDINGS, Model, picture, semantic, trust

from mmcache import Cache
from mmcache.semantic.prompt import Prompt
from mmcache.semantic.settings import Reply

ONE, OTHER, _ = WORDINGS["animal"]
CALLERS = 16


class Slow(Model):
    """Answers once `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.begun = threading.Event()

    def __call__(self, prompt: Prompt) -> str:
        with self.lock:
            self.calls += 1
        self.begun.set()
        assert self.go.wait(30)
        return self.truth(prompt)


def until(condition: Callable[[], bool]) -> None:
    """Waits for another thread's doing."""
    waiting = threading.Event()
    for _ in range(3000):
        if condition():
            return
        waiting.wait(0.01)
    raise AssertionError("it never came")


def test_sixteen_equal_prompts_are_one_call() -> None:
    model = Slow()
    with Cache(semantic=semantic()) as cache, ThreadPoolExecutor(CALLERS) as threads:
        asked = [
            threads.submit(cache.ask, Prompt(ONE, pictures=[picture(1)]), model, model=MODEL) for _ in range(CALLERS)
        ]
        assert model.begun.wait(30)
        model.go.set()
        values = {future.result(30).value for future in asked}
    assert len(values) == 1
    assert model.calls == 1


def test_sixteen_near_equal_prompts_are_one_call_where_that_is_trusted() -> None:
    slow = Slow()
    with Cache(semantic=semantic(check_share=0.001)) as cache, ThreadPoolExecutor(CALLERS) as threads:
        trust(cache)
        ask = partial(cache.ask, model=MODEL)
        leader = threads.submit(ask, Prompt(ONE, pictures=[picture(1)]), slow)
        assert slow.begun.wait(30)
        followers = [threads.submit(ask, Prompt(OTHER, pictures=[picture(1)]), slow) for _ in range(CALLERS - 1)]
        until(lambda: len(cache.meaning.waiting()) >= CALLERS - 1 or slow.calls > 1)
        slow.go.set()
        replies = [leader.result(30), *(future.result(30) for future in followers)]
    assert slow.calls == 1
    assert {reply.value for reply in replies} == {slow.truth(Prompt(ONE, pictures=[picture(1)]))}
    assert [reply.source for reply in replies] == ["computed"] + ["near"] * (CALLERS - 1)


def test_near_equal_prompts_are_computed_apart_before_that_is_learned() -> None:
    slow = Slow()
    with Cache(semantic=semantic()) as cache, ThreadPoolExecutor(2) as threads:
        asked = [
            threads.submit(cache.ask, Prompt(text, pictures=[picture(1)]), slow, model=MODEL) for text in (ONE, OTHER)
        ]
        until(lambda: slow.calls == 2)
        slow.go.set()
        assert [future.result(30).source for future in asked] == ["computed"] * 2


def test_who_waits_for_an_answer_that_fails_computes() -> None:
    model, slow = Model(), Slow()

    def failing(prompt: Prompt) -> str:
        slow(prompt)
        raise RuntimeError("out of memory")

    with Cache(semantic=semantic(check_share=0.001)) as cache, ThreadPoolExecutor(2) as threads:
        trust(cache)
        leader = threads.submit(cache.ask, Prompt(ONE, pictures=[picture(1)]), failing, model=MODEL)
        assert slow.begun.wait(30)
        follower = threads.submit(cache.ask, Prompt(OTHER, pictures=[picture(1)]), model, model=MODEL)
        until(lambda: bool(cache.meaning.waiting()) or follower.done())
        slow.go.set()
        with pytest.raises(RuntimeError, match="out of memory"):
            leader.result(30)
        assert follower.result(30).source == "computed"


def test_a_question_inside_an_answer_waits_for_nobody() -> None:
    model = Model()
    with Cache(semantic=semantic(check_share=0.001)) as cache:
        ask = partial(cache.ask, model=MODEL)
        trust(cache)

        def nested(prompt: Prompt) -> str:
            return str(ask(Prompt(OTHER, pictures=[picture(1)]), model).value)

        assert ask(Prompt(ONE, pictures=[picture(1)]), nested).value.startswith("animal")


def test_async_twins() -> None:
    model = Model()

    async def answer(prompt: Prompt) -> str:
        await asyncio.sleep(0)
        return model(prompt)

    async def main() -> list[Reply]:
        with Cache(semantic=semantic()) as cache:
            prompt = Prompt(ONE, pictures=[picture(1)])
            replies = await asyncio.gather(*(cache.a.ask(prompt, answer, model=MODEL) for _ in range(CALLERS)))
            replies.append(await cache.a.ask(prompt, model, model=MODEL))
            replies.append(await cache.a.ask(prompt, model, model=MODEL, bypass=True))
            return replies

    *together, exact, bypassed = asyncio.run(main())
    assert model.calls == 2
    assert {reply.value for reply in together} == {exact.value}
    assert (exact.source, bypassed.source) == ("exact", "computed")


def test_async_followers_of_a_near_equal_prompt() -> None:
    model = Model()

    async def main() -> tuple[int, list[str]]:
        with Cache(semantic=semantic(check_share=0.001)) as cache:
            trust(cache)
            go, calls = asyncio.Event(), [0]

            async def answer(prompt: Prompt) -> str:
                calls[0] += 1
                await go.wait()
                return model.truth(prompt)

            leader = asyncio.create_task(cache.a.ask(Prompt(ONE, pictures=[picture(1)]), answer, model=MODEL))
            while not calls[0]:
                await asyncio.sleep(0)
            others = [
                asyncio.create_task(cache.a.ask(Prompt(OTHER, pictures=[picture(1)]), answer, model=MODEL))
                for _ in range(CALLERS - 1)
            ]
            while len(cache.meaning.waiting()) < CALLERS - 1 and calls[0] == 1:
                await asyncio.sleep(0)
            go.set()
            replies = await asyncio.gather(leader, *others)
            return calls[0], [reply.source for reply in replies]

    calls, sources = asyncio.run(main())
    assert calls == 1
    assert sources == ["computed"] + ["near"] * (CALLERS - 1)


# Streams ------------------------------------------------------------------------------------------------------------


def test_followers_join_a_stream_from_its_first_chunk() -> None:
    calls, go = [0], threading.Event()

    def words(prompt: Prompt) -> Iterator[str]:
        calls[0] += 1
        yield "a"
        assert go.wait(30)
        yield "b"

    with Cache() as cache:
        first = iter(cache.ask_stream(Prompt(ONE), words, model=MODEL))
        assert next(first) == "a"
        second = cache.ask_stream(Prompt(ONE), words, model=MODEL)
        reader = iter(second)
        assert next(reader) == "a"
        go.set()
        assert (list(first), list(reader), list(second)) == (["b"], ["b"], ["a", "b"])
        until(lambda: cache.ask_stream(Prompt(ONE), words, model=MODEL).source == "exact")
        assert list(cache.ask_stream(Prompt(ONE), words, model=MODEL)) == ["a", "b"]
        assert cache.ask(Prompt(ONE), lambda prompt: "whole", model=MODEL).value == "whole", "another form of answer"
    assert calls == [1]


def test_a_stream_whose_readers_leave_is_stored_all_the_same() -> None:
    model = Model()
    with Cache() as cache:
        next(iter(cache.ask_stream(Prompt(ONE), model.stream, model=MODEL)))
        until(lambda: cache.ask_stream(Prompt(ONE), model.stream, model=MODEL).source == "exact")


def test_a_stream_that_fails_fails_for_all_and_is_not_stored() -> None:
    go = threading.Event()

    def failing(prompt: Prompt) -> Iterator[str]:
        yield "a"
        assert go.wait(30)
        raise RuntimeError("out of memory")

    with Cache() as cache:
        streams = [cache.ask_stream(Prompt(ONE), failing, model=MODEL) for _ in range(2)]
        readers = [iter(stream) for stream in streams]
        assert [next(reader) for reader in readers] == ["a", "a"]
        go.set()
        for reader in readers:
            with pytest.raises(RuntimeError, match="out of memory"):
                next(reader)
        assert next(iter(cache.ask_stream(Prompt(ONE), Model().stream, model=MODEL))) == "animal"


def test_near_equal_prompts_join_a_stream_that_they_trust() -> None:
    model = Model()
    go = threading.Event()

    def words(prompt: Prompt) -> Iterator[str]:
        for word in model.stream(prompt):
            yield word
            assert go.wait(30)

    with Cache(semantic=semantic(check_share=0.001)) as cache:
        stream = partial(cache.ask_stream, model=MODEL)
        trust(cache, form="stream")
        calls = model.calls
        leader = stream(Prompt(ONE, pictures=[picture(1)]), words)
        assert next(iter(leader)) == "animal"
        follower = stream(Prompt(OTHER, pictures=[picture(1)]), words)
        assert next(iter(follower)) == "animal"
        go.set()
        assert list(leader) == list(follower)
        assert follower.source == "near"
        assert model.calls == calls + 1


def test_async_streams() -> None:
    calls = [0]

    async def words(prompt: Prompt) -> AsyncIterator[str]:
        calls[0] += 1
        for word in "a", "b", "c":
            await asyncio.sleep(0)
            yield word

    async def read(stream: Any) -> list[str]:
        return [chunk async for chunk in stream]

    async def main() -> None:
        with Cache() as cache:
            streams = await asyncio.gather(
                *(cache.a.ask_stream(Prompt(ONE), words, model=MODEL) for _ in range(CALLERS))
            )
            assert await asyncio.gather(*map(read, streams)) == [["a", "b", "c"]] * CALLERS
            exact = await cache.a.ask_stream(Prompt(ONE), words, model=MODEL)
            assert (exact.source, await read(exact)) == ("exact", ["a", "b", "c"])
            plain = await cache.a.ask_stream(Prompt(OTHER), Model().stream, model=MODEL)
            assert (await read(plain))[0] == "animal"
            aside = await cache.a.ask_stream(Prompt(ONE), words, model=MODEL, bypass=True)
            assert await read(aside) == ["a", "b", "c"]

    asyncio.run(main())
    assert calls == [2]
