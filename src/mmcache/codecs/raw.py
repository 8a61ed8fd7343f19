"""The bytes of an array as they are: the step between arrays and byte codecs."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from mmcache.codecs.base import Params
from mmcache.model.block import ArraySpec, BytesSpec, Spec
from mmcache.model.errors import CodecError
from mmcache.model.frame import Buffer


class Raw:
    """Lossless; encoding and decoding are views, not copies."""

    name: ClassVar[str] = "raw"
    lossless: ClassVar[bool] = True

    @property
    def params(self) -> Params:
        return {}

    def out_spec(self, spec: Spec) -> BytesSpec:
        if not isinstance(spec, ArraySpec):
            raise CodecError("raw turns arrays into bytes; it comes before byte codecs")
        return BytesSpec(spec.nbytes)

    def encode(self, data: npt.NDArray[np.generic], spec: Spec) -> Buffer:
        flat = np.asarray(data, order="C").reshape(-1)
        return flat.view(np.uint8).data if flat.size else b""

    def decode(self, data: Buffer, spec: Spec) -> npt.NDArray[np.generic]:
        """A read-only view of `data`. Raises `CodecError` when its length is not the spec's."""
        if not isinstance(spec, ArraySpec) or memoryview(data).nbytes != spec.nbytes:
            raise CodecError("raw bytes do not have the length that their shape and dtype need")
        try:
            # Not np.ndarray(…, buffer): it looks through a read-only memoryview, and callers could make it writable.
            flat = np.frombuffer(memoryview(data).toreadonly(), spec.dtype) if spec.nbytes else np.empty(0, spec.dtype)
            return flat.reshape(spec.shape)
        except (ValueError, TypeError, OverflowError) as error:
            raise CodecError(f"raw bytes cannot be viewed as {spec}") from error

    def error_bound(self, data: npt.NDArray[np.generic], spec: Spec) -> float:
        """Exact."""
        return 0.0
