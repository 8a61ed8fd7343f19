"""`explain`: why one lookup missed: what it was held against, what moved, who else lost by it, what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mmcache.dashboard.moved import Moved, as_trace, moved, moved_fields
from mmcache.dashboard.reasons import Known, tell
from mmcache.dashboard.rows import ExplainRows, InstanceRow, SignatureRow, SpanRow
from mmcache.dashboard.telling import ago, clock, count, listed, named

_ALWAYS = 0.1
"""Of the window: what began so early in it began before it, as far as can be told."""


@dataclass(frozen=True)
class Explained:
    """The answer; `to_dict()` is the API's."""

    verdict: str
    """`hit (memory)`, `miss (signature)`; the span's name where it is no lookup."""
    text: tuple[str, ...]
    moved: tuple[Moved, ...] = ()
    """What is not as it was at the last hit; causes before what follows from them."""
    before: SpanRow | None = None
    """The lookup or put that it was held against."""
    spread: tuple[InstanceRow, ...] = ()
    """Who had misses for the same reason, and hits."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        before = self.before
        firsts = [row.first_miss for row in self.spread if row.first_miss is not None]
        told = [{"instance": row.instance, "misses": row.misses, "hits": row.hits} for row in self.spread]
        return {
            "verdict": self.verdict,
            "text": list(self.text),
            "moved": [one.to_dict() for one in self.moved],
            "before": before and {
                "trace": before.trace, "span": before.span, "when": before.start, "instance": before.instance,
            },
            "spread": {
                "misses": sum(row.misses for row in self.spread), "instances": told, "since": min(firsts, default=None),
            },
        }  # fmt: skip


def explain(rows: ExplainRows) -> Explained:
    """Why `rows.span` missed, or that it hit, or which lookups it made. Pure."""
    span = rows.span
    if not span.lookup:
        return _no_lookup(rows)
    if span.hit:
        saved = f" It saved {ago(span.saved_ms / 1000)} of compute." if span.saved_ms > 0 else ""
        return Explained(f"hit ({span.tier})", (f"Answered from {named(span.tier) or 'the cache'}.{saved}",))
    reason, rows = span.reason or "absent", _own(rows)
    before = _before(rows)
    changes, sentence = _moved(rows, before)
    stored = _stored([one for one in rows.earlier if one.signature == span.signature])
    known = Known(span, before, stored, changes, sentence)
    text = [*tell(reason, known), *_others(reason, rows), *_then(rows)]
    return Explained(f"miss ({reason})", tuple(text), changes, before, tuple(rows.spread))


def _own(rows: ExplainRows) -> ExplainRows:
    """Without what belongs to another tenant or namespace: whatever says the same `content_id`, it is no evidence."""
    realm = _realm(rows.span)
    earlier, later = ([one for one in some if _realm(one) == realm] for some in (rows.earlier, rows.later))
    return replace(rows, earlier=earlier, later=later)


def _realm(span: SpanRow) -> tuple[str, str]:
    return span.tenant, str(span.attributes.get("cache.namespace", ""))


def _before(rows: ExplainRows) -> SpanRow | None:
    """The latest lookup of the same input that hit, else the latest put that was kept.

    Of the span's signature. Of another where the reason is `signature`: of the one that its detail names, else of one
    that its process used, else of any; and where an input is new under this signature, as far as is recorded.
    """
    span = rows.span
    same = [one for one in rows.earlier if one.signature == span.signature]
    other = [one for one in rows.earlier if one.signature != span.signature]
    if span.reason != "signature":
        return _latest(same) or (_latest(other) if span.reason in ("", "absent") else None)
    stated = [one for one in other if one.signature and one.signature in span.detail]
    mine = [one for one in other if one.instance == span.instance]
    return _latest(stated) or _latest(mine) or _latest(other)


def _latest(rows: Sequence[SpanRow]) -> SpanRow | None:
    return next((one for one in rows if one.lookup and one.hit), None) or _stored(rows)


def _stored(rows: Sequence[SpanRow]) -> SpanRow | None:
    return next((one for one in rows if not one.lookup and one.attributes.get("cache.stored") is not False), None)


def _moved(rows: ExplainRows, before: SpanRow | None) -> tuple[tuple[Moved, ...], str]:
    if before is not None:
        if before.signature == rows.span.signature or not before.fields or not rows.span.fields:
            return (), ""  # what was not recorded did not move
        changes, sentence = moved(_trace(before, hit=True), _trace(rows.span, hit=False))
        more = not changes or any(one.follows for one in changes)
        return tuple(changes), sentence if more and rows.span.reason == "signature" else ""
    if rows.span.reason != "signature":
        return (), ""
    gone = _gone(rows.signatures, rows.span)
    if gone is None or not (changes := moved_fields(gone.fields, rows.span.fields)):
        return (), ""
    others = sum(row.misses for row in rows.spread)
    return tuple(changes), (
        f"no hit of this input was recorded; {count(others)} misses by the same change were: signature "
        f"{named(gone.signature)} was used until {clock(gone.last)} in instance {named(gone.instance)}"
    )


def _gone(signatures: Sequence[SignatureRow], span: SpanRow) -> SignatureRow | None:
    """The signature that gave way to the span's: named in its detail, else the likest that its process used no more.

    None where two are as like, or all are still used: a process may have several models.
    """
    old = [row for row in signatures if row.signature != span.signature and row.before_hits + row.before_misses > 0]
    stated = [row for row in old if row.signature and row.signature in span.detail]
    if stated:
        mine = [row for row in stated if row.instance == span.instance] or stated
        over = [row for row in mine if row.hits + row.misses == 0]
        return max(over or mine, key=lambda row: (row.before_hits, row.before_misses, row.signature))
    over = [row for row in old if row.instance == span.instance and row.hits + row.misses == 0]
    ranked = sorted((len(moved_fields(row.fields, span.fields)), at) for at, row in enumerate(over))
    if not ranked or (len(ranked) > 1 and ranked[0][0] == ranked[1][0]):
        return None
    return over[ranked[0][1]]


def _trace(span: SpanRow, *, hit: bool) -> Any:
    said = {name: str(span.attributes.get(f"cache.{name}", "")) for name in ("namespace", "content", "region")}
    return as_trace(
        when=span.start, source=span.content_id or span.key, hit=hit, told=span.tier if hit else span.reason,
        key=span.key, fields=span.fields, tenant=span.tenant, modality=span.modality, **said,
    )  # fmt: skip


def _others(reason: str, rows: ExplainRows) -> list[str]:
    """Whether it is this process or all of them; and since when, where it has not always been so."""
    had = [row for row in rows.spread if row.misses > 0]
    misses = sum(row.misses for row in had)
    if misses <= rows.span.weight:
        return []
    spared = [row.instance for row in rows.spread if row.misses <= 0]
    first = min((row.first_miss for row in had if row.first_miss is not None), default=rows.window.start)
    news = first >= rows.window.start + _ALWAYS * rows.window.seconds
    since = f" since {clock(first)}" if news else f" since {clock(rows.window.start)} at least"
    same = " and the same signature" if reason == "signature" else ""
    who = ", ".join(f"{named(row.instance)} {count(row.misses)}" for row in sorted(had, key=lambda row: -row.misses))
    line = f"Others for the same reason{same}: {count(misses)} misses{since} ({who})"
    return [f"{line}; none in {listed(spared)}." if spared else f"{line}."]


def _then(rows: ExplainRows) -> list[str]:
    hit = next((one for one in rows.later if one.lookup and one.hit), None)
    if hit is not None:
        other = " for another signature" if hit.signature != rows.span.signature else ""
        return [f"The same input hit again at {clock(hit.start)} in instance {named(hit.instance)}{other}."]
    again = next((one for one in rows.later if one.lookup), None)
    return [f"It missed again at {clock(again.start)}."] if again is not None else []


def _no_lookup(rows: ExplainRows) -> Explained:
    looks = [one for one in rows.trace if one.lookup]
    misses = [one for one in looks if not one.hit]
    if not looks:
        return Explained(rows.span.name, ("No lookup of the cache was recorded in this trace.",))
    reasons = sorted({one.reason or "absent" for one in misses})
    told = f"{len(looks)} lookups were recorded in this trace, {len(misses)} missed"
    told += f" ({listed(reasons)}). Open one of them." if misses else "."
    return Explained(rows.span.name, (told,))
