"""What runners say of themselves, kept on the shared tier so that any machine can ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from mmcache.model.errors import TierError
from mmcache.sync.link import Keeper, paired
from mmcache.tiers.valkey.client import Script

NAME = "status"
BEAT_SECONDS = 1.0
OLD_SECONDS = 10.0
"""A runner that has said nothing for so long is gone, or cannot reach the shared tier."""
FORGOTTEN_SECONDS = 86_400.0

# times are the server's, so that runners and those who ask need not agree on one
_TELL = Script(
    "local now=redis.call('TIME') now=now[1]..'.'..string.format('%06d',now[2]) "
    "redis.call('HSET',KEYS[1],ARGV[1],now..' '..ARGV[2]) return now"
)
_ASK = Script("local now=redis.call('TIME') return {now[1], redis.call('HGETALL',KEYS[1])}")


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One runner's."""

    runner: str
    """Host and process."""
    group: str
    state: str
    """`reading`; or what it waits for: `broker`, `shared tier`, `topics`. `stopped` when it left."""
    started: float
    """Unix seconds."""
    counts: dict[str, int] = {}
    positions: dict[str, int] = {}
    """Next offset, by "topic/partition"."""
    lag: int = 0
    """Messages that are there and not applied."""
    lag_seconds: float = 0.0
    """For how long what the broker has, or should say that it has, may not be applied; 0 where all of it is."""
    heard_seconds: float | None = None
    """Since the connector's last heartbeat; None where the heartbeat topic is not read."""
    epochs: int = 0
    """How often it was not known what was missed."""
    last_error: str = ""
    dead: int = 0


@dataclass(frozen=True)
class Seen:
    """A report, and how old it is."""

    report: Report
    age: float

    @property
    def alive(self) -> bool:
        """Whether that runner runs."""
        return self.age <= OLD_SECONDS and self.report.state != "stopped"


class Status:
    """All reports. Methods raise `TierError`."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    def tell(self, report: Report) -> None:
        """Replace one's own."""
        self._keeper.run(NAME, _TELL, report.runner, msgspec.json.encode(report))

    def seen(self) -> list[Seen]:
        """All of them, the newest first."""
        reply: Any = self._keeper.run(NAME, _ASK)
        try:
            now, fields = float(reply[0]), paired(reply[1])
        except (TypeError, ValueError, LookupError) as error:
            raise TierError(f"the status cannot be read: {reply!r:.60}") from error
        found = []
        for raw in fields.values():
            stamp, _, text = raw.partition(b" ")
            try:
                found.append(Seen(msgspec.json.decode(text, type=Report), max(0.0, now - float(stamp))))
            except (msgspec.MsgspecError, ValueError):  # of another version
                continue
        return sorted(found, key=lambda one: one.age)

    def tidy(self) -> None:
        """Forget runners that have been gone for a day."""
        old = [one.report.runner for one in self.seen() if one.age > FORGOTTEN_SECONDS]
        self._keeper.hash(NAME).drop(old)
