"""A block that was dropped is no hit again when its slot moves, whatever was left over where, and whoever dies."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.patience import until
from tests.scale_stage import (
    REDIS_6,
    REDIS_7,
    VALKEY,
    Cut,
    Stage,
    client,
    cut_after,
    fill,
    followed,
    held,
    keys_in,
    settled,
    staged,
)

from mmcache.lab.servers import slot_of
from mmcache.model.errors import ScaleError
from mmcache.scale import resharding
from mmcache.scale.present import Present
from mmcache.scale.steps import MoveSlots, Settle
from mmcache.scale.strays import clear, discard
from mmcache.scale.talk import Command, Wire
from mmcache.tiers.valkey.client import Request

_MOST = 400
SOON_MS = 4000
WAYS = [(VALKEY, False), (VALKEY, True), (REDIS_7, True), (REDIS_6, True)]
NAMES = ["atomic", "valkey", "redis7", "redis6"]

pytestmark = pytest.mark.slow


def move(stage: Stage, slots: Sequence[int], key_by_key: bool, source: str = "0-0", target: str = "1-0") -> None:
    """By the way that is to be tested."""
    with Present(stage.look(), stage.access) as present:
        step = MoveSlots(tuple(slots), source, target)
        resharding.move(step, present, lambda: False, key_by_key=key_by_key)


def plant(stage: Stage, name: str, key: bytes, owner: str) -> None:
    """A copy that is left over at a node to which the slot is not open."""
    node = stage.nodes[name].server
    node.ask("CLUSTER", "SETSLOT", slot_of(key), "IMPORTING", owner)
    with Wire(node.host, node.port) as wire:
        assert wire.call([("ASKING",), ("SET", key, b"old")])[1] == "OK"
    node.ask("CLUSTER", "SETSLOT", slot_of(key), "STABLE")


def got(stage: Stage, keys: Sequence[bytes]) -> list[object]:
    """What a client is answered."""
    with client(stage) as to:
        return list(to.ask([Request(key, ("GET", key)) for key in keys]))


@pytest.mark.parametrize(("server", "key_by_key"), WAYS, ids=NAMES)
def test_what_is_left_over_stays_dropped_wherever_a_move_is_cut_off(
    tmp_path: Path, server: tuple[str, int], key_by_key: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with staged(tmp_path, server, 0) as stage:
        dropped, kept = keys_in(stage.look().nodes["0-0"].slots, 1, 2)
        values = fill(stage, [kept])
        owner = stage.look().nodes["0-0"].id
        for commands in range(_MOST):
            plant(stage, "1-0", dropped, owner)
            whole = True
            with cut_after(commands, monkeypatch):
                try:
                    move(stage, [slot_of(kept)], key_by_key)
                except Cut:
                    whole = False
            stage.converge()
            assert got(stage, [dropped, kept]) == [None, values[kept]], commands
            if whole:
                break
            for name in ("1-0", "2-0"):
                if slot_of(kept) in stage.look().nodes[name].slots:
                    move(stage, [slot_of(kept)], key_by_key, name, "0-0")
        assert whole


@pytest.mark.parametrize("server", [VALKEY, REDIS_7, REDIS_6], ids=NAMES[1:])
def test_what_is_dropped_while_its_slots_owner_is_replaced_stays_dropped(
    tmp_path: Path, server: tuple[str, int]
) -> None:
    """It had gone ahead. Redis does not tell a replica which slots are open: it answers for what is not there."""
    with staged(tmp_path, server, dead_after_ms=SOON_MS) as stage:
        dropped, ahead, kept = keys_in(stage.look().nodes["0-0"].slots, 1, 3)
        values, slot = fill(stage, [dropped, ahead, kept]), slot_of(kept)
        source, target = stage.nodes["0-0"].server, stage.nodes["1-0"].server
        ids = {name: node.id for name, node in stage.look().nodes.items()}
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", ids["0-0"])
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", ids["1-0"])
        assert source.ask("MIGRATE", target.host, target.port, "", 0, 5000, "KEYS", dropped, ahead) == "OK"
        until(lambda: followed(stage.nodes["0-0"]), "the replica has all")
        source.kill()
        stage.until(lambda seen: all(
            slot in node.others[ids["0-1"]].slots for name, node in seen.nodes.items() if name not in ("1-0", "0-0")
        ) and not seen.nodes["1-0"].others[ids["0-1"]].primary, "the replica took over")  # fmt: skip
        with client(stage) as to:
            to.ask([Request(dropped, ("DEL", dropped))])

        def went_on() -> bool:
            with contextlib.suppress(ScaleError):  # until all have heard of who took over
                stage.do(Settle((slot,), "0-1", "1-0"))
            return settled(stage.look())

        until(went_on, "it goes on")  # and nobody serves nothing for want of him who died
        assert got(stage, [dropped, kept]) == [None, values[kept]]
        assert got(stage, [ahead]) == [values[ahead] if server == VALKEY else None]  # nobody can tell them apart
        stage.revive("0-0")
        stage.converge()
        assert got(stage, [dropped, kept]) == [None, values[kept]]


@pytest.mark.parametrize("opened", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("server", [VALKEY, REDIS_7], ids=NAMES[1:3])
def test_what_was_discarded_at_a_target_that_dies_is_not_at_its_heir(
    tmp_path: Path, server: tuple[str, int], opened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its replica hangs, and has what was left over still. The target dies before the source was told, or after."""
    with staged(tmp_path, server, dead_after_ms=SOON_MS) as stage:
        dropped, kept = keys_in(stage.look().nodes["0-0"].slots, 1, 2)
        values, slot = fill(stage, [kept]), slot_of(kept)
        plant(stage, "1-0", dropped, stage.look().nodes["0-0"].id)
        until(lambda: followed(stage.nodes["1-0"]), "the replica has it")
        target, replica, send = stage.nodes["1-0"].server, stage.nodes["1-1"].server, Wire.send
        discarded, killed = threading.Event(), threading.Event()

        def kill() -> None:
            killed.set()
            target.kill()
            replica.resume()

        def sent(wire: Wire, asked: Sequence[Command], seconds: float | None = None) -> None:
            if any(words[0] == "UNLINK" for words in asked) and not discarded.is_set():
                replica.pause()
                target.ask("CLIENT", "KILL", "TYPE", "slave")
                discarded.set()
            elif discarded.is_set() and not killed.is_set() and not opened and asked[0] == ("ROLE",):
                kill()
            send(wire, asked, seconds)
            if discarded.is_set() and not killed.is_set() and any(words[3:4] == ("MIGRATING",) for words in asked):
                kill()

        with monkeypatch.context() as patched, contextlib.suppress(ScaleError):
            patched.setattr(Wire, "send", sent)
            move(stage, [slot], key_by_key=True)
        assert killed.is_set()
        stage.until(lambda seen: seen.nodes.get("1-1") and not seen.nodes["1-1"].primary, "the replica took over")
        stage.revive("1-0")
        stage.converge()
        for name in ("1-0", "1-1"):
            if not (seen := stage.look()).nodes[name].primary and slot in seen.nodes["0-0"].slots:
                move(stage, [slot], True, "0-0", name)
        assert got(stage, [dropped, kept]) == [None, values[kept]]


@pytest.mark.parametrize("server", [VALKEY, REDIS_7], ids=NAMES[1:3])
def test_whoever_slept_discards_nothing_that_is_served(tmp_path: Path, server: tuple[str, int]) -> None:
    """It was about to clear a node that has been given the slot since, by another."""
    with staged(tmp_path, server, 0) as stage:
        keys = keys_in(stage.look().nodes["0-0"].slots, 1, 3)
        values, slot = fill(stage, keys), slot_of(keys[0])
        with Present(stage.look(), stage.access) as present:
            with pytest.raises(ScaleError, match="not being given"):
                discard([slot], present.contact("0-0"))
            with pytest.raises(ScaleError, match="already the owner"):
                clear([slot], "0-0", present.identity("1-0"), present)
        held(stage, values)
