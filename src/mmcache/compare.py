"""Whether a recomputed value is the stored one, and by how much it is not."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mmcache.codecs.structure import Structures, flatten
from mmcache.model.errors import UnsupportedValueError


@dataclass(frozen=True, slots=True)
class Difference:
    """`largest` is the largest absolute difference of any element; infinite when the structures differ."""

    largest: float

    @property
    def equal(self) -> bool:
        """Bit-equal, except that NaN equals NaN."""
        return self.largest == 0.0


def difference(one: object, other: object, structures: Structures) -> Difference:
    """Compare two outputs of a model, leaf by leaf. Shapes and dtypes must match, or they differ infinitely."""
    try:
        first, second = flatten(one, structures), flatten(other, structures)
    except UnsupportedValueError:
        return Difference(0.0 if one is other else math.inf)
    if first.tree != second.tree or len(first.leaves) != len(second.leaves):
        return Difference(math.inf)
    largest = 0.0
    for a, b in zip(first.leaves, second.leaves, strict=True):
        if a.dtype != b.dtype or a.shape != b.shape:
            return Difference(math.inf)
        if a.tobytes() == b.tobytes():
            continue
        if a.dtype.kind not in "fiu":
            return Difference(math.inf)
        wide = np.abs(a.astype(np.float64) - b.astype(np.float64))
        alike = (a == b) | ((a != a) & (b != b))
        largest = max(largest, float(np.where(alike, 0.0, np.nan_to_num(wide, nan=np.inf)).max(initial=0.0)))
    return Difference(largest)
