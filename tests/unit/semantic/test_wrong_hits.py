"""Odd ways to a wrong hit, or to a hit that nobody answers for."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.unit.semantic.test_together import Slow, until
from tests.unit.semantic.world import MODEL, WORDINGS, Model, picture, semantic, trust

from mmcache import Cache
from mmcache.model.errors import InvalidInputError, SettingsError, TierError
from mmcache.semantic.alias import Alias
from mmcache.semantic.judge import same_answer
from mmcache.semantic.ledger import FILE
from mmcache.semantic.openai import PLACE, prompt_of
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


def test_shadow_mode_serves_no_follower_of_a_pending_answer() -> None:
    slow, mine = Slow(), Slow()
    mine.truth = said("mine")
    with Cache(semantic=semantic(check_share=0.001)) as cache, ThreadPoolExecutor(6) as threads:
        trust(cache)
        cache.switch("shadow")
        leader = threads.submit(cache.ask, ABOUT(ONE), slow, model=MODEL)
        assert slow.begun.wait(30)
        asked = [threads.submit(cache.ask, ABOUT(OTHER), mine, model=MODEL) for _ in range(3)]
        until(lambda: len(cache.meaning.waiting()) == 2 or mine.begun.is_set())
        slow.go.set()
        mine.go.set()
        leader.result(30)
        assert [future.result(30).source for future in asked] == ["computed"] * 3


@pytest.mark.parametrize("near", [False, True], ids=["by a plain cache", "by one opened before"])
def test_a_changed_picture_is_found_by_no_near_prompt_after_a_restart(tmp_path: Path, near: bool) -> None:
    with Cache(tmp_path, semantic=semantic() if near else None) as other:
        _ = other.meaning
        with Cache(tmp_path, semantic=semantic()) as cache:
            cache.ask(ABOUT(ONE), said("old"), model=MODEL)
        with Cache(tmp_path, semantic=semantic(check_share=0.001)) as cache:
            trust(cache)
            other.changed("image", picture(1))
            for text in ONE, OTHER:
                assert cache.ask(ABOUT(text), said("new"), model=MODEL).value == "new"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_worker_hears_of_what_changed_before_its_first_request(tmp_path: Path) -> None:
    prompt = Prompt("How long is the warranty?", documents=["terms"])
    with Cache(tmp_path) as cache:
        cache.ask(prompt, said("old"), model=MODEL)
    with Cache(tmp_path) as cache:
        _ = cache.meaning
        ready, go = os.pipe()
        worker = os.fork()
        if not worker:
            try:
                os.read(ready, 1)
                os._exit(int(cache.ask(prompt, said("new"), model=MODEL).value != "new"))
            finally:
                os._exit(2)
        with Cache(tmp_path) as other:
            other.changed("document", "terms")
        os.write(go, b"!")
        assert os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == 0


def test_a_reader_that_writes_to_a_chunk_does_not_change_what_is_stored() -> None:
    go = threading.Event()

    def chunks(prompt: Prompt) -> Iterator[dict[str, str]]:
        yield {"text": "good"}
        assert go.wait(30)

    with Cache() as cache:
        reader = iter(cache.ask_stream(Prompt(ONE), chunks, model=MODEL))
        next(reader)["text"] = "poison"
        go.set()
        assert list(reader) == []
        until(lambda: cache.ask_stream(Prompt(ONE), chunks, model=MODEL).source == "exact")
        assert list(cache.ask_stream(Prompt(ONE), chunks, model=MODEL)) == [{"text": "good"}]


def test_nobody_follows_an_answer_that_was_invalidated_while_it_is_computed() -> None:
    slow = Slow()
    slow.truth = said("old")
    with Cache(semantic=semantic(check_share=0.001)) as cache, ThreadPoolExecutor(2) as threads:
        trust(cache)
        key = cache.ask(ABOUT(ONE), said("first"), model=MODEL).key
        assert key is not None
        cache.invalidate(key)
        leader = threads.submit(cache.ask, ABOUT(ONE), slow, model=MODEL)
        assert slow.begun.wait(30)
        cache.invalidate(key)
        follower = threads.submit(cache.ask, ABOUT(OTHER), said("new"), model=MODEL)
        until(lambda: follower.done() or bool(cache.meaning.waiting()))
        slow.go.set()
        leader.result(30)
        assert follower.result(30).value == "new"


def test_a_move_of_an_alias_that_cannot_be_written_down_is_noticed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    version = ["fp-1"]
    alias = Alias("latest", fingerprint=str)
    with Cache() as cache:
        ask = partial(cache.ask, answer=lambda prompt: version[0], model=alias)
        ask(Prompt("old"))
        version[0] = "fp-2"
        ledger = cache.meaning._ledger

        def full(source: bytes) -> int:
            raise TierError("disk full")

        with monkeypatch.context() as patched:
            patched.setattr(ledger, "changed", full)
            assert ask(Prompt("new")).value == "fp-2", "the model answered: the request must not fail"
        ask(Prompt("newer"))
        assert ask(Prompt("old")).value == "fp-2"


def test_records_that_are_another_keys_are_not_believed(tmp_path: Path) -> None:
    with Cache(tmp_path, semantic=semantic()) as cache:
        for number in (1, 2):
            cache.ask(Prompt(ONE, pictures=[picture(number)]), said(f"picture {number}"), model=MODEL)
    with sqlite3.connect(tmp_path / FILE) as ledger:
        (one, first), (two, second) = ledger.execute("SELECT number, record FROM entries ORDER BY number").fetchall()
        ledger.executemany("UPDATE entries SET record = ? WHERE number = ?", [(second, one), (first, two)])
    ledger.close()
    with Cache(tmp_path, semantic=semantic(check_share=0.001)) as cache:
        trust(cache)
        assert cache.ask(ABOUT(OTHER), said("computed"), model=MODEL).value == "computed"


def _chat(*messages: tuple[str, Any], **more: Any) -> Prompt:
    return prompt_of({"messages": [{"role": role, "content": content} for role, content in messages], **more})


def _texts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


DIFFERENT = {
    "place of a system message": (
        _chat(("system", "a"), ("user", "1"), ("system", "b"), ("user", "2")),
        _chat(("system", "a"), ("system", "b"), ("user", "1"), ("user", "2")),
    ),
    "where texts are cut": (
        _chat(("user", _texts(f"a{PLACE}b", "c"))),
        _chat(("user", _texts("a", f"b{PLACE}c"))),
    ),
    "a field called layout": (_chat(("user", "q"), layout="a"), _chat(("user", "q"), layout="b")),
    "order of documents": (Prompt("q", documents=["a", "b"]), Prompt("q", documents=["b", "a"])),
}


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT.keys())
def test_different_prompts_have_different_keys(one: Prompt, other: Prompt) -> None:
    with Cache() as cache:
        assert cache.ask(one, said("x"), model=MODEL).key != cache.ask(other, said("x"), model=MODEL).key


def test_a_picture_by_address_in_an_earlier_message_is_unknown() -> None:
    address = [{"type": "image_url", "image_url": {"url": "https://camera/now.jpg"}}]
    prompt = _chat(("user", address), ("assistant", "I see."), ("user", "What is on it?"))
    with Cache() as cache:
        assert cache.ask(prompt, said("x"), model=MODEL).key is None


@pytest.mark.parametrize(
    "part",
    [{"documents": "terms.pdf"}, {"documents": [1, "a"]}, {"documents": [b"x"]}, {"sampling": 0.5}, {"other": [1]}],
)
def test_parts_of_a_wrong_type_are_told(part: dict[str, Any]) -> None:
    with Cache() as cache, pytest.raises(InvalidInputError):
        cache.ask(Prompt(ONE, **part), said("x"), model=MODEL)


@pytest.mark.parametrize("how", ["bypass", "off", "unknown part"])
def test_who_steps_aside_gives_the_model_canonical_pictures_all_the_same(tmp_path: Path, how: str) -> None:
    from PIL import Image

    Image.new("RGB", (8, 8)).save(tmp_path / "picture.png")
    prompt = Prompt(ONE, pictures=[tmp_path / "picture.png"], other={"x": object()} if how == "unknown part" else {})
    with Cache() as cache:
        if how == "off":
            cache.switch("off")
        cache.ask(prompt, lambda given: given.pictures[0].size, model=MODEL, bypass=how == "bypass")


def test_where_all_must_be_checked_no_follower_is_served_unchecked() -> None:
    slow, own = Slow(), Slow()
    with Cache(semantic=semantic()) as cache, ThreadPoolExecutor(8) as threads:
        trust(cache)
        calibration(cache).ledger.resume(0.0, False)  # as right after calibrating: the share of checks is 1
        leader = threads.submit(cache.ask, ABOUT(ONE), slow, model=MODEL)
        assert slow.begun.wait(30)
        asked = [threads.submit(cache.ask, ABOUT(OTHER), own, model=MODEL) for _ in range(4)]
        until(lambda: len(cache.meaning.waiting()) == 3 or own.begun.is_set())
        slow.go.set()
        own.go.set()
        leader.result(30)
        assert "near" not in [future.result(30).source for future in asked]


def test_followers_of_an_answer_that_failed_earn_no_trust() -> None:
    slow = Slow()

    def failing(prompt: Prompt) -> str:
        slow(prompt)
        raise RuntimeError("out of memory")

    with Cache(semantic=semantic(check_share=0.001)) as cache, ThreadPoolExecutor(8) as threads:
        trust(cache)
        ledger = calibration(cache).ledger
        ledger.resume(5000.0, False)
        leader = threads.submit(cache.ask, ABOUT(ONE), failing, model=MODEL)
        assert slow.begun.wait(30)
        asked = [threads.submit(cache.ask, ABOUT(OTHER), said("own"), model=MODEL) for _ in range(4)]
        until(lambda: len(cache.meaning.waiting()) + sum(future.done() for future in asked) == 4)
        slow.go.set()
        assert leader.exception(30) is not None
        near = sum(future.result(30).source == "near" for future in asked)
        assert ledger.credit <= 5000.0 + near
        (found,) = [one for one in cache.meaning.report() if one.kind == "text+image"]
        assert found.near == near


def test_a_comparison_with_an_answer_under_way_is_learned_once_that_is_there() -> None:
    slow = Slow()
    with Cache(semantic=semantic()) as cache, ThreadPoolExecutor(1) as threads:
        leader = threads.submit(cache.ask, ABOUT(ONE), slow, model=MODEL)
        assert slow.begun.wait(30)
        assert cache.ask(ABOUT(OTHER), said("wrong"), model=MODEL).decision is not None
        slow.go.set()
        leader.result(30)
        (found,) = cache.meaning.report()
        assert found.compared == 1


def test_who_takes_over_a_cancelled_computation_is_learned_from() -> None:
    async def main() -> int:
        with Cache(semantic=semantic()) as cache:
            await cache.a.ask(ABOUT(ONE), said("a"), model=MODEL)
            go, begun = asyncio.Event(), asyncio.Event()

            async def slow(prompt: Prompt) -> str:
                begun.set()
                await go.wait()
                return "b"

            one = asyncio.create_task(cache.a.ask(ABOUT(OTHER), slow, model=MODEL))
            await begun.wait()
            other = asyncio.create_task(cache.a.ask(ABOUT(OTHER), slow, model=MODEL))
            flights = cache._flights._flights
            for _ in range(3000):
                await asyncio.sleep(0.001)
                if cache.stats().miss_reasons.get("abstained", 0) == 2 and flights:
                    break
            one.cancel()
            go.set()
            await other
            return cache.meaning.report()[0].compared

    assert asyncio.run(main()) == 1


def test_the_judge_does_not_flatten_powers() -> None:
    assert same_answer("10\N{SUPERSCRIPT TWO} m", "102 m") is False


def test_two_judges_without_a_name_share_no_promise() -> None:
    one, other = (
        semantic(judge=lambda stored, computed: True),
        semantic(judge=lambda stored, computed: stored == computed),
    )
    assert one.judge_name != other.judge_name


def test_the_report_knows_the_share_of_checks() -> None:
    model = Model()
    with Cache(semantic=semantic(check_share=0.3)) as cache:
        for number in range(700):
            for text in ONE, OTHER:
                cache.ask(Prompt(text, pictures=[picture(number)]), model, model=MODEL)
        (found,) = cache.meaning.report()
        share = calibration(cache).ledger.share
    assert found.state == f"serving, 1 of {1 / share:.0f} checked"


def test_no_checks_at_all_is_refused_at_once() -> None:
    with pytest.raises(SettingsError, match="check_share"):
        semantic(check_share=0.0)
