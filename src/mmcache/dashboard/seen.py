"""Spans that came lately: a sender that was not answered in time sends them once more, and the first stands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mmcache.dashboard.taken import Taken

REMEMBERED = 200_000
"""Of each of two generations."""


class Seen:
    """Names of the last 200 000 spans, or up to twice as many."""

    def __init__(self, names: Iterable[tuple[int, int]] = ()) -> None:
        self._young = set(map(hash, names))
        self._old: set[int] = set()

    @classmethod
    def read(cls, connection: Any) -> Seen:
        """The newest of the store."""
        rows = connection.execute(
            "SELECT trace_lo, span FROM spans WHERE rowid > (SELECT coalesce(max(rowid), 0) FROM spans) - ?",
            [REMEMBERED],
        ).fetchall()
        return cls(rows)

    def new(self, spans: Iterable[Taken]) -> list[Taken]:
        """Those that are."""
        found = []
        for span in spans:
            name = hash((span.trace[1], span.span))
            if name in self._young or name in self._old:
                continue
            self._young.add(name)
            found.append(span)
        if len(self._young) >= REMEMBERED:
            self._old, self._young = self._young, set()
        return found

    def forget(self, spans: Iterable[Taken]) -> None:
        """They were not kept."""
        for span in spans:
            name = hash((span.trace[1], span.span))
            self._young.discard(name)
            self._old.discard(name)
