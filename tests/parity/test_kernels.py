"""The compiled kernels and numpy give the same bits, at every level that this processor has."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from mmcache.codecs import accelerate
from mmcache.codecs.fp16 import narrowed
from mmcache.codecs.int4 import INT4
from mmcache.model.block import ArraySpec
from mmcache.model.errors import CodecError

kernels: Any = pytest.importorskip("mmcache.codecs._kernels", reason="the C extension was not built here")
LEVELS = range(kernels.BEST_LEVEL + 1)
SHAPES = [(16, 1), (17, 2), (16, 31), (33, 32), (40, 33), (64, 97), (3, 20, 65), (257, 384)]


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MMCACHE_PURE", raising=False)


def plainly(call: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    with monkeypatch.context() as patch:
        patch.setenv("MMCACHE_PURE", "1")
        assert accelerate.kernels() is None
        return call()


def both(codec: INT4, array: npt.NDArray[Any]) -> tuple[bytes, bytes]:
    spec = ArraySpec.of(array)
    encoded = codec.encode(array, spec)
    return bytes(encoded), codec.decode(encoded, spec).tobytes()


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8", ">f4"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("group", [0, 16, 21])
def test_int4(dtype: str, shape: tuple[int, ...], group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(len(shape) + shape[-1])
    array = generator.standard_normal(shape) * generator.choice([0, 1e-6, 1e-3, 1, 200], shape[-1])
    array.flat[:: array.shape[-1] + 1] = -0.0
    array = array.astype(dtype)
    expected = plainly(lambda: both(INT4(group), array), monkeypatch)
    for level in LEVELS:
        assert both(INT4(group, level=level), array) == expected


def test_int4_of_ties_extremes_and_tiny_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    column = np.array([7, 6.5, 5.5, 4.5, 3.5, 2.5, 1.5, 0.5, -0.5, -1.5, -2.5, -3.5, -4.5, -5.5, -6.5, -7])
    for largest in (1.0, 65504 / 7, 3.4e38 / 7, 1e-45, 2.0**-117, 2.0**-118, 1e-30):
        array = np.repeat(column[:, None] * largest, 70, axis=1).astype(np.float32)
        expected = plainly(lambda array=array: both(INT4(), array), monkeypatch)
        for level in LEVELS:
            assert both(INT4(level=level), array) == expected


@pytest.mark.parametrize("dtype", ["<f2", "<f4"])
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_int4_finds_what_is_not_finite(dtype: str, bad: float, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (0, 31, 32, 63, 64, 70 * 20 - 1):
        array = np.ones((20, 70), dtype)
        array.flat[place] = bad
        for level in LEVELS:
            with pytest.raises(CodecError, match="NaN"):
                both(INT4(level=level), array)
        with pytest.raises(CodecError, match="NaN"):
            plainly(lambda array=array: both(INT4(), array), monkeypatch)


def test_int4_decodes_any_bytes_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ArraySpec("<f2", (33, 71))
    raw = np.random.default_rng(0).integers(0, 256, INT4().out_spec(spec).max_bytes, np.uint8)
    raw[: 71 * 4].view("<f4")[...] = np.linspace(-1e5, 1e5, 71)
    expected = plainly(lambda: INT4().decode(raw.data, spec).tobytes(), monkeypatch)
    for level in LEVELS:
        assert INT4(level=level).decode(raw.data, spec).tobytes() == expected


def test_fp16_of_every_half_and_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    exact = halves[np.isfinite(halves)].astype(np.float32)
    bits = exact.view(np.uint32)
    nearby = [(bits + np.uint32(d)).view(np.float32) for d in (0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF)]
    values = np.concatenate(
        [*nearby, np.array([np.inf, -np.inf, 65519.99, 65520, 3e38, 1e-45, 2.0**-25, -(2.0**-25)], np.float32)]
    )
    with np.errstate(over="ignore"):
        expected = plainly(lambda: narrowed(values), monkeypatch).tobytes()
    for level in LEVELS:
        assert narrowed(values, level).tobytes() == expected
        assert np.isnan(narrowed(np.full(40, np.nan, np.float32), level)).all()
        for length in (0, 1, 7, 8, 9, 15, 16, 17):
            assert narrowed(values[:length].copy(), level).tobytes() == expected[: length * 2]


def test_kernels_check_every_size() -> None:
    array, scales = np.zeros((4, 6), np.float32), np.zeros((1, 6), np.float32)
    packed = np.zeros((4, 3), np.uint8)
    assert kernels.int4_encode(array, scales, packed, 4, 6, 4, False, -1)
    for arguments in [
        (array, scales, packed, 5, 6, 4, False, -1),
        (array, scales, packed, 4, 5, 4, False, -1),
        (array, scales, packed, 4, 6, 3, False, -1),
        (array, scales, packed, 4, 6, 0, False, -1),
        (array, scales, packed, -4, 6, 4, False, -1),
        (array, scales, packed, 1 << 62, 1 << 62, 4, False, -1),
        (array, scales, packed, 4, 6, 4, True, -1),
        (array, scales[:, :5].copy(), packed, 4, 6, 4, False, -1),
        (array, scales, packed[:3].copy(), 4, 6, 4, False, -1),
        (array, scales, packed, 4, 6, 4, False, 9),
        (np.zeros(97, np.uint8)[1:], scales, packed, 4, 6, 4, False, -1),
    ]:
        with pytest.raises(ValueError, match=r"needs|must|aligned|level"):
            kernels.int4_encode(*arguments)
    packed.flags.writeable = False
    with pytest.raises((TypeError, BufferError, ValueError)):
        kernels.int4_encode(array, scales, packed, 4, 6, 4, False, -1)
    for source, target in ((5, 2), (8, 3), (8, 8)):
        with pytest.raises(ValueError, match=r"needs|fp32"):
            kernels.fp32_to_fp16(bytes(source), bytearray(target), -1)


def test_threads_encode_side_by_side() -> None:
    generator = np.random.default_rng(0)
    arrays = [generator.standard_normal((200, 64)).astype(np.float16) for _ in range(4)]
    expected = [both(INT4(16), array) for array in arrays]
    got: list[tuple[bytes, bytes] | None] = [None] * 4

    def work(i: int) -> None:
        for _ in range(20):
            got[i] = both(INT4(16), arrays[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == expected
