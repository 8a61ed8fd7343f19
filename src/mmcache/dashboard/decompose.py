"""The fall of a hit ratio as a sum: who hits less, and who came or went. Exact: the parts add up to the fall.

A miss ratio is M = Σ s·m over groups, s a group's share of the lookups and m its own miss ratio. Between two windows

    M₁ − M₀ = Σ ½(s₀ + s₁)·(m₁ − m₀)  +  Σ ½(m₀ + m₁)·(s₁ − s₀)

(Kitagawa, Components of a difference between two rates, 1955; Oaxaca 1973; Blinder 1973): the same traffic misses more,
and other traffic came. The first sum is split further by reason and signature, as m is a sum over them.

Shares cannot tell who moved: when one tenant floods, everybody else's share falls. So the second sum is written in
lookups a second, n, with N = Σn and A = Σ s·½(m₀ + m₁):

    Σ ½(m₀ + m₁)·(s₁ − s₀)  =  Σ (n₁ − n₀)·½[ (m̄ − A₀)/N₁ + (m̄ − A₁)/N₀ ],   m̄ = ½(m₀ + m₁)

(since Σ n₀·(m̄ − A₀) = Σ n₁·(m̄ − A₁) = 0), in which who sends as much as before has no part. Of a group that one window
lacks, the miss ratio is taken from the other: it is all traffic that came or went.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from mmcache.dashboard.rows import Group, Window

ZERO = Fraction(0)
HALF = Fraction(1, 2)


class Who(NamedTuple):
    """Traffic is taken apart by these, and by no more, or each part would be noise."""

    service: str
    instance: str
    tenant: str
    route: str
    modality: str
    region: str


MANY = "\x00many"
"""Stands for the values of those that are counted together; it is nobody's name, and is never told."""
MOST = 500
"""More would not be read by anybody, and take long."""
FOLDS = (("tenant",), ("tenant", "region"), ("tenant", "region", "route"), ("tenant", "region", "route", "modality"),
         Who._fields)  # fmt: skip
"""Axes that are given up for them, the process last: what happens to one process happens to all of its."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one thing adds to the miss ratio, which is what it takes from the hit ratio. May be negative."""

    who: Who
    reason: str
    """Of the misses that became more; empty for traffic that came or went."""
    amount: Fraction
    came: Fraction = ZERO
    """Lookups a second more than before, where `reason` is empty."""


@dataclass
class Totals:
    """One group in one window."""

    lookups: Fraction = ZERO
    misses: dict[str, Fraction] = field(default_factory=lambda: defaultdict(Fraction))
    """By reason."""

    def of(self, reason: str) -> Fraction:
        """Its misses for one reason."""
        return self.misses.get(reason, ZERO)

    @property
    def miss_ratio(self) -> Fraction:
        """0 where nothing was looked up."""
        return sum(self.misses.values(), ZERO) / self.lookups if self.lookups else ZERO


Book = Mapping[Who, tuple[Totals, Totals]]
"""Before, now."""


def book(groups: Iterable[Group], most: int = MOST) -> Book:
    """Both windows, by who. Of more than `most`, half keep all their axes: those in which most
    changed. The others are put together."""
    counts: dict[Who, dict[tuple[int, str], float]] = {}
    for group in groups:
        who = Who(group.service, group.instance, group.tenant, group.route, group.modality, group.region)
        mine = counts.setdefault(who, {})
        reason = "" if group.hit else group.reason or "absent"
        for side, count in enumerate((group.before, group.now)):
            if count > 0:
                mine[side, reason] = mine.get((side, reason), 0.0) + count
    found: dict[Who, tuple[Totals, Totals]] = {}
    names = _folded(_ranked(counts) if len(counts) > most else list(counts), most)
    for who, name in names.items():
        both = found.setdefault(name, (Totals(), Totals()))
        for (side, reason), count in counts[who].items():
            exact = Fraction(count)
            both[side].lookups += exact
            if reason:
                both[side].misses[reason] += exact
    return dict(sorted(found.items()))


def _ranked(counts: Mapping[Who, Mapping[tuple[int, str], float]]) -> list[Who]:
    """Whose shares of all lookups, by reason, moved most comes first."""
    whole = [sum(n for mine in counts.values() for (at, _), n in mine.items() if at == side) or 1.0 for side in (0, 1)]

    def change(who: Who) -> float:
        mine = counts[who]
        reasons = {reason for _, reason in mine}
        return sum(abs(mine.get((1, one), 0.0) / whole[1] - mine.get((0, one), 0.0) / whole[0]) for one in reasons)

    return sorted(counts, key=lambda who: (-change(who), who))


def _folded(ranked: Sequence[Who], most: int) -> dict[Who, Who]:
    """Each one's name in the book."""
    if len(ranked) <= most:
        return {who: who for who in ranked}
    kept = most // 2
    for axes in FOLDS:
        small = {who: who._replace(**dict.fromkeys(axes, MANY)) for who in ranked[kept:]}
        if len(set(small.values())) <= most - kept:
            break
    return {who: small.get(who, who) for who in ranked}


def fall(held: Book) -> Fraction:
    """M₁ − M₀: how far the hit ratio fell. 0 where a window has no lookups."""
    before, now = _all(held, 0), _all(held, 1)
    return now.miss_ratio - before.miss_ratio if before.lookups and now.lookups else ZERO


def decompose(held: Book, before: Window, now: Window) -> list[Part]:
    """Parts whose amounts add up to `fall` exactly. Empty where a window has no lookups, or no length."""
    everything = _all(held, 0).lookups, _all(held, 1).lookups
    seconds = _seconds(before), _seconds(now)
    if not all(everything) or min(seconds) <= 0:
        return []
    parts: list[Part] = []
    middles: list[Fraction] = []
    for who, (old, new) in held.items():
        old_ratio = old.miss_ratio if old.lookups else new.miss_ratio
        new_ratio = new.miss_ratio if new.lookups else old.miss_ratio
        middles.append(HALF * (old_ratio + new_ratio))
        if not old.lookups or not new.lookups:
            continue
        share = HALF * (old.lookups / everything[0] + new.lookups / everything[1])
        moves = {
            reason: new.of(reason) / new.lookups - old.of(reason) / old.lookups
            for reason in sorted(old.misses.keys() | new.misses.keys())
        }
        parts += [Part(who, reason, share * move) for reason, move in moves.items() if move]
    means = [_mean(middles, [both[side] for both in held.values()], everything[side]) for side in (0, 1)]
    paces = [lookups / length for lookups, length in zip(everything, seconds, strict=True)]
    for (who, (old, new)), middle in zip(held.items(), middles, strict=True):
        came = new.lookups / seconds[1] - old.lookups / seconds[0]
        if amount := came * HALF * ((middle - means[0]) / paces[1] + (middle - means[1]) / paces[0]):
            parts.append(Part(who, "", amount, came))
    return parts


def _seconds(window: Window) -> Fraction:
    return Fraction(window.end) - Fraction(window.start)


def _mean(middles: Sequence[Fraction], totals: Sequence[Totals], everything: Fraction) -> Fraction:
    return sum((middle * one.lookups for middle, one in zip(middles, totals, strict=True)), ZERO) / everything


def _all(held: Book, side: int) -> Totals:
    whole = Totals()
    for both in held.values():
        whole.lookups += both[side].lookups
        for reason, count in both[side].misses.items():
            whole.misses[reason] += count
    return whole
