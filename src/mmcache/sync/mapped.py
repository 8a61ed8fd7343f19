"""Which tables and groups are followed, kept on the shared tier: a table that was not, or otherwise, is moved first."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from blake3 import blake3

from mmcache.sync.link import Hash
from mmcache.sync.mapping import Table


class Followed(msgspec.Struct, frozen=True):
    """One table."""

    groups: tuple[str, ...]
    """That a `Row` may name."""
    digest: str
    """Of what decides which sources its changes move."""


class Mapped:
    """By what rows call the tables. Methods raise `TierError`."""

    def __init__(self, kept: Hash) -> None:
        self._kept = kept

    def unknown(self, tables: Mapping[str, Table]) -> list[str]:
        """Those of the mapping whose changes have not been followed, or by another mapping."""
        known = self._kept.all()
        return [name for name, table in tables.items() if known.get(table.name or name) != _entry(name, table)]

    def note(self, tables: Mapping[str, Table]) -> None:
        """These are followed from now on."""
        self._kept.put({table.name or name: _entry(name, table) for name, table in tables.items()})


def marks(tables: Mapping[str, Table]) -> dict[str, str]:
    """By table: what tells that it is followed, and how."""
    return {name: blake3(_entry(name, table)).hexdigest(length=6) for name, table in tables.items()}


def _entry(name: str, table: Table) -> bytes:
    groups = {group: sorted(columns) for group, columns in sorted(table.groups.items())}
    digest = blake3(msgspec.json.encode([name, table.key, groups, table.old_rows])).hexdigest(length=12)
    return msgspec.json.encode(Followed(tuple(groups), digest))
