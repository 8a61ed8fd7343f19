"""Two versions behind one function: who gets which, what is compared, what happens when the new one fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mmcache import Cache, Region, Row
from mmcache.model.errors import InvalidInputError, RolloutError, SettingsError
from mmcache.model.event import Failed
from mmcache.rollout import Rollout
from mmcache.rollout.assignment import place, within
from mmcache.rollout.board import Board
from mmcache.rollout.files import FileRecords


class Model:
    """Counts its calls; fails or changes on demand."""

    def __init__(self, value: float) -> None:
        self.value, self.calls = value, 0
        self.error: Exception | None = None

    def __call__(self, text: Any, *extra: Any) -> Any:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return np.array([self.value, 1.0])


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with Cache(tmp_path / "cache") as cache:
        yield cache


OLD, NEW = "v1", "v2"


def rollout(cache: Cache, old: Any, new: Any, **options: Any) -> Rollout:
    given: dict[str, Any] = {"modality": "text", "compare_share": 0.0} | options
    return Rollout(cache, "clip", {OLD: old, NEW: new}, **given)


def said(cache: Cache) -> list[str]:
    return [event.detail for event in cache.events.recent() if isinstance(event, Failed)]


def numbered(encode: Rollout, count: int) -> list[float]:
    return [float(encode.options(tenant=f"tenant {n}")(f"text {n}")[0]) for n in range(count)]


def test_a_share_of_the_tenants_gets_the_candidate(cache: Cache) -> None:
    encode = rollout(cache, Model(1.0), Model(2.0))
    assert set(numbered(encode, 50)) == {1.0}
    seed = encode.canary(NEW, percent=20).seed
    first = numbered(encode, 300)
    assert first == [2.0 if within(place(seed, f"tenant {n}"), 20) else 1.0 for n in range(300)]
    encode.canary(NEW, percent=40)
    more = numbered(encode, 300)
    assert all(b == 2.0 for a, b in zip(first, more, strict=True) if a == 2.0)
    assert more.count(2.0) > first.count(2.0)
    encode.promote()
    assert set(numbered(encode, 50)) == {2.0}
    encode.rollback()
    assert set(numbered(encode, 50)) == {1.0}
    assert encode.version() == OLD


def test_blocks_of_two_versions_never_meet_and_the_old_ones_are_found_again(cache: Cache) -> None:
    old, new = Model(1.0), Model(2.0)
    encode = rollout(cache, old, new)
    encode("x")
    encode.canary(NEW, percent=100)
    assert encode("x")[0] == 2.0
    encode.promote()
    assert encode("x")[0] == 2.0
    encode.rollback()
    assert encode("x")[0] == 1.0
    assert (old.calls, new.calls) == (1, 1)


def test_one_tenant_is_split_by_its_sessions(cache: Cache) -> None:
    encode = rollout(cache, Model(1.0), Model(2.0))
    encode.canary(NEW, percent=50)
    sessions = [float(encode.options(unit=f"session {n}")("x")[0]) for n in range(100)]
    assert set(sessions) == {1.0, 2.0}
    assert sessions == [float(encode.options(unit=f"session {n}")("x")[0]) for n in range(100)]


def test_a_sample_is_answered_by_both_and_compared(cache: Cache) -> None:
    encode = rollout(cache, Model(1.0), Model(1.0), compare_share=1.0)
    encode.canary(NEW, percent=100)
    for n in range(10):
        encode(f"text {n}")
    counts = encode.counts()
    assert (counts.candidate, counts.compared, counts.differed) == (10, 10, 0)
    assert counts.mean == pytest.approx(1.0)


def test_a_changed_shape_and_nan_count_as_different_and_harm_nobody(cache: Cache) -> None:
    answers = [np.ones(3), np.array([np.nan, 1.0]), {"renamed": np.ones(2)}, "text"]
    encode = rollout(cache, Model(1.0), lambda text: answers[int(text)], compare_share=1.0)
    encode.canary(NEW, percent=100)
    for n, answer in enumerate(answers):
        assert str(encode(str(n))) == str(answer)
    counts = encode.counts()
    assert (counts.compared, counts.differed, counts.lowest) == (4, 4, 0.0)


def test_a_failing_candidate_costs_the_caller_nothing_and_is_held(cache: Cache) -> None:
    new = Model(2.0)
    encode = rollout(cache, Model(1.0), new, halt_after=3)
    encode.canary(NEW, percent=100)
    assert encode("well")[0] == 2.0
    new.error = RuntimeError("out of memory")
    for n in range(10):
        assert encode(f"text {n}")[0] == 1.0
    assert new.calls == 4  # after three it is left alone
    assert encode.counts().failed == 3
    assert "failed 3 times in a row" in encode.state().hold
    assert "RuntimeError('out of memory')" in encode.state().hold
    with pytest.raises(RolloutError, match="on hold"):
        encode.promote()
    new.error = None
    encode.canary(NEW, percent=100)
    assert encode("again")[0] == 2.0


def test_an_error_that_cannot_even_be_printed_costs_the_caller_nothing(cache: Cache) -> None:
    class UnprintableError(Exception):
        def __repr__(self) -> str:
            raise self

    new = Model(2.0)
    new.error = UnprintableError()
    encode = rollout(cache, Model(1.0), new, halt_after=1)
    encode.canary(NEW, percent=100)
    assert encode("x")[0] == 1.0
    assert "Unprintable" in encode.state().hold


def test_a_call_of_an_older_trial_says_nothing_of_the_newer_one(cache: Cache) -> None:
    encode = rollout(cache, Model(1.0), Model(2.0), compare_share=1.0, halt_after=2)
    old = encode.canary(NEW, percent=100)
    encode.rollback()
    new = encode.canary(NEW, percent=100)
    trial = encode._trial
    assert not trial.failed(new, ValueError())
    for _ in range(2):
        assert not trial.failed(old, ValueError())
        assert not trial.compared(old, np.zeros(1), np.ones(1))
    assert trial.failed(new, ValueError())
    assert (encode.counts().failed, encode.counts().compared) == (2, 0)


def test_errors_that_are_not_in_a_row_do_not_hold_it(cache: Cache) -> None:
    new = Model(2.0)
    encode = rollout(cache, Model(1.0), new, halt_after=2)
    encode.canary(NEW, percent=100)
    for n in range(10):
        new.error = RuntimeError("now and then") if n % 2 else None
        encode(f"text {n}")
    assert encode.state().trying
    assert encode.counts().failed == 5


def test_what_fails_with_both_is_the_callers_own_fault(cache: Cache) -> None:
    old, new = Model(1.0), Model(2.0)
    old.error = new.error = ValueError("no such picture")
    encode = rollout(cache, old, new, halt_after=1)
    encode.canary(NEW, percent=100)
    with pytest.raises(ValueError, match="no such picture"):
        encode("x")
    with pytest.raises(InvalidInputError):
        encode(b"\xff\xfe not a text")
    assert encode.counts().failed == 0
    assert encode.state().trying


def test_low_agreement_holds_it_where_a_bound_was_set(cache: Cache) -> None:
    encode = rollout(cache, Model(1.0), Model(-1.0), compare_share=1.0, halt_below=0.9)
    encode.canary(NEW, percent=100)
    found = [float(encode(f"text {n}")[0]) for n in range(30)]
    assert found == [-1.0] * 20 + [1.0] * 10
    assert "its mean agreement with v1 is 0.0000 over 20 calls, below 0.9" in encode.state().hold


def test_a_measure_that_fails_is_no_agreement(cache: Cache) -> None:
    def measure(one: Any, other: Any) -> float:
        raise KeyError("features")

    encode = rollout(cache, Model(1.0), Model(2.0), compare_share=1.0, compare=measure)
    encode.canary(NEW, percent=100)
    assert encode("x")[0] == 2.0
    assert (encode.counts().compared, encode.counts().differed) == (1, 1)
    assert any("KeyError" in each for each in said(cache))


def test_a_stable_version_that_fails_while_comparing_costs_nothing(cache: Cache) -> None:
    old = Model(1.0)
    encode = rollout(cache, old, Model(2.0), compare_share=1.0)
    encode.canary(NEW, percent=100)
    old.error = RuntimeError("gone")
    assert encode("x")[0] == 2.0
    assert encode.counts().compared == 0


def test_a_program_without_the_version_stays_on_stable_and_says_so(cache: Cache) -> None:
    encode = Rollout(cache, "clip", {OLD: Model(1.0)}, modality="text")
    board = Board(FileRecords(cache.root))  # type: ignore[arg-type]
    board.canary("clip", "v9", 100)
    encode._watch.look()
    for n in range(5):
        assert encode(f"text {n}")[0] == 1.0
    assert encode.counts().unknown == 5
    board.promote("clip")
    encode._watch.look()
    assert encode("x")[0] == 1.0  # what it has of what was stable
    board.canary("clip", "v10", 5)
    assert [each for each in said(cache) if "v9" in each] == [
        "this program has no v9, only v1: it stays on what it has; deploy the new one"
    ] * 2  # once as a candidate, once as stable


def test_a_decision_survives_a_restart(tmp_path: Path) -> None:
    for begin in (True, False):
        with Cache(tmp_path) as cache:
            encode = rollout(cache, Model(1.0), Model(2.0))
            if begin:
                encode.canary(NEW, percent=5)
                encode.promote()
            assert encode("x")[0] == 2.0


def test_without_a_folder_it_is_this_processes_own() -> None:
    with Cache() as cache:
        encode = rollout(cache, Model(1.0), Model(2.0))
        encode.canary(NEW, percent=100)
        assert encode("x")[0] == 2.0


def test_every_way_to_call_it(cache: Cache) -> None:
    def size(value: float) -> Callable[..., Any]:
        return lambda picture, times=1: np.array([value * times, *picture.size])

    encode = Rollout(cache, "clip", {OLD: size(1.0), NEW: size(2.0)}, modality="image")
    picture = Image.effect_noise((32, 16), 50)
    for expected in (1.0, 2.0):
        assert encode(picture)[0] == expected
        assert encode(picture, 3)[0] == expected * 3
        assert encode.region(picture, Region.whole(32, 16).crop((0, 0, 8, 8))).tolist() == [expected, 8, 8]
        assert encode.batch([picture, picture], stack=True).shape == (2, 3)
        assert encode.tiles(picture, tile=16).tolist() == [[expected, 16, 16]] * 2
        assert encode.frames([picture, picture]).tolist() == [[expected, 32, 16]] * 2
        assert asyncio.run(encode.a(picture))[0] == expected
        assert asyncio.run(encode.abatch([picture]))[0][0] == expected
        assert cache.get(encode.key(picture))[0] == expected
        row, straight = Row("pictures", 1), encode.options(bypass=True)  # by row it needs a shared tier
        assert straight.row(row, lambda: picture)[0] == expected
        assert asyncio.run(straight.arow(row, lambda: picture))[0] == expected
        version, output = encode.versioned(picture)
        assert (version, output[0]) == ((OLD, 1.0) if expected == 1.0 else (NEW, 2.0))
        if expected == 1.0:
            encode.canary(NEW, percent=100)


def test_the_async_twin_falls_back_compares_and_holds(cache: Cache) -> None:
    new = Model(2.0)
    encode = rollout(cache, Model(1.0), new, compare_share=1.0, halt_after=2)
    encode.canary(NEW, percent=100)

    async def run() -> None:
        assert (await encode.a("well"))[0] == 2.0
        new.error = RuntimeError("no")
        for n in range(4):
            assert (await encode.a(f"text {n}"))[0] == 1.0

    asyncio.run(run())
    assert (encode.counts().compared, encode.counts().failed) == (1, 2)
    assert encode.state().hold


def test_encoders_and_signatures_of_ones_own(cache: Cache) -> None:
    old = cache.wrap(Model(1.0), modality="text", signature="encoder 1")
    encode = Rollout(cache, "clip", {OLD: old, NEW: (Model(2.0), "encoder 2")}, modality="text")
    assert encode("x")[0] == 1.0
    assert encode.encoder(NEW).signature.model_version == "encoder 2"
    model = Model(1.0)
    with pytest.raises(SettingsError, match="v1 and v2 have the same signature"):
        Rollout(cache, "other", {OLD: (model, "encoder 1"), NEW: (model, "encoder 1")}, modality="text")
    for wrong in ({"compare_share": 2}, {"halt_after": 0}, {"halt_below": float("nan")}, {"compare": 3}):
        with pytest.raises(SettingsError):
            rollout(cache, model, Model(2.0), **wrong)
    with pytest.raises(SettingsError, match="needs a version"):
        Rollout(cache, "clip", {}, modality="text")
    with pytest.raises(TypeError, match="options\\(\\) has no tenat"):
        encode.options(tenat="x")
    with pytest.raises(SettingsError, match="this program has no v7"):
        encode.canary("v7", percent=5)


def test_threads_count_every_call(cache: Cache) -> None:
    encode = rollout(cache, Model(1.0), Model(2.0), compare_share=0.5)
    encode.canary(NEW, percent=50)

    def work(part: int) -> None:
        for n in range(100):
            encode.options(unit=f"{part} {n}")(f"text {n}")

    threads = [threading.Thread(target=work, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = encode.counts()
    assert counts.stable + counts.candidate == 400
    assert counts.compared > 0
    assert counts.mean == pytest.approx(0.9486, abs=0.01)  # cosine of (1, 1) and (2, 1)
