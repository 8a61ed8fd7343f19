"""The decay law: a known one is recovered, none is called none, bad logs are refused with what to do."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.model.errors import InvalidInputError
from mmcache.ttl.ages import Ages
from mmcache.ttl.decay import LEAST_USES, fit_decay


def log(draw: str, seed: int, blocks: int = 1500, length: float = 50_000.0) -> tuple[list[float], list[int]]:
    """Blocks born at any time, each used again some times at ages that follow `draw`."""
    random, times, keys = np.random.default_rng(seed), list[float](), list[int]()
    for n in range(blocks):
        born, uses = random.uniform(0, length), int(random.poisson(random.exponential(8.0)))
        if draw == "exponential":
            ages = random.exponential(3000.0 / math.log(2), uses)
        elif draw == "power":
            low, high = 1.0, length**0.3
            ages = (low + random.random(uses) * (high - low)) ** (1 / 0.3)
        elif draw == "steady":
            ages = random.uniform(0, length, uses)
        else:
            ages = np.abs(random.normal(8000.0, 2000.0, uses))
        for when in (0.0, *ages.tolist()):
            if born + when < length:
                times.append(born + when)
                keys.append(n)
    return times, keys


@pytest.mark.parametrize("seed", range(3))
def test_an_exponential_law_is_recovered(seed: int) -> None:
    fit = fit_decay(Ages.of(*log("exponential", seed)), seed=seed)
    assert fit.law == "exponential"
    assert fit.half_life_seconds == pytest.approx(3000.0, rel=0.06)
    assert fit.ci is not None
    assert fit.ci[0] < 3000.0 * 1.02
    assert fit.ci[1] > 3000.0 * 0.98
    assert fit.tau == pytest.approx(3000.0 / math.log(2), rel=0.06)
    assert fit.r2 > 0.95 > fit.power.r2
    assert fit.support > 0.9


@pytest.mark.parametrize("seed", range(3))
def test_a_power_law_is_recovered(seed: int) -> None:
    fit = fit_decay(Ages.of(*log("power", seed)), seed=seed)
    assert fit.law == "power"
    assert fit.power.slope == pytest.approx(0.7, abs=0.04)
    assert fit.power.ci[0] < 0.72
    assert fit.power.ci[1] > 0.68
    assert fit.half_life_seconds is not None
    assert fit.youngest < fit.half_life_seconds < fit.oldest


@pytest.mark.parametrize("draw", ["steady", "peak"])
def test_no_law_is_called_none(draw: str) -> None:
    fit = fit_decay(Ages.of(*log(draw, 0)))
    assert fit.law == "neither"
    assert fit.half_life_seconds is None
    assert fit.ci is None
    assert fit.tau is None


def test_leaving_exposure_out_would_make_steady_use_look_like_decay() -> None:
    """Late in a log nobody can be old: the plain counts fall though the rate does not."""
    ages = Ages.of(*log("steady", 1, blocks=4000))
    fit = fit_decay(ages)
    assert fit.law == "neither"
    young, old = (ages.used < 10_000).sum(), (ages.used > 40_000).sum()
    assert young > 3 * old
    assert fit.rates[-1] == pytest.approx(fit.rates[len(fit.rates) // 2], rel=0.3)


def test_intervals_cover_as_often_as_they_say() -> None:
    held = 0
    for seed in range(20):
        fit = fit_decay(Ages.of(*log("exponential", 100 + seed, blocks=300)), replicates=50, seed=seed)
        assert fit.ci is not None
        held += fit.ci[0] <= 3000.0 <= fit.ci[1]
    assert held >= 16


def test_bare_ages_do_too() -> None:
    ages = np.random.default_rng(0).exponential(100.0, 5000)
    fit = fit_decay(ages)
    assert fit.law == "exponential"
    assert fit.half_life_seconds == pytest.approx(100.0 * math.log(2), rel=0.1)
    np.testing.assert_allclose(
        fit.rate(fit.exponential, [0.0, 100.0]) / fit.rate(fit.exponential, 0.0), [1, 0.37], rtol=0.1
    )


def test_it_repeats() -> None:
    ages = Ages.of(*log("power", 0, blocks=300))
    one, two = fit_decay(ages, seed=3), fit_decay(ages, seed=3)
    assert (one.half_life_seconds, one.ci, one.support) == (two.half_life_seconds, two.ci, two.support)


@pytest.mark.parametrize(
    ("ages", "says"),
    [
        ([], "too few"),
        ([1.0] * (LEAST_USES - 1), "too few"),
        ([5.0] * 1000, "wider range"),
        ([0.0] * 1000, "too coarse"),
        ([-1.0, *[1.0, 10.0] * 100], "subtract"),
        ([math.nan, *[1.0, 10.0] * 100], "finite"),
        ([[1.0, 2.0]] * 200, "one list"),
        ([1.0] * 500 + [1e6] * 500, "bins"),
    ],
)
def test_bad_ages_are_refused_with_what_to_do(ages: list[float], says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        fit_decay(ages)


def test_bad_logs_and_options_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="one length"):
        Ages.of([1.0, 2.0], [1])
    with pytest.raises(InvalidInputError, match="finite time"):
        Ages.of([1.0, math.inf], [1, 1])
    with pytest.raises(InvalidInputError, match="first"):
        Ages.of([1.0], [1], "middle")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="replicates"):
        fit_decay(np.arange(1.0, 500.0), replicates=-1)
    with pytest.raises(InvalidInputError, match="too few"):
        fit_decay(Ages.of([], []))


LOGS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 4)), min_size=1, max_size=60)


@given(LOGS)
def test_ages_equal_their_definition(accesses: list[tuple[int, int]]) -> None:
    times, keys = [float(when) for when, _ in accesses], [key for _, key in accesses]
    end = max(times)
    uses = {key: sorted(t for t, k in zip(times, keys, strict=True) if k == key) for key in set(keys)}
    first, last = Ages.of(times, keys, "first"), Ages.of(times, keys, "last")
    assert sorted(first.used) == sorted(t - seen[0] for seen in uses.values() for t in seen[1:])
    assert sorted(first.watched) == sorted(end - seen[0] for seen in uses.values())
    gaps = [b - a for seen in uses.values() for a, b in pairwise(seen)]
    assert sorted(last.used) == sorted(gaps)
    assert sorted(last.watched) == sorted([*gaps, *(end - seen[-1] for seen in uses.values())])
    assert first.owner.size == first.used.size
    assert last.watch_owner.size == last.watched.size == len(accesses)
