"""Whatever a model returns comes back: structures, dtypes, shapes, chains; and the stated error bounds hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mmcache.codecs.fp16 import FP16
from mmcache.codecs.int4 import INT4
from mmcache.codecs.int8 import INT8
from mmcache.codecs.pipeline import Chain, choose, freeze, thaw
from mmcache.codecs.similarity import TopSimilarities
from mmcache.codecs.tfidf import TFIDFMask
from mmcache.codecs.topk import TopK
from mmcache.codecs.zstd import Zstd
from mmcache.model.block import ArraySpec
from mmcache.model.errors import CodecError
from mmcache.model.frame import Frame
from mmcache.model.key import Key
from mmcache.model.signature import Signature

DTYPES = (
    hnp.integer_dtypes(endianness="?")
    | hnp.unsigned_integer_dtypes(endianness="?")
    | hnp.floating_dtypes(endianness="?")
    | hnp.complex_number_dtypes(endianness="?")
    | hnp.boolean_dtypes()
    | hnp.unicode_string_dtypes(endianness="?")
    | hnp.byte_string_dtypes()
    | hnp.datetime64_dtypes(endianness="?")
    | hnp.timedelta64_dtypes(endianness="?")
)
ARRAYS = hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
VIEWS = st.one_of(ARRAYS, ARRAYS.map(np.transpose), ARRAYS.filter(lambda a: a.ndim > 0).map(lambda a: a[::-1]))
PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(),
    st.text(max_size=300),
    st.binary(max_size=300),
    st.lists(st.floats(), min_size=17, max_size=30),
    st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=17, max_size=30),
)
KEYS = st.text("abc_xyz", max_size=5) | st.integers(-100, 100)
VALUES: st.SearchStrategy[Any] = st.recursive(
    PLAIN | VIEWS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.lists(inner, max_size=4).map(tuple), st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=12,
)


def back(value: object, chain: Chain | None) -> Any:
    frame = freeze(
        value, key=Key(b"s" * 16, b"d" * 16), signature=Signature(), modality="image", tenant="t", namespace="n",
        cost=1.0, created=2.0, chain=chain,
    )  # fmt: skip
    again = Frame.parse(frame.to_bytes())
    assert again.intact()
    thawed = thaw(again)
    first, second = thawed.value(), thawed.value()
    assert same(first, second)
    assert thawed.constant or first is not second
    return first


def same(one: Any, two: Any) -> bool:
    """Equal to the last bit, types and all."""
    if type(one) is not type(two):
        return False
    if isinstance(one, np.ndarray):
        return (one.dtype.str, one.shape, one.tobytes()) == (two.dtype.str, two.shape, two.tobytes())
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, dict):
        return list(one) == list(two) and all(same(one[key], two[key]) for key in one)
    if isinstance(one, float):
        return np.float64(one).tobytes() == np.float64(two).tobytes()
    return bool(one == two)


@given(VALUES)
@settings(max_examples=150, deadline=None)
def test_any_value_comes_back_to_the_bit(value: object) -> None:
    assert same(back(value, None), value)


@given(VALUES, st.sampled_from(["zstd", "int4", "int8+zstd"]))
@settings(max_examples=60, deadline=None)
def test_small_values_come_back_to_the_bit_through_any_chain(value: object, setting: str) -> None:
    assert same(back(value, choose("image", setting)), value)


FLOATS = st.sampled_from(["<f2", "<f4", "<f8", ">f4", ">f2"])


@st.composite
def matrices(draw: st.DrawFn, min_rows: int = 16) -> npt.NDArray[Any]:
    """Floats of several axes, sizes and magnitudes, with some channels far larger and some all zero."""
    rows, channels = draw(st.integers(min_rows, 50)), draw(st.integers(1, 40))
    generator = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    array = generator.standard_normal((rows, channels)) * 2.0 ** draw(st.integers(-14, 8))
    array *= generator.choice([0.0, 1.0, 1.0, 30.0], channels)
    lead = draw(st.sampled_from([(), (1,), (2,)]))
    return np.broadcast_to(array, (*lead, rows, channels)).astype(draw(FLOATS))


@given(matrices(), st.sampled_from([0, 16, 17, 64]))
@settings(max_examples=100, deadline=None)
def test_int4_holds_its_bound(array: npt.NDArray[Any], group: int) -> None:
    codec, spec = INT4(group), ArraySpec.of(array)
    encoded = codec.encode(array, spec)
    assert memoryview(encoded).nbytes == codec.out_spec(spec).max_bytes
    decoded = codec.decode(encoded, spec)
    assert (decoded.dtype, decoded.shape) == (array.dtype, array.shape)
    assert (np.abs(decoded.astype("f8") - array.astype("f8")) <= codec.error_bound(array, spec)).all()
    peaks = np.abs(array.astype("f8")).reshape(-1, array.shape[-1]).max(axis=0)
    assert (codec.error_bound(array, spec) <= peaks / 14 * 1.02 + peaks * 2e-3 + 1e-7).all()  # and the bound is tight


@given(matrices(), st.sampled_from([1, 7, 20, 127]), st.sampled_from([0, 16, 17]))
@settings(max_examples=60, deadline=None)
def test_int8_holds_its_bound(array: npt.NDArray[Any], levels: int, group: int) -> None:
    codec, spec = INT8(levels, group), ArraySpec.of(array)
    encoded = codec.encode(array, spec)
    assert memoryview(encoded).nbytes == codec.out_spec(spec).max_bytes
    decoded = codec.decode(encoded, spec)
    assert (decoded.dtype, decoded.shape) == (array.dtype, array.shape)
    assert (np.abs(decoded.astype("f8") - array.astype("f8")) <= codec.error_bound(array, spec)).all()


@given(
    hnp.arrays(np.float32, (70,), elements=st.floats(-60000, 60000, width=32, allow_subnormal=True)),
    st.sampled_from([1.0, 0.92, 0.25]),
)
@settings(max_examples=100, deadline=None)
def test_fp16_holds_its_bound(array: npt.NDArray[Any], scale: float) -> None:
    codec, spec = FP16(scale), ArraySpec.of(array)
    decoded = codec.decode(codec.encode(array, spec), spec)
    assert (np.abs(decoded.astype("f8") - array) <= codec.error_bound(array, spec)).all()


@given(matrices(min_rows=20), st.sampled_from([TopK(16), TFIDFMask(0.015), TFIDFMask(3.0), TopSimilarities(0.05)]))
@settings(max_examples=100, deadline=None)
def test_sparse_codecs_keep_what_they_keep_exactly(array: npt.NDArray[Any], codec: Any) -> None:
    spec = ArraySpec.of(array)
    encoded = codec.encode(array, spec)
    assert memoryview(encoded).nbytes <= codec.out_spec(spec).max_bytes
    decoded = codec.decode(encoded, spec)
    kept = codec.keep(array)
    assert decoded[kept].tobytes() == array[kept].tobytes()
    assert not decoded[~kept].any()
    assert (np.abs(decoded.astype("f8") - array.astype("f8")) <= codec.error_bound(array, spec)).all()


@given(st.binary(max_size=3000), st.integers(0, 4000))
@settings(deadline=None)
def test_zstd_never_gives_more_than_its_bound(data: bytes, bound: int) -> None:
    from mmcache.model.block import BytesSpec

    encoded = Zstd().encode(data, BytesSpec(len(data)))
    if len(data) <= bound:
        assert Zstd().decode(encoded, BytesSpec(bound)) == data
    else:
        with pytest.raises(CodecError, match="at most"):
            Zstd().decode(encoded, BytesSpec(bound))


@given(
    matrices(),
    st.sampled_from(["int4", "int4:group=16+zstd", "fp16+int4", "topk:k=8", "fp16+zstd", "int8:levels=20+zstd"]),
)
@settings(max_examples=60, deadline=None)
def test_chains_give_the_same_value_each_time(array: npt.NDArray[Any], setting: str) -> None:
    assume(np.isfinite(array).all())
    value = back(array, choose("image", setting))
    assert (value.dtype, value.shape) == (array.dtype, array.shape)
