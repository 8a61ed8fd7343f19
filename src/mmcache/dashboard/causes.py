"""`find`: why the hit ratio fell between two windows: causes that overlap, apart, whose shares add up to the fall.

The fall is taken apart exactly (`decompose`), the parts of one kind are put together where they lie (`placing`), and
what is smaller than chance or than a twentieth of the fall is the rest. Pure: no clock, no store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import copysign, sqrt
from typing import Any

from mmcache.dashboard.decompose import MANY, ZERO, Book, Part, Who, book, decompose, fall
from mmcache.dashboard.moved import Moved
from mmcache.dashboard.placing import inside, locate
from mmcache.dashboard.rows import CauseRows, ExampleRow
from mmcache.dashboard.steps import Tally, likelihood, onset, spread
from mmcache.dashboard.succession import rename, succeed, successors
from mmcache.dashboard.swap import Swap, swap
from mmcache.dashboard.telling import EVERYWHERE, Where, place, several
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
COLD = frozenset({"absent", "abstained"})
"""Reasons for which lookups of inputs that nobody asked for before miss."""
NO_MORE = 1.1
"""Misses for each lookup that came; where there are more, those who were there before miss more, too."""


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
    heirs = successors(rows)
    rows = rename(succeed(rows, heirs))
    held = book(rows.groups)
    down = fall(held)
    if not _fell(rows, held, down):
        return []
    parts = decompose(held, rows.baseline, rows.now)
    finder = _Finder(rows, held, down, {new: old for old, new in heirs.items()})
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
    """Blocks that are evicted once a flood has begun, where it is, may be its doing."""
    flood = next((one for one in found if one.cause == FLOOD), None)
    if cause.cause != "evicted" or flood is None or (cause.since or 0.0) < (flood.since or 0.0):
        return cause
    places = [one.where.get("instance", []) for one in (cause, flood)]
    mine, its = ({said} if isinstance(said, str) else {*said} for said in places)
    if mine and its and not mine & its:
        return cause
    return replace(cause, text=f"{cause.text} It began after the flood did ({place(flood.where)}), which may fill it.")


def _displaced(taken: set[Part], parts: Iterable[Part]) -> set[Part]:
    """What the same lookups missed for before: who misses for a new reason cannot miss for the old one."""
    whos = {part.who: part.amount for part in taken}
    return {p for p in parts if p.reason and p not in taken and -whos.get(p.who, ZERO) <= p.amount < 0}


def _fell(rows: CauseRows, held: Book, down: Fraction) -> bool:
    before, now = _Sums(held).of(EVERYWHERE)
    if float(down) < LEAST_FALL:
        return False
    series: dict[float, Tally] = {}
    for step in rows.steps:
        one = series.get(step.start, Tally(step.start, 0.0, 0.0, 0.0))
        hits, misses = (0.0, step.lookups) if step.reason else (step.lookups, 0.0)
        squares = one.squares + step.lookups * rows.weight
        series[step.start] = Tally(one.t, one.hits + hits, one.misses + misses, squares)
    wide = spread([series[t] for t in sorted(series)])
    return _apart(before.missed, before.lookups, now.missed, now.lookups, rows.weight * wide) >= SURE


def _apart(old: float, shown: float, new: float, shown_now: float, weight: float) -> float:
    """How many standard deviations of chance `new` of `shown_now` is above `old` of `shown`.

    The signed root of the likelihood ratio: of few lookups, or few misses, the normal distribution promises too much.
    """
    if not shown or not shown_now:
        return 0.0
    apart = likelihood(old, shown) + likelihood(new, shown_now)
    gain = 2 * (apart - likelihood(old + new, shown + shown_now)) / weight
    return copysign(sqrt(max(gain, 0.0)), new / shown_now - old / shown)


@dataclass
class _Sum:
    """Of a window, where something lies. In floats, as nothing is added up to the fall from it."""

    lookups: float = 0.0
    misses: dict[str, float] = field(default_factory=dict)

    def of(self, reason: str) -> float:
        return self.misses.get(reason, 0.0)

    @property
    def missed(self) -> float:
        return sum(self.misses.values())


class _Sums:
    """Sums of a book, each made once."""

    def __init__(self, held: Book) -> None:
        self._plain = [
            (who, [(float(one.lookups), {reason: float(n) for reason, n in one.misses.items()}) for one in both])
            for who, both in held.items()
        ]
        self._known: dict[str, tuple[_Sum, _Sum]] = {}

    def of(self, where: Where) -> tuple[_Sum, _Sum]:
        """Before, now."""
        name = repr(where)
        if name not in self._known:
            both = self._known[name] = _Sum(), _Sum()
            for who, sides in self._plain:
                if inside(where, who):
                    for whole, (lookups, misses) in zip(both, sides, strict=True):
                        whole.lookups += lookups
                        for reason, number in misses.items():
                            whole.misses[reason] = whole.of(reason) + number
        return self._known[name]


class _Finder:
    def __init__(self, rows: CauseRows, held: Book, down: Fraction, heirs: Mapping[str, str]) -> None:
        self._rows, self._held, self._down, self._heirs = rows, held, down, heirs
        self._usual = {who: float(both[0].lookups) for who, both in held.items()}
        self._length = rows.now.seconds / rows.baseline.seconds if rows.baseline.seconds else 1.0
        self._sums = _Sums(held)

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
            taken |= cold if where and self._only_came(where) else set()
        elif kind != LULL:
            taken |= _displaced(taken, parts)
        amount = sum((part.amount for part in taken), ZERO)
        if amount < Fraction(LEAST_SHARE) * self._down or not self._sure(kind, where):
            return None
        return self._cause(kind, where, amount), taken

    def _only_came(self, where: Where) -> bool:
        """Whether there are no more misses of what is cold than lookups that came."""
        old, new = self._sums.of(where)
        came = new.lookups - old.lookups * self._length
        return sum(new.of(reason) - old.of(reason) * self._length for reason in COLD) <= NO_MORE * came

    def _weight(self, where: Where) -> float:
        """As `CauseRows.weight`, of what lies there: processes sample differently."""
        mine = [(one.before + one.now, one.weight or self._rows.weight) for one in self._rows.groups
                if inside(where, one)]  # fmt: skip
        whole = sum(lookups for lookups, _ in mine)
        return sum(n * weight for n, weight in mine) / whole if whole else 1.0

    def _sure(self, kind: str, where: Where) -> bool:
        (old, new), weight = self._sums.of(where), self._weight(where)
        if kind not in (FLOOD, LULL):
            return _apart(old.of(kind), old.lookups, new.of(kind), new.lookups, weight) >= SURE
        expected, seen = old.lookups * self._length, new.lookups
        if kind == LULL:
            expected, seen = seen, expected
        deviation = sqrt(max(expected, seen) * max(1.0, self._length) * weight)
        return seen >= GREW * expected and seen - expected >= SURE * deviation

    def _cause(self, kind: str, where: Where, amount: Fraction) -> Cause:
        old, new = self._sums.of(where)
        reasons = COLD if kind in (FLOOD, LULL) else frozenset({kind})
        more = sum(new.of(reason) - old.of(reason) * self._length for reason in reasons)
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
        detail = several([one.detail for one in examples])
        text = tell(kind, replace(facts, detail=detail, swap=swapped))
        moves = () if swapped is None else swapped.moved
        return Cause(kind, text, amount, share, more, since, where, tuple(examples[:MOST_EXAMPLES]), moves)

    def _facts(self, where: Where, share: float, since: float | None, reasons: Iterable[str], volume: bool) -> Facts:
        both = self._sums.of(where)
        whole = [one.lookups or 1.0 for one in both]
        before, now = self._rows.baseline.seconds, self._rows.now.seconds
        lookups = [one.lookups for one in both]
        if volume and since is not None and self._rows.now.start < since < self._rows.now.end:  # it began later
            usual = lookups[0] / before if before else 0.0
            lookups[1] -= usual * (since - self._rows.now.start)
            now = self._rows.now.end - since
        keys = [one for one in self._rows.keys if inside(where, one)]
        return Facts(
            where=where, share=share, seconds=(before, now), lookups=(lookups[0], lookups[1]),
            missed=(both[0].missed / whole[0], both[1].missed / whole[1]),
            matched=(
                sum(both[0].of(one) for one in reasons) / whole[0], sum(both[1].of(one) for one in reasons) / whole[1],
            ),
            heir_of=self._heirs.get(said, "") if isinstance(said := where.get("instance", []), str) else "",
            recorded=sum(one.lookups for one in keys) / self._rows.weight, keys=sum(one.keys for one in keys),
        )  # fmt: skip

    def _since(self, kind: str, where: Where) -> float | None:
        """Start of the step in which it left the baseline."""
        whos = [who for who in self._held if inside(where, who)]
        tenants, instances = {who.tenant for who in whos}, {who.instance for who in whos}
        events: dict[float, float] = {}
        shown: dict[float, float] = {}
        for step in self._rows.steps:
            mine = (step.tenant in tenants or MANY in tenants) and (step.instance in instances or MANY in instances)
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
