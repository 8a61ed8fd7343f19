"""`find`: why the hit ratio fell between two windows: causes that overlap, apart, whose shares add up to the fall.

The fall is taken apart exactly (`decompose`), the parts of one kind are put together where they lie (`placing`), and
what is smaller than chance or than a twentieth of the fall is the rest. Pure: no clock, no store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import sqrt
from typing import Any

from mmcache.dashboard.decompose import ZERO, Book, Part, Totals, Who, book, decompose, fall
from mmcache.dashboard.moved import Moved
from mmcache.dashboard.placing import inside, locate
from mmcache.dashboard.rows import CauseRows, ExampleRow
from mmcache.dashboard.steps import Tally, onset, spread
from mmcache.dashboard.succession import succeed
from mmcache.dashboard.swap import Swap, swap
from mmcache.dashboard.telling import EVERYWHERE, Where, place
from mmcache.dashboard.verdicts import Facts, tell

LEAST_FALL = 0.01
"""Of the hit ratio; less is not looked into."""
LEAST_SHARE = 0.05
"""Of the fall; smaller causes are the rest."""
SURE = 4.0
"""Standard deviations, of the fall and of each cause: chance does that once in 30 000 looks."""
GREW = 1.25
"""Times as many lookups, that are no usual change of traffic."""
MOST_EXAMPLES = 3
FLOOD, LULL, REST = "flood", "lull", "other"
COLD = frozenset({"absent", "evicted", "expired", "abstained"})
"""Reasons for which lookups of inputs that nobody asked for lately miss."""


@dataclass(frozen=True)
class Cause:
    """One reason for the fall."""

    cause: str
    """A miss reason; `flood`: traffic came that hits less; `lull`: traffic went that hit more; `other`: the rest."""
    text: str
    amount: Fraction
    """Of the hit ratio, that it took. Those of all causes add up to the fall, exactly."""
    share: float
    """Of the fall; the rest's is negative where other lookups hit more than before."""
    misses: float
    """More than there would have been."""
    since: float | None
    """When it began, Unix seconds."""
    where: Where
    examples: tuple[ExampleRow, ...] = ()
    moved: tuple[Moved, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, as the API gives it."""
        return {
            "cause": self.cause, "text": self.text, "misses": self.misses, "share": self.share, "since": self.since,
            "where": dict(self.where), "examples": [{"trace": one.trace, "span": one.span} for one in self.examples],
            "moved": [one.to_dict() for one in self.moved],
        }  # fmt: skip


def find(rows: CauseRows) -> list[Cause]:
    """Causes, most of the fall first, the rest last. Empty where nothing fell, or no more than chance does."""
    rows = succeed(rows)
    held = book(rows.groups)
    down = fall(held)
    if not _fell(rows, held, down):
        return []
    parts = decompose(held, rows.baseline, rows.now)
    finder = _Finder(rows, held, down)
    found: list[Cause] = []
    for kind, wanted in _kinds(parts):
        while (one := finder.next(kind, [part for part in parts if wanted(part)], parts)) is not None:
            cause, taken = one
            found.append(cause)
            parts = [part for part in parts if part not in taken]
    found = [_after(one, found) for one in sorted(found, key=lambda one: -one.amount)]
    rest = down - sum((one.amount for one in found), ZERO)
    return [*found, *([finder.rest(rest, bool(found))] if rest else [])]


def _kinds(parts: Iterable[Part]) -> list[tuple[str, Callable[[Part], bool]]]:
    reasons = sorted({part.reason for part in parts if part.reason})
    kinds: list[tuple[str, Callable[[Part], bool]]] = [(FLOOD, lambda p: not p.reason and p.came > 0)]
    kinds += [(reason, lambda p, reason=reason: p.reason == reason) for reason in reasons]  # type: ignore[misc]
    return [*kinds, (LULL, lambda p: not p.reason and p.came < 0)]


def _after(cause: Cause, found: Sequence[Cause]) -> Cause:
    """Blocks that are evicted once a flood has begun are its doing, too."""
    flood = next((one for one in found if one.cause == FLOOD), None)
    if cause.cause != "evicted" or flood is None or (cause.since or 0.0) < (flood.since or 0.0):
        return cause
    return replace(cause, text=f"{cause.text} It began after the flood did ({place(flood.where)}), which fills it.")


def _displaced(taken: set[Part], parts: Iterable[Part]) -> set[Part]:
    """What the same lookups missed for before: who misses for a new reason cannot miss for the old one."""
    whos = {part.who: part.amount for part in taken}
    return {p for p in parts if p.reason and p not in taken and -whos.get(p.who, ZERO) <= p.amount < 0}


def _fell(rows: CauseRows, held: Book, down: Fraction) -> bool:
    before, now = _sum(held, 0), _sum(held, 1)
    if float(down) < LEAST_FALL:
        return False
    series: dict[float, Tally] = {}
    for step in rows.steps:
        one = series.get(step.start, Tally(step.start, 0.0, 0.0, 0.0))
        hits, misses = (0.0, step.lookups) if step.reason else (step.lookups, 0.0)
        squares = one.squares + step.lookups * rows.weight
        series[step.start] = Tally(one.t, one.hits + hits, one.misses + misses, squares)
    wide = spread([series[t] for t in sorted(series)])
    return _apart(_miss(before), before.lookups, _miss(now), now.lookups, rows.weight * wide) >= SURE


def _apart(old: Fraction, shown: Fraction, new: Fraction, shown_now: Fraction, weight: float) -> float:
    """How many standard deviations of chance `new` of `shown_now` is above `old` of `shown`."""
    if not shown or not shown_now:
        return 0.0
    both = float((old + new) / (shown + shown_now))
    variance = both * (1 - both) * (1 / float(shown) + 1 / float(shown_now)) * weight
    return (float(new / shown_now) - float(old / shown)) / sqrt(variance) if variance > 0 else 0.0


def _miss(totals: Totals) -> Fraction:
    return sum(totals.misses.values(), ZERO)


def _sum(held: Book, side: int, where: Where = EVERYWHERE) -> Totals:
    whole = Totals()
    for who, both in held.items():
        if inside(where, who):
            whole.lookups += both[side].lookups
            for reason, count in both[side].misses.items():
                whole.misses[reason] += count
    return whole


class _Finder:
    def __init__(self, rows: CauseRows, held: Book, down: Fraction) -> None:
        self._rows, self._held, self._down = rows, held, down
        self._usual = {who: float(both[0].lookups) for who, both in held.items()}
        self._length = Fraction(rows.now.seconds) / Fraction(rows.baseline.seconds)

    def next(self, kind: str, mine: Sequence[Part], parts: Sequence[Part]) -> tuple[Cause, set[Part]] | None:
        """The largest cause of a kind in `mine`, and which of `parts` it explains."""
        amounts: dict[Who, float] = {}
        for part in mine:
            amounts[part.who] = amounts.get(part.who, 0.0) + float(part.amount)
        if sum(amount for amount in amounts.values() if amount > 0) < LEAST_SHARE * float(self._down):
            return None
        where = locate(amounts, self._usual)
        taken = {part for part in mine if inside(where, part.who)}
        if kind == FLOOD:  # what is asked for by so many is cold, and those who ask miss more than they used to
            cold = {p for p in parts if p.reason in COLD and p.amount > 0 and inside(where, p.who)}
            taken |= cold if where else set()
        elif kind != LULL:
            taken |= _displaced(taken, parts)
        amount = sum((part.amount for part in taken), ZERO)
        if amount < Fraction(LEAST_SHARE) * self._down or not self._sure(kind, where):
            return None
        return self._cause(kind, where, amount), taken

    def _sure(self, kind: str, where: Where) -> bool:
        old, new, weight = _sum(self._held, 0, where), _sum(self._held, 1, where), self._rows.weight
        if kind not in (FLOOD, LULL):
            return _apart(old.of(kind), old.lookups, new.of(kind), new.lookups, weight) >= SURE
        expected, seen = old.lookups * self._length, new.lookups
        if kind == LULL:
            expected, seen = seen, expected
        deviation = sqrt(float(max(expected, seen)) * max(1.0, float(self._length)) * weight)
        return float(seen) >= GREW * float(expected) and float(seen - expected) >= SURE * deviation

    def _cause(self, kind: str, where: Where, amount: Fraction) -> Cause:
        old, new = _sum(self._held, 0, where), _sum(self._held, 1, where)
        reasons = COLD if kind in (FLOOD, LULL) else frozenset({kind})
        more = sum(float(new.of(reason) - old.of(reason) * self._length) for reason in reasons)
        since = self._since(kind, where)
        swapped: Swap | None = swap(self._rows, where, since) if kind == "signature" else None
        if swapped is not None:
            since = swapped.since
        examples = [
            one for one in self._rows.examples
            if inside(where, one) and one.reason in reasons and (since is None or one.start >= since)
            and (swapped is None or not one.signature or one.signature == swapped.now.signature)
        ]  # fmt: skip
        share = float(amount / self._down)
        facts = self._facts(where, share, since, reasons, volume=kind in (FLOOD, LULL))
        detail = next((one.detail for one in examples if one.detail), "")
        text = tell(kind, replace(facts, detail=detail, swap=swapped))
        moves = () if swapped is None else swapped.moved
        return Cause(kind, text, amount, share, more, since, where, tuple(examples[:MOST_EXAMPLES]), moves)

    def _facts(self, where: Where, share: float, since: float | None, reasons: Iterable[str], volume: bool) -> Facts:
        both = [_sum(self._held, side, where) for side in (0, 1)]
        whole = [float(one.lookups) or 1.0 for one in both]
        before, now = self._rows.baseline.seconds, self._rows.now.seconds
        lookups = [float(one.lookups) for one in both]
        if volume and since is not None and self._rows.now.start < since < self._rows.now.end:  # it began later
            usual = lookups[0] / before if before else 0.0
            lookups[1] -= usual * (since - self._rows.now.start)
            now = self._rows.now.end - since
        keys = [one for one in self._rows.keys if inside(where, one)]
        return Facts(
            where=where, share=share, seconds=(before, now), lookups=(lookups[0], lookups[1]),
            missed=(float(_miss(both[0])) / whole[0], float(_miss(both[1])) / whole[1]),
            matched=(
                sum(float(both[0].of(one)) for one in reasons) / whole[0],
                sum(float(both[1].of(one)) for one in reasons) / whole[1],
            ),
            recorded=sum(one.lookups for one in keys) / self._rows.weight, keys=sum(one.keys for one in keys),
        )  # fmt: skip

    def _since(self, kind: str, where: Where) -> float | None:
        """Start of the step in which it left the baseline."""
        whos = [who for who in self._held if inside(where, who)]
        tenants, instances = {who.tenant for who in whos}, {who.instance for who in whos}
        events: dict[float, float] = {}
        shown: dict[float, float] = {}
        for step in self._rows.steps:
            mine = step.tenant in tenants and step.instance in instances
            volume = kind in (FLOOD, LULL)
            counted = step.lookups if mine and (volume or step.reason == kind) else 0.0
            events[step.start] = events.get(step.start, 0.0) + counted
            seen = step.seconds if volume else step.lookups if mine else 0.0
            shown[step.start] = max(shown.get(step.start, 0.0), seen) if volume else shown.get(step.start, 0.0) + seen
        times = sorted(events)
        if not times:
            return None
        quiet = sum(t < self._rows.now.start for t in times)
        if kind == LULL:
            return times[min(quiet, len(times) - 1)]
        at = onset([events[t] for t in times], [shown[t] for t in times], quiet, self._rows.weight)
        return times[min(at, len(times) - 1)]

    def rest(self, amount: Fraction, others: bool) -> Cause:
        """What no cause explains."""
        facts = Facts(where={}, share=float(amount / self._down), others=others)
        return Cause(REST, tell(REST, facts), amount, facts.share, 0.0, None, {})
