"""TF-IDF weights below a threshold become zero."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mmcache.codecs.base import Params
from mmcache.codecs.sparse import Array, Mask, Sparse
from mmcache.model.block import ArraySpec
from mmcache.model.errors import CodecError


class TFIDFMask(Sparse):
    """Drops what weighs less than `threshold` (0.015): of a matrix of TF-IDF weights the entries, or, when `weights`
    of shape `(…, tokens)` are given, of `(…, tokens, channels)` the tokens. `weights` are not stored.
    """

    name: ClassVar[str] = "tfidf"

    def __init__(self, threshold: float = 0.015, tokens: bool = False, weights: npt.NDArray[Any] | None = None) -> None:
        if not threshold > 0:
            raise CodecError(f"the threshold of tfidf is above 0, not {threshold}")
        self.threshold, self.tokens, self._weights = float(threshold), bool(tokens) or weights is not None, weights

    @property
    def params(self) -> Params:
        return {"threshold": self.threshold, "tokens": self.tokens}

    def positions(self, spec: ArraySpec) -> tuple[int, ...]:
        if len(spec.shape) < 2:
            raise CodecError("tfidf takes arrays of two or more axes")
        return spec.shape[:-1] if self.tokens else spec.shape

    def keep(self, data: Array) -> Mask:
        weights = data if self._weights is None else self._weights
        expected = data.shape[:-1] if self.tokens else data.shape
        if weights.shape != expected:
            raise CodecError(f"tfidf needs weights of shape {expected}")
        return np.asarray(np.abs(weights) >= self.threshold)
