"""Ways to say who stays hot, on the same keys at the same later moments: with and without the drift detector."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np
import numpy.typing as npt

from mmcache.hotkeys.lifetime_drift import THRESHOLD, look
from mmcache.learn.lifetime_history import Counted, Examples, Grouped, Labels, Uses
from mmcache.learn.lifetime_judge import Fitted, Spans, fit, modelled, ruled
from mmcache.learn.lifetime_rivals import RULES, last_day
from mmcache.learn.lifetime_tolerance import day_histograms
from mmcache.learn.lifetime_train import Recipe
from mmcache.lifespan.inputs import Floats, LifeInputs
from mmcache.lifespan.model import LifeModel

RECENT = 28
"""Intervals of which a rule takes its frequencies, and a new model what inputs are like: seven days."""
LEARNED_AGAIN = 56
"""Intervals that a model is trained on anew: fourteen days."""
CALIBRATED = 16


@dataclass
class Ways:
    """What each said of the same test examples."""

    test: Examples
    fitted: Fitted
    said: dict[str, Floats] = field(default_factory=dict)
    """Probabilities, float32 [m, 2]."""
    called: dict[str, Labels] = field(default_factory=dict)
    """Who was called hot, bool [m, 2]."""
    withheld: dict[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    """bool [m]: where a detector withheld what the model said."""
    trained_again: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    """Of the first training."""

    def add(self, name: str, found: tuple[Floats, Labels]) -> None:
        """What one said."""
        self.said[name], self.called[name] = found


def blind(uses: Uses) -> Uses:
    """Nothing is known of what keys are about."""
    return replace(uses, text=np.zeros_like(uses.text), image=np.zeros_like(uses.image))


def ways(
    counted: Counted, spans: Spans, recipe: Recipe, again: Recipe | None, *, most: int, seed: int, about: bool = True
) -> Ways:
    """All of them. again: how to train once more, where there is a detector; None = there is none."""
    began = perf_counter()
    fitted = fit(counted, spans.train, spans.validate, recipe, seed=seed)
    seconds = perf_counter() - began
    test = fitted.grouped.examples(spans.test, most=most, seed=seed + 2)
    found = Ways(test, fitted, seconds=seconds)
    found.add("no-detector", modelled(fitted, test.inputs))
    for name, make in RULES.items():
        found.add(name, ruled(make(fitted.train, counted.scale), fitted.validate, test.inputs))
    if about:
        without = Counted(blind(counted.uses), counted.scale)
        alone = fit(without, spans.train, spans.validate, recipe, seed=seed)
        found.add("behaviour", _cut_by_cut(alone, test))
    if again is not None:
        _follow(found, counted, again, seed)
    return found


def _cut_by_cut(fitted: Fitted, test: Examples) -> tuple[Floats, Labels]:
    """Of the keys of `test`, by a model with another history and groups of its own."""
    said, hot = np.zeros((len(test.key), 2), np.float32), np.zeros((len(test.key), 2), bool)
    for cut in np.unique(test.cut).tolist():
        its = np.flatnonzero(test.cut == cut)
        said[its], hot[its] = modelled(fitted, fitted.grouped.inputs(cut, test.key[its].astype(np.intp)))
    return said, hot


def _follow(found: Ways, counted: Counted, again: Recipe, seed: int) -> None:
    """Cut by cut through the test: detectors train again where inputs have drifted, and withhold what the model says
    as long as they have; `calendar` trains again as often as it may, and never withholds."""
    test, ahead = found.test, counted.scale.horizons[1]
    trained: dict[tuple[int, int], Fitted] = {}  # by cut, and by the model that it went on from
    for name in ("detector", "published", "calendar"):
        said, hot = np.zeros((len(test.key), 2), np.float32), np.zeros((len(test.key), 2), bool)
        fitted, last = found.fitted, int(test.cut.min()) - ahead
        withheld, times = np.zeros(len(test.key), bool), 0
        for cut in np.unique(test.cut).tolist():
            its = np.flatnonzero(test.cut == cut)
            drifted = name != "calendar" and _drifted(fitted, cut, name)
            if (drifted or name == "calendar") and cut - last >= ahead:
                place = cut, id(fitted)
                if place not in trained:
                    trained[place] = learned_again(counted, cut, again, fitted.model, seed)
                fitted, last, times = trained[place], cut, times + 1
                drifted = name != "calendar" and _drifted(fitted, cut, name)
            inputs = fitted.grouped.inputs(cut, test.key[its].astype(np.intp))
            withheld[its] = drifted
            said[its], hot[its] = as_today(fitted.grouped, cut, inputs) if drifted else modelled(fitted, inputs)
        found.add(name, (said, hot))
        found.withheld[name], found.trained_again[name] = withheld, times


def _drifted(fitted: Fitted, cut: int, name: str) -> bool:
    model = fitted.model
    limits = THRESHOLD if name == "published" else model.tolerances
    return look(day_histograms(fitted.grouped, cut), model.baseline, limits).drifted


def learned_again(counted: Counted, cut: int, recipe: Recipe, model: LifeModel, seed: int) -> Fitted:
    """A model from what is known at `cut`, begun from the one before."""
    known = cut - counted.scale.horizons[1] + 1
    first = max(counted.scale.day, known - CALIBRATED - LEARNED_AGAIN)
    found = fit(
        counted, range(first, known - CALIBRATED), range(known - CALIBRATED, known), recipe,
        like=range(max(counted.scale.day, cut - RECENT), cut + 1), seed=seed, start=model,
    )  # fmt: skip
    return replace(found, model=found.model.after(model))


def as_today(grouped: Grouped, cut: int, inputs: LifeInputs) -> tuple[Floats, Labels]:
    """The rule of the last day, with frequencies of the last week whose outcomes are known."""
    scale = grouped.counted.scale
    known = cut - scale.horizons[1] + 1
    recent = grouped.examples(range(max(scale.day, known - RECENT), known), most=4000, seed=cut)
    return ruled(last_day(scale), recent, inputs)
