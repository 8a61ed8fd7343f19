"""The compiled read path and its plain-Python twin give the same results."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from contextvars import Context, ContextVar
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.model.clock import SystemClock
from mmcache.model.key import Key
from mmcache.tiers.hit_index import Entry, HitIndex, PythonHitIndex, hit_index

compiled = pytest.importorskip("mmcache.tiers._hit_index", reason="the C extension was not built here")

KEYS = [Key(bytes([n]) * 16, bytes(16)) for n in range(6)]
CAPACITY = 4


class Manual:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def twins(entries: dict[Key, Entry], clock: Manual) -> list[HitIndex]:
    def below(key: Key, default: Any) -> Any:
        return ("below", key, default)

    return [
        compiled.HitIndex(entries, below, CAPACITY, clock.monotonic),
        PythonHitIndex(entries, below, CAPACITY, clock.monotonic),
    ]


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["peek", "fresh", "get", "touched", "drain", "put", "put-maker", "drop", "tick"]),
        st.integers(0, len(KEYS) - 1),
        st.one_of(st.none(), st.floats(0, 5)),
    ),
    max_size=60,
)


@given(OPERATIONS)
def test_any_sequence_of_calls_gives_equal_results(operations: list[tuple[str, int, float | None]]) -> None:
    entries: dict[Key, Entry] = {}
    clock = Manual()
    one, other = twins(entries, clock)
    for name, n, deadline in operations:
        key = KEYS[n]
        if name == "put":
            entries[key] = (n, None, deadline, None, 1, None if deadline is None else deadline - 1.0)
        elif name == "put-maker":
            entries[key] = (None, partial(list, [n]), deadline, None, 1, deadline)
        elif name == "drop":
            entries.pop(key, None)
        elif name == "tick":
            clock.now += 1.0
        elif name == "drain":
            assert one.drain() == other.drain()
        else:
            assert getattr(one, name)(key) == getattr(other, name)(key)
        assert one.hits == other.hits


@pytest.mark.parametrize("which", [0, 1])
def test_hits_are_counted_exactly_under_threads(which: int) -> None:
    entries: dict[Key, Entry] = {key: (n, None, None, None, 1, None) for n, key in enumerate(KEYS)}
    index = twins(entries, Manual())[which]
    calls, threads = 20_000, 4

    def run() -> None:
        for i in range(calls):
            assert index.peek(KEYS[i % len(KEYS)]) == i % len(KEYS)

    workers = [threading.Thread(target=run) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert index.hits == calls * threads


@pytest.mark.parametrize("which", [0, 1])
def test_an_error_in_a_maker_reaches_the_caller(which: int) -> None:
    def broken() -> object:
        raise LookupError("maker")

    index = twins({KEYS[0]: (None, broken, None, None, 1, None)}, Manual())[which]
    with pytest.raises(LookupError, match="maker"):
        index.peek(KEYS[0])


@pytest.mark.parametrize("entry", [None, (), (1, None, None), [1, None, None, None, 1, None]])
def test_what_is_no_entry_is_an_error_and_never_read_beyond(entry: Any) -> None:
    with pytest.raises(TypeError, match="tuple of 6"):
        compiled.HitIndex({1: entry}, print, 4).peek(1)


def test_misuse_is_an_error() -> None:
    with pytest.raises(TypeError):
        compiled.HitIndex({}, print, 4).peek()
    with pytest.raises(ValueError, match="power of two"):
        compiled.HitIndex({}, print, 3)
    with pytest.raises(TypeError):
        compiled.HitIndex([], print, 4)
    with pytest.raises(TypeError, match="unhashable"):
        compiled.HitIndex({}, print, 4).peek([])


class Stopped(SystemClock):
    def monotonic(self) -> float:
        return 0.0


def test_a_clock_made_from_the_systems_is_asked_too() -> None:
    ended_long_ago: Entry = ("value", None, 1.0, None, 1, 1.0)  # for the machine, not for this clock
    index = hit_index({KEYS[0]: ended_long_ago}, lambda key, default: default, CAPACITY, Stopped())
    assert index.peek(KEYS[0]) == "value"


def held(count: int = len(KEYS)) -> dict[Key, Entry]:
    return {key: (n, None, None, None, 1, None) for n, key in enumerate(KEYS[:count])}


@given(OPERATIONS, st.integers(1, 9))
def test_both_twins_sample_the_same_hits(operations: list[tuple[str, int, float | None]], every: int) -> None:
    entries = held(3)
    sinks: list[list[tuple[Key, int, Context]]] = [[], []]
    indexes = twins(entries, Manual())
    for index, sink in zip(indexes, sinks, strict=True):
        index.sample(every, sink.append)
    hits = 0
    for name, n, _ in operations:
        if name in ("peek", "fresh", "get", "touched"):
            for index in indexes:
                getattr(index, name)(KEYS[n])
            hits += name != "touched" and n < 3
    one, other = ([key for key, _, _ in sink] for sink in sinks)
    assert one == other
    assert every > 1 or len(one) == hits
    assert indexes[0].hits == indexes[1].hits >= hits


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("every", [2, 10, 100])
def test_one_in_every_is_sampled_whatever_the_period_of_the_load(which: int, every: int) -> None:
    index = twins(held(2), Manual())[which]
    seen: list[tuple[Key, int, Context]] = []
    index.sample(every, seen.append)
    hits = 40_000
    for n in range(hits):  # the second key's period is `every`: a fixed gap would see it always or never
        index.peek(KEYS[n % every == 0])
    assert len(seen) == pytest.approx(hits / every, rel=0.1)
    rare = sum(key == KEYS[1] for key, _, _ in seen)
    assert rare == pytest.approx(hits / every**2, rel=0.25, abs=8)


@pytest.mark.parametrize("which", [0, 1])
def test_what_was_found_without_the_index_is_not_told_and_changes_no_share(which: int) -> None:
    index = twins(held(2), Manual())[which]
    seen: list[tuple[Key, int, Context]] = []
    index.sample(10, seen.append)
    for _ in range(20_000):
        index.touched(KEYS[1])
        index.peek(KEYS[0])
    assert {key for key, _, _ in seen} == {KEYS[0]}
    assert len(seen) == pytest.approx(2_000, rel=0.1)
    assert index.hits == 40_000


@pytest.mark.parametrize("which", [0, 1])
def test_a_sample_has_key_time_and_the_readers_context(which: int) -> None:
    index = twins(held(), Manual())[which]
    seen: list[tuple[Key, int, Context]] = []
    index.sample(1, seen.append)
    variable: ContextVar[str] = ContextVar("variable")
    variable.set("here")
    before = time.time_ns()
    index.peek(KEYS[2])
    ((key, at, context),) = seen
    assert key is KEYS[2]
    assert before <= at <= time.time_ns()
    assert context[variable] == "here"


@pytest.mark.parametrize("which", [0, 1])
def test_a_sink_that_fails_fails_no_hit_and_an_interrupt_passes(which: int) -> None:
    index = twins(held(), Manual())[which]

    def fails(sampled: object) -> None:
        raise LookupError("sink")

    def interrupted(sampled: object) -> None:
        raise KeyboardInterrupt

    index.sample(1, fails)
    assert (index.peek(KEYS[1]), index.fresh(KEYS[1]), index.get(KEYS[1])) == (1, 1, 1)
    index.sample(1, interrupted)
    for read in (index.peek, index.fresh, index.get):
        with pytest.raises(KeyboardInterrupt):
            read(KEYS[1])
    index.sample(1, None)
    assert index.peek(KEYS[1]) == 1


@pytest.mark.parametrize("which", [0, 1])
def test_a_sink_may_take_itself_away_and_is_let_go(which: int) -> None:
    index = twins(held(), Manual())[which]

    class Once:
        def __call__(self, sampled: object) -> None:
            index.sample(1, None)

    sink = Once()
    gone = weakref.ref(sink)
    index.sample(1, sink)
    del sink
    assert index.peek(KEYS[1]) == 1
    gc.collect()
    assert gone() is None
    assert index.peek(KEYS[1]) == 1


@pytest.mark.parametrize("which", [0, 1])
def test_an_error_of_a_maker_is_no_sample(which: int) -> None:
    index = twins({KEYS[0]: (None, lambda: 1 // 0, None, None, 1, None)}, Manual())[which]
    seen: list[object] = []
    index.sample(1, seen.append)
    with pytest.raises(ZeroDivisionError):
        index.peek(KEYS[0])
    assert seen == []


@pytest.mark.parametrize("which", [0, 1])
def test_all_hits_of_all_threads_are_sampled(which: int) -> None:
    index = twins(held(), Manual())[which]
    seen: list[object] = []
    index.sample(1, seen.append)

    def run() -> None:
        for n in range(5_000):
            index.peek(KEYS[n % len(KEYS)])

    workers = [threading.Thread(target=run) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(seen) == index.hits == 20_000


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("every", [0, -1, 1 << 31])
def test_one_in_none_is_an_error(which: int, every: int) -> None:
    with pytest.raises(ValueError, match="every must be from 1"):
        twins({}, Manual())[which].sample(every, print)
