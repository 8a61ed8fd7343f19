"""What is not traced costs nothing: no block of memory more on a hit, whatever the way."""

from __future__ import annotations

import asyncio
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mmcache import Cache
from mmcache.settings import MemorySettings, Settings

SMALL = Settings(memory=MemorySettings(recency_ring=256))
HITS = 500
FEW = 40
"""Blocks that come and go by themselves: the interpreter's caches, a list that grows."""


def ways(cache: Cache) -> dict[str, Callable[[], Any]]:
    """Hits, by the way they take; all are stored already."""
    encode = cache.wrap(lambda text: np.zeros(8, np.float32), modality="text", signature="v1", guard=False)
    texts = [f"text {n}" for n in range(16)]
    encode.batch(texts)
    key = encode.key(texts[0])
    loop = asyncio.new_event_loop()
    cache.below.closers.append(loop.close)

    return {
        "peek": lambda: cache.peek(key),
        "get": lambda: cache.get(key),
        "get_or_compute": lambda: cache.get_or_compute(key, list),
        "look_up": lambda: cache.answers.look_up([key]),
        "encoder": lambda: encode(texts[0]),
        "batch": lambda: encode.batch(texts),
        "async": lambda: loop.run_until_complete(cache.a.get_or_compute(key, list)),
    }


def filled(hit: Callable[[], Any]) -> None:
    """Until the event log and the recency ring are full."""
    for _ in range(1_200):
        hit()


def kept(hit: Callable[[], Any]) -> int:
    """Blocks that so many hits keep; the least of some rounds, for other threads keep some too."""
    rounds = []
    for _ in range(5):
        before = sys.getallocatedblocks()
        for _ in range(HITS):
            hit()
        rounds.append(sys.getallocatedblocks() - before)
    return min(rounds)


WAYS = ("peek", "get", "get_or_compute", "look_up", "encoder", "batch", "async")


@pytest.mark.parametrize("way", WAYS)
def test_without_an_observer_a_hit_keeps_no_block_of_memory(way: str) -> None:
    with Cache(settings=SMALL) as cache:
        hit = ways(cache)[way]
        filled(hit)
        assert kept(hit) < FEW


@pytest.mark.parametrize("way", WAYS)
def test_without_an_observer_no_line_of_telemetry_runs_and_none_of_the_hooks_allocates(way: str) -> None:
    with Cache(settings=SMALL) as cache:
        hit = ways(cache)[way]
        for _ in range(50):
            hit()
        tracemalloc.start(10)
        try:
            for _ in range(200):
                hit()
            taken = tracemalloc.take_snapshot()
        finally:
            tracemalloc.stop()
    files = {frame.filename for trace in taken.traces for frame in trace.traceback}
    assert not [name for name in files if "/mmcache/telemetry/" in name or name.endswith("/observing.py")]


@pytest.mark.parametrize("way", WAYS)
def test_what_is_not_drawn_keeps_no_block_either(way: str) -> None:
    pytest.importorskip("opentelemetry.sdk")
    from tests.unit.telemetry.recorded import Recorded

    with Cache(settings=SMALL) as cache, Recorded(cache, sample=0.0):
        hit = ways(cache)[way]
        filled(hit)
        assert kept(hit) < FEW
