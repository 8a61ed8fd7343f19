"""Snapshots: many blocks in one safetensors file, so that a cold start begins warm.

Layout. Every leaf that is stored as plain array bytes is a tensor of its real dtype and shape, named `KEY/INDEX`; any
safetensors reader can therefore use a snapshot as a feature file, without mmcache. An encoded leaf (INT4, zstd…) is a
`U8` tensor of its encoded bytes. The last tensor, `mmcache.index`, is a msgpack array of entries: each block's frame
header, checksum and deadline, which is what rebuilds the frame bit for bit.

Trust. Keys are made with the secret of a cache's realms and match only in a cache that has it. So the metadata carries
the secret's fingerprint, and `load` into a cache with another one is an error and not a file of silent misses. The
index holds the BLAKE3 of each payload and is itself sealed with a BLAKE3 keyed by the secret: nobody without the
secret can forge or alter a block.

Memory. Both ways stream batch by batch; only the index and the tensor directory (100 MB at most, the format's own
limit) are held at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

import msgspec
from blake3 import blake3

from mmcache.model.block import ArraySpec
from mmcache.model.clock import Clock, SystemClock
from mmcache.model.errors import SnapshotError
from mmcache.model.event import RefuseReason
from mmcache.model.frame import Frame, FrameHeader, LeafHeader, aligned
from mmcache.model.key import Key
from mmcache.tiers.base import Deadline, Found, Held, Tier

Progress = Callable[[str, int, int], None]
"""`progress(what, done, total)`, in blocks."""

SNAPSHOT_VERSION = 1
INDEX = "mmcache.index"
MAX_DIRECTORY_BYTES = 100_000_000
"""safetensors readers refuse a longer directory of tensors."""
BATCH_BLOCKS = 64
BATCH_BYTES = 32 << 20

_DTYPES = {
    "|b1": "BOOL", "|u1": "U8", "|i1": "I8", "<u2": "U16", "<i2": "I16", "<f2": "F16", "<u4": "U32", "<i4": "I32",
    "<f4": "F32", "<u8": "U64", "<i8": "I64", "<f8": "F64",
}  # fmt: skip


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One block of the index."""

    header: FrameHeader
    checksum: int
    """xxh3-64 of the payload, as in its frame."""
    digest: bytes
    """16 bytes: BLAKE3 of the payload."""
    length: int
    """Payload bytes, padding between leaves included."""
    deadline: float | None
    """Unix seconds after which it must not be served; None = never."""


@dataclass(frozen=True)
class Manifest:
    """What a snapshot says of itself."""

    version: int
    realm: str
    """Fingerprint of the secret that its keys were made with."""
    blocks: int
    payload_bytes: int
    models: tuple[str, ...]
    signatures: tuple[str, ...]
    """Hex digests."""
    created: float
    """Unix seconds."""


class _Versioned(msgspec.Struct):
    """Read before the rest of a manifest, which a newer version may have changed."""

    version: int


@dataclass(frozen=True)
class Loaded:
    """What `load` did."""

    blocks: int
    expired: int
    """Blocks whose deadline had passed; left out."""
    refused: dict[str, int]
    """`RefuseReason` → blocks that the tier did not take."""


def fingerprint(secret: bytes) -> str:
    """What a snapshot shows of the secret: 16 hex digits that identify it and give nothing away."""
    return _derived(secret, "mmcache snapshot realm fingerprint v1").hex()[:16]


def _derived(secret: bytes, context: str) -> bytes:
    return blake3(secret, derive_key_context=context).digest()


