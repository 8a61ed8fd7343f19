"""How well scores find what is true: thresholds chosen on one span of time, F1 on a later one. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def f1(predicted: npt.ArrayLike, true: npt.ArrayLike) -> float:
    """Harmonic mean of precision and recall, 0…1; 0 where nothing was found or nothing was to be found."""
    said, is_so = np.asarray(predicted, np.bool_), np.asarray(true, np.bool_)
    both = float((said & is_so).sum())
    return 2 * both / float(said.sum() + is_so.sum()) if both else 0.0


def best_threshold(scores: npt.ArrayLike, true: npt.ArrayLike) -> float:
    """The least score to be called hot, with which F1 is largest; infinite where nothing is true."""
    values, is_so = np.asarray(scores, np.float64), np.asarray(true, np.bool_)
    if not is_so.any():
        return math.inf
    order = np.argsort(-values, kind="stable")
    ranked, right = values[order], np.cumsum(is_so[order])
    ends = np.append(ranked[1:] != ranked[:-1], True)
    found = np.where(ends, 2 * right / (np.arange(1, len(values) + 1) + is_so.sum()), -1.0)
    return float(ranked[int(found.argmax())])


@dataclass(frozen=True)
class Judged:
    """How well one rule did on the last span."""

    f1: float
    precision: float
    recall: float
    scores: Floats
    true: Bools
    half_life: float | None = None
    """Windows; of rules that choose theirs on the span before."""

    @property
    def average_precision(self) -> float:
        """Mean, over the true cases, of the precision down to each; ties in random order. No threshold is needed."""
        order = np.random.default_rng(0).permutation(len(self.scores))
        right = self.true[order][np.argsort(-self.scores[order], kind="stable")]
        places = np.flatnonzero(right)
        return float((np.arange(1, len(places) + 1) / (places + 1)).mean()) if len(places) else 0.0


def judge(
    scores: Floats,
    true: Bools,
    middle: npt.NDArray[np.intp],
    last: npt.NDArray[np.intp],
    half_life: float | None = None,
) -> Judged:
    """With the threshold that was best on `middle`, the cases of the span before the `last`."""
    said, is_so = scores[last] >= best_threshold(scores[middle], true[middle]), true[last]
    both = float((said & is_so).sum())
    return Judged(
        f1(said, is_so), both / max(1.0, said.sum()), both / max(1.0, is_so.sum()), scores[last], is_so, half_life
    )
