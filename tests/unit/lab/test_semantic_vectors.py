"""Embeddings are computed once a text, and read back from the environment's folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from mmcache.lab import semantic_vectors
from mmcache.lab.semantic_vectors import _kept
from mmcache.lab.table import silent
from mmcache.model.errors import AssetError

Floats = npt.NDArray[np.float32]


class Encoder:
    """Counts what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, name: str) -> Floats:
        self.asked.append(name)
        return np.full(384, len(name), np.float32)


def test_each_text_is_encoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(semantic_vectors, "HOME", tmp_path)
    encode = Encoder()
    first = _kept("text", "weights", ["a", "bb", "a"], encode, silent)
    assert [row[0] for row in first] == [1, 2, 1]
    again = _kept("text", "weights", ["bb", "ccc"], encode, silent)
    assert [row[0] for row in again] == [2, 3]
    assert encode.asked == ["a", "bb", "ccc"]
    _kept("text", "other weights", ["a"], encode, silent)
    assert encode.asked[-1] == "a"


def test_a_damaged_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(semantic_vectors, "HOME", tmp_path)
    _kept("text", "weights", ["a"], Encoder(), silent)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(AssetError, match="remove it"):
        _kept("text", "weights", ["a"], Encoder(), silent)


def test_a_folder_that_cannot_be_written_only_costs_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(semantic_vectors, "HOME", tmp_path / "file" / "below")
    assert _kept("text", "weights", ["a"], Encoder(), silent).shape == (1, 384)
