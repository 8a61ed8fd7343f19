"""Slots move from node to node while clients use them: no key is lost, none comes back, none is wrong."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.patience import until
from tests.scale_stage import (
    PASSWORD,
    REDIS_6,
    REDIS_7,
    VALKEY,
    Cut,
    Stage,
    Users,
    chosen,
    fill,
    held,
    keys_in,
    settled,
    staged,
)

from mmcache import Cache
from mmcache.lab.servers import certificates, choose, cluster, slot_of
from mmcache.model.errors import AssetError, ScaleError
from mmcache.model.key import Key
from mmcache.scale import resharding
from mmcache.scale.access import Access
from mmcache.scale.act import act
from mmcache.scale.migrating import Sides
from mmcache.scale.observe import look
from mmcache.scale.observed import Member
from mmcache.scale.present import Present
from mmcache.scale.steps import Meet, MoveSlots, Replicate
from mmcache.settings import SharedSettings


@dataclass
class Listed:
    """A `Platform` of what runs already."""

    listed: Sequence[Member]

    def members(self) -> Sequence[Member]:
        return self.listed

    def start_shard(self, shard: int, members: int) -> None:
        raise NotImplementedError

    def stop_shard(self, shard: int, keep: int = 0) -> None:
        raise NotImplementedError

    def replace(self, member: Member) -> None:
        raise NotImplementedError


def move(stage: Stage, slots: list[int], source: str, target: str, key_by_key: bool = False) -> None:
    with Present(stage.look(), stage.access) as present:
        resharding.move(MoveSlots(tuple(slots), source, target), present, lambda: False, key_by_key=key_by_key)


def unnoticed(stage: Stage, key_by_key: bool) -> None:
    """Slots go round, from shard to shard, and back, while clients set, get and delete their keys."""
    keys = keys_in(stage.look().nodes["0-0"].slots, 60, 3)
    slots = sorted({slot_of(key) for key in keys})
    with Users(stage, keys) as users:
        for source, target in (("0-0", "1-0"), ("1-0", "2-0"), ("2-0", "0-0"), ("0-0", "2-0")):
            before = users.done
            move(stage, slots, source, target, key_by_key)
            stage.until(lambda seen: users.done > before + 100, "clients go on")  # noqa: B023 - it is called here
    users.check()
    stage.until(settled, "all agree")


def test_clients_notice_nothing(tmp_path: Path) -> None:
    with staged(tmp_path, VALKEY, password=PASSWORD) as stage:
        unnoticed(stage, key_by_key=False)


@pytest.mark.slow
@pytest.mark.parametrize("server", [VALKEY, REDIS_7, REDIS_6], ids=["valkey", "redis7", "redis6"])
def test_clients_notice_nothing_of_keys_that_move_one_by_one(tmp_path: Path, server: tuple[str, int]) -> None:
    with staged(tmp_path, server, password=PASSWORD) as stage:
        unnoticed(stage, key_by_key=True)


@pytest.mark.slow
def test_a_cache_never_keeps_what_was_replaced_or_invalidated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots stand open, their keys ahead, while a host replaces and invalidates: an open slot refuses both."""
    with staged(tmp_path, REDIS_7, 0, password=PASSWORD) as stage, ExitStack() as ends:
        url = f"valkey://127.0.0.1:{stage.nodes['0-0'].server.port}?cluster=true"

        def cut(*_: object) -> None:
            raise Cut

        def opened(name: str, seconds: float = 0.3) -> Cache:
            shared = SharedSettings(url, password=PASSWORD, timeout_seconds=seconds)
            return ends.enter_context(Cache(tmp_path / name, shared=shared, secret=bytes(32)))

        first, one, other = opened("first", 20.0), opened("one"), opened("other")
        keys = [one.key(f"block {number}", modality="text", signature="s") for number in range(10)]
        for number in range(10):
            first.put(first.key(f"block {number}", modality="text", signature="s"), "old")
        first.flush()
        until(lambda: all(cache.get(key) == "old" for cache in (one, other) for key in keys), "all have it")
        slots = sorted({slot_of(key) for key in stage.nodes["0-0"].server.ask("KEYS", "*") if b"{" in key})
        with monkeypatch.context() as patched:
            patched.setattr(Sides, "close", cut)
            with pytest.raises(Cut):
                move(stage, slots, "0-0", "1-0", key_by_key=True)
        seen = stage.look().nodes
        assert set(seen["0-0"].migrating) == set(slots)
        assert seen["1-0"].keys
        expected: dict[Key, set[str | None]] = {}
        for number, key in enumerate(keys):
            if number % 2:
                one.invalidate(key)
            else:
                one.put(key, "new")
            expected[key] = {None} if number % 2 else {None, "new"}

        def refused() -> bool:
            one.flush()
            return bool(one.stats().tiers["valkey"].detail["waits"])

        until(refused, "an open slot refuses; a server that is late on a busy machine is left alone at first")
        assert all(one.get(key) in expected[key] for key in keys)
        stage.converge()
        # What was refused is owed, and done now.
        until(lambda: all(cache.get(key) in expected[key] for cache in (one, other) for key in keys), "all heard")
        fresh = opened("fresh")
        assert all(fresh.get(key) in expected[key] for key in keys)


