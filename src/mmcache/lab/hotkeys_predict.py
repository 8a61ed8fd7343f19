"""Who finds the keys that turn hot in the next window: rules and fitted rules over one replay, judged on later time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mmcache.hotkeys.score import PUBLISHED, REVERSED, Weights, attention_score, hot_score
from mmcache.hotkeys.scores import HotScores
from mmcache.hotkeys.turning import best_threshold, f1, hot
from mmcache.lab.hotkeys_readings import Seen
from mmcache.lab.hotkeys_stream import Stream
from mmcache.model.key import Key

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

WARM = 6
"""Windows before anything is judged."""
HALF_LIVES = (0.5, 1.0, 3.0, 10.0)
"""Windows."""
LIVE = 0
"""Place in `HALF_LIVES` of the heat in the live scores."""
LIVE_SCORES = {"live": Weights(), "live/+": PUBLISHED, "live/-": REVERSED}
"""The product's own score: as it is by default, and with attention as published, and with the other sign."""
SPANS = (0.5, 0.65)
"""Until when rules are fitted, and until when thresholds are chosen; the rest is the test."""
BEHAVIOUR = ("window", *(f"heat/{half:g}" for half in HALF_LIVES), "total")
ATTENTION = ("entropy", "divergence", "entropy's change", "divergence's change")
FEATURES = (*BEHAVIOUR, *ATTENTION)


@dataclass(frozen=True)
class Cases:
    """One case a window and known key that is not hot in it (or, for `next`, each known key)."""

    features: dict[str, Floats]
    """[n] each: what is known at a window's end."""
    true: Bools
    """Hot in the next window."""
    fresh: Bools
    """Not hot in this one: the cases of `turns`; the others are those of `next` alone."""
    window: npt.NDArray[np.intp]
    windows: int
    unknown: int
    """Keys that were hot in a window though nobody had asked for them before: in no case."""

    def span(self, place: int, fresh: bool) -> npt.NDArray[np.intp]:
        """Which cases are to fit (0), to choose thresholds (1), to judge (2)."""
        low, high = (round(share * self.windows) for share in ((0.0, *SPANS, 1.0)[place : place + 2]))
        within = (self.window >= low) & (self.window < high)
        return np.flatnonzero(within & self.fresh if fresh else within)


def replay(stream: Stream, pictures: Sequence[Seen], share: float) -> Cases:
    """What a watcher knows at each window's end; attention as `HotScores` keeps it. share: of keys that are hot."""
    scores, slow = HotScores(), HotScores(share=1e-3)
    keys = [Key.from_bytes(place.to_bytes(48, "big")) for place in range(len(pictures))]
    windows, count = stream.uses.shape
    heats = np.zeros((len(HALF_LIVES), count))
    decay = 0.5 ** (1 / np.array(HALF_LIVES))[:, None]
    total = np.zeros(count)
    found: list[tuple[Floats, Bools, Bools, npt.NDArray[np.intp]]] = []
    unknown = 0
    for window in range(windows - 1):
        for which, question in zip(*(part.tolist() for part in stream.requests[window]), strict=True):
            scores.note(keys[which], *pictures[which].readings[question].nats)
            slow.note(keys[which], *pictures[which].readings[question].nats)
        heats = decay * heats + stream.uses[window]
        total = total + stream.uses[window]
        if window < WARM:
            continue
        known = np.flatnonzero(total > 0)
        now, then = hot(stream.uses[window][known], share), hot(stream.uses[window + 1][known], share)
        unknown += int(hot(stream.uses[window + 1], share)[total == 0].sum())
        nats = np.array([scores.known(keys[key]) for key in known])
        heat = [_relative(one[known], share) for one in (stream.uses[window], *heats, total)]
        oracle = _relative(stream.rates[window + 1][known], share)
        live = [hot_score(heats[LIVE, known], *nats.T, weights) for weights in LIVE_SCORES.values()]
        live = [one - np.quantile(one, 1 - share) for one in live]
        change = nats - np.array([slow.known(keys[key]) for key in known])
        found.append((np.stack([*heat, *nats.T, *change.T, *live, oracle]), then, ~now, np.full(len(known), window)))
    features, true, fresh, window_of = (np.concatenate(part, axis=-1) for part in zip(*found, strict=True))
    named = dict(zip((*FEATURES, *LIVE_SCORES, "oracle"), features, strict=True))
    return Cases(named, true, fresh, window_of, windows, unknown)


def _relative(values: Floats, share: float) -> Floats:
    """`values` by the value from which on keys are hot: how hot is hot changes as traffic does, for everybody alike."""
    return values / max(1e-9, float(np.quantile(values, 1 - share)))


Rule = Callable[[Cases], Floats]

RULES: Mapping[str, Rule] = {
    "random": lambda cases: np.random.default_rng(0).random(len(cases.true)),
    "frequency": lambda cases: cases.features["total"],
    "window": lambda cases: cases.features["window"],
    **{f"heat/{half:g}": (lambda cases, name=f"heat/{half:g}": cases.features[name]) for half in HALF_LIVES},
    "entropy": lambda cases: cases.features["entropy"],
    "entropy, lower is hotter": lambda cases: -cases.features["entropy"],
    "divergence": lambda cases: cases.features["divergence"],
    "divergence, lower is hotter": lambda cases: -cases.features["divergence"],
    "score/+": lambda cases: attention_score(cases.features["entropy"], cases.features["divergence"], PUBLISHED),
    "score/-": lambda cases: attention_score(cases.features["entropy"], cases.features["divergence"], REVERSED),
    **{name: (lambda cases, name=name: cases.features[name]) for name in (*LIVE_SCORES, "oracle")},
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


@dataclass(frozen=True)
class Judged:
    """How well one rule did on the last span."""

    f1: float
    precision: float
    recall: float
    scores: Floats
    true: Bools

    @property
    def average_precision(self) -> float:
        """Mean, over the true cases, of the precision down to each; ties in random order. No threshold is needed."""
        order = np.random.default_rng(0).permutation(len(self.scores))
        right = self.true[order][np.argsort(-self.scores[order], kind="stable")]
        places = np.flatnonzero(right)
        return float((np.arange(1, len(places) + 1) / (places + 1)).mean()) if len(places) else 0.0


def judge(cases: Cases, scores: Floats, fresh: bool) -> Judged:
    """With the threshold that was best on the span before the last."""
    middle, last = cases.span(1, fresh), cases.span(2, fresh)
    said = scores[last] >= best_threshold(scores[middle], cases.true[middle])
    true = cases.true[last]
    both = float((said & true).sum())
    return Judged(f1(said, true), both / max(1.0, said.sum()), both / max(1.0, true.sum()), scores[last], true)


def judge_all(cases: Cases, fresh: bool) -> dict[str, Judged]:
    """Every rule, every fitted rule."""
    found = {name: judge(cases, rule(cases), fresh) for name, rule in RULES.items()}
    return found | {name: judge(cases, fitted(cases, names, fresh), fresh) for name, names in FITTED.items()}
