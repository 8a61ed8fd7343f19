"""The form that all sparse codecs share: one bit a position, then what stands at the positions kept."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mmcache.codecs.base import Params
from mmcache.model.block import ArraySpec, BytesSpec, Spec
from mmcache.model.errors import CodecError
from mmcache.model.frame import Buffer

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]


class Sparse:
    """Keeps some positions exactly; the rest decodes to zero. Subclasses say which (`keep`). Lossy.

    Layout: `ceil(positions / 8)` bytes of mask, most significant bit first; then the kept items in order.
    """

    name: ClassVar[str]
    lossless: ClassVar[bool] = False
    least_elements: ClassVar[int] = 1024
    """Chains keep smaller arrays exact."""

    @property
    def params(self) -> Params:
        raise NotImplementedError

    def positions(self, spec: ArraySpec) -> tuple[int, ...]:
        """The mask's shape: the leading axes of the array. Raises `CodecError` where `spec` does not fit."""
        raise NotImplementedError

    def keep(self, data: Array) -> Mask:
        """Which positions to keep."""
        raise NotImplementedError

    def _positions(self, spec: Spec) -> tuple[int, ...]:
        if not isinstance(spec, ArraySpec) or np.dtype(spec.dtype).kind != "f":
            raise CodecError(f"{self.name} takes arrays of floats")
        return self.positions(spec)

    def out_spec(self, spec: Spec) -> BytesSpec:
        mask = self._positions(spec)
        assert isinstance(spec, ArraySpec)
        return BytesSpec(-(-math.prod(mask) // 8) + spec.nbytes)

    def encode(self, data: Array, spec: Spec) -> Buffer:
        self._positions(spec)
        if not np.isfinite(data).all():
            raise CodecError(f"{self.name} cannot rank NaN or infinities")
        mask = self.keep(data)
        return np.packbits(mask, axis=None).tobytes() + data[mask].tobytes()

    def decode(self, data: Buffer, spec: Spec) -> Array:
        mask_shape = self._positions(spec)
        assert isinstance(spec, ArraySpec)
        count = math.prod(mask_shape)
        raw = np.frombuffer(data, np.uint8)
        cut = -(-count // 8)
        if raw.size < cut:
            raise CodecError(f"{self.name} bytes are shorter than their mask")
        mask = np.unpackbits(raw[:cut], count=count).astype(bool).reshape(mask_shape)
        item = spec.shape[len(mask_shape) :]
        kept = int(mask.sum())
        if raw.size - cut != kept * math.prod(item) * np.dtype(spec.dtype).itemsize:
            raise CodecError(f"{self.name} bytes do not have the length that their mask needs")
        out = np.zeros(spec.shape, spec.dtype)
        out[mask] = np.frombuffer(raw[cut:].tobytes(), spec.dtype).reshape(kept, *item)
        return out

    def error_bound(self, data: Array, spec: Spec) -> npt.NDArray[np.float64]:
        """Zero where kept, `|x|` elsewhere. Shape as `data`."""
        bound = np.abs(data.astype(np.float64))
        bound[self.keep(data)] = 0
        return bound
