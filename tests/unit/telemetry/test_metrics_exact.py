"""The sums are exact: under threads, across forks, and whatever labels callers make up."""

from __future__ import annotations

import json
import os
import random
import threading
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache import Cache, ledger
from mmcache.attribution import Attribution
from mmcache.ledger import LONGEST, NAMES, OTHER, SERIES, Ledger
from mmcache.model.event import MissReason
from mmcache.model.key import Key
from mmcache.stats import Asked, Tally
from mmcache.telemetry import attributed, fast_hits
from mmcache.telemetry.counts import counts_of, together
from mmcache.telemetry.fast_hits import shared
from mmcache.testing import FakeClock

THREADS = 8


def key_of(cache: Cache, name: str, tenant: str | None = None) -> Key:
    return cache.key(name, modality="text", signature="model-1", tenant=tenant)


def lookups(cache: Cache) -> dict[Asked, int]:
    values = together([counts_of(cache).collect()])
    return {Asked(*labels): int(count) for labels, count in values["mmcache.lookups"].items()}


def outcomes(cache: Cache) -> tuple[int, int]:
    """Hits, misses."""
    found = Counter[bool]()
    for asked, count in lookups(cache).items():
        found[asked.outcome == "miss"] += count
    return found[False], found[True]


def load(cache: Cache, seed: int, rounds: int = 300) -> None:
    """Hits by the fast path and by the slow one, and misses."""
    draw = random.Random(seed)
    for n in range(rounds):
        key = key_of(cache, str(draw.randrange(20)), tenant=f"t{draw.randrange(3)}")
        match draw.randrange(4):
            case 0:
                cache.peek(key)
            case 1:
                cache.get(key)
            case 2:
                with attributed(route=f"/r{draw.randrange(3)}", region="eu"):
                    cache.get_or_compute(key, lambda: "value")
            case _:
                cache.get_or_compute(key_of(cache, f"{seed}/{n}"), lambda: "value", bypass=draw.random() < 0.3)


