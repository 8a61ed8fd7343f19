"""The pure parts of the table `scale`: what its rows say of a trial, and what the rival's clients lose."""

from __future__ import annotations

import pytest

from mmcache.lab.load.counts import Checked, Counts, Lost, Timeline
from mmcache.lab.load.crowd import Crowd, Outcome
from mmcache.lab.load.job import Job
from mmcache.lab.scale.rival import remapped
from mmcache.lab.scale.rows import bursting, moving_seconds, resharding
from mmcache.lab.scale.trial import Killed, Trial
from mmcache.lab.scale.watch import Sight, whole
from mmcache.lab.table import Row
from mmcache.scale.observed import SLOTS


def trial_of(lost: list[Lost], **marks: float) -> Trial:
    trial = Trial("it", "valkey 9", dict(marks), Crowd(Job("valkey://h:1", 1.0, 40.0, 10, {64: 1.0})))
    assert trial.crowd is not None
    line = Timeline()
    for place in range(160):
        line.add(place, Counts(reads=10, hits=9 if 40 <= place < 80 else 10, missed={"tier-down": 1}, took={100: 10}))
    trial.crowd.timeline = line
    checked = Checked(keys=10, right=9, wrong=1)
    trial.outcome = Outcome(line.total(), 40.0, [0.5], 0, 1.5, 12.0, lost, 0, checked)
    trial.sights = [
        (at, Sight(at, 3, SLOTS, at_new)) for at, at_new in ((9, 0), (12, 0), (13, 500), (16, 900), (25, 900))
    ]
    trial.moved_bytes = {"out": 30_000_000, "in": 30_000_000}
    return trial


def by_id(rows: list[Row]) -> dict[str, float | None]:
    return {row.id.removeprefix("it/"): row.ours for row in rows}


MARKS = {"begin": 0.0, "out": 10.0, "out done": 20.0, "in": 25.0, "in done": 30.0, "end": 40.0}


def test_rows_of_a_resharding() -> None:
    trial = trial_of([Lost(1, 1, 5.0)], **MARKS)
    rows = resharding(trial)
    found = by_id(rows)
    assert found["lost"] == 1
    assert found["wrong"] == 1
    assert "lost-unreplicated" not in found
    assert [row.met for row in rows if row.id in ("it/lost", "it/wrong", "it/unread")] == [False, False, True]
    assert (found["out-seconds"], found["in-seconds"]) == (10.0, 5.0)
    assert moving_seconds(trial, "out") == 3.0
    assert found["out-speed"] == pytest.approx(10.0)
    assert found["in-speed"] == pytest.approx(6.0)
    assert (found["hits-before"], found["hits-out"], found["hits-after"]) == (100, 90, 100)
    assert found["unanswered-out"] == pytest.approx(10.0)
    assert found["silence"] == 1.5


def test_what_a_replica_did_not_have_yet_is_told_apart() -> None:
    trial = trial_of(
        [Lost(1, 1, 5.0), Lost(2, 1, 14.5), Lost(3, 1, 15.4), Lost(3, 2, 15.6), Lost(4, 1, 14.5)],
        **MARKS,
        killed=15.0,
        **{"served again": 17.0},
    )
    trial.killed = Killed(15.0, 14.0, frozenset({1, 2, 3}))
    found = by_id(resharding(trial))
    assert (found["lost"], found["lost-unreplicated"]) == (3, 2)
    assert found["served-again"] == 2.0
    assert found["hits-killed"] == 90


def test_rows_of_a_burst() -> None:
    trial = trial_of(
        [], **{"begin": 0.0, "burst": 10.0, "noticed": 14.0, "first serves": 17.0, "all serve": 22.0, "end": 30.0}
    )
    found = by_id(bursting(trial))
    assert (found["notice-seconds"], found["first-seconds"], found["all-seconds"]) == (4.0, 7.0, 12.0)
    assert (found["hits-before"], found["hits-unnoticed"]) == (100, 90)


def test_a_trial_is_told_second_by_second() -> None:
    lines = list(trial_of([], **MARKS).lines())
    assert [line[0] for line in lines[:3]] == [0.0, 1.0, 2.0]
    assert lines[15][1:3] == (3, SLOTS)
    assert lines[15][3].reads == 40
    assert whole(Sight(0.0, 3, SLOTS, 0))
    assert not whole(Sight(0.0, 3, SLOTS - 1, 0))


def test_clients_that_spread_keys_by_themselves_lose_them() -> None:
    kept = remapped(2000, 0.0)
    assert kept["modulo"] == pytest.approx(0.2, abs=0.05)
    assert kept["ring"] == pytest.approx(0.6, abs=0.06)
