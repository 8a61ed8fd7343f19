"""Each codec alone: what it takes, what it refuses, what it costs."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from mmcache import plugins
from mmcache.codecs import aesgcm
from mmcache.codecs.aesgcm import AESGCM
from mmcache.codecs.base import Codec
from mmcache.codecs.chain import choose
from mmcache.codecs.fp16 import FP16
from mmcache.codecs.int4 import INT4
from mmcache.codecs.int8 import INT8
from mmcache.codecs.similarity import TopSimilarities
from mmcache.codecs.tfidf import TFIDFMask
from mmcache.codecs.topk import TopK
from mmcache.codecs.zstd import Zstd
from mmcache.model.block import ArraySpec, BytesSpec
from mmcache.model.errors import CodecError

GENERATOR = np.random.default_rng(0)


def test_every_registered_codec_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aesgcm, "_ciphers", {})
    with pytest.raises(CodecError, match="needs its key"):
        AESGCM()
    AESGCM(b"k" * 32)
    for name in plugins.names("codecs"):
        codec = plugins.load("codecs", name)()
        assert isinstance(codec, Codec)
        assert codec.name == name
        assert type(codec)(**codec.params).params == codec.params


def test_int4_bytes_are_a_quarter_of_fp16_and_scales() -> None:
    spec = ArraySpec("<f2", (257, 384))
    assert INT4().out_spec(spec).max_bytes / spec.nbytes == pytest.approx(0.25 + 4 / (2 * 257))
    assert INT4(64).out_spec(spec).max_bytes / spec.nbytes < 0.30


def test_int4_layout_is_as_documented() -> None:
    column = np.linspace(-7, 7, 15, dtype=np.float32)
    array = np.stack([np.append(column, 0), np.append(column[::-1], 0) * 2, np.zeros(16)], axis=1).astype(np.float32)
    raw = np.frombuffer(INT4().encode(array, ArraySpec.of(array)), np.uint8)
    assert raw[:12].view("<f4").tolist() == [1, 2, 0]
    assert raw[12:].reshape(16, 2)[0].tolist() == [1 | 15 << 4, 8]
    assert raw[12:].reshape(16, 2)[15].tolist() == [8 | 8 << 4, 8]


def test_int4_smaller_groups_bound_better() -> None:
    array = GENERATOR.standard_normal((256, 32)).astype(np.float32)
    array[0] *= 100
    spec = ArraySpec.of(array)
    assert INT4(16).error_bound(array, spec).mean() < INT4().error_bound(array, spec).mean() / 10


@pytest.mark.parametrize("shape", [(), (100,), (15, 100), (100, 0)])
def test_int4_refuses_what_does_not_fit(shape: tuple[int, ...]) -> None:
    with pytest.raises(CodecError):
        INT4().out_spec(ArraySpec("<f4", shape))


def test_int4_takes_views_and_unaligned_arrays() -> None:
    array = GENERATOR.standard_normal((40, 40)).astype(np.float32)
    unaligned = np.frombuffer(b"\0" + array.tobytes(), np.uint8)[1:].view("<f4").reshape(40, 40)
    spec = ArraySpec.of(array)
    assert bytes(INT4().encode(unaligned, spec)) == bytes(INT4().encode(array, spec))
    assert bytes(INT4().encode(array.T, spec)) == bytes(INT4().encode(array.T.copy(), spec))
    encoded = b"\0" + bytes(INT4().encode(array, spec))
    assert (INT4().decode(memoryview(encoded)[1:], spec) == INT4().decode(encoded[1:], spec)).all()


def test_fp16_overflow_is_refused_or_clipped() -> None:
    array = np.full(100, 70000, np.float32)
    array[0], array[1] = np.inf, np.nan
    spec = ArraySpec.of(array)
    with pytest.raises(CodecError, match="smaller scale"):
        FP16().encode(array, spec)
    assert FP16(0.92).decode(FP16(0.92).encode(array, spec), spec)[2] == pytest.approx(70000, rel=2**-11)
    clipped: Any = FP16(clip=True).decode(FP16(clip=True).encode(array, spec), spec)
    assert clipped[2] == 65504
    assert np.isinf(clipped[0])
    assert np.isnan(clipped[1])


def test_int8_refuses_what_is_not_finite() -> None:
    array = np.full((20, 20), np.inf, np.float32)
    with pytest.raises(CodecError, match="NaN"):
        INT8().encode(array, ArraySpec.of(array))


@pytest.mark.parametrize("dtype", ["<f2", "<i4"])
def test_fp16_refuses_what_it_cannot_shrink(dtype: str) -> None:
    with pytest.raises(CodecError):
        FP16().out_spec(ArraySpec(dtype, (100, 100)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: FP16(0.0),
        lambda: FP16(float("nan")),
        lambda: INT4(3),
        lambda: INT8(200),
        lambda: TopK(0),
        lambda: TFIDFMask(0),
        lambda: TopSimilarities(1.5),
        lambda: Zstd(0),
        lambda: AESGCM(b"short"),
    ],
)
def test_parameters_are_checked(make: Any) -> None:
    with pytest.raises(CodecError):
        make()


@pytest.mark.parametrize(
    ("library", "make", "extra"),
    [
        ("zstandard", lambda: choose("text", "int4+zstd"), "zstd"),
        ("cryptography.hazmat.primitives.ciphers", lambda: AESGCM(b"k" * 32), "crypto"),
    ],
)
def test_a_missing_extra_is_named_before_anything_is_stored(
    library: str, make: Any, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(CodecError, match=rf"pip install 'mmcache\[{extra}\]'"):
        make()


def test_topk_keeps_the_tokens_that_score_highest() -> None:
    array = GENERATOR.standard_normal((2, 512, 8)).astype(np.float16)
    attention = GENERATOR.random((2, 512))
    spec = ArraySpec.of(array)
    codec = TopK(scores=attention)
    decoded = TopK().decode(codec.encode(array, spec), spec)
    kept = np.asarray(decoded.any(axis=-1))
    assert kept.sum(axis=1).tolist() == [128, 128]
    for row in range(2):
        assert attention[row][kept[row]].min() > attention[row][~kept[row]].max()
    assert (decoded[kept] == array[kept]).all()
    assert memoryview(codec.encode(array, spec)).nbytes == array.nbytes // 4 + 2 * 512 // 8
    with pytest.raises(CodecError, match="scores"):
        TopK(scores=attention[0]).encode(array, spec)


def test_tfidf_drops_small_weights_or_their_tokens() -> None:
    weights = np.array([[0.2, 0.0149, 0.0151], [0.0, 0.015, 0.001]])
    decoded = TFIDFMask().decode(TFIDFMask().encode(weights, ArraySpec.of(weights)), ArraySpec.of(weights))
    assert decoded.tolist() == [[0.2, 0, 0.0151], [0, 0.015, 0]]
    tokens = np.ones((3, 5))
    codec = TFIDFMask(weights=np.array([0.5, 0.001, 0.3]))
    encoded = codec.encode(tokens, ArraySpec.of(tokens))
    again = TFIDFMask(**codec.params).decode(encoded, ArraySpec.of(tokens))  # type: ignore[arg-type]
    assert again.any(axis=1).tolist() == [True, False, True]


def test_similarity_keeps_five_percent() -> None:
    matrix = GENERATOR.random((40, 50))
    decoded = TopSimilarities().decode(TopSimilarities().encode(matrix, ArraySpec.of(matrix)), ArraySpec.of(matrix))
    assert np.count_nonzero(decoded) == 100
    assert np.sort(decoded, axis=None)[-100:].tolist() == np.sort(matrix, axis=None)[-100:].tolist()


def test_aesgcm_opens_with_its_key_place_and_bytes_only() -> None:
    spec = BytesSpec(5)
    codec = AESGCM(b"a" * 32).bound_to(b"here")
    sealed = codec.encode(b"hello", spec)
    assert codec.decode(sealed, spec) == b"hello"
    assert codec.out_spec(spec).max_bytes == len(sealed)
    for other, data, bound in [
        (AESGCM(b"b" * 32).bound_to(b"here"), sealed, spec),
        (AESGCM(b"a" * 32).bound_to(b"there"), sealed, spec),
        (codec, sealed, BytesSpec(6)),
        (codec, sealed[:-1], spec),
        (codec, sealed[:20], spec),
        (codec, bytes([sealed[0] ^ 1]) + sealed[1:], spec),
    ]:
        with pytest.raises(CodecError):
            other.decode(data, bound)


def test_aesgcm_never_shows_its_key() -> None:
    codec = AESGCM(b"secretsecretsecretsecret")
    assert b"secret" not in repr(codec.params).encode()
    assert len(codec.key_id) == 16