def run(*works: Callable[[], object]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_sums_are_exact_under_threads_while_others_read() -> None:
    with Cache(memory="64MiB") as cache:
        stop = threading.Event()

        def read() -> None:
            before = (0, 0)
            while not stop.is_set():
                now = outcomes(cache)
                assert now[0] >= before[0]
                assert now[1] >= before[1]
                before = now

        failed: list[BaseException] = []

        def reading() -> None:
            try:
                read()
            except BaseException as error:  # noqa: BLE001 - raised below
                failed.append(error)

        reader = threading.Thread(target=reading)
        reader.start()
        run(*(lambda seed=seed: load(cache, seed) for seed in range(THREADS)))
        stop.set()
        reader.join()
        assert not failed
        stats = cache.stats()
        assert outcomes(cache) == (stats.hits, stats.misses)
        reasons = Counter[str]()
        for asked, count in lookups(cache).items():
            assert bool(asked.reason) == (asked.outcome == "miss")
            if asked.reason:
                reasons[asked.reason] += count
        assert reasons == stats.miss_reasons
        assert reasons.total() == stats.misses
        assert set(reasons) <= {str(reason) for reason in MissReason}


def test_a_forked_child_counts_from_zero_and_nothing_is_counted_twice() -> None:
    with Cache(memory="64MiB") as cache:
        load(cache, 1)
        outcomes(cache)
        stop, others = threading.Event(), []
        for seed in range(3):

            def busy(seed: int = seed) -> None:
                n = 0
                while not stop.is_set():
                    load(cache, 1000 * seed + n, 20)
                    n += 1

            others.append(threading.Thread(target=busy))
            others[-1].start()
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                zero = outcomes(cache)
                run(*(lambda seed=seed: load(cache, seed) for seed in range(50, 54)))
                hits, misses = outcomes(cache)
                with cache.events.feed() as feed:
                    for n in range(3):
                        cache.get(key_of(cache, f"never {n}"))
                        feed.drain()
                more = outcomes(cache)
                os.write(writing, json.dumps([zero, [hits, misses], more]).encode())
            finally:
                os._exit(0)
        try:
            os.close(writing)
            with os.fdopen(reading) as pipe:
                zero, ran, more = json.loads(pipe.read())
        finally:
            stop.set()
            for thread in others:
                thread.join()
            os.waitpid(child, 0)
        assert zero == [0, 0]
        assert sum(ran) > 0
        assert more == [ran[0], ran[1] + 3]
        stats = cache.stats()
        assert outcomes(cache) == (stats.hits, stats.misses)


def test_what_the_child_looked_up_is_what_it_counts() -> None:
    """Alone before the fork, so that both numbers are known."""
    with Cache(memory="64MiB") as cache:
        key = key_of(cache, "a")
        for _ in range(5):
            cache.get_or_compute(key, lambda: "value")
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                for _ in range(7):
                    cache.peek(key)
                cache.get(key_of(cache, "b"))
                os.write(writing, json.dumps([outcomes(cache), [cache.stats().hits, cache.stats().misses]]).encode())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            own, all_of_it = json.loads(pipe.read())
        os.waitpid(child, 0)
        assert own == [7, 1]
        assert all_of_it == [4 + 7, 1 + 1]  # as ever: what the parent had counted, and what came since
        assert outcomes(cache) == (4, 1)


def test_a_fast_hit_has_its_keys_labels_where_the_ring_shows_it() -> None:
    with Cache(memory="64MiB") as cache:
        counts_of(cache)
        mine, theirs = key_of(cache, "a", tenant="mine"), key_of(cache, "a", tenant="theirs")
        for key in (mine, theirs):
            cache.put(key, "value", cost=2.0)
        for _ in range(6):
            cache.peek(mine)
        for _ in range(3):
            cache.peek(theirs)
        by_tenant = {asked.tenant: n for asked, n in lookups(cache).items()}
        assert by_tenant == {"mine": 6, "theirs": 3}
        values = counts_of(cache).collect()[0]
        assert values["mmcache.saved.time"] == {("text", "mine"): 12.0, ("text", "theirs"): 6.0}


def test_what_the_ring_lost_counts_without_labels() -> None:
    with Cache(memory="64MiB") as cache:
        counts_of(cache)
        key = key_of(cache, "a", tenant="mine")
        cache.put(key, "value", cost=0.5)
        for _ in range(10_000):  # the ring holds 4,096
            cache.peek(key)
        by_tenant = {asked.tenant: n for asked, n in lookups(cache).items()}
        assert sum(by_tenant.values()) == 10_000
        assert by_tenant[""] > 0
        assert 0 < by_tenant["mine"] <= 4096
        assert sum(counts_of(cache).collect()[0]["mmcache.saved.time"].values()) == pytest.approx(5000.0)


def test_slow_hits_are_not_shown_twice() -> None:
    with Cache(memory="64MiB") as cache:
        counts_of(cache)
        key = key_of(cache, "a")
        cache.put(key, "value")
        for _ in range(5):
            cache.answers.look_up([key])
        for _ in range(4):
            cache.peek(key)
        assert sum(lookups(cache).values()) == 9
        assert outcomes(cache) == (9, 0)


@given(st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3), st.integers(0, 5)), max_size=60))
def test_a_ledger_adds_up_whatever_the_labels(added: list[tuple[str, str, int]]) -> None:
    book = Ledger([1])
    for fixed, free, count in added:
        book.add((fixed, free), count, count / 4, count * 2)
    assert sum(n for n, _, _ in book.all().values()) == sum(count for _, _, count in added)
    assert sum(size for _, _, size in book.all().values()) == 2 * sum(count for _, _, count in added)
    assert book.own() == book.all()


def test_labels_that_callers_make_up_are_bounded() -> None:
    tally = Tally()
    for n in range(NAMES + 50):
        with attributed(route=f"/{n}", region=f"r{n}"):
            tally.miss(MissReason.ABSENT, "text", tenant=f"t{n}")
    asked = [Asked(*labels) for labels in tally.lookups.all()]
    for names in ({a.tenant for a in asked}, {a.route for a in asked}, {a.client_region for a in asked}):
        assert len(names) == NAMES + 1
        assert OTHER in names
    assert sum(count for count, _, _ in tally.lookups.all().values()) == NAMES + 50
    assert "t0" in {a.tenant for a in asked}  # the first ones stay
    tally.miss(MissReason.ABSENT, "text", tenant="x" * 1_000_000)
    assert all(len(value) <= LONGEST for labels in tally.lookups.all() for value in labels)


def test_combinations_of_known_labels_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "SERIES", 100)
    book = Ledger([0, 1])
    for n in range(5000):
        book.add((f"a{n % 50}", f"b{n % 99}", "fixed"))
    assert len(book.all()) <= 101
    assert sum(count for count, _, _ in book.all().values()) == 5000
    assert SERIES == 8192


