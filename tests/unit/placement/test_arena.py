"""The arena: whatever fits by number of pages is stored, and comes back bit for bit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mmcache.model.errors import ArenaError
from mmcache.placement.arena import Arena, PageList, fragmentation

PAGES, SHAPE = 24, (4, 8)


def features(tokens: int, channels: int, seed: int = 0) -> npt.NDArray[Any]:
    return np.random.default_rng(seed).standard_normal((tokens, channels)).astype(np.float16)


class ArenaMachine(RuleBasedStateMachine):
    """Stores, shares, moves, leases and releases in any order, against copies kept aside."""

    def __init__(self) -> None:
        super().__init__()
        self.arena = Arena(PAGES, SHAPE)
        self.held: list[tuple[PageList, npt.NDArray[Any]]] = []

    def used(self) -> set[int]:
        return {page for page_list, _ in self.held for page in page_list.pages}

    @rule(tokens=st.integers(0, 20), channels=st.integers(0, 20), seed=st.integers(0, 99))
    def store(self, tokens: int, channels: int, seed: int) -> None:
        array, free = features(tokens, channels, seed), PAGES - len(self.used())
        if self.arena.pages_for(tokens, channels) > free:
            with pytest.raises(ArenaError, match="pages are needed"):
                self.arena.store(array)
        else:
            self.held.append((self.arena.store(array), array))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        page_list, array = data.draw(st.sampled_from(self.held))
        start = data.draw(st.integers(0, page_list.tokens))
        stop = data.draw(st.integers(start, page_list.tokens))
        self.held.append((self.arena.share(page_list, start, stop), array[start:stop]))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        page_list, _ = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.arena.release(page_list)
        with pytest.raises(ArenaError, match="released"):
            self.arena.gather(page_list)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), leased=st.booleans())
    def compact(self, data: st.DataObject, leased: bool) -> None:
        at = data.draw(st.integers(0, len(self.held) - 1))
        page_list, array = self.held[at]
        if leased:
            with self.arena.lease(page_list):
                assert self.arena.compact(page_list) is page_list
        else:
            moved = self.arena.compact(page_list)
            assert moved is page_list or fragmentation([moved]) == 0.0
            self.held[at] = moved, array

    @invariant()
    def nothing_is_lost_or_mixed_up(self) -> None:
        self.arena.check()
        assert self.arena.free == PAGES - len(self.used())
        for page_list, array in self.held:
            gathered = self.arena.gather(page_list)
            assert gathered.dtype == array.dtype
            assert gathered.shape == array.shape
            assert gathered.tobytes() == array.tobytes()


TestArenaMachine = ArenaMachine.TestCase
TestArenaMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_there_is_no_external_fragmentation() -> None:
    arena = Arena(64)
    lists = [arena.store(features(64, 128, n)) for n in range(64)]
    for page_list in lists[::2]:
        arena.release(page_list)
    big = features(64 * 8, 128 * 4)
    scattered = arena.store(big)
    assert arena.free == 0
    assert fragmentation([scattered]) == 1.0
    assert (arena.gather(scattered) == big).all()


def test_runs_are_preferred() -> None:
    arena = Arena(20)
    lists = [arena.store(features(64, 128)) for _ in range(12)]
    for page_list in lists[2:6:2]:
        arena.release(page_list)
    assert fragmentation([arena.store(features(64 * 4, 256))]) == 0.0


@pytest.mark.parametrize(
    ("rows", "expected"),
    [((), 0.0), (((7,),), 0.0), (((1, 2, 3),), 0.0), (((1, 3),), 1.0), (((1, 2), (9, 4)), 0.5), (((4, 3),), 1.0)],
)
def test_fragmentation(rows: tuple[tuple[int, ...], ...], expected: float) -> None:
    assert fragmentation([PageList(rows, 1, 1)]) == expected


def test_pages_lie_aligned_and_cannot_be_written_from_outside() -> None:
    arena = Arena(3)
    assert arena.data.ctypes.data % 64 == 0
    assert arena.data[1].ctypes.data % 64 == 0
    with pytest.raises(ValueError, match="read-only"):
        arena.data[0, 0, 0] = 1


def test_padding_never_shows_what_another_block_left() -> None:
    arena = Arena(1)
    arena.release(arena.store(np.full((64, 128), 7, np.float16)))
    arena.store(np.ones((3, 5), np.float16))
    assert arena.data.sum() == 15


def test_a_lease_outlives_the_release() -> None:
    arena = Arena(2, SHAPE)
    array = features(8, 8)
    page_list = arena.store(array)
    with arena.lease(page_list):
        arena.release(page_list)
        assert arena.free == 0
        with pytest.raises(ArenaError, match="2 pages are needed, 0 of 2 are free"):
            arena.store(array)
        assert (arena.data[page_list.pages].reshape(8, 8) == array).all()
    assert arena.free == 2


@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 5), st.booleans())
def test_gathers_into_any_strides(tokens: int, channels: int, seed: int, transposed: bool) -> None:
    arena, array = Arena(64, SHAPE), features(tokens, channels, seed)
    out = np.zeros((channels, tokens), np.float16).T if transposed else np.zeros((2 * tokens, channels), "<f2")[::2]
    assert arena.gather(arena.store(array), out) is out
    assert (out == array).all()


def test_what_it_cannot_take() -> None:
    arena, other = Arena(4), Arena(4)
    page_list = arena.store(features(5, 5))
    for wrong in (features(5, 5).astype(np.float32), np.zeros(5, np.float16), np.zeros((1, 2, 3), np.float16)):
        with pytest.raises(ArenaError, match="stores"):
            arena.store(wrong)
    with pytest.raises(ArenaError, match="gathers"):
        arena.gather(page_list, np.zeros((5, 6), np.float16))
    with pytest.raises(ArenaError, match="not within"):
        arena.share(page_list, 3, 6)
    with pytest.raises(ArenaError, match="another arena"):
        other.release(page_list)
    with pytest.raises(ArenaError, match="at least one page"):
        Arena(0)


def test_threads_never_see_each_others_pages() -> None:
    arena = Arena(40, SHAPE)
    wrong: list[int] = []

    def work(worker: int) -> None:
        for turn in range(150):
            array = np.full((turn % 9 + 1, 11), worker, np.float16)
            page_list = arena.store(array)
            part = arena.share(page_list, turn % 3 and 1)
            arena.release(page_list)
            if (arena.gather(part) != worker).any():
                wrong.append(worker)
            arena.release(part)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert arena.free == 40
    arena.check()


class Interrupted:
    """An arena's lock; something happens just before it is taken, or just after."""

    def __init__(self, arena: Arena, before: Callable[[], object] = int, after: Callable[[], object] = int) -> None:
        self._lock, self._before, self._after = arena._lock, before, after

    def __enter__(self) -> None:
        before, self._before = self._before, int
        before()
        self._lock.acquire()
        after, self._after = self._after, int
        after()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def acquire(self, blocking: bool = True) -> bool:
        return self._lock.acquire(blocking)

    def release(self) -> None:
        self._lock.release()


