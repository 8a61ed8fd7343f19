"""`Frame`: a block at rest. Self-describing, versioned, checksummed; never pickle.

Layout (little endian), every part 64-byte aligned so that payloads can be viewed in place:

    prelude  64 bytes: magic, format version, header length, header xxh3-64, payload length, payload xxh3-64
    header   msgpack of `FrameHeader`, zero-padded to 64
    payload  leaf bytes; each leaf starts at a multiple of 64

Sizes are checked against `MAX_*` before anything is allocated.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import msgspec
import xxhash

from mmcache.model.errors import CorruptFrameError, FormatVersionError
from mmcache.model.key import Key

FRAME_VERSION = 1
MAGIC = b"MMCF"
ALIGNMENT = 64
MAX_HEADER_BYTES = 1 << 20
MAX_PAYLOAD_BYTES = 1 << 40

_PRELUDE = struct.Struct("<4sHHIIQQQ")
PRELUDE_BYTES = 64

Buffer = bytes | bytearray | memoryview


def aligned(length: int) -> int:
    """The next multiple of 64."""
    return (length + ALIGNMENT - 1) & -ALIGNMENT


def length_at_rest(prelude: Buffer) -> int | None:
    """Bytes of the whole frame that begins with these 64; None when they begin no frame."""
    if len(prelude) < PRELUDE_BYTES or prelude[:4] != MAGIC:
        return None
    _, _, _, header_bytes, _, _, payload_bytes, _ = _PRELUDE.unpack_from(prelude)
    return int(PRELUDE_BYTES + aligned(header_bytes) + payload_bytes)


class CodecStep(msgspec.Struct, frozen=True, array_like=True):
    """One codec of a chain, by registered name, with its parameters."""

    name: str
    params: dict[str, bool | int | float | str]


class LeafHeader(msgspec.Struct, frozen=True, array_like=True):
    """One array of the value: what it was, how it is encoded, where its bytes are."""

    kind: str
    """What the caller gets back: `numpy`, `scalar`, `torch` (`torch.bfloat16`…), `bytes`, `str` or `list`; `tree` is an
    encrypted skeleton."""
    dtype: str
    shape: tuple[int, ...]
    chain: tuple[CodecStep, ...]
    offset: int
    """Bytes from the payload's start; a multiple of 64."""
    length: int
    """Encoded bytes."""


class FrameHeader(msgspec.Struct, frozen=True):
    """All that is known of a block without touching its payload."""

    key: bytes
    signature: bytes
    modality: str
    tenant: str
    namespace: str
    model: str
    """Human-readable model version, for `purge --model`."""
    created: float
    """Unix seconds."""
    cost: float
    """Seconds of compute."""
    tree: msgspec.Raw
    """msgpack skeleton of the value; see `codecs.structure`."""
    leaves: tuple[LeafHeader, ...]


_encode_header = msgspec.msgpack.Encoder().encode
_decode_header = msgspec.msgpack.Decoder(FrameHeader).decode


@dataclass(frozen=True, slots=True)
class Frame:
    """Header, payload, and the payload's xxh3-64. `payload` may be a view of a mapped file."""

    header: FrameHeader
    payload: Buffer
    checksum: int

    @staticmethod
    def seal(header: FrameHeader, payload: Buffer) -> Frame:
        """A new frame over a finished payload; computes its checksum."""
        return Frame(header, payload, xxhash.xxh3_64_intdigest(payload))

    @property
    def key(self) -> Key:
        """The key that the header declares."""
        return Key.from_bytes(self.header.key)

    @property
    def size(self) -> int:
        """Payload bytes."""
        return memoryview(self.payload).nbytes

    def intact(self) -> bool:
        """Whether the payload still has the checksum it was sealed with. Reads every byte."""
        return xxhash.xxh3_64_intdigest(self.payload) == self.checksum

    def prefix(self) -> bytes:
        """Prelude and padded header: the bytes that precede the payload at rest."""
        header = _encode_header(self.header)
        prelude = _PRELUDE.pack(
            MAGIC, FRAME_VERSION, 0, len(header), 0, xxhash.xxh3_64_intdigest(header), self.size, self.checksum
        )
        return prelude.ljust(PRELUDE_BYTES, b"\0") + header.ljust(aligned(len(header)), b"\0")

    def to_bytes(self) -> bytes:
        """The whole frame as one string."""
        return self.prefix() + bytes(self.payload)

    @staticmethod
    def parse(buffer: Buffer) -> Frame:
        """Read a frame from `buffer` without copying or reading its payload (see `intact`).

        Raises `CorruptFrameError` when anything is out of bounds, `FormatVersionError` for a newer format.
        """
        view = memoryview(buffer)
        if view.nbytes < PRELUDE_BYTES:
            raise CorruptFrameError(f"a frame has at least {PRELUDE_BYTES} bytes, got {view.nbytes}")
        magic, version, _, header_bytes, _, header_sum, payload_bytes, payload_sum = _PRELUDE.unpack_from(view)
        if magic != MAGIC:
            raise CorruptFrameError("not a frame: wrong magic")
        if version > FRAME_VERSION:
            raise FormatVersionError(f"frame format {version} is newer than {FRAME_VERSION}; upgrade mmcache")
        start = PRELUDE_BYTES + aligned(header_bytes)
        if header_bytes > MAX_HEADER_BYTES or payload_bytes > MAX_PAYLOAD_BYTES:
            raise CorruptFrameError("a frame declares more bytes than any frame may have")
        if start + payload_bytes > view.nbytes:
            raise CorruptFrameError("a frame is cut off")
        raw = view[PRELUDE_BYTES : PRELUDE_BYTES + header_bytes]
        if xxhash.xxh3_64_intdigest(raw) != header_sum:
            raise CorruptFrameError("a frame's header fails its checksum")
        try:
            header = _decode_header(raw)
        except msgspec.MsgspecError as error:
            raise CorruptFrameError("a frame's header does not fit its schema") from error
        if len(header.key) != 48 or len(header.signature) != 16:
            raise CorruptFrameError("a frame's key or signature has the wrong length")
        for leaf in header.leaves:
            if (
                leaf.offset < 0
                or leaf.length < 0
                or leaf.offset + leaf.length > payload_bytes
                or min(leaf.shape, default=0) < 0
            ):
                raise CorruptFrameError("a frame's leaf lies outside its payload")
        return Frame(header, view[start : start + payload_bytes], payload_sum)
