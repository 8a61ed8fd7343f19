"""When a series moved, and where something lies."""

from __future__ import annotations

import numpy as np
import pytest

from mmcache.dashboard.decompose import Who
from mmcache.dashboard.placing import inside, locate
from mmcache.dashboard.steps import Tally, onset, spread, steps


def series(ratios: list[float], seed: int = 0, rate: float = 200.0, weight: float = 1.0) -> list[Tally]:
    rng = np.random.default_rng(seed)
    found = []
    for t, ratio in enumerate(ratios):
        hits = weight * float(rng.poisson(rate * ratio / weight))
        misses = weight * float(rng.poisson(rate * (1 - ratio) / weight))
        found.append(Tally(60.0 * t, hits, misses, weight * (hits + misses)))
    return found


@pytest.mark.parametrize("weight", [1.0, 10.0])
def test_steps_are_found_where_they_are(weight: float) -> None:
    found = steps(series([0.9] * 40 + [0.5] * 30 + [0.8] * 50, weight=weight))
    assert len(found) == 2
    assert abs(found[0] - 40) <= 1
    assert abs(found[1] - 70) <= 2


@pytest.mark.parametrize("seed", range(5))
def test_a_short_dip_is_found_between_its_two_steps(seed: int) -> None:
    found = steps(series([0.9] * 150 + [0.4] * 4 + [0.9] * 86, seed, rate=40.0))
    assert len(found) == 2
    assert abs(found[0] - 150) <= 1
    assert abs(found[1] - 154) <= 1


def test_chance_makes_no_steps() -> None:
    assert not [seed for seed in range(200) if steps(series([0.8] * 120, seed))]
    assert not [seed for seed in range(100) if steps(series([0.8] * 120, 500 + seed, weight=20.0))]


def test_a_ratio_that_is_noisy_by_itself_takes_more() -> None:
    rng = np.random.default_rng(3)
    noisy = [float(ratio) for ratio in rng.uniform(0.6, 0.95, 120)]
    assert spread(series(noisy)) > 4
    assert spread(series([0.8] * 120)) < 2
    assert not steps(series(noisy))


@pytest.mark.parametrize("empty", [[], [Tally(0.0, 0.0, 0.0, 0.0)] * 20, [Tally(0.0, 5.0, 0.0, 5.0)] * 20])
def test_nothing_to_split(empty: list[Tally]) -> None:
    assert steps(empty) == []
    assert spread(empty) == 1.0


def test_onset_is_the_first_bucket_that_left_the_baseline() -> None:
    assert onset([2.0] * 10 + [2.0] * 3 + [30.0] * 7, [60.0] * 20, 10) == 13
    assert onset([0.0] * 10 + [50.0, 20.0, 5.0, 1.0, 0.0, 0.0], [100.0] * 16, 10) == 10  # it heals by itself
    assert onset([2.0] * 8 + [30.0] * 12, [60.0] * 20, 10) == 8  # before the windows part
    assert onset([2.0] * 20, [60.0] * 20, 10) == 10
    assert onset([], [], 0) == 0


def who(tenant: str, instance: str = "a", route: str = "/") -> Who:
    return Who("s", instance, tenant, route, "image", "")


def test_a_place_is_what_surprises() -> None:
    usual = {who(tenant, instance): 1.0 for tenant in "tuv" for instance in "abc"}
    assert locate({who(tenant, "b"): 1.0 for tenant in "tuv"}, usual) == {"instance": "b"}
    assert locate({who("t", instance): 1.0 for instance in "abc"}, usual) == {"tenant": "t"}
    assert locate({who("t", "b"): 1.0}, usual) == {"tenant": "t", "instance": "b"}
    assert locate(usual, usual) == {}
    assert locate({}, usual) == {}
    most = {who("t", "a"): 90.0, who("t", "b"): 5.0, who("t", "c"): 5.0}  # others send little, and have none of it
    assert locate({who("t", "a"): 1.0}, most) == {"instance": "a"}
    assert locate(most, most) == {}
    assert locate({who("new", instance, "/batch"): 1.0 for instance in "abc"}, usual) == {
        "tenant": "new", "route": "/batch",
    }  # fmt: skip


def test_inside() -> None:
    assert inside({}, who("t"))
    assert inside({"tenant": "t", "instance": ["a", "b"]}, who("t"))
    assert not inside({"tenant": "u"}, who("t"))
    assert inside({"strategy": "near"}, who("t"))  # an axis that a row lacks
