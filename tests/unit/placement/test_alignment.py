"""The running alignment is, at any moment, the closed form of all that was seen."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcache.model.errors import InvalidInputError
from mmcache.placement.alignment import JointSpace, RunningAffine, fit
from mmcache.placement.cosine import nearest

Doubles = npt.NDArray[np.float64]


def seen(count: int, seed: int = 0, noise: float = 0.1, turn: int = 1) -> tuple[Doubles, Doubles]:
    """Pairs of vectors with an affine map between them; `turn` names the map."""
    random, maps = np.random.default_rng(seed), np.random.default_rng(turn)
    x = random.standard_normal((count, 12)) + 3.0
    return x, x @ maps.standard_normal((12, 5)) - 2.0 + noise * random.standard_normal((count, 5))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(0, 5))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_is_the_closed_form_however_pairs_come(sizes: list[int], seed: int) -> None:
    x, y = seen(sum(sizes) + 1, seed)
    running, start = RunningAffine(12, 5), 0
    for size in [*sizes, 1]:
        running.learn(x[start : start + size], y[start : start + size])
        start += size
    closed, found = fit(x, y), running.solved()
    assert np.allclose(found.matrix, closed.matrix, atol=1e-7)
    assert np.allclose(found.offset, closed.offset, atol=1e-6)


def test_forgets_what_is_over() -> None:
    old, new = seen(600, turn=1), seen(600, seed=1, turn=2)
    follows, keeps = RunningAffine(12, 5, forget=0.98), RunningAffine(12, 5)
    for running in (follows, keeps):
        for x, y in (old, new):
            for start in range(0, 600, 50):
                running.learn(x[start : start + 50], y[start : start + 50])
    x, y = seen(200, seed=2, turn=2)
    errors = [float(np.abs(running.map(x) - y).mean()) for running in (follows, keeps)]
    assert errors[0] < errors[1] / 3


def test_weights_are_those_of_one_by_one() -> None:
    x, y = seen(40)
    together, alone = RunningAffine(12, 5, forget=0.9), RunningAffine(12, 5, forget=0.9)
    together.learn(x, y)
    for i in range(40):
        alone.learn(x[i : i + 1], y[i : i + 1])
    assert np.allclose(together.solved().matrix, alone.solved().matrix)
    assert together.weight == pytest.approx(alone.weight)


def test_is_solved_only_when_much_is_new() -> None:
    x, y = seen(1000)
    running = RunningAffine(12, 5)
    running.learn(x[:900], y[:900])
    first = running.map
    running.learn(x[900:910], y[900:910])
    assert running.map is first
    running.learn(x[:300], y[:300])
    assert running.map is not first


def test_one_space_for_both() -> None:
    x, y = seen(300, noise=0.02)
    space = JointSpace({"image": 12, "text": 5}, anchor="text")
    assert (space.place("image", x) == 0).all()
    space.learn("image", x, y)
    numbers, _ = nearest(space.place("image", x), space.place("text", y), 1)
    assert (numbers[:, 0] == np.arange(300)).mean() > 0.9
    assert np.allclose(np.linalg.norm(space.place("text", y), axis=1), 1.0, atol=1e-5)


def test_what_it_refuses() -> None:
    running = RunningAffine(2, 3)
    for x, y in (
        (np.zeros((2, 2)), np.zeros((1, 3))),
        (np.zeros((1, 3)), np.zeros((1, 3))),
        (np.zeros(2), np.zeros(3)),
    ):
        with pytest.raises(InvalidInputError, match="pairs are"):
            running.learn(x, y)
    with pytest.raises(InvalidInputError, match="not finite"):
        running.learn([[np.nan, 0.0]], [[0.0, 0.0, 0.0]])
    assert running.weight == 0.0
    with pytest.raises(InvalidInputError, match="forget"):
        RunningAffine(2, 3, forget=0.0)
    with pytest.raises(InvalidInputError, match="anchor"):
        JointSpace({"image": 2}, anchor="text")
    with pytest.raises(InvalidInputError, match="none of"):
        JointSpace({"image": 2, "text": 3}, anchor="text").learn("text", np.zeros((1, 3)), np.zeros((1, 3)))
