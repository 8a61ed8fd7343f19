"""Cosines of all with all, and the nearest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcache.model.errors import InvalidInputError
from mmcache.placement import cosine
from mmcache.placement.cosine import cosines, nearest, unit


def vectors(count: int, width: int, seed: int = 0) -> cosine.Floats:
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 30), st.floats(1e-20, 1e20))
@settings(deadline=None, derandomize=True)
def test_is_the_cosine_whatever_the_scale(n: int, m: int, width: int, scale: float) -> None:
    one, other = vectors(n, width), vectors(m, width, 1)
    exact = one.astype(np.float64) @ other.T.astype(np.float64)
    exact /= np.linalg.norm(one.astype(np.float64), axis=1)[:, None] * np.linalg.norm(other.astype(np.float64), axis=1)
    found = cosines(one * np.float32(scale), other, "cpu")
    assert found.dtype == np.float32
    assert np.abs(found - exact).max() < 1e-5


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 35), st.integers(0, 3))
@settings(deadline=None, derandomize=True)
def test_the_nearest_are_those_of_a_full_sort_also_with_ties(n: int, m: int, k: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    one, other = (random.integers(-1, 2, (count, 3)).astype(np.float32) for count in (n, m))
    numbers, found = nearest(one, other, k, "cpu")
    everything = cosines(one, other, "cpu")
    order = np.argsort(-everything, axis=1, kind="stable")[:, :k]
    assert (numbers == order).all()
    assert (found == np.take_along_axis(everything, order, axis=1)).all()


def test_is_done_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = vectors(50, 8), vectors(20, 8, 1)
    whole = nearest(one, other, 3, "cpu")[0]
    monkeypatch.setattr(cosine, "AT_ONCE", 60)
    assert (nearest(one, other, 3, "cpu")[0] == whole).all()


def test_zeros_are_like_nothing_and_nothing_has_nothing_near() -> None:
    zeros = np.zeros((2, 4), np.float32)
    assert (unit(zeros) == 0).all()
    assert (cosines(zeros, vectors(3, 4), "cpu") == 0).all()
    assert nearest(vectors(2, 4), np.zeros((0, 4)), 3, "cpu")[0].shape == (2, 0)
    assert nearest(np.zeros((0, 4)), vectors(2, 4), 1, "cpu")[0].shape == (0, 1)


@pytest.mark.parametrize("wrong", [np.zeros(3), np.array([[np.nan, 1.0]]), np.array([[np.inf, 1.0]])])
def test_what_has_no_cosine(wrong: cosine.Floats) -> None:
    with pytest.raises(InvalidInputError, match="finite"):
        cosines(wrong, vectors(1, 2), "cpu")


def test_other_widths_are_to_be_aligned_first() -> None:
    with pytest.raises(InvalidInputError, match="align them"):
        nearest(vectors(2, 3), vectors(2, 4), 1, "cpu")


def test_torch_is_not_asked_where_triton_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(name: str) -> object:
        return None if name == "triton" else object()

    monkeypatch.setattr(cosine, "find_spec", found)
    cosine.device.cache_clear()
    try:
        assert cosine.device() == "cpu"
    finally:
        cosine.device.cache_clear()
