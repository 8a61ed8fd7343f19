"""Which sources a change moves. Pure.

A block computed from `Row(table, key, group)` rests on three sources: the table, the row, and the group of columns (or
all columns, where no group is named). So it is out of reach once one of these has moved:

| what happened | what moves |
|---|---|
| a row came, went, or its primary key changed | the row (both rows) |
| an update, and the row before is known | the row's groups with a changed column, and its group of all columns |
| an update, and the row before is not known, or earlier updates may be gone from a compacted topic | the row |
| which row it was is not known; TRUNCATE; the table was altered | the table |
| a snapshot began to read the table | the table, once: nobody knows what happened before it, deletions least of all |
| an incremental snapshot read a row | the row |

A column counts as changed unless it is there before and after, and the same. An update that changes nothing that can be
seen still moves the group of all columns: connectors may leave columns out.

Versions order the changes of one row. A source that several rows share (the table; a key that is not the whole primary
key) may see the later version first, when transactions overlap: it moves at every change, whatever its version. So does
what is inserted: PostgreSQL writes it, and only then waits for the transaction that holds the key, whose changes come
later in the log and commit before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from mmcache.model.errors import InvalidInputError
from mmcache.rows import ANY, RowIds
from mmcache.sync.envelope import Columns, RowChange
from mmcache.sync.mapping import Table

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """What a change moves."""

    name: str
    """What rows call the table."""
    sources: tuple[bytes, ...]
    keys: tuple[Key, ...] = ()
    """The rows meant; none = all of the table."""
    versioned: bool = False
    """Whether versions order all changes of these sources."""


class Mover:
    """Knows the mapped tables, and names sources."""

    def __init__(self, ids: RowIds, tables: Mapping[str, Table]) -> None:
        self._ids, self._tables = ids, tables

    def mapped(self, names: Sequence[str]) -> str | None:
        """The mapped table that goes by one of `names`; by the one with most parts where several are mapped."""
        return next((name for name in reversed(names) if name in self._tables), None)

    def whole(self, table: str) -> Move:
        """The whole of a mapped table."""
        name = self._name(table)
        return Move(name, (self._ids.table(name),))

    def row(self, table: str, columns: Columns) -> Move:
        """One row of a mapped table, named by the columns of its key; the whole table where they do not name one."""
        return self._rows(table, [_picked(columns, self._tables[table].key)])

    def change(self, table: str, change: RowChange, gaps: bool = False) -> Move:
        """What a change of a mapped table moves. gaps: earlier ones of the row may be gone from a compacted topic."""
        if change.snapshot == "initial":  # all of one snapshot have one version: the first of them moves the table
            return replace(self.whole(table), versioned=True)
        if change.op == "t":
            return self.whole(table)
        config = self._tables[table]
        move = self._change(table, config, change, gaps)
        ordered = change.op != "c" and set(change.keys) == set(config.key)
        return replace(move, versioned=bool(move.keys) and ordered)

    def _change(self, table: str, config: Table, change: RowChange, gaps: bool) -> Move:
        keys = _rows_meant(change, config.key)
        known = change.before is not None and change.after is not None and config.old_rows and not gaps
        if change.op != "u" or change.snapshot or not known or len(keys) != 1 or keys[0] is None:
            return self._rows(table, keys)
        assert change.before is not None
        assert change.after is not None
        groups = _changed_groups(change.before, change.after, config.groups)
        name, key = self._name(table), keys[0]
        try:
            return Move(name, tuple(self._ids.group(name, key, group) for group in (ANY, *groups)), (key,))
        except InvalidInputError:
            return self.whole(table)

    def _rows(self, table: str, keys: Sequence[Key | None]) -> Move:
        name = self._name(table)
        found = [key for key in keys if key is not None]
        if not found or len(found) < len(keys):
            return self.whole(table)
        try:
            return Move(name, tuple(self._ids.row(name, key) for key in found), tuple(found))
        except InvalidInputError:  # None, a fraction, a truth value: nothing that a Row can be called by
            return self.whole(table)

    def _name(self, table: str) -> str:
        return self._tables[table].name or table


def _rows_meant(change: RowChange, columns: Sequence[str]) -> list[Key | None]:
    """The rows that a change is about; None = one of them is not known.

    Where the message's own key has the columns, it is one row: when such a key changes, Debezium sends a deletion and a
    creation, each of which names the other in a header.
    """
    if set(columns) <= set(change.keys):
        found = [_picked(change.keys, columns)]
    elif change.op == "d":
        found = [_old(change.before, columns)]
    else:
        found = [_picked(change.after, columns)]
        if change.op == "u":
            found.append(_old(change.before, columns))
    if change.other_keys is not None and set(columns) <= set(change.other_keys):
        found.append(_picked(change.other_keys, columns))
    return list(dict.fromkeys(found))


def _old(before: Columns | None, columns: Sequence[str]) -> Key | None:
    """The row's key before. An empty value in it may stand in for one that the log does not have."""
    old = _picked(before, columns)
    return old if old is not None and all(old) else None


def _picked(row: Columns | None, columns: Sequence[str]) -> Key | None:
    if row is None or not all(isinstance(row.get(column), str | int | float | Decimal) for column in columns):
        return None
    return tuple(row[column] for column in columns)


def _changed_groups(before: Columns, after: Columns, groups: Mapping[str, Sequence[str]]) -> list[str]:
    """A row before that lacks values (index-only replica identity) shows as empty ones that are filled afterwards: then
    an empty value that stayed so proves nothing."""
    partial = any(not before[column] and value for column, value in after.items() if column in before)
    return [name for name, columns in groups.items() if any(_changed(before, after, c, partial) for c in columns)]


def _changed(before: Columns, after: Columns, column: str, partial: bool) -> bool:
    if column not in before or column not in after:
        return True
    old, new = before[column], after[column]
    return type(old) is not type(new) or old != new or (partial and not old)
