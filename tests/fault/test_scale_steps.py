"""Every step of scaling is cut off all over, and done again: all keys are there, and nobody is confused.

A step is cut off after every few of its commands, with each server after other ones.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
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
from mmcache.scale.act import act
from mmcache.scale.epochs import read_epochs
from mmcache.scale.observed import Observed
from mmcache.scale.present import Present
from mmcache.scale.steps import Assign, Failover, Forget, Meet, MoveSlots, Replicate, Settle, Step
from mmcache.scale.talk import Command, Wire
from mmcache.tiers.valkey.client import Request

_MOST = 400
"""Commands of one step, here."""
WAYS = [(VALKEY, False), (VALKEY, True), (REDIS_7, True), (REDIS_6, True)]
NAMES = ["atomic", "valkey", "redis7", "redis6"]
EVERY = 5
"""Commands, from one cut to the next."""
SOON_MS = 4000
"""Where one dies, after so long the others say so."""


def move(stage: Stage, step: MoveSlots, key_by_key: bool, cancelled: Callable[[], bool] = lambda: False) -> None:
    """By the way that is to be tested."""
    with Present(stage.look(), stage.access) as present:
        resharding.move(step, present, cancelled, key_by_key=key_by_key)


def some(stage: Stage, count: int, each: int) -> tuple[dict[bytes, bytes], MoveSlots]:
    """Keys of shard 0, and the step that moves them to shard 1."""
    keys = keys_in(stage.look().nodes["0-0"].slots, count, each)
    return fill(stage, keys), MoveSlots(tuple(sorted({slot_of(key) for key in keys})), "0-0", "1-0")


@pytest.mark.slow
@pytest.mark.parametrize(("server", "key_by_key"), WAYS, ids=NAMES)
def test_a_move_that_is_cut_off_anywhere_goes_on(
    tmp_path: Path, server: tuple[str, int], key_by_key: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with staged(tmp_path, server, 0, password=PASSWORD) as stage:
        values, step = some(stage, 4, 3)
        for commands in range(WAYS.index((server, key_by_key)), _MOST, EVERY):
            whole = True
            with cut_after(commands, monkeypatch):
                try:
                    move(stage, step, key_by_key)
                except Cut:
                    whole = False
            stage.converge()
            held(stage, values)
            if whole:
                break
            for name in ("1-0", "2-0"):
                if there := sorted(set(step.slots) & stage.look().nodes[name].slots):
                    stage.do(MoveSlots(tuple(there), name, "0-0"))
        assert whole
        assert commands > 10


@pytest.mark.slow
def test_a_move_back_and_forth_never_takes_an_epoch_that_is_not_higher(tmp_path: Path) -> None:
    with staged(tmp_path, VALKEY, 0) as stage:
        values, step = some(stage, 3, 3)
        source, target = step.source, step.target
        for _ in range(4):
            move(stage, MoveSlots(step.slots, source, target), key_by_key=True)
            with Present(stage.look(), stage.access) as present:
                assert read_epochs(target, present).own > read_epochs(source, present).own
            source, target = target, source
        held(stage, values)


def test_slots_open_on_either_side_end_at_the_target_with_all_keys(tmp_path: Path) -> None:
    with staged(tmp_path, REDIS_7, 0, password=PASSWORD) as stage:
        values, step = some(stage, 6, 4)
        ids = {name: node.id for name, node in stage.look().nodes.items()}
        servers = {name: node.server for name, node in stage.nodes.items()}
        one, two, both, moved, done, deaf = step.slots
        for slot in (one, both, moved):
            servers["1-0"].ask("CLUSTER", "SETSLOT", slot, "IMPORTING", ids["0-0"])
        for slot in (two, both, moved):
            servers["0-0"].ask("CLUSTER", "SETSLOT", slot, "MIGRATING", ids["1-0"])
        keys = [key for key in values if slot_of(key) == moved]
        login = ("AUTH", PASSWORD)
        migrate = ("MIGRATE", "127.0.0.1", servers["1-0"].port, "", 0, 5000)
        servers["0-0"].ask(*migrate, *login, "KEYS", *keys[:2])
        servers["0-0"].ask(*migrate, "COPY", *login, "KEYS", keys[2])  # both have it: its end was not heard
        values[keys[2]] = b"newer"
        servers["0-0"].ask("SET", keys[2], b"newer")
        stage.do(Settle((one, two, both, moved), "0-0", "1-0"))
        stage.do(Settle((done, deaf), "0-0", "1-0"))  # not open at all: they go on, too
        seen = stage.until(settled, "all agree")
        assert seen.nodes["1-0"].slots >= set(step.slots)
        held(stage, values)


def test_a_slot_that_is_to_stay_gets_back_what_went_ahead(tmp_path: Path) -> None:
    with staged(tmp_path, REDIS_7, 0) as stage:
        values, step = some(stage, 2, 4)
        ids = {name: node.id for name, node in stage.look().nodes.items()}
        servers = {name: node.server for name, node in stage.nodes.items()}
        ahead, stale = step.slots
        for slot in step.slots:
            servers["1-0"].ask("CLUSTER", "SETSLOT", slot, "IMPORTING", ids["0-0"])
        servers["0-0"].ask("CLUSTER", "SETSLOT", ahead, "MIGRATING", ids["1-0"])
        keys = [key for key in values if slot_of(key) == ahead]
        servers["0-0"].ask("MIGRATE", "127.0.0.1", servers["1-0"].port, "", 0, 5000, "KEYS", *keys[:2])
        stage.do(Settle((ahead, stale), "1-0", "0-0"))
        seen = stage.until(settled, "all agree")
        assert seen.nodes["0-0"].slots >= set(step.slots)
        held(stage, values)


def test_a_slot_whose_source_is_gone_is_the_targets(tmp_path: Path) -> None:
    with staged(tmp_path, VALKEY, 0) as stage:
        values, step = some(stage, 1, 2)
        stage.nodes["1-0"].server.ask("CLUSTER", "SETSLOT", step.slots[0], "IMPORTING", stage.look().nodes["0-0"].id)
        with pytest.raises(ScaleError, match="is served by 0-0"):
            stage.do(Settle(step.slots, None, "1-0"))
        held(stage, values)
        stage.nodes["0-0"].server.kill()
        seen = stage.until(lambda seen: "0-0" not in seen.nodes, "it is gone")
        act(Settle(step.slots, None, "1-0"), seen, stage, stage.access)
        assert stage.look().nodes["1-0"].slots >= set(step.slots)
        assert not stage.look().nodes["1-0"].importing


def membership(stage: Stage) -> list[tuple[Callable[[Observed], Step], Callable[[Observed], object]]]:
    """Steps in an order in which each can be done, and when each is done. A fourth shard joins, a replica moves."""

    def know(one: str, other: str) -> Callable[[Observed], bool]:
        def met(seen: Observed) -> bool:
            pair = [seen.nodes[one], seen.nodes[other]]
            return all(b.id in a.others and not a.others[b.id].flags & {"handshake"} for a in pair for b in pair)

        return met

    return [
        (lambda seen: Meet("3-0", "0-0"), know("3-0", "0-0")),
        (lambda seen: Meet("3-1", "3-0"), know("3-1", "0-1")),
        (lambda seen: Replicate("3-1", "3-0"), lambda seen: seen.nodes["3-1"].primary == seen.nodes["3-0"].id),
        (lambda seen: Replicate("3-1", "1-0"), lambda seen: seen.nodes["3-1"].primary == seen.nodes["1-0"].id),
        (lambda seen: MoveSlots((0, 1, 2, 700), "0-0", "3-0"), lambda seen: 700 in seen.nodes["3-0"].slots),
        (lambda seen: Failover("0-1"), lambda seen: not seen.nodes["0-1"].primary and seen.nodes["0-1"].slots),
        (lambda seen: Failover("0-0", taken=True), lambda seen: not seen.nodes["0-0"].primary),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("server", [VALKEY, REDIS_7, REDIS_6], ids=NAMES[1:])
def test_steps_of_membership_are_cut_off_and_done_again(
    tmp_path: Path, server: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with staged(tmp_path, server, password=PASSWORD) as stage:
        stage.start_shard(3, 2)
        for make, done in membership(stage):
            for commands in range([VALKEY, REDIS_7, REDIS_6].index(server), _MOST, EVERY):
                stage.until(lambda seen: not seen.silent, "all answer")
                try:
                    with cut_after(commands, monkeypatch):
                        stage.do(make(stage.look()))
                except Cut:
                    continue
                except ScaleError:  # it has half happened, and the rest is on its way
                    stage.until(lambda seen: not any(
                        "handshake" in o.flags for node in seen.nodes.values() for o in node.others.values()
                    ), "no handshake is under way")  # fmt: skip
                    continue
                break
            stage.until(done, f"{make(stage.look())} is done")
            stage.do(make(stage.look()))  # once more does no harm
        stage.until(settled, "all agree")


@pytest.mark.slow
def test_slots_of_the_dead_are_given_anew_and_the_dead_forgotten(tmp_path: Path) -> None:
    with staged(tmp_path, REDIS_7, 0, dead_after_ms=SOON_MS) as stage:
        before = stage.look()
        with pytest.raises(ScaleError, match="served by"):
            stage.do(Assign("1-0", (0, 1)))
        with pytest.raises(ScaleError, match="must not be forgotten"):
            stage.do(Forget(before.nodes["0-0"].id))
        stage.nodes["0-0"].server.kill()
        dead = before.nodes["0-0"]
        seen = stage.until(lambda seen: "fail" in seen.nodes["1-0"].others[dead.id].flags, "it is taken for dead")
        for _ in range(2):
            act(Assign("1-0", tuple(range(3000))), seen, stage, stage.access)
        act(Forget(dead.id), seen, stage, stage.access)
        act(Assign("2-0", tuple(sorted(dead.slots - set(range(3000))))), stage.look(), stage, stage.access)
        act(Forget(dead.id), stage.look(), stage, stage.access)
        seen = stage.until(settled, "all agree")
        assert len(seen.nodes["1-0"].slots | seen.nodes["2-0"].slots) == 16384
        assert not any(dead.id in node.others for node in seen.nodes.values())
        epochs = [node.epoch for node in seen.nodes.values()]
        assert len(set(epochs)) == len(epochs)


@pytest.mark.slow
def test_a_node_that_was_replaced_since_the_look_is_not_touched(tmp_path: Path) -> None:
    with staged(tmp_path, VALKEY, 0) as stage:
        seen = stage.look()
        stage.revive("1-0")
        with pytest.raises(ScaleError, match="another node than when it was looked at"):
            act(MoveSlots((0, 1), "0-0", "1-0"), seen, stage, stage.access)


@pytest.mark.slow
def test_what_is_cancelled_leaves_no_slot_open(tmp_path: Path) -> None:
    with staged(tmp_path, VALKEY, 0) as stage:
        values, _ = some(stage, 20, 2)
        asked = iter([False, False])
        move(stage, MoveSlots(tuple(range(3000)), "0-0", "1-0"), True, lambda: next(asked, True))
        seen = stage.until(settled, "all agree")
        assert 5461 < len(seen.nodes["1-0"].slots) < 5461 + 3000
        held(stage, values)


def test_a_migration_of_the_server_is_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The target hangs when it begins, so that it cannot end."""
    with staged(tmp_path, VALKEY, 0) as stage:
        values, step = some(stage, 20, 2)
        target, begun, send = stage.nodes["1-0"].server, threading.Event(), Wire.send

        def sent(wire: Wire, asked: Sequence[Command], seconds: float | None = None) -> None:
            if any(command[:2] == ("CLUSTER", "MIGRATESLOTS") for command in asked):
                target.pause()
                begun.set()
            send(wire, asked, seconds)

        try:
            with monkeypatch.context() as patched:
                patched.setattr(Wire, "send", sent)
                move(stage, step, False, begun.is_set)
        finally:
            target.resume()
        assert begun.is_set()
        seen = stage.until(lambda seen: not seen.silent and settled(seen), "all agree")
        assert seen.nodes["0-0"].slots >= set(step.slots)
        held(stage, values)


