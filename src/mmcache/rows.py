"""`Row`: a database row that blocks are computed from, and the ids of what such a block rests on.

A *source* is 16 bytes that stand for a table, for one row of it, or for one row's columns of a group. Each has an
*edition* (see `tiers.valkey.editions`) that moves when the database says that it changed. The key of a block that was
computed from a row contains the editions of its sources.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from blake3 import blake3

from mmcache.keys.framing import DIGEST_BYTES, framed
from mmcache.model.errors import InvalidInputError

ANY = "*"
"""The group of all columns: it moves whenever any of them does."""

_KINDS = (str, int, bytes, Decimal, UUID)


@dataclass(frozen=True)
class Row:
    """One row of a table that is watched, `Row("products", 42)`, or some columns of it, `Row("products", 42, "photo")`.

    table: as the mapping of `mmcache sync` names it. key: the primary key; a tuple where it has several columns.
    group: the columns that matter, by the name that the mapping gives them; None = all. Raises `InvalidInputError`.
    """

    table: str
    key: object
    group: str | None = None

    def __post_init__(self) -> None:
        for name, value in (("table", self.table), ("group", self.group)):
            if not (isinstance(value, str) and value) and not (name == "group" and value is None):
                raise InvalidInputError(f"the {name} of a Row is a name, not {value!r}")
        if self.group == ANY:
            raise InvalidInputError(f"{ANY!r} stands for all columns of a Row: leave the group out")
        _ = key_text(self.parts)

    @property
    def parts(self) -> tuple[object, ...]:
        """The values of the primary key, in its order."""
        return tuple(self.key) if isinstance(self.key, tuple | list) else (self.key,)


def key_text(parts: Sequence[object]) -> tuple[str, ...]:
    """A primary key as texts: `42` and `"42"` are one row, since change events write either; bytes are base64.

    Raises `InvalidInputError` for what names no row: nothing at all, None, a float, a truth value.
    """
    texts = []
    for part in parts:
        if not isinstance(part, _KINDS) or isinstance(part, bool):
            raise InvalidInputError(f"a row is named by texts, whole numbers, bytes or UUIDs, not {part!r}")
        if isinstance(part, Decimal):
            texts.append(f"{part:f}")  # databases write all digits: 0.00000001 and not 1E-8
        else:
            texts.append(base64.b64encode(part).decode() if isinstance(part, bytes) else str(part))
    if not texts:
        raise InvalidInputError("a row is named by at least one value")
    return tuple(texts)


class RowIds:
    """Names sources. Keyed by the caches' secret: who cannot read it can neither tell nor guess what a source is."""

    def __init__(self, secret: bytes) -> None:
        self._key = blake3(bytes(secret), derive_key_context="mmcache 2026 row sources v1").digest()

    def __repr__(self) -> str:
        return "RowIds(…)"

    def table(self, table: str) -> bytes:
        """All rows of a table: moved when nobody knows which of them changed, e.g. at `TRUNCATE`."""
        return self._id("table", table)

    def row(self, table: str, key: Sequence[object]) -> bytes:
        """One row: moved when it comes or goes, or when nobody knows which of its columns changed."""
        return self._id("row", table, *key_text(key))

    def group(self, table: str, key: Sequence[object], group: str) -> bytes:
        """One row's columns of a group, or of all of them (`ANY`): moved when one of those changed."""
        return self._id("group", group, table, *key_text(key))

    def of(self, row: Row) -> tuple[bytes, bytes, bytes]:
        """All that a block computed from `row` rests on."""
        parts = row.parts
        return (
            self.table(row.table),
            self.row(row.table, parts),
            self.group(row.table, parts, ANY if row.group is None else row.group),
        )

    def _id(self, kind: str, *names: str) -> bytes:
        try:
            parts = [name.encode() for name in names]
        except UnicodeEncodeError as error:
            raise InvalidInputError(f"a row's name holds a lone surrogate: {names!r}; pass valid Unicode") from error
        return blake3(framed(kind, *parts), key=self._key).digest(length=DIGEST_BYTES)
