"""The rivals of the laboratory do what their sources say, and simulated streams what they say of themselves."""

from __future__ import annotations

import math
import random

import pytest

from mmcache.calibration.base import Calibration, Verdict
from mmcache.calibration.calibrated import Calibrated
from mmcache.lab.threshold_rival import GlobalThreshold, best_in_hindsight
from mmcache.lab.trust_rows import against_rivals, certificates
from mmcache.lab.trust_streams import World, at_the_bound, local, name, play, sudden, traitor
from mmcache.lab.vcache_rival import LEAST, VCache, fit
from mmcache.likeness.base import Likeness, Nearness
from mmcache.model.errors import CorruptFrameError


def near(text: float, stored: int = 0) -> Likeness:
    return Likeness(name(stored, 1), name(stored), text)


@pytest.mark.parametrize("rival", [VCache(), GlobalThreshold(0.9)])
def test_rivals_have_the_interface(rival: Calibration) -> None:
    assert isinstance(rival, Calibration)
    rival.restore(rival.state())
    with pytest.raises(CorruptFrameError):
        rival.restore(b"?")
    unlike = Likeness(bytes(16), bytes(16), 1.0, picture=Nearness.UNLIKE)
    assert rival.decide(unlike, 0.99).verdict is Verdict.ABSTAIN
    assert all(map(math.isfinite, rival.summary().values()))


def test_the_best_threshold_in_hindsight() -> None:
    assert best_in_hindsight([0.9, 0.8, 0.7, 0.6], [False, False, True, False], 0.0) == (0.8, 2, 0)
    assert best_in_hindsight([0.9, 0.8, 0.7, 0.6], [False, False, True, False], 0.25) == (0.6, 4, 1)
    assert best_in_hindsight([0.9, 0.9], [False, True], 0.4) == (math.inf, 0, 0), "equal ones are served alike"
    assert best_in_hindsight([], [], 0.1) == (math.inf, 0, 0)


def test_vcache_fits_the_sigmoid_that_made_the_outcomes() -> None:
    rng, outcomes = random.Random(1), []
    for _ in range(3000):
        similarity = rng.uniform(0.6, 1.0)
        outcomes.append((similarity, rng.random() < 1 / (1 + math.exp(-40 * (similarity - 0.8)))))
    threshold, slope, deviation = fit(outcomes)
    assert threshold == pytest.approx(0.8, abs=0.01)
    assert slope == pytest.approx(40, rel=0.15)
    assert 0 < deviation < 0.01


def test_vcache_explores_first_and_serves_what_is_far_above_its_threshold() -> None:
    one = VCache(0.05)
    assert one.explore(near(0.99)) == (1.0, 0.5)
    for n in range(100):
        text = 0.6 + 0.4 * n / 100
        one.learn(near(text), one.decide(near(text), 0.0), right=text > 0.75)
        if n < LEAST - 1:
            assert one.explore(near(0.99))[0] == 1.0
    taus = [one.explore(near(text))[0] for text in (0.6, 0.75, 0.85, 0.99)]
    assert taus == sorted(taus, reverse=True)
    assert taus[0] > 0.9
    assert taus[-1] < 0.2
    assert one.decide(near(0.99), 0.9999).verdict is Verdict.SERVE
    assert one.explore(near(0.99, stored=5))[0] == 1.0, "another stored prompt knows nothing"


def test_streams_repeat_and_bend() -> None:
    first, second = World(3).draw(), World(3).draw()
    assert [first() for _ in range(50)] == [second() for _ in range(50)]
    other = World(3).draw(1)
    assert [other() for _ in range(50)] != [second() for _ in range(50)]
    run = play(GlobalThreshold(0.0), World(3).draw(), 400, seed=0, bend=sudden(200, 1.0))
    assert run.hits == 400
    assert run.wrong_between(200, 400) == 200 > run.wrong_between(0, 200)
    run = play(GlobalThreshold(0.0), World(3).draw(), 400, seed=0, bend=local(0))
    assert 0 < run.wrong < 400


def test_the_worst_stream_is_never_better_than_its_rate() -> None:
    for every in (1, 10, 20):
        source, total = at_the_bound(0.05, every, 0), 0.0
        for seen in range(1, 500):
            total += source()[1]
            assert total / seen >= 0.05 - 1e-12


def test_a_traitor_is_shut_out() -> None:
    run = play(Calibrated(0.05), World(1, floor=0.0).draw(), 4000, seed=1, bend=traitor(200), max_error=0.05)
    assert run.hits >= 200
    assert run.caught
    assert not run.hits_between(2000, run.requests), "nothing is served any more, whatever is certified"
    assert run.wrong <= 0.05 * (run.hits + run.checks) + 150


@pytest.mark.slow
def test_the_rows_of_the_table() -> None:
    rows = [*certificates(20), *against_rivals((0,), 1000)]
    assert len({row.id for row in rows}) == len(rows)
    assert all(row.met is not False for row in rows)
