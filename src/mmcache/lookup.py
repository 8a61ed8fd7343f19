"""What a lookup found and what a put kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mmcache.model.event import MissReason
from mmcache.model.frame import Frame
from mmcache.model.key import Key
from mmcache.model.void import VoidKey

Make = Callable[[], object]


@dataclass(slots=True)  # not frozen: one is made for each lookup, and frozen ones take thrice the time
class Lookup:
    """What a lookup found. Nobody changes one: some are shared."""

    make: Make | None
    """Makes the value, fresh each call; None = miss."""
    tier: str = ""
    reason: MissReason = MissReason.ABSENT
    frame: Frame | None = None
    deadline: float | None = None
    """When it ends, in monotonic seconds; None = never."""
    stale: bool = False
    """It is over, and may be served only while somebody revalidates it."""
    detail: str = ""
    """Of a miss, where it is known: which signature is stored instead, which tier failed and how, what refused it."""
    began: int = 0
    """Where an observer wants to hear how it ends: Unix nanoseconds of its beginning."""

    @property
    def saved(self) -> float:
        """Seconds of compute that the hit saved."""
        return self.frame.header.cost if self.frame is not None else 0.0

    @property
    def size(self) -> int:
        """Bytes of the frame."""
        return self.frame.size if self.frame is not None else 0

    @property
    def created(self) -> float | None:
        """When its frame was made: the same at every read, which a deadline translated between clocks is not."""
        return self.frame.header.created if self.frame is not None else None

    def since(self, when: float | None) -> bool:
        """Whether it was made then or later (Unix seconds); None = whenever."""
        return when is None or ((made := self.created) is not None and made >= when)


@dataclass(frozen=True, slots=True)
class Kept:
    """What became of a put: the maker of what hits will get, and whether any tier took it."""

    make: Make
    kept: bool
    size: int = 0
    """Bytes of its frame."""


ABSENT = Lookup(None)
SWITCHED_OFF = Lookup(None, reason=MissReason.BYPASSED, detail="switched off")
TOO_OLD = Lookup(None, reason=MissReason.EXPIRED, detail="older than the caller takes")


def bypassed(bypass: bool | str) -> Lookup:
    """The lookup that was not made. bypass: why; False where the mode is off."""
    why = bypass if isinstance(bypass, str) else "asked for"
    return Lookup(None, reason=MissReason.BYPASSED, detail=why) if bypass else SWITCHED_OFF


def void(key: Key) -> Lookup | None:
    """The lookup of a key that nothing is stored for; None: it is another key."""
    if not isinstance(key, VoidKey):
        return None
    return Lookup(None, reason=key.reason, detail="rows: the state of what it rests on cannot be told")


# The most telling reason wins when tiers disagree.
_TELLING = [
    MissReason.CORRUPT, MissReason.SIGNATURE, MissReason.DENIED, MissReason.EXPIRED, MissReason.STALE_LEASE,
    MissReason.TIMEOUT, MissReason.TIER_DOWN, MissReason.BYPASSED, MissReason.ABSTAINED, MissReason.EVICTED,
    MissReason.ABSENT,
]  # fmt: skip


def more_telling(reason: MissReason, than: MissReason) -> bool:
    """Whether one tier's reason says more than another's."""
    return _TELLING.index(reason) < _TELLING.index(than)