@pytest.mark.slow
def test_slots_go_from_an_old_server_to_a_new_one(tmp_path: Path) -> None:
    with staged(tmp_path, REDIS_7, 0, password=PASSWORD) as stage:
        stage.cluster.setup = replace(stage.cluster.setup, binary=chosen(*VALKEY))
        stage.start_shard(3, 1)
        stage.do(Meet("3-0", "0-0"))
        keys = keys_in(stage.look().nodes["0-0"].slots, 20, 3)
        values = fill(stage, keys)
        seen = stage.until(lambda seen: seen.nodes["3-0"].cluster_ok and seen.nodes["3-0"].id
                           in seen.nodes["0-0"].others, "they are acquainted")  # fmt: skip
        assert seen.nodes["3-0"].version.startswith("valkey 9")
        stage.nodes["3-0"].server.ask("CLUSTER", "SETSLOT", slot_of(keys[0]), "IMPORTING", seen.nodes["0-0"].id)
        with pytest.raises(ScaleError, match="about to get"):
            stage.do(Replicate("3-0", "1-0"))
        stage.do(MoveSlots(tuple(sorted({slot_of(key) for key in keys})), "0-0", "3-0"))
        assert stage.look().nodes["3-0"].keys == len(keys)
        held(stage, values)


@pytest.mark.slow
def test_lifetimes_and_large_blocks_go_along(tmp_path: Path) -> None:
    with staged(tmp_path, REDIS_7, 0) as stage:
        keys = keys_in(stage.look().nodes["0-0"].slots, 12, 1)
        values = fill(stage, keys, 3 << 20)  # more than is sent in one go, together
        assert stage.nodes["0-0"].server.ask("PEXPIRE", keys[0], 3_600_000) == 1
        stage.do(MoveSlots(tuple(map(slot_of, keys)), "0-0", "1-0"))
        held(stage, values)
        assert 0 < stage.nodes["1-0"].server.ask("PTTL", keys[0]) <= 3_600_000
        assert stage.nodes["1-0"].server.ask("PTTL", keys[1]) == -1


@pytest.mark.slow
def test_a_user_who_may_only_keep_the_cluster_suffices(tmp_path: Path) -> None:
    with staged(tmp_path, VALKEY, 0) as stage:
        rules = "on >word ~* +@all -flushall -config"
        for node in stage.nodes.values():
            node.server.ask("ACL", "SETUSER", "keeper", *rules.split())
        stage.access = replace(stage.access, user="keeper", password="word")
        keys = keys_in(stage.look().nodes["0-0"].slots, 5, 2)
        values = dict.fromkeys(keys, b"v")
        for key in keys:
            stage.nodes["0-0"].server.ask("SET", key, b"v")
        move(stage, [slot_of(key) for key in keys], "0-0", "1-0", key_by_key=True)  # by AUTH2, without CONFIG
        assert all(stage.nodes["1-0"].server.ask("GET", key) == value for key, value in values.items())


@pytest.mark.slow
def test_all_of_it_over_tls(tmp_path: Path) -> None:
    """A name that the certificate does not have, or an authority that nobody trusts, is refused, and says why."""
    try:
        made = certificates(tmp_path / "pem")
        binary = choose("redis", 7, tls=True)
    except AssetError as missing:
        pytest.skip(str(missing))
    trusting = ssl.create_default_context(cafile=str(made.authority))
    with cluster(tmp_path, 3, 0, binary=binary, tls=made, password=PASSWORD) as servers:
        members = [Member(n, 0, "127.0.0.1", node.server.public_port, True) for n, node in enumerate(servers.nodes)]
        given, access = Listed(members), Access(PASSWORD, tls=trusting, timeout_seconds=30.0)
        keys = keys_in(look(given, access, 0.0).nodes["0-0"].slots, 5, 2)
        for key in keys:
            servers.nodes[0].server.ask("SET", key, b"v")
        act(MoveSlots(tuple(map(slot_of, keys)), "0-0", "1-0"), look(given, access, 0.0), given, access)
        assert all(servers.nodes[1].server.ask("GET", key) == b"v" for key in keys)
        stranger = ssl.create_default_context(cafile=str(made.stranger))
        seen = look(given, Access(PASSWORD, tls=stranger, timeout_seconds=30.0), 0.0)
        assert not seen.nodes
        assert "certificate is not trusted" in seen.silent["0-0"]
        plain = look(given, Access(PASSWORD, timeout_seconds=30.0), 0.0)
        assert not plain.nodes
        assert PASSWORD not in str(plain.silent) + str(seen.silent)
