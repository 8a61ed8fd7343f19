"""The formula: values by hand, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mmcache.hotkeys.attention import distributions, pooled, rebinned
from mmcache.hotkeys.score import (
    PUBLISHED,
    REVERSED,
    SMOOTHING,
    Weights,
    attended,
    attention_score,
    divergence,
    entropy,
    hot_score,
)
from mmcache.model.errors import InvalidInputError, SettingsError
from mmcache.policies.entropy import attention_entropy


def test_entropy_of_one_place_and_of_all_alike() -> None:
    rows = np.array([[0.0, 1.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]])
    assert entropy(rows) == pytest.approx([0.0, math.log(4)])
    assert entropy(rows).shape == (2,)
    assert float(entropy(rows).mean()) == pytest.approx(attention_entropy(rows, logits=False))


def test_divergence_by_hand() -> None:
    one, other = np.array([0.75, 0.25]), np.array([0.25, 0.75])
    kept = 1 - SMOOTHING
    p, q = kept * one + SMOOTHING / 2, kept * other + SMOOTHING / 2
    assert float(divergence(one, other)) == pytest.approx(float((p * np.log(p / q)).sum()))
    assert float(divergence(one, one)) == 0.0


def test_divergence_of_rows_that_share_no_place_is_finite() -> None:
    apart = float(divergence([1.0, 0.0], [0.0, 1.0]))
    assert math.log(1 / SMOOTHING) < apart <= math.log(2 / SMOOTHING)


def test_both_signs() -> None:
    assert float(attention_score(2.0, 1.0)) == pytest.approx(0.7 * 2.0 + 0.3)
    assert float(attention_score(2.0, 1.0, REVERSED)) == pytest.approx(0.7 * 2.0 - 0.3)
    assert (PUBLISHED.entropy, PUBLISHED.divergence) == (0.7, 0.3)


def test_without_attention_heat_alone() -> None:
    found = hot_score([0.0, 1.0, 3.0], [np.nan, np.nan, 1.0], [np.nan, 1.0, 1.0], PUBLISHED)
    assert found == pytest.approx([0.0, 1.0, 3.0])
    assert hot_score([1.0, 3.0], [9.0, 0.0], [9.0, 0.0]) == pytest.approx([1.0, 2.0])  # by default it weighs 0


def test_lengths_that_differ_are_compared_over_the_coarser() -> None:
    fine, coarse = np.array([0.1, 0.3, 0.2, 0.4]), np.array([0.4, 0.6])
    assert float(divergence(fine, coarse)) == 0.0
    assert rebinned(fine, 2) == pytest.approx(coarse)
    assert rebinned(np.array([1.0, 0.0, 0.0]), 2) == pytest.approx([1.0, 0.0])
    assert rebinned(np.array([0.0, 1.0, 0.0]), 2) == pytest.approx([0.5, 0.5])
    assert rebinned(np.eye(2)[None], 4, axis=1)[0] == pytest.approx(np.array([[0.5, 0], [0.5, 0], [0, 0.5], [0, 0.5]]))


def test_grids_of_two_sizes_agree_when_each_axis_is_rebinned_and_not_when_they_are_flattened() -> None:
    coarse = np.array([[0.4, 0.1], [0.2, 0.3]])
    fine = np.repeat(np.repeat(coarse, 2, axis=0), 2, axis=1) / 4
    again = rebinned(rebinned(fine, 2, axis=0), 2, axis=1)
    assert float(divergence(again.ravel(), coarse.ravel())) == pytest.approx(0.0, abs=1e-12)
    assert float(divergence(fine.ravel(), coarse.ravel())) > 0.05


def test_a_requests_maps() -> None:
    words = np.array([[[1.0, 0.0], [0.5, 0.5]], [[0.5, 0.5], [0.5, 0.5]]], np.float16)
    found = attended(words, [[0.25, 0.75], [0.75, 0.25]])
    assert found.entropy == pytest.approx(0.75 * math.log(2))
    assert found.divergence == pytest.approx(float(divergence([1.0, 0.0], [0.5, 0.5])) / 4)
    assert pooled(words) == pytest.approx([0.625, 0.375])


@pytest.mark.parametrize(
    "rows",
    [[], [0.5, float("nan")], [float("inf"), 0.0], [1.5, -0.5], [0.2, 0.2], [[0.5, 0.5], [0.0, 0.0]], [3.0, 1.0]],
)
def test_what_is_no_distribution_is_refused(rows: list[float]) -> None:
    with pytest.raises(InvalidInputError):
        distributions(rows)
    with pytest.raises(InvalidInputError):
        attended(rows, [0.5, 0.5])
    with pytest.raises(InvalidInputError):
        attended([0.5, 0.5], rows)


def test_softmax_in_half_precision_is_a_distribution() -> None:
    scores = np.random.default_rng(0).normal(size=(4, 4096)).astype(np.float16)
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares = (shares / shares.sum(axis=1, keepdims=True)).astype(np.float16)
    assert distributions(shares).sum(axis=1) == pytest.approx(np.ones(4))


def test_what_cannot_be_set() -> None:
    with pytest.raises(SettingsError):
        Weights(float("nan")).checked()
    for smoothing in (0.0, 1.5, float("nan")):
        with pytest.raises(SettingsError):
            divergence([1.0], [1.0], smoothing=smoothing)
    for heat in (-1.0, float("nan"), float("inf")):
        with pytest.raises(InvalidInputError):
            hot_score(heat)
    with pytest.raises(InvalidInputError):
        divergence(np.full((3, 2), 0.5), np.full((2, 2), 0.5))
    with pytest.raises(InvalidInputError):
        rebinned(np.ones(2), 0)
