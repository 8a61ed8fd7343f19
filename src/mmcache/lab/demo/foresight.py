"""The scene with a prefetcher: what it warms for somebody who comes after others, and what that saves.

Two caches see the same visits, one after the other, with room for one tour's features of three. The newcomer walks a
tour whose features had to go. The one cache computes them while the visitor waits, the other one page ahead of the
visitor, who reads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mmcache.lab.demo.manifest import Page, Walks
from mmcache.lab.demo.records import Step, Visited
from mmcache.visits import visit

if TYPE_CHECKING:
    from mmcache.cache import Cache

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

    meter, told = Meter(ImageEncoder()), count(1)
    features = meter.one(_picture(media / walks.newcomer[0][0]))  # loads the weights, so that no visitor waits for it
    memory = int(walks.held * features.nbytes * ROOM)

    def play(cache: Cache, before: Callable[[], None] = lambda: None) -> tuple[Step, ...]:
        encode = cache.wrap(meter.one, modality="image", signature=meter.model.signature)
        for visitor, walk in enumerate(walks.earlier):
            list(_walk(cache, encode, f"visitor-{visitor}", walk, media, 0.0, told))
        before()
        return tuple(_walk(cache, encode, "newcomer", walks.newcomer, media, walks.reading_seconds, told))

    with Cache(memory=memory, disk=None) as cache:
        without = play(cache)
    prefetch = BehaviourPrefetch(BehaviourSettings(latency_seconds=LATENCY_SECONDS))
    earlier = []
    with Cache(memory=memory, disk=None, prefetch=prefetch) as cache:
        foreseen = play(cache, lambda: earlier.append(prefetch.status()))
        after = prefetch.status()
    (before,) = earlier
    return Visited(
        without,
        foreseen,
        brought=after.computed - before.computed,
        used=after.used - before.used,
        cancelled=after.cancelled - before.cancelled,
        ahead_seconds=after.seconds_spent - before.seconds_spent,
        brought_before=before.computed,
        latency_seconds=LATENCY_SECONDS,
    )


def _walk(
    cache: Cache, encode: Any, visitor: str, walk: tuple[Page, ...], media: Path, reading: float, told: Iterator[int]
) -> Iterator[Step]:
    from mmcache.lab.demo.worker import fingerprint

    with visit(visitor):
        for number, page in enumerate(walk):
            for name in page:
                before, start = cache.stats().misses, time.perf_counter()
                output = encode(media / name)
                seconds = time.perf_counter() - start
                warm = cache.stats().misses == before
                print(next(told), flush=True)
                yield Step(number, seconds, warm, fingerprint(np.asarray(output)))
            time.sleep(reading)


def _picture(path: Path) -> Any:
    from PIL import Image

    with Image.open(path) as picture:
        return picture.convert("RGB")
