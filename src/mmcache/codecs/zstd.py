"""Zstandard, with decompression bounded before it starts."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

from mmcache.codecs.base import Params
from mmcache.model.block import BytesSpec, Spec
from mmcache.model.errors import CodecError
from mmcache.model.frame import Buffer


class Zstd:
    """Lossless. Needs the extra `mmcache[zstd]`; left out for bytes that it does not make smaller.

    level: 1 (fast) to 19 (small).
    """

    name: ClassVar[str] = "zstd"
    lossless: ClassVar[bool] = True
    packs_bytes: ClassVar[bool] = True
    optional: ClassVar[bool] = True

    def __init__(self, level: int = 3) -> None:
        if not 1 <= level <= 19:
            raise CodecError(f"the level of zstd lies between 1 and 19, not at {level}")
        _library()  # here and not when a block is stored: there a missing extra would only mean that nothing is kept
        self.level = int(level)
        self._mine = threading.local()

    @property
    def params(self) -> Params:
        return {} if self.level == 3 else {"level": self.level}

    def out_spec(self, spec: Spec) -> BytesSpec:
        if not isinstance(spec, BytesSpec):
            raise CodecError("zstd takes bytes")
        return BytesSpec(spec.max_bytes + spec.max_bytes // 128 + 512)

    def encode(self, data: Buffer, spec: Spec) -> bytes:
        compressor = getattr(self._mine, "compressor", None)  # one per thread: they keep state
        if compressor is None:
            compressor = self._mine.compressor = _library().ZstdCompressor(level=self.level)
        return compressor.compress(data)  # type: ignore[no-any-return]

    def decode(self, data: Buffer, spec: Spec) -> bytes:
        """Raises `CodecError` unless `data` declares and has at most the spec's bytes."""
        zstandard = _library()
        if not isinstance(spec, BytesSpec):
            raise CodecError("zstd makes bytes")
        try:
            # The library would allocate whatever the frame declares.
            declared = zstandard.frame_content_size(data)
            if not 0 <= declared <= spec.max_bytes:
                raise CodecError(f"zstd bytes declare {declared} bytes, at most {spec.max_bytes} are expected")
            return zstandard.ZstdDecompressor().decompress(data)  # type: ignore[no-any-return]
        except zstandard.ZstdError as error:
            raise CodecError(f"zstd bytes are damaged: {error}") from error

    def error_bound(self, data: Buffer, spec: Spec) -> float:
        """Exact."""
        return 0.0


def _library() -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise CodecError("the codec zstd needs zstandard: pip install 'mmcache[zstd]'") from error
    return zstandard
