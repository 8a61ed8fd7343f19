"""`mmcache learn hash`: a file of pairs in, a hash out, and clear words about files that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("duckdb", reason="reading Parquet needs duckdb")
pytest.importorskip("torch", reason="training needs torch")

import duckdb

from mmcache.cli.app import run
from mmcache.cli.output import Exit
from mmcache.keys.ushash import USHash
from mmcache.learn.hash_pairs import read
from mmcache.model.errors import InvalidInputError, SettingsError


def parquet(path: Path, select: str) -> Path:
    with duckdb.connect(":memory:") as base:
        base.execute(f"COPY ({select}) TO '{path}' (FORMAT parquet)")
    return path


def paired(path: Path, rows: int = 200, shuffled: bool = False) -> Path:
    draw = np.random.default_rng(0)
    causes = draw.standard_normal((rows, 6))
    sides: dict[str, Any] = {
        "image": causes @ draw.standard_normal((6, 16)),
        "text": (draw.permutation(causes) if shuffled else causes) @ draw.standard_normal((6, 9)),
    }
    lines = ", ".join(
        f"({i}, {side('image', i, sides)}, {side('text', i, sides)}, {'NULL' if i % 7 == 0 else int(causes[i, 0] > 0)})"
        for i in range(rows)
    )
    return parquet(path, f"SELECT * FROM (VALUES {lines}) AS t(concept, image, text, category)")


def side(name: str, row: int, sides: dict[str, Any]) -> str:
    if row % 11 == 3:
        return "NULL" if name == "text" else str(sides[name][row].round(4).tolist())
    return str(sides[name][row].round(4).tolist())


def said(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_pairs_become_a_hash_that_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs, out = paired(tmp_path / "pairs.parquet"), tmp_path / "hash.safetensors"
    words = ["--steps", "15", "--encoder", "image=dino", "--json"]
    assert run(["learn", "hash", "--pairs", str(pairs), "--out", str(out), *words]) == Exit.DONE
    told = said(capsys)
    assert told["rows"] == 200
    assert told["file"] == str(out)
    assert {(one["asked"], one["known"], one["relevance"]) for one in told["scores"]} == {
        (a, b, kind) for a, b in (("image", "text"), ("text", "image")) for kind in ("concept", "category")
    }
    assert all(one["after"] > one["before"] for one in told["scores"] if one["relevance"] == "concept")
    hashed = USHash.load(out)
    assert hashed.heads["image"].encoder == "dino"
    assert hashed.code("text", np.ones((2, 9))).shape == (2,)


def test_people_get_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = paired(tmp_path / "pairs.parquet")
    assert run(["learn", "hash", "--pairs", str(pairs), "--out", str(tmp_path / "h"), "--steps", "5"]) == Exit.DONE
    shown = capsys.readouterr()
    assert "text → image" in shown.out
    assert "wrote" in shown.err


def test_a_file_without_concepts_counts_each_row_as_one(tmp_path: Path) -> None:
    path = parquet(tmp_path / "p", "SELECT [1.0, 2.0] AS image, [3]::INTEGER[] AS text, 'x' AS url FROM range(4)")
    found = read(path)
    assert found.left_out == ("url",)
    assert found.pairs.concept["image"].tolist() == [0, 1, 2, 3]
    assert found.pairs.category.tolist() == [-1] * 4
    assert found.pairs.rows["text"].tolist() == [[3.0]] * 4


def test_rows_keep_their_order_and_nulls_their_place(tmp_path: Path) -> None:
    rows = (
        "SELECT CASE WHEN i % 3 = 0 THEN NULL ELSE [i, i + 1]::FLOAT[2] END AS a, [i]::DOUBLE[] AS b, i // 2 AS concept"
    )
    found = read(parquet(tmp_path / "odd name [1]*.parquet", f"{rows} FROM range(3000) AS t(i)")).pairs
    assert found.rows["a"][:, 0].tolist() == [i for i in range(3000) if i % 3]
    assert found.rows["b"][:, 0].tolist() == list(range(3000))
    assert found.concept["b"].tolist() == [i // 2 for i in range(3000)]


def test_a_modality_that_no_row_has_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = "[1.0] AS a, [1.0] AS b, NULL::FLOAT[] AS c"
    found = read(parquet(tmp_path / "p", f"SELECT {columns} FROM range(4)"))
    assert list(found.pairs.rows) == ["a", "b"]
    assert found.left_out == ("c",)
    empty = parquet(tmp_path / "empty", f"SELECT {columns} FROM range(0)")
    assert run(["learn", "hash", "--pairs", str(empty), "--out", str(tmp_path / "h"), "--json"]) == Exit.FAILED
    assert said(capsys)["error"] == "InvalidInputError"


def test_labels_may_be_lists_of_numbers(tmp_path: Path) -> None:
    select = "SELECT [1.0] AS a, [1.0] AS b, [i // 2]::INTEGER[] AS concept, [1, 2] AS category FROM range(4) AS t(i)"
    found = read(parquet(tmp_path / "p", select))
    assert list(found.pairs.rows) == ["a", "b"]
    assert found.pairs.concept["a"].tolist() == [0, 0, 1, 1]
    assert found.pairs.category.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("select", "says"),
    [
        ("SELECT [1.0] AS image, 'a' AS text FROM range(3)", "two modalities"),
        ("SELECT [1.0] AS a, CASE WHEN i = 2 THEN [1.0, 2.0] ELSE [1.0] END AS b FROM range(4) AS t(i)", "row 2"),
        ("SELECT [1.0] AS a, CASE WHEN i = 1 THEN ['nan'::FLOAT] ELSE [1.0] END AS b FROM range(4) AS t(i)", "row 1"),
        ("SELECT [1.0] AS a, CASE WHEN i = 1 THEN [NULL::FLOAT] ELSE [1.0] END AS b FROM range(4) AS t(i)", "row 1"),
        ("SELECT [1.0] AS a, []::FLOAT[] AS b FROM range(4)", "write NULL"),
        (
            "SELECT [1.0] AS a, [1.0] AS b, CASE WHEN i = 3 THEN NULL ELSE i END AS concept FROM range(5) AS t(i)",
            "row 3",
        ),
    ],
)
def test_bad_columns_are_named(tmp_path: Path, select: str, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        read(parquet(tmp_path / "p", select))


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no file"):
        read(tmp_path / "none")
    (tmp_path / "text").write_text("not parquet")
    with pytest.raises(InvalidInputError, match="as Parquet"):
        read(tmp_path / "text")


@pytest.mark.parametrize(
    "words", [["--encoder", "image"], ["--encoder", "audio=x"], ["--steps=-1"], ["--held-out", "1.5"], ["--seed=-1"]]
)
def test_wrong_options_are_said(tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    pairs, out = paired(tmp_path / "p"), tmp_path / "h"
    assert run(["learn", "hash", "--pairs", str(pairs), "--out", str(out), "--json", *words]) == Exit.FAILED
    assert said(capsys)["error"] == "SettingsError"
    assert not out.exists()


def test_too_few_pairs_teach_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs, out = paired(tmp_path / "p", 12), tmp_path / "h"
    assert run(["learn", "hash", "--pairs", str(pairs), "--out", str(out), "--json"]) == Exit.FAILED
    assert "a hash needs 16" in said(capsys)["message"]
