"""One space for all modalities, learned while pairs are seen together.

Each modality has an affine map into the space of one of them, the anchor: the ridge regression of the anchor's vectors
on its own. What is kept are the sums that the normal equations need, so after any number of pairs a map is exactly the
one that a fit of all of them would give (weighted, where older pairs count less), in memory that does not grow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mmcache.model.errors import InvalidInputError
from mmcache.placement.cosine import Floats, unit

Doubles = npt.NDArray[np.float64]

RIDGE = 1.0
"""What keeps a map of few pairs from being of their noise: it weighs like so many pairs for each input dimension."""
REFIT = 0.125
"""A map is solved for anew when so much weight was added since, as a share of all."""


@dataclass(frozen=True)
class Affine:
    """x → x · matrix + offset."""

    matrix: Doubles
    """[d, e]."""
    offset: Doubles
    """[e]."""

    def __call__(self, vectors: npt.ArrayLike) -> Doubles:
        """float64 [n, e] of [n, d]."""
        return np.asarray(vectors, np.float64) @ self.matrix + self.offset


def fit(inputs: npt.ArrayLike, outputs: npt.ArrayLike, ridge: float = RIDGE) -> Affine:
    """The closed form, of all pairs [n, d] and [n, e] at once: what `RunningAffine` is held against."""
    x, y = np.asarray(inputs, np.float64), np.asarray(outputs, np.float64)
    mean, goal = x.mean(axis=0), y.mean(axis=0)
    spread = (x - mean).T @ (x - mean)
    matrix = np.linalg.solve(_ridged(spread, ridge, len(x)), (x - mean).T @ (y - goal))
    return Affine(matrix, goal - mean @ matrix)


class RunningAffine:
    """The same, pair by pair. Pure; not safe under threads.

    forget: what each earlier pair's weight is multiplied by with each further pair; 1 = all count alike, and 0.999
    follows models and data that change within a thousand pairs.
    """

    def __init__(self, width: int, goal: int, *, forget: float = 1.0, ridge: float = RIDGE) -> None:
        """width, goal: dimensions of inputs and outputs. Raises `InvalidInputError`."""
        if width < 1 or goal < 1 or not 0.0 < forget <= 1.0 or not ridge > 0.0:
            raise InvalidInputError("a map has dimensions, 0 < forget ≤ 1, and a ridge above 0")
        self._forget, self._ridge = forget, ridge
        self._products = np.zeros((width, width + goal))
        self._sums = np.zeros(width + goal)
        self._fresh = 0.0
        self.weight = 0.0
        """Pairs learned from, older ones for less where they are forgotten."""
        self._map: Affine | None = None

    def learn(self, inputs: npt.ArrayLike, outputs: npt.ArrayLike) -> None:
        """Pairs [n, d] and [n, e] that were seen together, oldest first. Raises `InvalidInputError`."""
        x, y = np.asarray(inputs, np.float64), np.asarray(outputs, np.float64)
        width, both = self._products.shape
        if x.ndim != 2 or y.ndim != 2 or len(x) != len(y) or (x.shape[1], y.shape[1]) != (width, both - width):
            raise InvalidInputError(f"pairs are [n, {width}] and [n, {both - width}], not {x.shape} and {y.shape}")
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            raise InvalidInputError("a pair holds what is not finite")
        weights = self._forget ** np.arange(len(x) - 1, -1, -1, dtype=np.float64)
        kept = self._forget ** len(x)
        joined = np.concatenate([x, y], axis=1)
        self._products = kept * self._products + (x * weights[:, None]).T @ joined
        self._sums = kept * self._sums + weights @ joined
        self.weight = kept * self.weight + float(weights.sum())
        self._fresh = kept * self._fresh + float(weights.sum())

    @property
    def map(self) -> Affine:
        """The map of now; solved for anew when it is asked for and much was learned since (`REFIT`)."""
        if self._map is None or self._fresh > REFIT * self.weight:
            self._map, self._fresh = self.solved(), 0.0
        return self._map

    def solved(self) -> Affine:
        """The map of all that was learned. O(d³)."""
        width, both = self._products.shape
        if self.weight == 0.0:
            return Affine(np.zeros((width, both - width)), np.zeros(both - width))
        means = self._sums / self.weight
        centred = self._products - self.weight * np.outer(means[:width], means)
        matrix = np.asarray(
            np.linalg.solve(_ridged(centred[:, :width], self._ridge, self.weight), centred[:, width:]), np.float64
        )
        return Affine(matrix, means[width:] - means[:width] @ matrix)

    @property
    def goal(self) -> Doubles:
        """The mean of the outputs, [e]."""
        return self._sums[self._products.shape[0] :] / max(self.weight, 1e-300)


class JointSpace:
    """All modalities in the space of the anchor's vectors, centred there and of norm 1: comparable by cosine.

    >>> space = JointSpace({"image": 768, "text": 384}, anchor="text")
    >>> space.learn("image", pictures, texts)          # as pairs are seen together
    >>> cosines(space.place("image", pictures), space.place("text", texts))
    """

    def __init__(self, widths: dict[str, int], anchor: str, *, forget: float = 1.0, ridge: float = RIDGE) -> None:
        """widths: dimensions of each modality's vectors. Raises `InvalidInputError`."""
        if anchor not in widths:
            raise InvalidInputError(f"the anchor is one of {', '.join(widths)}, not {anchor!r}")
        self.anchor, self._widths = anchor, dict(widths)
        others = [name for name in widths if name != anchor]
        self._maps = {name: RunningAffine(widths[name], widths[anchor], forget=forget, ridge=ridge) for name in others}

    def learn(self, modality: str, vectors: npt.ArrayLike, anchors: npt.ArrayLike) -> None:
        """Vectors [n, d] of a modality, and the anchor's [n, e] that they were seen with."""
        self._of(modality).learn(vectors, anchors)

    def place(self, modality: str, vectors: npt.ArrayLike) -> Floats:
        """float32 [n, e], each of norm 1. Before anything was learned, all but the anchor's are 0: like nothing."""
        rows = np.asarray(vectors, np.float64)
        learned = [running for running in self._maps.values() if running.weight > 0]
        weight = sum(running.weight for running in learned)
        centre = sum((running.goal * (running.weight / weight) for running in learned), np.zeros(()))
        if modality != self.anchor:
            running = self._of(modality)
            if running.weight == 0.0:
                return np.zeros((len(rows), self._widths[self.anchor]), np.float32)
            rows = running.map(rows)
        return unit(rows - centre)

    def _of(self, modality: str) -> RunningAffine:
        found = self._maps.get(modality)
        if found is None:
            raise InvalidInputError(f"{modality!r} is the anchor, or none of {', '.join(self._widths)}")
        return found


def _ridged(spread: Doubles, ridge: float, weight: float) -> Doubles:
    return spread + np.eye(len(spread)) * max(ridge * float(np.trace(spread)) / weight, 1e-12)
