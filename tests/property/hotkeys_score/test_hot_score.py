"""The score over any maps."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcache.hotkeys.attention import Floats, distributions, rebinned
from mmcache.hotkeys.score import SMOOTHING, Weights, divergence, entropy, hot_score
from mmcache.hotkeys.scores import HotScores
from mmcache.lab.hotkeys_judged import best_threshold, f1
from mmcache.lab.hotkeys_replay import hot
from mmcache.model.key import Key


@st.composite
def maps(draw: st.DrawFn, length: int | None = None) -> Floats:
    """Rows of weights, many of them 0."""
    length = length or draw(st.integers(1, 40))
    weight = st.sampled_from([0.0, 0.0, 1e-9, 0.1, 1.0, 7.0])
    weights = draw(st.lists(st.lists(weight, min_size=length, max_size=length), min_size=1, max_size=4))
    found = np.array(weights)
    found[found.sum(axis=1) == 0] = 1.0
    shares: Floats = found / found.sum(axis=1, keepdims=True)
    return shares


@settings(derandomize=True, max_examples=150)
@given(maps(), st.integers(1, 60))
def test_rebinning_loses_no_weight_and_adds_none(rows: Floats, bins: int) -> None:
    found = rebinned(rows, bins)
    assert found.shape == (len(rows), bins)
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-9)
    np.testing.assert_allclose(rebinned(rebinned(rows, rows.shape[1] * bins), rows.shape[1]), rows, atol=1e-9)


@settings(derandomize=True, max_examples=150)
@given(st.data())
def test_bounds(data: st.DataObject) -> None:
    rows = data.draw(maps())
    length = rows.shape[1]
    others = data.draw(maps(data.draw(st.sampled_from([length, length, 2 * length, 7]))))[0]
    nats, apart = entropy(rows), divergence(rows, others)
    assert (nats >= 0).all()
    assert (nats <= math.log(length) + 1e-9).all()
    places = min(length, len(others))
    assert (apart >= 0).all()
    assert (apart <= math.log(places / SMOOTHING) + 1e-9).all()
    assert (divergence(rows, rows) == 0).all()


@settings(derandomize=True, max_examples=100)
@given(st.data())
def test_coarser_never_diverges_more(data: st.DataObject) -> None:
    """The data processing inequality: places are merged, two by two."""
    half = data.draw(st.integers(1, 20))
    rows, others = data.draw(maps(2 * half)), data.draw(maps(2 * half))[0]
    coarse = divergence(rebinned(rows, half), rebinned(others, half))
    assert (coarse <= divergence(rows, others) + 1e-9).all()


@settings(derandomize=True, max_examples=100)
@given(st.data())
def test_one_by_one_or_all_at_once_is_the_same(data: st.DataObject) -> None:
    rows = data.draw(maps())
    others = data.draw(maps(rows.shape[1]))[0]
    np.testing.assert_allclose(entropy(rows), [float(entropy(row)) for row in rows], atol=1e-12)
    np.testing.assert_allclose(divergence(rows, others), [float(divergence(row, others)) for row in rows], atol=1e-12)
    np.testing.assert_allclose(distributions(rows), rows, atol=1e-12)


@settings(derandomize=True, max_examples=100)
@given(
    st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), max_size=20),
    st.floats(0, 1e6),
    st.tuples(st.floats(-2, 2), st.floats(-2, 2), st.floats(-2, 2)),
)
def test_a_keys_score_is_the_vectorised_one(
    told: list[tuple[float, float]], heat: float, raw: tuple[float, ...]
) -> None:
    scores, key = HotScores(weights=Weights(*raw)), Key(bytes(16), bytes(16))
    for nats in told:
        scores.note(key, *nats)
    known = scores.known(key) or (math.nan, math.nan)
    np.testing.assert_allclose(scores.score(key, heat).score, float(hot_score(heat, *known, Weights(*raw))), atol=1e-9)


@settings(derandomize=True, max_examples=100)
@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=10))
def test_hotter_is_never_colder(heats: list[float]) -> None:
    found = hot_score(sorted(heats))
    assert all(less <= more for less, more in pairwise(found.tolist()))


@settings(derandomize=True, max_examples=150)
@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=40))
def test_no_threshold_is_better_than_the_best(cases: list[tuple[int, bool]]) -> None:
    scores, true = np.array([score for score, _ in cases]), np.array([is_so for _, is_so in cases])
    best = f1(scores >= best_threshold(scores, true), true)
    assert all(f1(scores >= threshold, true) <= best + 1e-12 for threshold in range(8))


@settings(derandomize=True, max_examples=100)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.floats(0.01, 1.0))
def test_a_hot_key_is_never_used_less_than_one_that_is_not(uses: list[int], share: float) -> None:
    found = hot(uses, share)
    inside, outside = np.array(uses)[found], np.array(uses)[~found]
    assert not len(inside) or not len(outside) or inside.min() > outside.max()
    assert found.sum() >= math.ceil(share * len(uses) - 1e-9) or not np.array(uses)[~found].any()
