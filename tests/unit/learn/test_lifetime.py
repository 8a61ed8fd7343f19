"""Lifetimes: nothing of an input lies behind its cut; numpy and torch agree; what is there to learn is learned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmcache.learn.lifetime_history import Counted, Groups, Uses, centres
from mmcache.learn.lifetime_judge import Spans, fit, learn, probability
from mmcache.learn.lifetime_scores import calibrated, f1, isotonic, reliability
from mmcache.learn.lifetime_train import Recipe, train
from mmcache.lifespan.file import load, save
from mmcache.lifespan.inputs import LifeScale, signs, unit
from mmcache.lifespan.model import LifeModel
from mmcache.model.errors import CorruptFrameError, FormatVersionError, InvalidInputError, SettingsError

SCALE = LifeScale(interval_seconds=3600.0, intervals=8, day=2, horizons=(2, 6), hot_uses=2)
SMALL = Recipe(examples=3000, passes=5, groups=4)


def history(seed: int = 0, intervals: int = 90, keys: int = 120) -> Uses:
    """Keys of even topics are used for long, those of odd ones briefly; when one begins says nothing."""
    draw = np.random.default_rng(seed)
    topic = draw.integers(0, 4, keys)
    born = draw.uniform(-10, intervals, keys)
    life = np.where(topic % 2 == 0, 30.0, 3.0)
    of, at = list[int](), list[float]()
    for key in range(keys):
        times = born[key] + np.arange(0.0, life[key], 0.35) + draw.uniform(0, 0.2)
        times = times[(times >= 0) & (times < intervals)]
        of += [key] * len(times)
        at += (times * SCALE.interval_seconds).tolist()
    order = np.argsort(at, kind="stable")
    about = np.eye(4)[topic]
    text = unit(about + 0.1 * draw.standard_normal((keys, 4)))
    image = signs(np.where(topic < 2, 0x0F0F, 0xFF00).astype(np.uint64))
    return Uses(np.array(of)[order], np.array(at)[order] + 1e6, text, image)


def test_no_input_changes_with_what_comes_after_its_cut() -> None:
    uses = history()
    counted = Counted(uses, SCALE)
    groups = Groups(centres(uses.text, 4, 0), centres(uses.image, 4, 0))
    cut = 40
    end = counted.began + cut * SCALE.interval_seconds
    draw = np.random.default_rng(1)
    later = uses.at >= end
    shuffled = uses.key.copy()
    shuffled[later] = draw.permutation(shuffled[later])
    other = Counted(replace(uses, key=shuffled), SCALE).grouped(groups)
    mine = counted.grouped(groups)
    rows = mine.candidates(cut)
    assert rows.tolist() == other.candidates(cut).tolist()
    for watched in (None, 3):
        mine_now, theirs = mine.inputs(cut, rows, watched), other.inputs(cut, rows, watched)
        assert np.array_equal(mine_now.series, theirs.series)
    assert not np.array_equal(mine.labels(cut, rows), other.labels(cut, rows)), "outcomes do"


def test_spans_do_not_look_into_later_ones() -> None:
    spans = Spans.of(90, SCALE)
    ahead = SCALE.horizons[1]
    assert spans.train.stop - 1 + ahead <= spans.validate.start
    assert spans.validate.stop - 1 + ahead <= spans.test.start
    assert spans.test.stop - 1 + ahead <= 90
    with pytest.raises(InvalidInputError, match="too short"):
        Spans.of(20, SCALE)


def test_numpy_computes_what_torch_trained_and_a_file_keeps_it(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="lifetimes are trained by torch: pip install 'mmcache[learn]'")
    from mmcache.learn.lifetime_train import Training

    uses = history()
    counted = Counted(uses, SCALE)
    fitted = fit(counted, range(2, 40), range(40, 50), replace(SMALL, passes=1))
    model, inputs = fitted.model, fitted.validate.inputs
    twin = Training(torch, fitted.train, SCALE, SMALL, 0, model.weights)
    with torch.no_grad():
        theirs = twin.logits(inputs.series, inputs.text, inputs.image).numpy()
    mine = model.logits(inputs.series, model.about(inputs.text, inputs.image))
    assert mine == pytest.approx(theirs, abs=1e-4)
    save(model, tmp_path / "life.safetensors")
    read = load(tmp_path / "life.safetensors")
    assert np.array_equal(read.probability(inputs), model.probability(inputs))
    assert read.scale == model.scale
    assert {name: counts.tolist() for name, counts in read.baseline.items()} == {
        name: counts.tolist() for name, counts in model.baseline.items()
    }


def test_what_a_file_should_not_be_is_told(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    with pytest.raises(SettingsError, match="mmcache learn lifetime"):
        load(tmp_path / "none")
    path = tmp_path / "other.safetensors"
    path.write_bytes(b"no weights at all")
    with pytest.raises(CorruptFrameError):
        load(path)
    save_file({"a": np.zeros(2, np.float32)}, path)
    with pytest.raises(CorruptFrameError, match="no model of lifetimes"):
        load(path)
    save_file({"a": np.zeros(2, np.float32)}, path, {"format": "mmcache-lifetime", "version": "9"})
    with pytest.raises(FormatVersionError, match="update"):
        load(path)
    save_file({"a": np.zeros(2, np.float32)}, path, {"format": "mmcache-lifetime", "version": "1", "scale": "{}"})
    with pytest.raises(CorruptFrameError, match="train it again"):
        load(path)


def test_the_same_seed_gives_the_same_weights() -> None:
    pytest.importorskip("torch", reason="lifetimes are trained by torch: pip install 'mmcache[learn]'")
    uses = history()
    counted = Counted(uses, SCALE)
    examples = counted.grouped(Groups(centres(uses.text, 4, 0), centres(uses.image, 4, 0))).examples(range(2, 30))
    recipe = replace(SMALL, passes=1)
    one, other = (train(examples, SCALE, recipe, seed=3) for _ in range(2))
    assert all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_it_learns_who_stays_hot_from_what_keys_are_about() -> None:
    pytest.importorskip("torch", reason="lifetimes are trained by torch: pip install 'mmcache[learn]'")
    uses = history(intervals=160, keys=400)
    model, judged = learn(uses, SCALE, replace(SMALL, passes=12))
    assert judged.f1["network"][1] > judged.f1["last-day"][1] + 0.01
    assert max(judged.errors) < 0.15
    blind = replace(uses, text=np.zeros_like(uses.text), image=np.zeros_like(uses.image))
    _, without = learn(blind, SCALE, replace(SMALL, passes=12))
    assert judged.f1["network"][1] > without.f1["network"][1] + 0.02
    assert set(model.notes) >= {"F1 network", "calibration error"}


def test_curves_rise_and_are_never_certain() -> None:
    draw = np.random.default_rng(0)
    scores = draw.standard_normal(4000)
    labels = draw.random(4000) < 1 / (1 + np.exp(-2 * scores))
    knots, shares = isotonic(scores, labels)
    assert (np.diff(knots) >= 0).all()
    assert (np.diff(shares) >= 0).all()
    assert 0 < shares[0] < shares[-1] < 1
    curve = calibrated(np.stack([scores, -scores], 1), np.stack([labels, labels], 1))
    said = curve.probability(np.stack([scores, -scores], 1).astype(np.float32))
    assert reliability(said[:, 0], labels).error < 0.03
    assert np.ptp(said[:, 1]) < 0.2, "a score that falls where it should rise tells little"
    assert isotonic([1.0], [True])[1].tolist() == [0.75]


def test_f1_and_calibration_error_are_what_they_are_called() -> None:
    assert f1([True, True, False], [True, False, True]) == pytest.approx(0.5)
    assert f1([False], [False]) == 0.0
    assert reliability([0.9, 0.9, 0.1, 0.1], [1, 0, 0, 0]).error == pytest.approx((2 * 0.4 + 2 * 0.1) / 4)


def test_histories_that_cannot_be_are_refused() -> None:
    uses = history()
    with pytest.raises(InvalidInputError, match="finite"):
        Counted(replace(uses, at=np.full(len(uses.at), np.nan)), SCALE)
    with pytest.raises(InvalidInputError, match="too short"):
        Counted(replace(uses, at=uses.at * 1e-6), SCALE)
    with pytest.raises(InvalidInputError):
        LifeScale(horizons=(12, 4))


def test_a_model_whose_parts_do_not_fit_is_refused() -> None:
    pytest.importorskip("torch", reason="lifetimes are trained by torch: pip install 'mmcache[learn]'")
    model = fit(Counted(history(), SCALE), range(2, 30), range(30, 40), replace(SMALL, passes=1)).model
    broken = dict(model.weights)
    broken["dense.bias"] = np.full(2, np.nan, np.float32)
    changes: tuple[dict[str, Any], ...] = (
        {"weights": broken},
        {"weights": {}},
        {"text_groups": np.zeros((2, 9), np.float32)},
        {"baseline": {"text": np.array([-1])}},
    )
    for change in changes:
        with pytest.raises(InvalidInputError):
            replace(model, **change)
    assert isinstance(model, LifeModel)
    counted = Counted(history(), SCALE)
    grouped = counted.grouped(Groups(model.text_groups, model.image_groups))
    assert probability(model, grouped.inputs(20, np.empty(0, np.intp))).shape == (0, 2)
