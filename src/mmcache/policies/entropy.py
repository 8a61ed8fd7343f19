"""Entropy-LFU: what cross-attention is sure of stays, what it is unsure of goes."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from mmcache.model.errors import InvalidInputError, SettingsError
from mmcache.policies.ranked import Ranked, Tracked

UNKNOWN = 2.0
"""Nats that a block is taken to have before its first cross-attention: as sure as an even split over e² ≈ 7 tokens."""
GRAIN = 0.01
"""Nats. Entropies that round to the same multiple are equal, and uses decide."""


def attention_entropy(scores: npt.ArrayLike, *, logits: bool = True, axis: int = -1) -> float:
    """Mean Shannon entropy, in nats, of the softmax distributions in a cross-attention map.

    scores: any shape, e.g. [heads, queries, tokens]; along `axis` lies one distribution over the tokens attended to.
    logits: `scores` are before the softmax (-inf masks a token out); False: weights of 0 or more, normalised here.
    From 0 (one token has it all) to ln(tokens) (all alike). Distributions without any token (all masked) are left out.
    Raises `InvalidInputError` for NaN, +inf, negative weights, or when no distribution is left.
    """
    found = np.moveaxis(np.atleast_1d(np.asarray(scores, np.float64)), axis, -1)
    if found.size == 0 or np.isnan(found).any() or np.isposinf(found).any():
        raise InvalidInputError("an attention map has at least one number, and none is NaN or +inf")
    found = found.reshape(-1, found.shape[-1])
    if logits:
        found = found[~np.isneginf(found).all(axis=1)]
        found = np.exp(found - found.max(axis=1, keepdims=True)) if len(found) else found
    elif (found < 0).any():
        raise InvalidInputError("attention weights are not negative; for values before the softmax, say logits=True")
    total = found.sum(axis=1, keepdims=True)
    found = found[total[:, 0] > 0] / total[total[:, 0] > 0]
    if not len(found):
        raise InvalidInputError("every token of the attention map is masked out")
    surprise = np.log(found, out=np.zeros_like(found), where=found > 0)
    return float(-(found * surprise).sum(axis=1).mean()) + 0.0


class EntropyLFU(Ranked):
    """The block whose last 5 cross-attentions had the highest mean entropy goes first; of equals, the least used.

    Entropies come with a block's facts (`Facts.entropy`, nats; see `attention_entropy`), one for each cross-attention.
    Means are compared to `grain` nats: real numbers are never equal, and without it uses would never decide. A block
    without any counts as `unknown` nats, so a cache that is told no entropies is an LFU. Uses count since the block
    was stored, as LFU has them (they do not age: what was hot once stays; see table `boundary`).
    """

    def __init__(self, *, unknown: float = UNKNOWN, grain: float = GRAIN) -> None:
        """Raises `SettingsError` for an entropy that is negative or not finite, or a grain that is not above 0."""
        if not (math.isfinite(unknown) and unknown >= 0 and math.isfinite(grain) and grain > 0):
            raise SettingsError(f"needs unknown >= 0 and grain > 0 nats, both finite, not {unknown} and {grain}")
        self.unknown = unknown
        self.grain = grain
        super().__init__(self._rank, parts=self._explained)

    def _entropy(self, block: Tracked) -> float:
        return math.fsum(block.entropies) / len(block.entropies) if block.entropies else self.unknown

    def _rank(self, block: Tracked, now: float) -> float:
        """Nats of sureness in whole grains; within a grain, uses."""
        return self.grain * (block.uses / (block.uses + 1) - round(self._entropy(block) / self.grain))

    def _explained(self, block: Tracked, now: float) -> dict[str, float]:
        return {
            "entropy": self._entropy(block),
            "attentions": float(len(block.entropies)),
            "uses": float(block.uses),
        }
