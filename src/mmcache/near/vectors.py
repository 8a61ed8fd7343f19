"""`Vectors`: a growing set of float vectors, asked for the nearest by cosine.

Up to 2 048 vectors, all are compared. Beyond, each has a sketch of 512 bits: the signs of the vector about the mean of
the first ones, after a random rotation (Charikar, "Similarity estimation techniques from rounding algorithms", STOC
2002; the rotation is made of random signs and Hadamard transforms: Ailon, Chazelle, "Approximate nearest neighbors and
the fast Johnson-Lindenstrauss transform", STOC 2006). The sketches lie side by side and are all compared: 64 bytes a
vector instead of 768. The 128 nearest of them are compared as floats, and then of the nearest 512 those whose sketches
are at most three standard deviations farther than that of the best so far (more of both where k is above 8). So a
cosine that is returned is always that of the floats; what can be missed is a neighbour that is hardly nearer than many
others, and the fewer of them the nearer it is.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Protocol

import numpy as np
import numpy.typing as npt

from mmcache.model.errors import InvalidInputError
from mmcache.near.accelerate import search
from mmcache.near.vectors_python import PythonRows

Floats = npt.NDArray[np.float32]


class Rows(Protocol):
    """What the compiled core and its plain twin do; see `Vectors`."""

    @property
    def nbytes(self) -> int:
        """Bytes held."""

    def add(self, label: int, vector: Floats, /) -> None:
        """Refuses a label that is there."""

    def drop(self, label: int, /) -> bool:
        """Whether it was there."""

    def has(self, label: int, /) -> bool:
        """Whether it is there."""

    def get(self, label: int, out: Floats, /) -> bool:
        """Whether it is there; then `out` is filled."""

    def nearest(
        self, vector: Floats, k: int, least: float, among: npt.NDArray[np.int64] | None, /
    ) -> list[tuple[int, float]]:
        """(label, cosine), best first, then by label."""

    def __len__(self) -> int:
        """How many vectors."""


def _core(dims: int) -> Rows:
    compiled = search()
    core: Rows = compiled.Rows(dims, InvalidInputError) if compiled else PythonRows(dims, InvalidInputError)
    return core


class Vectors:
    """Float vectors [dims] under int64 labels, kept with length 1 as fp16; several labels may have equal vectors.

    Bytes a vector: 2 · dims (rounded up to a multiple of 16), 64 for the sketch beyond 2 048 vectors, 8 for the label
    and 5 to 11 for the labels' map: about 850 at 384 dimensions; up to half as much again is reserved for growth, which
    the system does not back with memory before it is written. The fp16 changes a cosine by about 0.00001
    at 384 dimensions, 0.00006 at most among 3 · 10⁶ pairs of real texts.
    Threads may read and write at once: calls are atomic and readers take no lock. The scan of more than 8 192 vectors
    lets the interpreter lock go, and only then a writer waits for the scan under way.
    """

    __slots__ = ("_core", "_dims")

    def __init__(self, dims: int) -> None:
        self._core = _core(dims)
        self._dims = dims

    @property
    def dims(self) -> int:
        """Numbers a vector."""
        return self._dims

    def add(self, label: int, vector: npt.ArrayLike) -> None:
        """Any length but 0. Raises `InvalidInputError` for a label that is there, other dims, NaN, infinity, zeros."""
        self._core.add(label, self._floats(vector))

    def drop(self, label: int) -> bool:
        """Forget a label; whether it was there."""
        return self._core.drop(label)

    def get(self, label: int) -> Floats | None:
        """float32 [dims], of length 1 and as rounded to fp16; None for an unknown label."""
        out = np.empty(self._dims, np.float32)
        return out if self._core.get(label, out) else None

    def nearest(
        self,
        vector: npt.ArrayLike,
        k: int = 1,
        least: float = -1.0,
        among: AbstractSet[int] | npt.NDArray[np.int64] | None = None,
    ) -> list[tuple[int, float]]:
        """The `k` nearest as (label, cosine), best first, then by label, leaving out cosines below `least`.

        Only labels of `among` count; unknown ones are ignored. Among up to 2 048 vectors the result is exact, whatever
        the size of the set. Raises `InvalidInputError` like `add`.
        """
        if among is not None:
            among = _labels(among)
        return self._core.nearest(self._floats(vector), k, least, among)

    def __contains__(self, label: int) -> bool:
        return self._core.has(label)

    def __len__(self) -> int:
        return len(self._core)

    @property
    def nbytes(self) -> int:
        """Bytes held, with what is reserved for growth."""
        return self._core.nbytes

    def _floats(self, vector: npt.ArrayLike) -> Floats:
        if type(vector) is not np.ndarray or vector.dtype != np.float32 or not _plain(vector):
            try:
                with np.errstate(over="ignore"):  # to infinity, which is refused
                    vector = np.require(vector, np.float32, ["C", "A"])
            except (TypeError, ValueError) as error:
                raise InvalidInputError(f"a vector is {self._dims} floats") from error
        if vector.shape != (self._dims,):
            raise InvalidInputError(f"a vector has the shape [{self._dims}] here, not {list(vector.shape)}")
        return vector


def _plain(vector: Floats) -> bool:
    """Whether C code may read it where it is. Floats inside of other bytes may lie anywhere."""
    return vector.flags.c_contiguous and vector.flags.aligned


def _labels(among: AbstractSet[int] | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    try:
        if isinstance(among, np.ndarray):
            return np.ascontiguousarray(among.astype(np.int64, casting="same_kind")).reshape(-1)
        return np.fromiter(among, np.int64, len(among))
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError("`among` is a set or an array of int64 labels") from error
