"""`mmcache advise` and `mmcache lab run policies --trace` on a small made-up log: advice, files, errors."""

from __future__ import annotations

import json
import tomllib
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from mmcache.cli import main
from mmcache.cli.output import Exit
from mmcache.config_file import read_config
from mmcache.lab.traces.synthetic import log_lines
from mmcache.settings import parse_bytes


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "we<ird> $name|.jsonl"
    path.write_text("\n".join(log_lines(1200)) + "\n")
    return path


def test_a_page_for_people_and_a_configuration(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, file = tmp_path / "advice.html", tmp_path / "mmcache.toml"
    assert main(["advise", str(log), "--policy", "lru", "--output", str(page), "--write", str(file)]) == Exit.DONE
    said = capsys.readouterr()
    assert 'Advised: policy "lru"' in said.out
    assert "Lifetimes" in said.out
    assert "[cache]" in said.out
    assert "Cache.from_config" in said.err
    written = page.read_text()
    assert written.startswith("<!doctype html>")
    assert "<svg" in written
    assert "we<ird>" not in written
    config = read_config(file)
    assert config["policy"] == "lru"
    assert parse_bytes(config["memory"]) > 0
    assert config["tenants"]["export"].service == "batch"


def test_figures_for_programs(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", str(log), "--memory", "20MiB", "--fresh-within", "12h", "--json"]) == Exit.DONE
    found = json.loads(capsys.readouterr().out)
    assert found["memory"] == 20 << 20
    assert found["ttl"] == 12 * 3600
    assert tomllib.loads(found["config"])["cache"] == {
        "memory": "20MiB", "policy": found["policy"], "ttl": 43200,
    }  # fmt: skip
    best = found["best"]
    assert 0 < best["saved"] < found["at"][found["policy"]]["saved"] <= found["bound"] <= 1  # the log is longer
    assert found["saved_seconds"] == pytest.approx(best["saved"] * found["cost"])
    for points in found["curves"].values():
        assert [point["memory"] for point in points] == sorted(point["memory"] for point in points)
        assert points[-1]["saved"] == pytest.approx(found["curves"]["lru"][-1]["saved"])  # all fits: all are one


@pytest.mark.parametrize("option", ["--write", "--output"])
def test_what_cannot_be_written_leaves_one_error_for_programs(
    log: Path, tmp_path: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["advise", str(log), "--policy", "lru", "--json", option, str(tmp_path / "none" / "advice.md")]
    assert main(words) == Exit.FAILED
    assert json.loads(capsys.readouterr().out)["error"] == "FileNotFoundError"


def test_a_terminal_without_utf_8_gets_the_advice_too(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = TextIOWrapper(BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", terminal)
    assert main(["advise", str(log), "--policy", "lru"]) == Exit.DONE
    terminal.flush()
    assert b"Advised" in terminal.buffer.getvalue()


def test_a_markdown_page_keeps_names_from_being_markup(log: Path, tmp_path: Path) -> None:
    page = tmp_path / "advice.md"
    assert main(["advise", str(log), "--policy", "lru", "--output", str(page), "--json"]) == Exit.DONE
    first = page.read_text().splitlines()[0]
    assert first == "# Advice for we&lt;ird> $name\\|.jsonl"


def test_a_log_without_repeats_cannot_be_helped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "once.csv"
    path.write_text("key\n" + "\n".join(map(str, range(50))) + "\n")
    assert main(["advise", str(path)]) == Exit.FAILED
    assert "no key is asked for twice" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "code", "wrong"),
    [
        (["--output", "page.pdf"], Exit.FAILED, ".html or .md"),
        (["--memory", "lots"], Exit.FAILED, "not a size"),
        (["--memory", "0"], Exit.FAILED, "more than nothing"),
        (["--fresh-within", "soon"], Exit.FAILED, "not an age"),
        (["--fresh-within", "0s"], Exit.FAILED, "more than nothing"),
        (["--policy", "best"], Exit.FAILED, "no policies plug-in named 'best'"),
    ],
)
def test_options_that_make_no_sense(
    log: Path, options: list[str], code: Exit, wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advise", str(log), *options]) == code
    assert wrong in capsys.readouterr().err


def test_a_missing_log_and_a_bad_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", str(tmp_path / "none.csv")]) == Exit.FAILED
    assert "none.csv" in capsys.readouterr().err
    path = tmp_path / "bad.csv"
    path.write_text("key,bytes\n" + "a,1\nb,1\n" * 20 + "a,x\n")
    assert main(["advise", str(path), "--json"]) == Exit.FAILED
    assert "line 42: bytes is not a number: 'x'" in json.loads(capsys.readouterr().out)["message"]
    assert main(["advise", str(path), "--policy", "lru", "--skip-bad", "--json"]) == Exit.DONE
    assert "1 rows that could not be used were left out" in json.loads(capsys.readouterr().out)["notes"]


def test_the_table_on_a_log(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["lab", "run", "policies", "--trace", str(log), "--json", "--out", str(tmp_path)]
    assert main(words) == Exit.DONE
    found = json.loads(capsys.readouterr().out)
    assert found["name"] == "policies-log"
    assert {row["id"].split("/")[0] for row in found["rows"]} >= {"lru", "heat", "ttl"}
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".md", ".svg", ".toml"}


def test_a_trace_is_for_the_table_of_policies(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "run", "keys", "--trace", str(log)]) == Exit.FAILED
    assert "lab run policies --trace FILE" in capsys.readouterr().err
