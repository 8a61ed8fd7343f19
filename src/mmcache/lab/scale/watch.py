"""Looks at a cluster from outside, several times a second: who serves how much, what its supervisor says."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any

from mmcache.model.errors import ScaleError, TierError
from mmcache.scale.observed import SLOTS
from mmcache.scale.talk import talk
from mmcache.scale.views import read_view

EVERY_SECONDS = 0.1
_PATIENCE = 1.0


@dataclass(frozen=True)
class Sight:
    """One look."""

    at: float
    """`time.monotonic`."""
    shards: int
    """Primaries that serve slots."""
    served: int
    """Slots whose primary is not known to be dead."""
    at_new: int
    """Slots at shards that were not there at first."""
    owners: Mapping[str, frozenset[int]] = field(repr=False, default_factory=dict)
    """By id."""


class Watch:
    """In a thread of its own; use it in a `with`."""

    def __init__(self, ports: Callable[[], list[int]], password: str | None, first: Callable[[int], bool]) -> None:
        """ports: of all nodes, now. first: whether a port is a node of the first shards."""
        self._ports, self._password, self._first = ports, password, first
        self.sights: list[Sight] = []
        self.dead: set[str] = set()
        """Ids of nodes that were killed: the others take a while to notice."""
        self._over = Event()
        self._thread = Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def look(self) -> Sight | None:
        """Now, as the node sees it that sees most slots served; None where no node answers."""
        best: Sight | None = None
        for port in self._ports():
            try:
                view = read_view(_ask(port, self._password, "CLUSTER", "NODES"))
            except (OSError, TierError, ScaleError):
                continue
            alive = [
                one for one in view.others.values()
                if one.slots and "fail" not in one.flags and one.id not in self.dead and not one.primary
            ]  # fmt: skip
            if not alive:  # it was started again, and knows nobody yet
                continue
            sight = Sight(
                time.monotonic(), len(alive), sum(len(one.slots) for one in alive),
                sum(len(one.slots) for one in alive if not self._first(one.port)),
                {one.id: one.slots for one in alive},
            )  # fmt: skip
            if whole(sight):
                return sight
            if best is None or sight.served > best.served:
                best = sight
        return best

    def until(self, met: Callable[[Sight], bool], seconds: float, what: str) -> Sight:
        """The first sight from now on that is so. Raises `ScaleError` when none is for so long."""
        begin, end, seen = time.monotonic(), time.monotonic() + seconds, len(self.sights)
        while time.monotonic() < end:
            for sight in self.sights[seen:]:
                if sight.at >= begin and met(sight):
                    return sight
            seen = len(self.sights)
            time.sleep(EVERY_SECONDS / 2)
        last = self.sights[-1] if self.sights else None
        raise ScaleError(f"not {what} after {seconds:g} s; last seen: {last}")

    def _run(self) -> None:
        while not self._over.wait(EVERY_SECONDS):
            sight = self.look()
            if sight is not None:
                self.sights.append(sight)


def whole(sight: Sight) -> bool:
    """Whether every slot is served."""
    return sight.served == SLOTS


class Offsets:
    """How far a primary's writes have gone, several times in a hundredth of a second; to tell what its replica had."""

    def __init__(self, port: int, password: str | None) -> None:
        self._port, self._password = port, password
        self._seen: list[tuple[float, int]] = []
        self._over = Event()
        self._thread = Thread(target=self._run, name="offsets", daemon=True)

    def __enter__(self) -> Offsets:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def replicated_until(self, offset: int) -> float:
        """What was acknowledged before then was within the first `offset` bytes of the stream, `time.monotonic`."""
        return max((at for at, seen in self._seen if seen <= offset), default=float("-inf"))

    def _run(self) -> None:
        while not self._over.wait(0.005):
            at = time.monotonic()
            try:
                self._seen.append((at, offset_of(self._port, self._password)))
            except (OSError, TierError):
                continue


def offset_of(port: int, password: str | None) -> int:
    """Bytes of the replication stream that this node has. Raises `OSError`, `TierError`."""
    said = _ask(port, password, "INFO", "replication").decode()
    lines = dict(line.split(":", 1) for line in said.splitlines() if ":" in line)
    return int(lines["slave_repl_offset"] if "slave_repl_offset" in lines else lines["master_repl_offset"])


def _ask(port: int, password: str | None, *words: str) -> Any:
    (reply,) = talk(port, words, password=password, timeout_seconds=_PATIENCE)
    if isinstance(reply, TierError):
        raise reply
    return reply
