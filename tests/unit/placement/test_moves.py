"""Moves: bounded, stopped where they do not pay, and never under a lease."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from mmcache.placement.arena import Arena, PageList, fragmentation, runs, scattered
from mmcache.placement.moves import LEARNED, PLANNED, REPLAN, Mover, Price
from mmcache.placement.ordering import Together

CHEAP = Price(seam=1.0, page=0.01)


def filled(pages: int, blocks: int, *, spare: int = 0, seed: int = 0) -> tuple[Arena, dict[int, PageList]]:
    """One block a page, in random order; block n is full of n."""
    arena = Arena(pages + spare, (2, 8))
    order = np.random.default_rng(seed).permutation(blocks)
    return arena, {int(n): arena.store(np.full((2, 8), n, np.float16)) for n in order}


def mover(arena: Arena, lists: dict[int, PageList], price: Price = CHEAP) -> Mover:
    made = Mover(arena, Together(), price=price)
    for name, page_list in lists.items():
        made.add(name, page_list)
    return made


def gathered(lists: dict[int, PageList], group: int) -> PageList:
    return PageList((tuple(sorted(page for n in range(group, group + 5) for page in lists[n].pages)),), 1, 1)


def use(made: Mover, groups: range, times: int = 1) -> None:
    for _ in range(times):
        for group in groups:
            made.used(range(group, group + 5))


def settled(made: Mover) -> int:
    """Pages copied by so many ticks as it takes to learn all that was gathered, and to do what follows from it."""
    copied = 0
    while True:
        done = made.tick(1000)
        copied += done.copied
        if not done.left and not made._seen:
            return copied


@pytest.mark.parametrize(("spare", "left"), [(0, 0.1), (20, 0.0)])
def test_what_is_gathered_together_comes_to_lie_side_by_side(spare: int, left: float) -> None:
    arena, lists = filled(50, 50, spare=spare)
    made, groups = mover(arena, lists), range(0, 50, 5)
    assert fragmentation([gathered(lists, group) for group in groups]) > 0.6
    use(made, groups)
    for _ in range(30):
        assert made.tick(7).copied <= 7
    assert fragmentation([gathered(lists, group) for group in groups]) <= left
    assert all((arena.gather(page_list) == n).all() for n, page_list in lists.items())
    arena.check()


def test_it_stops_when_there_is_nothing_left_to_do() -> None:
    arena, lists = filled(50, 50)
    made, groups = mover(arena, lists), range(0, 50, 5)
    copied = []
    for _ in range(40):
        use(made, groups, 30)
        copied.append(settled(made))
    assert sum(copied[2:]) == 0
    assert made.resting
    assert made.plans < 12  # each that finds nothing doubles the time until the next


def test_it_never_starts_where_it_does_not_pay() -> None:
    arena, lists = filled(50, 50)
    made = mover(arena, lists, Price(seam=1.0, page=10.0))
    use(made, range(0, 50, 5), 3)
    assert settled(made) == 0
    use(made, range(0, 50, 5), REPLAN)
    assert settled(made) > 0


def test_leased_and_shared_pages_stay_where_they_are() -> None:
    arena, lists = filled(50, 50)
    made = mover(arena, lists)
    shared = arena.share(lists[7])
    use(made, range(0, 50, 5))
    places = {n: lists[n].pages for n in (3, 7)}
    with arena.lease(lists[3]):
        while made.tick(50).left:
            pass
        assert {n: lists[n].pages for n in (3, 7)} == places
    assert (arena.gather(shared) == 7).all()
    arena.check()


def test_a_lease_taken_after_the_plan_is_kept_too() -> None:
    arena, lists = filled(50, 50)
    made = mover(arena, lists)
    use(made, range(0, 50, 5))
    assert made.tick(2).left > 0
    with arena.lease(*lists.values()):
        done = made.tick(1000)
        assert done.copied == 0
        assert done.kept > 0


def test_released_blocks_and_strangers_are_no_obstacle() -> None:
    arena, lists = filled(40, 30, spare=10)
    stranger = arena.store(np.full((4, 8), 99, np.float16))
    made = mover(arena, lists)
    use(made, range(0, 30, 5))
    made.tick(4)
    for n in (2, 11):
        arena.release(lists.pop(n))
    newcomer = arena.store(np.full((2, 8), 55, np.float16))
    for _ in range(20):
        use(made, range(0, 30, 5), 60)
        settled(made)
    assert len(made) == 28
    assert (arena.gather(stranger) == 99).all()
    assert (arena.gather(newcomer) == 55).all()
    assert all((arena.gather(page_list) == n).all() for n, page_list in lists.items())
    arena.check()


def test_blocks_of_many_pages_are_laid_whole() -> None:
    arena = Arena(60, (2, 8))
    holes = [arena.store(np.zeros((2, 8), np.float16)) for _ in range(60)]
    for page_list in holes[::2]:
        arena.release(page_list)
    lists = {n: arena.store(np.full((8, 8), n, np.float16)) for n in range(5)}  # 4 pages each, all apart
    for page_list in holes[1::2]:
        arena.release(page_list)
    made = mover(arena, lists)
    use(made, range(0, 5, 5), 2)
    made.tick(100)
    assert runs(sorted(page for n in range(5) for page in lists[n].pages)) == 1
    assert all((arena.gather(page_list) == n).all() for n, page_list in lists.items())


def test_gathers_whole_pages() -> None:
    arena, lists = filled(20, 20)
    wanted = [lists[n] for n in (4, 9, 2)]
    found = arena.gather_pages(wanted)
    assert [float(page[0, 0]) for page in found] == [4.0, 9.0, 2.0]
    out = np.zeros((5, 2, 8), np.float16)
    assert np.shares_memory(arena.gather_pages(wanted, out), out)
    assert (out[:3] == found).all()
    assert arena.gather_pages([]).shape == (0, 2, 8)


def test_counts_of_runs() -> None:
    assert (runs([]), runs([3]), runs([3, 4, 9, 5, 6])) == (0, 1, 3)
    assert (scattered([]), scattered([3]), scattered([3, 4, 9, 5, 6])) == (0, 0, 1)


def test_a_tick_is_bounded_whatever_was_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    arena, lists = filled(2000, 2000, spare=500)
    made, steps = mover(arena, lists), 0
    place = Mover._place

    def counted(pages: npt.NDArray[np.int64], fixed: npt.NDArray[np.bool_]) -> int | None:
        nonlocal steps
        steps += 1
        return place(pages, fixed)

    monkeypatch.setattr(Mover, "_place", staticmethod(counted))
    use(made, range(0, 2000, 5), 10)
    ticks, planning = 0, 0
    while True:
        steps, learned = 0, made.together.gathers
        done = made.tick(64)
        assert made.together.gathers - learned <= LEARNED
        assert steps <= PLANNED
        assert done.copied <= 64
        ticks, planning = ticks + 1, planning + (made._planning is not None)
        if not done.left and not made._seen:
            break
    assert made.plans >= 1
    assert planning > 3  # one plan, over several ticks
    use(made, range(0, 2000, 5))
    settled(made)
    assert fragmentation([gathered(lists, group) for group in range(0, 2000, 5)]) < 0.1
    arena.check()


def test_a_block_that_comes_again_with_fewer_pages_after_the_plan() -> None:
    arena = Arena(40, (2, 4))
    lists = {n: arena.store(np.full((8, 4), n, np.float16)) for n in range(8)}
    made = mover(arena, lists)
    for _ in range(50):
        made.used([0, 5, 2, 7, 3])
    assert made.tick(2).left > 0
    for n in lists:
        arena.release(lists[n])
        lists[n] = arena.store(np.full((2, 4), n, np.float16))
        made.add(n, lists[n])
    settled(made)
    assert all((arena.gather(page_list) == n).all() for n, page_list in lists.items())
    arena.check()


def test_blocks_that_go_while_a_plan_is_made() -> None:
    arena, lists = filled(2000, 2000)
    made = mover(arena, lists)
    use(made, range(0, 2000, 5))
    assert made.tick(64).left == 1
    for n in range(0, 2000, 3):
        arena.release(lists.pop(n))
        made.remove(n)
    settled(made)
    assert all((arena.gather(page_list) == n).all() for n, page_list in lists.items())
    arena.check()
