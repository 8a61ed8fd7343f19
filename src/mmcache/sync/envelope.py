"""What a message of Debezium says about a row. Pure.

Read are JSON messages, with their schema beside them or without, as Debezium sends them: flattened ones lack what is
needed. Columns are not looked at here, so that a changed schema breaks nothing.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal

import msgspec

from mmcache.model.errors import PoisonError
from mmcache.sync.mapping import HEARTBEATS
from mmcache.sync.versions import order_of, version_of

Operation = Literal["c", "u", "d", "r", "t"]
"""Created, updated, deleted, read by a snapshot, truncated."""

Columns = Mapping[str, Any]

_DECIMAL, _VARIABLE = "org.apache.kafka.connect.data.Decimal", "io.debezium.data.VariableScaleDecimal"
_MOST_SCALE = 1_000
_MOST_BITS = 8_192


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a broker."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row, or a whole table (`t`), that changed."""

    tables: tuple[str, ...]
    """By which the mapping may know the table: "schema.table" or "database.table", and with all three parts."""
    op: Operation
    keys: Columns
    """The message's own key, by column: the primary key, or what the connector was told to use."""
    before: Columns | None = None
    after: Columns | None = None
    version: int | None = None
    """See `versions`; None = unknown."""
    order: int | None = None
    snapshot: Literal["", "initial", "incremental"] = ""
    """Whether it was read from the table, and by which kind of snapshot, instead of from the log."""
    source_ts: float | None = None
    """When it was made in the database, Unix seconds."""
    server: str = ""
    """The connector's `topic.prefix`."""
    other_keys: Columns | None = None
    """When the primary key itself changed: the other one."""
    table: str = ""
    """What rows call the table, and `key` the row, where a mapping has said so: for those who refresh."""
    key: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """Tables of which the database says that they were altered, dropped or renamed."""

    tables: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What follows a deletion, or stands alone where the deletion itself was compacted away."""

    tables: tuple[str, ...]
    """Empty when the message does not say."""
    keys: Columns


class Skipped(StrEnum):
    """Messages that are about no row."""

    HEARTBEAT = "heartbeat"
    TRANSACTION = "transaction"
    LOGICAL = "logical-message"
    EMPTY = "empty"


Event = RowChange | SchemaChange | Tombstone | Skipped


def read(message: Message) -> Event:
    """What a message says. Raises `PoisonError`."""
    if message.topic.startswith(HEARTBEATS):
        return Skipped.HEARTBEAT
    keys, tables = _keys(message.key)
    if message.value is None:
        return Tombstone(tables, keys) if keys else Skipped.EMPTY
    try:
        payload = _payload(_decoded(message.value, "value"))[0]
        if payload is None:
            return Tombstone(tables, keys) if keys else Skipped.EMPTY
        return _event(payload, keys, message.headers)
    except PoisonError as error:
        raise PoisonError(str(error), tables=error.tables or tables, key=keys or None) from error


def _event(payload: Columns, keys: Columns, headers: Mapping[str, bytes | None]) -> Event:
    op = payload.get("op")
    source = payload.get("source")
    if "op" not in payload:
        if "ddl" in payload or "tableChanges" in payload:
            return SchemaChange(_altered(payload))
        if payload.get("status") in ("BEGIN", "END") and "id" in payload:
            return Skipped.TRANSACTION
        if payload and set(payload) <= {"ts_ms", "ts_us", "ts_ns"}:
            return Skipped.HEARTBEAT
        raise PoisonError("no change event: it has no `op`; is it flattened (ExtractNewRecordState)? Send it whole")
    if not isinstance(source, Mapping):
        raise PoisonError("a change event without `source`, so of no table")
    if op == "m":
        return Skipped.LOGICAL
    tables = _tables(source)
    if op not in ("c", "u", "d", "r", "t"):
        raise PoisonError(f"a change event with an unknown operation, {op!r:.40}", tables=tables)
    before, after = (_columns(payload.get(name), name, tables) for name in ("before", "after"))
    if op in ("c", "u", "r") and after is None:
        raise PoisonError(f"operation {op!r} without the row that it leaves (`after`)", tables=tables)
    snapshot = _snapshot(op, source)
    return RowChange(
        tables=tables,
        op=op,
        keys=keys,
        before=before,
        after=after,
        version=version_of(source),
        order=_order(snapshot, source),
        snapshot=snapshot,
        source_ts=_seconds(source),
        server=str(source.get("name", "")),
        other_keys=_header_key(headers),
    )


def _decoded(raw: bytes, what: str) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        hint = "; is it Avro or Protobuf? Set the connector's converters to JsonConverter" if raw[:1] == b"\0" else ""
        raise PoisonError(f"the {what} is no JSON{hint}: {error}") from error


def _payload(decoded: Any) -> tuple[Columns | None, Columns | None]:
    """The payload, and its schema if it came with one."""
    schema = None
    if isinstance(decoded, Mapping) and set(decoded) == {"schema", "payload"}:
        schema, decoded = decoded["schema"], decoded["payload"]
    if decoded is not None and not isinstance(decoded, Mapping):
        raise PoisonError(f"not an object but {decoded!r:.40}")
    return decoded, schema if isinstance(schema, Mapping) else None


def _keys(raw: bytes | None) -> tuple[Columns, tuple[str, ...]]:
    """The key by column, and the table that its schema names ("shop.public.products.Key"); nothing where unreadable."""
    if raw is None:
        return {}, ()
    try:
        keys, schema = _payload(_decoded(raw, "key"))
    except PoisonError:  # the value may still say all that is needed
        return {}, ()
    if keys is None:
        return {}, ()
    name = schema.get("name") if schema is not None else None
    tables: tuple[str, ...] = ()
    if isinstance(name, str) and name.endswith(".Key"):
        _, _, rest = name.removesuffix(".Key").partition(".")
        tables = (rest,) if rest else ()
    return _typed(keys, schema), tables


def _typed(keys: Columns, schema: Columns | None) -> Columns:
    """Decimals as such, where they can be told. All else stays as JSON has it; bytes as base64, as rows are named."""
    found = dict(keys)
    for name, value in keys.items():
        if isinstance(value, Mapping) and set(value) == {"scale", "value"}:
            found[name] = _decimal(value["value"], value["scale"])
    fields = schema.get("fields") if schema is not None else None
    for one in fields if isinstance(fields, Sequence) and not isinstance(fields, str) else ():
        column = one.get("field") if isinstance(one, Mapping) and one.get("name") == _DECIMAL else None
        if isinstance(column, str) and column in keys:
            parameters = one.get("parameters")
            scale = parameters.get("scale") if isinstance(parameters, Mapping) else None
            found[column] = _decimal(keys[column], scale)
    return found


def _decimal(unscaled: object, scale: object) -> object:
    """From its unscaled bytes, big-endian; None, which names no row, where that cannot be read."""
    try:
        digits = int.from_bytes(base64.b64decode(str(unscaled), validate=True), "big", signed=True)
        places = int(str(scale))
    except (ValueError, binascii.Error):
        return None
    return Decimal(f"{digits}E{-places}") if digits.bit_length() <= _MOST_BITS and abs(places) <= _MOST_SCALE else None


def _header_key(headers: Mapping[str, bytes | None]) -> Columns | None:
    raw = headers.get("__debezium.newkey") or headers.get("__debezium.oldkey")
    return _keys(raw)[0] or None if raw else None


def _tables(source: Mapping[str, Any]) -> tuple[str, ...]:
    table, schema, database = (source.get(name) for name in ("table", "schema", "db"))
    table = table or source.get("collection")
    if not isinstance(table, str) or not table:
        raise PoisonError("a change event that names no table")
    names = [part for part in (database, schema, table) if isinstance(part, str) and part]
    return _called(names)


def _called(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((".".join(names[-2:]), ".".join(names))))


def _altered(payload: Columns) -> tuple[tuple[str, ...], ...]:
    """The tables of a schema change: each is `"database"."table"` or `"database"."schema"."table"`."""
    found = []
    changes = payload.get("tableChanges")
    for change in changes if isinstance(changes, list) else ():
        if isinstance(change, Mapping) and isinstance(change.get("id"), str):
            parts = [part.strip('"`') for part in change["id"].split(".")]
            found.append(_called(parts))
    return tuple(found)


def _columns(row: object, name: str, tables: tuple[str, ...]) -> Columns | None:
    if row is None or isinstance(row, Mapping):
        return row
    raise PoisonError(f"`{name}` is no row but {row!r:.40}", tables=tables)


def _snapshot(op: str, source: Mapping[str, Any]) -> Literal["", "initial", "incremental"]:
    kind = source.get("snapshot")
    if kind == "incremental":
        return "incremental"
    return "initial" if op == "r" or (kind not in (None, False, "false", "")) else ""


def _order(snapshot: str, source: Mapping[str, Any]) -> int | None:
    if snapshot == "incremental":
        return None
    return version_of(source) if snapshot else order_of(source)


def _seconds(source: Mapping[str, Any]) -> float | None:
    for name, unit in (("ts_us", 1e6), ("ts_ms", 1e3)):
        stamp = source.get(name)
        if isinstance(stamp, int) and not isinstance(stamp, bool) and stamp > 0:
            return stamp / unit
    return None
