"""FP16 with an optional scale: half of FP32's bytes at 11 significant bits."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from mmcache.codecs.accelerate import kernels
from mmcache.codecs.base import Params
from mmcache.model.block import ArraySpec, Spec
from mmcache.model.errors import CodecError

Array = npt.NDArray[np.generic]

LARGEST = 65504.0
MIN_ELEMENTS = 64
"""Smaller arrays (logit scales, sizes) stay exact."""


class FP16:
    """`x → fp16(x * scale)`, for FP32 and FP64. Lossy.

    scale: a factor below 1 leaves headroom before 65504 (audio features: 0.92).
    clip: what does not fit becomes ±65504/scale, and the bound does not hold there; else it is refused (`CodecError`).
    NaN and infinities are kept.
    """

    name: ClassVar[str] = "fp16"
    lossless: ClassVar[bool] = False

    def __init__(self, scale: float = 1.0, clip: bool = False) -> None:
        if not 2**-14 <= scale <= 2**14:
            raise CodecError(f"the scale of fp16 lies between 2**-14 and 2**14, not at {scale}")
        self.scale, self.clip = float(scale), bool(clip)

    @property
    def params(self) -> Params:
        params: Params = {}
        if self.scale != 1.0:
            params["scale"] = self.scale
        if self.clip:
            params["clip"] = True
        return params

    def out_spec(self, spec: Spec) -> ArraySpec:
        if not isinstance(spec, ArraySpec) or np.dtype(spec.dtype).kind != "f" or np.dtype(spec.dtype).itemsize <= 2:
            raise CodecError("fp16 takes arrays of FP32 or FP64")
        if spec.nbytes < MIN_ELEMENTS * 4:
            raise CodecError(f"fp16 leaves arrays of fewer than {MIN_ELEMENTS} elements exact")
        return ArraySpec("<f2", spec.shape)

    def encode(self, data: Array, spec: Spec) -> npt.NDArray[np.float16]:
        self.out_spec(spec)
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = data if self.scale == 1.0 else np.multiply(data, np.float32(self.scale))
            halves = narrowed(scaled)
            if self.clip:
                np.clip(halves, -LARGEST, LARGEST, out=halves, where=np.isfinite(data))
            elif not np.isfinite(halves).all() and (np.isinf(halves) & np.isfinite(data)).any():
                raise CodecError(f"values beyond ±{LARGEST / self.scale:.0f} do not fit fp16; use a smaller scale")
        return halves

    def decode(self, data: Array, spec: Spec) -> Array:
        if not isinstance(spec, ArraySpec) or data.dtype != np.float16 or data.shape != spec.shape:
            raise CodecError("fp16 got another dtype or shape than it made")
        with np.errstate(over="ignore", invalid="ignore"):
            wide = data.astype(np.float32)
            return (wide if self.scale == 1.0 else np.divide(wide, np.float32(self.scale))).astype(spec.dtype)

    def error_bound(self, data: Array, spec: Spec) -> npt.NDArray[np.float64]:
        """For each finite value that fits: `|x - x̂| ≤ |x| · 2⁻¹¹ · (1 + 2⁻¹⁰) + 2⁻²⁵ / scale`."""
        return np.abs(data.astype(np.float64)) * 2**-11 * (1 + 2**-10) + 1.01 * 2**-25 / self.scale


def narrowed(data: Array, level: int = -1) -> npt.NDArray[np.float16]:
    """To FP16, rounding half to even; too large becomes infinite. C for contiguous FP32, numpy else."""
    native = kernels()
    if native is None or data.dtype != np.dtype("<f4") or not data.flags.c_contiguous or not data.flags.aligned:
        return data.astype("<f2", order="C")
    out = np.empty(data.shape, "<f2")
    native.fp32_to_fp16(data, out, level)
    return out
