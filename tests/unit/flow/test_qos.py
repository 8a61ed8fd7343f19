"""`Cache` with tenants and compute slots: who waits, who is refused, and that every caller gets its value."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from mmcache import Cache
from mmcache.model.errors import SettingsError
from mmcache.model.event import Evicted, EvictReason, Refused, RefuseReason, Stored
from mmcache.model.key import Key
from mmcache.settings import Settings, Tenant

TENANTS = {"pay": Tenant("critical"), "report": Tenant("batch", quota="1MiB")}


def make_key(cache: Cache, name: str, tenant: str) -> Key:
    return cache.key(name, modality="text", signature="v1", tenant=tenant)


def test_a_batch_tenant_that_is_refused_gets_its_value_and_is_told_why() -> None:
    with Cache(memory="2MiB", tenants={"pay": Tenant("critical"), "report": Tenant("batch")}, admission="qos") as cache:
        for n in range(25):
            cache.get_or_compute(make_key(cache, f"{n}", "pay"), lambda: bytes(30_000))
        for n in range(200):
            value = cache.get_or_compute(make_key(cache, f"{n}", "report"), lambda: bytes(30_000))
            assert value == bytes(30_000)
        refused = [event for event in cache.events.recent() if isinstance(event, Refused)]
        assert {event.reason for event in refused} == {RefuseReason.ADMISSION}
        assert {(scope := cache.scopes.find(event.key)) and scope.tenant for event in refused} == {"report"}
        assert all(cache.peek(make_key(cache, f"{n}", "pay")) is not None for n in range(25))
        cache.check_integrity()


def test_alone_a_batch_tenant_is_refused_nothing() -> None:
    with Cache(memory="2MiB", tenants={"report": Tenant("batch")}, admission="qos") as cache:
        for n in range(200):
            assert cache.put(make_key(cache, f"{n}", "report"), bytes(30_000))


def test_computations_of_a_cache_share_its_slots() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def compute() -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.001)
        with lock:
            running -= 1
        return 1

    with Cache(tenants=TENANTS, settings=Settings(compute_slots=2)) as cache, ThreadPoolExecutor(8) as pool:
        keys = [make_key(cache, f"{n}", "report" if n % 2 else "pay") for n in range(40)]
        assert list(pool.map(lambda key: cache.get_or_compute(key, compute), keys)) == [1] * 40
    assert most <= 2


def test_slots_are_one_or_more() -> None:
    with pytest.raises(SettingsError):
        Cache(settings=Settings(compute_slots=0))


def test_quotas_hold_on_disk_too(tmp_path: Path) -> None:
    with Cache(tmp_path, memory="8MiB", tenants=TENANTS) as cache:
        for n in range(40):
            cache.put(make_key(cache, f"{n}", "report"), np.zeros(10_000, np.float32))
        cache.flush()
        evicted = [event for event in cache.events.recent() if isinstance(event, Evicted)]
        stored = sum(isinstance(event, Stored) and event.tier == "disk" for event in cache.events.recent())
        on_disk = [event for event in evicted if event.tier == "disk"]
        assert on_disk
        assert {event.reason for event in evicted} == {EvictReason.QUOTA}
        assert (stored - len(on_disk)) * 40_000 <= 1 << 20
    with Cache(tmp_path, tenants=TENANTS) as cache:
        assert cache.stats().tiers["disk"].detail["live_bytes"] <= 1 << 20  # type: ignore[operator]


def test_wrong_slots_are_refused_before_the_folder_is_opened(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="compute slots"):
        Cache(tmp_path / "cache", settings=Settings(compute_slots=0))
    assert not (tmp_path / "cache").exists()
