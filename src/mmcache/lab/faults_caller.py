"""`Caller`: one host's cache on a shared tier, whose every answer is checked; what it saw goes into a `Phase`."""

from __future__ import annotations

import re
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mmcache import Cache, Row
from mmcache.model.clock import SystemClock
from mmcache.model.errors import TierError
from mmcache.model.event import Failed, Missed, Refused
from mmcache.model.key import Key
from mmcache.settings import SharedSettings
from mmcache.tiers.base import Found
from mmcache.tiers.valkey import ValkeyTier
from mmcache.tiers.valkey.client import Client
from mmcache.tiers.valkey.followed import tell_followed

BLOCKS = 48
"""Of a caller, on all nodes."""
TTL_SECONDS = 3600.0
_LARGE = 8
"""Every so manieth block is large, and is kept in pieces."""
_ON_A_ROW = 12
"""Every so manieth block rests on a database row."""
_SMALL_FLOATS, _LARGE_FLOATS = 200, 160_000
_GENERATIONS = 1000
_SECRET = b"0123456789abcdef" * 2
_NO_MEMORY = 1
"""Bytes: no block fits, so that every lookup is the shared tier's."""
_NODE = re.compile(r"(\d+\.\d+\.\d+\.\d+|localhost):\d+")
_MISSING: Any = object()


@dataclass
class Phase:
    """What callers saw during a part of a trial."""

    lookups: int = 0
    hits: int = 0
    missed: Counter[str] = field(default_factory=Counter)
    """By reason."""
    refused: Counter[str] = field(default_factory=Counter)
    """Puts to the shared tier that were not stored, by reason."""
    errors: Counter[str] = field(default_factory=Counter)
    """What was raised to a caller, by class and place: there must be none."""
    wrong: int = 0
    """Answers that nobody ever stored for that key."""
    stale: int = 0
    """Answers that this host had replaced or invalidated before it asked."""
    slowest: float = 0.0
    """Seconds of the slowest lookup."""
    said: Counter[str] = field(default_factory=Counter)
    """What `Failed` events said, without addresses."""

    @property
    def hit_share(self) -> float:
        """Per cent."""
        return 100 * self.hits / max(1, self.lookups)


