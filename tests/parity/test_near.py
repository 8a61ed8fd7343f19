"""The compiled search and its plain twins give the same results to the bit, at every level that this processor has."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.near.codes_python import PythonCodes
from mmcache.near.vectors_python import PythonRows

near: Any = pytest.importorskip("mmcache.near._near", reason="the C extension was not built here")
LEVELS = range(near.BEST_LEVEL + 1)


class Refused(Exception):
    """What the twins raise here."""


def codes() -> list[Any]:
    return [PythonCodes(Refused), *(near.Codes(Refused, level) for level in LEVELS)]


def rows(dims: int) -> list[Any]:
    return [PythonRows(dims, Refused), *(near.Rows(dims, Refused, level) for level in LEVELS)]


def agree(twins: list[Any], name: str, *arguments: Any) -> Any:
    def called(twin: Any) -> Any:
        try:
            return getattr(twin, name)(*arguments)
        except Refused as error:
            return str(error)

    results = [called(twin) for twin in twins]
    assert all(result == results[0] for result in results), (name, arguments)
    return results[0]


CALLS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "drop", "has", "nearest", "within"]),
        st.one_of(st.integers(-3, 30), st.integers(-(2**70), 2**70)),
        st.one_of(st.integers(-1, 70), st.integers(0, 2**64)),
    ),
    max_size=100,
)


@given(CALLS)
def test_any_calls_on_codes(calls: list[tuple[str, int, int]]) -> None:
    twins = codes()
    for name, label, code in calls:
        match name:
            case "drop" | "has":
                agree(twins, name, label)
            case "add":
                agree(twins, name, label, code)
            case _:
                agree(twins, name, code, label)
    assert len({len(twin) for twin in twins}) == 1


@pytest.mark.parametrize("name", ["nearest", "within"])
def test_of_two_faults_the_first_is_named(name: str) -> None:
    assert "a code" in agree(codes(), name, -1, -1)


def test_tables_of_codes() -> None:
    rng, twins, held = random.Random(2), codes(), dict[int, int]()
    for label in range(9000):
        code = rng.getrandbits(64)
        if held and rng.random() < 0.5:  # near another one, in few parts
            code = held[rng.choice(list(held)[:200])] ^ rng.getrandbits(10) << rng.randrange(54)
        agree(twins, "add", label, code)
        held[label] = code
        if rng.random() < 0.2:
            gone = rng.choice(list(held)[:300])
            agree(twins, "drop", gone)
            del held[gone]
    for _ in range(60):
        asked = held[rng.choice(list(held))]
        for bit in rng.sample(range(64), rng.randrange(20)):
            asked ^= 1 << bit
        for k in (1, 2, 17, 40, 10**6):
            agree(twins, "nearest", asked, k)
        for radius in (0, 1, 5, 8, 13, 15, 17, 64, 10**9):
            agree(twins, "within", asked, radius)


@given(st.integers(1, 40), st.lists(st.integers(-4, 12)), st.data())
def test_any_vectors(dims: int, labels: list[int], data: st.DataObject) -> None:
    numbers = st.lists(st.floats(width=32), min_size=dims, max_size=dims)
    twins = rows(dims)
    for label in labels:
        agree(twins, "add", label, np.array(data.draw(numbers), np.float32))
        agree(twins, "drop", label + 3)
    asked = np.array(data.draw(numbers), np.float32)
    agree(twins, "nearest", asked, data.draw(st.integers(0, 5)), data.draw(st.floats(-1, 1)), None)
    agree(twins, "nearest", asked, 2, -1.0, np.array([0, 2, 2, 99]))


@pytest.mark.parametrize(("dims", "count"), [(5, 2300), (130, 2300), (600, 2100)])
def test_sketched_vectors(dims: int, count: int) -> None:
    rng, twins = np.random.default_rng(3), rows(dims)
    held = (rng.normal(size=(count, dims)) + 1).astype(np.float32)
    for label, row in enumerate(held):
        agree(twins, "add", label, row)
        if label % 11 == 0:
            agree(twins, "drop", label - 5)
    for n in range(0, count, 80):
        asked = held[n] + rng.normal(scale=rng.uniform(0, 2), size=dims).astype(np.float32)
        for k in (1, 9, 40):
            for among in (None, np.arange(100), np.arange(0, count - 7)):
                agree(twins, "nearest", asked, k, -0.2, among)
    outs = [np.empty(dims, np.float32) for _ in twins]
    assert all(twin.get(77, out) for twin, out in zip(twins, outs, strict=True))
    assert all((out == outs[0]).all() for out in outs)


@pytest.mark.slow
def test_sketches_made_again() -> None:
    rng, twins = np.random.default_rng(4), [PythonRows(24, Refused), near.Rows(24, Refused)]
    held = (rng.normal(size=(16500, 24)) + np.linspace(0, 3, 16500)[:, None]).astype(np.float32)
    for label, row in enumerate(held):
        agree(twins, "add", label, row)
    for n in range(0, 16500, 500):
        agree(twins, "nearest", held[n], 5, -1.0, None)


def test_buffers_are_checked() -> None:
    index, vectors = near.Codes(Refused), near.Rows(4, Refused)
    short, long = np.zeros(3, np.float32), np.zeros(5, np.float32)
    bad: list[Callable[[], object]] = [
        lambda: vectors.add(1, short),
        lambda: vectors.nearest(long, 1, 0.0, None),
        lambda: vectors.nearest(np.ones(4, np.float32), 1, 0.0, np.zeros(3, np.uint8)),
        lambda: vectors.get(1, long),
        lambda: index.nearest_many(np.zeros(2, np.uint64), 2, np.zeros(3, np.int64), np.zeros(4, np.uint8)),
        lambda: index.nearest_many(np.zeros(2, np.uint64), 2, np.zeros(4, np.int64), np.zeros(3, np.uint8)),
        lambda: index.nearest_many(np.zeros(2, np.uint64), 2**62, np.zeros(4, np.int64), np.zeros(4, np.uint8)),
        lambda: index.nearest_many(np.zeros(9, np.uint8), 1, np.zeros(1, np.int64), np.zeros(1, np.uint8)),
        lambda: near.Codes(Refused, near.BEST_LEVEL + 1),
    ]
    for call in bad:
        with pytest.raises(ValueError):
            call()
    for call in (lambda: vectors.get(1, bytes(16)), lambda: vectors.add(1, 5), lambda: index.nearest(1)):
        with pytest.raises((TypeError, BufferError)):
            call()
