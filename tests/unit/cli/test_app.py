"""The command line as a user meets it: help, errors, exit codes, completion, tables and benchmarks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from mmcache import plugins
from mmcache.cli import checkout, main
from mmcache.cli.app import build
from mmcache.cli.output import Exit
from mmcache.lab.table import Progress, Result, Row, Table

COMMANDS = [
    "advise", "bench", "completion", "dashboard", "demo", "demo-cluster", "drift", "explain", "inspect", "lab", "purge",
    "rekey", "serve", "snapshot", "stats", "top", "trace", "verify",
]  # fmt: skip


class Toy(Table):
    name = "toy"
    title = "Does it work?"

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        progress("toy", 1, 2)
        row = Row.of("x", "x", "ms", "lower", 2.0 if quick else 0.5, target=1)
        return Result(self.name, quick, tuple(seeds), ("code",), (), (row,))


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "names", lambda kind: ["toy"])
    monkeypatch.setattr(plugins, "load", lambda kind, name: Toy)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with two benchmarks, as the working folder."""
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "mmcache"\n')
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "good.py").write_text("import sys; print('GOOD', *sys.argv[1:])")
    (tmp_path / "benchmarks" / "miss.py").write_text("import sys; sys.exit(1)")
    (tmp_path / "benchmarks" / "_shared.py").write_text("boom")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def all_commands() -> list[list[str]]:
    nested = [
        ["lab", "list"],
        ["lab", "run"],
        ["drift", "status"],
        *(["signature", name] for name in ("canary", "promote", "rollback", "status")),
        *(["sync", name] for name in ("run", "status", "dead", "move")),
        ["snapshot", "save"],
        ["snapshot", "load"],
        ["snapshot", "show"],
    ]
    return [[], *([name] for name in COMMANDS), *nested]


@pytest.mark.parametrize("words", all_commands(), ids=" ".join)
def test_every_command_has_help_with_an_example(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--help"]) == Exit.DONE
    text = capsys.readouterr().out
    assert "Usage: mmcache" in text
    if words not in ([], ["lab"], ["snapshot"], ["drift"]):
        assert f"mmcache {' '.join(words)}" in text.split("Example:")[1]
        assert "--json" in text or words == ["completion"]


def test_help_needs_no_numpy_and_no_database() -> None:
    probe = "import sys; from mmcache.cli import main; main(['--help']); print({'numpy', 'lmdb'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == Exit.DONE
    assert capsys.readouterr().out.strip()[0].isdigit()


@pytest.mark.parametrize("words", [["nonsense"], ["inspect"], ["stats", "--colour"], ["snapshot", "save"]])
def test_a_wrong_command_line_is_one_line_and_exit_code_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == Exit.USAGE
    said = capsys.readouterr()
    assert said.err.startswith("mmcache: ")
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_a_mistyped_folder_is_an_error_and_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["stats"], ["verify"], ["inspect", "abcd"], ["purge", "--all"]):
        assert main([*words, "--root", str(tmp_path / "typo")]) == Exit.FAILED
        assert "there is no cache at" in capsys.readouterr().err
    assert not (tmp_path / "typo").exists()


def test_with_json_an_error_is_an_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", "--json", "--root", str(tmp_path)]) == Exit.FAILED
    assert json.loads(capsys.readouterr().out)["error"] == "SettingsError"


def test_with_json_a_wrong_command_line_is_an_object_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", "--colour", "--json"]) == Exit.USAGE
    assert "colour" in json.loads(capsys.readouterr().out)["message"]


def test_what_the_system_refuses_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(self: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "is_file", refused)
    assert main(["stats", "--json", "--root", str(tmp_path)]) == Exit.FAILED
    assert json.loads(capsys.readouterr().out)["error"] == "PermissionError"


def test_purge_without_a_choice_removes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["purge", "--root", str(tmp_path)]) == Exit.FAILED
    assert "--all" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_the_commands(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == Exit.DONE
    script = capsys.readouterr().out
    assert all(name in script for name in COMMANDS)


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == Exit.USAGE
    assert "bash" in capsys.readouterr().err


def test_the_reader_may_stop_listening() -> None:
    script = "from mmcache.cli import main; raise SystemExit(main(['--help']))"
    line = f'{sys.executable} -c "{script}" | true'
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("toy")
def test_lab_lists_and_runs(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "list", "--json"]) == Exit.DONE
    assert json.loads(capsys.readouterr().out) == [{"name": "toy", "title": "Does it work?"}]
    assert main(["lab", "run", "toy", "--quick", "--json", "--seeds", "4", "--seeds", "5"]) == Exit.DONE
    page = json.loads(capsys.readouterr().out)
    assert (page["quick"], page["seeds"]) == (True, [4, 5])
    assert not (source / "docs").exists(), "a quick run writes no results"
    assert main(["lab", "run", "toy", "--quick", "--strict"]) == Exit.NO
    assert main(["lab", "run", "--strict"]) == Exit.DONE
    assert sorted(path.name for path in (source / "docs" / "results").iterdir()) == ["toy.json", "toy.md", "toy.svg"]


def test_an_unknown_table_names_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "run", "nothing"]) == Exit.FAILED
    assert "known:" in capsys.readouterr().err


def test_bench_runs_the_scripts_of_the_checkout(source: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--json"]) == Exit.DONE
    assert json.loads(capfd.readouterr().out) == ["good", "miss"]
    assert main(["bench", "good", "--quick"]) == Exit.DONE
    assert capfd.readouterr().out == "GOOD --strict --quick\n"
    assert main(["bench", "all", "--strict"]) == Exit.NO
    assert f"--out {source}/docs/results" in capfd.readouterr().out
    assert main(["bench", "unknown"]) == Exit.FAILED
    assert "known: all, good, miss" in capfd.readouterr().err
    (source / "benchmarks" / "good.py").write_text("import sys; sys.exit(3)")
    assert main(["bench", "good"]) == Exit.FAILED


def test_bench_outside_a_checkout_says_where_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checkout, "find", lambda: None)
    assert main(["bench", "all"]) == Exit.FAILED
    assert "source checkout" in capsys.readouterr().err


def test_the_tree_can_be_built_twice() -> None:
    assert list(build()) == list(build())


def test_completion_installs_itself_for_the_shell_in_use(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "mmcache.cli", "--install-completion"]
    home = {"HOME": str(tmp_path), "SHELL": "/bin/bash", "PATH": "/usr/bin:/bin"}
    subprocess.run(line, env=home, check=True, capture_output=True)
    assert [path for path in tmp_path.rglob("*") if path.is_file() and b"mmcache" in path.read_bytes()]
