"""Damaged and forged frames: an error of ours or a value, never a crash, never more memory than the bound."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from mmcache.codecs import pipeline
from mmcache.codecs.aesgcm import AESGCM
from mmcache.codecs.int4 import INT4
from mmcache.codecs.pipeline import Chain, choose, freeze, thaw
from mmcache.codecs.structure import Structures
from mmcache.codecs.zstd import Zstd
from mmcache.model.block import ArraySpec, BytesSpec
from mmcache.model.errors import CodecError, CorruptFrameError, MMCacheError
from mmcache.model.frame import CodecStep, Frame, LeafHeader
from mmcache.model.key import Key
from mmcache.model.signature import Signature

NOISE = np.random.default_rng(0).standard_normal((32, 33)).astype(np.float32)
FLAT = np.zeros((32, 33), np.float32) + NOISE[:1]
CASES = {
    "raw": ({"a": NOISE[:2], "b": [1, ("x" * 300, None, b"b")], 3: np.float64(2)}, None),
    "int4": (NOISE, choose("image", "int4")),
    "int8": (NOISE, choose("image", "int8:levels=20")),
    "fp16+zstd": ([FLAT, "y" * 1000], choose("image", "fp16+zstd")),
    "topk": (NOISE, choose("image", "topk:k=8")),
    "tfidf": (NOISE, choose("text", "tfidf:threshold=0.5+zstd")),
    "similarity": (NOISE, choose("text", "similarity:share=0.1")),
    "aesgcm": ({"a": FLAT, "b": "secret"}, Chain(INT4(), Zstd(), AESGCM(b"k" * 32))),
}
BOUND = 1 << 20


@pytest.fixture(autouse=True)
def _small_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "MAX_DECODED_BYTES", BOUND)


@pytest.fixture(params=CASES)
def frame(request: pytest.FixtureRequest) -> Frame:
    value, chain = CASES[request.param]
    return freeze(
        value, key=Key(b"s" * 16, b"d" * 16), signature=Signature(), modality="image", tenant="t", namespace="n",
        cost=1.0, created=2.0, chain=chain,
    )  # fmt: skip


def test_every_chain_is_in_use(frame: Frame, request: pytest.FixtureRequest) -> None:
    steps = {step.name for leaf in frame.header.leaves for step in leaf.chain}
    chain = CASES[request.node.callspec.params["frame"]][1]
    assert {codec.name for codec in (chain.codecs if chain else ())} <= steps


def tried(frame: Frame) -> bool:
    """Whether a value came out. Anything but one of our errors fails the test."""
    try:
        thaw(frame, Structures()).value()
    except MMCacheError:
        return False
    return True


def test_no_changed_byte_at_rest_gets_through(frame: Frame) -> None:
    raw = bytearray(frame.to_bytes())
    generator = random.Random(0)
    used = {i for leaf in frame.header.leaves for i in range(leaf.offset, leaf.offset + leaf.length)}
    start = len(raw) - frame.size
    header_end = 64 + int.from_bytes(raw[8:12], "little")
    for place in range(len(raw)):
        old, raw[place] = raw[place], raw[place] ^ generator.randrange(1, 256)
        try:
            again = Frame.parse(bytes(raw))
            accepted = again.intact() and again.header.leaves == frame.header.leaves
            matters = 8 <= place < 12 or 16 <= place < 40 or 64 <= place < header_end or place - start in used
            assert not accepted or not matters
        except MMCacheError:
            pass
        raw[place] = old


def test_unverified_payloads_never_crash(frame: Frame) -> None:
    generator = random.Random(1)
    for place in range(0, frame.size, 1 + frame.size // 400):
        payload = bytearray(frame.payload)
        payload[place] ^= generator.randrange(1, 256)
        tried(replace(frame, payload=bytes(payload)))
    for length in range(0, frame.size, 1 + frame.size // 50):
        leaves = tuple(msgspec.structs.replace(leaf, offset=0, length=length) for leaf in frame.header.leaves)
        tried(replace(frame, header=msgspec.structs.replace(frame.header, leaves=leaves)))


def test_resealed_headers_never_crash_nor_allocate_beyond_the_bound(frame: Frame) -> None:
    generator = random.Random(2)
    raw = msgspec.msgpack.encode(frame.header)
    decode = msgspec.msgpack.Decoder(type(frame.header)).decode
    tried(frame)  # imports
    tracemalloc.start()
    try:
        for place in range(len(raw)):
            for _ in range(4):
                forged = bytearray(raw)
                for _ in range(generator.choice((1, 1, 2, 5))):
                    forged[generator.choice((place, generator.randrange(len(raw))))] = generator.randrange(256)
                try:
                    header = decode(bytes(forged))
                except (msgspec.MsgspecError, UnicodeDecodeError):
                    continue
                reparsed(replace(frame, header=header))
        assert tracemalloc.get_traced_memory()[1] < 8 * BOUND
    finally:
        tracemalloc.stop()


def reparsed(frame: Frame) -> None:
    try:
        again = Frame.parse(frame.to_bytes())
    except MMCacheError:
        return
    tried(again)


def absurd_leaves(generator: random.Random) -> Iterator[LeafHeader]:
    numbers: list[Any] = [0, 1, 7, 64, 20, 400, 1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1]
    kinds = ["numpy", "torch", "torch.bfloat16", "bytes", "str", "scalar", "list", "tree", "", "os"]
    dtypes = ["<f4", "<f2", ">f8", "|u1", "<i8", "<U3", "|V7", "|O", "<M8[ns]", "<f16", "<c32", "T", "(3,)f4", "<f4\0"]
    values: list[Any] = [*numbers, -1, 0.5, 1e300, float("inf"), float("nan"), "x", True, False]
    names = ["raw", "fp16", "int4", "int8", "topk", "tfidf", "similarity", "zstd", "aesgcm", "eval", ""]
    options = [
        "group",
        "levels",
        "level",
        "k",
        "scores",
        "scale",
        "clip",
        "threshold",
        "weights",
        "share",
        "key",
        "key_id",
        "x",
    ]
    for _ in range(3000):
        shape = tuple(generator.choice(numbers) for _ in range(generator.choice((0, 1, 2, 2, 2, 3, 40))))
        steps = tuple(
            CodecStep(
                generator.choice(names),
                {generator.choice(options): generator.choice(values) for _ in range(generator.choice((0, 0, 1, 2)))},
            )
            for _ in range(generator.choice((0, 1, 1, 2, 3, 12)))
        )
        offset, length = 64 * generator.randrange(6), generator.choice([0, 1, 64, 400, 1024])
        yield LeafHeader(generator.choice(kinds), generator.choice(dtypes), shape, steps, offset, length)


def test_absurd_headers_never_crash_nor_allocate_beyond_the_bound(frame: Frame) -> None:
    payload = bytes(frame.payload).ljust(4096, b"\x5a")
    tree = msgspec.Raw(msgspec.msgpack.encode([0]))
    tried(frame)
    tracemalloc.start()
    try:
        for leaf in absurd_leaves(random.Random(3)):
            header = msgspec.structs.replace(frame.header, leaves=(leaf,), tree=tree)
            tried(replace(frame, header=header, payload=payload))
        assert tracemalloc.get_traced_memory()[1] < 8 * BOUND
    finally:
        tracemalloc.stop()


def test_random_skeletons_never_crash(frame: Frame) -> None:
    generator = random.Random(4)
    for _ in range(2000):
        tree = generator.randbytes(generator.randrange(1, 40))
        tried(replace(frame, header=msgspec.structs.replace(frame.header, tree=msgspec.Raw(tree))))


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    zeros = bytes(16 << 20)
    bomb = Zstd(19).encode(zeros, BytesSpec(len(zeros)))
    assert len(bomb) < 4096
    array = ArraySpec("|u1", (16 << 20,))
    leaf = LeafHeader("bytes", "|u1", array.shape, (CodecStep("raw", {}), CodecStep("zstd", {})), 0, len(bomb))
    frame = freeze(
        b"", key=Key(b"s" * 16, b"d" * 16), signature=Signature(), modality="", tenant="", namespace="", cost=0.0,
        created=0.0,
    )  # fmt: skip
    frame = replace(frame, header=msgspec.structs.replace(frame.header, leaves=(leaf,)), payload=bomb)
    tracemalloc.start()
    try:
        with pytest.raises(MMCacheError, match="more than"):
            thaw(frame)
        small = msgspec.structs.replace(leaf, shape=(1000,))
        with pytest.raises(CodecError, match="at most"):
            thaw(replace(frame, header=msgspec.structs.replace(frame.header, leaves=(small,)))).value()
        assert tracemalloc.get_traced_memory()[1] < BOUND
    finally:
        tracemalloc.stop()


def test_leaves_that_share_bytes_are_refused_before_they_are_copied() -> None:
    whole = freeze(
        b"x" * BOUND, key=Key(b"s" * 16, b"d" * 16), signature=Signature(), modality="image", tenant="t",
        namespace="n", cost=1.0, created=2.0,
    )  # fmt: skip
    leaves = whole.header.leaves * 500
    tree = msgspec.Raw(msgspec.msgpack.encode([1, [[0]] * 500]))
    forged = replace(whole, header=msgspec.structs.replace(whole.header, leaves=leaves, tree=tree))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptFrameError, match="overlap"):
            thaw(forged)
        assert tracemalloc.get_traced_memory()[1] < 4 * BOUND
    finally:
        tracemalloc.stop()
