"""The cohort is a fair sample of gaps, and small; curves from it are unbiased under censoring."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mmcache.testing import make_key
from mmcache.ttl.cohort import Cohort, Seen
from mmcache.ttl.curve import MEASURED, Curve, Measured, believe
from mmcache.ttl.gamma import Gamma, Sums

PRIOR = Gamma(1.0, 60.0)


def play(cohort: Cohort, gap: Callable[[], float], keys: int, until: float) -> float:
    """Every key is used again and again; the last moment."""
    uses = [(gap() / 2, n) for n in range(keys)]
    heapq.heapify(uses)
    now = 0.0
    while uses[0][0] < until:
        now, n = heapq.heappop(uses)
        cohort.use(make_key(n), now)
        heapq.heappush(uses, (now + gap(), n))
    return now


def curve_of(cohort: Cohort, now: float) -> Curve:
    seen = cohort.look(now)
    return believe(seen, Sums.of(seen.whole), PRIOR, 0.01)


def test_it_finds_the_gaps_that_are_there_though_many_are_open() -> None:
    random = np.random.default_rng(2)
    cohort = Cohort(512, 900.0, 0)
    now = play(cohort, lambda: float(random.gamma(3.0, 20.0)), 300, 600.0)
    seen = cohort.look(now)
    assert seen.open.size > 20
    curve = curve_of(cohort, now)
    assert curve.verdict == "gamma"
    assert curve.gamma.mean == pytest.approx(60.0, rel=0.1)
    assert curve.quantile(0.95) == pytest.approx(Gamma(3.0, 20.0).quantile(0.95), rel=0.12)


def test_it_forgets() -> None:
    random = np.random.default_rng(2)
    cohort = Cohort(256, 50.0, 0)
    now = play(cohort, lambda: float(random.exponential(8.0)), 50, 300.0)
    assert curve_of(cohort, now).gamma.mean == pytest.approx(8.0, rel=0.25)
    for n in range(4000):
        cohort.use(make_key(n % 20), now + 0.05 * n)  # every second
    assert curve_of(cohort, now + 200.0).gamma.mean == pytest.approx(1.0, rel=0.1)


def test_uses_within_the_echo_are_one_use() -> None:
    cohort = Cohort(8, 100.0, 0)
    cohort.use(make_key(1), 0.0, echo=2.0)
    cohort.use(make_key(1), 1.9)
    cohort.use(make_key(1), 0.0)
    assert not cohort.look(5.0).whole.size
    cohort.use(make_key(1), 10.0)
    assert cohort.look(10.0).whole.tolist() == [10.0]
    assert cohort.ended == 1


def test_nothing_known_is_no_gap() -> None:
    seen = Cohort(8, 100.0, 0).look(1.0)
    assert seen.whole.size == seen.open.size == 0
    assert seen.returned == 0.0
    assert believe(seen, Sums(), PRIOR, 0.01).quantile(0.5) == PRIOR.quantile(0.5)


@given(st.lists(st.tuples(st.integers(0, 30), st.floats(0, 1e6)), max_size=200), st.integers(1, 12))
def test_it_stays_small_and_sane_whatever_is_called(calls: list[tuple[int, float]], size: int) -> None:
    cohort = Cohort(size, 10.0, 0)
    for n, now in calls:
        cohort.use(make_key(n), now)
        seen = cohort.look(now)
        assert seen.whole.size + seen.open.size <= size
        assert (seen.whole > 0).all()
        assert (seen.open >= 0).all()
    assert len(cohort._open) <= size


@given(st.lists(st.integers(1, 20), min_size=1, max_size=40), st.lists(st.integers(0, 20), max_size=40))
def test_the_measured_curve_is_scipys(whole: list[int], open: list[int]) -> None:
    ours = Measured.of(np.array(whole, float), np.array(open, float))
    known = stats.ecdf(stats.CensoredData(uncensored=whole, right=open)).sf
    for x in np.arange(0.5, 21.0):
        assert ours.survival(x) == pytest.approx(float(known.evaluate(x)), abs=1e-12)


def test_a_measured_quantile_is_the_first_time_by_which_enough_have_come() -> None:
    measured = Measured.of(np.array([1.0, 2.0, 3.0, 4.0]), np.zeros(0))
    assert [measured.quantile(share) for share in (0.25, 0.26, 0.5, 1.0)] == [1.0, 2.0, 2.0, 4.0]
    assert Measured(np.zeros(0), np.zeros(0)).quantile(0.5) == math.inf


def test_one_offs_do_not_lengthen_the_quantile() -> None:
    """Half of the blocks never come back: the quantile is of those that do."""
    gaps = np.random.default_rng(0).gamma(4.0, 1.0, 300)
    seen = Seen(gaps, np.full(300, 1000.0), gaps, 0.5)
    curve = believe(seen, Sums.of(gaps), PRIOR, 0.01)
    assert curve.verdict == "one-offs"
    assert curve.verdict in MEASURED
    assert curve.survival(100.0) == pytest.approx(0.5)
    assert curve.quantile(0.95, within=3600.0) == pytest.approx(Gamma(4.0, 1.0).quantile(0.95), rel=0.1)


def test_before_the_test_has_spoken_open_gaps_do_not_run_away() -> None:
    gaps = np.random.default_rng(0).gamma(4.0, 1.0, 10)
    seen = Seen(gaps, np.full(500, 50.0), np.zeros(0), 0.0)
    curve = believe(seen, Sums.of(gaps), PRIOR, 0.01)
    assert curve.verdict == "prior"
    assert curve.gamma.mean < 200.0


@pytest.mark.parametrize(("soon", "verdict"), [(None, "young"), (0.9, "young"), (0.4, "one-offs")])
def test_too_few_old_gaps_for_the_test_may_still_show_that_many_never_return(soon: float | None, verdict: str) -> None:
    gaps = np.random.default_rng(0).gamma(4.0, 1.0, 100)
    seen = Seen(gaps, np.full(200, 30.0), gaps[:5], 1.0, soon)
    curve = believe(seen, Sums.of(gaps), PRIOR, 0.01)
    assert curve.verdict == verdict
    assert (curve.quantile(0.95, within=3600.0) < 10.0) == (verdict == "one-offs")


def test_how_many_returned_soon_is_said_only_once_it_can_be_known() -> None:
    cohort = Cohort(100, 1000.0, 0)
    for n in range(40):
        cohort.use(make_key(n), 0.0)
        if n < 20:
            cohort.use(make_key(n), 10.0)
    assert cohort.look(20.0).returned_soon is None
    assert cohort.look(31.0).returned_soon == pytest.approx(20 / 60)
