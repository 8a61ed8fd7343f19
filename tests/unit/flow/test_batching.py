"""Taking a batch model's output apart, and putting it together again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

from mmcache.batching import split, stack
from mmcache.model.errors import UnsupportedValueError


class Pair(NamedTuple):
    features: np.ndarray
    grid: np.ndarray


@dataclass
class Output:
    features: np.ndarray
    name: str


def test_arrays_are_cut_along_their_first_axis() -> None:
    rows = split(np.arange(6).reshape(3, 2), 3)
    assert [row.tolist() for row in rows] == [[0, 1], [2, 3], [4, 5]]


def test_structures_are_cut_leaf_by_leaf() -> None:
    features, grid = np.arange(4).reshape(2, 2), np.array([[1, 2], [3, 4]])
    assert split({"f": features, "g": grid}, 2)[1]["g"].tolist() == [3, 4]
    assert split(Pair(features, grid), 2)[0].features.tolist() == [0, 1]
    assert split(Output(features, "dino"), 2)[1].name == "dino"


def test_a_list_is_one_output_per_input() -> None:
    assert split(["a", "b"], 2) == ["a", "b"]
    with pytest.raises(UnsupportedValueError, match="2 outputs for 3 inputs"):
        split(["a", "b"], 3)


def test_a_wrong_first_axis_is_an_error_and_never_a_wrong_row() -> None:
    with pytest.raises(UnsupportedValueError, match="shape"):
        split(np.zeros((3, 2)), 2)


def test_stack_is_the_inverse_and_refuses_ragged_outputs() -> None:
    rows = [np.array([1.0, 2.0]), np.array([3.0, 4.0])]
    assert stack(rows).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    with pytest.raises(UnsupportedValueError, match="stack=False"):
        stack([np.zeros(2), np.zeros(3)])
    with pytest.raises(UnsupportedValueError, match="stack=False"):
        stack([np.zeros(2, np.float32), np.zeros(2, np.float64)])
    with pytest.raises(UnsupportedValueError, match="empty"):
        stack([])


def test_tensors_stack_to_a_tensor() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    whole = stack([torch.ones(2, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.bfloat16)])
    assert whole.dtype is torch.bfloat16
    assert whole.shape == (2, 2)
