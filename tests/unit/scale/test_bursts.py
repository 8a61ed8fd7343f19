"""When load counts as a burst. Time is virtual."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcache.model.errors import ScaleError
from mmcache.scale.bursts import BurstDetector, Load
from mmcache.scale.spec import BurstSpec

SPEC = BurstSpec()
STEP = 5.0
START = 1_700_000_000.0


def watch(detector: BurstDetector, counts: Iterable[float], start: float = START, step: float = STEP) -> list[Load]:
    """What it says; `counts` are the requests of each `step` seconds."""
    return [detector.observe(start + step * (number + 1), count / step) for number, count in enumerate(counts)]


def poisson(rates: Sequence[float], seed: int) -> list[float]:
    return [float(n) for n in np.random.default_rng(seed).poisson(np.array(rates) * STEP)]


def steps(hours: float) -> int:
    return int(hours * 3600 / STEP)


@settings(deadline=None, derandomize=True, max_examples=25)
@given(rate=st.floats(0.0, 5000.0), seed=st.integers(0, 1000))
def test_a_constant_rate_is_no_burst(rate: float, seed: int) -> None:
    loads = watch(BurstDetector(SPEC), poisson([rate] * steps(3), seed))
    assert not any(load.burst for load in loads)


@settings(deadline=None, derandomize=True, max_examples=25)
@given(rate=st.floats(2.0, 5000.0), factor=st.floats(2.0, 50.0), hours=st.floats(0.2, 3.0), seed=st.integers(0, 1000))
def test_twice_the_rate_is_one_within_two_windows(rate: float, factor: float, hours: float, seed: int) -> None:
    before = steps(hours)
    loads = watch(BurstDetector(SPEC), poisson([rate] * before + [factor * rate] * 24, seed))
    assert not any(load.burst for load in loads[:before])
    assert loads[-1].burst
    found = loads[-1].since
    assert found is not None
    assert found - (START + before * STEP) <= 2 * SPEC.window_seconds


@settings(deadline=None, derandomize=True, max_examples=15)
@given(data=st.data(), seed=st.integers(0, 1000))
def test_a_burst_lasts_at_least_the_quiet_time_and_begins_once_within_it(data: st.DataObject, seed: int) -> None:
    levels = data.draw(st.lists(st.sampled_from([0.0, 10.0, 14.0, 16.0, 25.0, 100.0]), min_size=10, max_size=60))
    rates = [level for level in levels for _ in range(data.draw(st.sampled_from([6, 12, 60])))]
    loads = watch(BurstDetector(SPEC), poisson([10.0] * steps(0.5) + rates, seed))
    changes = [
        (START + STEP * (number + 1), now.burst)
        for number, (was, now) in enumerate(zip([loads[0], *loads], loads, strict=False))
        if was.burst != now.burst
    ]
    assert [burst for _, burst in changes] == [number % 2 == 0 for number in range(len(changes))]
    begun = [at for at, burst in changes if burst]
    over = [at for at, burst in changes if not burst]
    assert all(later - first >= SPEC.quiet_seconds for first, later in zip(begun, over, strict=False))
    assert all(b - a >= SPEC.quiet_seconds for times in (begun, over) for a, b in pairwise(times))


@settings(deadline=None, derandomize=True, max_examples=15)
@given(power=st.integers(1, 4), seed=st.integers(0, 1000))
def test_scale_does_not_matter_where_noise_does_not(power: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    counts = [1e6 * float(x) for x in random.lognormal(0.0, 0.3, 1200) * np.repeat([1, 1, 1, 2, 1, 3], 200)]
    first = watch(BurstDetector(SPEC), counts)
    second = watch(BurstDetector(SPEC), [count * 10**power for count in counts])
    assert [load.burst for load in first] == [load.burst for load in second]
    assert any(load.burst for load in first)


@settings(deadline=None, derandomize=True, max_examples=20)
@given(cut=st.integers(0, 1400), seed=st.integers(0, 1000))
def test_what_is_restored_goes_on_as_if_nothing_had_been(cut: int, seed: int) -> None:
    counts = poisson([20.0] * 700 + [60.0] * 200 + [20.0] * 600, seed)
    went_on = watch(BurstDetector(SPEC), counts)
    first = BurstDetector(SPEC)
    watch(first, counts[:cut])
    at = START + STEP * cut
    second = BurstDetector.restored(SPEC, json.loads(json.dumps(first.saved())), at)
    assert watch(second, counts[cut:], start=at) == went_on[cut:]


@pytest.mark.parametrize(("window", "days"), [(1.0, 2), (60.0, 7), (3600.0, 7)], ids=["short", "usual", "long"])
def test_memory_is_bounded(window: float, days: int) -> None:
    detector = BurstDetector(BurstSpec(window_seconds=window))
    for day in range(days):
        watch(detector, poisson([10.0] * 1440, day), start=START + day * 86_400, step=60.0)
        watch(detector, poisson([10.0] * 500, day), start=START + day * 86_400 + 86_350, step=0.1)
    assert len(json.dumps(detector.saved())) < 12_000


def test_a_lasting_level_becomes_usual_and_the_burst_is_over() -> None:
    loads = watch(BurstDetector(SPEC), poisson([50.0] * steps(2) + [150.0] * steps(2), 0))
    burst = [load.burst for load in loads]
    assert burst[steps(2) + 24]
    assert burst[steps(2) + 300]  # not at once: 25 minutes later it is not usual yet
    assert not loads[-1].burst
    assert loads[-1].baseline == pytest.approx(150, rel=0.1)


def test_what_happens_every_day_is_usual_from_the_second_day_on() -> None:
    times = np.arange(steps(24)) * STEP
    day = np.where((times > 9 * 3600) & (times < 17 * 3600), 200.0, 50.0)
    ramp = np.convolve(day, np.ones(steps(1)) / steps(1), "same")  # four times as much within an hour
    detector = BurstDetector(SPEC)
    midnight = START - START % 86_400
    begun = [
        sum(load.burst and load.since == midnight + number * 86_400 + STEP * (place + 1) for place, load in
            enumerate(watch(detector, poisson(list(ramp), number), start=midnight + number * 86_400)))
        for number in range(3)
    ]  # fmt: skip
    assert begun[0] >= 1
    assert begun[1:] == [0, 0]


def test_a_few_requests_are_no_burst() -> None:
    loads = watch(BurstDetector(SPEC), [0.0] * steps(1) + [1.0, 2.0, 1.0, 0.0, 3.0])
    assert not any(load.burst for load in loads)
    assert loads[-1].reason == "Noise"


def test_nothing_is_concluded_from_few_samples() -> None:
    spec = BurstSpec(fewest_samples=200)
    loads = watch(BurstDetector(spec), [50.0] * 150 + [5000.0] * 40)
    assert {load.reason for load in loads} == {"TooFewSamples"}
    assert loads[-1].baseline is None


def test_a_gap_ends_what_nobody_watched() -> None:
    detector = BurstDetector(SPEC)
    assert watch(detector, [50.0] * 300 + [500.0] * 30)[-1].burst
    load = detector.observe(START + 10_000, 100.0)
    assert not load.burst
    assert load.reason == "TooFewSamples"
    assert watch(detector, [50.0] * 300, start=START + 10_000)[-1].reason == "Usual"


def test_a_long_look_is_no_gap() -> None:
    detector = BurstDetector(SPEC)
    watch(detector, [50.0] * 300)
    load = detector.observe(START + 2500, 10.0, 1000.0)
    assert (load.reason, load.qps) == ("Usual", 10.0)


def test_a_clock_that_is_set_back_changes_nothing() -> None:
    detector, other = BurstDetector(SPEC), BurstDetector(SPEC)
    counts = poisson([20.0] * 600, 1)
    watch(detector, counts[:300])
    watch(other, counts[:300])
    back = START - 7200
    detector.observe(back, 20.0)
    now, was = watch(detector, counts[300:], start=back)[-1], watch(other, counts[300:], start=START + 1500)[-1]
    assert (now.burst, now.reason) == (was.burst, was.reason)
    assert now.qps == pytest.approx(was.qps)
    assert now.baseline == pytest.approx(was.baseline, rel=0.05)
    assert watch(detector, [500.0] * 24, start=back + 1500)[-1].burst


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -5.0], ids=["nan", "inf", "negative"])
def test_a_rate_that_is_none_counts_as_nothing(bad: float) -> None:
    detector = BurstDetector(SPEC)
    watch(detector, [50.0] * 300)
    assert not detector.observe(START + 1505, bad).burst
    json.dumps(detector.saved(), allow_nan=False)


@pytest.mark.parametrize(
    "saved",
    [None, 5, "x", [], {"version": "x"}, {"at": "now"}, {"windows": [[1]]}, {"version": 99}, {"days": {"usual": 7}},
     {"windows": [[1.0, 2.0]] * 1000}, {"level": "nan"}, {"level": -1.0}, {"windows": [[1.0, -2.0]]},
     {"days": {"usual": {"99": [1.0]}}}, {"recent": {"pieces": [[1.0, 0.0, 1.0]]}}],
    ids=range(15),
)  # fmt: skip
def test_damaged_state_is_refused(saved: object) -> None:
    with pytest.raises(ScaleError, match="what was saved of the load"):
        BurstDetector.restored(SPEC, saved, START)


def learned() -> str:
    """What is saved after some hours."""
    detector = BurstDetector(SPEC)
    watch(detector, [1200.0] * 360, start=START - 6 * 3600, step=60.0)
    return json.dumps(detector.saved())


LEARNED = learned()


@settings(deadline=None, derandomize=True, max_examples=60)
@given(data=st.data(), number=st.sampled_from([-1, -0.5, 0, 0.5, 7, 1e9, 1e17, -1e17, 1e300, -(10**30)]))
def test_state_that_somebody_wrote_ends_nothing(data: st.DataObject, number: float) -> None:
    saved = json.loads(LEARNED)
    at: Any = saved
    while True:
        place = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        if not isinstance(at[place], dict | list) or not at[place]:
            break
        at = at[place]
    at[place] = number
    try:
        other = BurstDetector.restored(SPEC, saved, START)
    except ScaleError:
        return
    loads = watch(other, [100.0] * 40)
    assert all(load.qps >= 0 for load in loads)
    BurstDetector.restored(SPEC, json.loads(json.dumps(other.saved(), allow_nan=False)), START)


def test_a_longer_quiet_time_is_watched_anew() -> None:
    detector = BurstDetector(SPEC)
    assert watch(detector, [50.0] * steps(1))[-1].peak is not None
    at, longer = START + 3600, BurstSpec(quiet_seconds=1800)
    for other in (detector, BurstDetector.restored(longer, detector.saved(), at)):
        other.change(longer)
        loads = watch(other, [50.0] * steps(1), start=at)
        assert loads[steps(0.4)].peak is None
        assert loads[-1].peak == pytest.approx(10.0)


def test_the_peak_is_not_known_of_what_was_missed() -> None:
    detector = BurstDetector(SPEC)
    watch(detector, [50.0] * steps(1))
    assert detector.observe(START + 3600 + 55, 1.0, 5.0).peak is not None  # that is no more than a window
    assert detector.observe(START + 3600 + 255, 1.0, 5.0).peak is None
    assert detector.observe(START + 3600 + 455, 1.0, 200.0).peak is None
    assert detector.observe(START + 3600 + 555, 1.0, 100.0).peak == pytest.approx(1.0, abs=0.2)


def test_the_peak_is_known_after_the_quiet_time_and_forgets() -> None:
    loads = watch(BurstDetector(SPEC), [50.0] * 50 + [100.0] * 24 + [50.0] * 100)
    assert loads[40].peak is None
    assert loads[80].peak == pytest.approx(20.0, rel=0.02)
    assert loads[110].peak == pytest.approx(20.0, rel=0.02)
    assert loads[-1].peak == pytest.approx(10.0, rel=0.02)


def test_the_latest_rate_is_ahead_of_the_mean() -> None:
    load = watch(BurstDetector(SPEC), [50.0] * 300 + [250.0] * 3)[-1]
    assert load.latest == pytest.approx(50.0)
    assert load.qps == pytest.approx((9 * 10 + 3 * 50) / 12, rel=0.1)


def test_another_window_begins_anew_and_keeps_the_days() -> None:
    detector = BurstDetector(SPEC)
    watch(detector, [50.0] * steps(5))
    known = detector.saved()["days"]
    detector.change(BurstSpec(window_seconds=30))
    assert detector.saved()["days"] == known
    assert watch(detector, [50.0] * 5, start=START + 5 * 3600)[-1].reason == "TooFewSamples"
    assert watch(detector, [50.0] * 100, start=START + 5 * 3600 + 25)[-1].reason == "Usual"
