"""The monitor: quiet while nothing moves, soon when something does, bounded, and the same after a restart."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from mmcache.keys.drift import DriftMonitor, DriftSettings, FrozenStatistics
from mmcache.keys.drift.histogram import codes, count, directions, divergence, edges
from mmcache.keys.drift.state import pack, unpack
from mmcache.keys.drift.threshold import _student, thresholds
from mmcache.model.errors import CorruptFrameError, FormatVersionError, InvalidInputError, SettingsError

SMALL = DriftSettings(window=64, long=4, baseline=24, projections=6, bins=8)
WIDTH = 20
SECONDS = 7.2
"""Between samples: 500 an hour."""


def stream(seed: int, scale: float = 1.0, shift: float = 0.0) -> Iterator[npt.NDArray[np.float32]]:
    """Windows of correlated normal features."""
    mix = np.random.default_rng(99).normal(size=(WIDTH, WIDTH))
    rng = np.random.default_rng(seed)
    while True:
        yield ((rng.normal(size=(64, WIDTH)) @ mix) * scale + shift).astype(np.float32)


def feed(monitor: DriftMonitor, source: Iterator[npt.NDArray[np.float32]], windows: int, start: int = 0) -> list[int]:
    """Alarms by window."""
    return [
        len(monitor.observe("image", next(source), now=(start + number) * 64 * SECONDS)) for number in range(windows)
    ]


@pytest.fixture
def steady() -> DriftMonitor:
    monitor = DriftMonitor(SMALL)
    feed(monitor, stream(1), SMALL.baseline)
    assert monitor.status()["image"].state == "steady"
    return monitor


def test_it_learns_then_watches() -> None:
    monitor = DriftMonitor(SMALL)
    feed(monitor, stream(1), 3)
    status = monitor.status()["image"]
    assert (status.state, status.learned, status.wanted) == ("learning", 192, 24 * 64)
    feed(monitor, stream(2), 22, start=3)
    status = monitor.status()["image"]
    assert (status.state, status.samples, status.raised) == ("steady", 64, 0)
    assert 0 < status.divergence < status.threshold
    assert status.baseline_seconds == 23 * 64 * SECONDS


def test_a_moved_mean_is_raised_once_and_goes_off_when_it_is_over(steady: DriftMonitor) -> None:
    moved = feed(steady, stream(3, shift=8.0), 10, start=24)
    assert moved == [1] + [0] * 9
    status = steady.status()["image"]
    assert status.state == "drifted"
    (alarm,) = status.alarms
    assert alarm.divergence > alarm.threshold
    assert abs(alarm.shift) > 0.3
    assert (alarm.stream, alarm.sample, alarm.window) == ("image", 64, 64)
    assert status.since == alarm.when
    feed(steady, stream(4), 12, start=34)
    assert steady.status()["image"].state == "steady"
    assert sum(feed(steady, stream(3, shift=8.0), 4, start=46)) == 1
    assert steady.status()["image"].raised == 2


def test_a_changed_spread_is_seen_too(steady: DriftMonitor) -> None:
    assert sum(feed(steady, stream(3, scale=1.6), 8, start=24)) == 1


def test_a_slight_move_of_everything_is_seen_by_the_long_window() -> None:
    settings = DriftSettings(window=64, long=16, baseline=96, projections=16, bins=8)
    monitor = DriftMonitor(settings)
    feed(monitor, stream(1), 96)
    spread = np.concatenate([part for part, _ in zip(stream(1), range(20), strict=False)]).std(0)
    signs = np.random.default_rng(5).choice([-1, 1], WIDTH)
    found: list[int] = []
    for number, part in enumerate(stream(7)):
        alarms = monitor.observe("image", part + (0.12 * spread * signs).astype(np.float32), now=1e6 + number)
        found += [alarm.window for alarm in alarms]
        if found or number > 320:
            break
    assert found == [64 * 16]


def test_one_call_or_many_is_the_same() -> None:
    rows = np.concatenate([part for part, _ in zip(stream(1), range(40), strict=False)])
    whole, bit_by_bit = DriftMonitor(SMALL), DriftMonitor(SMALL)
    whole.observe("image", rows, now=0.0)
    for start in range(0, len(rows), 37):
        bit_by_bit.observe("image", rows[start : start + 37], now=0.0)
    one, other = whole.status()["image"], bit_by_bit.status()["image"]
    assert (one.samples, one.state, one.statistics) == (other.samples, other.state, other.statistics)
    assert math.isclose(one.divergence, other.divergence, rel_tol=1e-6)


def test_an_upgrade_is_no_drift(steady: DriftMonitor) -> None:
    steady.observe("image", next(stream(2)), now=0.0, tag="embedder-2")
    status = steady.status()["image"]
    assert (status.state, status.tag, status.learned) == ("learning", "embedder-2", 64)
    assert steady.status()["image@"].state == "steady", "both are kept: canaries run side by side"
    for number in range(30):
        steady.observe("image", next(stream(number)), now=0.0, tag=("", "embedder-2")[number % 2])
    assert [one.state for one in steady.status().values()] == ["learning", "steady"]
    for number in range(9):
        steady.observe("image", next(stream(2)), now=0.0, tag=f"embedder-{number}")
    assert len(steady.status()) == 4


def test_given_statistics_are_used() -> None:
    monitor, frozen = DriftMonitor(SMALL), FrozenStatistics.fit(next(stream(5)))
    monitor.freeze("image", frozen)
    feed(monitor, stream(1), 25)
    assert monitor.status()["image"].statistics == frozen.digest
    assert monitor.status()["image"].state == "steady"


@pytest.mark.parametrize("bad", [np.full((3, WIDTH), np.nan), np.zeros((3, WIDTH + 1)), np.zeros((2, 2, 2))])
def test_features_that_make_no_sense_change_nothing(steady: DriftMonitor, bad: npt.NDArray[np.float64]) -> None:
    before = pack(steady, 0.0)
    with pytest.raises(InvalidInputError):
        steady.observe("image", bad, now=0.0)
    assert pack(steady, 0.0) == before


def test_another_width_while_learning_is_refused() -> None:
    monitor = DriftMonitor(SMALL)
    monitor.observe("image", np.zeros((3, 4)), now=0.0)
    with pytest.raises(InvalidInputError):
        monitor.observe("image", np.zeros((3, 5)), now=0.0)
    feed(monitor, iter([np.ones((61, 4), np.float32)]), 1)
    with pytest.raises(InvalidInputError):
        monitor.observe("image", np.zeros((3, 5)), now=0.0)


def test_features_that_never_vary_raise_nothing() -> None:
    monitor = DriftMonitor(SMALL)
    for number in range(40):
        assert monitor.observe("image", np.ones((64, 4)), now=float(number)) == []
    assert monitor.status()["image"].state == "steady"
    assert monitor.observe("image", np.full((64, 4), 2.0), now=41.0) != []


def test_memory_is_bounded(steady: DriftMonitor) -> None:
    small = len(pack(steady, 0.0))
    for number in range(60):
        feed(steady, stream(number, shift=8.0 * (number % 2)), 20, start=number * 20)
    status = steady.status()["image"]
    assert len(status.alarms) <= 32
    assert len(pack(steady, 0.0)) < small + 32 * 250
    for number in range(63):
        steady.observe(f"stream {number}", np.zeros(3), now=0.0)
    with pytest.raises(SettingsError):
        steady.observe("one more", np.zeros(3), now=0.0)


@pytest.mark.parametrize("windows", [0, 1, 3, 24, 26])
def test_it_goes_on_from_its_state(windows: int) -> None:
    rows = [part for part, _ in zip(stream(1), range(34), strict=False)]
    straight, stopped = DriftMonitor(SMALL), DriftMonitor(SMALL)
    for number, part in enumerate(rows):
        straight.observe("image", part[:50], now=float(number))
        stopped.observe("image", part[:50], now=float(number))
        if number == windows:
            stopped, when = unpack(pack(stopped, 5.0))
            assert when == 5.0
    one, other = straight.status()["image"], stopped.status()["image"]
    assert one == other


def test_a_damaged_state_is_refused_not_believed(steady: DriftMonitor) -> None:
    data = pack(steady, 0.0)
    with pytest.raises(CorruptFrameError):
        unpack(data[:-10])
    with pytest.raises(CorruptFrameError):
        unpack(b"")
    with pytest.raises(CorruptFrameError):  # nested beyond what can be read
        unpack(b"\x82\xa7version\x01\xa1x" + b"\x91" * 100_000 + b"\xc0")
    with pytest.raises(FormatVersionError):
        unpack(msgspec.msgpack.encode({"version": 9}))
    learner = DriftMonitor(SMALL)
    learner.observe("image", next(stream(1)), now=0.0)
    page = msgspec.msgpack.decode(pack(learner, 0.0))
    page["streams"][0]["stage"]["samples"] = 3
    with pytest.raises(CorruptFrameError):
        unpack(msgspec.msgpack.encode(page))
    page = msgspec.msgpack.decode(data)
    page["streams"][0]["stage"]["baseline"]["counts"][1] = [1 << 40, 1 << 40]
    with pytest.raises(CorruptFrameError):
        unpack(msgspec.msgpack.encode(page))


@pytest.mark.parametrize("part", ["axes", "borders", "counts", "mean", "deviation", "short", "long"])
def test_broken_numbers_in_a_state_are_refused(steady: DriftMonitor, part: str) -> None:
    page = msgspec.msgpack.decode(pack(steady, 0.0))
    array = page["streams"][0]["stage"]["baseline"][part]
    array[2] = b"\xff" * len(array[2])  # NaN, or −1
    with pytest.raises(CorruptFrameError):
        unpack(msgspec.msgpack.encode(page))
    if part in ("deviation", "short", "long"):  # what is divided by
        array[2] = bytes(len(array[2]))
        with pytest.raises(CorruptFrameError):
            unpack(msgspec.msgpack.encode(page))


@pytest.mark.parametrize("shape", [[1 << 32, 1 << 32], [1 << 63, 2], [SMALL.window + 1, 1]], ids=str)
def test_a_learner_of_impossible_size_is_refused(shape: list[int]) -> None:
    learner = DriftMonitor(SMALL)
    learner.observe("image", next(stream(1)), now=0.0)
    page = msgspec.msgpack.decode(pack(learner, 0.0))
    stage = page["streams"][0]["stage"]
    rows = shape[0] if shape[0] < 1 << 20 else 0
    stage["raw"][1:], stage["samples"] = [shape, bytes(4 * rows)], rows
    with pytest.raises(CorruptFrameError):
        unpack(msgspec.msgpack.encode(page))


@pytest.mark.parametrize(
    "wrong",
    [
        {"window": 0}, {"long": 0}, {"projections": 0}, {"bins": 1}, {"bins": 300}, {"baseline": 10},
        {"false_alarms": 0.0}, {"false_alarms": math.inf}, {"window": 1 << 16},
    ],
    ids=str,
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(SettingsError):
        DriftSettings(**wrong)  # type: ignore[arg-type]


def test_bins_are_filled_equally_and_counted_right() -> None:
    rows = np.random.default_rng(0).normal(size=(1600, 3)).astype(np.float32)
    coded = codes(rows, edges(rows, 16))
    counted = count(coded, 16)
    assert counted.shape == (3, 16)
    assert np.abs(counted - 100).max() <= 1
    assert (counted[1] == [np.sum(coded[:, 1] == b) for b in range(16)]).all()


def test_what_differs_between_batch_sizes_is_no_drift() -> None:
    """Five pictures again and again: their values must not sit beside a border, all to cross it with the last bits."""
    values = np.random.default_rng(3).normal(size=(5, WIDTH)).astype(np.float32)
    rng = np.random.default_rng(4)
    monitor = DriftMonitor(SMALL)
    for number in range(48):
        noise = 1e-5 * (number >= 24) * rng.uniform(-1, 1, (64, WIDTH))
        assert monitor.observe("image", values[rng.integers(0, 5, 64)] + noise, now=number * 64 * SECONDS) == []
    moved = values + np.float32(0.3) * values.std(0)
    raised = [monitor.observe("image", moved[rng.integers(0, 5, 64)], now=1e6) for _ in range(8)]
    assert sum(map(len, raised)) == 1


def test_divergence_is_zero_for_equal_shares_and_finite_for_empty_bins() -> None:
    base = np.array([[50, 50, 0]])
    assert abs(divergence(np.array([[500, 500, 0]]), base)[0]) < 0.01
    assert 0 < divergence(np.array([[0, 0, 100]]), base)[0] < 10
    assert (divergence(np.array([[7, 1, 3]]), base) >= 0).all()


def test_directions_are_orthonormal() -> None:
    axes = directions(30, 8, seed=1)
    np.testing.assert_allclose(axes.T @ axes, np.eye(8), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(directions(3, 8, seed=1), axis=0), 1, atol=1e-6)


@pytest.mark.parametrize(("tail", "freedom"), [(1e-2, 10), (1e-3, 23), (1e-4, 63), (1e-5, 63), (1e-3, 7)])
def test_students_quantile_is_that_of_scipy(tail: float, freedom: int) -> None:
    scipy = pytest.importorskip("scipy.stats")
    assert _student(tail, freedom) == pytest.approx(scipy.t.isf(tail, freedom), rel=0.02)


def test_repeats_and_hours_raise_the_threshold() -> None:
    """What the baseline does in its own order counts, not only chance."""
    rng = np.random.default_rng(0)
    even = rng.integers(0, 8, (24 * 64, 4)).astype(np.uint8)
    hours = np.sort(even, axis=0)
    assert (thresholds(hours, 8, 64, 1e-3, 0) > 2 * thresholds(even, 8, 64, 1e-3, 0)).all()


@pytest.mark.slow
def test_false_alarms_are_as_many_as_stated() -> None:
    """40 months of 500 requests an hour that do not move: expected at most 40; 60 would be chance once in 1000."""
    raised = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        monitor = DriftMonitor()
        baseline = rng.normal(size=(monitor.settings.samples, 8))
        monitor.observe("image", baseline[:1], now=0.0)
        monitor.observe("image", baseline[1:], now=monitor.settings.samples * SECONDS)
        for _ in range(36):
            raised += len(monitor.observe("image", rng.normal(size=(10_000, 8)), now=1e9))
    assert raised < 60
