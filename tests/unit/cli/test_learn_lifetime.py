"""`mmcache learn lifetime`: a history in, a model out, and clear words about files that are none."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("duckdb", reason="reading Parquet needs duckdb")
pytest.importorskip("torch", reason="training needs torch")

from tests.unit.cli.test_learn import parquet
from tests.unit.learn.test_lifetime import history

from mmcache.cli.app import run
from mmcache.cli.output import Exit
from mmcache.learn import lifetime_read
from mmcache.learn.lifetime_read import read
from mmcache.lifespan.file import load
from mmcache.model.errors import InvalidInputError, SettingsError


def logged(path: Path, intervals: int = 90, keys: int = 120) -> Path:
    uses = history(intervals=intervals, keys=keys)
    rows = ", ".join(
        f"('key {key:04d}', {at}, {uses.text[key].round(4).tolist()}, {0xFF00 if key % 2 else 3})"
        for key, at in zip(uses.key.tolist(), uses.at.tolist(), strict=True)
    )
    return parquet(path, f"SELECT * FROM (VALUES {rows}) AS t(key, time, text, image)")


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    uses, wanted = read(logged(tmp_path / "uses.parquet")), history()
    there = np.unique(wanted.key)
    assert uses.at == pytest.approx(wanted.at)
    assert uses.key.tolist() == np.searchsorted(there, wanted.key).tolist()
    assert uses.text == pytest.approx(wanted.text[there], abs=1e-3)
    assert uses.image[:, 8].tolist() == [1.0 if key % 2 else -1.0 for key in there.tolist()]


def test_times_may_be_timestamps_and_hashes_hex(tmp_path: Path) -> None:
    rows = "(7, TIMESTAMP '2026-01-01 00:00:01', NULL, 'ff00000000000001'), (7, TIMESTAMP '1970-01-01', NULL, NULL)"
    uses = read(parquet(tmp_path / "a.parquet", f"SELECT * FROM (VALUES {rows}) AS t(key, time, text, image)"))
    assert uses.at.tolist() == [0.0, 1767225601.0]
    assert np.flatnonzero(uses.image[0] > 0).tolist() == [0, *range(56, 64)]
    assert not uses.text.any()


@pytest.mark.parametrize(
    ("columns", "row", "words"),
    [
        ("key", "('a')", "no column time"),
        ("key, time", "('a', NULL)", "without key or time"),
        ("key, time, text", "('a', 1, 'words')", "list of numbers"),
        ("key, time, text", "('a', 1, [1.0]), ('b', 1, [1.0, 2.0])", "one length"),
        ("key, time, image", "('a', 1, 'no hash')", "16 hex digits"),
        ("key, time, image", "('a', 1, 99999999999999999999)", "64-bit hash"),
        ("key, time, image", "('a', 1, 2.5)", "16 hex digits"),
        ("key, time, text", "('a', 1, ['NaN'::FLOAT])", "finite"),
        ("key, time, text", "('a', 1, [1.0, NULL])", "finite"),
        ("key, time", "('a', '2026-01-01')", "Unix seconds, not VARCHAR"),
        ("key, time", "('a', TIME '12:00:00')", "Unix seconds, not TIME"),
    ],
)
def test_what_is_no_history_is_told(tmp_path: Path, columns: str, row: str, words: str) -> None:
    path = parquet(tmp_path / "bad.parquet", f"SELECT * FROM (VALUES {row}) AS t({columns})")
    with pytest.raises(InvalidInputError, match=words):
        read(path)


def test_texts_that_would_fill_the_memory_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetime_read, "MOST_NUMBERS", 7)
    rows = ", ".join(f"('{n}', {n}, [1.0, 2.0])" for n in range(4))
    path = parquet(tmp_path / "a.parquet", f"SELECT * FROM (VALUES {rows}) AS t(key, time, text)")
    with pytest.raises(InvalidInputError, match="sample of the keys"):
        read(path)


def test_rows_need_no_order_and_may_repeat(tmp_path: Path) -> None:
    rows = "('b', 9), ('a', 3), ('b', 1), ('a', 3)"
    uses = read(parquet(tmp_path / "a.parquet", f"SELECT * FROM (VALUES {rows}) AS t(key, time)"))
    assert uses.at.tolist() == [1.0, 3.0, 3.0, 9.0]
    assert uses.key.tolist() == [1, 0, 0, 1]


@pytest.mark.parametrize("times", ["1e12 + 3.6e6 * i", "'infinity'::TIMESTAMP"], ids=["milliseconds", "infinite"])
def test_times_that_cannot_be_are_told_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str], times: str) -> None:
    path = parquet(tmp_path / "a.parquet", f"SELECT 'a' AS key, {times} AS time FROM range(9999) t(i)")
    done = run(["learn", "lifetime", "--history", str(path), "--out", str(tmp_path / "x"), "--json"])
    assert done not in (Exit.DONE, Exit.NO)
    assert json.loads(capsys.readouterr().out)["error"] == "InvalidInputError"
    assert not (tmp_path / "x").exists()


def test_files_that_are_none_are_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--history"):
        read(tmp_path / "none.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"not Parquet at all")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read(tmp_path / "bad.parquet")


def test_a_history_that_is_too_short_is_told(tmp_path: Path) -> None:
    words = ["learn", "lifetime", "--history", str(logged(tmp_path / "uses.parquet", 40, 30)), "--interval", "1"]
    assert run([*words, "--out", str(tmp_path / "x")]) not in (Exit.DONE, Exit.NO)
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_a_history_becomes_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "lifetime.safetensors"
    words = ["learn", "lifetime", "--history", str(logged(tmp_path / "uses.parquet", 160, 300)), "--interval", "1"]
    done = run([*words, "--out", str(out), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["keys"] == len(np.unique(history(intervals=160, keys=300).key))
    assert set(told["f1"]) == {"network", "last-day", "frequency", "decay", "regression"}
    assert (done == Exit.DONE) == out.exists()
    if out.exists():
        assert load(out).scale.interval_seconds == 3600.0
