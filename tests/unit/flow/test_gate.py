"""The gate: a frame of another signature under the right key is a miss with that reason, on every way to read it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mmcache import Cache, Key, Signature
from mmcache.model.event import Failed
from mmcache.policies.lru import LRU
from mmcache.settings import MemorySettings
from mmcache.testing import WholeThaw
from mmcache.testing.frames import make_frame
from mmcache.tiers.memory import MemoryTier

NEW = {"schema_hash": "b" * 64}
MINE, FOREIGN = "computed by this version", b"stored by another"


@pytest.fixture
def lower() -> MemoryTier:
    tier = MemoryTier(MemorySettings(1 << 20), LRU(), WholeThaw)
    tier.name = "remote"
    return tier


@pytest.fixture
def cache(lower: MemoryTier) -> Iterator[Cache]:
    with Cache(memory="1MiB", lower=[lower]) as cache:
        yield cache


def signed(**fields: str) -> Signature:
    return Signature(model_version="encoder 1.0", function="encode", **fields)


def poisoned(cache: Cache, lower: MemoryTier, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Key:
    """A key for which the lower tier holds a frame that is sound in itself, but of another realm or signature."""
    key = cache.key("x", modality="text", signature=signed(**NEW))
    scope = cache.scopes.require(key)
    right: dict[str, Any] = {"signature": scope.signature.digest, "modality": "text"}
    lower.put([make_frame(key, FOREIGN, **right | changes)], [None])
    monkeypatch.setattr(cache._store, "_thaw", lambda frame: pytest.fail("decoded before the gate"))
    return key


READS: dict[str, Callable[[Cache, Key], Any]] = {
    "get": lambda cache, key: cache.get(key, MINE),
    "get_or_compute": lambda cache, key: cache.get_or_compute(key, lambda: MINE),
    "async get": lambda cache, key: asyncio.run(_async_get(cache, key)),
    "async": lambda cache, key: asyncio.run(_async_compute(cache, key)),
    "encoder": lambda cache, key: _encoder(cache)("x"),
    "batch": lambda cache, key: _encoder(cache).batch(["x"])[0],
}


async def _async_get(cache: Cache, key: Key) -> Any:
    return await cache.a.get(key, MINE)


async def _async_compute(cache: Cache, key: Key) -> Any:
    return await cache.a.get_or_compute(key, lambda: MINE)


def _encoder(cache: Cache) -> Any:
    return cache.wrap(lambda text: MINE, modality="text", signature=signed(**NEW), guard=False)


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("change", ["signature", "tenant", "namespace"])
def test_a_foreign_frame_is_a_miss_and_is_not_decoded(
    cache: Cache, lower: MemoryTier, monkeypatch: pytest.MonkeyPatch, read: str, change: str
) -> None:
    foreign = signed().digest if change == "signature" else "another"
    key = poisoned(cache, lower, monkeypatch, **{change: foreign})
    if read in ("get_or_compute", "async", "encoder", "batch"):
        monkeypatch.undo()  # these store what they computed, and thaw that
    assert READS[read](cache, key) == MINE
    assert cache.stats().miss_reasons == {"signature": 1}
    assert any("refused at the gate" in event.detail for event in cache.events.recent() if isinstance(event, Failed))
