"""`DiskTier`: frames in segment files, an index in LMDB, shared by all processes of the machine.

A hit costs one pooled read transaction and a dictionary look: frames that this process has parsed and verified before
are kept as they are (views of the mapped file, no bytes), keyed by their index entry, so that a replaced or dropped
block is noticed by every process at its next lookup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from mmcache.model.clock import Clock, SystemClock
from mmcache.model.errors import CorruptFrameError, FormatVersionError, InvalidInputError, TierClosedError, TierError
from mmcache.model.event import Event, Failed, MissReason, Refused, RefuseReason
from mmcache.model.frame import Frame
from mmcache.model.key import PART_BYTES, Key
from mmcache.settings import DiskSettings, Tenant
from mmcache.tiers.base import Claims, Deadline, Found, Held, TierStats
from mmcache.tiers.disk.audit import EraseReport, VerifyReport, erase, verify
from mmcache.tiers.disk.batch import Outdated
from mmcache.tiers.disk.claims import FileClaims
from mmcache.tiers.disk.eviction import Order
from mmcache.tiers.disk.index import Index
from mmcache.tiers.disk.layout import Layout
from mmcache.tiers.disk.ledger import usages
from mmcache.tiers.disk.memo import DiskMemo, IndexMap, Signatures
from mmcache.tiers.disk.record import Record
from mmcache.tiers.disk.segments import Mapping as MappedFile
from mmcache.tiers.disk.writing import Writer

MEMO_ENTRIES = 1 << 20
SIGNATURE_ENTRIES = 1 << 18
_PARSED = 4096
"""Frames kept parsed."""
_MAPPED = 192
"""Segments kept mapped; each takes a file descriptor."""
_TOUCHES = 2048


def ignore(event: Event) -> None:
    """The default listener."""


class DiskTier:
    """`Tier` over a local folder."""

    name = "disk"

    def __init__(
        self,
        root: Path,
        settings: DiskSettings = DiskSettings(),  # noqa: B008  (frozen)
        *,
        clock: Clock = SystemClock(),  # noqa: B008  (stateless)
        emit: Callable[[Event], None] = ignore,
        policy_order: Order | None = None,
        outdated: Outdated = tuple,
        tenants: Mapping[str, Tenant] | None = None,
    ) -> None:
        """Open or create `root` (mode 0700; `~` is expanded).

        `outdated` names keys that were invalidated since the frames of a running `put` were handed over (None = perhaps
        all): they are not stored.
        `tenants`: whose quota counts here too, for the frames that the index points to. Where one is full, the tenant's
        own block that was unused for longest goes. Whose class weighs when space is short (see `eviction`). Other
        processes may know of other tenants, and keep those to their quotas.
        `policy_order` may rank the blocks of candidate segments, the first to go first; without it recency and cost per
        byte decide. Raises `FormatVersionError` for a folder of a newer mmcache, `TierError` for one that is unusable;
        a folder that cannot be written serves what it holds and refuses puts.
        """
        self._layout = Layout(Path(root))
        self._settings, self._clock, self._emit = settings, clock, emit
        self._monotonic = clock.monotonic
        read_only = self._layout.read_only
        self._void = read_only and self._layout.current() is None
        self._index = Index.of(self._layout, settings.index_map_bytes, lambda text: self._emit(Failed("disk", text)))
        memo = IndexMap(self._index, lambda tables: tables.memo, MEMO_ENTRIES, read_only=read_only)
        notes = IndexMap(self._index, lambda tables: tables.signatures, SIGNATURE_ENTRIES, read_only=read_only)
        self.memo = DiskMemo(memo)
        self.signatures = Signatures(notes)
        self._claims = FileClaims(self._layout.claims, usable=not read_only)
        self.claims: Claims = self._claims
        self._mappings: dict[int, MappedFile] = {}
        self._parsed: dict[Key, tuple[bytes, Found]] = {}
        self._writer = Writer(
            self._layout, self._index, settings, clock, emit, self._unmap, policy_order, (memo, notes), outdated,
            tenants or {},
        )  # fmt: skip
        self._touched = self._writer.touched
        self._closed = False
        for text in self._layout.set_aside:
            emit(Failed("disk", f"an older or unreadable format was set aside as {text}"))
        if read_only:
            emit(Failed("disk", f"{self._layout.root} cannot be written: it is served, and puts are refused"))
        else:
            try:
                self._writer.start()
            except TierError:
                self._index.release()
                raise

    # reading

    def get(self, keys: Sequence[Key]) -> list[Found | MissReason]:
        """See `Tier.get`. Payloads are read-only views, 64-byte aligned, valid for as long as they are held."""
        if self._closed:
            raise TierClosedError("the disk tier was closed")
        try:
            if len(keys) == 1:
                raws = [self._index.look(keys[0])]
                parsed = self._parsed.get(keys[0])
                if parsed is not None and parsed[0] == raws[0]:
                    deadline = parsed[1].deadline
                    if deadline is None or deadline > self._monotonic():
                        self._touched.add(keys[0])
                        if len(self._touched) > _TOUCHES:
                            self._note_uses()
                        return [parsed[1]]
            else:
                raws = self._index.lookup(keys)
            found = [self._found(key, raw) for key, raw in zip(keys, raws, strict=True)]
        except TierClosedError:
            raise
        except TierError as error:
            if not self._void:
                self._emit(Failed("disk", str(error)))
            return [MissReason.ABSENT if self._void else MissReason.TIER_DOWN] * len(keys)
        if len(self._touched) > _TOUCHES or len(self._writer.ended) > _TOUCHES:
            self._note_uses()
        return found

    def _found(self, key: Key, raw: bytes | None) -> Found | MissReason:
        if raw is None:
            return MissReason.ABSENT
        parsed = self._parsed.get(key)
        entry = parsed[1] if parsed is not None and parsed[0] == raw else self._load(key, raw)
        if isinstance(entry, Found):
            if entry.deadline is not None and entry.deadline <= self._monotonic():
                self._writer.ended[key] = raw
                self._parsed.pop(key, None)
                return MissReason.EXPIRED
            self._touched.add(key)
        return entry

    def _load(self, key: Key, raw: bytes, *, again: bool = True) -> Found | MissReason:
        """Parse and verify a frame that this process has not seen yet."""
        try:
            record = Record.decode(raw)
            mapping = self._mapping(record.segment)
            end = record.offset + record.length
            if end > mapping.view.nbytes:
                raise CorruptFrameError("a frame lies outside its segment")
            frame = Frame.parse(mapping.view[record.offset : end])
            if frame.header.key != key:
                raise CorruptFrameError("the index points to another key's frame")
            if record.offset not in mapping.verified:
                if not frame.intact():
                    raise CorruptFrameError("a payload fails its checksum")
                mapping.verified.add(record.offset)
        except FileNotFoundError:
            # Evicted between our look at the index and at the file; it may have been copied forward.
            fresh = self._index.lookup([key])[0] if again else None
            if fresh is not None and fresh != raw:
                return self._load(key, fresh, again=False)
            self._writer.ended[key] = raw
            return MissReason.ABSENT
        except (CorruptFrameError, FormatVersionError) as error:
            self._emit(Failed("disk", str(error), key))
            self._discard(key, raw)
            return MissReason.CORRUPT
        except OSError as error:
            self._emit(Failed("disk", f"cannot read a segment: {error}", key))
            return MissReason.TIER_DOWN
        found = Found(frame, record.deadline(self._clock), verified=True)
        if len(self._parsed) >= _PARSED:
            for old in list(self._parsed)[: _PARSED // 8]:
                self._parsed.pop(old, None)
        self._parsed[key] = (raw, found)
        return found

    def _mapping(self, number: int) -> MappedFile:
        mapping = self._mappings.get(number)
        if mapping is None:
            if len(self._mappings) >= _MAPPED:
                self._unmap()
            mapping = MappedFile(self._layout.segment(number))
            self._mappings[number] = mapping
        return mapping

    def _unmap(self) -> None:
        """Let go of segments that are gone (their space is free only then) and of the oldest beyond the bound."""
        numbers = list(self._mappings)
        gone = {number for number in numbers if not self._layout.segment(number).exists()}
        if len(numbers) - len(gone) >= _MAPPED:
            gone.update(numbers[: _MAPPED // 8])
        for number in gone:
            self._mappings.pop(number, None)
        if gone:
            for key, (raw, _) in list(self._parsed.items()):
                if Record.decode(raw).segment in gone:
                    self._parsed.pop(key, None)

    def _discard(self, key: Key, raw: bytes) -> None:
        self._parsed.pop(key, None)
        if not self._layout.read_only:
            try:
                self._writer.drop([key], only=raw)
            except TierError as error:
                self._emit(Failed("disk", str(error), key))

    def _note_uses(self) -> None:
        self._unmap()
        if self._layout.read_only:
            self._touched.clear()
            self._writer.ended.clear()
        else:
            self._writer.note_uses()

    def scan(self) -> Iterator[Held]:
        """See `Tier.scan`."""
        self._check_open()
        if self._void:
            return
        for key, raw in self._index.entries(lambda tables: tables.frames):
            try:
                yield Record.decode(raw).held(Key.from_bytes(key), self._clock)
            except (CorruptFrameError, InvalidInputError) as error:
                self._emit(Failed("disk", str(error), Key.from_bytes(key) if len(key) == 3 * PART_BYTES else None))

    # writing

    def put(self, frames: Sequence[Frame], deadlines: Sequence[Deadline]) -> list[RefuseReason | None]:
        """See `Tier.put`. All index entries of one call become visible together."""
        self._check_open()
        if self._layout.read_only:
            for frame in frames:
                self._emit(Refused(frame.key, self.name, RefuseReason.READ_ONLY))
            return [RefuseReason.READ_ONLY] * len(frames)
        return self._writer.put(frames, deadlines)

    def drop(self, keys: Iterable[Key]) -> int:
        """See `Tier.drop`. Raises `TierError` when the folder cannot be written: a drop must not be lost."""
        self._check_open()
        if self._void:
            return 0
        if self._layout.read_only:
            raise TierError(f"{self._layout.root} cannot be written, so nothing can be dropped from it")
        return self._writer.drop(keys)

    def flush(self) -> None:
        """Segments, then the index, are on the disk when this returns. Raises `TierError`."""
        self._check_open()
        if not self._layout.read_only:
            self._unmap()
            self._writer.flush()

    def stats(self) -> TierStats:
        """See `Tier.stats`; `bytes` is what the segment files take."""
        self._check_open()
        if self._void:
            return TierStats(0, 0, self._settings.limit_bytes, {})
        self._unmap()
        blocks, segments = self._index.read(
            lambda tables: (tables.txn.stat(tables.frames)["entries"], dict(usages(tables)))
        )
        detail: dict[str, int | float | str] = {
            "segments": len(segments),
            "live_bytes": sum(usage.live for usage in segments.values()),
            "mapped_segments": len(self._mappings),
            "index_map_bytes": self._index.map_size(),
        }
        held = sum(usage.allocated for usage in segments.values())
        return TierStats(blocks, held, self._settings.limit_bytes, detail)

    # checking and erasing

    def verify(self, progress: Callable[[str, int, int], None] | None = None) -> VerifyReport:
        """Read every frame and compare index and segments. Changes nothing. `progress(what, done, total)`."""
        self._check_open()
        return VerifyReport() if self._void else verify(self._index, self._layout, progress)

    def erase(self, match: Callable[[Held], bool]) -> EraseReport:
        """Remove matching blocks so that no file of the folder holds their bytes, keys or names any more.

        Blocks that share a segment with them are copied forward. Views that a process still holds stay valid until it
        lets go. Raises `TierError` when the folder cannot be written.
        """
        self._check_open()
        if self._layout.read_only:
            raise TierError(f"{self._layout.root} cannot be written, so nothing can be erased from it")
        report = erase(self._index, self._layout, self._writer, self._clock, match)
        self._unmap()
        return report

    # life

    def _check_open(self) -> None:
        if self._closed:
            raise TierClosedError("the disk tier was closed")

    def close(self) -> None:
        """Flush and release. Views that were handed out stay valid."""
        if self._closed:
            return
        self._closed = True
        self._parsed.clear()
        self._mappings.clear()
        self._claims.close()
        if self._layout.read_only:
            self._index.release()
        else:
            self._writer.close()
