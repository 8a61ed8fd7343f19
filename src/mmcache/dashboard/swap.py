"""Which signature took the place of which, in the processes where misses of that reason are."""

from __future__ import annotations

from dataclasses import dataclass

from mmcache.dashboard.moved import Moved, moved_fields
from mmcache.dashboard.placing import inside
from mmcache.dashboard.rows import CauseRows, SignatureRow
from mmcache.dashboard.telling import Where

LESS = 0.75
"""Of its pace; what another took the place of is used so much less."""


@dataclass(frozen=True)
class Swap:
    """One signature for another."""

    was: SignatureRow | None
    """Of the same process and modality, used before; None = none that was recorded."""
    now: SignatureRow
    since: float
    moved: tuple[Moved, ...]


def swap(rows: CauseRows, where: Where, since: float | None) -> Swap | None:
    """The change that refuses most; None where no signature is new there. since: when it began, Unix seconds."""
    mine = [row for row in rows.signatures if inside(where, row)]
    fresh = [row for row in mine if row.refused > 0 and _pace(row, rows, 0) < _pace(row, rows, 1)]
    if not fresh:
        return None
    now = max(fresh, key=lambda row: (row.refused, row.signature))
    was = _stated(rows, now) or _gave_way(rows, now)
    began = now.first if since is None else max(since, now.first)
    return Swap(was, now, began, tuple(moved_fields(was.fields, now.fields)) if was is not None else ())


def _stated(rows: CauseRows, now: SignatureRow) -> SignatureRow | None:
    """The one that lookups found their inputs stored for, as they say themselves."""
    told = [
        one.detail for one in rows.examples
        if one.reason == "signature" and one.signature == now.signature and one.instance == now.instance
    ]  # fmt: skip
    named = [
        (sum(row.signature in detail for detail in told), row.instance == now.instance, row.before_hits, at)
        for at, row in enumerate(rows.signatures)
        if row.signature and row.signature != now.signature and row.modality == now.modality
    ]
    times, *_, at = max(named, default=(0, 0))
    return rows.signatures[at] if times else None


def _gave_way(rows: CauseRows, now: SignatureRow) -> SignatureRow | None:
    """The one of the process that it uses less since, and the likest. None where two are as like: a guess is none."""
    old = [
        row for row in rows.signatures
        if (row.service, row.instance, row.modality) == (now.service, now.instance, now.modality)
        and row.signature != now.signature and LESS * _pace(row, rows, 0) > _pace(row, rows, 1)
    ]  # fmt: skip
    likest = sorted(old, key=lambda row: (len(moved_fields(row.fields, now.fields)), -row.before_hits))
    if len(likest) > 1 and len({len(moved_fields(row.fields, now.fields)) for row in likest[:2]}) == 1:
        return None
    return likest[0] if likest else None


def _pace(row: SignatureRow, rows: CauseRows, side: int) -> float:
    lookups = row.hits + row.misses if side else row.before_hits + row.before_misses
    seconds = (rows.now if side else rows.baseline).seconds
    return lookups / seconds if seconds else 0.0
