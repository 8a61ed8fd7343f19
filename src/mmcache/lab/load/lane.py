"""One lane of a load: asks for what is due, all that is due at once, and looks at every byte of what comes.

The tier is used directly: `Cache` would answer from its memory what it has read before, and it is the shared tier that
is measured. What is due together is one batch, as in a server that shares a cache among its requests: so requests of
one batch wait for its slowest node. A key belongs to one lane, which knows what must be there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import Event

import numpy as np

from mmcache.lab.load.blocks import Blocks
from mmcache.lab.load.counts import BIN_SECONDS, Checked, Counts, Histogram
from mmcache.lab.load.job import Filled, Job, Seen
from mmcache.lab.load.ledger import Answer, Ledger
from mmcache.lab.load.shape import mine, popularity
from mmcache.model.event import MissReason, RefuseReason
from mmcache.tiers.base import Found
from mmcache.tiers.valkey.tier import ValkeyTier

MOST_AT_ONCE = 256
MOST_BYTES = 4 << 20
"""Of a batch: more takes as long as a slow node would."""
_AHEAD = 1.0
"""Seconds for which arrivals are drawn at once."""
_GRACE = 5.0
"""Seconds after the end for what is still due."""
_NAP = 0.05
_PROBE_SECONDS = 0.1
_PROBED = 32
"""Keys, of those that had no answer."""
_TRIES = 12
"""Of a key, before it begins and in the last look, for what passes."""
_MOST_IN_VAIN = 3
"""Rounds of writing in a row of which nothing was taken."""
_PAUSE_SECONDS = 0.25


class Lane:
    """Its keys, its arrivals, its ledger."""

    def __init__(self, job: Job, index: int, tier: ValkeyTier, blocks: Blocks, tell: Callable[[Seen], None]) -> None:
        self._job, self._tier, self._blocks, self._tell = job, tier, blocks, tell
        self._numbers, self._shares = mine(popularity(job.keys, job.zipf), index, job.processes * job.lanes)
        share = float(self._shares[-1]) if len(self._shares) else 0.0
        self._rate = job.qps * share
        self._random = np.random.default_rng((job.seed, index))
        self.ledger = Ledger()
        self._counts, self._bin = Counts(), 0
        self._began = 0.0
        self._probed = 0.0
        self.unasked = 0

    # before

    def fill(self, tell: Callable[[Filled], None], stop: Event) -> None:
        """Write each of its keys once; what is refused is tried again, since a load is to begin with all there."""
        todo = [int(number) for number in self._numbers]
        vain = 0
        for turn in range(_TRIES):
            refused: dict[int, RefuseReason] = {}
            for some in self._batches(todo):
                if stop.is_set():
                    return
                bad = {number: why for number, why in zip(some, self._put(some), strict=True) if why is not None}
                refused |= bad
                tell(Filled(len(some) - len(bad), 0))
            vain = vain + 1 if len(refused) == len(todo) else 0
            todo = list(refused)
            if not todo or vain == _MOST_IN_VAIN or stop.wait(_PAUSE_SECONDS * min(turn + 1, 4)):
                break
        if todo:
            tell(Filled(len(todo), len(todo), str(next(iter(refused.values())))))

    # meanwhile

    def run(self, begin: float, stop: Event) -> None:
        """Until the end, or until `stop` is set."""
        self._began = begin
        end = begin + self._job.seconds + _GRACE
        for due, numbers, reading in self._arrivals(stop):
            at = 0
            while at < len(due):
                now = time.monotonic()
                if stop.is_set() or now > end:
                    self.unasked += max(0, int(np.searchsorted(due, now - begin, side="right")) - at)
                    break
                if now >= self._probed + _PROBE_SECONDS:
                    self._probe(now)
                wait = due[at] + begin - now
                if wait > 0:
                    time.sleep(min(wait, _NAP))
                    continue
                ready = min(int(np.searchsorted(due, now - begin, side="right")), at + MOST_AT_ONCE)
                at += self._batch(due[at:ready], numbers[at:ready], reading[at:ready])
        self.ledger.end(time.monotonic())
        self._report(None)

    def _arrivals(self, stop: Event) -> Iterator[tuple[list[float], list[int], list[bool]]]:
        shape, second = self._job.shape, 0.0
        while second < self._job.seconds and self._rate and not stop.is_set():
            until = min(second + _AHEAD, self._job.seconds)
            due = shape.arrivals(self._rate, second, until, self._random)
            drawn = self._random.random(len(due)) * self._shares[-1]
            places = np.minimum(np.searchsorted(self._shares, drawn, side="right"), len(self._numbers) - 1)
            reading = self._random.random(len(due)) < self._job.reads
            yield due.tolist(), self._numbers[places].tolist(), reading.tolist()
            second = until

    def _batch(self, due: Sequence[float], numbers: Sequence[int], reading: Sequence[bool]) -> int:
        """How many of them were asked: a batch has a limit of bytes, and writes a key once."""
        reads: list[int] = []
        writes: dict[int, float] = {}
        read_due: list[float] = []
        held = taken = 0
        for when, number, read in zip(due, numbers, reading, strict=True):
            held += self._blocks.size(number)
            if taken and held > MOST_BYTES:
                break
            if read:
                reads.append(number)
                read_due.append(when)
            elif number in writes:
                break
            else:
                writes[number] = when
            taken += 1
        again: list[int] = []
        if reads:
            again = [number for number in self._read(reads, read_due) if number not in writes]
        if writes or again:
            self._write(writes, list(dict.fromkeys(again)))
        return taken

    def _read(self, numbers: Sequence[int], due: Sequence[float]) -> Iterator[int]:
        """Those that are not there, to be written."""
        asked = time.monotonic()
        found = self._tier.get([self._blocks.key(number) for number in numbers])
        now = time.monotonic()
        counts, took = self._at(now), Histogram()
        counts.reads += len(numbers)
        for number, when, one in zip(numbers, due, found, strict=True):
            took.add(now - self._began - when)
            if isinstance(one, Found):
                self._judge(counts, self._came(number, one, asked, now))
                counts.hits += 1
                counts.bytes_read += one.frame.size
                continue
            counts.missed[one] = counts.missed.get(one, 0) + 1
            if one is MissReason.ABSENT or one is MissReason.EXPIRED:
                if one is MissReason.ABSENT:
                    self._judge(counts, self.ledger.absent(number, asked, now))
                if self._job.refill:
                    yield number
            elif one is MissReason.CORRUPT:
                counts.wrong += 1
            else:
                self.ledger.unanswered(number, asked)
        _merge(counts.took, took)

    def _probe(self, now: float) -> None:
        """Ask again for what had no answer; that is no request of the load, and counts as none."""
        self._probed = now
        silent = self.ledger.silent(_PROBED)
        if not silent:
            return
        found = self._tier.get([self._blocks.key(number) for number in silent])
        now = time.monotonic()
        for number, one in zip(silent, found, strict=True):
            if isinstance(one, Found):
                self._judge(self._counts, self._came(number, one, now, now))
            elif one is MissReason.ABSENT:
                self._judge(self._counts, self.ledger.absent(number, now, now))

    def _came(self, number: int, one: Found, asked: float, now: float) -> Answer:
        payload = one.frame.payload
        version = self._blocks.version(number, payload if isinstance(payload, bytes) else memoryview(payload))
        return self.ledger.read(number, version, asked, now)

    @staticmethod
    def _judge(counts: Counts, answer: Answer) -> None:
        if answer is Answer.WRONG:
            counts.wrong += 1
        elif answer is Answer.STALE:
            counts.stale += 1
        elif answer is Answer.LOST:
            counts.lost += 1

    def _write(self, due: dict[int, float], again: Sequence[int]) -> None:
        """What was asked for, and what was missed: only the former counts as requests."""
        numbers = [*due, *again]
        refused = self._put(numbers)
        now = time.monotonic()
        counts, took = self._at(now), Histogram()
        counts.writes += len(due)
        for number, why in zip(numbers, refused, strict=True):
            when = due.get(number)
            if when is not None:
                took.add(now - self._began - when)
                counts.stored += why is None
            if why is not None:
                counts.refused[why] = counts.refused.get(why, 0) + 1
            else:
                counts.bytes_written += self._blocks.size(number)
        _merge(counts.took_writes, took)

    def _put(self, numbers: Sequence[int]) -> list[RefuseReason | None]:
        versions = [self.ledger.next(number) for number in numbers]
        frames = [self._blocks.frame(number, version) for number, version in zip(numbers, versions, strict=True)]
        until = None if self._job.live_seconds is None else time.monotonic() + self._job.live_seconds
        refused = self._tier.put(frames, [until] * len(frames))
        now = time.monotonic()
        for number, version, why in zip(numbers, versions, refused, strict=True):
            if why is None:
                self.ledger.stored(number, version, now)
            else:
                self.ledger.refused(number)
        return refused

    def _at(self, now: float) -> Counts:
        """The counts of the bin of time that is now."""
        place = int((now - self._began) / BIN_SECONDS)
        if place != self._bin:
            self._report(place)
        return self._counts

    def _report(self, place: int | None) -> None:
        if self._counts != Counts():  # a probe may have found something where nothing was asked
            self._tell(Seen(self._bin, self._counts))
        self._counts, self._bin = Counts(), self._bin if place is None else place

    # afterwards

    def check(self) -> Checked:
        """Read all that it has written. What passes (a node that is being replaced) is waited for."""
        checked = Checked()
        todo = self.ledger.written()
        checked.keys = len(todo)
        for turn in range(_TRIES):
            todo = [number for some in self._batches(todo) for number in self._look(some, checked)]
            if not todo:
                break
            if turn < _TRIES - 1:
                time.sleep(_PAUSE_SECONDS * min(turn + 1, 4))
        checked.unread = len(todo)
        return checked

    def _look(self, numbers: Sequence[int], checked: Checked) -> list[int]:
        """Those that nobody could tell of."""
        asked = time.monotonic()
        untold = []
        found = self._tier.get([self._blocks.key(number) for number in numbers])
        for number, one in zip(numbers, found, strict=True):
            now = time.monotonic()
            if isinstance(one, Found):
                answer = self._came(number, one, asked, now)
            elif one is MissReason.ABSENT or one is MissReason.EXPIRED:
                answer = self.ledger.absent(number, asked, now) if one is MissReason.ABSENT else Answer.UNSURE
            elif one is MissReason.CORRUPT:
                answer = Answer.WRONG
            else:
                untold.append(number)
                continue
            name = {Answer.ABSENT: "unsure", Answer.STILL: "lost"}.get(answer, answer.value)
            setattr(checked, name, getattr(checked, name) + 1)
        return untold

    def clean(self) -> None:
        """Remove all that it has written. Raises `TierError`."""
        self._tier.drop(self._blocks.key(number) for number in self.ledger.written())

    def _batches(self, numbers: Iterable[int]) -> Iterator[list[int]]:
        some: list[int] = []
        held = 0
        for number in numbers:
            size = self._blocks.size(number)
            if some and (len(some) == MOST_AT_ONCE or held + size > MOST_BYTES):
                yield some
                some, held = [], 0
            some.append(number)
            held += size
        if some:
            yield some


def _merge(into: dict[int, int], took: Histogram) -> None:
    for place, count in took.counts.items():
        into[place] = into.get(place, 0) + count
