"""Every built-in codec keeps the contract."""

from __future__ import annotations

from typing import Any

import pytest

from mmcache import plugins
from mmcache.codecs.aesgcm import AESGCM
from mmcache.codecs.base import Codec
from mmcache.codecs.fp16 import FP16
from mmcache.codecs.int4 import INT4
from mmcache.codecs.int8 import INT8
from mmcache.codecs.raw import Raw
from mmcache.codecs.similarity import TopSimilarities
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


class TestINT8(CodecContract):
    def make_codec(self) -> Codec[Any, Any]:
        return INT8()


class TestINT8OfFewLevels(CodecContract):
    def make_codec(self) -> Codec[Any, Any]:
        return INT8(levels=20, group=16)


class TestTopSimilarities(CodecContract):
    def make_codec(self) -> Codec[Any, Any]:
        return TopSimilarities()


class TestTopK(CodecContract):
    def make_codec(self) -> Codec[Any, Any]:
        return TopK(16)


class TestTFIDFMask(CodecContract):
    def make_codec(self) -> Codec[Any, Any]:
        return TFIDFMask()


class TestZstd(CodecContract):
    def make_codec(self) -> Codec[Any, Any]:
        pytest.importorskip("zstandard", reason="the extra `zstd` is not installed")
        return Zstd()


class TestAESGCM(CodecContract):
    def make_codec(self) -> Codec[Any, Any]:
        pytest.importorskip("cryptography", reason="the extra `crypto` is not installed")
        return AESGCM(bytes(range(32)))


def test_every_registered_codec_is_here() -> None:
    tested = {type(suite().make_codec()) for suite in CodecContract.__subclasses__() if suite.__module__ == __name__}
    assert {plugins.load("codecs", name) for name in plugins.names("codecs")} <= tested
