"""A lifetime by key: the usual one for a usual block, and the best exchange of hits for staleness."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.testing import make_key
from mmcache.ttl.pace import Paces, fair_share


@given(st.floats(1e-3, 1e5), st.floats(1e-3, 1e5))
def test_a_block_of_which_nothing_is_known_gets_the_usual_lifetime(lifetime: float, gap: float) -> None:
    assert fair_share(lifetime, gap, 0.0, 0.0) == pytest.approx(lifetime)


@given(st.floats(0.1, 100), st.floats(0.1, 100), st.floats(0, 1000), st.floats(0, 1000))
def test_the_busier_the_shorter(lifetime: float, gap: float, uses: float, seconds: float) -> None:
    here = fair_share(lifetime, gap, uses, seconds)
    assert here > 0
    assert fair_share(lifetime, gap, uses + 1, seconds) < here
    assert fair_share(lifetime, gap, uses, seconds + 1) > here


@pytest.mark.parametrize("lifetime", [2.0, 10.0, 50.0])
def test_it_hits_more_than_one_lifetime_that_is_as_stale(lifetime: float) -> None:
    rates = 1.0 / np.geomspace(0.1, 100.0, 60)
    gap = 1.0

    def played(each: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, float]:
        hit = rates * each / (1 + rates * each)
        return float((rates * hit).sum() / rates.sum()), float((rates * hit * each / 2).sum())

    ours, stale = played(np.array([fair_share(lifetime, gap, rate * 1e6, 1e6) for rate in rates]))
    fixed = np.geomspace(0.01, 1000, 2000)
    same = [played(np.full(rates.size, one)) for one in fixed]
    assert ours > float(np.interp(stale, [s for _, s in same], [h for h, _ in same])) + 0.005


def test_paces_are_carried_over_by_half_and_bounded() -> None:
    paces = Paces(2)
    assert paces.store(make_key(1), 100.0) == (0.0, 0.0)
    for _ in range(5):
        paces.use(make_key(1))
    paces.use(make_key(9))  # unknown
    assert paces.store(make_key(1), 110.0) == (6.0, 10.0)
    assert paces.store(make_key(1), 115.0) == (4.0, 10.0)
    paces.store(make_key(2), 116.0)
    paces.store(make_key(3), 117.0)
    assert paces.store(make_key(1), 118.0) == (0.0, 0.0)
    assert len(paces._seen) == 2