def test_a_list_that_is_moved_while_it_is_to_be_compacted_keeps_its_bytes() -> None:
    arena = Arena(16, (2, 4))
    others = [arena.store(np.full((2, 4), n, np.float16)) for n in range(8)]
    apart = arena.store(np.full((2, 8), 50, np.float16))
    arena.move(apart, 1, 12)
    there = others[3], 0
    vars(arena)["_lock"] = Interrupted(arena, before=lambda: arena.move(apart, 0, others[3].pages[0], there))
    moved = arena.compact(apart)
    assert fragmentation([moved]) == 0.0
    assert (arena.gather(moved) == 50).all()
    assert (arena.gather(others[3]) == 3).all()
    arena.check()


def test_a_lease_that_was_given_up_ends_even_when_its_garbage_is_collected_under_the_lock() -> None:
    arena = Arena(8, (2, 4))
    page_list = arena.store(np.ones((2, 4), np.float16))

    def reading() -> Iterator[None]:
        with arena.lease(page_list):
            yield

    reader = reading()
    next(reader)
    kept = [reader]
    del reader
    vars(arena)["_lock"] = Interrupted(arena, after=kept.clear)  # what a collection would do at any allocation
    worker = threading.Thread(target=arena.release, args=(page_list,), daemon=True)
    worker.start()
    worker.join(60.0)
    assert not worker.is_alive()
    assert not kept
    assert arena.free == 8
    arena.check()


def test_what_was_released_under_a_lease_is_neither_moved_nor_exchanged() -> None:
    arena = Arena(8, (2, 4))
    gone, held = (arena.store(np.full((2, 4), n, np.float16)) for n in (1, 2))
    with arena.lease(gone) as pages:  # which is now all that holds its page
        arena.release(gone)
        assert arena.move(gone, 0, 7) == 0
        assert arena.move(gone, 0, held.pages[0], (held, 0)) == 0
        assert arena.move(held, 0, int(pages[0]), (gone, 0)) == 0
        assert arena.move(held, 0, int(pages[0])) == 0
        arena.store(np.full((12, 4), 3, np.float16))
        assert (arena.data[pages] == 1).all()
    assert arena.free == 1
    assert (arena.gather(held) == 2).all()
    arena.check()
