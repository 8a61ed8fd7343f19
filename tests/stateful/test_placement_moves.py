"""Moves under everything that may go on meanwhile: whoever holds a lease sees his bytes, where he saw them."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mmcache.model.errors import ArenaError
from mmcache.placement.arena import Arena, PageList
from mmcache.placement.moves import Mover, Price
from mmcache.placement.ordering import Together

PAGES, SHAPE = 32, (2, 4)
PRICE = Price(seam=1.0, page=0.01)


def features(tokens: int, channels: int, seed: int) -> npt.NDArray[Any]:
    return np.random.default_rng(seed).standard_normal((tokens, channels)).astype(np.float16)


class MovesMachine(RuleBasedStateMachine):
    """Blocks come, go, are shared, leased and gathered between any two steps of a mover."""

    def __init__(self) -> None:
        super().__init__()
        self.arena = Arena(PAGES, SHAPE)
        self.mover = Mover(self.arena, Together(horizon=50, most_edges=40), price=PRICE)
        self.held: dict[int, tuple[PageList, npt.NDArray[Any]]] = {}
        self.leases: list[tuple[ExitStack, list[int], npt.NDArray[Any]]] = []
        """Each with the page numbers that it saw, and what was there."""
        self.made = 0

    @rule(tokens=st.integers(1, 8), channels=st.integers(1, 8), movable=st.booleans())
    def store(self, tokens: int, channels: int, movable: bool) -> None:
        array = features(tokens, channels, self.made)
        if self.arena.pages_for(tokens, channels) > self.arena.free:
            with pytest.raises(ArenaError, match="pages are needed"):
                self.arena.store(array)
            return
        self.held[self.made] = self.arena.store(array), array
        if movable:
            self.mover.add(self.made, self.held[self.made][0])
        self.made += 1

    @precondition(lambda self: self.held)
    @rule(data=st.data(), told=st.booleans())
    def release(self, data: st.DataObject, told: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.held)))
        self.arena.release(self.held.pop(name)[0])
        if told:
            self.mover.remove(name)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), movable=st.booleans())
    def share(self, data: st.DataObject, movable: bool) -> None:
        page_list, array = self.held[data.draw(st.sampled_from(sorted(self.held)))]
        start = data.draw(st.integers(0, page_list.tokens))
        self.held[self.made] = self.arena.share(page_list, start), array[start:]
        if movable:
            self.mover.add(self.made, self.held[self.made][0])
        self.made += 1

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.held)))
        page_list, array = self.held[name]
        self.held[name] = self.arena.compact(page_list), array

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def lease(self, data: st.DataObject) -> None:
        names = data.draw(st.lists(st.sampled_from(sorted(self.held)), min_size=1, max_size=4))
        lists = [self.held[name][0] for name in names]
        stack = ExitStack()
        stack.enter_context(self.arena.lease(*lists))
        pages = [page for page_list in lists for page in page_list.pages]
        self.leases.append((stack, pages, self.arena.data[pages].copy()))

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def end_of_a_lease(self, data: st.DataObject) -> None:
        self.leases.pop(data.draw(st.integers(0, len(self.leases) - 1)))[0].close()

    @rule(names=st.lists(st.integers(0, 12), max_size=6), times=st.integers(1, 20))
    def used(self, names: list[int], times: int) -> None:
        for _ in range(times):
            self.mover.used(names)

    @rule(pages=st.integers(0, 9))
    def tick(self, pages: int) -> None:
        self.mover._next_plan = 0  # plans whenever it has nothing queued
        assert self.mover.tick(pages).copied <= max(2, pages)

    @precondition(lambda self: any(page_list.rows for page_list, _ in self.held.values()))
    @rule(data=st.data(), to=st.integers(0, PAGES - 1), exchange=st.booleans())
    def move(self, data: st.DataObject, to: int, exchange: bool) -> None:
        names = sorted(name for name, (page_list, _) in self.held.items() if page_list.rows)
        page_list = self.held[data.draw(st.sampled_from(names))][0]
        there = [(one, one.pages.index(to)) for one, _ in self.held.values() if to in one.pages]
        at = data.draw(st.integers(0, len(page_list.pages) - 1))
        source, held = page_list.pages[at], {page for _, pages, _ in self.leases for page in pages}
        occupant = there[0] if there and exchange else None
        done = self.arena.move(page_list, at, to, occupant)
        if held & {source, to} or len(there) > 1:
            assert done == 0
        elif (
            source != to and not there and [one for one, _ in self.held.values() if source in one.pages] == [page_list]
        ):
            assert done == 1
            self.mover = Mover(self.arena, self.mover.together, price=PRICE)  # which nobody told of it
            for name, (one, _) in self.held.items():
                self.mover.add(name, one)
        assert page_list.pages[at] == (to if done else source)

    @invariant()
    def leased_pages_hold_what_they_held(self) -> None:
        for _, pages, seen in self.leases:
            assert self.arena.data[pages].tobytes() == seen.tobytes()

    @invariant()
    def every_list_says_where_its_bytes_are(self) -> None:
        for page_list, array in self.held.values():
            assert self.arena.gather(page_list).tobytes() == array.tobytes()

    def teardown(self) -> None:
        for stack, _, _ in self.leases:
            stack.close()
        self.arena.check()
        for page_list, _ in self.held.values():
            self.arena.release(page_list)
        assert self.arena.free == PAGES


TestMovesMachine = MovesMachine.TestCase
TestMovesMachine.settings = settings(
    max_examples=80, stateful_step_count=40, deadline=None, derandomize=True,
    phases=[phase for phase in Phase if phase is not Phase.explain],  # it takes minutes
)  # fmt: skip


def test_readers_and_writers_while_everything_moves() -> None:
    """Blocks full of their own number: whoever reads another number was lied to."""
    arena = Arena(160, SHAPE)
    mover = Mover(arena, Together(horizon=200), price=PRICE)
    lists = {n: arena.store(np.full((4, 4), n, np.float16)) for n in range(60)}
    for name, page_list in lists.items():
        mover.add(name, page_list)
    wrong: list[str] = []
    done = threading.Event()

    def read(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(400):
            names = random.integers(0, 60, 5).tolist()
            chosen = [lists[name] for name in names]
            expected = np.repeat(names, 2)
            pages = arena.gather_pages(chosen)
            if (pages[:, 0, 0] != expected).any() or (pages != pages[:, :1, :1]).any():
                wrong.append(f"gathered {names}")
            with arena.lease(*chosen):
                places = [page for page_list in chosen for page in page_list.pages]
                seen = arena.data[places].copy()
                mover.used(names)
                if (arena.data[places] != seen).any() or (seen[:, 0, 0] != expected).any():
                    wrong.append(f"leased {names}")

    def write(seed: int) -> None:
        for turn in range(200):
            mine = arena.store(np.full((2 + turn % 5, 4), 500 + seed, np.float16))
            part = arena.share(mine, 1)
            arena.release(mine)
            if (arena.gather(part) != 500 + seed).any():
                wrong.append("a stranger's block")
            arena.release(part)

    def move() -> None:
        while not done.is_set():
            mover._next_plan = 0
            mover.tick(16)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    workers = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
    workers += [threading.Thread(target=write, args=(seed,)) for seed in range(2)]
    moving = threading.Thread(target=move)
    try:
        for thread in (moving, *workers):
            thread.start()
        for thread in workers:
            thread.join()
    finally:
        done.set()
        moving.join()
        sys.setswitchinterval(before)
    assert not wrong
    arena.check()
    assert mover.plans > 0
    assert all((arena.gather(page_list) == n).all() for n, page_list in lists.items())
