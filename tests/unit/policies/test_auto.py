"""`auto`: what it learns, whom it spares, and what it says of it."""

from __future__ import annotations

import itertools
import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.model.block import Facts
from mmcache.policies.auto import Auto, Core, make_core
from mmcache.policies.auto_ghosts import Ghosts
from mmcache.policies.auto_python import PythonCore
from mmcache.policies.auto_rates import OCTAVES, Rates, best_density, class_of, octave
from mmcache.policies.base import Explains
from mmcache.testing import make_key


@pytest.fixture(params=[make_core, PythonCore], ids=["default", "plain"])
def core(request: pytest.FixtureRequest) -> Core:
    made: Core = request.param()
    return made


KEYS = [make_key(n) for n in range(200)]
NUMBERS = {key: n for n, key in enumerate(KEYS)}


def first(core: Core, count: int = 1) -> list[int]:
    return [NUMBERS[key] for key in itertools.islice(core.victims(0.0), count)]


def test_cheap_and_large_goes_before_dear_and_small(core: Core) -> None:
    core.add(make_key(0), Facts(1000, 1.0), 0.0)
    core.add(make_key(1), Facts(100, 1.0), 0.0)
    core.add(make_key(2), Facts(1000, 0.1), 0.0)
    assert first(core, 3) == [2, 0, 1]


def test_of_equals_the_one_used_longest_ago(core: Core) -> None:
    for n in range(8):
        core.add(make_key(n), Facts(1, 1.0), 0.0)
    for n in (0, 1, 2, 3):
        core.touch(make_key(n), 0.0)
    assert first(core) == [4]


def test_needed_blocks_go_last(core: Core) -> None:
    for n in range(100):
        core.add(make_key(n), Facts(1 << 20 if n < 3 else 1, 1e-6, references=int(n < 3)), 0.0)
    assert set(first(core, 100)[-3:]) == {0, 1, 2}
    core.add(make_key(0), Facts(1 << 20, 1e-6), 0.0)
    assert first(core) == [0]


def test_a_new_block_of_little_worth_is_the_first_victim(core: Core) -> None:
    for n in range(100):
        core.add(make_key(n), Facts(100, 1.0), 0.0)
    core.add(make_key(100), Facts(1 << 30, 0.001), 0.0)
    assert first(core) == [100]


def test_a_block_that_comes_back_is_known(core: Core) -> None:
    for n in range(50):
        core.add(make_key(n), Facts(100, 1.0), 0.0)
    core.touch(make_key(1), 0.0)
    core.drop(make_key(1))
    assert core.explain(make_key(1), 0.0) == {}
    core.add(make_key(1), Facts(100, 1.0), 0.0)
    assert core.explain(make_key(1), 0.0)["uses"] == 3.0


def test_new_facts_are_no_use(core: Core) -> None:
    core.add(make_key(1), Facts(100, 1.0), 0.0)
    core.add(make_key(1), Facts(100, 2.0), 0.0)
    told = core.explain(make_key(1), 0.0)
    assert told["uses"] == 1.0
    assert told["seconds_per_byte"] == pytest.approx(0.02)


@pytest.mark.parametrize("cost", [0.0, -1.0, math.nan, math.inf, 1e300])
@pytest.mark.parametrize("size", [0, -5, 1 << 2000])
def test_any_facts_give_a_finite_score(core: Core, size: int, cost: float) -> None:
    core.add(make_key(1), Facts(size, cost, references=1), 0.0)
    score = core.explain(make_key(1), 0.0)["score"]
    assert 0.0 < score < math.inf


def test_the_score_is_the_product_of_its_parts(core: Core) -> None:
    core.add(make_key(1), Facts(1000, 3.0), 0.0)
    assert isinstance(Auto(), Explains)
    told = core.explain(make_key(1), 0.0)
    assert told["score"] == pytest.approx(told["seconds_per_byte"] * told["hits_per_request"])


def test_a_loop_longer_than_the_cache_is_half_kept(core: Core) -> None:
    """LRU has no hit at all here; the optimum is 1 in 2."""
    held, hits = set[int](), 0
    for n in range(12_000):
        block = n % 120
        if block in held:
            core.touch(KEYS[block], 0.0)
            hits += n >= 6000
            continue
        core.add(KEYS[block], Facts(1, 1.0), 0.0)
        held.add(block)
        if len(held) > 60:
            (victim,) = first(core)
            core.drop(KEYS[victim])
            held.discard(victim)
    assert hits > 2000


def test_an_order_ends_when_the_cache_changes(core: Core) -> None:
    for n in range(10):
        core.add(make_key(n), Facts(1, 1.0), 0.0)
    order = core.victims(0.0)
    core.drop(next(order))
    assert list(order) == []


def test_the_seed_draws_the_victims() -> None:
    orders = []
    for seed in (1, 1, 2):
        policy = Auto(seed)
        for n in range(200):
            policy.add(make_key(n), Facts(1, 1.0 + n % 7), 0.0)
        orders.append(list(itertools.islice(policy.victims(0.0), 10)))
    assert orders[0] == orders[1] != orders[2]


def test_a_block_takes_under_64_bytes_beside_the_map() -> None:
    policy, blocks = Auto(), 20_000
    empty = sys.getsizeof(policy)
    for n in range(blocks + 100):
        policy.add(make_key(n), Facts(1, 1.0), 0.0)
        if n >= blocks:
            policy.drop(make_key(n - blocks))
    if type(policy._core) is not PythonCore:
        map_bytes = 4 << 15  # places at least 10/7 of the blocks, a power of two
        assert (sys.getsizeof(policy) - empty - map_bytes) / blocks < 64


@given(st.lists(st.floats(1e-12, 1.0), min_size=OCTAVES, max_size=OCTAVES))
def test_the_best_density_is_that_of_the_best_moment_to_give_up(rates: list[float]) -> None:
    for start, density in enumerate(best_density(rates)):
        hit = held = 0.0
        stay, best = 1.0, 0.0
        for b in range(start, OCTAVES):
            p = rates[b] * (1 << b)
            hit, held, stay = hit + stay * p / (1 + p), held + stay * (1 << b) / (1 + p), stay / (1 + p)
            best = max(best, hit / held)
        assert density == pytest.approx(best)


def test_rates_learn_a_certain_reuse() -> None:
    rates = Rates()
    group = class_of(1, 0)
    before = rates.density[group][octave(1)]
    for _ in range(1000):
        rates.expose(group, 0, 100)
        rates.hit(group, 100)
    rates.learn()
    # Sure to be hit between ages 64 and 128: worth more the nearer it is.
    assert before > rates.density[group][octave(1)] > 0.5 / 128
    assert rates.density[group][octave(32)] > 1.5 * rates.density[group][octave(1)]


def test_exposure_is_exact() -> None:
    rates = Rates()
    rates.expose(0, 0, 3)
    rates.expose(0, 3, 1000)
    assert sum(rates.exposed[0]) == 999
    assert rates.exposed[0][:4] == [1.0, 2.0, 4.0, 8.0]


def test_the_oldest_ghost_of_a_set_makes_room() -> None:
    ghosts = Ghosts()
    assert ghosts.put(7, 1, 1, 0) is None  # no room was made yet
    assert list(ghosts.fit(1)) == []
    for last in range(1, 9):
        assert ghosts.put(last, last, 1, 0) is None
    assert ghosts.put(9, 9, 2, 3) == (1, 0)
    assert ghosts.take(1) is None
    assert ghosts.take(9) == (9, 2, 3)
    assert ghosts.count == 7
