"""A tenant's user that may touch its prefix only: the tier works within it, and nothing of others can be had."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mmcache import Cache
from mmcache.lab import servers
from mmcache.lab.servers import Server
from mmcache.model.errors import AssetError, TierError
from mmcache.model.event import Event, Failed, MissReason, RefuseReason
from mmcache.settings import SharedSettings
from mmcache.testing.frames import make_frame, make_key
from mmcache.tiers.base import Found
from mmcache.tiers.valkey import ValkeyTier


def rules(prefix: str) -> str:
    """As the tier's documentation gives them, word for word."""
    found = re.search(r"user NAME (on .*?)\n\n", ValkeyTier.__doc__ or "", re.DOTALL)
    assert found is not None
    return " ".join(found[1].replace("\\", " ").split()).replace("PASSWORD", "secret").replace("PREFIX", prefix)


@pytest.fixture(scope="module", params=["one", "redis-6", "cluster"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """With users `a` and `b`; give it one."""
    users = {name: rules(f"{name}:") for name in "ab"}
    folder = tmp_path_factory.mktemp("valkey")
    try:
        if request.param != "cluster":
            binary = servers.choose() if request.param == "one" else servers.choose("redis", 6)
            with servers.server(folder, users=users, binary=binary) as server:
                yield server.url.replace("://", "://USER:secret@")
        else:
            with servers.cluster(folder, primaries=3, replicas=0, users=users) as cluster:
                yield cluster.url.replace("://", "://USER:secret@")
    except AssetError as missing:
        pytest.skip(str(missing))


def tier_of(url: str, user: str, prefix: str, events: list[Event] | None = None) -> ValkeyTier:
    said: list[Event] = [] if events is None else events
    return ValkeyTier.open(
        url.replace("USER", user), prefix=prefix, timeout_seconds=30, chunk_bytes=30_000, emit=said.append,
        heartbeat=False,
    )  # fmt: skip


def test_within_its_prefix_everything_works(url: str) -> None:
    events: list[Event] = []
    tier = tier_of(url, "a", "a:", events)
    frames = [make_frame(make_key(n), b"x" * size) for n, size in enumerate((10, 20_000, 90_000))]
    for _ in range(2):
        assert tier.put(frames, [None, 1e9, None]) == [None] * 3
    assert all(isinstance(found, Found) for found in tier.get([frame.key for frame in frames]))
    assert tier.claims.acquire(make_key(7))
    assert not tier.claims.acquire(make_key(7))
    tier.claims.beat()
    assert tier.put([make_frame(make_key(7))], [None]) == [None]
    assert tier.claims.acquire(make_key(8))
    tier.claims.release(make_key(8))
    tier.claims.beat()
    assert {held.key for held in tier.scan()} == {*(frame.key for frame in frames), make_key(7)}
    assert tier.stats().detail["chunked"] == 1
    assert tier.drop([frame.key for frame in frames]) == 3
    tier.look()
    assert events == []
    tier.close()


def test_beyond_its_prefix_nothing_is_read_written_or_dropped(url: str) -> None:
    owner, events = tier_of(url, "a", "a:"), list[Event]()
    intruder = tier_of(url, "b", "a:", events)  # has the right user of another tenant, and knows the very key
    frames = [make_frame(make_key(n), b"secret" * size) for n, size in enumerate((1, 10_000))]
    assert owner.put(frames, [None, None]) == [None, None]
    keys = [frame.key for frame in frames]
    assert intruder.get(keys) == [MissReason.DENIED, MissReason.DENIED]
    assert intruder.put(frames, [None, None]) == [RefuseReason.READ_ONLY] * 2
    with pytest.raises(TierError, match=r"2 of 2 keys were not dropped.*NOPERM"):
        intruder.drop(keys)
    assert list(intruder.scan()) == []
    assert intruder.claims.acquire(keys[0]), "it computes for itself"
    assert all(isinstance(found, Found) for found in owner.get(keys))
    assert owner.claims.acquire(keys[0]), "its lease was not taken"
    assert any(isinstance(event, Failed) and "NOPERM" in event.detail for event in events)
    owner.close()
    intruder.close()


def test_a_whole_cache_needs_no_more(url: str) -> None:
    caches = [
        Cache(shared=SharedSettings(url.replace("USER", "a"), prefix="a:", timeout_seconds=30), secret=bytes(32))
        for _ in range(2)
    ]
    one, two = (cache.wrap(lambda text: text * 2, modality="text", signature="encoder-1") for cache in caches)
    assert one("a") == "aa"
    caches[0].flush()
    assert two("a") == "aa"
    caches[1].invalidate(caches[1].key("a", modality="text", signature="encoder-1"))
    for cache in caches:
        cache.close()
        assert [event for event in cache.events.recent() if isinstance(event, Failed)] == []


def test_keys_of_another_tenant_cannot_be_computed_without_its_secret(tmp_path: Path) -> None:
    """Whoever sees all names on the server, and has the same picture, learns nothing from them."""
    try:
        with servers.server(tmp_path) as server:
            assert isinstance(server, Server)
            names = []
            for number in range(2):
                server.ask("FLUSHALL")
                tier = ValkeyTier.open(server.url, timeout_seconds=30)
                with Cache(lower=[tier], secret=bytes([number]) * 32) as cache:
                    cache.wrap(len, modality="text", signature="encoder-1")("the same text")
                names.append({name for name in server.ask("KEYS", "*") if name != b"mmcache:{clock}"})
    except AssetError as missing:
        pytest.skip(str(missing))
    assert all(len(one) == 1 for one in names)
    assert names[0].isdisjoint(names[1])


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random"])
def test_a_server_that_evicts_whatever_it_likes_costs_misses_only(tmp_path: Path, policy: str) -> None:
    try:
        with servers.server(tmp_path, None, "--maxmemory", "6mb", "--maxmemory-policy", policy) as server:
            tier = ValkeyTier.open(server.url, timeout_seconds=30, chunk_bytes=10_000, heartbeat=False)
            payloads = {make_key(n): bytes([n]) * (n * 997 % 60_000) for n in range(1, 250)}
            stored = 0
            for key, payload in payloads.items():
                assert tier.claims.acquire(key)
                (said,) = tier.put([make_frame(key, payload)], [None])
                assert said in (None, RefuseReason.TIER_DOWN, RefuseReason.INVALIDATED, RefuseReason.QUOTA)
                stored += said is None
            found = dict(zip(payloads, tier.get(list(payloads)), strict=True))
            held = {key: one for key, one in found.items() if isinstance(one, Found)}
            assert all(bytes(one.frame.payload) == payloads[key] for key, one in held.items())
            assert all(one is MissReason.ABSENT for key, one in found.items() if key not in held)
            assert 0 < len(held) < stored
            tier.close()
    except AssetError as missing:
        pytest.skip(str(missing))


def test_a_prefix_that_begins_like_anothers_is_another(url: str) -> None:
    owner, longer = tier_of(url, "a", "a:"), tier_of(url, "a", "a:b:")
    assert owner.get([make_key(77)]) == [MissReason.ABSENT]
    assert longer.get([make_key(77)]) == [MissReason.DENIED]
    owner.close()
    longer.close()
