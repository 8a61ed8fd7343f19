"""A server that is gone, silent, full, foreign or hostile: a miss with a reason, a refused put, a drop that is owed."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from mmcache import Cache
from mmcache.lab import servers
from mmcache.model.errors import AssetError, SettingsError, TierError
from mmcache.model.event import Event, Failed, MissReason, Refused, RefuseReason
from mmcache.settings import SharedSettings
from mmcache.testing.clock import FakeClock
from mmcache.testing.frames import make_frame, make_key
from mmcache.tiers.base import Found
from mmcache.tiers.valkey import ValkeyTier
from mmcache.tiers.valkey.names import Names
from mmcache.tiers.valkey.record import Record, names_in

redis = pytest.importorskip("redis", reason="needs mmcache[valkey]")

Serve = Iterator[servers.Server]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Serve:
    try:
        with servers.server(tmp_path_factory.mktemp("valkey")) as started:
            yield started
    except AssetError as missing:
        pytest.skip(str(missing))


@pytest.fixture
def raw(server: servers.Server) -> Iterator[Any]:
    with redis.Redis(port=server.port) as client:
        client.flushall()
        yield client


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def tier(server: servers.Server, raw: Any, events: list[Event]) -> Iterator[ValkeyTier]:
    tier = ValkeyTier.open(server.url, emit=events.append, largest_bytes=1 << 16, timeout_seconds=30)
    yield tier
    tier.close()


def stored(raw: Any) -> bytes:
    (name,) = (name for name in raw.keys("mmcache:*") if name != b"mmcache:{clock}")
    return bytes(name)


def test_whatever_byte_is_wrong_no_wrong_block_is_served(tier: ValkeyTier, raw: Any) -> None:
    tier.put([make_frame(make_key(1), b"truth" * 9)], [None])
    name = stored(raw)
    right = raw.get(name)
    for place in range(0, len(right), 3):
        raw.set(name, right[:place] + bytes([right[place] ^ 0x10]) + right[place + 1 :])
        (found,) = tier.get([make_key(1)])
        if isinstance(found, Found) and found.frame.intact():
            assert bytes(found.frame.payload) == b"truth" * 9
        elif not isinstance(found, Found):
            assert found is MissReason.CORRUPT
    for length in range(0, len(right), 7):
        raw.set(name, right[:length])
        assert tier.get([make_key(1)]) == [MissReason.CORRUPT if length else MissReason.ABSENT]
        list(tier.scan())


def test_what_is_not_ours_is_never_served(tier: ValkeyTier, raw: Any, events: list[Event]) -> None:
    tier.put([make_frame(make_key(1), b"one"), make_frame(make_key(2), b"two")], [None, None])
    one, two = (Names("mmcache:").head(make_key(n)) for n in (1, 2))
    raw.set(two, raw.get(one))
    assert tier.get([make_key(2)]) == [MissReason.CORRUPT]
    raw.set(two, b"x" * (1 << 17))
    assert tier.get([make_key(2)]) == [MissReason.CORRUPT]
    raw.delete(two)
    raw.lpush(two, "a list")
    assert tier.get([make_key(2), make_key(1)])[0] is MissReason.CORRUPT
    raw.set(b"mmcache:{" + b"!" * 64 + b"}", b"rubbish")
    raw.set(b"mmcache:short", b"rubbish")
    assert [held.key for held in tier.scan()] == [make_key(1)]
    assert all(isinstance(event, Failed) for event in events)


@pytest.mark.parametrize("rubbish", [b"", b"\xff" * 100, b"12345678\x92\x00\x90", b"x" * (1 << 18)])
def test_a_damaged_ledger_costs_no_block_of_ones_own(tier: ValkeyTier, raw: Any, rubbish: bytes) -> None:
    clock = FakeClock()
    raw.set("mmcache:{clock}", rubbish)
    tier.put([make_frame(make_key(1))], [clock.monotonic() + 1e6])
    assert isinstance(tier.get([make_key(1)])[0], Found)
    assert 8 < raw.strlen("mmcache:{clock}") < 200


def test_a_ledger_that_is_no_string_leaves_others_blocks_unread(tier: ValkeyTier, raw: Any, server: Any) -> None:
    raw.lpush("mmcache:{clock}", 1)
    other = ValkeyTier.open(server.url, machine=b"another1", clock=FakeClock(), timeout_seconds=30)
    other.put([make_frame(make_key(1))], [1e9])
    assert tier.get([make_key(1)]) == [MissReason.ABSTAINED]
    assert isinstance(other.get([make_key(1)])[0], Found)
    other.close()


def test_a_prefix_may_stand_in_the_url(tier: ValkeyTier, server: servers.Server) -> None:
    other = ValkeyTier.open(f"{server.url}?prefix=other:", timeout_seconds=30)
    other.put([make_frame(make_key(1))], [None])
    assert tier.get([make_key(1)]) == [MissReason.ABSENT]
    names = Names("other:")
    assert set(server.ask("KEYS", "other:*")) == {names.clock, names.head(make_key(1))}
    other.close()


def test_too_large_is_refused_and_an_older_value_is_found_by_its_tenant_only(
    tier: ValkeyTier, server: Any, events: list[Event]
) -> None:
    assert tier.put([make_frame(make_key(1), b"x" * (1 << 16))], [None]) == [RefuseReason.TOO_LARGE]
    assert tier.put([make_frame(make_key(1), tenant="t" * (1 << 16))], [None]) == [RefuseReason.UNSUPPORTED]
    assert [event.reason for event in events if isinstance(event, Refused)] == [
        RefuseReason.TOO_LARGE,
        RefuseReason.UNSUPPORTED,
    ]
    long = make_frame(make_key(2), tenant="t" * 3000)
    assert tier.put([long], [None]) == [None]
    assert [held.tenant for held in tier.scan()] == ["t" * 3000]
    elsewhere = ValkeyTier.open(server.url, prefix="other:", timeout_seconds=30)
    assert list(elsewhere.scan()) == []
    assert elsewhere.get([make_key(2)]) == [MissReason.ABSENT]
    elsewhere.close()


@pytest.mark.parametrize("size", [1, 20_000, 40_000])
def test_a_full_server_refuses_and_the_older_value_goes_and_it_still_drops(
    server: servers.Server, raw: Any, size: int
) -> None:
    tier = ValkeyTier.open(server.url, chunk_bytes=30_000, timeout_seconds=30)
    old = [make_frame(make_key(n), b"old" * 20_000) for n in range(3)]
    assert tier.put(old, [None] * 3) == [None] * 3
    raw.config_set("maxmemory", 1)
    try:
        newer = make_frame(make_key(1), b"n" * size)
        assert tier.put([newer], [None]) == [RefuseReason.QUOTA]
        assert tier.get([make_key(1)]) == [MissReason.ABSENT]
        assert tier.drop([make_key(0), make_key(1)]) == 1
        assert tier.stats().detail["lost_writes"] == 1
    finally:
        raw.config_set("maxmemory", 0)
    assert tier.put([newer], [None]) == [None]
    assert {held.key for held in tier.scan()} == {make_key(1), make_key(2)}
    assert tier.drop([make_key(1), make_key(2)]) == 2
    assert raw.keys() == [b"mmcache:{clock}"], "nothing is left of what went"
    tier.close()


@pytest.mark.parametrize("silent", [True, False])
def test_a_server_that_is_silent_or_gone_is_a_miss_and_left_alone_for_a_while(silent: bool) -> None:
    events: list[Event] = []
    clock = FakeClock()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if silent:
            listener.listen()
        tier = ValkeyTier.open(
            f"valkey://127.0.0.1:{listener.getsockname()[1]}", timeout_seconds=0.05, clock=clock, emit=events.append
        )
        first = MissReason.TIMEOUT if silent else MissReason.TIER_DOWN
        assert tier.get([make_key(1), make_key(2)]) == [first] * 2
        assert tier.get([make_key(1), make_key(2)]) == [MissReason.TIER_DOWN] * 2
        assert tier.put([make_frame(make_key(1))], [None]) == [RefuseReason.TIER_DOWN]
        gauges = tier.stats()
        assert (gauges.blocks, gauges.detail["down"], gauges.detail["lost_writes"]) == (0, 1, 1)
        with pytest.raises(TierError, match=r"2 of 2 keys were not dropped.*left alone"):
            tier.drop([make_key(1), make_key(2), make_key(1)])
        clock.advance(SharedSettings("").rest_seconds)
        with pytest.raises(TierError, match="in time" if silent else "refused"):
            tier.drop([make_key(1)])
        with pytest.raises(TierError):
            list(tier.scan())
        tier.close()
    assert events


def test_a_wrong_password_is_a_miss(server: servers.Server) -> None:
    tier = ValkeyTier.open(f"valkey://nobody:wrong@127.0.0.1:{server.port}", timeout_seconds=30)
    assert tier.get([make_key(1)]) == [MissReason.TIER_DOWN]
    tier.close()


def test_two_caches_share_a_server_and_go_on_without_it(tmp_path: Path) -> None:
    try:
        binary = servers.binary()
    except AssetError as missing:
        pytest.skip(str(missing))
    assert binary.exists()
    computed: list[int] = []

    def compute(text: str) -> Any:
        computed.append(1)
        return np.full(8, len(text))

    with servers.server(tmp_path) as started:
        tiers = [ValkeyTier.open(started.url, timeout_seconds=30) for _ in range(2)]
        caches = [Cache(lower=[tier], secret=bytes(32), ttl=3600) for tier in tiers]
        calls = [cache.wrap(compute, modality="text", signature="encoder-1") for cache in caches]
        for call in calls:
            assert call("shared")[0] == 6
        assert len(computed) == 1
    for call in calls:
        assert call("alone")[0] == 5
        assert call("alone")[0] == 5
    assert len(computed) == 3
    for cache in caches:
        cache.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout_seconds": 0}, {"timeout_seconds": 1e300}, {"connections": 0}, {"connections": 2.5},
        {"largest_bytes": 0}, {"chunk_bytes": 1e6}, {"spare_seconds": -1}, {"spare_seconds": float("inf")},
        {"machine": b""},
    ],
)  # fmt: skip
def test_settings_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        ValkeyTier.open("valkey://127.0.0.1", **wrong)


def test_settings_do_not_show_a_password() -> None:
    assert "secret" not in repr(SharedSettings("valkey://me:secret@127.0.0.1", password="secret"))


def test_a_head_survives_the_wire() -> None:
    frame = make_frame(make_key(1), tenant="nul\0")
    record = Record(b"machine1", 12.5, 7.0, b"0123456789abcdef", 4096, 1)
    encoded = record.encode(frame.header)
    assert encoded is not None
    assert names_in(encoded + b"frame") == ("nul\0", "default", "model-1", "tensor")
    assert Record.decode(encoded) == msgspec.structs.replace(record, length=len(encoded))
