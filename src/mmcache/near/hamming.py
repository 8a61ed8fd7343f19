"""`HammingIndex`: the nearest of many 64-bit codes, exactly.

Multi-index hashing (Norouzi, Punjani, Fleet, "Fast search in Hamming space with multi-index hashing", CVPR 2012): a
code is cut into 4 parts of 16 bits, each with a table of its own. Two codes at distance d share a part up to d // 4
bits, so the tables are probed with 0, 1, 2 and 3 flipped bits until nothing unseen can be nearer. Where that would cost
more than looking at every code (far neighbours, many equal codes), every code is looked at: about 0.25 ns each with
AVX-512. So a neighbour up to 3 bits away among 10⁶ codes is found in about two microseconds, one up to 7 bits away in
about ten, and no query takes longer than two scans.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from mmcache.model.errors import InvalidInputError
from mmcache.near.accelerate import search
from mmcache.near.codes_python import PythonCodes

Labels = npt.NDArray[np.int64]


class Codes(Protocol):
    """What the compiled core and its plain twin do; see `HammingIndex`."""

    @property
    def nbytes(self) -> int:
        """Bytes held."""

    def add(self, label: int, code: int, /) -> None:
        """Refuses a label that is there."""

    def drop(self, label: int, /) -> bool:
        """Whether it was there."""

    def has(self, label: int, /) -> bool:
        """Whether it is there."""

    def nearest(self, code: int, k: int, /) -> list[tuple[int, int]]:
        """(label, distance), ordered by distance, then label."""

    def within(self, code: int, radius: int, /) -> list[tuple[int, int]]:
        """The same for all up to a distance."""

    def nearest_many(
        self, codes: npt.NDArray[np.uint64], k: int, labels: Labels, distances: npt.NDArray[np.uint8], /
    ) -> None:
        """Fills [n, k]; leaves what is missing as it is."""

    def __len__(self) -> int:
        """How many codes."""


def _core() -> Codes:
    compiled = search()
    core: Codes = compiled.Codes(InvalidInputError) if compiled else PythonCodes(InvalidInputError)
    return core


class HammingIndex:
    """64-bit codes under int64 labels; several labels may have equal codes.

    Bytes a code: 16 for code and label, 5 to 11 for the labels' map, and beyond 4 096 codes those of the tables, which
    are 1 MB and lists of 32-byte nodes: in all 56 at 10⁶ codes, 120 at 10⁵ where the lists are short. Up to half as
    much again is reserved for growth, which the system does not back with memory before it is written.
    Threads may read and write at once: calls are atomic, and only `nearest_many` lets the interpreter lock go; a writer
    waits for its query under way.
    """

    __slots__ = ("_core",)

    def __init__(self) -> None:
        self._core = _core()

    def add(self, label: int, code: int) -> None:
        """Raises `InvalidInputError` for a label that is there, and for what is no number of 64 bits."""
        self._core.add(label, code)

    def drop(self, label: int) -> bool:
        """Forget a label; whether it was there. Slow (linear) only among very many equal codes."""
        return self._core.drop(label)

    def nearest(self, code: int, k: int = 1) -> list[tuple[int, int]]:
        """The `k` nearest as (label, distance 0 to 64), ordered by distance, then label; fewer where fewer are held."""
        return self._core.nearest(code, k)

    def within(self, code: int, radius: int) -> list[tuple[int, int]]:
        """All up to and including `radius`, ordered by distance, then label."""
        return self._core.within(code, radius)

    def nearest_many(self, codes: npt.ArrayLike, k: int = 1) -> tuple[Labels, npt.NDArray[np.uint8]]:
        """`nearest` for uint64 [n]: labels int64 [n, k], distances uint8 [n, k]; what is missing is 255, label -1."""
        if isinstance(codes, np.ndarray) and codes.size and (codes.dtype.kind not in "ui" or codes.min() < 0):
            raise InvalidInputError(f"codes are whole numbers from 0 to 2**64 - 1, not {codes.dtype}")
        try:
            asked = np.require(codes, np.uint64, ["C", "A"])
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInputError("codes are whole numbers from 0 to 2**64 - 1") from error
        if asked.ndim != 1 or k < 1:
            raise InvalidInputError(f"nearest_many takes codes of shape [n] and k from 1, got {asked.shape} and {k}")
        labels, distances = np.full((len(asked), k), -1, np.int64), np.full((len(asked), k), 255, np.uint8)
        self._core.nearest_many(asked, k, labels, distances)
        return labels, distances

    def __contains__(self, label: int) -> bool:
        return self._core.has(label)

    def __len__(self) -> int:
        return len(self._core)

    @property
    def nbytes(self) -> int:
        """Bytes held, with what is reserved for growth."""
        return self._core.nbytes
