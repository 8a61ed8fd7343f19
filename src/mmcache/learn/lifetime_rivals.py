"""Simpler rules that a network must beat: the last day, all uses, a decaying sum, logistic regression.

Each says a score [n, 2]; scores are made probabilities on the same later span as the network's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from mmcache.learn.lifetime_history import Examples
from mmcache.learn.lifetime_scores import Wide
from mmcache.lifespan.inputs import OWN, LifeInputs, LifeScale

HALF_LIVES = (0.5, 1, 2, 4, 8, 16, 32)
"""Days of a scale that a decaying sum is tried with."""
RIDGE = 1e-3
"""Of each example's loss."""
ROUNDS = 8


class Rule(Protocol):
    """What a rule is."""

    def score(self, inputs: LifeInputs) -> Wide:
        """float64 [n, 2]: higher = sooner hot."""


class Summed:
    """A weighted sum of uses, the same for both horizons."""

    def __init__(self, weights: npt.ArrayLike) -> None:
        self._weights = np.asarray(weights, np.float64)

    def score(self, inputs: LifeInputs) -> Wide:
        """See `Rule`."""
        found = np.expm1(inputs.series[:, OWN].astype(np.float64)) @ self._weights
        return np.stack([found, found], axis=1)


def last_day(scale: LifeScale) -> Rule:
    """Uses of the last day."""
    return Summed(np.arange(scale.intervals) >= scale.intervals - scale.day)


def frequency(scale: LifeScale) -> Rule:
    """All uses that are looked back on."""
    return Summed(np.ones(scale.intervals))


def decaying(examples: Examples, scale: LifeScale) -> Rule:
    """Uses that count half after so many days: the half-life whose order tells the hot from the cold best (area under
    the curve of the nearer horizon, on the examples)."""
    ages = np.arange(scale.intervals - 1, -1, -1) / scale.day
    rules = [Summed(0.5 ** (ages / half)) for half in HALF_LIVES]
    return max(rules, key=lambda rule: _area(rule.score(examples.inputs)[:, 0], examples.labels[:, 0]))


def _area(scores: Wide, labels: npt.NDArray[np.bool_]) -> float:
    """Probability that a hot one scores more than a cold one; ties count half (Mann and Whitney, 1947)."""
    _, of, count = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[of]
    hot = int(labels.sum())
    cold = len(labels) - hot
    return float((ranks[labels].sum() - hot * (hot + 1) / 2) / max(1, hot * cold))


class Regression:
    """Logistic regression on everything that the network sees, by Newton's steps with a ridge."""

    def __init__(self, examples: Examples) -> None:
        raw = _flat(examples.inputs)
        self._mean, deviation = raw.mean(axis=0), raw.std(axis=0)
        self._deviation = np.where(deviation > 1e-6, deviation, 1.0)
        rows = self._rows(examples.inputs)
        self._weights = np.stack([_fitted(rows, examples.labels[:, h].astype(np.float64)) for h in (0, 1)], axis=1)

    def _rows(self, inputs: LifeInputs) -> Wide:
        scaled = (_flat(inputs) - self._mean) / self._deviation
        return np.hstack([scaled, np.ones((len(scaled), 1))])

    def score(self, inputs: LifeInputs) -> Wide:
        """See `Rule`."""
        found: Wide = self._rows(inputs) @ self._weights
        return found


def _flat(inputs: LifeInputs) -> Wide:
    return np.hstack([inputs.series.reshape(len(inputs.series), -1), inputs.text, inputs.image]).astype(np.float64)


def _fitted(rows: Wide, labels: Wide) -> Wide:
    weights = np.zeros(rows.shape[1])
    ridge = RIDGE * len(rows) * np.eye(rows.shape[1])
    for _ in range(ROUNDS):
        p = 1 / (1 + np.exp(-np.clip(rows @ weights, -30, 30)))
        slope = rows.T @ (labels - p) - ridge @ weights
        bend = (rows * (p * (1 - p))[:, None]).T @ rows + ridge
        weights = weights + np.linalg.solve(bend, slope)
    return weights


RULES: dict[str, Callable[[Examples, LifeScale], Rule]] = {
    "last-day": lambda examples, scale: last_day(scale),
    "frequency": lambda examples, scale: frequency(scale),
    "decay": decaying,
    "regression": lambda examples, scale: Regression(examples),
}
