"""How far two outputs agree, and that nothing it is shown makes it fail."""

from __future__ import annotations

import numpy as np
import pytest

from mmcache.codecs.structure import Structures
from mmcache.model.errors import SettingsError
from mmcache.rollout.agreement import agreement, cosine

NONE = Structures()


def test_cosine_of_arrays() -> None:
    one = np.array([1.0, 0.0], np.float32)
    assert cosine(one, one * 3, NONE) == pytest.approx(1.0)
    assert cosine(one, np.array([0.0, 1.0], np.float32), NONE) == pytest.approx(0.0)
    assert cosine(one, -one, NONE) == pytest.approx(-1.0)
    assert cosine(one, one.astype(np.float16), NONE) == pytest.approx(1.0)
    assert cosine(np.zeros(3), np.zeros(3), NONE) == 1.0
    assert cosine(np.zeros(3), np.ones(3), NONE) == 0.0


def test_all_numbers_of_a_structure_are_one_vector() -> None:
    one = {"embedding": np.array([3.0, 0.0]), "score": 4.0, "words": "a cat", "ok": True}
    assert cosine(one, one, NONE) == pytest.approx(1.0)
    assert cosine(one, one | {"score": 0.0}, NONE) == pytest.approx(9 / 15)
    assert cosine(one, one | {"words": "a dog"}, NONE) is None
    assert cosine(one, one | {"ok": False}, NONE) is None
    assert cosine([1.0, [2.0]], [1.0, [2.0]], NONE) == pytest.approx(1.0)
    assert cosine((1.0,), [1.0], NONE) is None
    assert cosine("long words " * 50, "long words " * 50, NONE) == 1.0
    assert cosine("long words " * 50, "long wards " * 50, NONE) is None
    assert cosine(b"\x01\x02", b"\x02\x04", NONE) is None


@pytest.mark.parametrize(
    "other",
    [
        np.ones(512),
        np.ones((1, 384)),
        np.full(384, np.nan),
        np.full(384, np.inf),
        {"features": np.ones(384)},
        [np.ones(384)],
        None,
        "text",
        object(),
        np.array(["x"] * 384),
        np.full(384, 1e308),
    ],
    ids=lambda value: f"{type(value).__name__} {getattr(value, 'shape', '')}",
)
def test_what_cannot_be_compared_does_not_agree(other: object) -> None:
    for compare in ("cosine", "exact"):
        found = agreement(compare, NONE)(np.ones(384), other)
        assert found is None


def test_exact_and_a_measure_of_ones_own() -> None:
    assert agreement("exact", NONE)("a", "a") == 1.0
    assert agreement("exact", NONE)(np.ones(2), np.ones(2) + 1e-9) is None
    assert agreement(lambda one, other: one[0] == other["v"][0], NONE)(np.ones(2), {"v": np.ones(3)}) == 1.0
    assert agreement(lambda one, other: float("nan"), NONE)(1, 1) is None
    with pytest.raises(SettingsError, match="compare is"):
        agreement("euclid", NONE)  # type: ignore[arg-type]
