"""What is made of the times that a run of the cdc table notes; SQL names."""

from __future__ import annotations

import pytest

from mmcache.lab.cdc.connector import quoted
from mmcache.lab.cdc.phases import WINDOW_SECONDS, Phase
from mmcache.lab.cdc.process import kill
from mmcache.lab.table_cdc import killed_rows, steady_rows


def phase(**more: object) -> Phase:
    made = Phase("p", 100, range(1, 31), 2, commits={10: 1.0, 20: 2.0}, seen=[{10: 1.2, 20: 2.1}, {10: 1.5, 20: 2.0}])
    for name, value in more.items():
        setattr(made, name, value)
    return made


def test_latency_is_from_commit_to_new_value_and_never_negative() -> None:
    assert phase().latencies(0) == pytest.approx([0.2, 0.1])
    assert phase(seen=[{10: 0.9}]).latencies(0) == [0.0]  # served as new before the commit was confirmed to the writer


def test_the_window_is_from_the_first_process_to_the_last() -> None:
    assert sorted(phase().windows()) == pytest.approx([0.1, 0.3])


def test_an_old_value_is_stale_when_it_is_old_for_longer_than_the_window() -> None:
    assert phase(old=[(10, 1.0 + WINDOW_SECONDS), (10, 1.1 + WINDOW_SECONDS), (99, 9.0)]).stale() == pytest.approx(
        [1.6]
    )


def test_while_a_stage_is_away_nothing_is_stale_and_then_the_window_begins() -> None:
    old = [(10, 3.0), (10, 6.0), (10, 5.0 + WINDOW_SECONDS + 0.5)]
    assert phase(killed=2.0, back=5.0, old=old).stale() == pytest.approx([2.0])
    assert phase(killed=2.9, back=5.0, old=[(10, 2.8)]).stale() == pytest.approx([1.8])  # before it died


def test_it_is_healed_when_what_was_made_before_is_new_everywhere() -> None:
    seen = [{10: 5.4, 20: 5.1}, {10: 1.5, 20: 5.2}]
    assert phase(killed=1.0, back=5.0, seen=seen).healed() == pytest.approx(0.4)
    assert phase(killed=1.0, back=5.0).healed() == 0.0


def test_rows_of_the_table() -> None:
    quiet = {row.id: row for row in steady_rows(phase())}
    assert quiet["p/window"].ours == pytest.approx(0.3)
    assert quiet["p/p99"].met is False
    loud = {row.id: row for row in killed_rows(phase(killed=1.0, back=5.0, old=[(10, 3.0)], left=1))}
    assert (loud["kill/p/away"].ours, loud["kill/p/meanwhile"].ours, loud["kill/p/stale"].ours) == (4.0, 1.0, 0.0)
    assert loud["kill/p/left"].met is False


def test_names_in_sql() -> None:
    assert quoted('public.Odd "Name') == '"public"."Odd ""Name"'


def test_killing_what_has_ended_is_nothing() -> None:
    import subprocess
    import sys

    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    kill(process)
