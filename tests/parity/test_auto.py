"""The compiled core of `auto` and its plain-Python twin decide alike, to the bit."""

from __future__ import annotations

import gc
import itertools
import random
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.model.block import Facts
from mmcache.policies.auto import Core
from mmcache.policies.auto_ghosts import hash_of
from mmcache.policies.auto_python import PythonCore
from mmcache.testing import make_key

compiled = pytest.importorskip("mmcache.policies._auto", reason="the C extension was not built here")

FACTS = st.builds(
    Facts,
    size=st.integers(-1, 1 << 70),
    cost=st.floats(),
    references=st.integers(0, 2),
)
OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["add", "add", "touch", "touch", "drop", "evict", "all", "explain"]), st.integers(0, 50)),
    max_size=200,
)


def twins(seed: int, clock: int = 0) -> tuple[Core, Core]:
    return compiled.Core(seed, clock), PythonCore(seed, clock)


@given(OPERATIONS, st.lists(FACTS, min_size=1, max_size=5), st.integers(0, 2**64 - 1))
def test_any_calls(operations: list[tuple[str, int]], facts: list[Facts], seed: int) -> None:
    both = twins(seed)
    for now, (operation, n) in enumerate(operations):
        key, time = make_key(n), float(now)
        match operation:
            case "add":
                for core in both:
                    core.add(key, facts[n % len(facts)], time)
            case "touch":
                for core in both:
                    core.touch(key, time)
            case "drop":
                for core in both:
                    core.drop(key)
            case "evict":
                chosen, other = (list(itertools.islice(core.victims(time), 1 + n % 3)) for core in both)
                assert chosen == other
                for core in both:
                    for victim in chosen:
                        core.drop(victim)
            case "all":
                assert list(both[0].victims(time)) == list(both[1].victims(time))
            case _:
                assert both[0].explain(key, time) == both[1].explain(key, time)


@pytest.mark.parametrize(
    ("blocks", "held", "clock"),
    [(100, 20, 0), (90, 33, 0), (3000, 500, 0), (600, 100, 2**31 - 1500)],
    ids=["few", "just enough for a pool", "many", "across the wrap of the clock"],
)
def test_a_cache_full_of_them(blocks: int, held: int, clock: int) -> None:
    rng, both, known = random.Random(3), twins(5, clock), set[int]()
    keys = [make_key(n) for n in range(blocks)]
    number = {key: n for n, key in enumerate(keys)}
    for now in range(4000):
        n = min(int(rng.paretovariate(0.6)), blocks) - 1 if rng.random() < 0.7 else rng.randrange(blocks)
        if n in known:
            for core in both:
                core.touch(keys[n], now)
            continue
        facts = Facts(rng.choice([1, 100, 5000]), rng.choice([0.0, 0.1, 3.0]), references=int(rng.random() < 0.05))
        for core in both:
            core.add(keys[n], facts, now)
        known.add(n)
        if len(known) > held:
            wanted = rng.choice([1] * 9 + [40])
            chosen, other = (list(itertools.islice(core.victims(now), wanted)) for core in both)
            assert chosen == other
            for core in both:
                for key in chosen:
                    core.drop(key)
            known -= {number[key] for key in chosen}
        if now % 400 == 0:
            orders = [list(core.victims(now)) for core in both]
            assert orders[0] == orders[1]
            assert {number[key] for key in orders[0]} == known


def test_what_is_no_key() -> None:
    core = compiled.Core()
    for name, arguments in (("add", ("text", Facts(1), 0.0)), ("touch", (1, 0.0)), ("drop", (None,))):
        with pytest.raises(TypeError, match="a key is bytes"):
            getattr(core, name)(*arguments)
    with pytest.raises(AttributeError):
        core.add(make_key(1), object(), 0.0)
    with pytest.raises(TypeError):
        core.add(make_key(1), Facts("x"), 0.0)  # type: ignore[arg-type]
    assert list(core.victims(0.0)) == []


def test_keys_of_any_length() -> None:
    keys = [bytes(range(n)) for n in range(20)]
    assert len({hash_of(key) for key in keys}) == len(keys)
    both = twins(1)
    for core in both:
        for key in keys:
            core.add(key, Facts(1), 0.0)  # type: ignore[arg-type]
            core.drop(key)  # type: ignore[arg-type]
            core.add(key, Facts(1), 0.0)  # type: ignore[arg-type]
    assert list(both[0].victims(1.0)) == list(both[1].victims(1.0))


def test_no_reference_is_lost_or_kept() -> None:
    keys = [make_key(n) for n in range(500)]
    before = [sys.getrefcount(key) for key in keys]
    core = compiled.Core()
    for key in keys * 2:
        core.add(key, Facts(1), 0.0)
        core.touch(key, 0.0)
    held = core.victims(0.0)
    taken = list(itertools.islice(held, 300))
    for key in taken[:100]:
        core.drop(key)
    assert list(held) == []
    del taken, key, core
    held = None
    gc.collect()
    assert [sys.getrefcount(key) for key in keys] == before


def test_a_clock_beyond_the_wrap_is_refused() -> None:
    with pytest.raises(ValueError, match="below"):
        compiled.Core(1, 2**31)
