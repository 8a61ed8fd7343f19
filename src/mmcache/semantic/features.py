"""`Features`: what prompts look like to the embedding, watched for drift, off the path of any request."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mmcache.keys.drift.base import DriftAlarm
from mmcache.keys.drift.watch import DriftWatch
from mmcache.model.errors import MMCacheError
from mmcache.model.event import Drifted, Failed

if TYPE_CHECKING:
    from mmcache.cache import Cache

Floats = npt.NDArray[np.float32]

BATCH = 64
"""Vectors that are looked at together, in a thread that ends with them."""
MOST_WAITING = 4096
"""Vectors beyond which the oldest are not looked at."""


class Features:
    """Collects vectors, and hands them to a `DriftWatch` in the cache's folder. See `mmcache drift status`."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._watch = DriftWatch(cache.root, alarm=self._raised, clock=cache.clock)
        self._waiting: deque[tuple[str, str, Floats]] = deque(maxlen=MOST_WAITING)
        self._thread: threading.Thread | None = None

    def offer(self, stream: str, vector: Floats, tag: str) -> None:
        """One more; `tag` says what made it: another one starts another baseline. Never waits."""
        self._waiting.append((stream, tag, vector))
        thread = self._thread
        if len(self._waiting) >= BATCH and (thread is None or not thread.is_alive()):
            thread = self._thread = threading.Thread(target=self._drain, name="mmcache-drift", daemon=True)
            thread.start()

    def _drain(self) -> None:
        batches: defaultdict[tuple[str, str], list[Floats]] = defaultdict(list)
        while self._waiting:
            try:
                stream, tag, vector = self._waiting.popleft()
            except IndexError:  # another thread drains, too
                break
            batches[stream, tag].append(vector)
        for (stream, tag), vectors in batches.items():
            try:
                self._watch.observe(stream, np.stack(vectors), tag=tag)
            except (MMCacheError, ValueError) as error:  # vectors of two lengths under one tag
                self._cache.events.emit(Failed("drift", str(error)))

    def _raised(self, alarm: DriftAlarm) -> None:
        self._cache.events.emit(Drifted(alarm.stream, alarm.divergence, alarm.threshold))

    def close(self) -> None:
        """Look at what waits, and save. Idempotent."""
        if (thread := self._thread) is not None:
            thread.join()
        self._drain()
        self._watch.close()
