"""Who finds the keys that turn hot in the next window: rules and fitted rules over one replay, judged on later time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from mmcache.hotkeys.score import PUBLISHED, REVERSED, attention_score
from mmcache.lab.hotkeys_judged import Bools, Floats, Judged, best_threshold, f1, judge
from mmcache.lab.hotkeys_replay import ATTENTION, BEHAVIOUR, FEATURES, HALF_LIVES, LIVE_SCORES, Cases, live

Rule = Callable[[Cases], Floats]


def _feature(name: str) -> Rule:
    return lambda cases: cases.features[name]


RULES: Mapping[str, Rule] = {
    "all": lambda cases: np.zeros(len(cases.true)),
    "random": lambda cases: np.random.default_rng(0).random(len(cases.true)),
    "frequency": lambda cases: cases.features["total"],
    "window": lambda cases: cases.features["window"],
    **{f"heat/{half:g}": _feature(f"heat/{half:g}") for half in HALF_LIVES},
    "entropy": lambda cases: cases.features["entropy"],
    "entropy, lower is hotter": lambda cases: -cases.features["entropy"],
    "divergence": lambda cases: cases.features["divergence"],
    "divergence, lower is hotter": lambda cases: -cases.features["divergence"],
    "score/+": lambda cases: attention_score(cases.features["entropy"], cases.features["divergence"], PUBLISHED),
    "score/-": lambda cases: attention_score(cases.features["entropy"], cases.features["divergence"], REVERSED),
    "oracle": lambda cases: cases.features["oracle"],
}
FITTED = {"behaviour": BEHAVIOUR, "attention": ATTENTION, "combined": FEATURES}
"""Fitted on earlier time: what was used, what was attended to, and both."""


def fit(features: Floats, true: Bools, *, ridge: float = 1.0, rounds: int = 25) -> Floats:
    """Logistic regression with a ridge, by Newton's method. features: [n, f] standardised. Weights [f + 1]."""
    inputs = np.column_stack([features, np.ones(len(features))])
    weights, penalty = np.zeros(inputs.shape[1]), ridge * np.diag([*np.ones(features.shape[1]), 0.0])
    for _ in range(rounds):
        chance = _chance(inputs @ weights)
        slope = inputs.T @ (true - chance) - penalty @ weights
        bend = (inputs * (chance * (1 - chance))[:, None]).T @ inputs + penalty
        step = np.linalg.solve(bend + 1e-9 * np.eye(len(bend)), slope)
        weights += step
        if np.abs(step).max() < 1e-8:
            break
    return weights


def _chance(logit: Floats) -> Floats:
    found: Floats = 1 / (1 + np.exp(-np.clip(logit, -30, 30)))
    return found


def fitted(cases: Cases, names: Sequence[str], fresh: bool) -> Floats:
    """Each case's chance by weights that are fitted on the earliest span alone; uses enter as logarithms."""
    columns = np.column_stack(
        [np.log2(1 + cases.features[name]) if name in BEHAVIOUR else cases.features[name] for name in names]
    )
    early = cases.span(0, fresh)
    middle, width = columns[early].mean(axis=0), columns[early].std(axis=0) + 1e-9
    scaled = (columns - middle) / width
    weights = fit(scaled[early], cases.true[early])
    return _chance(scaled @ weights[:-1] + weights[-1])


def half_life(cases: Cases, name: str, fresh: bool) -> float:
    """Windows: the one of `HALF_LIVES` with which the live score `name` does best on the span before the last."""
    middle = cases.span(1, fresh)
    true = cases.true[middle]

    def found(half: float) -> float:
        scores = cases.features[live(name, half)][middle]
        return f1(scores >= best_threshold(scores, true), true)

    return max(HALF_LIVES, key=found)


def judge_all(cases: Cases, fresh: bool) -> dict[str, Judged]:
    """Every rule, every live score, every fitted rule. fresh: of keys that turn hot alone."""
    middle, last = cases.span(1, fresh), cases.span(2, fresh)
    found = {name: judge(rule(cases), cases.true, middle, last) for name, rule in RULES.items()}
    for name in LIVE_SCORES:
        half = half_life(cases, name, fresh)
        found[name] = judge(cases.features[live(name, half)], cases.true, middle, last, half)
    for name, names in FITTED.items():
        found[name] = judge(fitted(cases, names, fresh), cases.true, middle, last)
    return found
