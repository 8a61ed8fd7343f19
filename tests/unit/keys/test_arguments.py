"""Extra arguments and inputs of several parts: one encoding each, no two alike."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.keys.media import noise, of

from mmcache.keys.arguments import canonical_arguments, join
from mmcache.keys.framing import framed
from mmcache.model.errors import InvalidInputError

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text("aé😀", max_size=4),
    st.binary(max_size=4),
)  # fmt: skip
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
)


def typed(value: Any) -> Any:
    """Equality that tells 1, 1.0 and True apart, and 0.0 from -0.0."""
    if isinstance(value, list | tuple):
        return type(value).__name__, [typed(item) for item in value]
    if isinstance(value, dict):
        return "dict", sorted((key, typed(item)) for key, item in value.items())
    return type(value).__name__, repr(value)


@given(st.lists(values, max_size=3), st.lists(values, max_size=3))
def test_equal_exactly_when_the_calls_are(one: list[Any], two: list[Any]) -> None:
    assert (canonical_arguments(one) == canonical_arguments(two)) == (repr(typed(one)) == repr(typed(two)))


@given(st.dictionaries(st.text("abc", max_size=3), values, max_size=4))
def test_order_of_keywords_does_not_count(keywords: dict[str, Any]) -> None:
    assert canonical_arguments((), keywords) == canonical_arguments((), dict(reversed(keywords.items())))


@given(st.lists(st.binary(max_size=3), max_size=4), st.lists(st.binary(max_size=3), max_size=4))
def test_framing_is_injective(one: list[bytes], two: list[bytes]) -> None:
    assert (framed("d", *one) == framed("d", *two)) == (one == two)
    assert framed("d", *one) != framed("e", *one)


def test_positions_names_and_nesting_count() -> None:
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((), {}), ((1,), {}), ((), {"a": 1}), (("a", 1), {}), (([1],), {}), (((1,),), {}), (({"a": 1},), {}),
        ((1, 2), {}), (([1, 2],), {}), (([1], [2]), {}), ((True,), {}), ((1.0,), {}), (("1",), {}), ((b"1",), {}),
        ((None,), {}), ((0.0,), {}), ((-0.0,), {}), (("ab", "c"), {}), (("a", "bc"), {}),
        ((), {"ab": "c"}), ((), {"a": "bc"}),
        ((2**70,), {}), ((-1,), {}), ((float("nan"),), {}), ((float("inf"),), {}),
    ]  # fmt: skip
    assert len({canonical_arguments(*call) for call in calls}) == len(calls)


def test_what_has_no_canonical_bytes_is_refused() -> None:
    class Colour(enum.StrEnum):
        RED = "red"

    circle: list[Any] = []
    circle.append(circle)
    for hostile in (
        object(),
        np.float64(1),
        np.zeros(3),
        Path("x"),
        {1, 2},
        {1: 2},
        lambda: 0,
        Colour.RED,
        circle,
        "\ud800",
    ):
        with pytest.raises(InvalidInputError):
            canonical_arguments((hostile,))
        with pytest.raises(InvalidInputError):
            canonical_arguments((), {"name": [hostile]})
    with pytest.raises(InvalidInputError, match=r"size\.inner\[1\] is a builtins\.object"):
        canonical_arguments((), {"size": {"inner": [0, object()]}})


def test_parts_are_joined_in_order_with_their_labels() -> None:
    picture, other, words = of(noise(2, 2)), of(noise(2, 2, seed=1)), of("hello", "text")
    joined = [
        join([picture, words], ["picture", "words"]), join([words, picture], ["words", "picture"]),
        join([words, picture], ["picture", "words"]), join([picture], ["picture"]), join([], []),
        join([picture, picture], ["a", "b"]), join([picture, other], ["a", "b"]), join([other, picture], ["a", "b"]),
        join([picture, other], ["ab", ""]), join([picture, other], ["b", "a"]),
    ]  # fmt: skip
    assert len(set(joined)) == len(joined)
    assert {len(digest) for digest in joined} == {16}
    assert joined[0] == join([of(noise(2, 2)), of("hello", "text")], ["picture", "words"])
    with pytest.raises(InvalidInputError, match="labels"):
        join([picture], [])
