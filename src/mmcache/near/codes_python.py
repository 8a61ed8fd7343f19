"""The plain twin of the code search: looks at every code."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mmcache.near.slots import Slots, alone, grown, ones_of, whole


class PythonCodes(Slots):
    """See `mmcache.near.hamming`."""

    def __init__(self, refused: type[Exception]) -> None:
        super().__init__(refused)
        self._codes = np.empty(0, np.uint64)

    @alone
    def add(self, label: int, code: int, /) -> None:
        """Refuses a label that is there."""
        word = self._word(code)
        slot = self.place(label)
        if slot == len(self._codes):
            self._codes = grown(self._codes)
        self._codes[slot] = word

    @alone
    def drop(self, label: int, /) -> bool:
        """Whether it was there."""
        move = self.leave(label)
        if move is not None:
            self._codes[move[0]] = self._codes[move[1]]
        return move is not None

    @alone
    def nearest(self, code: int, k: int, /) -> list[tuple[int, int]]:
        """(label, distance), ordered by distance, then label."""
        word = self._word(code)
        return self._ordered(word, None, whole(k, 1, 1 << 63, self.refused, "k is a whole number from 1"))

    @alone
    def within(self, code: int, radius: int, /) -> list[tuple[int, int]]:
        """The same for all up to a distance."""
        word = self._word(code)
        radius = whole(radius, 0, 1 << 63, self.refused, "a radius is a whole number from 0")
        return self._ordered(word, radius, len(self))

    @alone
    def nearest_many(
        self, codes: npt.NDArray[np.uint64], k: int, labels: npt.NDArray[np.int64], distances: npt.NDArray[np.uint8], /
    ) -> None:
        """Fills [n, k]; leaves what is missing as it is."""
        for row, code in enumerate(codes):
            found = self._ordered(code, None, k)
            if found:
                labels[row, : len(found)], distances[row, : len(found)] = zip(*found, strict=True)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._codes.nbytes + self.labels.nbytes + len(self) * 100  # about what a dict takes

    def _word(self, code: int) -> np.uint64:
        return np.uint64(whole(code, 0, 1 << 64, self.refused, "a code is a whole number from 0 to 2**64 - 1"))

    def _ordered(self, code: np.uint64, radius: int | None, k: int) -> list[tuple[int, int]]:
        count = len(self)
        far, labels = ones_of(self._codes[:count] ^ code), self.labels[:count]
        if radius is not None:
            inside = far <= min(radius, 64)
            far, labels = far[inside], labels[inside]
        order = np.lexsort((labels, far))[:k]
        return list(zip(labels[order].tolist(), far[order].tolist(), strict=True))
