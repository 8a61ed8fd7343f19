"""Train on early time, calibrate on later time, judge on the latest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from mmcache.learn.lifetime_history import Counted, Examples, Grouped, Groups, Labels, Uses, centres
from mmcache.learn.lifetime_rivals import RULES, Rule
from mmcache.learn.lifetime_scores import best_cuts, calibrated, f1, reliability
from mmcache.learn.lifetime_tolerance import baseline, tolerances
from mmcache.learn.lifetime_train import Progress, Recipe, train
from mmcache.lifespan.inputs import Floats, LifeInputs, LifeScale
from mmcache.lifespan.model import Calibration, LifeModel
from mmcache.model.errors import InvalidInputError

TRAIN, VALIDATE = 0.55, 0.2
"""Shares of the time, in this order; the rest is for the judgement."""


@dataclass(frozen=True)
class Spans:
    """Cuts, in intervals since a history began. No outcome of a span lies in a later one."""

    train: range
    validate: range
    test: range

    @staticmethod
    def of(length: int, scale: LifeScale, shares: tuple[float, float] = (TRAIN, VALIDATE)) -> Spans:
        """Of a history of `length` intervals. Raises `InvalidInputError` where a span would be empty."""
        ahead = scale.horizons[1]
        first = round(shares[0] * length)
        second = round((shares[0] + shares[1]) * length)
        spans = Spans(
            range(scale.day, first - ahead + 1), range(first, second - ahead + 1), range(second, length - ahead + 1)
        )
        if not (len(spans.train) and len(spans.validate) and len(spans.test)):
            least = int(np.ceil((ahead + 1) / min(*shares, 1 - sum(shares))))
            raise InvalidInputError(
                f"a history of {length} intervals of {scale.interval_seconds:g} s is too short to train on, calibrate "
                f"on later time and judge on still later time; about {least} would do: shorten the interval, or wait"
            )
        return spans


@dataclass(frozen=True)
class Fitted:
    """A model, with what it was made from."""

    model: LifeModel
    train: Examples
    validate: Examples
    grouped: Grouped

    @cached_property
    def cuts(self) -> tuple[float, float]:
        """From which probabilities on a key is called hot: what was best on the examples for calibration."""
        near, far = best_cuts(probability(self.model, self.validate.inputs), self.validate.labels)
        return near, far


def fit(
    counted: Counted,
    train_cuts: range,
    validate_cuts: range,
    recipe: Recipe,
    *,
    like: range | None = None,
    seed: int = 0,
    start: LifeModel | None = None,
    progress: Progress | None = None,
) -> Fitted:
    """A model trained on the examples at `train_cuts`, calibrated on those at `validate_cuts`. Nothing of it rests on
    anything after the last of their outcomes. like: the cuts whose days inputs are compared with later; by default
    those of both spans. Raises as `Grouped.examples` and `train`."""
    scale, uses = counted.scale, counted.uses
    known = counted.first < train_cuts.stop
    groups = Groups(*(centres(part * known[:, None], recipe.groups, seed) for part in (uses.text, uses.image)))
    grouped = counted.grouped(groups)
    training = grouped.examples(train_cuts, most=recipe.examples, seed=seed, truncated=recipe.truncated)
    validation = grouped.examples(validate_cuts, most=recipe.examples // 2, seed=seed + 1)
    weights = train(
        training, scale, recipe, seed=seed, start=None if start is None else start.weights, progress=progress
    )
    plain = Calibration(*(np.zeros((2, 1), np.float32) for _ in range(2)))
    model = LifeModel(scale, weights, plain, groups.text, groups.image)
    both = range(train_cuts.start, validate_cuts.stop)
    model = replace(
        model,
        calibration=calibrated(logits(model, validation.inputs), validation.labels),
        baseline=baseline(grouped, both if like is None else like),
        tolerances=tolerances(grouped, both),
    )
    return Fitted(model, training, validation, grouped)


def logits(model: LifeModel, inputs: LifeInputs, batch: int = 512) -> Floats:
    """float32 [n, 2], a batch at a time."""
    parts = [
        model.logits(one.series, model.about(one.text, one.image))
        for one in (inputs.of(slice(at, at + batch)) for at in range(0, len(inputs.series), batch))
    ]
    return np.concatenate(parts) if parts else np.empty((0, 2), np.float32)


def probability(model: LifeModel, inputs: LifeInputs) -> Floats:
    """float32 [n, 2], a batch at a time."""
    return model.calibration.probability(logits(model, inputs))


@dataclass(frozen=True)
class Judged:
    """On time after everything that was trained or calibrated on."""

    f1: Mapping[str, tuple[float, float]]
    """By rule, at both horizons; `network` is the model."""
    errors: tuple[float, float]
    """Expected calibration errors of the model."""
    hot: tuple[float, float]
    """Shares that were hot."""
    trained: int
    """Examples."""
    judged: int

    @property
    def learned(self) -> bool:
        """Whether the model is better than the rule of the last day, and no worse at the nearer horizon."""
        mine, theirs = self.f1["network"], self.f1["last-day"]
        return mine[0] >= theirs[0] and sum(mine) > sum(theirs)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "examples": self.trained,
            "judged": self.judged,
            "f1": {name: list(both) for name, both in self.f1.items()},
            "calibration_error": list(self.errors),
            "hot": list(self.hot),
        }


def ruled(rule: Rule, known: Examples, inputs: LifeInputs) -> tuple[Floats, Labels]:
    """float32 and bool [n, 2]: a rule's scores as probabilities, calibrated on `known`, and whom it calls hot."""
    curve = calibrated(rule.score(known.inputs), known.labels)
    said, before = (curve.probability(np.asarray(rule.score(one), np.float32)) for one in (inputs, known.inputs))
    return said, said >= np.array(best_cuts(before, known.labels), np.float32)[None]


