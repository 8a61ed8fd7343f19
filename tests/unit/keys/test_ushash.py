"""A hash file runs with numpy alone, and nothing that is no sound hash is taken for one."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from mmcache.keys.ushash import BITS, WIDTH, Head, USHash, pack
from mmcache.model.errors import CorruptFrameError, FormatVersionError, InvalidInputError, SettingsError


def head(width: int, seed: int = 0) -> Head:
    draw = np.random.default_rng(seed)
    return Head(
        draw.standard_normal((WIDTH, width)).astype(np.float32), draw.standard_normal(WIDTH).astype(np.float32), "aa"
    )


def made() -> USHash:
    prototypes = np.random.default_rng(9).standard_normal((BITS, WIDTH)).astype(np.float32)
    return USHash({"image": head(12), "text": head(7, 1)}, prototypes, 5, {"pairs": "3"})


def rows(count: int, width: int, seed: int = 3) -> Any:
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


def test_a_file_gives_the_same_hash_again(tmp_path: Path) -> None:
    first = made()
    first.save(tmp_path / "hash.safetensors")
    again = USHash.load(tmp_path / "hash.safetensors")
    assert (again.seed, again.notes, again.heads["image"].encoder) == (5, {"pairs": "3"}, "aa")
    assert (again.code("text", rows(9, 7)) == first.code("text", rows(9, 7))).all()
    assert [path.name for path in tmp_path.iterdir()] == ["hash.safetensors"]


def test_embeddings_have_norm_one_and_codes_are_their_signs() -> None:
    embedded = made().embed("image", rows(5, 12))
    assert embedded.dtype == np.float32
    assert np.linalg.norm(embedded, axis=1) == pytest.approx(np.ones(5), abs=1e-5)
    codes = made().code("image", rows(5, 12))
    assert codes.dtype == np.uint64
    signs = embedded @ made().prototypes.T > 0
    assert [[bool(int(code) >> bit & 1) for bit in range(BITS)] for code in codes] == signs.tolist()


def test_no_rows_give_no_codes() -> None:
    assert made().code("image", rows(0, 12)).shape == (0,)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=20))
def test_packing_keeps_every_bit(numbers: list[int]) -> None:
    bits = np.array([[bool(number >> bit & 1) for bit in range(64)] for number in numbers], bool).reshape(-1, 64)
    assert pack(bits).tolist() == numbers


@pytest.mark.parametrize(
    "features", [rows(2, 11), rows(1, 12)[0], np.full((1, 12), np.nan, np.float32), np.full((1, 12), 3e38, np.float32)]
)
def test_features_of_another_shape_or_not_finite_are_refused(features: Any) -> None:
    with pytest.raises(InvalidInputError), np.errstate(over="ignore", invalid="ignore"):
        made().embed("image", features)


def test_a_modality_without_a_head_is_refused() -> None:
    with pytest.raises(SettingsError, match="image, text"):
        made().code("audio", rows(1, 12))


@pytest.mark.parametrize(
    "change",
    [
        {"heads": {}},
        {"prototypes": np.zeros((BITS, WIDTH))},
        {"prototypes": np.zeros((BITS - 1, WIDTH), np.float32)},
        {"prototypes": np.full((BITS, WIDTH), np.inf, np.float32)},
        {"heads": {"image": Head(np.zeros((WIDTH, 0), np.float32), np.zeros(WIDTH, np.float32))}},
        {"heads": {"image": Head(np.zeros((WIDTH, 3), np.float32), np.zeros(3, np.float32))}},
    ],
)
def test_arrays_that_make_no_hash_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        replace(made(), **change)


FACTS = {"format": "mmcache-ushash", "version": "1", "seed": "0", "encoders": json.dumps({"image": ""}), "notes": "{}"}
TENSORS = {
    "prototypes": np.ones((BITS, WIDTH), np.float32),
    "head.image.weight": np.ones((WIDTH, 4), np.float32),
    "head.image.bias": np.ones(WIDTH, np.float32),
}


def written(path: Path, tensors: dict[str, Any] | None = None, facts: dict[str, str] | None = None) -> Path:
    save_file(tensors or TENSORS, path, facts if facts is not None else FACTS)
    return path


def test_the_format_is_what_the_docs_say(tmp_path: Path) -> None:
    assert USHash.load(written(tmp_path / "a")).code("image", rows(1, 4)).shape == (1,)


@pytest.mark.parametrize(
    "facts",
    [
        {},
        FACTS | {"format": "other"},
        FACTS | {"version": "one"},
        FACTS | {"encoders": "[1]"},
        FACTS | {"encoders": "{"},
        FACTS | {"encoders": '{"text": ""}'},
        FACTS | {"notes": "5"},
        FACTS | {"notes": "[" * 100_000},
        {key: value for key, value in FACTS.items() if key != "seed"},
    ],
)
def test_facts_that_are_none_make_a_corrupt_file(tmp_path: Path, facts: dict[str, str]) -> None:
    with pytest.raises(CorruptFrameError):
        USHash.load(written(tmp_path / "a", facts=facts))


@pytest.mark.parametrize(
    "tensors",
    [
        TENSORS | {"more": np.ones(1, np.float32)},
        TENSORS | {"head.image.weight": np.ones((WIDTH, 4), np.float64)},
        TENSORS | {"head.image.bias": np.full(WIDTH, np.nan, np.float32)},
        {key: value for key, value in TENSORS.items() if key != "prototypes"},
    ],
)
def test_tensors_that_are_none_make_a_corrupt_file(tmp_path: Path, tensors: dict[str, Any]) -> None:
    with pytest.raises(CorruptFrameError):
        USHash.load(written(tmp_path / "a", tensors=tensors))


def test_a_newer_version_says_so(tmp_path: Path) -> None:
    with pytest.raises(FormatVersionError, match="update mmcache"):
        USHash.load(written(tmp_path / "a", facts=FACTS | {"version": "2"}))


@pytest.mark.parametrize("cut", [0, 5, 100, 2000])
def test_a_torn_file_is_corrupt(tmp_path: Path, cut: int) -> None:
    path = written(tmp_path / "a")
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(CorruptFrameError):
        USHash.load(path)


def test_threads_may_save_at_once(tmp_path: Path) -> None:
    hashed, failed = made(), list[Exception]()

    def save() -> None:
        for _ in range(20):
            try:
                hashed.save(tmp_path / "a")
            except SettingsError as error:
                failed.append(error)

    threads = [threading.Thread(target=save) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert USHash.load(tmp_path / "a").heads.keys() == hashed.heads.keys()


@pytest.mark.parametrize("far", [3e38, 1e300])
def test_features_that_overflow_are_refused(far: float) -> None:
    modality, head = next(iter(made().heads.items()))
    with pytest.raises(InvalidInputError):
        made().code(modality, np.full((1, head.weight.shape[1]), far))


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="mmcache learn hash"):
        USHash.load(tmp_path / "none")
    with pytest.raises(SettingsError, match="cannot write"):
        made().save(tmp_path / "no folder" / "hash")


def test_running_a_hash_needs_no_torch(tmp_path: Path) -> None:
    made().save(tmp_path / "a")
    probe = (
        "import sys; from mmcache.keys.ushash import USHash; "
        f"USHash.load({str(tmp_path / 'a')!r}).code('text', [[1.0] * 7]); print('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout == "False\n"
