"""The scene with a prefetcher: what it warms for somebody who comes after others, and what that saves.

Two caches see the same visits, one after the other, with room for one tour's features of three. The newcomer walks a
tour whose features had to go. The one cache computes them while the visitor waits, the other one page ahead of the
visitor, who reads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any

import numpy as np

from mmcache.lab.demo.manifest import Page, Walks
from mmcache.lab.demo.records import Step, Visited
from mmcache.lab.demo.walked import waited
from mmcache.visits import visit

if TYPE_CHECKING:
    from mmcache.cache import Cache
    from mmcache.lab.demo.worker import Meter
    from mmcache.prefetch.status import PrefetchStatus

LATENCY_SECONDS = 0.02
"""The image model takes 50 ms and more here, which is less than the default of 80."""
ROOM = 1.1
"""What a block takes besides its features."""


def steps(walks: Walks) -> int:
    """How many lookups both caches get."""
    return 2 * sum(len(page) for walk in (*walks.earlier, walks.newcomer) for page in walk)


def run_visits(walks: Walks, media: Path) -> Visited:
    """All visits in a cache without a prefetcher, then in one with."""
    from mmcache.cache import Cache
    from mmcache.lab.demo.worker import Meter
    from mmcache.lab.models import ImageEncoder
    from mmcache.prefetch.behaviour import BehaviourPrefetch, BehaviourSettings

    meter, told = Meter(ImageEncoder()), _Told()
    features = meter.one(_picture(media / walks.newcomer[0][0]))  # loads the weights, so that no visitor waits for it
    memory = int(walks.held * features.nbytes * ROOM)

    def play(cache: Cache, settle: Callable[[], None] = lambda: None) -> tuple[float, tuple[Step, ...]]:
        encode = _Encoder(cache, meter)
        earlier = [
            step
            for visitor, walk in enumerate(walks.earlier)
            for step in _walk(cache, encode, f"visitor-{visitor}", walk, media, 0.0, told)
        ]
        settle()
        steps = tuple(_walk(cache, encode, "newcomer", walks.newcomer, media, walks.reading_seconds, told))
        settle()
        return waited(earlier), steps

    with Cache(memory=memory, disk=None) as cache:
        plain, without = play(cache)
    prefetch = BehaviourPrefetch(BehaviourSettings(latency_seconds=LATENCY_SECONDS))
    seen: list[PrefetchStatus] = []
    told.here = 0
    with Cache(memory=memory, disk=None, prefetch=prefetch) as cache:
        ahead, foreseen = play(cache, lambda: seen.append(settled(prefetch.status, told.here)))
    before, after = seen
    return Visited(
        without,
        foreseen,
        brought=after.computed - before.computed,
        used=after.used - before.used,
        cancelled=after.cancelled - before.cancelled,
        ahead_seconds=after.seconds_spent - before.seconds_spent,
        brought_before=before.computed,
        latency_seconds=LATENCY_SECONDS,
        earlier_seconds=(plain, ahead),
    )


def settled(status: Callable[[], PrefetchStatus], lookups: int, patience: float = 60.0) -> PrefetchStatus:
    """A prefetcher's counts when it has looked at all `lookups` and computes nothing, or after `patience` seconds."""
    end = time.monotonic() + patience
    while True:
        found = status()
        if (found.visits + found.lost >= lookups and not found.under_way) or time.monotonic() >= end:
            return found
        time.sleep(0.02)


class _Told:
    """Lookups so far: in all, which is printed, and in this cache."""

    def __init__(self) -> None:
        self.all = self.here = 0

    def one(self) -> None:
        self.all, self.here = self.all + 1, self.here + 1
        print(self.all, flush=True)


class _Encoder:
    """The model behind `cache`, and whether it ran for who called last, in their own thread."""

    def __init__(self, cache: Cache, meter: Meter) -> None:
        self._visitor, self._meter = get_ident(), meter
        self._encode = cache.wrap(self._one, modality="image", signature=meter.model.signature)
        self.ran = False

    def _one(self, picture: Any) -> Any:
        self.ran |= get_ident() == self._visitor
        return self._meter.one(picture)

    def __call__(self, path: Path) -> Any:
        self.ran = False
        return self._encode(path)


def _walk(
    cache: Cache, encode: _Encoder, visitor: str, walk: tuple[Page, ...], media: Path, reading: float, told: _Told
) -> Iterator[Step]:
    from mmcache.lab.demo.worker import fingerprint

    with visit(visitor):
        for number, page in enumerate(walk):
            for name in page:
                before, start = cache.stats().misses, time.perf_counter()
                output = encode(media / name)
                seconds = time.perf_counter() - start
                warm = cache.stats().misses == before
                told.one()
                yield Step(number, seconds, warm, fingerprint(np.asarray(output)), not (warm or encode.ran))
            time.sleep(reading)


def _picture(path: Path) -> Any:
    from PIL import Image

    with Image.open(path) as picture:
        return picture.convert("RGB")