def value_of(block: int, generation: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """float64 [n]: what a block is computed to; n tells small and large ones apart."""
    floats = _LARGE_FLOATS if block % _LARGE == _LARGE - 1 else _SMALL_FLOATS
    return np.full(floats, float(block * _GENERATIONS + generation))


def _rests_on_a_row(block: int) -> bool:
    return block % _ON_A_ROW == 5


class Caller:
    """Looks blocks up, computes what is missing, replaces some and invalidates some; one thread, one call at a time."""

    def __init__(self, settings: SharedSettings, like: Caller | None = None, memory: int = _NO_MEMORY) -> None:
        """`like`: who replaces and invalidates; this one only reads, and knows what the other has done."""
        self._opened = ExitStack()
        self.cache = self._opened.enter_context(Cache(memory=memory, shared=settings, secret=_SECRET))
        self._feed = self._opened.enter_context(self.cache.events.feed())
        self._follower = self._opened.enter_context(closing(Client(settings, clock=SystemClock())))
        self.follow()
        self._newest: dict[int, int] = {} if like is None else like._newest
        """Block → the generation that this host has put last, or the first that it may put after an invalidation."""
        self._turn = 0

    def follow(self) -> None:
        """What `mmcache sync run` says again and again, over connections of its own."""
        with suppress(TierError):
            tell_followed(self._follower, {"things": []}, seconds=3600.0)

    def settle(self, phase: Phase) -> None:
        """Write what is pending, and note what became of it."""
        self._guarded(phase, lambda block: self.cache.flush(), 0)
        self._collect(phase)

    def close(self) -> None:
        """Close the cache."""
        self._opened.close()

    def key(self, block: int) -> Key:
        """Of a block."""
        rows = [Row("things", block)] if _rests_on_a_row(block) else []
        return self.cache.key(f"block {block}", modality="text", signature="model-1", rows=rows)

    def round(self, phase: Phase, blocks: int = BLOCKS) -> bool:
        """Each block once; whether all were hits. Every seventh is then replaced, and the one after it invalidated."""
        before = phase.hits
        self.follow()
        for block in range(blocks):
            self.look_up(phase, block)
        everything = phase.hits - before == blocks
        self._turn += 1
        for block in range(self._turn % 7, blocks, 7):
            if _rests_on_a_row(block):
                continue  # only the database changes it
            if block % 2:
                self._guarded(phase, self._replace, block)
            else:
                self._guarded(phase, self._invalidate, block)
        self._collect(phase)
        return everything

    def fill(self, phase: Phase, blocks: int = BLOCKS) -> None:
        """Compute what is missing, so that the next round may find everything."""
        for block in range(blocks):
            self._guarded(phase, self._compute, block)
        self.settle(phase)

    def look_up(self, phase: Phase, block: int) -> None:
        """Get it, or compute it."""
        if not self.read(phase, block):
            self._guarded(phase, self._compute, block)

    def read(self, phase: Phase, block: int) -> bool:
        """Get it; whether it was a hit."""
        self._collect(phase)
        began = time.perf_counter()
        found = self._guarded(phase, lambda block: self.cache.get(self.key(block), _MISSING), block)
        phase.slowest = max(phase.slowest, time.perf_counter() - began)
        phase.lookups += 1
        self._collect(phase, missed=True)
        if found is _MISSING or found is None:
            return False
        phase.hits += 1
        self._judge(phase, block, found)
        return True

    def _compute(self, block: int) -> None:
        generation = self._newest.setdefault(block, 0)
        self.cache.get_or_compute(self.key(block), lambda: value_of(block, generation), ttl=TTL_SECONDS)

    def _replace(self, block: int) -> None:
        self._newest[block] = self._newest.get(block, 0) + 1
        self.cache.put(self.key(block), value_of(block, self._newest[block]), ttl=TTL_SECONDS)

    def _invalidate(self, block: int) -> None:
        self._newest[block] = self._newest.get(block, 0) + 1
        self.cache.invalidate(self.key(block))

    def _judge(self, phase: Phase, block: int, found: Any) -> None:
        generation = int(found.flat[0]) - block * _GENERATIONS
        newest = self._newest.get(block, 0)
        if not 0 <= generation <= newest or not np.array_equal(found, value_of(block, generation)):
            phase.wrong += 1
        elif generation < newest:
            phase.stale += 1

    @staticmethod
    def _guarded(phase: Phase, do: Callable[[int], Any], block: int) -> Any:
        try:
            return do(block)
        except Exception as error:  # noqa: BLE001 - that nothing is raised is what is tested
            where = traceback.extract_tb(error.__traceback__)[-1]
            phase.errors[f"{type(error).__name__}@{Path(where.filename).stem}.{where.name}"] += 1
            return None

    def _collect(self, phase: Phase, *, missed: bool = False) -> None:
        """What the cache has said since the last time; misses only of a lookup, since computing looks again."""
        refused = set()
        for event in self._feed.drain():
            if isinstance(event, Missed):
                phase.missed[event.reason.value] += missed
            elif isinstance(event, Refused) and event.tier == "valkey":
                refused.add((event.key, event.reason.value))
                if event.detail:
                    phase.said[f"{event.reason.value}: {_NODE.sub('NODE', event.detail)[:160]}"] += 1
            elif isinstance(event, Failed):
                phase.said[f"{event.where}: {_NODE.sub('NODE', event.detail)[:160]}"] += 1
        phase.refused.update(reason for _, reason in refused)


class Writer(threading.Thread):
    """Another host that stores new blocks all the time. What it stored is checked by someone else, afterwards."""

    FIRST = 10_000

    def __init__(self, settings: SharedSettings) -> None:
        super().__init__(daemon=True, name="mmcache-lab-writer")
        self.phase = Phase()
        self.written = 0
        self._caller = Caller(settings)
        self._caller.key(_ON_A_ROW + 5)  # a cache that was just opened waits until it hears the news, once
        self._stopped = threading.Event()

    def run(self) -> None:
        """Until `stop`."""
        while not self._stopped.wait(0.002):
            self._caller.look_up(self.phase, self.FIRST + self.written)
            self.written += 1

    def stop(self) -> Phase:
        """End it; what it saw."""
        self._stopped.set()
        self.join()
        self._caller.settle(self.phase)
        self._caller.close()
        return self.phase

    def check(self, reader: Caller, phase: Phase) -> None:
        """Another host looks up all that was written: it is right, or missed. (What rests on a row it may not, yet.)"""
        for block in range(self.FIRST, self.FIRST + self.written):
            if not _rests_on_a_row(block):
                reader.look_up(phase, block)
        reader.settle(phase)


class Counting:
    """Single lookups of a bare tier, whose timeouts are counted, call by call."""

    def __init__(self, settings: SharedSettings, caller: Caller) -> None:
        self._tier = ValkeyTier(settings, heartbeat=False)
        self._caller = caller
        self.most = 0
        """Timeouts that one lookup cost."""
        self.all = 0
        self.lookups = 0
        self.hits = 0

    def round(self, blocks: int = BLOCKS) -> None:
        """Each block once."""
        for block in range(blocks):
            before = self._timeouts()
            (found,) = self._tier.get([self._caller.key(block)])
            cost = self._timeouts() - before
            self.most, self.all = max(self.most, cost), self.all + cost
            self.lookups += 1
            self.hits += isinstance(found, Found)

    def status(self) -> dict[str, int | float | str]:
        """The client's counts."""
        return self._tier.stats().detail

    def _timeouts(self) -> int:
        return int(self._tier.client.status()["timeouts"])

    def close(self) -> None:
        """Close the tier."""
        self._tier.close()
