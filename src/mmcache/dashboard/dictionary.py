"""Texts as numbers: `Words` of a column, `Facets` (all that a lookup is counted by), `Sheets` (JSON of many spans).

Only the writer adds. Readers index lists that only grow. What has no room left counts as `other`, or stays with its
span: who sends ever new texts fills the store's rows, and never the process's memory.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmcache.dashboard.rows import AXES, REASONS
from mmcache.dashboard.schema import WORDS
from mmcache.dashboard.taken import LOOKUP
from mmcache.dashboard.values import SHEET

OTHER = "other"
MOST_WORDS = 20_000
"""Of one column."""
FEW = {"outcome": 64, "reason": 64, "strategy": 64, "tier": 64, "modality": 256}
"""Of columns that should have a handful."""
MOST_FACETS = 250_000
MOST_SHEETS = 50_000
MOST_SHEET_CHARACTERS = 64 << 20
"""Of all; further ones stay with their spans, and longer ones than `SHEET`."""


class Words:
    """Texts of one column. Number 0 is the empty one, 1 is `other`."""

    def __init__(self, texts: Sequence[str] = (), most: int = MOST_WORDS, ours: Sequence[str] = ()) -> None:
        self.texts = list(texts) or ["", OTHER, *ours]
        self.saved = len(texts)
        self._most = most
        self._ids = {text: at for at, text in enumerate(self.texts)}

    def add(self, text: str) -> int:
        """Its number."""
        known = self._ids.get(text)
        if known is None:
            if len(self.texts) >= self._most:
                return 1
            known = self._ids[text] = len(self.texts)
            self.texts.append(text)
        return known

    def find(self, text: str) -> int | None:
        """Its number, if it is known."""
        return self._ids.get(text)


class Sheets:
    """Longer texts that many spans share. Number 0 = none, or it stays with its span."""

    def __init__(self, texts: Sequence[str] = ()) -> None:
        self.texts = list(texts) or [""]
        self.saved = len(texts)
        self._ids = {text: at for at, text in enumerate(self.texts)}
        self._room = MOST_SHEET_CHARACTERS - sum(map(len, self.texts))

    def add(self, text: str) -> int:
        """Its number, or 0."""
        known = self._ids.get(text)
        if known is None:
            if len(self.texts) >= MOST_SHEETS or len(text) > min(SHEET, self._room):
                return 0
            self._room -= len(text)
            known = self._ids[text] = len(self.texts)
            self.texts.append(text)
        return known


_COLUMNS = ("lookup", "hit", *AXES)
_INSTANCE = _COLUMNS.index("instance")


class Facets:
    """Combinations of the axes' words, with whether it is a lookup and a hit."""

    COLUMNS = _COLUMNS

    def __init__(self, rows: Iterable[Sequence[int]] = ()) -> None:
        self.rows: list[tuple[int, ...]] = [tuple(int(cell) for cell in row) for row in rows]
        self.saved = len(self.rows)
        self._ids = {row: at for at, row in enumerate(self.rows)}
        self._table: NDArray[np.int64] = np.empty((0, len(self.COLUMNS)), np.int64)
        self._lock = threading.Lock()

    def add(self, row: tuple[int, ...]) -> int:
        """Its number."""
        known = self._ids.get(row)
        if known is None:
            if len(self.rows) >= MOST_FACETS:  # first processes count as one, then all but outcomes and reasons
                row = (*row[:_INSTANCE], 1, *row[_INSTANCE + 1 :])
                if row not in self._ids and len(self.rows) >= 2 * MOST_FACETS:
                    row = (*row[:2], *(1 if word else 0 for word in row[2 : _INSTANCE + 1]), *row[_INSTANCE + 1 :])
                if (known := self._ids.get(row)) is not None:
                    return known
            known = self._ids[row] = len(self.rows)
            self.rows.append(row)
        return known

    def table(self) -> NDArray[np.int64]:
        """All of them, int64[facets, columns]."""
        with self._lock:
            if rows := self.rows[len(self._table) :]:
                self._table = np.concatenate([self._table, np.array(rows, np.int64)])
            return self._table


OURS = {
    "name": (LOOKUP, "cache.put", "cache.compute", "cache.invalidate"),
    "reason": REASONS,
    "outcome": ("hit", "near", "stale", "miss", "partial", "bypass", "pass"),
    "strategy": ("exact", "near", "stale", "region", "row"),
    "tier": ("memory", "disk", "valkey"),
}  # fmt: skip
"""Known from the start: whoever sends many words pushes none of these out."""


def _words(name: str, texts: Sequence[str]) -> Words:
    return Words(texts, FEW.get(name, MOST_WORDS), OURS.get(name, ()))


class Dictionary:
    """All three."""

    def __init__(self) -> None:
        self.words = {name: _words(name, ()) for name in WORDS}
        self.facets = Facets()
        self.sheets = Sheets()

    @classmethod
    def read(cls, connection: Any) -> Dictionary:
        """As the store has it."""
        found = cls()
        texts: dict[int, list[str]] = {}
        for axis, text in connection.execute("SELECT axis, text FROM words ORDER BY axis, id").fetchall():
            texts.setdefault(axis, []).append(text)
        found.words = {name: _words(name, texts.get(at, ())) for name, at in WORDS.items()}
        columns = ", ".join(Facets.COLUMNS)
        found.facets = Facets(connection.execute(f"SELECT {columns} FROM facets ORDER BY id").fetchall())
        sheets = connection.execute("SELECT text FROM sheets ORDER BY id").fetchall()
        found.sheets = Sheets([text for (text,) in sheets])
        return found

    def save(self, connection: Any) -> list[tuple[Any, int]]:
        """Write what is new, within the writer's transaction. Returns what is saved once that is committed."""
        saved: list[tuple[Any, int]] = []
        for name, words in self.words.items():
            if new := words.texts[words.saved :]:
                ids = np.arange(words.saved, len(words.texts), dtype=np.uint32)
                _insert(connection, "words", {"axis": np.full(len(new), WORDS[name], np.uint8), "id": ids, "text": new})
                saved.append((words, len(words.texts)))
        if new := self.sheets.texts[self.sheets.saved :]:
            ids = np.arange(self.sheets.saved, len(self.sheets.texts), dtype=np.uint32)
            _insert(connection, "sheets", {"id": ids, "text": new})
            saved.append((self.sheets, len(self.sheets.texts)))
        if rows := self.facets.rows[self.facets.saved :]:
            cells = np.array(rows, np.uint32)
            columns: dict[str, Any] = {"id": np.arange(self.facets.saved, len(self.facets.rows), dtype=np.uint32)}
            for at, name in enumerate(Facets.COLUMNS):
                columns[name] = cells[:, at].astype(bool) if at < 2 else cells[:, at].copy()
            _insert(connection, "facets", columns)
            saved.append((self.facets, len(self.facets.rows)))
        return saved


def _insert(connection: Any, table: str, columns: Mapping[str, Any]) -> None:
    given = {
        name: np.array(cells, dtype=object) if isinstance(cells, list) else cells for name, cells in columns.items()
    }
    insert(connection, table, given)


def insert(connection: Any, table: str, columns: Mapping[str, Any]) -> None:
    """Rows by column, in the order of the table's columns."""
    connection.register("given", dict(columns))
    try:
        connection.execute(f"INSERT INTO {table} SELECT * FROM given")
    finally:
        connection.unregister("given")
