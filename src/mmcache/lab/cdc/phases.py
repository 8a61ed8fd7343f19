"""Writes at a steady pace, with or without a stage that dies meanwhile; what three cache processes serve is noted.

Every row is written once a phase, so that a version served says which writes were heard of. Times are of the machine's
monotonic clock, which all its processes share.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from mmcache.lab.cdc.pipe import CacheProcess, Pipe, ask_all
from mmcache.lab.cdc.postgres import client, connected
from mmcache.lab.cdc.tail import Tail
from mmcache.lab.servers import Node
from mmcache.model.errors import TierError

WINDOW_SECONDS = 1.5
"""So long after a commit, or after a stage is back, everybody must agree."""
EVERY = 10
"""Every so many-th row is read by the caches."""
_BEFORE_SECONDS, _AWAY_SECONDS, _PATIENCE_SECONDS = 3.0, 1.0, 40.0


@dataclass
class Phase:
    """What one phase came to."""

    name: str
    rate: float
    rows: Sequence[int]
    version: int
    commits: dict[int, float] = field(default_factory=dict)
    """By row: when the commit was confirmed."""
    seen: list[dict[int, float]] = field(default_factory=list)
    """A cache process each: when a row was first served in its new version."""
    old: list[tuple[int, float]] = field(default_factory=list)
    """Rows served in their old version though the new one was committed, and when they were asked for."""
    reads: int = 0
    loads: int = 0
    """Reads for which the row was fetched from the database."""
    wrong: int = 0
    unanswered: int = 0
    settled: bool = True
    left: int = 0
    """Rows that some process still served as old at the very end."""
    twice: int = 0
    """Events that the broker held more than once."""
    killed: float | None = None
    back: float | None = None

    @property
    def watched(self) -> list[int]:
        """The rows that the caches read."""
        return [row for row in self.rows if row % EVERY == 0]

    def latencies(self, number: int) -> list[float]:
        """Of one cache process, seconds from commit to new value."""
        return [max(0.0, at - self.commits[row]) for row, at in self.seen[number].items()]

    def windows(self) -> list[float]:
        """Seconds between the first and the last process that served a row's new version."""
        rows = set.intersection(*(set(one) for one in self.seen)) if self.seen else set()
        return [max(one[row] for one in self.seen) - min(one[row] for one in self.seen) for row in rows]

    def stale(self) -> list[float]:
        """How old what was served had been for, where that is more than the window and no stage was away."""
        found = []
        for row, asked in self.old:
            since = self.commits.get(row, asked)
            if self.killed is not None and self.back is not None and asked > self.killed:
                since = max(since, self.back)
            if asked - since > WINDOW_SECONDS:
                found.append(asked - since)
        return found

    def oldest(self) -> float:
        """How long ago the new version of anything served as old had been committed, at most."""
        return max((asked - self.commits[row] for row, asked in self.old if row in self.commits), default=0.0)

    def healed(self) -> float:
        """Seconds from when the stage was back until all that was committed before is served as new, everywhere."""
        assert self.back is not None
        back = self.back
        made = {row for row, at in self.commits.items() if at <= back}
        return max(
            (at - back for one in self.seen for row, at in one.items() if row in made and at > back), default=0.0
        )


Chaos = Callable[[Phase], Sequence[CacheProcess]]
"""Kills and restarts something, fills in `killed` and `back`, and returns the cache processes that ran on."""


def write(pipe: Pipe, phase: Phase, given_up: threading.Event) -> None:
    """Write the rows of `phase` at its pace; a database that is away is tried again until it is back."""
    database: Any = None
    start = time.monotonic()
    for number, row in enumerate(phase.rows):
        time.sleep(max(0.0, start + number / phase.rate - time.monotonic()))
        while row not in phase.commits and not given_up.is_set():
            try:
                if database is None:
                    database = connected(pipe.stages.postgres.port)
                with database.cursor() as cursor:
                    cursor.execute("UPDATE products SET version = %s WHERE id = %s", (phase.version, row))
                phase.commits[row] = time.monotonic()
                pipe.board.committed = row
            except client().Error:
                if database is not None:
                    with suppress(client().Error):
                        database.close()
                database = None
                time.sleep(0.02)
    if database is not None:
        database.close()


