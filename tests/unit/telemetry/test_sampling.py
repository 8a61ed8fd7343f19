"""How many are recorded, and that what they stand for adds up to all."""

from __future__ import annotations

import random
import time
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.telemetry.recorded import Recorded

from mmcache import Cache
from mmcache.telemetry.sampling import Allowance, Burst, Draw, Pace, thinned, weight_of


@given(st.floats(1e-9, 1.0), st.floats(1.0, 1e6), st.lists(st.tuples(st.integers(0, 10**7), st.floats(1e-3, 10.0))))
def test_the_share_is_never_more_than_asked_for_and_never_ends(
    sample: float, most: float, looks: list[tuple[int, float]]
) -> None:
    pace = Pace(sample, most)
    for made, seconds in looks:
        assert 0.0 < pace.after(made, seconds) <= sample
        assert pace.weight * pace.share == pytest.approx(1.0)
        assert 1 <= pace.every < 1 << 31


@given(st.floats(1e-4, 1.0), st.floats(1.0, 1e4), st.floats(10.0, 1e6))
def test_under_a_steady_load_the_limit_holds_and_little_load_is_sampled_in_full(
    sample: float, most: float, per_second: float
) -> None:
    pace = Pace(sample, most)
    for _ in range(60):
        pace.after(round(per_second * pace.share), 1.0)
    assert per_second * pace.share <= most + 1
    for _ in range(60):
        pace.after(0, 1.0)
    assert pace.share == sample


@given(st.floats(1.0, 1e6), st.lists(st.tuples(st.integers(0, 10**6), st.floats(0.0, 100.0)), max_size=30))
def test_no_more_is_taken_than_is_allowed(per_second: float, asked: list[tuple[int, float]]) -> None:
    now, allowance, taken = 0.0, Allowance(per_second, 0.0), 0
    for wanted, later in asked:
        now += later
        got = allowance.take(wanted, now)
        assert 1 <= got <= max(1, wanted)
        taken += got if wanted else 0
    assert taken <= per_second * (now + 1) + len(asked) + 1


def test_none_is_none() -> None:
    for pace in (Pace(0.0, 1000.0), Pace(0.5, 0.0)):
        assert (pace.share, pace.weight, pace.every) == (0.0, 0.0, 0)
        assert pace.after(0, 1.0) == 0.0


@given(st.lists(st.integers(), max_size=500), st.integers(1, 200))
def test_what_is_thinned_stands_for_all(some: list[int], most: int) -> None:
    kept, weight = thinned(some, most)
    assert len(kept) == min(len(some), most)
    assert len(kept) * weight == pytest.approx(len(some))


@given(st.integers(1, (1 << 56) - (1 << 36)))
def test_a_threshold_is_a_ratio(threshold: int) -> None:
    text = f"{threshold:014x}".rstrip("0")
    assert weight_of(f"th:{text}") == pytest.approx(1 / (1 - threshold / 2**56))


@given(st.text(max_size=30))
def test_no_trace_state_is_an_error(text: str) -> None:
    assert weight_of(text) >= 1.0


def test_a_program_that_seeds_its_chance_gets_what_it_would_get_without_us() -> None:
    random.seed(7)
    wanted = [random.random() for _ in range(5)]
    with Cache() as cache, Recorded(cache, sample=0.5) as recorded:
        random.seed(7)
        assert 0 < sum(recorded.spans.begin() > 0 for _ in range(500)) < 500
        found = [random.random() for _ in range(5)]
    assert found == wanted
    assert Draw().random() != Draw().random()


def test_weights_of_a_sample_add_up_to_all() -> None:
    lookups = 20_000
    with Cache() as cache, Recorded(cache, sample=0.1) as recorded:
        keys = [cache.key(f"text {n}", modality="text", signature="v1") for n in range(4)]
        for key in keys[:2]:
            cache.put(key, 1)
        for n in range(lookups):
            cache.answers.look_up([keys[n % 4]])
            cache.peek(keys[0])
            if n % 500 == 0:
                recorded.spans.flush()
        hits = recorded.weight(lambda told: told["cache.hit"])
        misses = recorded.weight(lambda told: not told["cache.hit"])
    assert hits == pytest.approx(1.5 * lookups, rel=0.15)
    assert misses == pytest.approx(0.5 * lookups, rel=0.2)


