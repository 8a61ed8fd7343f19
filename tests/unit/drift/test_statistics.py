"""Frozen statistics and the keys made with them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mmcache.keys.drift import FrozenStatistics, QuantisedKey
from mmcache.model.errors import CorruptFrameError, FormatVersionError, InvalidInputError


def features(seed: int = 0, count: int = 200, width: int = 12) -> npt.NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    spread = np.linspace(0.1, 5, width)
    return (rng.normal(size=(count, width)) * spread + spread).astype(np.float32)


def test_calibration_features_become_standard() -> None:
    rows = features()
    normal = FrozenStatistics.fit(rows).normalise(rows)
    assert normal.dtype == np.float32
    np.testing.assert_allclose(normal.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(normal.std(0), 1, atol=1e-4)


def test_what_comes_later_moves_nothing() -> None:
    """The whole point: a key made today is the key made tomorrow, whatever came between."""
    frozen = FrozenStatistics.fit(features())
    asked = features(1)
    before = QuantisedKey(frozen).digests(asked)
    for seed in range(5):
        frozen.normalise(features(seed) + 100)
    assert QuantisedKey(frozen).digests(asked) == before
    with pytest.raises(ValueError):
        frozen.mean[0] = 1


def test_a_refit_is_another_signature() -> None:
    rows = features()
    one, two = FrozenStatistics.fit(rows), FrozenStatistics.fit(rows + np.float32(0.01))
    assert one.digest != two.digest
    assert one == FrozenStatistics.fit(rows)
    assert one != FrozenStatistics.fit(rows, name="another encoder")
    assert QuantisedKey(one).identity != QuantisedKey(two).identity
    flat = rows[:1]
    assert QuantisedKey(one).digests(flat) != QuantisedKey(two).digests(flat)


def test_the_callers_array_stays_his() -> None:
    mean = np.zeros(3, np.float32)
    frozen = FrozenStatistics(mean, np.ones(3, np.float32))
    mean[0] = 9
    assert frozen.mean[0] == 0


@pytest.mark.parametrize(
    "bad", [[[1.0, np.nan], [0, 0]], [[1, np.inf], [0, 0]], [[1, 2]], [], [["a"]], np.zeros((2, 2, 2))]
)
def test_what_cannot_be_fitted_is_refused(bad: npt.ArrayLike) -> None:
    with pytest.raises(InvalidInputError):
        FrozenStatistics.fit(bad)


def test_a_constant_dimension_is_not_blown_up() -> None:
    rows = features(width=3)
    rows[:, 1] = np.float32(0.1)
    frozen = FrozenStatistics.fit(rows)
    assert frozen.scale[1] == 1
    assert abs(frozen.normalise(rows)[:, 1]).max() < 1e-6


def test_saved_and_loaded_is_the_same(tmp_path: Path) -> None:
    frozen = FrozenStatistics.fit(features(), name="tower")
    frozen.save(tmp_path / "f")
    again = FrozenStatistics.load(tmp_path / "f")
    assert (again, again.samples, again.name) == (frozen, 200, "tower")
    assert (tmp_path / "f").stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_damage_and_newer_formats_are_told_apart() -> None:
    data = bytearray(FrozenStatistics.fit(features()).to_bytes())
    for place in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[place] ^= 0x40
        try:
            found = FrozenStatistics.from_bytes(bytes(damaged))
        except (CorruptFrameError, FormatVersionError):
            continue
        assert found.digest == FrozenStatistics.from_bytes(bytes(data)).digest  # only `samples` is outside of it
    with pytest.raises(CorruptFrameError):
        FrozenStatistics.from_bytes(b"nonsense")
    with pytest.raises(FormatVersionError):
        FrozenStatistics.from_bytes(msgspec.msgpack.encode({"version": 99}))


@given(arrays.arrays(np.float32, (6, 5), elements=st.floats(-(2.0**100), 2.0**100, width=32)), st.integers(1, 6))
def test_a_key_does_not_depend_on_the_batch(rows: npt.NDArray[np.float32], size: int) -> None:
    frozen = FrozenStatistics.fit(features(width=5))
    for key in (QuantisedKey(frozen), QuantisedKey(frozen, "sign")):
        whole = key.digests(rows)
        parts = [key.digests(rows[start : start + size]) for start in range(0, 6, size)]
        assert [one for part in parts for one in part] == whole
        assert all(len(one) == 16 for one in whole)


def test_cells_are_as_wide_as_said() -> None:
    frozen = FrozenStatistics(np.zeros(1, np.float32), np.full(1, 2, np.float32))
    assert QuantisedKey(frozen, step=0.5).cells([[0.4], [0.6], [1.4], [-0.6]]).ravel().tolist() == [0, 1, 1, -1]
    assert QuantisedKey(frozen, "sign").cells([[0.4], [-0.6]]).ravel().tolist() == [1, 0]


def test_realms_share_nothing() -> None:
    key = QuantisedKey(FrozenStatistics.fit(features()))
    row = features(3, 1)
    assert len({key.digests(row)[0], key.digests(row, bytes(32))[0], key.digests(row, b"x" * 32)[0]}) == 3


@pytest.mark.parametrize(
    ("step", "dimensions"), [(0.0, 0), (-1.0, 0), (float("nan"), 0), (1e-60, 0), (1e60, 0), (1.0, 13), (1.0, -1)]
)
def test_a_key_that_makes_no_sense_is_refused(step: float, dimensions: int) -> None:
    with pytest.raises(InvalidInputError):
        QuantisedKey(FrozenStatistics.fit(features()), step=step, dimensions=dimensions)


@pytest.mark.parametrize("far", [3e38, 1e300])
def test_features_that_overflow_are_refused(far: float) -> None:
    frozen = FrozenStatistics.fit(features() / 1000)
    with pytest.raises(InvalidInputError):
        QuantisedKey(frozen).digests(np.full((1, 12), far))


def test_another_rounding_is_refused() -> None:
    """It would be named as signs are, whatever its step: two keys of one name would mean different cells."""
    with pytest.raises(InvalidInputError, match="round, sign"):
        QuantisedKey(FrozenStatistics.fit(features()), rounding="bits")  # type: ignore[arg-type]
