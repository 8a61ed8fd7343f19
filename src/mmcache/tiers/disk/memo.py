"""Two small bounded maps beside the blocks: remembered digests, and which signatures a content was seen under.

Writes wait in memory until the tier's next write transaction, a few hundred of them, or `close`; a process that dies
forgets them, which costs a recomputation and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from mmcache.model.errors import TierError
from mmcache.tiers.disk.index import Database, Index, Tables

MAX_KEY_BYTES = 511
"""LMDB's limit; longer keys are not remembered."""
MAX_VALUE_BYTES = 4096
_WAITING = 256
_SPARE = 64
_SIGNATURE_BYTES = 16
_SIGNATURES = 16


class IndexMap:
    """A bounded table of the index. A full one loses some entries at a random place: of digests, any are as good."""

    def __init__(self, index: Index, table: Callable[[Tables], Database], capacity: int, *, read_only: bool) -> None:
        self._index, self._table, self._capacity, self._read_only = index, table, capacity, read_only
        self.waiting: dict[bytes, bytes] = {}

    def look(self, key: bytes) -> bytes | None:
        """The value; None also when the index cannot be read."""
        value = self.waiting.get(key)
        if value is not None or not 0 < len(key) <= MAX_KEY_BYTES:
            return value
        try:
            found: bytes | None = self._index.read(lambda tables: tables.txn.get(key, db=self._table(tables)))
        except TierError:
            return None
        return found

    def keep(self, key: bytes, value: bytes) -> None:
        """Remember it, if it has a permitted size."""
        if not 0 < len(key) <= MAX_KEY_BYTES or len(value) > MAX_VALUE_BYTES or self._read_only:
            return
        self.waiting[key] = value
        if len(self.waiting) >= _WAITING:
            self.flush()

    def flush(self) -> None:
        """Write what waits; a failing index forgets it."""
        entries = [(key, value) for key in list(self.waiting) if (value := self.waiting.get(key)) is not None]
        if not entries:
            return
        with suppress(TierError):
            self._index.update(lambda tables: self.write(tables, entries))
        self.written(entries)

    def written(self, entries: list[tuple[bytes, bytes]]) -> None:
        """These need not wait any longer."""
        for key, value in entries:
            if self.waiting.get(key) is value:
                self.waiting.pop(key, None)

    def write(self, tables: Tables, entries: list[tuple[bytes, bytes]]) -> None:
        """Within a transaction."""
        table = self._table(tables)
        excess: int = tables.txn.stat(table)["entries"] + len(entries) - self._capacity
        if excess > 0:
            for first in (os.urandom(16), b"\0"):
                for key, _ in tables.range(table, first, excess + _SPARE):
                    excess -= tables.txn.delete(key, db=table)
                if excess <= 0:
                    break
        for key, value in entries:
            tables.txn.put(key, value, db=table)


class DiskMemo:
    """`Memo` in the index."""

    def __init__(self, entries: IndexMap) -> None:
        self.entries = entries

    def recall(self, key: bytes) -> bytes | None:
        """The remembered value."""
        return self.entries.look(key)

    def remember(self, key: bytes, value: bytes) -> None:
        """Keep it, if possible."""
        self.entries.keep(key, value)


class Signatures:
    """Which signature digests (16 bytes each) a content was seen under; the last 16 of each."""

    def __init__(self, entries: IndexMap) -> None:
        self.entries = entries

    def seen(self, realm_content: bytes) -> tuple[bytes, ...]:
        """Oldest first."""
        raw = self.entries.look(realm_content) or b""
        return tuple(raw[at : at + _SIGNATURE_BYTES] for at in range(0, len(raw), _SIGNATURE_BYTES))

    def note(self, realm_content: bytes, signature_digest: bytes) -> None:
        """Add one."""
        seen = self.seen(realm_content)
        if signature_digest not in seen:
            self.entries.keep(realm_content, b"".join((*seen, signature_digest)[-_SIGNATURES:]))