@pytest.mark.slow
@pytest.mark.parametrize(("server", "key_by_key"), [WAYS[0], WAYS[2]], ids=[NAMES[0], NAMES[2]])
@pytest.mark.parametrize("victim", ["0-0", "1-0"], ids=["source", "target"])
def test_a_side_dies_in_the_middle_and_its_replica_takes_over(
    tmp_path: Path, server: tuple[str, int], key_by_key: bool, victim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with staged(tmp_path, server, password=PASSWORD, dead_after_ms=SOON_MS) as stage:
        values, step = some(stage, 6, 3)

        def kill() -> None:
            """What its replica had not heard of would be lost: the servers acknowledge before they have told it."""
            until(lambda: followed(stage.nodes[victim]), "the replica has all")
            stage.nodes[victim].server.kill()

        middle = 12 if not key_by_key else 86  # 12: the migration has just been asked for
        seen = stage.look()
        with (
            Present(seen, stage.access) as present,
            cut_after(middle, monkeypatch, kill),
            pytest.raises((Cut, ScaleError)),
        ):
            resharding.move(step, present, lambda: False, key_by_key=key_by_key)
        stage.until(lambda seen: seen.nodes.get(f"{victim[0]}-1") and not seen.nodes[f"{victim[0]}-1"].primary,
                    "the replica took over")  # fmt: skip
        stage.revive(victim)
        stage.converge()
        if key_by_key:
            # Redis does not tell a replica which slots are open: when who acts dies together with its target, nobody
            # knows what went ahead; when the source dies, nobody knows what of that was dropped. It is lost for good.
            with client(stage) as to:
                got = to.ask([Request(key, ("GET", key)) for key in values])
            assert all(found in (None, value) for found, value in zip(got, values.values(), strict=True))
            kept = {key for key, found in zip(values, got, strict=True) if found is not None}
            seen = stage.look()
            assert sum(node.keys for node in seen.nodes.values() if not node.primary) == len(kept)  # and nowhere else
        else:
            held(stage, values)


@pytest.mark.slow
def test_a_target_that_hangs_is_an_error_and_nothing_is_lost(tmp_path: Path) -> None:
    with staged(tmp_path, REDIS_7, 0, password=PASSWORD) as stage:
        values, step = some(stage, 3, 3)
        paused = threading.Event()
        target = stage.nodes["1-0"].server
        stage.access = type(stage.access)(PASSWORD, timeout_seconds=3.0)

        def pause() -> bool:
            target.pause()
            paused.set()
            return False

        with pytest.raises(ScaleError):
            move(stage, step, True, pause)
        assert paused.is_set()
        target.resume()
        stage.access = type(stage.access)(PASSWORD, timeout_seconds=10.0)
        stage.converge()
        held(stage, values)


_CHILD = """
import os, signal, sys
sys.path.insert(0, {root!r})
import pytest
from mmcache.scale import resharding
from mmcache.scale.access import Access
from mmcache.scale.observe import look
from mmcache.scale.observed import Member
from mmcache.scale.present import Present
from mmcache.scale.steps import MoveSlots
from tests.scale_stage import cut_after
class Given:
    def members(self): return [Member(shard, 0, "127.0.0.1", port) for shard, port in enumerate({ports})]
access = Access(os.environ["SECRET"])
with cut_after({commands}, pytest.MonkeyPatch(), kill=lambda: os.kill(os.getpid(), signal.SIGKILL)):
    with Present(look(Given(), access, 0.0), access) as present:
        resharding.move(MoveSlots({slots}, "0-0", "1-0"), present, lambda: False, key_by_key={key_by_key})
"""


@pytest.mark.slow
@pytest.mark.parametrize(("server", "key_by_key"), [WAYS[0], WAYS[2]], ids=[NAMES[0], NAMES[2]])
def test_the_process_that_acts_is_killed(tmp_path: Path, server: tuple[str, int], key_by_key: bool) -> None:
    root = Path(__file__).parents[2]
    with staged(tmp_path, server, 0, password=PASSWORD) as stage:
        values, step = some(stage, 4, 3)
        ports = [stage.nodes[f"{shard}-0"].server.port for shard in range(3)]
        for commands in (25, 70):
            code = _CHILD.format(
                root=str(root), ports=ports, slots=step.slots, key_by_key=key_by_key, commands=commands
            )  # fmt: skip
            ended = subprocess.run(
                [sys.executable, "-c", code], env={**os.environ, "SECRET": PASSWORD}, capture_output=True, check=False
            )
            assert ended.returncode in (-signal.SIGKILL, 0), ended.stderr.decode()
            stage.converge()
            held(stage, values)
            for name in ("1-0", "2-0"):
                if there := sorted(set(step.slots) & stage.look().nodes[name].slots):
                    stage.do(MoveSlots(tuple(there), name, "0-0"))
