"""Vectors: the same doubles come back, or the same base64; what is no vector is refused."""

from __future__ import annotations

import base64
import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.model.errors import InvalidInputError
from mmcache.server.vectors import DECIMAL, DOUBLE, EXACT, PACKED, Vector, decimals, of_numbers, of_packed

FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


def bits(values: list[float]) -> bytes:
    return struct.pack(f"{len(values)}d", *values)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=40))
def test_any_finite_numbers_come_back_as_they_were(values: list[float]) -> None:
    vector = of_numbers(values)
    assert json.loads(vector.numbers()) == values
    assert bits(vector.doubles().tolist()) == bits(values)
    assert vector.length == len(values)


@given(st.lists(FLOAT32, min_size=1, max_size=40))
def test_float32_is_kept_as_float32_in_both_ways_of_writing_it(values: list[float]) -> None:
    exact = of_numbers(values)
    assert exact.form == EXACT
    assert exact.packed() == b'"%b"' % base64.b64encode(struct.pack(f"<{len(values)}f", *values))
    shortest = [float(str(np.float32(value))) for value in values]
    vector = of_numbers(shortest)
    assert json.loads(vector.numbers()) == shortest
    if all(1e-8 <= abs(value) < 1e8 for value in values):
        assert vector.form in (EXACT, DECIMAL)


@given(st.lists(FLOAT32, min_size=1, max_size=40))
def test_base64_comes_back_as_it_was(values: list[float]) -> None:
    text = base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()
    vector = of_packed(text)
    assert vector.form == PACKED
    assert json.loads(vector.packed()) == text
    assert json.loads(vector.numbers()) == values


def test_what_openai_writes_takes_four_bytes_a_number() -> None:
    values = [-0.006929283, 0.0023064255, -0.009327292, 0.1, 1.0, 0.0, 3e-05]
    assert of_numbers(values).form == DECIMAL
    assert decimals(np.array(values, np.float32)).tolist() == values
    assert of_numbers([0.1234567890123]).form == DOUBLE


@pytest.mark.parametrize("values", [[], [float("nan")], [float("inf"), 1.0]])
def test_numbers_that_are_no_vector(values: list[float]) -> None:
    with pytest.raises(InvalidInputError):
        of_numbers(values)


@pytest.mark.parametrize(
    "text",
    [
        "", "AAAA", "AACAPw", "AACAPw==\n", " AACAPw==", "AACAPx==", "AADAfw==", "AACAfw==", "AACA_w==", "é",
        "AACAPw=A",
    ],
)  # fmt: skip
def test_base64_that_is_no_vector(text: str) -> None:
    with pytest.raises(InvalidInputError):
        of_packed(text)


def test_only_what_is_float32_is_packed() -> None:
    with pytest.raises(AssertionError):
        Vector(DECIMAL, b"\0\0\0\0").packed()
