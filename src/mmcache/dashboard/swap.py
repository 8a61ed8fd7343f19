"""Which signature took the place of which, in the processes where misses of that reason are."""

from __future__ import annotations

from dataclasses import dataclass

from mmcache.dashboard.moved import Moved, moved_fields
from mmcache.dashboard.placing import inside
from mmcache.dashboard.rows import CauseRows, SignatureRow
from mmcache.dashboard.telling import Where


@dataclass(frozen=True)
class Swap:
    """One signature for another."""

    was: SignatureRow | None
    """Of the same process and modality, used before; None = none that was recorded."""
    now: SignatureRow
    since: float
    moved: tuple[Moved, ...]


def swap(rows: CauseRows, where: Where, since: float | None) -> Swap | None:
    """The change with most misses; None where no signature is new there. since: when they began, Unix seconds."""
    mine = [row for row in rows.signatures if inside(where, row)]
    fresh = [row for row in mine if row.misses > 0 and _pace(row, rows, 0) < _pace(row, rows, 1)]
    if not fresh:
        return None
    now = max(fresh, key=lambda row: (row.misses, row.signature))
    old = [
        row for row in mine
        if (row.service, row.instance, row.modality) == (now.service, now.instance, now.modality)
        and row.signature != now.signature and _pace(row, rows, 0) > _pace(row, rows, 1)
    ]  # fmt: skip
    was = max(old, key=lambda row: (row.before_hits, row.before_misses, row.signature), default=None)
    began = now.first if since is None else max(since, now.first)
    return Swap(was, now, began, tuple(moved_fields(was.fields, now.fields)) if was is not None else ())


def _pace(row: SignatureRow, rows: CauseRows, side: int) -> float:
    lookups = row.hits + row.misses if side else row.before_hits + row.before_misses
    seconds = (rows.now if side else rows.baseline).seconds
    return lookups / seconds if seconds else 0.0
