"""`Gallery`: pictures (or sounds) that stored questions are about, found again when they come back nearly the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from mmcache.likeness.base import Nearness
from mmcache.near.vectors import Vectors


class Sketch(Protocol):
    """See `likeness.picture` and `likeness.sound`."""

    @property
    def vector(self) -> npt.NDArray[np.float32]: ...


S = TypeVar("S", bound=Sketch)

LEAST_COSINE = 0.85
"""Between the sketches' vectors, for two inputs to be compared at all: slight crops of pictures keep above it."""
MOST_COMPARED = 8
"""The nearest ones. Searching for the crop that one may be of another takes milliseconds each."""


class Gallery(Generic[S]):
    """One scope's inputs of one modality, by digest. Not safe under threads: its owner has a lock."""

    def __init__(self, compare: Callable[[S, S], Nearness]) -> None:
        self._compare = compare
        self._held: dict[bytes, int] = {}
        self._sketches: dict[bytes, S] = {}
        self._labels: dict[bytes, int] = {}
        self._digests: dict[int, bytes] = {}
        self._vectors: Vectors | None = None
        self._next = 0

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._sketches

    def add(self, digest: bytes, sketch: S | None) -> None:
        """One more question is about `digest`; without a sketch it is found by its digest alone."""
        self._held[digest] = self._held.get(digest, 0) + 1
        if sketch is None or digest in self._sketches or not sketch.vector.any():  # nothing to see, or to hear, in it
            return
        if self._vectors is None:
            self._vectors = Vectors(len(sketch.vector))
        label, self._next = self._next, self._next + 1
        self._vectors.add(label, sketch.vector)
        self._sketches[digest], self._labels[digest], self._digests[label] = sketch, label, digest

    def remove(self, digest: bytes) -> None:
        """One question less."""
        self._held[digest] -= 1
        if self._held[digest]:
            return
        del self._held[digest]
        if self._sketches.pop(digest, None) is not None:
            label = self._labels.pop(digest)
            del self._digests[label]
            assert self._vectors is not None
            self._vectors.drop(label)

    def like(self, digest: bytes, sketch: S | None, most: Nearness) -> dict[bytes, Nearness]:
        """Digest → how near, the nearest first, none beyond `most`."""
        found = {digest: Nearness.SAME} if digest in self._held else {}
        if sketch is None or self._vectors is None or most is Nearness.SAME or not sketch.vector.any():
            return found
        near = []
        for label, _ in self._vectors.nearest(sketch.vector, MOST_COMPARED, LEAST_COSINE):
            other = self._digests[label]
            if other != digest:
                nearness = max(Nearness.REENCODED, self._compare(sketch, self._sketches[other]))
                if nearness <= min(most, Nearness.TRIMMED):
                    near.append((nearness, other))
        return found | {other: nearness for nearness, other in sorted(near)}
