"""The compiled read path and its plain-Python twin give the same results."""

from __future__ import annotations

import threading
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
