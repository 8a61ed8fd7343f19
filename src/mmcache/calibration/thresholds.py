"""A threshold of its own for each neighbourhood, learned from few outcomes: a posterior over a grid.

Over the score x = logit of what is generally so for such a request, a neighbourhood's P(wrong) is σ(a (x − c)) with its
own threshold c and sharpness a. The posterior is exact on a grid; the prior is the mean of all neighbourhoods'
posteriors (empirical Bayes), so a new neighbourhood begins with what is usual. A little of the prior is mixed in at
each outcome (fixed share: Herbster and Warmuth 1998), so that a neighbourhood that turned, or was given a wrong label,
is relearned.
"""

from __future__ import annotations

from array import array
from math import exp, log
from operator import mul

SHARPNESS = (1.0, 3.0)
STEPS = 8
GRID = tuple((a, float(c)) for a in SHARPNESS for c in range(-STEPS, STEPS + 1))
NEUTRAL = (1.0, 0.0)
"""Leaves what is generally so as it is."""
FLOOR = 1e-4
"""No hypothesis is surer than this."""
SHARED = 0.003
UNIFORM = 0.01
"""Of the prior, kept for every hypothesis alike. An unknown neighbourhood is never taken to be less wrong than this
makes it: with 0.03, where all is right, 0.5 %, too much for the level that opens first at an allowed error of 1 %."""
FIRST_PACE = 0.03
MOST_PACE = 0.2
_SCORES = [score / 2 for score in range(-2 * STEPS, 2 * STEPS + 1)]
_WRONG = [array("d", [FLOOR + (1 - 2 * FLOOR) / (1 + exp(-a * (x - c))) for a, c in GRID]) for x in _SCORES]
_RIGHT = [array("d", [1 - wrong for wrong in row]) for row in _WRONG]


def score(wrong: float) -> int:
    """The place on the grid of scores of a general P(wrong)."""
    if wrong <= 3.4e-4:
        return 0
    if wrong >= 1 - 3.4e-4:
        return len(_SCORES) - 1
    return round(2 * log(wrong / (1 - wrong))) + 2 * STEPS


class Prior:
    """What is usual among neighbourhoods (or pairs) of a population."""

    __slots__ = ("weights",)

    def __init__(self, neutral: bool = False) -> None:
        """neutral: begins with what is generally so, as it is; else with every threshold alike."""
        even = UNIFORM if neutral else 1.0
        self.weights = array("d", [even / len(GRID) + (1 - even) * (one == NEUTRAL) for one in GRID])

    def predict(self, place: int) -> float:
        """P(wrong) at a score, of a neighbourhood of which nothing is known."""
        return predict(self.weights, place)

    def follow(self, weights: array[float], seen: float, stands_for: float) -> None:
        """Move towards the posterior of one that has seen so many outcomes, the last of which stands for so many."""
        pace = min(stands_for * FIRST_PACE / (1 + 0.1 * seen), MOST_PACE)
        even = pace * UNIFORM / len(GRID)
        stay, go = 1 - pace, pace * (1 - UNIFORM)
        self.weights = array(
            "d", [stay * old + go * new + even for old, new in zip(self.weights, weights, strict=True)]
        )


def predict(weights: array[float], place: int) -> float:
    """P(wrong) at a score under a posterior."""
    return float(sum(map(mul, weights, _WRONG[place])))


def update(weights: array[float], prior: Prior, place: int, right: bool) -> array[float]:
    """The posterior after an outcome at a score."""
    after = list(map(mul, weights, (_RIGHT if right else _WRONG)[place]))
    scale = (1 - SHARED) / sum(after)
    return array("d", [scale * weight + SHARED * usual for weight, usual in zip(after, prior.weights, strict=True)])
