"""The core of `auto` in plain Python: the same decisions as the compiled twin `_auto.c`, to the bit."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop

from mmcache.model.block import Facts
from mmcache.model.key import Key
from mmcache.policies.auto_ghosts import Ghosts, hash_of
from mmcache.policies.auto_rates import Rates, class_of, octave

POOL, SAMPLES, SCANS, SCAN_LEAST, MOST_USES = 16, 64, 16, 128, 1023
SLOPE, SHIELD = 0.01, 1e60
LEAST_COST, MOST_COST, MOST_SIZE = 1e-6, 1e9, 1e18
WRAP = 1 << 31


@dataclass(slots=True)
class _Entry:
    key: Key
    weight: float
    last: int
    uses: int
    group: int
    needed: bool
    pooled: bool = False


def weight_of(facts: Facts) -> float:
    """Seconds per byte, at single precision; unknown costs are a microsecond."""
    try:
        size = float(facts.size)
    except OverflowError:
        size = MOST_SIZE
    size = min(size if size >= 1.0 else 1.0, MOST_SIZE)
    cost = float(facts.cost)
    cost = min(cost if cost >= LEAST_COST else LEAST_COST, MOST_COST)
    weight: float = struct.unpack("f", struct.pack("f", cost / size))[0]
    return weight


class PythonCore:
    """See `Auto`. `clock`: requests before the first; it is set back when it reaches 2**31."""

    def __init__(self, seed: int = 1, clock: int = 0) -> None:
        self._entries: list[_Entry] = []
        self._slots: dict[Key, int] = {}
        self._ghosts, self._rates = Ghosts(), Rates()
        self._clock = self._scanned = clock
        self._next_scan = clock + SCAN_LEAST
        self._pool: list[tuple[float, int]] = []  # the lowest scores seen, with their slots, lowest first
        self._pool_clock: int | None = None
        self._newest: int | None = None
        self._random, self._version = seed, 0

    def add(self, key: Key, facts: Facts, now: float) -> None:
        """See `Policy.add`."""
        weight, needed = weight_of(facts), bool(facts.references)
        if (slot := self._slots.get(key)) is not None:
            entry = self._entries[slot]
            entry.weight, entry.needed, self._pool_clock = weight, needed, None
            return
        self._tick()
        uses, gap = 1, 0
        if ghost := self._ghosts.take(hash_of(key)):
            last, used, group = ghost
            self._reused(group, last)
            uses, gap = min(used + 1, MOST_USES), self._clock - last
        self._newest = self._slots[key] = len(self._entries)
        self._entries.append(_Entry(key, weight, self._clock, uses, class_of(uses, gap), needed))
        self._version += 1

    def touch(self, key: Key, now: float) -> None:
        """See `Policy.touch`."""
        if (slot := self._slots.get(key)) is None:
            return
        self._tick()
        entry = self._entries[slot]
        self._reused(entry.group, entry.last)
        entry.uses = min(entry.uses + 1, MOST_USES)
        entry.group = class_of(entry.uses, self._clock - entry.last)
        entry.last = self._clock

    def drop(self, key: Key) -> None:
        """See `Policy.drop`."""
        if (slot := self._slots.pop(key, None)) is None:
            return
        self._refresh()
        gone = self._entries[slot]
        if gone.pooled:
            self._pool = [member for member in self._pool if member[1] != slot]
        for last, group in self._ghosts.fit(len(self._entries)):
            self._elapsed(group, last)
        if left := self._ghosts.put(hash_of(key), gone.last, gone.uses, gone.group):
            self._elapsed(left[1], left[0])
        if self._newest == slot:
            self._newest = None
        moved, end = self._entries.pop(), len(self._entries)
        if end != slot:  # the last entry takes its place
            self._entries[slot], self._slots[moved.key] = moved, slot
            if self._newest == end:
                self._newest = slot
            if moved.pooled:
                self._pool = [(score, slot if at == end else at) for score, at in self._pool]
        self._refill()
        self._version += 1

    def victims(self, now: float) -> Iterator[Key]:
        """See `Policy.victims`. Ends early when a block comes or goes meanwhile."""
        version, given, random = self._version, set[int](), self._random
        random, chosen, left = self._first(random)
        while version == self._version and len(given) < (count := len(self._entries)):
            if not chosen or not left:
                last = len(given) >= count // 64
                slots: Iterable[int] = range(count)
                if not last:
                    random, slots = draw(random, count, 32 * len(given))
                chosen = [(self._score(slot), slot) for slot in slots if slot not in given]
                left = len(chosen) if last else len(given)  # the rest of a sample is not low
                heapify(chosen)
                continue
            _, slot = heappop(chosen)
            if slot not in given:
                given.add(slot)
                left -= 1
                yield self._entries[slot].key

    def _first(self, random: int) -> tuple[int, list[tuple[float, int]], int]:
        """The random state, a heap of the pool and the newest, or of all if few, and how many of them may be given."""
        count = len(self._entries)
        slots: Iterable[int] = range(count)
        if few := count <= 2 * POOL:
            chosen = [(self._score(slot), slot) for slot in slots]
        else:
            self._refresh()
            chosen = list(self._pool)
            if self._newest is not None:
                chosen.append((self._score(self._newest), self._newest))
            if len(self._pool) < POOL:  # nothing was dropped lately
                random, slots = draw(random, count, SAMPLES)
                chosen += [(self._score(slot), slot) for slot in slots]
        heapify(chosen)
        return random, chosen, len(chosen) if few else POOL

    def explain(self, key: Key, now: float) -> dict[str, float]:
        """See `Explains.explain`."""
        if (slot := self._slots.get(key)) is None:
            return {}
        entry = self._entries[slot]
        age = self._clock - entry.last
        return {
            "seconds_per_byte": entry.weight,
            "hits_per_request": self._rates.density[entry.group][octave(age)],
            "uses": float(entry.uses),
            "age_requests": float(age),
            "needed": float(entry.needed),
            "score": self._score(slot),
        }

    def _score(self, slot: int) -> float:
        entry = self._entries[slot]
        age = self._clock - entry.last
        b = octave(age)
        start = 1 << b
        within = min((age - start) / start, 1.0) if age > start else 0.0
        score = entry.weight * self._rates.density[entry.group][b] * (1.0 - SLOPE * within)
        return score * SHIELD if entry.needed else score

    def _tick(self) -> None:
        """One more request; sometimes time to learn."""
        self._clock += 1
        if self._clock >= self._next_scan:
            self._scan()
        if self._clock >= WRAP:
            by = WRAP // 2
            for entry in self._entries:
                entry.last = max(entry.last - by, 1)
            self._ghosts.set_back(by)
            self._clock, self._next_scan = self._clock - by, self._next_scan - by
            self._scanned, self._pool_clock = max(self._scanned - by, 1), None

    def _scan(self) -> None:
        for entry in self._entries:
            self._elapsed(entry.group, entry.last)
        for last, group in self._ghosts:
            self._elapsed(group, last)
        known = len(self._entries) + self._ghosts.count
        self._rates.fade(known, self._clock - self._scanned, self._clock)
        self._rates.learn()
        self._scanned = self._clock
        self._next_scan = self._clock + max(known // SCANS, SCAN_LEAST)

    def _elapsed(self, group: int, last: int) -> None:
        """Count the time since the last scan or since the last use, whichever is later."""
        self._rates.expose(group, max(self._scanned - last, 0), self._clock - last)

    def _reused(self, group: int, last: int) -> None:
        self._elapsed(group, last)
        self._rates.hit(group, self._clock - last)

    def _insert(self, slot: int, score: float) -> None:
        at = len(self._pool)
        if at == POOL:
            if (score, slot) >= self._pool[-1]:
                return
            at -= 1
            self._entries[self._pool.pop()[1]].pooled = False
        while at > 0 and (score, slot) < self._pool[at - 1]:
            at -= 1
        self._pool.insert(at, (score, slot))
        self._entries[slot].pooled = True

    def _refresh(self) -> None:
        """The same pool, with its scores as of now."""
        if self._pool_clock != self._clock:
            self._pool = sorted((self._score(slot), slot) for _, slot in self._pool)
            self._pool_clock = self._clock

    def _refill(self) -> None:
        count = len(self._entries)
        if count > 2 * POOL:
            self._random, drawn = draw(self._random, count, SAMPLES)
            for slot in drawn:
                if not self._entries[slot].pooled:
                    self._insert(slot, self._score(slot))


def draw(state: int, count: int, times: int) -> tuple[int, list[int]]:
    """The next state, and so many numbers below `count` (a 64-bit linear congruential generator, its upper half)."""
    drawn = []
    for _ in range(times):
        state = (state * 6364136223846793005 + 1442695040888963407) & ((1 << 64) - 1)
        drawn.append((state >> 32) * count >> 32)
    return state, drawn
