"""Slots go key by key to a primary that dies, or whose replica hangs: one load is in danger at a time, no more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.patience import until
from tests.scale_stage import REDIS_7, VALKEY, Stage, client, fill, held, keys_in, settled, staged

from mmcache.lab.servers import Node, slot_of
from mmcache.model.errors import ScaleError
from mmcache.scale import resharding
from mmcache.scale.access import Contact
from mmcache.scale.migrating import Sides
from mmcache.scale.present import Present
from mmcache.scale.replication import Replication
from mmcache.scale.steps import MoveSlots, Settle
from mmcache.scale.talk import Wire
from mmcache.tiers.valkey.client import Request

SIZE = 100_000
"""Of a value: two make a load."""
_LONG_MS = 600_000

pytestmark = pytest.mark.slow
servers = pytest.mark.parametrize("server", [VALKEY, REDIS_7], ids=["valkey", "redis7"])


def move(stage: Stage, slots: Sequence[int], key_by_key: bool = True) -> None:
    """From shard 0 to shard 1."""
    with Present(stage.look(), stage.access) as present:
        resharding.move(MoveSlots(tuple(slots), "0-0", "1-0"), present, lambda: False, key_by_key=key_by_key)


def asked(node: Node) -> int:
    """How many times it was asked for its role."""
    lines = node.server.ask("INFO", "commandstats").decode().splitlines()
    return sum(int(line.split("calls=")[1].split(",")[0]) for line in lines if line.startswith("cmdstat_role:"))


@contextmanager
def hooked(monkeypatch: pytest.MonkeyPatch, after: int, hook: Callable[[], None]) -> Iterator[list[set[bytes]]]:
    """The keys of each load that was sent. After so many the hook is called."""
    sent: list[set[bytes]] = []
    whole = Sides.loads

    def loads(sides: Sides, parcels: Sequence[tuple[int, Sequence[bytes], int]]) -> None:
        sent.append({key for _, keys, _ in parcels for key in keys})
        whole(sides, parcels)
        if len(sent) == after:
            hook()

    with monkeypatch.context() as patched:
        patched.setattr(Sides, "loads", loads)
        yield sent


def moving(stage: Stage, slots: Sequence[int]) -> tuple[threading.Thread, list[ScaleError]]:
    """A move that goes on meanwhile, and why it failed."""
    failed: list[ScaleError] = []

    def run() -> None:
        try:
            move(stage, slots)
        except ScaleError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, failed


def never_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica is waited for as long as a test may take."""
    monkeypatch.setattr(Contact, "node_timeout_ms", lambda self: _LONG_MS)


@servers
def test_nothing_more_is_sent_until_a_replica_has_what_was_sent(
    tmp_path: Path, server: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    never_given_up(monkeypatch)
    with staged(tmp_path, server) as stage:
        values = fill(stage, keys_in(stage.look().nodes["0-0"].slots, 8), SIZE)
        target, replica = stage.nodes["1-0"], stage.nodes["1-1"].server
        with hooked(monkeypatch, 2, replica.pause) as sent:
            thread, failed = moving(stage, [slot_of(key) for key in values])
            try:
                until(lambda: len(sent) >= 2, "two loads are sent")
                before = asked(target)
                until(lambda: asked(target) > before + 5, "it is waited for")
                assert len(sent) <= 3  # the replica may have got the second one before it was paused
                stuck = len(sent)
                before = asked(target)
                until(lambda: asked(target) > before + 5, "it is waited for still")
                assert len(sent) == stuck
            finally:
                replica.resume()
                thread.join()
        assert not failed
        assert stage.look().nodes["1-0"].slots >= set(map(slot_of, values))
        held(stage, values)


@servers
def test_a_target_that_dies_takes_one_load_with_it_at_most(
    tmp_path: Path, server: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    never_given_up(monkeypatch)
    with staged(tmp_path, server) as stage:
        values = fill(stage, keys_in(stage.look().nodes["0-0"].slots, 8), SIZE)
        target, replica = stage.nodes["1-0"], stage.nodes["1-1"].server
        with hooked(monkeypatch, 2, replica.pause) as sent:
            thread, failed = moving(stage, [slot_of(key) for key in values])
            try:
                until(lambda: len(sent) >= 2, "two loads are sent")
                before = asked(target)
                until(lambda: asked(target) > before + 10, "it is waited for")
            finally:
                target.server.kill()  # while its replica hangs: what it had not been told is gone
                replica.resume()
                thread.join()
        assert not failed  # it went on to the replica that took over
        assert stage.look().nodes["1-1"].slots >= set(map(slot_of, values))
        stage.revive("1-0")
        stage.converge()
        with client(stage) as to:
            found = dict(zip(values, to.ask([Request(key, ("GET", key)) for key in values]), strict=True))
        lost = {key for key, value in found.items() if value is None}
        assert all(value in (None, values[key]) for key, value in found.items())
        assert any(lost <= load for load in sent), (lost, sent)


def test_a_replica_that_hangs_does_not_keep_slots_open_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Valkey, from 8 on, gives its slots away only when its replicas have heard of it, and refuses meanwhile."""
    given_up: list[bool] = []
    whole = Replication.caught_up
    monkeypatch.setattr(Replication, "caught_up", lambda self: given_up.append(not whole(self)))
    with staged(tmp_path, REDIS_7) as stage:
        values = fill(stage, keys_in(stage.look().nodes["0-0"].slots, 8), SIZE)
        replica = stage.nodes["1-1"].server
        try:
            replica.pause()
            move(stage, [slot_of(key) for key in values])
        finally:
            replica.resume()
        assert any(given_up)
        stage.until(lambda seen: not seen.silent and settled(seen), "all agree")
        assert stage.look().nodes["1-0"].slots >= set(map(slot_of, values))
        held(stage, values)


@pytest.mark.parametrize(
    ("server", "key_by_key"), [(VALKEY, False), (VALKEY, True), (REDIS_7, True)], ids=["atomic", "valkey", "redis7"]
)
def test_what_a_node_has_of_a_slot_that_nobody_gave_it_never_comes_back(
    tmp_path: Path, server: tuple[str, int], key_by_key: bool
) -> None:
    """Left over from a move that ended otherwise. Its owner has dropped it since."""
    with staged(tmp_path, server, 0) as stage:
        dropped, kept, alone = keys_in(stage.look().nodes["0-0"].slots, 3)
        source, target, third = (stage.nodes[f"{shard}-0"].server for shard in range(3))
        ids = {name: node.id for name, node in stage.look().nodes.items()}
        for key, slot in ((key, slot_of(key)) for key in (dropped, kept, alone)):
            for node in (target, third):
                node.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", ids["0-0"])
                with Wire(node.host, node.port) as wire:
                    assert wire.call([("ASKING",), ("SET", key, b"old")])[1] == "OK"
                node.ask("CLUSTER", "SETSLOT", slot, "STABLE")
        values = fill(stage, [kept])
        move(stage, [slot_of(key) for key in (dropped, kept)], key_by_key)
        with client(stage) as to:
            assert to.ask([Request(key, ("GET", key)) for key in (dropped, kept)]) == [None, values[kept]]
        source.ask("CLUSTER", "SETSLOT", slot_of(alone), "MIGRATING", ids["2-0"])
        stage.do(Settle((slot_of(alone),), None, "0-0"))
        assert [node.ask("CLUSTER", "COUNTKEYSINSLOT", slot_of(alone)) for node in (target, third)] == [0, 0]
        stage.until(settled, "all agree")
