"""Where something happens: the few values of the few axes that hold most of it, and held little of the traffic.

Explanatory power, succinctness and surprise, as Bhagwan et al. call them (Adtributor: revenue debugging in advertising
systems, NSDI 2014).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from mmcache.dashboard.decompose import MANY, Who
from mmcache.dashboard.telling import Where

ORDER = ("tenant", "instance", "route", "modality", "region", "service")
"""Of two axes that say the same, the first is named."""
ENOUGH = 0.7
"""Of the amount, that the named values hold."""
SURPRISE = 0.2
"""By how much their share of the amount exceeds their share of the traffic."""
ALONE = 0.2
"""Of what those who are not named would have by their traffic: where they have less, what is named is alone in it."""
LEAST_OTHERS = 0.01
"""Of the traffic; of fewer it would be chance."""
MOST_VALUES = 3
LEAST_VALUE = 0.15
_TIE = 0.02


def locate(amounts: Mapping[Who, float], traffic: Mapping[Who, float]) -> dict[str, str | list[str]]:
    """The axes on which `amounts` (positive) lie elsewhere than `traffic`; empty where they lie alike."""
    where: dict[str, str | list[str]] = {}
    left = {who: amount for who, amount in amounts.items() if amount > 0}
    usual = {who: amount for who, amount in traffic.items() if amount > 0}
    while len(where) < len(ORDER):
        best: tuple[float, str, list[str]] | None = None
        for axis in (axis for axis in ORDER if axis not in where):
            values, surprise = _surprise(axis, left, usual)
            if surprise >= SURPRISE and (best is None or surprise > best[0] + _TIE):
                best = surprise, axis, values
        if best is None:
            return where or _alone(left, usual)
        _, axis, values = best
        where[axis] = values[0] if len(values) == 1 else sorted(values)
        left = {who: amount for who, amount in left.items() if getattr(who, axis) in values}
        usual = {who: amount for who, amount in usual.items() if getattr(who, axis) in values} or usual
    return where


def inside(where: Where, who: object) -> bool:
    """Whether a group, or any row with these axes as attributes, lies there. Axes that the row lacks do not count."""
    return all(
        getattr(who, axis, said) == said if isinstance(said, str) else getattr(who, axis, said[0]) in said
        for axis, said in where.items()
    )


def _surprise(axis: str, amounts: Mapping[Who, float], traffic: Mapping[Who, float]) -> tuple[list[str], float]:
    mine, usual = _by(axis, amounts), _by(axis, traffic)
    whole, everything = sum(mine.values()), sum(usual.values())
    if not whole or not everything:
        return [], 0.0
    ranked = sorted(mine, key=lambda value: (-mine[value], value))[:MOST_VALUES]
    values = [value for place, value in enumerate(ranked) if not place or mine[value] >= LEAST_VALUE * whole]
    if MANY in values:
        return [], 0.0
    held = sum(mine[value] for value in values) / whole
    return values, held - sum(usual.get(value, 0.0) for value in values) / everything if held >= ENOUGH else 0.0


def _alone(amounts: Mapping[Who, float], traffic: Mapping[Who, float]) -> dict[str, str | list[str]]:
    """Nearly all traffic is one value's, and so it surprises nobody; the others have no part in it all the same."""
    for axis in ORDER:
        mine, usual = _by(axis, amounts), _by(axis, traffic)
        whole, everything = sum(mine.values()), sum(usual.values())
        if not whole or not everything:
            return {}
        first = max(mine, key=lambda value: (mine[value], value))
        others = 1 - usual.get(first, 0.0) / everything
        if first != MANY and others >= LEAST_OTHERS and 1 - mine[first] / whole <= ALONE * others:
            return {axis: first}
    return {}


def _by(axis: str, amounts: Mapping[Who, float]) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for who, amount in amounts.items():
        found[getattr(who, axis)] += amount
    return found