def test_the_gauges_look_back_a_minute() -> None:
    clock = FakeClock()
    with Cache(memory="64MiB", clock=clock) as cache:
        counts = counts_of(cache)

        def gauges() -> tuple[dict[tuple[str, ...], float], dict[tuple[str, ...], float]]:
            values = together([counts.collect()])
            return values["mmcache.hit_ratio_by_client_region"], values["mmcache.miss_reason_distribution"]

        with attributed(region="eu"):
            cache.get_or_compute(key_of(cache, "a"), lambda: "value")
        with attributed(region="us"):
            cache.get_or_compute(key_of(cache, "b"), lambda: "value", bypass=True)
        clock.advance(2)
        assert gauges() == ({("eu",): 0.0, ("us",): 0.0}, {("absent",): 0.5, ("bypassed",): 0.5})
        clock.advance(30)
        gauges()
        clock.advance(31)
        with attributed(region="eu"):
            for _ in range(3):
                cache.answers.look_up([key_of(cache, "a")])
        ratio, reasons = gauges()
        assert ratio == {("eu",): 1.0}
        assert reasons == {}
        clock.advance(61)
        gauges()
        clock.advance(61)
        assert gauges() == ({}, {})


async def test_what_is_held_but_too_old_for_its_caller_is_a_miss_and_no_hit() -> None:
    clock = FakeClock()
    with Cache(memory="64MiB", clock=clock) as cache:
        key, then = key_of(cache, "a"), clock.wall()
        cache.put(key, "value")
        clock.advance(10)
        looks = [*await cache.answers.look_up_many_async([key], since=then + 5),
                 *await cache.answers.look_up_many_async([key], since=then - 5)]  # fmt: skip
        assert [look.make is None for look in looks] == [True, False]
        stats = cache.stats()
        assert (stats.hits, stats.misses) == outcomes(cache) == (1, 1)


@given(st.integers(0, 1000), st.dictionaries(st.tuples(st.text(max_size=2), st.text(max_size=2)), st.floats(0, 1e6)))
def test_what_is_shared_out_adds_up(count: int, weights: dict[tuple[str, ...], float]) -> None:
    parts = shared(count, weights)
    assert sum(parts.values()) == count
    assert all(part > 0 for part in parts.values())
    total = sum(weights.values())
    for by, part in parts.items():
        assert total == 0 or abs(part - count * weights[by] / total) <= 1


def test_who_asked_for_fast_hits_is_what_the_sample_shows() -> None:
    with Cache(memory="64MiB") as cache:
        counts, key = counts_of(cache), key_of(cache, "a", tenant="mine")
        cache.put(key, "value")
        for _ in range(40):
            cache.peek(key)
        counts.met(key, Attribution("/a", "", "eu"), 10.0)
        counts.met(key, Attribution("/b", "", "us"), 30.0)
        assert {(a.route, a.client_region, a.tenant): n for a, n in lookups(cache).items()} == {
            ("/a", "eu", "mine"): 10, ("/b", "us", "mine"): 30,
        }  # fmt: skip
        for _ in range(4):
            cache.peek(key)  # nothing new is known: shared out as before
        assert {a.route: n for a, n in lookups(cache).items()} == {"/a": 11, "/b": 33}
        assert set(together([counts.collect()])["mmcache.hit_ratio_by_client_region"]) == {("eu",), ("us",)}


def test_no_region_has_a_ratio_while_most_hits_may_be_anybodys() -> None:
    with Cache(memory="64MiB") as cache:
        with attributed(region="eu"):
            cache.get_or_compute(key_of(cache, "a"), lambda: "value")
            for _ in range(9):
                cache.get_or_compute(key_of(cache, "a"), lambda: "value")
        found = together([counts_of(cache).collect()])["mmcache.hit_ratio_by_client_region"]
        assert found == {("",): 1.0}  # not eu: 0.0, which is what the one lookup that is known to be its own would say


def test_whose_hits_are_is_bounded_where_nobody_ever_collects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_hits, "SCOPES", 50)
    monkeypatch.setattr(fast_hits, "MET", 50)
    with Cache(memory="64MiB") as cache:
        counts = counts_of(cache)
        for n in range(200):
            key = key_of(cache, "a", tenant=f"tenant {n}")
            cache.put(key, "value")
            cache.peek(key)
            counts.met(key, Attribution(f"/{n}", "", ""), 1.0)
            cache._store.memory.maintain()
        fast = counts._fast
        assert max(len(fast._shown), len(fast._prices), len(fast._met)) <= 51
        assert sum(lookups(cache).values()) == 200


def test_who_is_known_is_counted_when_no_more_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_hits, "MET", 2)
    with Cache(memory="64MiB") as cache:
        counts, key = counts_of(cache), key_of(cache, "a")
        cache.put(key, "value")
        for _ in range(40):
            cache.peek(key)
        for route in ("/a", "/b", "/c", "/a", "/a"):
            counts.met(key, Attribution(route, "", ""), 1.0)
        assert {a.route: n for a, n in lookups(cache).items()} == {"/a": 30, "/b": 10}
