"""Remembered queries: nearest by gate, bounded, and the same as a plain scan."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcache.keys.joint import Alignment, Statistics
from mmcache.model.errors import InvalidInputError
from mmcache.retrieval import Tolerance
from mmcache.retrieval.queries import FIT_AFTER, FIT_CONTENTS, Queries, Query

WIDTH = 32
Floats = npt.NDArray[np.float32]
PLAIN = Alignment(Statistics(np.zeros(WIDTH, np.float32)), Statistics(np.zeros(WIDTH, np.float32)))


def unit(number: int) -> Floats:
    return np.asarray(np.eye(WIDTH, dtype=np.float32)[number])


def towards(one: Floats, other: Floats, cosine: float) -> Floats:
    """A vector at this cosine to `one`, in the plane of both (which stand at right angles)."""
    return np.asarray(cosine * one + np.sqrt(1 - cosine**2) * other, np.float32)


def query(
    name: int,
    picture: Floats | None,
    text: Floats | None,
    *,
    keys: tuple[bytes, bytes] | None = None,
    group: int = 0,
    words: str = "",
) -> Query:
    number = name.to_bytes(16, "big")
    picture_key, text_key = keys or (b"p" + number, b"t" + number)
    return Query(
        number, group.to_bytes(16, "little"), 10, {}, None if picture is None else picture_key,
        None if text is None else text_key, words, (picture, text),
    )  # fmt: skip


def test_each_gate_counts_by_itself() -> None:
    queries = Queries(10, PLAIN)
    queries.add(query(1, unit(0), unit(1)))
    far = query(2, towards(unit(0), unit(2), 0.5), unit(1))
    assert queries.find(far, Tolerance(0.6, 0.1)) is None  # however well the words fit
    found = queries.find(far, Tolerance(0.45, 0.9))
    assert found is not None
    assert found.digest == (1).to_bytes(16, "big")
    assert (found.picture, found.text) == pytest.approx((0.5, 1.0), abs=1e-5)
    assert queries.find(query(3, unit(0), towards(unit(1), unit(2), 0.5)), Tolerance(0.4, 0.6)) is None


def test_a_least_cosine_of_one_asks_for_the_same_content() -> None:
    queries = Queries(10, PLAIN)
    queries.add(query(1, unit(0), unit(1), keys=(b"picture", b"words")))
    near = towards(unit(1), unit(2), 0.99)
    assert queries.find(query(2, unit(0), near, keys=(b"other", b"-")), Tolerance(1.0, 0.9)) is None
    found = queries.find(query(2, unit(0), near, keys=(b"picture", b"-")), Tolerance(1.0, 0.9))
    assert found is not None
    assert found.picture == 1.0


def test_vision_and_text_first_commit_to_one_neighbour() -> None:
    """The nearest picture was asked about other words: a pair that a joint search finds is lost."""
    queries = Queries(10, PLAIN)
    queries.add(query(1, towards(unit(0), unit(3), 0.99), unit(5)))  # nearest picture, far words
    queries.add(query(2, towards(unit(0), unit(4), 0.95), towards(unit(1), unit(6), 0.95)))  # near in both
    queries.add(query(3, unit(7), towards(unit(1), unit(8), 0.99)))  # nearest words, far picture
    asked, tolerance = query(9, unit(0), unit(1)), Tolerance(0.9, 0.9)
    assert queries.find(asked, tolerance, "vision") is None
    assert queries.find(asked, tolerance, "text") is None
    found = queries.find(asked, tolerance, "joint")
    assert found is not None
    assert found.digest == (2).to_bytes(16, "big")


@pytest.mark.parametrize(
    ("stored", "asked", "served"),
    [
        ("what is on page 7", "what stands on page 7", True),
        ("what is on page 7", "what is on page 9", False),
        ("a layer with alpha", "a layer without alpha", False),
        ("how to use “Curves”", "how to use “Levels”", False),
    ],
)
def test_words_that_no_cosine_tells_apart_stand_against_a_query(stored: str, asked: str, served: bool) -> None:
    queries = Queries(10, PLAIN)
    queries.add(query(1, unit(0), unit(1), words=stored))
    found = queries.find(query(2, unit(0), towards(unit(1), unit(2), 0.99), words=asked), Tolerance(0.9, 0.9))
    assert (found is not None) == served


def test_behind_one_that_words_stand_against_the_next_is_found() -> None:
    queries = Queries(10, PLAIN)
    queries.add(query(1, unit(0), unit(1), words="page 9"))
    queries.add(query(2, unit(0), towards(unit(1), unit(3), 0.97), words="page 7"))
    found = queries.find(query(3, unit(0), unit(1), words="the page 7"), Tolerance(0.9, 0.9))
    assert found is not None
    assert found.digest == (2).to_bytes(16, "big")


def test_groups_and_missing_halves_are_never_near() -> None:
    queries = Queries(10, PLAIN)
    queries.add(query(1, unit(0), unit(1)))
    tolerance = Tolerance(0.5, 0.5)
    assert queries.find(query(2, unit(0), unit(1), group=1), tolerance) is None
    assert queries.find(query(2, None, unit(1)), tolerance) is None
    queries.add(query(3, None, unit(1), group=2))
    assert queries.find(query(4, None, unit(1), group=2), tolerance) is not None
    assert queries.find(query(4, unit(0), unit(1), group=2), tolerance) is None


def test_nothing_is_near_before_statistics_are_frozen() -> None:
    random = np.random.default_rng(0)
    queries = Queries(1000)
    for name in range(FIT_AFTER):
        assert not queries.ready
        picture, text = random.standard_normal((2, WIDTH)).astype(np.float32)
        queries.add(query(name, picture, text))
        if name < FIT_AFTER - 1:
            assert queries.find(query(999, picture, text), Tolerance(0.5, 0.5)) is None
    assert queries.ready
    assert queries.find(query(999, picture, text), Tolerance(0.9, 0.9)) is not None


def test_rows_without_a_use_are_reused_first() -> None:
    queries = Queries(3, PLAIN)
    for name in range(3):
        queries.add(query(name, unit(name), unit(name)))
    queries.touch((0).to_bytes(16, "big"))
    queries.add(query(3, unit(3), unit(3)))
    assert len(queries) == 3
    held = {one.digest[-1] for one in queries.hottest()}
    assert held == {0, 2, 3}
    assert queries.find(query(9, unit(1), unit(1)), Tolerance(0.9, 0.9)) is None
    assert next(iter(queries.hottest())).digest[-1] == 0


def test_one_model_a_side() -> None:
    queries = Queries(3, PLAIN)
    queries.add(query(0, unit(0), unit(0)))
    with pytest.raises(InvalidInputError, match="one Retrieval a model"):
        queries.add(query(1, np.ones(WIDTH + 1, np.float32), unit(0)))
    assert queries.find(query(2, np.ones(WIDTH + 1, np.float32), unit(0)), Tolerance(0.5, 0.5)) is None
    assert queries.find(query(2, unit(0), unit(0)), Tolerance(0.5, 0.5)) is not None


@given(st.integers(0, 10_000), st.floats(0.7, 0.99), st.floats(0.7, 0.99), st.integers(2, 60))
@settings(max_examples=40)
def test_the_codes_find_what_a_scan_of_floats_finds(seed: int, picture: float, text: float, capacity: int) -> None:
    """Never another one than the best; lost only where a code is off by more than three deviations."""
    random = np.random.default_rng(seed)
    queries, held = Queries(capacity, PLAIN), []
    base = random.standard_normal((6, WIDTH))
    for name in range(capacity):
        pair = base[random.integers(6, size=2)] + 0.3 * random.standard_normal((2, WIDTH))
        pair = (pair / np.linalg.norm(pair, axis=1, keepdims=True)).astype(np.float32)
        held.append(pair)
        queries.add(query(name, pair[0], pair[1]))
    asked = base[random.integers(6, size=2)] + 0.1 * random.standard_normal((2, WIDTH))
    asked = (asked / np.linalg.norm(asked, axis=1, keepdims=True)).astype(np.float32)
    cosines = np.array([(one[0] @ asked[0], one[1] @ asked[1]) for one in held])
    clear = np.abs(cosines - (picture, text)).min() > 1e-4
    inside = [n for n in range(capacity) if cosines[n, 0] >= picture and cosines[n, 1] >= text]
    found = queries.find(query(capacity, asked[0], asked[1]), Tolerance(picture, text))
    if not clear:
        return
    assert found is None or found.digest[-1] in inside
    if inside and found is not None:
        best = max(inside, key=lambda n: cosines[n].sum())
        assert found.digest[-1] == best or cosines[best].sum() - cosines[found.digest[-1]].sum() < 0.3


def test_words_alone_get_statistics_too() -> None:
    random = np.random.default_rng(0)
    queries = Queries(1000)
    for name in range(FIT_AFTER + 1):
        text = random.standard_normal(WIDTH).astype(np.float32) + 3
        queries.add(query(name, None, text))
    assert [mean is not None for mean in queries.means] == [False, True]
    assert queries.find(query(999, None, text), Tolerance(0.9, 0.9)) is not None
    for name in range(1000, 1000 + FIT_CONTENTS):  # pictures come later, and get theirs then
        assert queries.means[0] is None
        queries.add(query(name, unit(name % WIDTH), text))
    assert queries.means[0] is not None


def test_one_picture_asked_about_often_is_not_what_pictures_are_like() -> None:
    random = np.random.default_rng(0)
    queries, known = Queries(1000), (b"picture", b"")
    for name in range(FIT_AFTER + 1):
        text = random.standard_normal(WIDTH).astype(np.float32)
        queries.add(query(name, unit(0), text, keys=(known[0], b"t%d" % name)))
    assert queries.means[0] is None
    tolerance = Tolerance(0.5, 0.9)
    assert queries.find(query(998, unit(0), text, keys=(b"picture", b"new")), tolerance) is not None  # the very same
    assert queries.find(query(999, unit(0), text, keys=(b"another", b"new")), tolerance) is None
    for name in range(1000, 1000 + FIT_CONTENTS):
        queries.add(query(name, unit(name % WIDTH), random.standard_normal(WIDTH).astype(np.float32)))
    mean = queries.means[0]
    assert mean is not None
    assert mean[0] < 0.1  # not pulled to the one that was asked about 257 times
