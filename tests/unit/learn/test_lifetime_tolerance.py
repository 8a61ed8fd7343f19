"""How far days may lie apart is what the history says, and a change in it makes nobody more patient."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tests.property.test_lifetime import model

from mmcache.learn.lifetime_history import Counted, Groups, Uses
from mmcache.learn.lifetime_tolerance import LEAST, MOST, baseline, day_histograms, tolerances
from mmcache.lifespan.inputs import LifeScale, unit

SCALE = LifeScale(interval_seconds=10.0, intervals=8, day=2, horizons=(2, 4))


def history(share: list[float], uses: int = 300) -> Counted:
    """Two keys of two topics; `share` of each interval's uses is of the first."""
    draw = np.random.default_rng(0)
    first = np.concatenate([draw.random(uses) < one for one in share])
    at = np.repeat(np.arange(len(share)) * 10.0, uses) + np.tile(np.linspace(0, 9.9, uses), len(share))
    return Counted(
        Uses(np.where(first, 0, 1).astype(np.int64), at, unit(np.eye(2)), np.zeros((2, 64), np.float32)), SCALE
    )


GROUPS = Groups(unit(np.eye(2)), np.zeros((0, 64), np.float32))


def test_a_calm_history_tolerates_little_and_a_wandering_one_more() -> None:
    calm = tolerances(history([0.5] * 61).grouped(GROUPS), range(2, 60))
    wander = tolerances(history([0.5 + 0.4 * np.sin(n / 3) for n in range(61)]).grouped(GROUPS), range(2, 60))
    assert calm == {"text": LEAST}, "two keys are too few for a histogram of keys"
    assert LEAST < wander["text"] < MOST
    changed = tolerances(history([0.999] * 30 + [0.001] * 31).grouped(GROUPS), range(2, 60))
    assert changed["text"] == MOST


def test_nothing_after_a_span_is_in_its_tolerances_or_its_baseline() -> None:
    one, other = (history([0.5, 0.6, 0.4, 0.5] * 10 + later).grouped(GROUPS) for later in ([0.5] * 21, [0.01] * 21))
    span = range(2, 41)
    assert tolerances(one, span) == tolerances(other, span)
    mine, theirs = baseline(one, span), baseline(other, span)
    assert all(np.array_equal(mine[name], theirs[name]) for name in mine)
    assert not np.array_equal(day_histograms(one, 45)["text"], day_histograms(other, 45)["text"])


def test_a_history_that_is_too_short_says_nothing() -> None:
    assert tolerances(history([0.5] * 12).grouped(GROUPS), range(2, 9)) == {}
    assert tolerances(history([0.5] * 12).grouped(GROUPS), range(2, 2)) == {}


def test_a_new_model_is_no_more_patient_than_the_one_before() -> None:
    before = replace(model(), tolerances={"text": 0.5, "heat": 0.1})
    after = replace(model(seed=1), tolerances={"text": 1.0, "heat": 0.05, "image": 0.7}).after(before)
    assert after.tolerances == {"text": 0.5, "heat": 0.05, "image": 0.7}
