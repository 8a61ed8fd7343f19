"""What is beyond noise."""

from __future__ import annotations

import numpy as np
import pytest

from mmcache.scale.noise import FEWEST, WIDTHS, poisson, spread


def test_few_windows_have_no_spread() -> None:
    assert spread([1.0] * (FEWEST - 1), 1, 4.0) is None
    assert spread([1.0] * FEWEST, 1, 4.0) == (1.0, 0.0)
    assert spread([1.0] * (FEWEST + 3), 5, 4.0) is None
    assert spread([], 3, 4.0) is None


def test_a_spread_is_that_of_the_upper_side() -> None:
    rates = list(np.random.default_rng(0).normal(100.0, 5.0, 2000))
    skewed = list(np.random.default_rng(0).exponential(10.0, 2000))
    level, margin = spread(rates, 1, 4.0) or (0.0, 0.0)
    assert level == pytest.approx(100, rel=0.01)
    assert margin == pytest.approx(20, rel=0.1)
    level, margin = spread(skewed, 1, 1.0) or (0.0, 0.0)
    assert margin == pytest.approx(10 * (np.log(10) - np.log(2)) / 1.2816, rel=0.1)


def test_wider_means_have_less_noise_and_few_of_them_count_as_more() -> None:
    rates = list(np.random.default_rng(1).exponential(10.0, 60))
    margins = [
        found[1] / deviations for wide, deviations in WIDTHS.items() if (found := spread(rates, wide, deviations))
    ]
    assert margins == sorted(margins, reverse=True)
    assert (spread([1.0, 2.0, 3.0] * 2, 1, 1.0) or (0, 0))[1] > (spread([1.0, 2.0, 3.0] * 20, 1, 1.0) or (0, 0))[1]


def test_poisson_noise_falls_with_time_and_stays_for_nothing() -> None:
    assert poisson(10.0, 60.0) == pytest.approx(5 * np.sqrt(10 / 60), rel=0.15)
    assert poisson(10.0, 300.0) < poisson(10.0, 60.0)
    assert poisson(0.0, 60.0) > 0
