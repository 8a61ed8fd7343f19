"""What watches a cache from inside its own process: rivals of the eBPF tracer, which watches from outside."""

from __future__ import annotations

import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict, deque
from types import FrameType

from mmcache import Cache
from mmcache.model.key import Key

SECOND_NS = 1_000_000_000
THRESHOLD = 100
_TICK_SECONDS = 0.010
_STATS_NS = 50_000_000


class Window:
    """Marks a key when more than `THRESHOLD` reads of it are within a second; again after it fell to half of that."""

    def __init__(self) -> None:
        self._times: defaultdict[Key, deque[int]] = defaultdict(lambda: deque(maxlen=THRESHOLD + 1))
        self._hot: set[Key] = set()
        self.marks: list[tuple[Key, int]] = []

    def read(self, key: Key, at: int) -> None:
        """One read. at: ns, monotonic."""
        times = self._times[key]
        times.append(at)
        if key in self._hot:
            if len(times) <= THRESHOLD // 2 or at - times[-1 - THRESHOLD // 2] >= SECOND_NS:
                self._hot.discard(key)
        elif len(times) > THRESHOLD and at - times[0] < SECOND_NS:
            self._hot.add(key)
            self.marks.append((key, time.monotonic_ns()))


class Watcher(ABC):
    """A thread beside the reads."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self) -> None:
        """Watch from now on."""
        self._thread.start()

    @abstractmethod
    def _run(self) -> None:
        """Until `_stop`."""

    @abstractmethod
    def _marks(self) -> list[tuple[Key, int]]:
        """Keys and when each was marked."""

    def end(self) -> list[tuple[str, int]]:
        """Watch no more: keys, and when each was marked, in ns."""
        self._stop.set()
        self._thread.join()
        return [(str(key), at) for key, at in self._marks()]


class Ring(Watcher):
    """The hit index tells every hit to a ring; a thread counts what is in it each 10 ms."""

    def __init__(self, cache: Cache) -> None:
        super().__init__(cache)
        self._ring: deque[tuple[Key, int, object]] = deque(maxlen=1 << 16)
        self._window = Window()
        self._behind = time.time_ns() - time.monotonic_ns()
        cache.answers.sample_hits(1, self._ring.append)

    def _run(self) -> None:
        while not self._stop.wait(_TICK_SECONDS):
            self._count()
        self._count()

    def _count(self) -> None:
        for _ in range(len(self._ring)):
            key, at, _ = self._ring.popleft()
            self._window.read(key, at - self._behind)

    def end(self) -> list[tuple[str, int]]:
        """See `Watcher.end`."""
        self.cache.answers.sample_hits(1, None)
        return super().end()

    def _marks(self) -> list[tuple[Key, int]]:
        return self._window.marks


class Recency(Watcher):
    """Reads the memory tier's own recency ring each 10 ms. It is lossy, and has no times: a read is as old as the look
    that finds it."""

    def __init__(self, cache: Cache) -> None:
        super().__init__(cache)
        self._window = Window()
        cache._store.memory.maintain()  # what was read before it began

    def _run(self) -> None:
        while not self._stop.wait(_TICK_SECONDS):
            now = time.monotonic_ns()
            for key in self.cache._store.memory.maintain():
                self._window.read(key, now)

    def _marks(self) -> list[tuple[Key, int]]:
        return self._window.marks


class Sampler(Watcher):
    """Looks at all threads' frames so often a second, as py-spy does, but at values too: which key is being read, or
    was read last. A key is hot when its share of the last second's looks, times the reads in that second, is above 100.
    """

    def __init__(self, cache: Cache, rate: int) -> None:
        super().__init__(cache)
        self._rate = rate
        self._found: list[tuple[Key, int]] = []

    def _run(self) -> None:
        own, looks, counts = threading.get_ident(), deque[tuple[Key, int]](), Counter[Key]()
        hits, hot = deque[tuple[int, int]](), set[Key]()
        while not self._stop.wait(1 / self._rate):
            now = time.monotonic_ns()
            for ident, frame in sys._current_frames().items():
                key = None if ident == own else _key_of(frame)
                if key is not None:
                    looks.append((key, now))
                    counts[key] += 1
            while looks and now - looks[0][1] >= SECOND_NS:
                counts[looks.popleft()[0]] -= 1
            if not hits or now - hits[-1][0] >= _STATS_NS:
                hits.append((now, self.cache.stats().hits))
            while now - hits[0][0] > SECOND_NS + _STATS_NS:
                hits.popleft()
            reads = (hits[-1][1] - hits[0][1]) * SECOND_NS / max(SECOND_NS, hits[-1][0] - hits[0][0])
            for key in {key for key, _ in list(looks)[-1:]}:
                if counts[key] * reads > THRESHOLD * len(looks):
                    if key not in hot:
                        hot.add(key)
                        self._found.append((key, now))
                else:
                    hot.discard(key)

    def _marks(self) -> list[tuple[Key, int]]:
        return self._found


def _key_of(frame: FrameType | None) -> Key | None:
    while frame is not None:
        key = frame.f_locals.get("key") if frame.f_code.co_name == "load" else None
        if isinstance(key, Key):
            return key
        frame = frame.f_back
    return None


def watcher(name: str, cache: Cache) -> Watcher:
    """`ring`, `recency` or `frames-RATE`."""
    made: Watcher
    if name in ("ring", "recency"):
        made = Ring(cache) if name == "ring" else Recency(cache)
    else:
        made = Sampler(cache, int(name.removeprefix("frames-")))
    made.begin()
    return made
