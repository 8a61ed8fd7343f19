"""One byte a value, symmetric per channel, with as many levels as wanted: for `zstd` to pack what INT4 would blur."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from mmcache.codecs.base import Params
from mmcache.codecs.int4 import INT4, Array, scales_of
from mmcache.model.block import ArraySpec, BytesSpec, Spec
from mmcache.model.errors import CodecError
from mmcache.model.frame import Buffer


class INT8(INT4):
    """`q = round(x / scale)`, `scale = max|x| / levels` over a channel. Lossy; FP16, FP32, FP64.

    levels: 127 uses all 8 bits; 31 and 20 leave about 5.9 and 5.3 bits of information a value, which `int8+zstd` then
    packs. Everything else is as in `INT4`. Layout: scales, FP32 `(groups, channels)`; then `q` as signed bytes.
    """

    name: ClassVar[str] = "int8"

    def __init__(self, levels: int = 127, group: int = 0) -> None:
        if not 1 <= levels <= 127:
            raise CodecError(f"int8 has 1 to 127 levels to each side, not {levels}")
        super().__init__(group)
        self.levels = int(levels)

    @property
    def params(self) -> Params:
        return {"levels": self.levels} | super().params

    def out_spec(self, spec: Spec) -> BytesSpec:
        rows, channels, group = self._layout(spec)
        return BytesSpec(-(-rows // group) * channels * 4 + rows * channels)

    def encode(self, data: Array, spec: Spec) -> Buffer:
        rows, channels, group = self._layout(spec)
        with np.errstate(over="ignore"):
            wide = data.astype(np.float32).reshape(rows, channels)
        found = scales_of(wide, group, self.levels)
        if found is None:
            raise CodecError("int8 cannot hold NaN or infinities")
        scales, inverse = found
        q = np.rint(wide * np.repeat(inverse, group, axis=0)[:rows])
        packed: bytes = scales.tobytes() + np.clip(q, -self.levels, self.levels).astype(np.int8).tobytes()
        return packed

    def decode(self, data: Buffer, spec: Spec) -> Array:
        rows, channels, group = self._layout(spec)
        if memoryview(data).nbytes != self.out_spec(spec).max_bytes:
            raise CodecError("int8 bytes do not have the length that their shape needs")
        assert isinstance(spec, ArraySpec)
        cut = -(-rows // group) * channels * 4
        scales = np.frombuffer(data, "<f4", cut // 4).reshape(-1, channels)
        q = np.frombuffer(data, np.int8, offset=cut).reshape(rows, channels)
        with np.errstate(over="ignore", invalid="ignore"):
            wide = q * np.repeat(scales, group, axis=0)[:rows]
            return np.asarray(wide.astype(spec.dtype).reshape(spec.shape))
