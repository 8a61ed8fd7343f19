"""The nearest vectors are those that comparing all finds: always where few are compared, nearly always beyond."""

from __future__ import annotations

import math
import threading

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.model.errors import InvalidInputError
from mmcache.near.vectors import Vectors

Floats = npt.NDArray[np.float32]
DIMS = 48


def drawn(n: int, seed: int = 0, dims: int = DIMS) -> Floats:
    """Vectors about a common mean, as embeddings are."""
    return (np.random.default_rng(seed).normal(size=(n, dims)) + 1).astype(np.float32)


def filled(vectors: Vectors, rows: Floats) -> Floats:
    for label, row in enumerate(rows):
        vectors.add(label, row)
    units: Floats = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return units


def near(row: Floats, seed: int, noise: float = 0.1) -> Floats:
    moved: Floats = row + np.float32(noise) * drawn(1, seed)[0]
    return moved


@pytest.fixture(params=["compiled", "plain"])
def vectors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Vectors:
    monkeypatch.setenv("MMCACHE_PURE", "1" if request.param == "plain" else "0")
    return Vectors(DIMS)


def test_the_nearest_of_few_are_exact(vectors: Vectors) -> None:
    rows = filled(vectors, drawn(500))
    for n in range(30):
        asked = drawn(1, n + 1)[0]
        cosines = rows @ (asked / np.linalg.norm(asked))
        found = vectors.nearest(asked, 10)
        assert [cosine for _, cosine in found] == pytest.approx(np.sort(cosines)[::-1][:10], abs=5e-4)
        assert [cosine for _, cosine in found] == pytest.approx([cosines[label] for label, _ in found], abs=5e-4)


def test_near_ones_among_many_are_found(vectors: Vectors) -> None:
    filled(vectors, drawn(4000))
    rows = drawn(4000)
    for n in range(0, 4000, 100):
        found = vectors.nearest(near(rows[n], n), 3)
        assert found[0][0] == n
        assert len(found) == 3
        assert found[0][1] > found[1][1] >= found[2][1]


def test_what_is_dropped_is_not_found(vectors: Vectors) -> None:
    rows = drawn(2500)
    filled(vectors, rows)
    assert all(vectors.drop(label) for label in range(0, 2500, 2))
    assert not vectors.drop(0)
    assert len(vectors) == 1250
    for n in range(0, 2500, 125):
        label = vectors.nearest(rows[n])[0][0]
        assert label % 2 == 1
        assert (label == n) == (n % 2 == 1)


def test_only_among(vectors: Vectors) -> None:
    rows = drawn(3000)
    filled(vectors, rows)
    assert [label for label, _ in vectors.nearest(rows[7], 5, among={3, 10**9})] == [3]
    assert [label for label, _ in vectors.nearest(rows[7], 5, among=np.array([7, 7, 9]))] == [7, 9]
    assert vectors.nearest(rows[7], among=np.arange(2900))[0][0] == 7
    assert vectors.nearest(rows[7], among=np.delete(np.arange(3000), 7))[0][0] != 7
    assert vectors.nearest(rows[7], among=set()) == vectors.nearest(rows[7], among={-1}) == []


def test_no_less_than_least(vectors: Vectors) -> None:
    vectors.add(1, np.eye(DIMS)[0])
    vectors.add(2, np.eye(DIMS)[1])
    assert vectors.nearest(np.eye(DIMS)[0], 5, 0.5) == [(1, 1.0)]
    assert vectors.nearest(np.eye(DIMS)[0], 5) == [(1, 1.0), (2, 0.0)]
    assert vectors.nearest(-np.eye(DIMS)[0], 5, -0.5) == [(2, 0.0)]


def test_equal_vectors_come_by_label(vectors: Vectors) -> None:
    row = drawn(1)[0]
    for label in (9, -4, 2**63 - 1):
        vectors.add(label, row)
    assert [label for label, _ in vectors.nearest(row * 3, 3)] == [-4, 9, 2**63 - 1]


