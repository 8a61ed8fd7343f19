"""The nearest codes are those that looking at every code finds."""

from __future__ import annotations

import random
import sys
import threading

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.model.errors import InvalidInputError
from mmcache.near.hamming import HammingIndex

Codes = dict[int, int]


def ordered(codes: Codes, asked: int) -> list[tuple[int, int]]:
    return sorted(((label, (code ^ asked).bit_count()) for label, code in codes.items()), key=lambda pair: pair[::-1])


@pytest.fixture(params=["compiled", "plain"])
def index(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> HammingIndex:
    monkeypatch.setenv("MMCACHE_PURE", "1" if request.param == "plain" else "0")
    return HammingIndex()


def filled(index: HammingIndex, n: int, clusters: int, seed: int = 0) -> Codes:
    """Codes within 8 bits of `clusters` centres, under labels that are spread out."""
    rng = random.Random(seed)
    centres = [rng.getrandbits(64) for _ in range(clusters)]
    codes = {7 * i - 3 * n: moved(rng.choice(centres), rng.randrange(9), rng) for i in range(n)}
    for label, code in codes.items():
        index.add(label, code)
    return codes


def moved(code: int, bits: int, rng: random.Random) -> int:
    for bit in rng.sample(range(64), bits):
        code ^= 1 << bit
    return code


@given(st.lists(st.tuples(st.integers(-5, 40), st.integers(0, 2**64 - 1), st.booleans())), st.integers(0, 2**64 - 1))
def test_any_calls(calls: list[tuple[int, int, bool]], asked: int) -> None:
    index, held = HammingIndex(), Codes()
    for label, code, add in calls:
        if add and label not in held:
            index.add(label, code)
            held[label] = code
        elif not add:
            assert index.drop(label) == (held.pop(label, None) is not None)
    expected = ordered(held, asked)
    assert len(index) == len(held)
    assert index.nearest(asked, 3) == expected[:3]
    assert index.within(asked, 30) == [pair for pair in expected if pair[1] <= 30]


@pytest.mark.parametrize("clusters", [1, 50, 6000], ids=["one heap", "clusters", "scattered"])
def test_many_codes(index: HammingIndex, clusters: int) -> None:
    codes, rng = filled(index, 6000, clusters), random.Random(1)
    for label in rng.sample(sorted(codes), 1500):
        assert index.drop(label)
        del codes[label]
    for bits in range(16):
        asked = moved(rng.choice(list(codes.values())), bits, rng)
        expected = ordered(codes, asked)
        for k in (1, 10, 100):
            assert index.nearest(asked, k) == expected[:k]
        for radius in (0, 3, 4, 6, 11, 15, 16, 40):
            assert index.within(asked, radius) == [pair for pair in expected if pair[1] <= radius]


def test_equal_codes_come_by_label(index: HammingIndex) -> None:
    for label in (5, -1, 3, 2**63 - 1, -(2**63)):
        index.add(label, 0)
    assert index.nearest(0, 3) == [(-(2**63), 0), (-1, 0), (3, 0)]


def test_batches(index: HammingIndex) -> None:
    codes = filled(index, 300, 20)
    asked = np.array(list(codes.values())[:40], np.uint64)
    labels, distances = index.nearest_many(asked, 5)
    for row, code in enumerate(asked.tolist()):
        assert list(zip(labels[row].tolist(), distances[row].tolist(), strict=True)) == index.nearest(code, 5)


def test_batches_say_what_is_missing(index: HammingIndex) -> None:
    index.add(4, 1)
    labels, distances = index.nearest_many([0, 1], 2)
    assert labels.tolist() == [[4, -1], [4, -1]]
    assert distances.tolist() == [[1, 255], [0, 255]]
    assert [part.shape for part in index.nearest_many([], 3)] == [(0, 3), (0, 3)]


def test_an_empty_one(index: HammingIndex) -> None:
    assert index.nearest(0, 3) == index.within(0, 64) == []
    assert len(index) == 0
    assert not index.drop(1)


def test_bad_input(index: HammingIndex) -> None:
    index.add(1, 1)
    for call in (
        lambda: index.add(1, 2),
        lambda: index.add(2, -1),
        lambda: index.add(2, 2**64),
        lambda: index.add(2**63, 0),
        lambda: index.add("x", 0),  # type: ignore[arg-type]
        lambda: index.add(2, 1.0),  # type: ignore[arg-type]
        lambda: index.nearest(0, 0),
        lambda: index.within(0, -1),
        lambda: index.nearest_many([[1]], 1),
        lambda: index.nearest_many([1], 0),
        lambda: index.nearest_many(["x"], 1),
    ):
        with pytest.raises(InvalidInputError):
            call()
    assert index.nearest(0, 9) == [(1, 1)]
    assert 1 in index
    assert 2 not in index


def test_writers_and_batches_at_once(index: HammingIndex) -> None:
    codes = filled(index, 5000, 50)
    asked = np.array(list(codes.values())[:200], np.uint64)
    wrong: list[object] = []

    def read() -> None:
        for _ in range(3):
            labels, distances = index.nearest_many(asked, 1)
            wrong.extend(labels[distances != 0])

    def write(first: int) -> None:
        for label in range(first, first + 400):
            index.add(label, label)
            index.drop(label)

    threads = [threading.Thread(target=read) for _ in range(3)]
    threads += [threading.Thread(target=write, args=(10**6 * (n + 1),)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(index) == len(codes)


def test_writers_do_not_share_a_slot(index: HammingIndex) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    start = threading.Barrier(4)

    def write(first: int) -> None:
        start.wait()
        for label in range(first, first + 200):
            index.add(label, label)

    try:
        for turn in range(30):
            threads = [threading.Thread(target=write, args=(10_000 * n + 200 * turn,)) for n in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(before)
    held = [10_000 * n + label for n in range(4) for label in range(6000)]
    assert sorted(label for label, _ in index.within(0, 64)) == held


def test_codes_that_lie_anywhere(index: HammingIndex) -> None:
    codes = filled(index, 20, 20)
    asked = np.frombuffer(b"?" + np.array(list(codes.values()), np.uint64).tobytes(), np.uint64, offset=1)
    assert not index.nearest_many(asked)[1].any()


@pytest.mark.parametrize("codes", [np.array([1, -1]), np.array([1.0]), np.array([np.nan])])
def test_arrays_of_what_is_no_code(index: HammingIndex, codes: npt.NDArray[np.generic]) -> None:
    with pytest.raises(InvalidInputError, match="whole numbers"):
        index.nearest_many(codes)


def test_memory_a_code(index: HammingIndex) -> None:
    filled(index, 5000, 5000)
    assert 0 < index.nbytes / len(index) < 700
