"""Joint keys of a picture and words: one that is exact, codes that find near ones, and the published key.

A joint key never blends. The exact one frames both content keys. The near one is a pair of codes, one a modality, cut
after both embeddings were brought to one norm with *frozen* statistics; each modality is compared by itself.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from mmcache.keys.framing import DIGEST_BYTES, framed
from mmcache.model.errors import InvalidInputError

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.uint64]

PUBLISHED_DIMENSIONS = 32
PUBLISHED_DECIMALS = 5
CODE_BITS = 128
"""Of each modality's code."""
DEVIATIONS = 3.0
"""How many standard deviations of bit flips a code may be off: at exactly the least cosine, 1 pair in 700 is lost."""
_BYTE_BITS = np.array([bin(byte).count("1") for byte in range(256)], np.uint8)


def published_key(picture: Floats, text: Floats) -> bytes:
    """32 bytes, the baseline: SHA-256 over the first 32 dimensions of each embedding, rounded to 5 decimals.

    Weak on purpose, as published: whatever differs behind the 32nd dimension shares a key, a difference in the last
    digit does not, and both embeddings must be computed to make it.
    """
    parts = [
        np.round(one[:PUBLISHED_DIMENSIONS].astype(np.float64), PUBLISHED_DECIMALS) + 0.0 for one in (picture, text)
    ]
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).digest()


def joint_digest(salt: bytes, picture: bytes | None, text: bytes | None, arguments: bytes = b"") -> bytes:
    """16 bytes: BLAKE3, keyed with the realm's salt, of both parts' keys and of what else the retrieval depends on.

    None is "none given" and differs from every key. Raises `InvalidInputError` where both are.
    """
    if picture is None and text is None:
        raise InvalidInputError("a retrieval needs a picture, words, or both")
    parts = (b"" if part is None else b"\1" + part for part in (picture, text))
    return blake3(framed("joint", *parts, arguments), key=salt).digest(length=DIGEST_BYTES)


@dataclass(frozen=True, eq=False)
class Statistics:
    """The mean of one modality's embeddings, float32 [d], fixed once. Never a running one: keys would move with it."""

    mean: Floats

    @staticmethod
    def fit(vectors: npt.ArrayLike) -> Statistics:
        """From a sample [n, d]: a corpus's vectors, or early queries'. Raises `InvalidInputError`."""
        sample = np.asarray(vectors, np.float32)
        if sample.ndim != 2 or len(sample) < 2 or not np.isfinite(sample).all():
            raise InvalidInputError("statistics need at least two finite vectors, as one array [n, d]")
        return Statistics(sample.mean(axis=0, dtype=np.float64).astype(np.float32))

    def aligned(self, vectors: Floats) -> Floats:
        """[…, d] without the mean, each of norm 1; a vector that equals the mean becomes 0 and is like no other.

        Encoders differ in scale, and their vectors crowd around a mean (e5's are all within a cosine of 0.7): without
        it, one least cosine would mean another thing for each of them.
        """
        centred = vectors - self.mean
        norms = np.linalg.norm(centred, axis=-1, keepdims=True)
        return np.asarray(np.divide(centred, norms, out=np.zeros_like(centred), where=norms > 1e-6), np.float32)

    @cached_property
    def planes(self) -> Floats:
        """[d, 128]: random hyperplanes with a fixed seed (Charikar, 2002)."""
        drawn = np.random.default_rng(len(self.mean)).standard_normal((len(self.mean), CODE_BITS))
        return np.asarray(drawn, np.float32)

    def codes(self, vectors: Floats) -> Codes:
        """uint64 [2, …]: on which side of each hyperplane the aligned vectors [d] or [n, d] lie.

        Two vectors at an angle of θ differ in each bit with probability θ / π.
        """
        bits = self.aligned(vectors) @ self.planes > 0
        packed = np.ascontiguousarray(np.packbits(bits, axis=-1)).view(np.uint64)
        return np.ascontiguousarray(np.moveaxis(packed, -1, 0))


@dataclass(frozen=True)
class Alignment:
    """Frozen statistics of both modalities."""

    picture: Statistics
    text: Statistics

    @staticmethod
    def fit(pictures: npt.ArrayLike, texts: npt.ArrayLike) -> Alignment:
        """From samples [n, d] of each. Raises `InvalidInputError`."""
        return Alignment(Statistics.fit(pictures), Statistics.fit(texts))


def radius(cosine: float) -> int:
    """Most bits in which the codes of two vectors of at least this cosine differ (but see `DEVIATIONS`)."""
    share = math.acos(max(-1.0, min(1.0, cosine))) / math.pi
    return math.floor(CODE_BITS * share + DEVIATIONS * math.sqrt(CODE_BITS * share * (1 - share)))


def hamming(codes: Codes, code: Codes) -> npt.NDArray[np.uint8]:
    """Bits in which each of `codes` [2, n] differs from `code` [2]."""
    first, second = (_ones(one ^ other) for one, other in zip(codes, code, strict=True))
    return first + second


def _ones(words: Codes) -> npt.NDArray[np.uint8]:
    if hasattr(np, "bitwise_count"):  # numpy 2
        return np.asarray(np.bitwise_count(words), np.uint8)
    return np.asarray(_BYTE_BITS[words.view(np.uint8)].reshape(-1, 8).sum(axis=1), np.uint8)
