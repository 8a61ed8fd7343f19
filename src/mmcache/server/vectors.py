"""Vectors as the protocol writes them: JSON numbers, or base64 of little-endian float32. Kept small, given back as they
came: the same doubles, or the same text.

| `form` | kept | as numbers | as base64 |
|---|---|---|---|
| `EXACT` | float32, which the JSON numbers are exactly (vLLM) | these | these |
| `DECIMAL` | float32, of which the JSON numbers are the shortest decimals (OpenAI) | those decimals | no |
| `DOUBLE` | float64 | these | no |
| `PACKED` | float32, which came as base64 | these, if the server is known to write exact numbers | these |

A server that writes numbers with few digits may hold others than it writes, so only `EXACT` numbers are packed.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from mmcache.model.errors import InvalidInputError

EXACT, DECIMAL, DOUBLE, PACKED = range(4)

_json = msgspec.json.Encoder().encode
_POWERS = np.array([float(f"1e{n}") for n in range(-45, 40)])
"""Correctly rounded powers of ten, for comparing: a logarithm may differ between machines."""
_SCALES = np.array([float(10**n) for n in range(23)])
"""Powers of ten that float64 holds exactly: a quotient by one is the correctly rounded double of its decimal."""


class Vector(NamedTuple):
    """One vector as it is kept."""

    form: int
    raw: bytes
    """Little-endian float32, or float64 for `DOUBLE`."""

    @property
    def array(self) -> npt.NDArray[np.float32] | npt.NDArray[np.float64]:
        """A read-only view."""
        return np.frombuffer(self.raw, "<f8" if self.form == DOUBLE else "<f4")

    @property
    def length(self) -> int:
        """Number of elements."""
        return len(self.raw) // (8 if self.form == DOUBLE else 4)

    def numbers(self) -> bytes:
        """A JSON array."""
        array = self.array
        return _json((decimals(array) if self.form == DECIMAL else array.astype(np.float64)).tolist())

    def packed(self) -> bytes:
        """A JSON string: base64 of little-endian float32. Only of `EXACT` and `PACKED`."""
        assert self.form in (EXACT, PACKED)
        return b'"%b"' % binascii.b2a_base64(self.raw, newline=False)

    def doubles(self) -> npt.NDArray[np.float64]:
        """What the numbers are, for comparing."""
        array = self.array
        return decimals(array) if self.form == DECIMAL else array.astype(np.float64)


def of_numbers(values: Sequence[float]) -> Vector:
    """The vector of these JSON numbers. Raises `InvalidInputError` for none, or one that is not finite."""
    given = np.array(values, "<f8")
    if given.ndim != 1 or not given.size or not np.isfinite(given).all():
        raise InvalidInputError("a vector is a list of finite numbers, at least one")
    with np.errstate(over="ignore"):
        small = given.astype("<f4")
    if np.array_equal(small, given):
        return Vector(EXACT, small.tobytes())
    if np.isfinite(small).all() and np.array_equal(decimals(small), given):
        return Vector(DECIMAL, small.tobytes())
    return Vector(DOUBLE, given.tobytes())


def of_packed(text: str) -> Vector:
    """The vector that this base64 holds. Raises `InvalidInputError` for what is no plain base64 of finite float32."""
    try:
        raw = binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except (ValueError, UnicodeEncodeError) as error:
        raise InvalidInputError(f"not base64: {error}") from error
    if not raw or len(raw) % 4 or not np.isfinite(np.frombuffer(raw, "<f4")).all():
        raise InvalidInputError("base64 of a vector holds finite float32, at least one")
    if binascii.b2a_base64(raw, newline=False).decode() != text:
        raise InvalidInputError("base64 that is not written in the usual way")
    return Vector(PACKED, raw)


def decimals(array: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """For each float32 the double that is written with the fewest digits (6 to 9) that still name it.

    The same on every machine: only comparisons, and IEEE products, roundings and quotients. Elements beyond the range
    where those are exact stay the exact value.
    """
    values = array.astype(np.float64)
    size = np.abs(values)
    found, open_ = values.copy(), (size >= 1e-13) & (size < 1e15)
    exponent = np.searchsorted(_POWERS, size, side="right") - 46  # 10**exponent <= size
    for digits in (6, 7, 8, 9):
        places = digits - 1 - exponent
        scale = _SCALES[np.clip(places, 0, 22)]
        tried = np.rint(values * scale) / scale
        fits = open_ & (places <= 22) & (tried.astype(np.float32) == array)
        found[fits] = tried[fits]
        open_ &= ~fits
    return found