def test_what_is_kept(vectors: Vectors) -> None:
    row = drawn(1)[0]
    vectors.add(5, row.astype(np.float64) * 1e20)
    kept = vectors.get(5)
    assert kept is not None
    assert kept == pytest.approx(row / np.linalg.norm(row), abs=1e-3)
    assert vectors.get(6) is None
    assert 5 in vectors
    assert 6 not in vectors
    vectors.add(6, (np.arange(DIMS) + 1).tolist())
    assert len(vectors) == 2


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros(DIMS, np.float32),
        np.full(DIMS, np.nan),
        np.array([np.inf] + [0] * (DIMS - 1), np.float32),
        np.full(DIMS, 1e300),
        np.ones(DIMS + 1, np.float32),
        np.ones((1, DIMS), np.float32),
        1.0,
        ["x"] * DIMS,
        None,
    ],
    ids=["zeros", "nan", "infinite", "overflows", "too long", "two axes", "a number", "words", "nothing"],
)
def test_bad_vectors(vectors: Vectors, bad: npt.ArrayLike) -> None:
    vectors.add(0, np.ones(DIMS))
    with pytest.raises(InvalidInputError):
        vectors.add(1, bad)
    with pytest.raises(InvalidInputError):
        vectors.nearest(bad)
    assert len(vectors) == 1


def test_other_bad_input(vectors: Vectors) -> None:
    vectors.add(0, np.ones(DIMS))
    for call in (
        lambda: vectors.add(0, np.ones(DIMS)),
        lambda: vectors.add(2**63, np.ones(DIMS)),
        lambda: vectors.add(0.5, np.ones(DIMS)),  # type: ignore[arg-type]
        lambda: vectors.nearest(np.ones(DIMS), 0),
        lambda: vectors.nearest(np.ones(DIMS), among={"x"}),  # type: ignore[arg-type]
        lambda: vectors.nearest(np.ones(DIMS), among=np.array([0.5])),
        lambda: Vectors(0),
        lambda: Vectors(10**6),
    ):
        with pytest.raises(InvalidInputError):
            call()


@given(st.integers(1, 70), st.data())
def test_any_dims(dims: int, data: st.DataObject) -> None:
    rows = drawn(data.draw(st.integers(1, 30)), dims=dims)
    vectors = Vectors(dims)
    filled(vectors, rows)
    for n in range(len(rows)):
        assert vectors.nearest(rows[n])[0][1] == pytest.approx(1, abs=1e-3)


def test_readers_and_writers_at_once(vectors: Vectors) -> None:
    rows = drawn(9000 if type(vectors._core).__name__ == "Rows" else 2500)
    filled(vectors, rows)
    wrong: list[tuple[int, float]] = []

    def read(first: int) -> None:
        for n in range(first, first + 60):
            label, cosine = vectors.nearest(rows[n])[0]
            if label != n or not math.isclose(cosine, 1, abs_tol=1e-3):
                wrong.append((n, cosine))

    def write(first: int) -> None:
        for n in range(first, first + 300):
            vectors.add(n, rows[n % 1000] + rows[1])
            vectors.drop(n - 5)

    threads = [threading.Thread(target=read, args=(400 * n,)) for n in range(4)]
    threads += [threading.Thread(target=write, args=(10**6 * (n + 1),)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(vectors) == len(rows) + 10


def test_floats_that_lie_anywhere(vectors: Vectors) -> None:
    rows = drawn(2)
    filled(vectors, rows)
    odd = np.frombuffer(b"?" + rows[1].tobytes(), np.float32, offset=1)
    vectors.add(2, odd)
    assert [label for label, _ in vectors.nearest(odd, 2)] == [1, 2]


def test_memory_a_vector() -> None:
    vectors = Vectors(384)
    filled(vectors, drawn(3000, dims=384))
    assert 770 < vectors.nbytes / len(vectors) < 1500
