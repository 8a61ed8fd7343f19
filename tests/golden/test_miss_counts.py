"""Exact miss counts of fixed traces, replayed through the product's own memory tier and policies.

A changed number means that a policy decides otherwise than before: either a bug, or a change that has to be wanted.
"""

from __future__ import annotations

import csv
import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pytest

from mmcache.model.event import RefuseReason
from mmcache.policies.auto import Auto
from mmcache.policies.base import Policy
from mmcache.policies.heat import HeatWindow
from mmcache.policies.lru import LRU
from mmcache.settings import MemorySettings
from mmcache.testing import FakeClock, WholeThaw, make_frame, make_key
from mmcache.tiers.memory import MemoryTier, charged_bytes

MIXED = Path(__file__).with_name("mixed.trace")
"""4000 requests: a Zipf-like working set that moves twice, with two scans of blocks that never return."""

SMALL = 100
FRAME = make_frame(make_key(0), bytes(SMALL))
BLOCK = charged_bytes(FRAME, WholeThaw(FRAME))


class Request(NamedTuple):
    """One use of a block of `size` bytes."""

    block: int
    size: int = SMALL


def misses(requests: Iterable[Request], policy: Policy, limit_bytes: int) -> int:
    """Replay: a hit is touched, a miss is stored unless the policy refuses it."""
    clock = FakeClock()
    tier = MemoryTier(MemorySettings(limit_bytes, largest_share=1.0), policy, WholeThaw, clock=clock)
    missed = 0
    for block, size in requests:
        clock.advance(1)
        if tier.peek(make_key(block)) is None:
            missed += 1
            assert set(tier.put([make_frame(make_key(block), bytes(size))], [None])) <= {None, RefuseReason.ADMISSION}
    tier.check_integrity()
    return missed


def misses_of_plain_lru(requests: Iterable[Request], blocks: int) -> int:
    """The textbook, for blocks of one size."""
    held, missed = OrderedDict[int, None](), 0
    for block, _ in requests:
        missed += block not in held
        held[block] = None
        held.move_to_end(block)
        if len(held) > blocks:
            held.popitem(last=False)
    return missed


def mixed() -> list[Request]:
    return [Request(int(block)) for block in MIXED.read_text().split()]


def mooncake(traces: Path) -> Iterator[Request]:
    """Prefix blocks of 512 tokens of conversations (Qin et al., Mooncake, FAST 2025)."""
    with (traces / "mooncake" / "conversation_trace.jsonl").open() as lines:
        for line in lines:
            yield from map(Request, json.loads(line)["hash_ids"])


def cloud_physics(traces: Path) -> Iterator[Request]:
    """Blocks of a virtual disk, of 512 bytes to 64 KiB and more (CloudPhysics, by way of libCacheSim)."""
    with (traces / "libcachesim" / "cloudPhysicsIO.csv").open() as lines:
        for row in csv.DictReader(lines):
            yield Request(int(row["lbn"]), int(row["size"]))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (LRU, {20: 2853, 60: 2072, 200: 1162}),
        (HeatWindow, {20: 2509, 60: 1945, 200: 1164}),
        (Auto, {20: 2486, 60: 1926, 200: 1231}),
    ],
)
def test_mixed(make: Callable[[], Policy], expected: dict[int, int]) -> None:
    assert {blocks: misses(mixed(), make(), blocks * BLOCK) for blocks in expected} == expected


@pytest.mark.parametrize("blocks", [1, 20, 60, 200])
def test_lru_is_the_textbook(blocks: int) -> None:
    assert misses(mixed(), LRU(), blocks * BLOCK) == misses_of_plain_lru(mixed(), blocks)


@pytest.mark.parametrize(("make", "expected"), [(LRU, 27_366), (partial(HeatWindow, 20_000), 26_935), (Auto, 26_748)])
def test_mooncake(make: Callable[[], Policy], expected: int, traces: Path) -> None:
    assert misses(islice(mooncake(traces), 30_000), make(), 5000 * BLOCK) == expected


@pytest.mark.parametrize(("make", "expected"), [(LRU, 15_601), (HeatWindow, 15_558), (Auto, 15_327)])
def test_cloud_physics(make: Callable[[], Policy], expected: int, traces: Path) -> None:
    limit = 16 << 20
    assert misses(islice(cloud_physics(traces), 20_000), make(), limit) == expected