def test_more_than_wanted_are_left_out_and_those_that_stay_stand_for_them() -> None:
    with Cache() as cache, Recorded(cache, per_second=100.0) as recorded:
        key = cache.key("text", modality="text", signature="v1")
        cache.put(key, 1)
        recorded.unwatched()
        for _ in range(2_000):
            cache.peek(key)
        told = recorded.told()
        assert sum(each["cache.sampling.weight"] for each in told) == pytest.approx(2_000)
        assert len(told) + recorded.spans.dropped == 2_000
        assert recorded.spans.dropped > 0


def test_what_was_drawn_before_the_share_changed_weighs_what_it_did_then() -> None:
    with Cache() as cache, Recorded(cache, sample=0.5, per_second=100.0) as recorded:
        recorded.unwatched()
        spans = recorded.spans
        began = time.time_ns()
        spans._roots, spans._looked = 10**6, time.monotonic() - 1.0
        spans._aim()
        assert spans._share < 0.5
        assert spans._parent(began).weight == 2.0
        assert spans._parent(time.time_ns()).weight == 1.0 / spans._share


def test_a_look_that_was_under_way_starts_nothing_anew_once_it_is_closed() -> None:
    with Cache() as cache, Recorded(cache, sample=1.0) as recorded:
        key = cache.key("text", modality="text", signature="v1")
        cache.put(key, 1)
        recorded.unwatched()
        recorded.spans.close()
        recorded.spans._hits.drain()
        recorded.spans._pace.share = 0.01
        recorded.spans._aim()
        for _ in range(1_000):
            cache.peek(key)
        assert not recorded.spans._hits.drain()


def test_every_place_of_a_large_batch_is_as_likely_to_stay() -> None:
    draw, rounds, size, most = random.Random(7), 4_000, 256, 100
    stood = defaultdict[int, float](float)
    for _ in range(rounds):
        some, weight = thinned(range(size), most, draw.random())
        assert len(set(some)) == most
        for place in some:
            stood[place] += weight
    assert min(stood[place] for place in range(size)) > 0.85 * rounds
    assert max(stood.values()) < 1.15 * rounds
    thinned(range(7), 3, 1 - 2**-53)


def test_no_place_of_a_large_batch_is_never_seen() -> None:
    with Cache() as cache, Recorded(cache) as recorded:
        keys = [cache.key(f"text {n}", modality="text", signature="v1") for n in range(256)]
        for _ in range(40):
            cache.answers.look_up(keys)
        seen = {told["cache.key.hash"] for told in recorded.told()}
        assert seen == {key.short for key in keys}


def test_a_burst_makes_few_spans_whose_weights_add_up_to_it() -> None:
    draw, lookups, sums = random.Random(11), 20_000, []
    for _ in range(40):
        burst, made, total = Burst(100.0), 0, 0.0
        for _ in range(lookups):
            times = burst.take(1, draw.random())
            made, total = made + (times > 0), total + times
        assert made < 100 * 10
        sums.append(total / lookups)
    assert sum(sums) / len(sums) == pytest.approx(1.0, abs=0.04)


def test_nothing_of_a_burst_of_lookups_goes_unweighed() -> None:
    lookups = 20_000
    with Cache() as cache, Recorded(cache, per_second=100.0) as recorded:
        recorded.unwatched()
        key = cache.key("text", modality="text", signature="v1")
        for _ in range(lookups):
            cache.answers.look_up([key])
        told = recorded.told()
        assert len(told) < 1_500
        assert recorded.weight(lambda told: True) == pytest.approx(lookups, rel=0.6)
        assert recorded.spans.dropped == 0
