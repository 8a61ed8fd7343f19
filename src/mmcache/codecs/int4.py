"""INT4, symmetric per channel: a quarter of FP16's bytes, plus scales."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mmcache.codecs.accelerate import kernels
from mmcache.codecs.base import Params
from mmcache.model.block import ArraySpec, BytesSpec, Spec
from mmcache.model.errors import CodecError
from mmcache.model.frame import Buffer

Array = npt.NDArray[np.generic]

MIN_ROWS = 16
"""With fewer rows a channel the scales would eat the gain."""
SMALLEST_SCALE = np.float32(2.0**-120)


class INT4:
    """`q = round(x / scale)`, `scale = max|x| / 7` over a channel; two values a byte. Lossy; FP16, FP32, FP64.

    The last axis is the channel; the others are rows. `group` rows share one scale per channel (0 = all of them):
    a smaller group bounds the error by the largest value nearby, for 4 bytes a channel and group.
    NaN and infinities are refused (`CodecError`), so such an array is kept raw.

    Layout: scales, FP32 `(groups, channels)`; then per row `ceil(channels / 2)` bytes, `q + 8` of the even channel in
    the low half.
    """

    name: ClassVar[str] = "int4"
    lossless: ClassVar[bool] = False
    least_elements: ClassVar[int] = 1024
    """Chains keep smaller arrays (grids, boxes, logits) exact."""

    def __init__(self, group: int = 0, level: int = -1) -> None:
        if group and group < MIN_ROWS:
            raise CodecError(f"int4 groups have at least {MIN_ROWS} rows, or 0 for all, not {group}")
        self.group, self.levels = int(group), 7
        self._level = level

    @property
    def params(self) -> Params:
        return {"group": self.group} if self.group else {}

    def out_spec(self, spec: Spec) -> BytesSpec:
        rows, channels, group = self._layout(spec)
        return BytesSpec(-(-rows // group) * channels * 4 + rows * (-(-channels // 2)))

    def _layout(self, spec: Spec) -> tuple[int, int, int]:
        """(rows, channels, rows of a group)."""
        if not isinstance(spec, ArraySpec) or np.dtype(spec.dtype).kind != "f":
            raise CodecError("int4 takes arrays of floats")
        rows = math.prod(spec.shape[:-1])
        if len(spec.shape) < 2 or rows < MIN_ROWS or not spec.shape[-1]:
            raise CodecError(f"int4 takes arrays of two or more axes with at least {MIN_ROWS} rows")
        return rows, spec.shape[-1], min(self.group or rows, rows)

    def encode(self, data: Array, spec: Spec) -> Buffer:
        layout = self._layout(spec)
        out = np.empty(self.out_spec(spec).max_bytes, np.uint8)
        with np.errstate(over="ignore"):
            plain = np.asarray(data, order="C") if data.dtype in _NATIVE else data.astype(np.float32, order="C")
        scales, packed = _parts(out, layout)
        native = kernels()
        finite = (
            _encode_plainly(plain.reshape(layout[:2]), scales, packed, layout[2])
            if native is None or not plain.flags.aligned
            else native.int4_encode(plain, scales, packed, *layout, plain.dtype == np.float16, self._level)
        )
        if not finite:
            raise CodecError("int4 cannot hold NaN or infinities")
        return out.data

    def decode(self, data: Buffer, spec: Spec) -> Array:
        layout = self._layout(spec)
        assert isinstance(spec, ArraySpec)
        if memoryview(data).nbytes != self.out_spec(spec).max_bytes:
            raise CodecError("int4 bytes do not have the length that their shape needs")
        scales, packed = _parts(np.frombuffer(data, np.uint8), layout)
        dtype = np.dtype(spec.dtype)
        plain: Array = np.empty(spec.shape, dtype if dtype in _NATIVE else np.float32)
        native = kernels()
        if native is None:
            _decode_plainly(packed, scales, plain.reshape(layout[:2]), layout[2])
        else:
            if not scales.flags.aligned:
                scales = scales.copy()
            native.int4_decode(packed, scales, plain, *layout, plain.dtype == np.float16, self._level)
        return plain if plain.dtype == dtype else plain.astype(dtype)

    def error_bound(self, data: Array, spec: Spec) -> npt.NDArray[np.float64]:
        """For each value `|x - x̂| ≤ scale / 2 · (1 + 2⁻¹⁴)`, plus half a unit in the last place of the output's dtype.

        Channels whose scale would lie below 2⁻¹²⁰ become zero. Shape as `data`.
        """
        rows, channels, group = self._layout(spec)
        wide = np.abs(data.astype(np.float64).reshape(rows, channels))
        peaks = np.maximum.reduceat(wide, np.arange(0, rows, group), axis=0)
        half_step = np.repeat(peaks / (2 * self.levels), group, axis=0)[:rows] * (1 + 2**-14)
        dtype = np.dtype(spec.dtype) if isinstance(spec, ArraySpec) else data.dtype
        unit = np.finfo(dtype).eps / 2 * (wide + half_step) + float(np.finfo(dtype).smallest_subnormal)
        return np.asarray((half_step + unit + 2.0**-113 * (peaks.min() < 2.0**-113)).reshape(data.shape))


_NATIVE = (np.dtype("<f2"), np.dtype("<f4"))


def scales_of(wide: npt.NDArray[np.float32], group: int, levels: int) -> tuple[Any, Any] | None:
    """FP32 `(groups, channels)`: scales and their inverses (0 where the scale is 0); None when not all is finite."""
    peaks = np.maximum.reduceat(np.abs(wide), np.arange(0, len(wide), group), axis=0)
    if not np.isfinite(peaks).all():
        return None
    scales = peaks / np.float32(levels)
    scales[scales < SMALLEST_SCALE] = 0
    return scales, np.divide(np.float32(1), scales, out=np.zeros_like(scales), where=scales > 0)


def _parts(out: npt.NDArray[np.uint8], layout: tuple[int, int, int]) -> tuple[Any, Any]:
    rows, channels, group = layout
    scales = -(-rows // group) * channels * 4
    return out[:scales].view("<f4").reshape(-1, channels), out[scales:].reshape(rows, -1)


def _encode_plainly(plain: Any, scales: Any, packed: Any, group: int) -> bool:
    rows, channels = plain.shape
    wide = plain.astype(np.float32, copy=False)
    found = scales_of(wide, group, 7)
    if found is None:
        return False
    scales[...], inverse = found
    values = np.zeros((rows, channels + channels % 2), np.uint8)
    for start, factor in zip(range(0, rows, group), inverse, strict=True):
        q = np.rint(wide[start : start + group] * factor)
        values[start : start + group, :channels] = (np.clip(q, -7, 7) + 8).astype(np.uint8)
    packed[...] = values[:, ::2] | values[:, 1::2] << 4
    return True


def _decode_plainly(packed: Any, scales: Any, plain: Any, group: int) -> None:
    rows, channels = plain.shape
    values = np.empty((rows, packed.shape[1] * 2), np.float32)
    values[:, ::2] = packed & 15
    values[:, 1::2] = packed >> 4
    values -= 8
    with np.errstate(over="ignore", invalid="ignore"):
        for i, scale in enumerate(scales):
            block = slice(i * group, (i + 1) * group)
            plain[block] = values[block, :channels] * scale
