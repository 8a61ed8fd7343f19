"""The largest entries of a similarity matrix."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from mmcache.codecs.base import Params
from mmcache.codecs.sparse import Array, Mask, Sparse
from mmcache.model.block import ArraySpec
from mmcache.model.errors import CodecError


class TopSimilarities(Sparse):
    """Keeps the `share` (5 %) of entries that are largest by value; ties at the cut are resolved by position."""

    name: ClassVar[str] = "similarity"

    def __init__(self, share: float = 0.05) -> None:
        if not 0 < share < 1:
            raise CodecError(f"the share kept lies between 0 and 1, not at {share}")
        self.share = float(share)

    @property
    def params(self) -> Params:
        return {"share": self.share}

    def positions(self, spec: ArraySpec) -> tuple[int, ...]:
        if len(spec.shape) < 2:
            raise CodecError("similarity takes matrices")
        return spec.shape

    def keep(self, data: Array) -> Mask:
        mask = np.zeros(data.size, np.bool_)
        mask[np.argsort(-data, axis=None, kind="stable")[: math.ceil(data.size * self.share)]] = True
        return mask.reshape(data.shape)
