"""The LSTM's numbers and its judge; what trains it is tested in tests/unit/learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mmcache.model.errors import InvalidInputError
from mmcache.policies.forecast import LARGEST, SEQUENCE, Judge, LSTMWeights

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


def floats(*values: float) -> Any:
    return np.array(values, np.float32)


def test_a_forecast_is_not_believed_before_it_was_right_often_enough() -> None:
    judge = Judge(patience=3)
    for verdict in range(3):
        assert not judge.better
        judge.verdict(floats(0, 4), floats(0, 4), floats(4, 0), floats(1, 0))
        assert judge.report()["verdicts"] == verdict + 1
    assert judge.better
    assert judge.report()["window_missed"] == pytest.approx(1.0)
    assert judge.report()["forecast_missed"] == 0.0


def test_one_that_is_nearer_but_ranks_worse_is_not_better() -> None:
    judge = Judge(patience=1)
    judge.verdict(floats(1, 2, 1, 2), floats(1.6, 1.5, 1.6, 1.5), floats(10, 20, 10, 20), floats(0, 1, 2, 3))
    report = judge.report()
    assert report["forecast_error"] < report["window_error"]
    assert report["forecast_missed"] > report["window_missed"]
    assert not judge.better


def test_one_that_gets_worse_is_dropped() -> None:
    judge = Judge(memory=4, patience=2)
    for _ in range(4):
        judge.verdict(floats(0, 4), floats(0, 4), floats(4, 0), floats(1, 0))
    assert judge.better
    for _ in range(8):
        judge.verdict(floats(0, 4), floats(4, 0), floats(0, 4), floats(1, 0))
    assert not judge.better


def test_of_equals_the_later_used_ranks_higher_and_nothing_used_is_no_verdict() -> None:
    judge = Judge(patience=1)
    judge.verdict(floats(3, 0), floats(1, 1), floats(1, 1), floats(2, 1))
    assert judge.report()["window_missed"] == 0.0
    judge.verdict(floats(0, 0), floats(9, 9), floats(1, 1), floats(2, 1))
    assert judge.report()["verdicts"] == 1
