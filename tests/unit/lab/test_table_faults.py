"""The page about failures says what the table has measured, and the table leaves nothing out."""

from __future__ import annotations

from pathlib import Path

import pytest

from mmcache.lab import faults_page
from mmcache.lab.faults_all import FAULTS
from mmcache.lab.faults_caller import Phase, value_of
from mmcache.lab.faults_trial import TIMEOUT_SECONDS, Trial, add
from mmcache.lab.report import write
from mmcache.lab.table import Result
from mmcache.lab.table_faults import FaultsTable, rows_of

DOCS = Path(__file__).resolve().parents[3] / "docs"


def a_trial(number: int = 0) -> Trial:
    trial = Trial(FAULTS[number], healed_seconds=1.5, agreed_seconds=1.75, most_timeouts=1)
    trial.during = Phase(lookups=100, hits=60, slowest=1.1 * TIMEOUT_SECONDS)
    trial.during.missed.update({"tier-down": 39, "timeout": 1})
    trial.during.refused["tier-down"] = 7
    trial.during.said["valkey: NODE is gone | and | more"] = 3
    trial.after = Phase(lookups=48, hits=48)
    return trial


def test_names_are_told_apart() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def test_values_tell_blocks_and_generations_apart() -> None:
    assert value_of(3, 1)[0] != value_of(3, 2)[0] != value_of(4, 1)[0]
    assert value_of(7, 0).nbytes > 1_000_000 > value_of(8, 0).nbytes


def test_phases_add_up() -> None:
    total = Phase()
    for _ in range(2):
        add(total, a_trial().during)
    assert (total.lookups, total.hits, total.missed["tier-down"]) == (200, 120, 78)
    assert total.hit_share == 60


def test_whatever_goes_wrong_in_any_phase_misses_its_target() -> None:
    trial = a_trial()
    assert all(row.met is not False for row in rows_of(trial.fault, [trial]))
    trial.written.wrong = trial.agreed.stale = 1
    trial.writer.errors["TierError"] = 2
    missed = {row.id.rpartition("/")[2]: row.ours for row in rows_of(trial.fault, [trial]) if row.met is False}
    assert missed == {"wrong": 1, "stale": 1, "errors": 2}


def test_a_fault_that_cannot_be_had_is_left_blank() -> None:
    assert {row.ours for row in rows_of(FAULTS[0], [])} == {None}


def test_the_page_is_made_from_the_files_of_a_run(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs mmcache[lab]")
    table = FaultsTable()
    trials = [a_trial(number) for number in range(2)]
    table.trials = {(trial.fault.name, 0): trial for trial in trials}
    rows = tuple(row for trial in trials for row in rows_of(trial.fault, [trial]))
    write(table, Result("faults", True, (0,), (), (), rows), tmp_path)
    made = faults_page.page(tmp_path)
    assert (
        "| [node-killed](#node-killed) | 60 % | tier-down 98 %, timeout 2 % | tier-down 100 % | 1.5 s | 100 % |" in made
    )
    assert "**296 lookups, 0 errors raised, 0 wrong values," in made
    assert "    valkey: NODE is gone / and / more\n" in made


def test_the_page_is_the_one_of_the_last_run() -> None:
    if not (DOCS / "results" / "faults.csv").exists():
        pytest.skip("no run is published")
    assert (DOCS / "reference" / "failure-modes.md").read_text(encoding="utf-8") == faults_page.page(DOCS / "results")
