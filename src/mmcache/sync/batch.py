"""Messages in, changes out: what a batch of messages moves. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

from mmcache.model.errors import PoisonError
from mmcache.sync.envelope import Message, RowChange, SchemaChange, Skipped, Tombstone, read
from mmcache.sync.mapping import Table, tables_of
from mmcache.sync.moves import Move, Mover
from mmcache.sync.positions import Doubt, Partition, Position, digest_of
from mmcache.sync.versions import Database, place
from mmcache.tiers.valkey.editions import ANEW, Change


@dataclass
class Batch:
    """What some messages come to."""

    versions: dict[bytes, int] = field(default_factory=dict)
    """By source; `ANEW` moves it whatever it was."""
    positions: dict[Partition, Position] = field(default_factory=dict)
    poison: list[tuple[str, Message]] = field(default_factory=list)
    """Messages that were not understood, and why."""
    refresh: list[tuple[RowChange, Message]] = field(default_factory=list)
    databases: dict[str, Database] = field(default_factory=dict)
    """By connector."""
    rewound: set[str] = field(default_factory=set)
    """Connectors whose database began its log anew."""
    counts: Counter[str] = field(default_factory=Counter)
    latest: dict[Partition, float] = field(default_factory=dict)
    """When the latest change of a partition was made in the database, Unix seconds."""

    def move(self, move: Move, version: int | None) -> None:
        """Note that sources move. The highest version of a source counts; none at all moves it unconditionally."""
        counted = ANEW if version is None or not move.versioned else version
        for source in move.sources:
            known = self.versions.get(source)
            self.versions[source] = ANEW if ANEW in (known, counted) else max(counted, known or 0)

    def changes(self) -> list[Change]:
        """For a publisher."""
        return [Change(source, version) for source, version in self.versions.items()]


class Interpreter:
    """Makes batches. Remembers, of each partition, what it needs to understand the next message."""

    def __init__(self, mover: Mover, tables: Mapping[str, Table], on_poison: Literal["move", "skip"] = "move") -> None:
        self._mover, self._tables, self._on_poison = mover, tables, on_poison
        self._deleted: dict[Partition, bytes | None] = {}
        """The key of the last message, where that was a deletion: its tombstone follows."""
        self._columns: dict[tuple[Partition, str], frozenset[str]] = {}
        self._databases: Mapping[str, Database] = {}
        self._gaps = False
        self.heard_ts: float | None = None
        """When the connector last gave a sign of life, by its own clock."""

    def interpret(
        self,
        messages: Sequence[Message],
        positions: Mapping[Partition, Position],
        databases: Mapping[str, Database] | None = None,
        *,
        gaps: bool = False,
    ) -> Batch:
        """What `messages` come to, after `positions`. Those before their position, or of no position, are left out.

        gaps: they are not new, so that a broker which compacts topics may have left out earlier ones of the same rows.
        """
        batch, self._gaps = Batch(), gaps
        self._databases = databases or {}
        last: dict[Partition, Message] = {}
        for message in messages:
            partition = message.topic, message.partition
            position = batch.positions.get(partition) or positions.get(partition)
            if position is None or message.offset < position.offset:
                batch.counts["repeated"] += 1
                continue
            batch.counts["messages"] += 1
            position = self._take(message, position, batch)
            batch.positions[partition] = msgspec.structs.replace(position, offset=message.offset + 1)
            last[partition] = message
        for partition, message in last.items():
            batch.positions[partition] = msgspec.structs.replace(
                batch.positions[partition], mark=(message.offset, digest_of(message))
            )
        return batch

    def _take(self, message: Message, position: Position, batch: Batch) -> Position:
        partition = message.topic, message.partition
        deleted = self._deleted.pop(partition, None)
        try:
            event = read(message)
        except PoisonError as error:
            self._poison(message, error, batch)
            return position
        if isinstance(event, RowChange):
            if event.op == "d":
                self._deleted[partition] = message.key
            return self._row(message, event, position, batch)
        if isinstance(event, Tombstone):
            if deleted is not None and deleted == message.key:
                batch.counts["skipped"] += 1
            else:
                self._all(self._about(message.topic, event.tables), event.keys, batch)
        elif isinstance(event, SchemaChange):
            for names in event.tables:
                if (table := self._mover.mapped(names)) is not None:
                    self._all([table], None, batch)
        else:
            batch.counts["skipped"] += 1
            if event is Skipped.HEARTBEAT:
                self._heartbeat(message)
        return position

    def _row(self, message: Message, change: RowChange, position: Position, batch: Batch) -> Position:
        partition = message.topic, message.partition
        if change.source_ts is not None:
            batch.latest[partition] = max(change.source_ts, batch.latest.get(partition, 0.0))
        table = self._mover.mapped(change.tables)
        position, version = self._place(change, table, position, batch)
        if table is None:
            batch.counts["ignored"] += 1
            return position
        move = self._mover.change(table, change, self._gaps)
        batch.move(move, version)
        if self._altered(partition, table, change):
            batch.move(self._mover.whole(table), None)
            batch.counts["altered"] += 1
        batch.counts["applied"] += 1
        if self._tables[table].refresh is not None and change.op in ("c", "u") and len(move.keys) == 1:
            batch.refresh.append((replace(change, table=move.name, key=move.keys[0]), message))
        return position

    def _place(
        self, change: RowChange, table: str | None, position: Position, batch: Batch
    ) -> tuple[Position, int | None]:
        """Which version a change counts as. A database that began its log anew was restored: all of it moves."""
        server = change.server
        position = msgspec.structs.replace(
            position, server=position.server or server, mixed=position.mixed or position.server not in (None, server)
        )
        database = batch.databases.get(server) or self._databases.get(server) or Database()
        snapshot = bool(change.snapshot)
        placed = place(database, change.version, change.order, change.source_ts or 0.0, snapshot=snapshot)
        if table is not None and table not in database.tables:
            database = msgspec.structs.replace(placed.database, tables=(*database.tables, table))
        else:
            database = placed.database
        batch.databases[server] = database
        if placed.rewound:
            batch.rewound.add(server)
            for table in self._tables:
                batch.move(self._mover.whole(table), None)
        mixed = position.mixed or any(
            table in other.tables
            for databases in (self._databases, batch.databases)
            for name, other in databases.items()
            if name != server
        )
        return position, None if mixed else placed.version

    def _altered(self, partition: Partition, table: str, change: RowChange) -> bool:
        """Whether the table has other columns than in the message before. Each partition sees that for itself."""
        if change.after is None:
            return False
        columns = frozenset(change.after)
        before = self._columns.get((partition, table))
        if before == columns:
            return False
        self._columns[partition, table] = columns
        return before is not None

    def _poison(self, message: Message, error: PoisonError, batch: Batch) -> None:
        batch.counts["poison"] += 1
        batch.poison.append((str(error), message))
        if self._on_poison == "move":
            for table in self._about(message.topic, error.tables):
                move = self._mover.whole(table) if error.key is None else self._mover.row(table, error.key)
                batch.move(move, None)

    def _about(self, topic: str, names: Sequence[str]) -> Sequence[str]:
        """Which mapped tables a message may be about."""
        if not names:
            return tables_of(topic, self._tables)
        table = self._mover.mapped(names)
        return () if table is None else (table,)

    def _all(self, tables: Sequence[str], key: Mapping[str, object] | None, batch: Batch) -> None:
        for table in tables:
            batch.move(self._mover.whole(table) if key is None else self._mover.row(table, key), None)
        batch.counts["applied" if tables else "ignored"] += 1

    def _heartbeat(self, message: Message) -> None:
        try:
            payload = msgspec.json.decode(message.value or b"null")
        except (msgspec.DecodeError, RecursionError):
            return
        if isinstance(payload, dict):
            stamp = payload.get("payload", payload)
            stamp = stamp.get("ts_ms") if isinstance(stamp, dict) else None
            if isinstance(stamp, int):
                self.heard_ts = max(self.heard_ts or 0.0, stamp / 1000)


def moved_from(topics: Mapping[str, Doubt], mover: Mover, tables: Mapping[str, Table]) -> list[Change]:
    """What moves where it is not known what was missed of these topics."""
    found = {table for topic in topics for table in tables_of(topic, tables)}
    return [Change(source, ANEW) for table in sorted(found) for source in mover.whole(table).sources]
