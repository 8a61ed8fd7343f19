"""Table `collisions`: arrivals, lags, and that keys cut from a clock do collide where keys cut from content do not."""

from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest

from mmcache.cache import Cache
from mmcache.lab.clock_keys import LAG, Arrivals, Asked, Part, by_clock, by_content, draw, moments, paired_by_clock
from mmcache.lab.table_collisions import LOADS, SHOWN, crossing, rows

TEXTS = [Part("text", f"question {n}", f"question {n}") for n in range(50)]
NOTES = [(Part("text", f"note {n}", f"note {n}"),) for n in range(50)]


def requests(load: float, seconds: float = 10.0, seed: int = 0, arrivals: Arrivals = "poisson") -> list[Asked]:
    random = np.random.default_rng(seed)
    return draw(TEXTS, NOTES, moments(load, seconds, arrivals, random), random)


@pytest.mark.parametrize("arrivals", get_args(Arrivals))
def test_arrivals_keep_the_load_and_repeat_for_a_seed(arrivals: Arrivals) -> None:
    found = moments(50, 400, arrivals, np.random.default_rng(1))
    assert found == sorted(found)
    assert 0 <= found[0] <= found[-1] < 400
    assert len(found) / 400 == pytest.approx(50, rel=0.15)
    assert found == moments(50, 400, arrivals, np.random.default_rng(1))


def test_bursts_are_uneven() -> None:
    spread = {}
    for arrivals in get_args(Arrivals):
        counts = np.histogram(moments(50, 400, arrivals, np.random.default_rng(2)), 4000, (0, 400))[0]
        spread[arrivals] = counts.var() / counts.mean()
    assert spread["poisson"] == pytest.approx(1, abs=0.2)
    assert spread["bursty"] > 3


def test_parts_lag_as_published() -> None:
    for one in requests(50):
        start, later = one.times
        assert LAG[0] <= later - start <= LAG[1]


@pytest.mark.parametrize("load", [25.0, 100.0])
def test_the_clock_collides_as_its_formula_says(load: float) -> None:
    asked = requests(load, 20.0)
    with Cache(memory="64MiB") as cache:
        outcome = by_clock(cache, asked, 0.001)
    expected = 1 - math.exp(-4 * load * 0.001)  # 2 parts, each met by both parts of others
    assert outcome.share(outcome.shared) / 100 == pytest.approx(expected, rel=0.25)
    assert 0 < outcome.wrong <= outcome.shared


@pytest.mark.parametrize("arrivals", get_args(Arrivals))
def test_content_keys_never_collide(arrivals: Arrivals) -> None:
    asked = requests(200.0, 3.0, arrivals=arrivals)
    with Cache(memory="64MiB") as cache:
        outcome = by_content(cache, asked)
    assert (outcome.shared, outcome.wrong) == (0, 0)
    assert outcome.requests == len(asked) > 100


def test_two_at_the_same_moment_get_one_answer_from_the_clock() -> None:
    asked = [Asked((TEXTS[n], *NOTES[n]), (0.0101, 0.1101)) for n in (0, 1)]
    with Cache() as cache:
        clock = by_clock(cache, asked, 0.001)
    assert clock.shared == 2
    assert clock.wrong == 2  # the note itself overwrites nothing of its text, but the other's parts do
    with Cache() as cache:
        assert by_content(cache, asked).wrong == 0


def test_pairing_by_time_takes_the_nearest() -> None:
    early, late = Asked((TEXTS[0], *NOTES[0]), (0.0, 0.119)), Asked((TEXTS[1], *NOTES[1]), (0.018, 0.118))
    assert paired_by_clock([early]).wrong == 0
    assert paired_by_clock([early, late]).wrong == 1  # 119 ms later is nearer to 18 + 100 than to 0 + 100


def test_where_a_curve_crosses() -> None:
    assert crossing([(10, 0), (20, 10), (40, 30)], 20) == 30
    assert crossing([(10, 0), (20, 10)], 20) is None


def test_rows_of_a_flat_curve() -> None:
    curve = {
        (pair, f"{scheme}/{measure}", arrivals, load): [0.0 if scheme == "content" else load]
        for pair in ("image+text", "speech+text")
        for scheme in ("clock", "pairing", "content")
        for measure in ("shared", "wrong")
        for arrivals in get_args(Arrivals)
        for load in LOADS
    }
    found = {row.id: row for row in rows(curve, LOADS)}
    assert found["image+text/content-shared"].met
    assert found["image+text/poisson/clock/load"].ours == pytest.approx(34.2)
    assert found["speech+text/poisson/50/clock"].published == 38.6
    assert len(found) == 2 * (2 * (3 * len(SHOWN) + 1) + 2)
