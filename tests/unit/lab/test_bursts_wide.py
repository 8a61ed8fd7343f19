"""The rule that was tried: noise of means of one, three and five windows."""

from __future__ import annotations

import numpy as np
import pytest

from mmcache.lab.bursts_development import drawn
from mmcache.lab.bursts_rules import Ours
from mmcache.lab.bursts_runs import STEP, watch
from mmcache.lab.bursts_truth import Burst, plant
from mmcache.lab.bursts_wide import FEWEST, WIDTHS, Wide, spread
from mmcache.lab.traces.arrivals import Arrivals


def test_few_windows_have_no_spread() -> None:
    assert spread([1.0] * (FEWEST - 1), 1, 4.0) is None
    assert spread([1.0] * FEWEST, 1, 4.0) == (1.0, 0.0)
    assert spread([1.0] * (FEWEST + 3), 5, 4.0) is None
    assert spread([], 3, 4.0) is None


def test_a_spread_is_that_of_the_upper_side() -> None:
    rates = list(np.random.default_rng(0).normal(100.0, 5.0, 2000))
    level, margin = spread(rates, 1, 4.0) or (0.0, 0.0)
    assert level == pytest.approx(100, rel=0.01)
    assert margin == pytest.approx(20, rel=0.1)
    _, margin = spread(list(np.random.default_rng(0).exponential(10.0, 2000)), 1, 1.0) or (0.0, 0.0)
    assert margin == pytest.approx(10 * (np.log(10) - np.log(2)) / 1.2816, rel=0.1)


def test_wider_means_have_less_noise_and_few_of_them_count_as_more() -> None:
    rates = list(np.random.default_rng(1).exponential(10.0, 60))
    margins = [(spread(rates, wide, 1.0) or (0.0, 0.0))[1] for wide in WIDTHS]
    assert margins == sorted(margins, reverse=True)
    assert (spread([1.0, 2.0, 3.0] * 2, 1, 1.0) or (0, 0))[1] > (spread([1.0, 2.0, 3.0] * 20, 1, 1.0) or (0, 0))[1]


def test_what_lasts_is_found_in_clusters_by_more_windows_than_one() -> None:
    found = {"one": 0, "all": 0}
    for seed in range(4):
        stream, burst = drawn("batch-30", 40 + seed, 3 * 3600.0), Burst(9000, 9900, 2)
        counts = Arrivals("planted", plant(stream, [burst], seed), stream.seconds).counts(STEP)
        found["one"] += watch(Wide(STEP, {1: WIDTHS[1]}), counts).delay(burst) is not None
        found["all"] += watch(Wide(STEP), counts).delay(burst) is not None
    assert found["all"] > found["one"]


def test_it_cries_less_than_ours_in_clusters() -> None:
    counts = drawn("batch-100", 1, 86_400.0).counts(STEP)
    assert len(watch(Wide(STEP), counts).alarms) < len(watch(Ours(), counts).alarms) / 2
