"""What holds whatever comes: budgets, memory, samples, and who is kept apart."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcache.model.event import Evicted, EvictReason, Missed, MissReason, Stored
from mmcache.model.key import Key
from mmcache.prefetch.budget import Budget, TokenBucket
from mmcache.prefetch.options import BehaviourSettings
from mmcache.prefetch.planning import Planner, Visit
from mmcache.prefetch.remembered import LARGEST_SHARE, OVERHEAD, Remembered
from mmcache.prefetch.work import Queue, Retries, Task
from mmcache.prefetch.worth import Trust, Worth, WorthSettings, wilson

quick = settings(max_examples=60, deadline=None, derandomize=True)
seconds = st.floats(0.0, 20.0, allow_nan=False)


def key(realm: int, number: int) -> Key:
    return Key(bytes([realm]) * 16, number.to_bytes(16))


class Recipe:
    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, ttl: float | None) -> int:
        raise AssertionError("nobody computes here")


@quick
@given(
    rate=st.floats(0.0, 100.0),
    burst=st.floats(1.0, 500.0),
    steps=st.lists(st.tuples(seconds, st.floats(0.0, 300.0)), max_size=60),
)
def test_no_span_of_time_sees_more_than_its_budget(rate: float, burst: float, steps: list[tuple[float, float]]) -> None:
    bucket, now, spent = TokenBucket(rate, burst), 0.0, []
    for pause, amount in steps:
        now += pause
        if bucket.left(now) > 0:
            bucket.spend(amount, now)
            spent.append((now, amount))
    for begin in range(len(spent)):
        for end in range(begin, len(spent)):
            whole = [amount for _, amount in spent[begin : end + 1]]
            span = spent[end][0] - spent[begin][0]
            assert sum(whole[:-1]) <= burst + rate * span + max(whole) + 1e-6


@quick
@given(steps=st.lists(st.tuples(seconds, st.integers(0, 10_000)), max_size=80))
def test_computations_and_bytes_are_both_bounded(steps: list[tuple[float, int]]) -> None:
    budget, now, computed, brought = Budget(1000, 0.5, 10), 0.0, 0, 0
    for pause, size in steps:
        now += pause
        if budget.may_compute(now):
            budget.computes(now)
            budget.brought(size, now)
            computed, brought = computed + 1, brought + size
    assert computed <= 5 + 0.5 * now + 1e-6
    assert brought <= 10_000 + 1000 * now + 10_000


def test_a_budget_of_nothing_allows_nothing() -> None:
    budget = Budget(0, 0)
    assert not budget.may_bring(0.0)
    assert not budget.may_bring(1e9)


def test_time_that_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(1.0, 10.0)
    bucket.spend(10.0, 100.0)
    assert bucket.left(50.0) == bucket.left(100.0) == 0.0
    assert bucket.left(101.0) == pytest.approx(1.0)


@quick
@given(limit=st.integers(0, 50_000), sizes=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 40_000)), max_size=80))
def test_recipes_stay_within_their_bytes(limit: int, sizes: list[tuple[int, int]]) -> None:
    kept = Remembered(limit)
    for number, size in sizes:
        taken = kept.add(key(1, number), Recipe(size))
        assert taken == (size + OVERHEAD <= limit * LARGEST_SHARE)
        assert (kept.get(key(1, number)) is not None) == taken
        assert 0 <= kept.bytes <= limit
    for number in range(31):
        kept.forget(key(1, number))
    assert kept.bytes == len(kept) == 0


@quick
@given(
    tasks=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 3), st.floats(0, 1), seconds), max_size=100),
    most=st.integers(1, 20),
)
def test_a_queue_keeps_the_likeliest(tasks: list[tuple[int, int, float, float]], most: int) -> None:
    queue = Queue(most, 30.0)
    best: dict[int, float] = {}
    for number, lag, probability, since in tasks:
        queue.offer(Task(key(1, number), 1, probability, since, since, lag=lag))
        best[number] = max(probability, best.get(number, 0.0))
        assert len(queue) <= most
    taken = []
    while (task := queue.take(20.0)) is not None:
        taken.append(task)
    assert len(queue) == 0
    assert len({task.key for task in taken}) == len(taken)
    assert [task.lag for task in taken] == sorted(task.lag for task in taken)
    if best and len(best) <= most:
        assert len(taken) == len(best)


def test_what_waited_too_long_is_not_brought() -> None:
    queue = Queue(4, 30.0)
    queue.offer(Task(key(1, 1), 1, 0.5, 0.0, 10.0))
    assert queue.take(9.0) is None
    assert len(queue) == 1
    assert queue.take(30.0) is None
    assert len(queue) == 0


@quick
@given(seed=st.integers(0, 1000), tries=st.integers(1, 5))
def test_back_off_doubles_within_its_jitter_and_gives_up(seed: int, tries: int) -> None:
    retries, now = Retries(tries, 1.0, 600.0, seed), 0.0
    for count in range(tries - 1):
        due = retries.failed(key(1, 1), now)
        assert due is not None
        assert 0.5 * 2**count <= due - now <= 2**count
        assert not retries.may(key(1, 1), due - 0.01)
        assert retries.may(key(1, 1), due)
        now = due
    assert retries.failed(key(1, 1), now) is None
    assert not retries.may(key(1, 1), now + 599)
    assert retries.may(key(1, 1), now + 600)


def test_failures_are_remembered_within_bounds() -> None:
    retries = Retries(3, 1.0, 600.0, 0)
    for number in range(Retries.MOST + 10):
        retries.failed(key(2, number), 0.0)
    assert len(retries) == Retries.MOST
    assert retries.may(key(2, 0), 0.0)
    retries.succeeded(key(2, 20))
    assert retries.may(key(2, 20), 0.0)


@quick
@given(used=st.integers(0, 200), unused=st.integers(0, 200))
def test_wilsons_interval_holds_the_share(used: int, unused: int) -> None:
    low, high = wilson(used, used + unused)
    assert 0.0 <= low <= high <= 1.0
    if used + unused:
        assert low - 1e-12 <= used / (used + unused) <= high + 1e-12


@quick
@given(outcomes=st.lists(st.tuples(st.booleans(), seconds), min_size=1, max_size=300))
def test_nothing_is_brought_on_trust_that_was_not_shown(outcomes: list[tuple[bool, float]]) -> None:
    worth = Worth(WorthSettings(first=8, sample=4, window=16, ahead=32))
    now, since = 0.0, 0
    for used, pause in outcomes:
        now += pause
        room = worth.room(now)
        if worth.trust is Trust.PAUSED:
            assert room == 0
            assert now < worth.paused_until <= now + 3600
            since = 0
            continue
        if worth.trust is Trust.PROVING:
            assert room + since <= 8
        if room:
            since += 1
            if worth.settle(worth.brought(), used, now):
                since = 0
                assert worth.room(now) == 0


def test_what_is_never_used_costs_one_sample_a_pause() -> None:
    worth, brought, now = Worth(), 0, 0.0
    while now < 86_400:
        while worth.room(now):
            worth.settle(worth.brought(), False, now)
            brought += 1
        now += 10.0
    assert brought <= 32 + 16 * (6 + 24)  # pauses of 1, 2, 4 … 32 minutes, then an hour each


def test_a_share_that_falls_ends_trust_and_one_that_comes_back_brings_it_back() -> None:
    worth, now, draw = Worth(), 0.0, random.Random(1)
    for share, expected in ((0.7, Trust.TRUSTED), (0.05, Trust.PAUSED), (0.7, Trust.TRUSTED)):
        for _ in range(400):
            now += 30.0 if share > 0.1 else 0.1
            if worth.room(now):
                worth.settle(worth.brought(), draw.random() < share, now)
        assert worth.trust is expected


def test_a_late_use_counts() -> None:
    worth = Worth(WorthSettings(first=4, sample=4, window=8, ahead=8))
    block = worth.brought()
    worth.settle(block, False, 0.0)
    assert (worth.used, worth.settled) == (0, 1)
    worth.settle(block, True, 9.0)
    worth.settle(block, False, 10.0)
    assert (worth.used, worth.settled) == (1, 1)


SMALL = BehaviourSettings(
    latency_seconds=0.0, misses_a_minute=0.0, sessions=50, nodes=40, edges=200, queue=16, window=16, first_sample=16,
    sample=8, tries=2,
)  # fmt: skip


def world(seed: int, realms: int, keys: int, visits: int) -> Planner:
    """Random sessions of several realms with the same names; nothing is ever held, so all that is likely is brought."""
    draw = random.Random(seed)
    planner, now = Planner(SMALL, lower=bool(seed % 2)), 0.0
    for _ in range(visits):
        now += draw.expovariate(1.0)
        realm, number = draw.randrange(realms), draw.randrange(keys)
        wanted = key(realm, number)
        if draw.random() < 0.3:
            planner.heard([Missed(wanted, MissReason.ABSENT), Stored(wanted, "memory", 10, 0.2)], now)
        planner.visited(Visit(realm, draw.choice("abc"), wanted, now), now)
        planner.step(now, under_way=0, held=lambda _: False, realm=lambda one: one.scope[0])
        while (task := planner.next(now, 0)) is not None:
            if draw.random() < 0.2:
                planner.failed(task, ValueError(), 0.1, now)
            elif draw.random() < 0.1:
                planner.stopped(task, 0.1, now)
            else:
                planner.brought(task, 100, cost=0.1, computed=True, now=now)
        if draw.random() < 0.1:
            planner.heard([Evicted(wanted, "memory", EvictReason.SPACE, 10)], now)
        s = planner.settings
        assert planner.realms.sessions <= s.sessions
        assert planner.realms.nodes <= s.nodes
        assert planner.realms.edges <= s.edges
        assert len(planner.queue) <= s.queue
        assert len(planner.outstanding) <= 4 * s.window + 1
        counts = planner.counts
        assert 0 <= counts.used + counts.wasted <= counts.promoted + counts.computed
    return planner


def test_no_realm_pushes_out_the_recipes_of_another() -> None:
    kept = Remembered(100_000)
    for number in range(20):
        assert kept.add(key(1, number), Recipe(1000), "quiet")
    for number in range(2000):
        assert kept.add(key(2, number % 1500), Recipe(2000), "loud")
        assert kept.bytes <= kept.limit_bytes
    assert all(kept.get(key(1, number)) for number in range(20))
    for number in range(20):
        kept.forget(key(1, number))
    assert set(kept._of) == set(kept._sizes) == {"loud"}
    assert kept.bytes == kept._sizes["loud"]
    kept.clear()
    assert (len(kept._of), len(kept._sizes), kept.bytes) == (0, 0, 0)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000))
def test_memory_is_bounded_whatever_is_looked_for(seed: int) -> None:
    world(seed, realms=1, keys=400, visits=200)
    world(seed, realms=3, keys=6, visits=200)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(visits=st.lists(st.tuples(st.integers(0, 2), st.sampled_from("ab"), st.integers(0, 3)), max_size=80))
def test_no_realm_makes_work_for_another(visits: list[tuple[int, str, int]]) -> None:
    """Sessions of one name in several realms, interleaved: all that is queued is of the realm that was visited last."""
    planner, now = Planner(replace(SMALL, queue=256), lower=False), 0.0
    for realm, name, number in visits:
        now += 1.0
        wanted = key(realm, number)
        planner.heard([Missed(wanted, MissReason.ABSENT), Stored(wanted, "memory", 10, 0.2)], now)
        planner.visited(Visit(realm, name, wanted, now), now)
        planner.step(now, under_way=0, held=lambda _: False, realm=lambda one: one.scope[0])
        while (task := planner.queue.take(now)) is not None:
            assert task.key.scope[0] == realm
    for realm in range(3):
        if (known := planner.realms.find(realm)) is not None:
            nodes = {target for node in known.graph for target in (node, *known.graph.out(node, now))}
            assert {node.scope[0] for node in nodes} <= {realm}
