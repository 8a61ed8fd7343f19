"""`Admission`: whether a computed block may be stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from mmcache.model.block import Facts
from mmcache.model.event import RefuseReason
from mmcache.model.key import Key


@dataclass(frozen=True, slots=True)
class Admit:
    """Store it."""


@dataclass(frozen=True, slots=True)
class Reject:
    """Do not store it."""

    reason: RefuseReason


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again after this many seconds."""

    seconds: float


Verdict = Admit | Reject | Wait


@runtime_checkable
class Admission(Protocol):
    """One pure question."""

    def judge(self, key: Key, facts: Facts, now: float) -> Verdict:
        """May this block be stored?"""
