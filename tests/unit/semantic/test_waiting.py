"""Odd ways to wait for ever; and ledgers in a bad state."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.semantic.test_together import Slow
from tests.unit.semantic.world import MODEL, WORDINGS, picture, semantic, trust

from mmcache import Cache
from mmcache.model.errors import MMCacheError
from mmcache.semantic import meaning
from mmcache.semantic.ledger import FILE
from mmcache.semantic.planning import Plan
from mmcache.semantic.prompt import Prompt

ONE, OTHER, _ = WORDINGS["animal"]
ABOUT = partial(Prompt, pictures=[picture(1)])


def said(words: str) -> Callable[[Prompt], str]:
    """A model that always says the same."""
    return lambda prompt: words


def calibration(cache: Cache) -> Any:
    """That of `trust`."""
    assert cache.meaning.planner is not None
    learners = cache.meaning.planner.populations._learners.values()
    return next(one.calibration for one in learners if one.calibration.counts["taught"])  # type: ignore[attr-defined]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("form", ["ask", "ask_stream"])
def test_a_forked_child_waits_for_nothing_of_its_parent(form: str) -> None:
    go, begun = threading.Event(), threading.Event()

    def words(prompt: Prompt) -> Iterator[str]:
        yield "a"
        begun.set()
        assert go.wait(30)

    with Cache(semantic=semantic(check_share=0.001)) as cache:
        if form == "ask":
            trust(cache)
        slow = Slow()
        thread = threading.Thread(target=cache.ask, args=(ABOUT(ONE), slow), kwargs={"model": MODEL})
        thread.start()
        assert slow.begun.wait(30)
        stream = cache.ask_stream(Prompt("q"), words, model=MODEL)
        assert begun.wait(30)
        child = os.fork()
        if not child:
            answered = threading.Event()

            def ask() -> None:
                if form == "ask":
                    cache.ask(ABOUT(OTHER), said("own"), model=MODEL)
                else:
                    list(cache.ask_stream(Prompt("q"), lambda prompt: iter("c"), model=MODEL))
                answered.set()

            try:
                threading.Thread(target=ask, daemon=True).start()
                os._exit(int(not answered.wait(5)))
            finally:
                os._exit(2)
        slow.go.set()
        go.set()
        thread.join()
        list(stream)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_sync_question_on_the_loops_thread_waits_for_no_task_of_that_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "PATIENCE_SECONDS", 0.5)

    async def main() -> int:
        with Cache(semantic=semantic(check_share=0.001)) as cache:
            trust(cache)
            go, begun, waited = asyncio.Event(), asyncio.Event(), list[Plan]()

            async def slow(prompt: Prompt) -> str:
                begun.set()
                await go.wait()
                return "a"

            task = asyncio.create_task(cache.a.ask(ABOUT(ONE), slow, model=MODEL))
            await begun.wait()
            follow = cache.meaning.follow

            def followed(plan: Plan) -> Any:
                waited.append(plan)
                return follow(plan)

            monkeypatch.setattr(cache.meaning, "follow", followed)
            cache.ask(ABOUT(OTHER), said("b"), model=MODEL)
            go.set()
            await task
            return len(waited)

    assert asyncio.run(main()) == 0


def test_a_question_inside_an_answer_given_as_a_lambda_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "PATIENCE_SECONDS", 0.5)
    waited: list[int] = []

    async def main() -> None:
        with Cache(semantic=semantic(check_share=0.001)) as cache:
            trust(cache)

            async def nested(prompt: Prompt) -> str:
                task = asyncio.create_task(cache.a.ask(ABOUT(OTHER), said("inner"), model=MODEL))
                while not task.done():
                    waited.extend(1 for _ in cache.meaning.waiting())
                    await asyncio.sleep(0.001)
                return str(task.result().value)

            await cache.a.ask(ABOUT(ONE), lambda prompt: nested(prompt), model=MODEL)

    asyncio.run(main())
    assert not waited


def test_a_stream_that_could_not_start_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with Cache() as cache:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", full)
            with pytest.raises(RuntimeError, match="new thread"):
                cache.ask_stream(Prompt("q"), lambda prompt: iter("ab"), model=MODEL)
        read: list[str] = []
        stream = cache.ask_stream(Prompt("q"), lambda prompt: iter("ab"), model=MODEL)
        reader = threading.Thread(target=lambda: read.extend(stream), daemon=True)
        reader.start()
        reader.join(5)
        assert read == ["a", "b"]


def test_a_ledger_with_damaged_pages_is_set_aside(tmp_path: Path) -> None:
    with Cache(tmp_path, semantic=semantic()) as cache:
        for number in range(200):
            cache.ask(Prompt(f"question {number}"), said("x"), model=MODEL)
    ledger = sqlite3.connect(tmp_path / FILE)
    ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    ledger.close()
    data = bytearray((tmp_path / FILE).read_bytes())
    rng = np.random.default_rng(0)
    for at in range(2 * 4096, len(data), 4096):
        data[at : at + 4096] = rng.bytes(4096)
    (tmp_path / FILE).write_bytes(data)
    with Cache(tmp_path, semantic=semantic()) as cache:
        assert cache.ask(Prompt("question 1"), said("new"), model=MODEL).value == "new"
    assert list(tmp_path.glob(f"{FILE}.damaged-*"))


def test_a_ledger_that_cannot_be_opened_is_of_the_error_tree(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with Cache(tmp_path) as cache, contextlib.suppress(MMCacheError):
        assert cache.ask(Prompt("q"), said("x"), model=MODEL).value == "x"
