"""Table `policies`: gaps, averages and rows from outcomes; the whole table on made-up traces."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from mmcache.lab import rivals, table_policies
from mmcache.lab.arena import BOUND, HELD_OUT, OFFLINE, OURS, RIVAL, TUNED, Cell, Input, Outcome, cells, contend, run
from mmcache.lab.report import write
from mmcache.lab.standings import Standings
from mmcache.lab.table import silent
from mmcache.lab.table_policies import PoliciesTable
from mmcache.lab.traces import synthetic
from mmcache.model.errors import AssetError

KINDS = {"auto": OURS, "lru": OURS, "GDSF": RIVAL, "ARC": RIVAL, BOUND: OFFLINE}


def outcomes(saved: dict[str, dict[str, tuple[float, ...]]]) -> list[Outcome]:
    return [
        Outcome(Cell(trace, "encoder", seed, 10), name, KINDS[name], part, share, 0.5, 0.5)
        for trace, by_name in saved.items()
        for name, by_seed in by_name.items()
        for seed, share in enumerate(by_seed)
        for part in (TUNED, HELD_OUT)
    ]


STANDINGS = Standings(
    outcomes(
        {
            "one": {
                "auto": (0.50, 0.60),
                "lru": (0.3, 0.3),
                "GDSF": (0.52, 0.59),
                "ARC": (0.2, 0.61),
                BOUND: (0.8, 0.8),
            },
            "two": {
                "auto": (0.40, 0.40),
                "lru": (0.3, 0.3),
                "GDSF": (0.3, 0.3),
                "ARC": (0.35, 0.35),
                BOUND: (0.8, 0.8),
            },
        }
    )
)


def test_a_gap_is_to_the_best_rival_of_each_seed() -> None:
    assert STANDINGS.gaps(HELD_OUT, "one/encoder/10%", "auto") == pytest.approx([-2, -1])
    rival, most = STANDINGS.best(HELD_OUT, "one/encoder/10%")
    assert rival == "GDSF"
    assert most == pytest.approx(55.5)


def test_the_summary() -> None:
    found = {row.id: row for row in STANDINGS.rows("auto")}
    assert found["held-out/auto/worst"].ours == pytest.approx(-1.5)
    assert found["held-out/auto/worst"].met is False
    assert found["held-out/auto/within"].ours == 1
    assert found["held-out/auto/gap"].ours == pytest.approx((-1.5 + 5) / 2)
    assert found["held-out/auto/lead"].ours == pytest.approx(47.5 - 42.75)
    assert found["held-out/auto/lead"].met
    assert found["held-out/auto/optimum"].ours == pytest.approx(100 * (55 / 80 + 40 / 80) / 2)
    assert "GDSF 55.5" in found["one/encoder/10%/held-out"].metric


def test_every_outcome_is_in_the_csv() -> None:
    rows = list(csv.DictReader(STANDINGS.csv().splitlines()))
    assert len(rows) == len(STANDINGS.outcomes)
    assert rows[0]["contender"] == BOUND


def test_the_matrix_has_the_best_on_top() -> None:
    names, places, behind = STANDINGS.matrix(HELD_OUT)
    assert names[0] == "auto"
    assert places == ["one/encoder/10%", "two/encoder/10%"]
    assert behind[0] == pytest.approx([0.5, 0])


def test_the_longest_cells_go_first() -> None:
    tasks = cells(["web12", "mooncake", "w106"], (0, 1))
    assert [task.trace for task in tasks[:10]] == ["w106"] * 9 + ["mooncake"]
    assert len(set(tasks)) == len(tasks) == 27


def test_who_contends_in_a_cell() -> None:
    found = contend(Cell("popular", "uniform", 0, 10), Input(None, 1500))
    by_name = {one.contender: one for one in found if one.part == HELD_OUT}
    assert {"lru", "Belady", BOUND, *rivals.available()} <= set(by_name)
    best = max(one.saved for one in by_name.values() if one.kind != OFFLINE)
    assert best <= by_name["Belady"].saved <= by_name[BOUND].saved + 1e-9
    assert by_name["lru"].object_misses == pytest.approx(1 - by_name["lru"].saved)


def test_a_missing_trace_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(AssetError, match="no trace"):
        list(run([Cell("web12", "uniform", 0, 10)], Input(tmp_path), silent, processes=1))


def test_the_whole_table_without_published_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMCACHE_TRACES", str(tmp_path / "none"))
    monkeypatch.setattr(table_policies, "_costs", lambda ours, source, quick: [])
    monkeypatch.setattr(table_policies, "QUICK_MADE_UP", 600)
    monkeypatch.setattr(table_policies, "ATTACKS", ("scan",))
    monkeypatch.setattr(synthetic, "PATTERNS", {name: synthetic.PATTERNS[name] for name in ("scan", "popular")})
    table = PoliciesTable()
    result = table.run(True, (0,), silent)
    assert any("MMCACHE_TRACES" in line for line in result.simulated)
    paths = write(table, result, tmp_path)
    assert {path.name for path in paths} == {"policies.json", "policies.md", "policies.svg", "policies.csv"}
