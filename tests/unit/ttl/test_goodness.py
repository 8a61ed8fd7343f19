"""The test of fit: right about as often as it says, and it sees heavy tails."""

from __future__ import annotations

import numpy as np
import pytest

from mmcache.ttl.gamma import Floats, Gamma, Sums
from mmcache.ttl.goodness import CRITICAL, LEVELS, anderson_darling, critical, heavy


def statistic(values: Floats) -> tuple[float, Gamma]:
    fit = Gamma.fit(Sums.of(values))
    return anderson_darling(values, fit), fit


def rejected(samples: list[Floats], level: float) -> float:
    found = [statistic(values) for values in samples]
    return sum(a2 > critical(fit.shape, level) for a2, fit in found) / len(found)


@pytest.mark.parametrize("shape", [0.5, 1.0, 5.2])
@pytest.mark.parametrize("size", [40, 300])
def test_gamma_is_flagged_at_about_the_nominal_rate(shape: float, size: int) -> None:
    random = np.random.default_rng(5)
    samples = [random.gamma(shape, 2.0, size) for _ in range(400)]
    assert rejected(samples, 0.05) == pytest.approx(0.05, abs=0.03)
    assert rejected(samples, 0.01) < 0.03


def test_heavy_tails_are_flagged_and_named() -> None:
    random = np.random.default_rng(6)
    for samples in (
        [random.pareto(1.3, 300) + 1e-9 for _ in range(40)],
        [random.lognormal(0.0, 1.5, 300) for _ in range(40)],
    ):
        assert rejected(samples, 0.01) > 0.9
        assert sum(heavy(values, statistic(values)[1]) for values in samples) > 30


def test_a_light_tail_is_not_called_heavy() -> None:
    values = np.random.default_rng(1).uniform(1.0, 2.0, 300)
    a2, fit = statistic(values)
    assert a2 > critical(fit.shape)
    assert not heavy(values, fit)


def test_critical_values_are_interpolated_and_flat_beyond() -> None:
    assert critical(1.0, 0.05) == CRITICAL[1.0][0]
    assert CRITICAL[1.0][1] > critical(1.4, 0.01) > CRITICAL[2.0][1]
    assert critical(1e-3) == critical(min(CRITICAL))
    assert critical(1e6) == critical(max(CRITICAL))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [0.2, 1.0, 4.0])
def test_the_table_is_what_a_parametric_bootstrap_gives(shape: float) -> None:
    random = np.random.default_rng(8)
    drawn = [statistic(random.gamma(shape, 1.0, 400))[0] for _ in range(4000)]
    for level in LEVELS:
        assert float(np.quantile(drawn, 1 - level)) == pytest.approx(critical(shape, level), rel=0.08)
