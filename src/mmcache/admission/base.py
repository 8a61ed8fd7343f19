"""`Admission`: whether a computed block may be stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from mmcache.model.block import Facts
from mmcache.model.event import RefuseReason
from mmcache.model.key import Key
from mmcache.settings import Tenant


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


@runtime_checkable
class Ranks(Protocol):
    """Who computes next where compute slots are short; see `slots.Slots`. Optional for an admission."""

    def choose(self, waiting: Iterable[tuple[str, int]], free: int, slots: int, now: float) -> str | None:
        """One of the waiting tenants (each with how often it was overtaken), or None where nobody may go now."""

    def began(self, tenant: str, slots: int, now: float) -> None:
        """A computation of `tenant` started on one of `slots`."""

    def ended(self, tenant: str, slots: int, now: float) -> None:
        """It is over, or lends its slot to others while it waits."""

    def reset(self) -> None:
        """Nothing is running any more."""


@runtime_checkable
class Watchful(Protocol):
    """An admission that follows how full the cache is. Optional: told before each `judge`."""

    def space(self, tenant: str, own: int, held: int, limit: int) -> None:
        """Bytes of the memory tier: what `tenant` holds, what all hold, and what they may hold."""


@runtime_checkable
class Classed(Protocol):
    """An admission that knows the tenants' classes. Optional: told once, when the cache is made."""

    def serve(self, tenants: Mapping[str, Tenant]) -> None:
        """Who is of which class; who is not named is `Tenant()`."""
