"""Lifetimes: the watch counts what the trainer counts, and the model says in a batch what it says alone."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcache.hotkeys.lifetime_counts import KeyCounts
from mmcache.learn.lifetime_history import Counted, Groups, Uses
from mmcache.lifespan.inputs import LifeScale, signs, unit
from mmcache.lifespan.model import Calibration, LifeModel, shapes, windows
from mmcache.testing import make_key

SCALE = LifeScale(interval_seconds=10.0, intervals=6, day=2, horizons=(2, 4), hot_uses=2)
KEYS = 5


def model(scale: LifeScale = SCALE, seed: int = 0) -> LifeModel:
    draw = np.random.default_rng(seed)
    weights = {name: draw.uniform(-0.3, 0.3, shape).astype(np.float32) for name, shape in shapes(scale, 3).items()}
    calibration = Calibration(np.array([[-3, 3]] * 2, np.float32), np.array([[0.1, 0.9]] * 2, np.float32))
    return LifeModel(scale, weights, calibration, unit(np.eye(3)[:2]), signs(np.array([0, 2**64 - 1], np.uint64)))


uses = st.lists(st.tuples(st.integers(0, KEYS - 1), st.integers(0, 139)), min_size=1, max_size=80)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(uses, st.integers(0, 3))
def test_the_watch_and_the_trainer_make_the_same_inputs(times: list[tuple[int, int]], seed: int) -> None:
    draw = np.random.default_rng(seed)
    text = unit(draw.standard_normal((KEYS, 3)))
    codes = draw.integers(0, 2**63, KEYS).astype(np.uint64)
    one = model()
    times = sorted([(0, 0), *times, (0, 139)], key=lambda use: use[1])
    of, at = (np.array(part) for part in zip(*times, strict=True))
    counted = Counted(Uses(of.astype(np.int64), at.astype(np.float64), text, signs(codes)), SCALE)
    grouped = counted.grouped(Groups(one.text_groups, one.image_groups))
    counts = KeyCounts(one, 64)
    counts.roll(0)
    for n in range(KEYS):
        counts.describe(make_key(n), "tenant", text[n], int(codes[n]))
    for cut in range(1, counted.length):
        for key, when in times:
            if 10 * (cut - 1) <= when < 10 * cut:
                counts.use(make_key(key), "tenant")
        counts.roll(cut)
        rows = grouped.candidates(cut)
        slots = counts.candidates(64)
        assert {make_key(int(row)) for row in rows} == set(counts.keys(slots))
        if not len(rows):
            continue
        place = {key: n for n, key in enumerate(counts.keys(slots))}
        order = np.array([place[make_key(int(row))] for row in rows])
        wanted = grouped.inputs(cut, rows)
        shown, about = counts.asked(slots)
        np.testing.assert_allclose(shown[order], wanted.series, atol=1e-5)
        np.testing.assert_allclose(about[order], one.about(wanted.text, wanted.image), atol=1e-5)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(1, 20), st.integers(1, 40), st.integers(0, 5))
def test_a_batch_says_what_each_would_alone(count: int, intervals: int, seed: int) -> None:
    scale = LifeScale(intervals=intervals, day=1, horizons=(1, 2))
    one, draw = model(scale), np.random.default_rng(seed)
    series = draw.standard_normal((count, 10, intervals)).astype(np.float32)
    about = draw.standard_normal((count, 32)).astype(np.float32)
    together = one.logits(series, about)
    alone = np.concatenate([one.logits(series[n : n + 1], about[n : n + 1]) for n in range(count)])
    np.testing.assert_allclose(together, alone, atol=1e-4)
    assert (
        windows(series)[0, -1].tolist()
        == np.concatenate([np.pad(channel, (4, 0))[-4:] for channel in series[0]]).tolist()
    ), "the last step ends with the last interval"


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 3)), max_size=200), st.integers(2, 9))
def test_what_is_counted_is_bounded_whatever_comes(churn: list[tuple[int, int]], most: int) -> None:
    counts = KeyCounts(model(), most)
    interval = 0
    counts.roll(0)
    for key, passed in churn:
        interval += passed
        counts.roll(interval)
        counts.use(make_key(key), f"tenant {key % 90}")
        assert len(counts) <= most
        assert counts.hot_now([make_key(key)]).shape == (1,)
    slots = counts.candidates(100)
    shown, _ = counts.asked(slots)
    assert np.isfinite(shown).all()
