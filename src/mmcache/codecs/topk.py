"""The k most important tokens; the rest decodes to zero."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mmcache.codecs.base import Params
from mmcache.codecs.sparse import Array, Mask, Sparse
from mmcache.model.block import ArraySpec
from mmcache.model.errors import CodecError


class TopK(Sparse):
    """Of tokens `(…, tokens, channels)` keeps the `k` (128, of 512) that score highest.

    scores: importance per token, `(…, tokens)`, e.g. the attention that the class token pays; default: the L2 norm.
    `scores` serve encoding only and are not stored, so a chain with them is made for one value.
    """

    name: ClassVar[str] = "topk"

    def __init__(self, k: int = 128, scores: npt.NDArray[Any] | None = None) -> None:
        if k < 1:
            raise CodecError(f"topk keeps at least one token, not {k}")
        self.k, self._scores = int(k), scores

    @property
    def params(self) -> Params:
        return {"k": self.k}

    def positions(self, spec: ArraySpec) -> tuple[int, ...]:
        if len(spec.shape) < 2 or spec.shape[-2] <= self.k:
            raise CodecError(f"topk takes arrays (…, tokens, channels) of more than {self.k} tokens")
        return spec.shape[:-1]

    def keep(self, data: Array) -> Mask:
        scores = np.linalg.norm(data.astype(np.float64), axis=-1) if self._scores is None else self._scores
        if scores.shape != data.shape[:-1]:
            raise CodecError(f"topk needs scores of shape {data.shape[:-1]}, got {scores.shape}")
        best = np.argsort(-scores, axis=-1, kind="stable")[..., : self.k]
        mask = np.zeros(scores.shape, np.bool_)
        np.put_along_axis(mask, best, True, axis=-1)
        return mask
