"""Gamma without scipy, against scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from mmcache.ttl.gamma import MOST_SHAPE, Gamma, Sums, digamma, trigamma, upper

SHAPES = [0.05, 0.3, 1.0, 5.2, 100.0, 1e4]


@pytest.mark.parametrize("shape", SHAPES)
def test_special_functions(shape: float) -> None:
    assert digamma(shape) == pytest.approx(special.digamma(shape), rel=1e-12, abs=1e-12)
    assert trigamma(shape) == pytest.approx(special.polygamma(1, shape), rel=1e-12)
    x = np.concatenate([[0.0], np.geomspace(1e-6 * shape, 5 * shape, 300), [math.inf]])
    np.testing.assert_allclose(upper(shape, x), special.gammaincc(shape, x), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share", [0.0, 1e-6, 0.01, 0.5, 0.95, 0.999, 1 - 1e-9])
def test_quantiles(shape: float, share: float) -> None:
    assert Gamma(shape, 2.0).quantile(share) == pytest.approx(stats.gamma.ppf(share, shape, scale=2.0), rel=1e-6)


@given(st.floats(0.1, 50), st.floats(1e-3, 1e3), st.floats(0.001, 0.999))
def test_a_quantile_inverts_the_survival(shape: float, scale: float, share: float) -> None:
    gamma = Gamma(shape, scale)
    assert float(gamma.survival(gamma.quantile(share))[0]) == pytest.approx(1 - share, abs=1e-9)


@pytest.mark.parametrize(("shape", "scale"), [(0.3, 2.0), (1.0, 60.0), (5.2, 0.023), (3.8, 0.082), (50.0, 1.0)])
def test_a_fit_equals_scipys(shape: float, scale: float) -> None:
    values = np.random.default_rng(7).gamma(shape, scale, 400)
    found, (k, _, theta) = Gamma.fit(Sums.of(values)), stats.gamma.fit(values, floc=0)
    assert found.shape == pytest.approx(k, rel=1e-6)
    assert found.scale == pytest.approx(theta, rel=1e-6)


@pytest.mark.parametrize("shape", [0.5, 1.0, 5.2])
def test_a_censored_fit_equals_scipys_and_leaving_them_out_is_biased(shape: float) -> None:
    random = np.random.default_rng(3)
    values, limits = random.gamma(shape, 2.0, 500), random.exponential(3.0 * shape, 500)
    over = values > limits
    found = Gamma.fit_censored(Sums.of(values[~over]), limits[over], steps=500)
    data = stats.CensoredData.right_censored(np.minimum(values, limits), over)
    k, _, theta = stats.gamma.fit(data, floc=0)
    assert found.shape == pytest.approx(k, rel=0.01)
    assert found.scale == pytest.approx(theta, rel=0.01)
    assert Gamma.fit(Sums.of(values[~over])).mean < 0.9 * found.mean


def test_one_value_repeated_has_the_largest_shape() -> None:
    found = Gamma.fit(Sums.of([0.25] * 10))
    assert found.shape == MOST_SHAPE
    assert found.mean == pytest.approx(0.25)


@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=30))
def test_any_positive_sample_gives_a_usable_fit(values: list[float]) -> None:
    found = Gamma.fit(Sums.of(values))
    assert found.mean == pytest.approx(sum(values) / len(values))
    assert 0 < found.quantile(0.99) < math.inf


def test_sums_forget() -> None:
    sums = Sums()
    for value in [100.0] * 500 + [1.0] * 500:
        sums = sums.forgetting(value, 0.98)
    assert sums.n == pytest.approx(50, rel=0.01)
    assert sums.x / sums.n == pytest.approx(1.0, abs=0.01)
    assert Sums.of([1.0, 2.0]) + Sums.of([3.0]) == Sums(3.0, 6.0, pytest.approx(math.log(6)))  # type: ignore[arg-type]
