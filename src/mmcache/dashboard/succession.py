"""Processes that took the place of others: a rollout restarts them, and the new ones have other names.

Compared by name, all of a new process's lookups would be traffic that came, and nothing would tell what changed in it.
So a process that begins where another of its service ends is taken for the same one, under its new name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from mmcache.dashboard.rows import CauseRows, Group, SignatureRow

_GAP_STEPS = 3.0
"""Between the end of one and the beginning of the other, before or after it: instances overlap in a rollout."""

MOST = 300
"""Processes that ended, or began, and are looked at."""


RENAMED = ("route", "region", "service")
"""Axes that no key depends on: a new name there is no new traffic. A tenant's new name is: it shares nothing."""
_NEAR = 0.25
"""Of the pace; by how much what has a new name may differ."""
_ALIKE = 0.8
"""Of the lookups, that must be of the same tenants, processes… in both."""


@dataclass
class _Life:
    service: str
    first: float
    last: float
    step: float


def succeed(rows: CauseRows, heirs: Mapping[str, str]) -> CauseRows:
    """The same rows, of each process and those that it took the place of (`successors`) as one."""
    if not heirs:
        return rows

    def named(instance: str) -> str:
        seen = set()
        while instance in heirs and instance not in seen:
            seen.add(instance)
            instance = heirs[instance]
        return instance

    return replace(
        rows,
        groups=[replace(one, instance=named(one.instance)) for one in rows.groups],
        steps=[replace(one, instance=named(one.instance)) for one in rows.steps],
        signatures=_merged(replace(one, instance=named(one.instance)) for one in rows.signatures),
        examples=[replace(one, instance=named(one.instance)) for one in rows.examples],
    )


def successors(rows: CauseRows) -> dict[str, str]:
    """Who ended → who took its place."""
    lives = _lives(rows)
    ended = [(name, one) for name, one in lives.items() if one.last < rows.now.end - _GAP_STEPS * one.step]
    begun = [(name, one) for name, one in lives.items() if one.first > rows.baseline.start + _GAP_STEPS * one.step]
    pairs = [
        (abs(new.first - old.last), -_alike(before, after), before, after)
        for before, old in ended[:MOST]
        for after, new in begun[:MOST]
        if before != after and old.service == new.service and old.first < new.first
        and abs(new.first - old.last) <= _GAP_STEPS * max(old.step, new.step)
    ]  # fmt: skip
    heirs: dict[str, str] = {}
    for _, _, before, after in sorted(pairs):
        if before not in heirs and after not in heirs.values():
            heirs[before] = after
    return heirs


def _lives(rows: CauseRows) -> dict[str, _Life]:
    services = {one.instance: one.service for one in rows.groups}
    lives: dict[str, _Life] = {}
    for step in rows.steps:
        end = step.start + step.seconds
        one = lives.setdefault(step.instance, _Life(services.get(step.instance, ""), step.start, end, step.seconds))
        one.first, one.last, one.step = min(one.first, step.start), max(one.last, end), max(one.step, step.seconds)
    return lives


def _alike(one: str, other: str) -> int:
    """Characters that both begin with: a host's name, before the number of the process."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _merged(rows: Iterable[SignatureRow]) -> list[SignatureRow]:
    found: dict[tuple[str, str, str, str], SignatureRow] = {}
    for row in rows:
        name = row.service, row.instance, row.modality, row.signature
        one = found.get(name)
        found[name] = row if one is None else replace(
            one, fields=one.fields or row.fields, before_hits=one.before_hits + row.before_hits,
            before_misses=one.before_misses + row.before_misses, hits=one.hits + row.hits,
            misses=one.misses + row.misses, first=min(one.first, row.first), last=max(one.last, row.last),
            refused=one.refused + row.refused,
        )  # fmt: skip
    return list(found.values())


def rename(rows: CauseRows) -> CauseRows:
    """The same rows, of what has another name now as one: a route, a region or a service that was renamed."""
    for axis in RENAMED:
        names = _renamed(rows, axis)
        if names:
            rows = replace(
                rows,
                groups=[_called(one, axis, names) for one in rows.groups],
                keys=[_called(one, axis, names) for one in rows.keys],
                examples=[_called(one, axis, names) for one in rows.examples],
                signatures=_merged(_called(one, axis, names) for one in rows.signatures),
            )
    return rows


def _called(row: Any, axis: str, names: Mapping[str, str]) -> Any:
    new = names.get(getattr(row, axis, ""), "")
    return replace(row, **{axis: new}) if new and hasattr(row, axis) else row


def _renamed(rows: CauseRows, axis: str) -> dict[str, str]:
    """Who sends less → who was not there before, and sends as much as is missing, by the same processes and tenants."""
    before, now = _profiles(rows.groups, axis, rows.baseline.seconds, rows.now.seconds)
    sums = {name: (sum(before.get(name, {}).values()), sum(now.get(name, {}).values())) for name in before | now}
    less = [name for name, (old, new) in sums.items() if old > 0 and new <= (1 - _NEAR) * old]
    come = [name for name, (old, new) in sums.items() if name and old <= 0 < new]
    pairs = []
    for old in less[:MOST]:
        for new in come[:MOST]:
            missing = sums[old][0] - sums[old][1]
            alike = _overlap(before[old], now[new])
            if abs(sums[new][1] - missing) <= _NEAR * missing and alike >= _ALIKE:
                pairs.append((-alike, old, new))
    found: dict[str, str] = {}
    for _, old, new in sorted(pairs):
        if old not in found and new not in found.values():
            found[old] = new
    return found


_Profile = dict[str, dict[tuple[str, ...], float]]


def _profiles(groups: Iterable[Group], axis: str, *seconds: float) -> tuple[_Profile, _Profile]:
    """Lookups a second by name, and by everything else; before and now."""
    others = [name for name in ("service", "instance", "tenant", "route", "modality", "region") if name != axis]
    both: tuple[_Profile, _Profile] = {}, {}
    for group in groups:
        rest = tuple(getattr(group, name) for name in others)
        for found, lookups, length in zip(both, (group.before, group.now), seconds, strict=True):
            if lookups > 0 and length > 0:
                mine = found.setdefault(getattr(group, axis), {})
                mine[rest] = mine.get(rest, 0.0) + lookups / length
    return both


def _overlap(one: Mapping[tuple[str, ...], float], other: Mapping[tuple[str, ...], float]) -> float:
    """1 where both are spread alike, 0 where they have nothing in common."""
    whole, everything = sum(one.values()), sum(other.values())
    return sum(min(pace / whole, other.get(name, 0.0) / everything) for name, pace in one.items())
