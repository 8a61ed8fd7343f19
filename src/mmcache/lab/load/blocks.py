"""What requests are about: blocks whose every byte follows from their number and version, so that a reader knows it.

A block is its number and version, 16 bytes, and a slice of one long row of random bytes that begins where both say.
So a block of another key, an older one, and one put together from two are all told from what should be there, for the
price of a comparison.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from functools import cache

import msgspec
import numpy as np
from blake3 import blake3

from mmcache.codecs.pipeline import freeze
from mmcache.lab.traces.encoder_costs import CURVES, MODALITIES, MODALITY_SHARES, SCALE_SHARES, SCALES
from mmcache.model.errors import SettingsError
from mmcache.model.frame import Frame, FrameHeader
from mmcache.model.key import Key
from mmcache.model.signature import Signature
from mmcache.settings import parse_bytes

_HEAD = struct.Struct("<QQ")
SMALLEST, LARGEST = _HEAD.size, 16 << 20
_STARTS = 1 << 22
"""So many places to begin at."""
_LONG = 16 << 10
"""From so many bytes on numpy compares faster than Python copies."""
INT4_SHARE = 0.27
"""Of FP16 bytes, as the table `codec` measures it."""
MIX = "mix"
TENANT, MODEL = "load", "load-1"


def size_of(name: str) -> Mapping[int, float]:
    """What sizes blocks have, with their shares: `mix`, or a fixed one such as `4KiB`. Raises `SettingsError`.

    `mix`: what this package's encoders give for text (raw, 1.5 KB), pictures, sound and video (INT4: 50 KB–1.6 MB).
    """
    if name == MIX:
        found: dict[int, float] = {}
        for kind, share in zip(MODALITIES, MODALITY_SHARES, strict=True):
            for scale, part in zip(range(len(SCALES)), SCALE_SHARES, strict=True):
                raw = CURVES[kind].bytes[scale]
                size = raw if kind == "text" else round(raw * INT4_SHARE)
                found[size] = found.get(size, 0.0) + share * part
        return found
    size = parse_bytes(name)
    if not SMALLEST <= size <= LARGEST:
        raise SettingsError(f"a block has {SMALLEST} bytes to {LARGEST >> 20} MiB, not {name}")
    return {size: 1.0}


def mean_bytes(sizes: Mapping[int, float]) -> float:
    """Of a block."""
    return sum(size * share for size, share in sizes.items())


class Blocks:
    """All blocks of one load."""

    def __init__(self, sizes: Mapping[int, float], seed: int, run: int = 0) -> None:
        """sizes: see `size_of`. run: loads of another number have other keys."""
        self._sizes = np.array(sorted(sizes))
        self._shares = np.cumsum([sizes[size] for size in sorted(sizes)])
        self._seed = seed
        self._row = np.random.default_rng(seed).bytes(_STARTS + max(sizes))
        self._array = np.frombuffer(self._row, np.uint8)
        name = b"mmcache load %d" % seed + (b" %d" % run if run else b"")
        self._scope = blake3(name).digest(length=16)
        self._headers: dict[int, FrameHeader] = {}

    @cache  # noqa: B019 - one object a process
    def key(self, number: int) -> Key:
        """Of a block."""
        return Key(self._scope, blake3(b"%d" % number).digest(length=16))

    @cache  # noqa: B019
    def size(self, number: int) -> int:
        """The size of a block, the same for all its versions."""
        drawn = _mixed(number, 0) / 2**64 * self._shares[-1]
        return int(self._sizes[min(int(np.searchsorted(self._shares, drawn, side="right")), len(self._sizes) - 1)])

    def payload(self, number: int, version: int) -> bytes:
        """All of it."""
        start = _mixed(number, version) % _STARTS
        return _HEAD.pack(number, version) + self._row[start : start + self.size(number) - _HEAD.size]

    def frame(self, number: int, version: int) -> Frame:
        """As it is stored."""
        size = self.size(number)
        header = self._headers.get(size)
        if header is None:
            header = self._headers[size] = freeze(
                bytes(size), key=self.key(number), signature=Signature(), modality="image", tenant=TENANT,
                namespace=TENANT, cost=0.0, created=0.0,
            ).header  # fmt: skip
        named = msgspec.structs.replace(header, key=bytes(self.key(number)), created=time.time())
        return Frame.seal(named, self.payload(number, version))

    def version(self, number: int, payload: memoryview | bytes) -> int | None:
        """Which version of this block that is, every byte of it; None = none ever was like that."""
        size = self.size(number)
        if len(payload) != size:
            return None
        told, version = _HEAD.unpack_from(payload)
        if told != number:
            return None
        start = _mixed(number, version) % _STARTS
        end = start + size - _HEAD.size
        if size < _LONG:
            same = bytes(payload[_HEAD.size :]) == self._row[start:end]
        else:
            same = np.array_equal(np.frombuffer(payload, np.uint8, offset=_HEAD.size), self._array[start:end])
        return int(version) if same else None


def _mixed(number: int, version: int) -> int:
    """64 bits that differ wherever one of both does (the finaliser of splitmix64, Steele et al. 2014)."""
    mixed = (number * 0x9E3779B97F4A7C15 + version * 0xD1B54A32D192ED03 + 0x632BE59BD9B4E019) & (2**64 - 1)
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
    return mixed ^ (mixed >> 31)
