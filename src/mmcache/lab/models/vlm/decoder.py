"""The decoder in numpy: causal attention over words, cross-attention over a picture's patches (Vaswani et al., 2017).

Pre-normalised layers (Xiong et al., 2020), output weights tied to the embedding. One call computes one position, so
that answers come piece by piece; what earlier positions left for attention is kept in a `State`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from mmcache.model.errors import InvalidInputError

Floats = npt.NDArray[np.float32]

PATCHES = 256
CHANNELS = 384
_EPSILON = np.float32(1e-5)


Seen = tuple[list[Floats], list[Floats]]
"""A picture as the layers need it: keys and values of its patches; a layer each, float32 [heads, 256, channels]."""


@dataclass
class State:
    """Text so far, about one picture."""

    seen: Seen
    past: list[tuple[list[Floats], list[Floats]]]
    """A layer each: keys and values of the pieces so far, float32 [heads, channels a head]."""
    pieces: set[int] = field(default_factory=set)
    """All so far: one that comes again is marked, so that what is seen can be compared with what was asked."""
    attention: list[Floats] = field(default_factory=list)
    """A piece each: float32 [256], the cross-attention of the last layer, mean over heads; sums to 1."""

    @staticmethod
    def of(seen: Seen) -> State:
        """Before the first piece."""
        return State(seen, [([], []) for _ in seen[0]])


@dataclass(frozen=True)
class Decoder:
    """Weights by name; see `shapes`. Stateless: threads may share it."""

    weights: Mapping[str, Floats]
    layers: int
    heads: int

    @property
    def longest(self) -> int:
        """How many pieces question and answer may have together."""
        return len(self.weights["positions"])

    def look(self, tokens: Floats) -> Seen:
        """Read a picture's tokens, float32 [257, 384] (the class token is left out) or [256, 384].

        Raises `InvalidInputError` for another shape, and for values that are not finite.
        """
        if tokens.shape not in ((PATCHES, CHANNELS), (PATCHES + 1, CHANNELS)) or not np.isfinite(tokens).all():
            raise InvalidInputError(f"tokens are {PATCHES + 1} × {CHANNELS} finite numbers, got {tokens.shape}")
        w = self.weights
        patches = _normal(tokens[-PATCHES:].astype(np.float32) @ w["patch"] + w["patch.bias"], w["patch.norm"])
        keys, values = (
            [self._heads(patches @ w[f"{layer}.cross.{part}"]) for layer in range(self.layers)]
            for part in ("key", "value")
        )
        return keys, values

    def step(self, state: State, piece: int) -> Floats:
        """The logits of what follows `piece`, float32 [pieces]. Raises `InvalidInputError` where there is no room."""
        place = len(state.attention)
        if place >= self.longest:
            raise InvalidInputError(f"question and answer have more than {self.longest} pieces; ask something shorter")
        w = self.weights
        x = w["embedding"][piece] + w["positions"][place]
        if piece in state.pieces:
            x = x + w["again"]
        state.pieces.add(piece)
        seen = np.zeros(PATCHES, np.float32)
        for layer in range(self.layers):
            keys, values = state.past[layer]
            y = _normal(x, w[f"{layer}.self.norm"])
            keys.append(self._head(y @ w[f"{layer}.self.key"]))
            values.append(self._head(y @ w[f"{layer}.self.value"]))
            found, _ = _attend(
                self._head(y @ w[f"{layer}.self.query"]), np.stack(keys, axis=1), np.stack(values, axis=1)
            )
            x = x + found @ w[f"{layer}.self.out"]
            y = _normal(x, w[f"{layer}.cross.norm"])
            found, share = _attend(
                self._head(y @ w[f"{layer}.cross.query"]), state.seen[0][layer], state.seen[1][layer]
            )
            x = x + found @ w[f"{layer}.cross.out"]
            y = _normal(x, w[f"{layer}.wide.norm"])
            x = x + np.maximum(y @ w[f"{layer}.wide.in"] + w[f"{layer}.wide.bias"], 0) @ w[f"{layer}.wide.out"]
            seen = share.mean(axis=0)
        state.attention.append(seen)
        logits: Floats = _normal(x, w["norm"]) @ w["embedding"].T
        return logits

    def _head(self, vector: Floats) -> Floats:
        return vector.reshape(self.heads, -1)

    def _heads(self, matrix: Floats) -> Floats:
        """[n, channels] → [heads, n, channels a head]."""
        return np.ascontiguousarray(matrix.reshape(len(matrix), self.heads, -1).transpose(1, 0, 2))


def _attend(query: Floats, keys: Floats, values: Floats) -> tuple[Floats, Floats]:
    """query [heads, c], keys and values [heads, n, c] → what was found [heads · c], shares [heads, n]."""
    scores = np.einsum("hc,hnc->hn", query, keys) / np.float32(np.sqrt(query.shape[1]))
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares = scores / scores.sum(axis=1, keepdims=True)
    return np.einsum("hn,hnc->hc", shares, values).ravel(), shares


def _normal(x: Floats, scale: Floats) -> Floats:
    """Layer normalisation without a bias."""
    centred = x - x.mean(axis=-1, keepdims=True)
    normal: Floats = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + _EPSILON) * scale
    return normal


def shapes(pieces: int, layers: int, width: int, longest: int) -> dict[str, tuple[int, ...]]:
    """The weights that a decoder of this size has."""
    found: dict[str, tuple[int, ...]] = {
        "embedding": (pieces, width),
        "positions": (longest, width),
        "again": (width,),
        "patch": (CHANNELS, width),
        "patch.bias": (width,),
        "patch.norm": (width,),
        "norm": (width,),
    }
    for layer in range(layers):
        for kind in ("self", "cross"):
            found |= {f"{layer}.{kind}.{part}": (width, width) for part in ("query", "key", "value", "out")}
            found[f"{layer}.{kind}.norm"] = (width,)
        found |= {
            f"{layer}.wide.norm": (width,),
            f"{layer}.wide.in": (width, 4 * width),
            f"{layer}.wide.bias": (4 * width,),
            f"{layer}.wide.out": (4 * width, width),
        }
    return found