def run(
    pipe: Pipe, name: str, rows: Sequence[int], version: int, rate: float,
    chaos: Chaos | None = None,
) -> Phase:  # fmt: skip
    """One phase."""
    phase = Phase(name, rate, rows, version)
    watched = phase.watched
    pipe.board.committed = 0
    pipe.each("warm", rows=watched)
    pipe.each("begin", rows=watched, version=version)
    given_up = threading.Event()
    writer = threading.Thread(target=write, args=(pipe, phase, given_up))
    writer.start()
    lasted: Sequence[CacheProcess] = pipe.caches
    try:
        if chaos is not None:
            time.sleep(_BEFORE_SECONDS)
            lasted = chaos(phase)
    except BaseException:
        given_up.set()
        raise
    finally:
        writer.join()
    for found in ask_all(pipe.caches, "end", patience=_PATIENCE_SECONDS):
        phase.settled &= found["settled"]
        phase.old += [(row, at) for row, at in found["old"]]
        for count in ("reads", "loads", "wrong", "unanswered"):
            setattr(phase, count, getattr(phase, count) + found[count])
        phase.seen.append(dict(found["seen"]))
    phase.seen = [seen for seen, one in zip(phase.seen, pipe.caches, strict=True) if one in lasted]
    checks = pipe.each("check", rows=watched, version=version)
    phase.left = sum(check["old"] for check in checks)
    phase.wrong += sum(check["wrong"] for check in checks)
    if chaos is not None:
        phase.twice = events_twice(pipe, version)
    return phase


def events_twice(pipe: Pipe, version: int) -> int:
    """How many events of one phase the broker holds again: of the same row, which was written once."""
    rows: list[int] = []
    with Tail(pipe.stages.broker.address, pipe.stages.connector.topics) as tail:
        for message in tail.messages(0.5, 20.0):
            after = json.loads(message.value)["after"] if message.value else None
            if after is not None and after["version"] == version:
                rows.append(int(after["id"]))
    return len(rows) - len(set(rows))


# what dies


def _dies(phase: Phase, kill: Callable[[], None], start: Callable[[], None], away: float = _AWAY_SECONDS) -> None:
    phase.killed = time.monotonic()
    kill()
    time.sleep(away)
    start()
    phase.back = time.monotonic()


def _holder(pipe: Pipe) -> Node | None:
    """Who holds the news; None while nobody says."""
    try:
        return pipe.news_node()
    except TierError:
        return None


def stages(pipe: Pipe) -> Mapping[str, Chaos]:
    """By name, what kills one stage and starts it again; in the order in which a change comes by."""

    def part(kill: Callable[[], None], start: Callable[[], None]) -> Chaos:
        def chaos(phase: Phase) -> Sequence[CacheProcess]:
            _dies(phase, kill, start)
            return pipe.caches

        return chaos

    def valkey(phase: Phase) -> Sequence[CacheProcess]:
        """Its replica takes over, then it comes back as a replica."""
        node = pipe.news_node()

        def start() -> None:
            while _holder(pipe) in (node, None):
                time.sleep(0.05)
            pipe.cluster.restart(node)
            pipe.cluster.await_healthy()

        _dies(phase, lambda: pipe.cluster.kill(node), start)
        return pipe.caches

    def emptied(phase: Phase) -> Sequence[CacheProcess]:
        """It is back before anybody noticed: still a primary, but it has forgotten all, and so does its replica."""
        node = pipe.news_node()

        def start() -> None:
            pipe.cluster.restart(node)
            pipe.cluster.await_healthy()

        _dies(phase, lambda: pipe.cluster.kill(node), start, away=0.1)
        return pipe.caches

    def cache(phase: Phase) -> Sequence[CacheProcess]:
        first = pipe.caches[0]
        _dies(phase, first.kill, first.start)
        first.order("begin", rows=phase.watched, version=phase.version)
        first.answer()
        return [first]

    made = pipe.stages
    return {
        "postgres": part(made.postgres.kill, made.postgres.start),
        "connector": part(made.connector.kill, made.connector.start),
        "broker": part(made.broker.kill, made.broker.start),
        "sync": part(pipe.sync.kill, pipe.sync.start),
        "valkey": valkey,
        "valkey-emptied": emptied,
        "cache": cache,
    }
