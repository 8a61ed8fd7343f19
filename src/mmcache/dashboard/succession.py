"""Processes that took the place of others: a rollout restarts them, and the new ones have other names.

Compared by name, all of a new process's lookups would be traffic that came, and nothing would tell what changed in it.
So a process that begins where another of its service ends is taken for the same one, under its new name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import takewhile

from mmcache.dashboard.rows import CauseRows, SignatureRow

_GAP_STEPS = 3.0
"""Between the end of one and the beginning of the other, before or after it: instances overlap in a rollout."""

MOST = 300
"""Processes that ended, or began, and are looked at."""


@dataclass
class _Life:
    service: str
    first: float
    last: float
    step: float


def succeed(rows: CauseRows) -> CauseRows:
    """The same rows, of each process and those that it took the place of as one."""
    heirs = successors(rows)
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
        )  # fmt: skip
    return list(found.values())
