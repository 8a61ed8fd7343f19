"""The lab's frame: rows, results, files, screen."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from mmcache.lab import bench
from mmcache.lab.report import command, markdown, screen, write
from mmcache.lab.table import Progress, Result, Row, Table, percentile


class Toy(Table):
    name = "toy"
    title = "Does the frame work?"

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        progress("toy", 1, 1)
        rows = (
            Row.of("speed", "hits a second", "1/s", "higher", [100.0, 110.0, 90.0], target=95, published=80.0),
            Row.of("size", "bytes kept | lost", "B", "lower", 30.0, target=20),
            Row("gone", "needs a GPU", "ms", "lower", None),
        )
        return Result(self.name, quick, tuple(seeds), ("this code",), (), rows)


def test_a_row_knows_whether_it_met_its_target() -> None:
    speed, size, gone = Toy().run(True, [0], lambda *_: None).rows
    assert (speed.ours, speed.met, speed.shortfall) == (100.0, True, None)
    assert speed.spread == pytest.approx((92.0, 108.0))
    assert size.met is False
    assert size.shortfall == pytest.approx(0.5)
    assert gone.met is None


@pytest.mark.parametrize("values", [[], [float("nan")], [1.0, float("inf")]])
def test_a_row_refuses_figures_that_are_none(values: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        Row.of("x", "x", "x", "lower", values)


def test_two_rows_of_one_id_are_a_bug() -> None:
    row = Row.of("x", "x", "x", "lower", 1.0)
    with pytest.raises(ValueError, match="two rows"):
        Result("t", False, (0,), (), (), (row, row))


def test_percentiles_interpolate() -> None:
    assert [percentile([3.0, 1.0, 2.0], share) for share in (0, 0.25, 0.5, 1)] == [1.0, 1.5, 2.0, 3.0]


def test_the_json_has_exactly_the_documented_fields() -> None:
    page = Toy().run(False, [3], lambda *_: None).as_json()
    assert list(page) == ["name", "quick", "seeds", "real", "simulated", "rows"]
    fields = ["id", "metric", "unit", "better", "published", "target", "ours", "spread", "met"]
    assert all(list(row) == fields for row in page["rows"])
    assert json.loads(json.dumps(page)) == page


def test_files_are_written_and_the_same_every_time(tmp_path: Path) -> None:
    result = bench.run(Toy(), quick=True)
    assert result.seeds == (0,)
    first = {path.name: path.read_bytes() for path in write(Toy(), result, tmp_path / "a")}
    again = {path.name: path.read_bytes() for path in write(Toy(), result, tmp_path / "b")}
    assert first == again
    assert sorted(first) == ["toy.json", "toy.md", "toy.svg"]
    assert json.loads(first["toy.json"]) == result.as_json()


def test_pages_say_what_was_missed_and_that_a_run_was_quick() -> None:
    result = bench.run(Toy(), quick=True)
    page = markdown(Toy(), result)
    assert "no, by 50 %" in page
    assert "kept \\| lost" in page
    assert "Quick run" in page
    console = Console(width=100, record=True)
    console.print(screen(Toy(), result))
    text = console.export_text()
    assert "no, by 50 %" in text
    assert "Simulated: nothing." in text


def test_the_command_that_makes_a_result_again() -> None:
    assert command(Result("keys", False, (0,), (), ())) == "mmcache lab run keys"
    assert command(Result("bench-disk", True, (0,), (), ())) == "mmcache bench disk --quick"


def test_a_benchmark_script_prints_json_and_writes_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(Toy(), ["--quick", "--json", "--seeds", "7", "--out", str(tmp_path)]) == 0
    page = json.loads(capsys.readouterr().out)
    assert page["seeds"] == [7]
    assert (tmp_path / "toy.svg").exists()
