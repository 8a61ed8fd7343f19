"""`QuantisedKey`: a key of features. Normalise by frozen statistics, round or take signs, digest.

Two pictures share a key only where every kept dimension falls into one cell, so a fine `step` keeps different pictures
apart and loses re-encoded copies at cell borders; a coarse one does the reverse. What such a key finds is a candidate:
whether it may be answered is for the gates and the calibration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from mmcache.keys.drift.statistics import FrozenStatistics
from mmcache.keys.framing import DIGEST_BYTES, framed
from mmcache.model.errors import InvalidInputError

Rounding = Literal["round", "sign"]
_FARTHEST = 1 << 30


@dataclass(frozen=True)
class QuantisedKey:
    """Features [n, d] → n digests of 16 bytes.

    statistics: frozen; their digest is part of every key.
    rounding: `"round"` to cells `step` standard deviations wide, or `"sign"`: one bit a dimension.
    dimensions: only the first so many; 0 = all.
    """

    statistics: FrozenStatistics
    rounding: Rounding = "round"
    step: float = 0.25
    """Width of a cell, in standard deviations of the calibration features; unused with signs."""
    dimensions: int = 0

    def __post_init__(self) -> None:
        if self.rounding not in get_args(Rounding):  # it would round, and be named as signs are
            raise InvalidInputError(f"rounding is one of {', '.join(get_args(Rounding))}, not {self.rounding!r}")
        if not (isinstance(self.step, int | float) and 1e-30 < self.step < 1e30):  # a float32 divides by it
            raise InvalidInputError(f"a cell is some standard deviations wide, more than 0, not {self.step!r}")
        if type(self.dimensions) is not int or not 0 <= self.dimensions <= self.statistics.width:
            raise InvalidInputError(f"there are {self.statistics.width} dimensions, not {self.dimensions}")

    @property
    def identity(self) -> str:
        """For `Signature.preprocess`: everything that the keys depend on besides the features."""
        how = f"round{float(self.step).hex()}" if self.rounding == "round" else "sign"
        return f"{self.statistics.identity}-{how}-{self.dimensions or self.statistics.width}d"

    def cells(self, features: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """int32 [n, d]: the cell of each dimension. Raises `InvalidInputError`."""
        rows = self.statistics.normalise(features)[:, : self.dimensions or None]
        if self.rounding == "sign":
            return (rows >= 0).astype(np.int32)
        with np.errstate(over="ignore"):  # what is too far lies in the farthest cell
            cells = np.clip(np.rint(rows / np.float32(self.step)), -_FARTHEST, _FARTHEST)
        return np.asarray(cells, np.int32)

    def digests(self, features: npt.ArrayLike, salt: bytes = b"") -> list[bytes]:
        """16 bytes a row; `salt`: 32 bytes of the realm, so that nothing is shared across realms."""
        how = self.identity.encode()
        rows = np.ascontiguousarray(self.cells(features), "<i4")
        parts = (framed("quantised features", how, row.tobytes()) for row in rows)
        if salt:
            return [blake3(part, key=salt).digest(length=DIGEST_BYTES) for part in parts]
        return [blake3(part).digest(length=DIGEST_BYTES) for part in parts]