def modelled(fitted: Fitted, inputs: LifeInputs) -> tuple[Floats, Labels]:
    """The same of a model, which calls hot by what was best on the examples that it was calibrated on."""
    said = probability(fitted.model, inputs)
    return said, said >= np.array(fitted.cuts, np.float32)[None]


def both_f1(hot: Labels, labels: Labels) -> tuple[float, float]:
    """F1 at both horizons."""
    near, far = (f1(hot[:, h], labels[:, h]) for h in (0, 1))
    return near, far


def learn(
    uses: Uses, scale: LifeScale, recipe: Recipe | None = None, *, seed: int = 0, progress: Progress | None = None
) -> tuple[LifeModel, Judged]:
    """A model of a history, and how right it is on the last quarter of it. Raises `InvalidInputError` for a history
    that is too short, `SettingsError` where torch is missing."""
    counted = Counted(uses, scale)
    spans = Spans.of(counted.length, scale)
    fitted = fit(counted, spans.train, spans.validate, recipe or Recipe(), seed=seed, progress=progress)
    test = fitted.grouped.examples(spans.test, most=(recipe or Recipe()).examples, seed=seed + 2)
    said, hot_said = modelled(fitted, test.inputs)
    scores = {"network": both_f1(hot_said, test.labels)}
    for name, make in RULES.items():
        scores[name] = both_f1(ruled(make(fitted.train, scale), fitted.validate, test.inputs)[1], test.labels)
    near, far = (reliability(said[:, h], test.labels[:, h]).error for h in (0, 1))
    hot = tuple(float(share) for share in test.labels.mean(axis=0))
    judged = Judged(scores, (near, far), (hot[0], hot[1]), len(fitted.train.labels), len(test.labels))
    notes = {f"F1 {name}": f"{a:.3f}, {b:.3f}" for name, (a, b) in scores.items()}
    notes |= {"calibration error": f"{near:.3f}, {far:.3f}", "seed": str(seed)}
    return replace(fitted.model, notes=notes), judged
