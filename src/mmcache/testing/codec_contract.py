"""What every `Codec` must do. Subclass it in your tests and give it your codec."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from mmcache.codecs.base import Codec
from mmcache.model.block import ArraySpec, BytesSpec, Spec
from mmcache.model.errors import CodecError

AnyCodec = Codec[Any, Any]

SHAPES = [(64, 32), (3, 40, 17), (520, 8), (1, 1), (100,), (), (0,), (0, 7)]
DTYPES = ["<f4", "<f2", "<f8", ">f4", "<i4", "|u1", "|b1", "<c8"]
ODD_SPECS = [
    *(ArraySpec(dtype, (20, 3)) for dtype in ("|b1", "<i8", "<c16", "<M8[ns]", "|S3", "<U2", "|V5")),
    *(ArraySpec("<f4", shape) for shape in ((), (0,), (0, 0, 0), (1,) * 32, (1 << 40, 2), (3, 0, 1 << 50))),
    BytesSpec(0),
    BytesSpec(1 << 50),
]


class Sample(NamedTuple):
    """Something to encode."""

    data: Any
    spec: Spec


class CodecContract:
    """Hooks: `make_codec`; and, where the defaults below do not fit, `candidates` and `assert_close`."""

    def make_codec(self) -> AnyCodec:
        """A new codec."""
        raise NotImplementedError

    def candidates(self) -> Iterator[Sample]:
        """Inputs of many kinds; those whose spec the codec refuses are left out. Some must remain."""
        rng = np.random.default_rng(11)
        for dtype in DTYPES:
            for shape in SHAPES:
                array = np.asarray(rng.standard_normal(shape) * 10).astype(dtype)
                yield Sample(array, ArraySpec.of(array))
        for raw in (b"", b"x", bytes(5000), rng.bytes(3000), b"the same words, " * 300):
            yield Sample(raw, BytesSpec(len(raw)))

    def assert_close(self, codec: AnyCodec, sample: Sample, decoded: Any) -> None:
        """Fails when `decoded` is further from the sample than the codec may be.

        Lossless codecs are bit-exact; lossy ones keep the bound of their `error_bound(data, spec)`.
        """
        if codec.lossless:
            assert _bytes(decoded) == _bytes(sample.data)
            return
        bound = codec.error_bound(sample.data, sample.spec)  # type: ignore[attr-defined]
        error = np.abs(np.asarray(decoded, np.float64) - np.asarray(sample.data, np.float64))
        assert (error <= bound).all(), f"off by {float((error - bound).max())} beyond the bound"

    def samples(self, codec: AnyCodec) -> list[Sample]:
        """The candidates that `codec` accepts."""
        accepted = [sample for sample in self.candidates() if _accepts(codec, sample.spec)]
        assert accepted, "the codec accepts none of the candidates: override `candidates`"
        return accepted

    @pytest.fixture
    def codec(self) -> AnyCodec:
        """The codec under test."""
        return self.make_codec()

    def test_is_a_codec(self, codec: AnyCodec) -> None:
        assert isinstance(codec, Codec)
        assert codec.name.isidentifier()
        assert isinstance(codec.lossless, bool)

    def test_comes_back(self, codec: AnyCodec) -> None:
        for sample in self.samples(codec):
            decoded = codec.decode(codec.encode(sample.data, sample.spec), sample.spec)
            assert _fits(decoded, sample.spec), f"{sample.spec} came back as something else"
            self.assert_close(codec, sample, decoded)

    def test_the_encoded_form_has_the_spec_that_was_promised(self, codec: AnyCodec) -> None:
        for sample in self.samples(codec):
            encoded, promised = codec.encode(sample.data, sample.spec), codec.out_spec(sample.spec)
            assert _fits(encoded, promised), f"{sample.spec} was not encoded as {promised}"

    def test_its_params_rebuild_it(self, codec: AnyCodec) -> None:
        params = msgspec.msgpack.decode(msgspec.msgpack.encode(codec.params))
        assert params == codec.params
        assert all(isinstance(value, bool | int | float | str) for value in params.values())
        rebuilt = type(codec)(**params)
        for sample in self.samples(codec):
            encoded = codec.encode(sample.data, sample.spec)
            again, first = rebuilt.decode(encoded, sample.spec), codec.decode(encoded, sample.spec)
            assert _bytes(again) == _bytes(first)

    def test_inputs_are_only_read(self, codec: AnyCodec) -> None:
        for sample in self.samples(codec):
            before = _bytes(sample.data)
            if isinstance(sample.data, np.ndarray):
                sample.data.setflags(write=False)
            encoded = _frozen(codec.encode(sample.data, sample.spec))
            kept = _bytes(encoded)
            codec.decode(encoded, sample.spec)
            assert _bytes(sample.data) == before
            assert _bytes(encoded) == kept

    @pytest.mark.parametrize("spec", ODD_SPECS, ids=str)
    def test_any_spec_is_taken_or_refused(self, codec: AnyCodec, spec: Spec) -> None:
        if _accepts(codec, spec):
            assert isinstance(codec.out_spec(spec), ArraySpec | BytesSpec)

    def test_damaged_input_is_an_error_or_a_value_of_the_spec(self, codec: AnyCodec) -> None:
        rng = random.Random(5)
        for sample in self.samples(codec):
            encoded = codec.encode(sample.data, sample.spec)
            for damaged in _damaged(encoded, rng):
                try:
                    decoded = codec.decode(damaged, sample.spec)
                except CodecError:
                    continue
                assert _fits(decoded, sample.spec), f"damaged bytes decoded to something else than {sample.spec}"

    def test_threads_do_not_mix(self, codec: AnyCodec) -> None:
        samples = self.samples(codec)[:12]
        expected = [_bytes(codec.decode(codec.encode(s.data, s.spec), s.spec)) for s in samples]
        wrong: list[Spec] = []

        def work() -> None:
            for sample, right in zip(samples, expected, strict=True):
                if _bytes(codec.decode(codec.encode(sample.data, sample.spec), sample.spec)) != right:
                    wrong.append(sample.spec)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def _accepts(codec: AnyCodec, spec: Spec) -> bool:
    try:
        codec.out_spec(spec)
    except CodecError:
        return False
    return True


def _fits(data: Any, spec: Spec) -> bool:
    if isinstance(spec, ArraySpec):
        return isinstance(data, np.ndarray) and ArraySpec.of(data) == spec
    return not isinstance(data, np.ndarray) and memoryview(data).nbytes <= spec.max_bytes


def _bytes(data: Any) -> bytes:
    return data.tobytes() if isinstance(data, np.ndarray) else bytes(data)


def _frozen(encoded: Any) -> Any:
    if isinstance(encoded, np.ndarray):
        encoded.setflags(write=False)
        return encoded
    return memoryview(encoded).toreadonly()


def _damaged(encoded: Any, rng: random.Random) -> Iterator[Any]:
    """Cut off, drawn out, flipped, replaced by noise."""
    if isinstance(encoded, np.ndarray):
        array: npt.NDArray[Any] = encoded
        yield from (array.reshape(-1)[:-1], np.zeros((3, 3), np.int16), array.astype(np.complex64), array[None])
        return
    raw = bytes(encoded)
    yield from (b"", raw[:-1], raw[: len(raw) // 2], raw + b"\0", raw + raw, rng.randbytes(len(raw)))
    for _ in range(20):
        if raw:
            flipped = bytearray(raw)
            flipped[rng.randrange(min(len(raw), 64) if rng.random() < 0.5 else len(raw))] ^= 1 << rng.randrange(8)
            yield bytes(flipped)
