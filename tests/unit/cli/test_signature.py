"""`mmcache signature`, as an operator meets it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmcache import Cache
from mmcache.cli import main
from mmcache.cli.output import Exit
from mmcache.rollout import Rollout


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def cache(root: Path) -> Iterator[Cache]:
    with Cache(root) as cache:
        yield cache


def rolled(cache: Cache, name: str = "clip") -> Rollout:
    return Rollout(
        cache, name, {"v1": lambda text: np.zeros(1000), "v2": lambda text: np.ones(1000)}, modality="text",
        compare_share=1.0,
    )  # fmt: skip


def run(capsys: pytest.CaptureFixture[str], root: Path, *words: str) -> tuple[int, Any]:
    code = main(["signature", *words, "--root", str(root), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_from_canary_to_rollback(cache: Cache, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    encode = rolled(cache)
    code, found = run(capsys, root, "canary", "v2", "--percent", "100")
    assert (code, found["candidate"], found["percent"]) == (Exit.DONE, "v2", 100)
    encode._watch.look()
    assert encode("x")[0] == 1.0
    encode.close()
    code, (row,) = run(capsys, root, "status")
    assert code == Exit.DONE
    assert (row["stable"], row["counts"]["candidate"], row["counts"]["mean"]) == ("v1", 1, 0.0)
    assert row["versions"] == {"v1": "clip v1", "v2": "clip v2"}
    code, found = run(capsys, root, "promote")
    assert (code, found["stable"]) == (Exit.DONE, "v2")
    code, found = run(capsys, root, "rollback", "--name", "clip")
    assert (code, found["stable"]) == (Exit.DONE, "v1")
    code, found = run(capsys, root, "rollback")
    assert (code, found["error"]) == (Exit.FAILED, "RolloutError")


def test_purge_removes_the_losers_blocks_only(cache: Cache, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    encode = rolled(cache)
    encode("old")
    encode.canary("v2", percent=100)
    encode("new")
    cache.flush()
    code, found = run(capsys, root, "promote", "--purge")
    assert code == Exit.DONE
    assert found["purged"]["blocks"] == 2  # "old", and "new", which was compared
    assert cache.get(encode.encoder("v1").key("old")) is None
    assert cache.get(encode.encoder("v2").key("new"))[0] == 1.0


def test_a_decision_about_what_has_changed_meanwhile_is_refused(
    cache: Cache, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rolled(cache)
    _, shown = run(capsys, root, "canary", "v2")
    run(capsys, root, "canary", "v2", "--percent", "50")
    code, found = run(capsys, root, "promote", "--revision", str(shown["revision"]))
    assert (code, found["error"]) == (Exit.FAILED, "RolloutConflictError")
    assert "v2 gets 50 %" in found["message"]


def test_a_version_that_no_program_has_is_said_so(cache: Cache, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    encode = rolled(cache)
    assert main(["signature", "canary", "v9", "--percent", "100", "--root", str(root)]) == Exit.DONE
    assert "no program has said yet that it has v9" in capsys.readouterr().err
    encode._watch.look()
    encode("x")
    encode.close()
    code, (row,) = run(capsys, root, "status")
    assert (code, row["counts"]["unknown"]) == (Exit.NO, 1)
    assert main(["signature", "status", "--root", str(root)]) == Exit.NO
    assert "lack v9" in capsys.readouterr().out


def test_which_rollout_is_asked_where_there_are_several(
    cache: Cache, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = run(capsys, root, "promote")
    assert (code, "there is no rollout" in found["message"]) == (Exit.FAILED, True)
    code, found = run(capsys, root, "status")
    assert (code, found) == (Exit.DONE, [])
    assert main(["signature", "status", "--root", str(root)]) == Exit.DONE
    assert "no" in capsys.readouterr().out
    rolled(cache)
    rolled(cache, "whisper")
    code, found = run(capsys, root, "canary", "v2")
    assert "--name clip, --name whisper" in found["message"]
    code, found = run(capsys, root, "canary", "v2", "--name", "whisper")
    assert code == Exit.DONE
    code, rows = run(capsys, root, "status")
    assert [row["candidate"] for row in rows] == ["", "v2"]
    assert main(["signature", "status", "--root", str(root)]) == Exit.DONE
    assert "whisper" in capsys.readouterr().out
    code, found = run(capsys, root, "status", "--name", "../realm")
    assert (code, found["error"]) == (Exit.FAILED, "SettingsError")
    code, found = run(capsys, root, "status", "--shared", "valkey://127.0.0.1:1")
    assert "not both" in found["message"]


def test_a_hold_is_shown(cache: Cache, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(text: str) -> Any:
        raise RuntimeError("no")

    encode = Rollout(cache, "clip", {"v1": lambda text: 1, "v2": fails}, modality="text", halt_after=1)
    encode.canary("v2", percent=100)
    assert encode("x") == 1
    code, (row,) = run(capsys, root, "status")
    assert (code, row["counts"]["failed"]) == (Exit.NO, 1)
    assert "RuntimeError" in row["hold"]
    assert main(["signature", "status", "--root", str(root)]) == Exit.NO
    assert "on hold: it" in capsys.readouterr().out
    code, found = run(capsys, root, "promote")
    assert "on hold" in found["message"]
    assert run(capsys, root, "promote", "--force")[0] == Exit.DONE
