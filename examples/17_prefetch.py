"""Bring what a visitor will look for next: others went the same way before."""

import time

import numpy as np
import numpy.typing as npt

from mmcache import Cache, visit
from mmcache.model.event import Prefetched
from mmcache.prefetch import Cancelled, cancelled
from mmcache.prefetch.behaviour import BehaviourPrefetch, BehaviourSettings

PAGES = ["front page", "shoes", "red shoes", "basket"]


def encode(text: str) -> npt.NDArray[np.float32]:
    """A slow model that asks between its steps whether somebody else needs the machine more."""
    for _ in range(10):
        if cancelled():  # never true while a visitor waits for this
            raise Cancelled
        time.sleep(0.01)
    return np.full(16, len(text), np.float32)


# `Cache(prefetch="behaviour")` would do. Here a visit or two must be enough to learn from.
eager = BehaviourSettings(misses_a_minute=1, latency_seconds=0.05)
prefetch = BehaviourPrefetch(eager)
with Cache(memory="64MiB", prefetch=prefetch) as cache:
    embed = cache.wrap(encode, modality="text", signature="slow-1", guard=False)

    def forget() -> None:
        """As if it were tomorrow."""
        cache.invalidate([embed.key(page) for page in PAGES])

    for name in ("one", "two", "three"):
        with visit(name):  # whose lookups these are: a visitor, a conversation, a document that is read
            for page in PAGES:
                embed(page)
        time.sleep(0.5)
        forget()

    with visit("four"):
        for page in PAGES:
            known = cache.peek(embed.key(page)) is not None
            print(f"{page}: {'there' if known else 'computed while the visitor waits'}")
            embed(page)
            time.sleep(0.5)  # the visitor reads, and what comes next is computed

    brought = [event for event in cache.events.recent() if isinstance(event, Prefetched)]
    print(f"{len(brought)} blocks were brought before anybody asked")

    status = prefetch.status()
    print(f"{status.used} were asked for; {status.seconds_saved:.1f} s of computing were not waited for")
    print(*(f"{move.was} to {move.state}: {move.reason}" for move in status.moves[-3:]), sep="\n")
    assert status.visits >= 16
