"""What lives in the cache: array specs, facts that deciders judge by, and live blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mmcache.model.key import Key


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """An array's dtype (numpy's `str` form, e.g. `<f2`) and shape. Checked before any byte moves."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of a C-contiguous array of this spec."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @staticmethod
    def of(array: npt.NDArray[np.generic]) -> ArraySpec:
        """The spec of a live array."""
        return ArraySpec(array.dtype.str, array.shape)


@dataclass(frozen=True, slots=True)
class BytesSpec:
    """A byte string's upper bound; decoders refuse to produce more."""

    max_bytes: int


Spec = ArraySpec | BytesSpec


@dataclass(frozen=True, slots=True)
class Facts:
    """What policies, admission and lifetimes may know of a block. Pure data; time is never in it."""

    size: int
    """Bytes held."""
    cost: float = 0.0
    """Seconds that computing it took."""
    modality: str = "tensor"
    tenant: str = "default"
    entropy: float | None = None
    """Mean softmax entropy (nats) of its recent cross-attentions, where known."""
    references: int = 0
    """How many other blocks or answers need it."""


@dataclass(frozen=True, slots=True)
class Block:
    """A live value: the arrays of a model's output and the skeleton that holds them.

    `leaves` are C-contiguous arrays; `tree` is the msgpack-able skeleton (see `codecs.structure`).
    """

    key: Key
    modality: str
    tree: object
    leaves: tuple[npt.NDArray[np.generic], ...]
