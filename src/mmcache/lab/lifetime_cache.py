"""Generated days through a real cache, with the tiers and their watch, and without."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mmcache.cache import Cache
from mmcache.hotkeys.lifetime import LifetimeWatch
from mmcache.hotkeys.lifetime_tiers import LifetimeTiers
from mmcache.learn.lifetime_history import Counted
from mmcache.lifespan.model import LifeModel
from mmcache.model.event import Refused, Stored
from mmcache.testing.clock import FakeClock

BLOCKS = 250
"""About so many fit."""
_BYTES = 1760
"""Of one, with what an entry takes."""


@dataclass(frozen=True)
class Served:
    """Of requests after the first week."""

    hits: float
    """Per cent of requests."""
    stored: float
    """Blocks stored, per cent of requests."""
    refused: float
    withheld: float
    """Per cent of intervals in which nothing was expected."""


def serve(counted: Counted, model: LifeModel | None, since: int, ttl: float | None, *, most: int) -> Served:
    """Replay the uses from interval `since` on: a week to warm up, then `most` that count. model: None = no tiers, and
    blocks live `ttl` seconds, None = for ever."""
    scale, uses = counted.scale, counted.uses
    begin = counted.began + since * scale.interval_seconds
    measured = begin + scale.intervals * scale.interval_seconds
    order = np.flatnonzero(uses.at >= begin)
    counted_uses = order[uses.at[order] >= measured][:most]
    order = order[: int(np.searchsorted(order, counted_uses[-1], side="right"))] if len(counted_uses) else order
    clock = FakeClock(wall=begin)
    tiers = LifetimeTiers()
    deciders: dict[str, Any] = {"ttl": ttl} if model is None else {"ttl": tiers.lifetime, "admission": tiers.admission}
    hits = requests = stored = refused = intervals = withheld = 0
    with Cache(memory=BLOCKS * _BYTES, clock=clock, **deciders) as cache:
        keys = [cache.key(f"{n}", modality="text", signature="lab-1") for n in range(counted.keys)]
        watch = None if model is None else LifetimeWatch(cache, model, tiers, threaded=False)
        if watch is not None:
            watch.pump()
        told = [watch is None] * counted.keys
        with cache.events.feed(1 << 18) as feed:
            for place in order.tolist():
                at, n = float(uses.at[place]), int(uses.key[place])
                clock.advance(max(0.0, at - clock.wall()))
                if watch is not None:
                    if not told[n]:  # as whoever computes it would, with the embedding at hand
                        told[n] = True
                        image = uses.image[n]
                        bits = int(np.packbits(image > 0, bitorder="little").view("<u8")[0]) if image.any() else None
                        watch.describe(keys[n], text=uses.text[n] if uses.text[n].any() else None, image=bits)
                    if watch.due() and watch.pump() and at >= measured:
                        intervals += 1
                        withheld += watch.status().state != "watching"
                before = cache.peek(keys[n])
                if before is None:
                    cache.get_or_compute(keys[n], lambda: b"x" * 16)
                events = feed.drain()
                if at >= measured:
                    requests += 1
                    hits += before is not None
                    stored += any(isinstance(event, Stored) for event in events)
                    refused += any(isinstance(event, Refused) for event in events)
        if watch is not None:
            watch.close()
    return Served(
        100 * hits / max(1, requests), 100 * stored / max(1, requests), 100 * refused / max(1, requests),
        100 * withheld / max(1, intervals),
    )  # fmt: skip
