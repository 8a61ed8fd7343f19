"""A cache that encrypts believes no frame that was not encrypted whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from mmcache import Cache
from mmcache.codecs.aesgcm import AESGCM
from mmcache.codecs.pipeline import Chain, freeze, sealed
from mmcache.model.frame import CodecStep, FrameHeader
from mmcache.model.key import Key
from mmcache.model.signature import Signature

KEY = b"k" * 32
VALUE = {"a": np.ones(100, np.float32), "b": np.zeros((0, 3)), "c": "text"}


CALLS: list[str] = []


def embed(text: str) -> Any:
    CALLS.append(text)
    return np.full(3000, len(CALLS), np.float32)


def header(chain: Chain | None) -> FrameHeader:
    return freeze(
        VALUE, key=Key(b"s" * 16, b"d" * 16), signature=Signature(), modality="text", tenant="t", namespace="n",
        cost=1.0, created=2.0, chain=chain,
    ).header  # fmt: skip


def test_only_what_is_encrypted_whole_is_sealed() -> None:
    whole = header(Chain(AESGCM(KEY)))
    assert sealed(whole)
    assert not sealed(header(None))
    bare = msgspec.structs.replace(whole.leaves[0], chain=())
    unknown = msgspec.structs.replace(whole.leaves[0], chain=(CodecStep("unheard-of", {}),))
    for forged in (
        msgspec.structs.replace(whole, leaves=(bare, *whole.leaves[1:])),
        msgspec.structs.replace(whole, leaves=(unknown, *whole.leaves[1:])),
        msgspec.structs.replace(whole, leaves=whole.leaves[:-1]),
        msgspec.structs.replace(whole, tree=header(None).tree),
    ):
        assert not sealed(forged)


def test_a_frame_in_the_clear_is_a_miss_for_a_cache_that_encrypts(tmp_path: Path) -> None:
    CALLS.clear()
    for chain, expected in (("raw", 1), (Chain(AESGCM(KEY)), 2), (Chain(AESGCM(KEY)), 2)):
        with Cache(tmp_path / "cache", memory="1MiB", disk="4MiB", codec=chain) as cache:
            assert cache.wrap(embed, modality="text", signature="v1")("words")[0] == expected