def save(
    tier: Tier,
    path: str | os.PathLike[str],
    *,
    secret: bytes,
    match: Callable[[Held], bool] | None = None,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Write the blocks of `tier` that `match` accepts (default: all) to `path`, replacing it at once when complete.

    Blocks that leave the tier meanwhile are left out. Raises `SnapshotError` when the file cannot be written or would
    be too large for the format, `TierError` from the tier.
    """
    target, clock = Path(path), clock or SystemClock()
    tier.flush()
    keys = list(dict.fromkeys(held.key for held in tier.scan() if match is None or match(held)))
    try:
        with _replacing(target) as page, tempfile.TemporaryFile(dir=target.parent) as data:
            writer = _Writer(data, clock)
            for done, batch in _batches(keys):
                for found in tier.get(batch):
                    if isinstance(found, Found):
                        writer.add(found)
                if progress is not None:
                    progress("saving", done, len(keys))
            return writer.finish(page, secret)
    except OSError as error:
        raise SnapshotError(f"cannot write {target}: {error.strerror}; choose another path or free space") from error


def manifest(path: str | os.PathLike[str]) -> Manifest:
    """What the snapshot at `path` says of itself; nothing of it is verified. Raises `SnapshotError`."""
    return _Reader(Path(path)).manifest


def load(
    path: str | os.PathLike[str],
    tier: Tier,
    *,
    secret: bytes,
    match: Callable[[FrameHeader], bool] | None = None,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> Loaded:
    """Put the blocks of a snapshot into `tier`; a block that is there already is replaced.

    Raises `SnapshotError` before anything is put when the file is not a whole snapshot, is of a newer version, was
    made with another secret, or its index was altered; and at the first block whose bytes are not the saved ones
    (the blocks before it are whole and stay).
    """
    reader, clock = _Reader(Path(path)), clock or SystemClock()
    entries = reader.entries(secret)
    if match is not None:
        entries = [entry for entry in entries if match(entry.header)]
    now, wall = clock.monotonic(), clock.wall()
    expired, refused, accepted = 0, dict[str, int](), 0
    frames: list[Frame] = []
    deadlines: list[Deadline] = []

    def put() -> None:
        nonlocal accepted
        for reason in tier.put(frames, deadlines):
            if isinstance(reason, RefuseReason):
                refused[reason.value] = refused.get(reason.value, 0) + 1
            else:
                accepted += 1
        frames.clear()
        deadlines.clear()

    for done, entry in enumerate(entries, start=1):
        if entry.deadline is not None and entry.deadline <= wall:
            expired += 1
        else:
            frames.append(reader.frame(entry))
            deadlines.append(None if entry.deadline is None else now + entry.deadline - wall)
        if len(frames) == BATCH_BLOCKS or sum(frame.size for frame in frames) > BATCH_BYTES or done == len(entries):
            put()
            if progress is not None:
                progress("loading", done, len(entries))
    tier.flush()
    return Loaded(accepted, expired, refused)


def _batches(keys: Iterable[Key]) -> Iterator[tuple[int, list[Key]]]:
    source, done = iter(keys), 0
    while batch := list(islice(source, BATCH_BLOCKS)):
        done += len(batch)
        yield done, batch


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[IO[bytes]]:
    """A new private file beside `target` that takes its place, durably, if the block ends well."""
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with open(descriptor, "wb") as page:
            yield page
            page.flush()
            os.fsync(page.fileno())
        os.replace(name, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _tensor_of(leaf: LeafHeader) -> tuple[str, list[int]]:
    """The tensor dtype and shape that shows `leaf` best."""
    dtype = _DTYPES.get(leaf.dtype)
    plain = all(step.name == "raw" for step in leaf.chain)
    if dtype is not None and plain and ArraySpec(leaf.dtype, leaf.shape).nbytes == leaf.length:
        return dtype, list(leaf.shape)
    return "U8", [leaf.length]


def _assembled(length: int, leaves: Iterable[tuple[LeafHeader, Any]]) -> bytearray:
    """A payload of `length` bytes: leaves at their offsets, zeros between."""
    payload = bytearray(length)
    for leaf, data in leaves:
        payload[leaf.offset : leaf.offset + leaf.length] = data
    return payload


class _Writer:
    """Collects tensors in a scratch file, since the directory precedes the data and its size is known last."""

    def __init__(self, data: IO[bytes], clock: Clock) -> None:
        self._data, self._clock = data, clock
        self._directory: dict[str, Any] = {}
        self._directory_bytes = 0
        self._entries: list[Entry] = []
        self._payload_bytes = 0

    def add(self, found: Found) -> None:
        frame, payload = found.frame, memoryview(found.frame.payload).cast("B")
        views = [(leaf, payload[leaf.offset : leaf.offset + leaf.length]) for leaf in frame.header.leaves]
        if not frame.intact() or _assembled(frame.size, views) != payload:
            raise SnapshotError(f"block {frame.key} is not whole; run `mmcache verify`, then save again")
        for index, (leaf, view) in enumerate(views):
            self._tensor(f"{frame.key}/{index}", *_tensor_of(leaf), view)
        left = None if found.deadline is None else found.deadline - self._clock.monotonic() + self._clock.wall()
        digest = blake3(payload).digest(length=16)
        self._entries.append(Entry(frame.header, frame.checksum, digest, frame.size, left))
        self._payload_bytes += frame.size

    def _tensor(self, name: str, dtype: str, shape: list[int], view: memoryview | bytes) -> None:
        start = self._data.tell()
        self._data.write(view)
        line = {"dtype": dtype, "shape": shape, "data_offsets": [start, self._data.tell()]}
        self._directory_bytes += len(json.dumps({name: line}))
        if self._directory_bytes > MAX_DIRECTORY_BYTES:
            raise SnapshotError("too many blocks for one file; save fewer at a time with --tenant or --model")
        self._directory[name] = line

    def finish(self, page: IO[bytes], secret: bytes) -> Manifest:
        index = msgspec.msgpack.encode(self._entries)
        self._tensor(INDEX, "U8", [len(index)], index)
        found = Manifest(
            version=SNAPSHOT_VERSION,
            realm=fingerprint(secret),
            blocks=len(self._entries),
            payload_bytes=self._payload_bytes,
            models=tuple(sorted({entry.header.model for entry in self._entries})),
            signatures=tuple(sorted({entry.header.signature.hex() for entry in self._entries})),
            created=self._clock.wall(),
        )
        described = msgspec.json.encode(found)
        metadata = {"format": "mmcache", "mmcache": described.decode(), "seal": _seal(secret, described, index)}
        directory = json.dumps({"__metadata__": metadata, **self._directory}, separators=(",", ":")).encode()
        directory = directory.ljust((len(directory) + 7) & -8)
        page.write(len(directory).to_bytes(8, "little") + directory)
        self._data.seek(0)
        shutil.copyfileobj(self._data, page, 1 << 20)
        return found


def _seal(secret: bytes, described: bytes, index: bytes) -> str:
    hasher = blake3(key=_derived(secret, "mmcache snapshot seal v1"))
    return hasher.update(len(described).to_bytes(8, "little")).update(described).update(index).hexdigest()


class _Reader:
    """Reads through the safetensors library, which maps the file and checks its directory."""

    def __init__(self, path: Path) -> None:
        from safetensors import SafetensorError, safe_open

        self._path, self._damage = path, SafetensorError
        try:
            self._file = cast(Any, safe_open(path, framework="numpy"))
            self._metadata: dict[str, str] = self._file.metadata() or {}
        except FileNotFoundError as error:
            raise SnapshotError(f"there is no snapshot at {path}") from error
        except (OSError, SafetensorError) as error:
            raise SnapshotError(f"{path} is not a whole safetensors file: {error}; get a fresh copy") from error
        try:
            described = self._metadata["mmcache"]
            version = msgspec.json.decode(described, type=_Versioned).version
            if version > SNAPSHOT_VERSION:
                raise SnapshotError(
                    f"{path} has snapshot format {version}, newer than {SNAPSHOT_VERSION}; upgrade mmcache"
                )
            self.manifest = msgspec.json.decode(described, type=Manifest)
        except (KeyError, msgspec.MsgspecError) as error:
            raise SnapshotError(f"{path} is a safetensors file, but no snapshot of mmcache") from error

    def _bytes(self, name: str) -> memoryview:
        import numpy as np

        try:
            if self._file.get_slice(name).get_dtype() not in _DTYPES.values():  # numpy lacks some
                raise SnapshotError(f"the tensor {name} of {self._path} has a dtype that mmcache never writes")
            array = self._file.get_tensor(name)
        except self._damage as error:
            raise SnapshotError(f"{self._path} lacks the tensor {name}; get a fresh copy") from error
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data

    def entries(self, secret: bytes) -> list[Entry]:
        """The index, once its seal is checked."""
        needed, ours = self.manifest.realm, fingerprint(secret)
        if needed != ours:
            raise SnapshotError(
                f"{self._path} was saved with the realm secret {needed}, this cache has {ours}, so none of its keys "
                "could match; load it into a cache with a copy of that secret"
            )
        index = bytes(self._bytes(INDEX))
        if self._metadata.get("seal") != _seal(secret, self._metadata["mmcache"].encode(), index):
            raise SnapshotError(f"the index of {self._path} was altered or damaged; get a fresh copy")
        try:
            return msgspec.msgpack.decode(index, type=list[Entry])
        except msgspec.MsgspecError as error:
            raise SnapshotError(f"the index of {self._path} does not fit its schema; upgrade mmcache") from error

    def frame(self, entry: Entry) -> Frame:
        """One block, rebuilt and compared with the digest that the sealed index holds."""
        key = Key.from_bytes(entry.header.key)
        parts = [(leaf, self._bytes(f"{key}/{number}")) for number, leaf in enumerate(entry.header.leaves)]
        end = max((aligned(leaf.offset + leaf.length) for leaf, _ in parts), default=0)
        if any(data.nbytes != leaf.length for leaf, data in parts) or entry.length > aligned(end):
            raise SnapshotError(f"block {key} in {self._path} has other sizes than its index says; get a fresh copy")
        payload = _assembled(entry.length, parts)
        if blake3(payload).digest(length=16) != entry.digest:
            raise SnapshotError(f"block {key} in {self._path} is damaged; get a fresh copy")
        return Frame(entry.header, memoryview(payload).toreadonly(), entry.checksum)
