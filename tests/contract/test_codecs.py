"""Every built-in codec keeps the contract."""

from __future__ import annotations

from typing import Any

import pytest

from mmcache.codecs.aesgcm import AESGCM
from mmcache.codecs.base import Codec
from mmcache.codecs.fp16 import FP16
from mmcache.codecs.int4 import INT4
from mmcache.codecs.raw import Raw
from mmcache.codecs.tfidf import TFIDFMask
from mmcache.codecs.topk import TopK
from mmcache.codecs.zstd import Zstd
from mmcache.testing import CodecContract


class TestRaw(CodecContract):
    def make_codec(self) -> Codec[Any, Any]:
        return Raw()


class TestFP16(CodecContract):
    def make_codec(self) -> Codec[Any, Any]:
        return FP16()


class TestFP16Scaled(CodecContract):
    def make_codec(self) -> Codec[Any, Any]:
        return FP16(scale=0.92, clip=True)


class TestINT4(CodecContract):
    def make_codec(self) -> Codec[Any, Any]:
        return INT4()


class TestINT4Grouped(CodecContract):
    def make_codec(self) -> Codec[Any, Any]:
        return INT4(group=16)


class TestTopK(CodecContract):
    def make_codec(self) -> Codec[Any, Any]:
        return TopK(16)


class TestTFIDFMask(CodecContract):
    def make_codec(self) -> Codec[Any, Any]:
        return TFIDFMask()


class TestZstd(CodecContract):
    def make_codec(self) -> Codec[Any, Any]:
        pytest.importorskip("zstandard")
        return Zstd()


class TestAESGCM(CodecContract):
    def make_codec(self) -> Codec[Any, Any]:
        pytest.importorskip("cryptography")
        return AESGCM(bytes(range(32)))
