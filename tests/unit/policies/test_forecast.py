"""The LSTM's numbers; what trains it is tested in tests/unit/learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mmcache.model.errors import InvalidInputError
from mmcache.policies.forecast import LARGEST, SEQUENCE, LSTMWeights

SIZE = 4


def weights(**changed: Any) -> LSTMWeights:
    rng = np.random.default_rng(0)
    parts: dict[str, Any] = {
        "inputs": rng.standard_normal((4 * SIZE, 1)).astype(np.float32),
        "recurrent": rng.standard_normal((4 * SIZE, SIZE)).astype(np.float32),
        "bias": rng.standard_normal(4 * SIZE).astype(np.float32),
        "dense": rng.standard_normal(SIZE).astype(np.float32),
        "dense_bias": 0.1,
    }
    return LSTMWeights(**parts | changed)


def test_blocks_do_not_depend_on_each_other() -> None:
    counts = np.random.default_rng(1).poisson(2.0, (20, SEQUENCE)).astype(np.float32)
    together = weights().expected(counts)
    alone = np.concatenate([weights().expected(row[None]) for row in counts])
    assert together.dtype == np.float32
    assert together == pytest.approx(alone, rel=1e-5)
    assert weights().expected(np.zeros((0, SEQUENCE), np.float32)).shape == (0,)


def test_a_forecast_is_bounded_and_finite() -> None:
    wild = weights(dense=np.full(SIZE, 1e6, np.float32), dense_bias=1e6)
    found = wild.expected(np.full((3, SIZE * 2), 1e30, np.float32))
    assert found == pytest.approx(np.exp(LARGEST), rel=1e-5)


@pytest.mark.parametrize(
    "changed",
    [
        {"inputs": np.zeros((SIZE, 1), np.float32)},
        {"recurrent": np.zeros((4 * SIZE, SIZE), np.float64)},
        {"bias": np.full(4 * SIZE, np.nan, np.float32)},
        {"dense_bias": np.inf},
    ],
)
def test_weights_that_cannot_be_used(changed: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        weights(**changed)
