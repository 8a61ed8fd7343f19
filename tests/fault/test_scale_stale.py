"""What was dropped does not come back: not by a replica that did not hear of it, not by what is left over."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.patience import until
from tests.scale_stage import PASSWORD, REDIS_6, REDIS_7, VALKEY, Stage, client, fill, keys_in, staged

from mmcache.lab.servers import slot_of
from mmcache.operator.scripts import AGAIN_SECONDS
from mmcache.scale.act import act
from mmcache.scale.picture import MISSED_SECONDS
from mmcache.scale.plan import plan
from mmcache.scale.steps import Assign, Failover
from mmcache.scale.talk import Wire
from mmcache.scale.views import fields
from mmcache.tiers.valkey.client import Request

pytestmark = pytest.mark.slow
SERVERS = pytest.mark.parametrize("server", [VALKEY, REDIS_7, REDIS_6], ids=["valkey", "redis7", "redis6"])
COUNT, DROPPED = 60, 20


def deafen(stage: Stage, replica: str, primary: str) -> None:
    """It hears its primary's changes no more, though the two see each other as well as before."""
    assert stage.nodes[replica].server.ask("CONFIG", "SET", "masterauth", "another one") == "OK"
    stage.nodes[primary].server.ask("CLIENT", "KILL", "TYPE", "slave")
    stage.until(lambda seen: not seen.nodes[replica].in_sync, "its link is down")


def drop(stage: Stage, keys: list[bytes]) -> None:
    with client(stage) as to:
        assert to.ask([Request(key, ("UNLINK", key)) for key in keys]) == [1] * len(keys)


def there(stage: Stage, keys: list[bytes]) -> int:
    """How many, once all are answered for."""
    told: list[object] = []

    def answered() -> bool:
        with client(stage) as to:
            told[:] = to.ask([Request(key, ("GET", key)) for key in keys])
        return all(found is None or isinstance(found, bytes) for found in told)

    until(answered, "all slots are served")
    return len(told) - told.count(None)


def end(stage: Stage, *names: str) -> None:
    """For good, and their members with them."""
    for name in names:
        stage.nodes.pop(name).server.kill()


@SERVERS
def test_of_two_replicas_the_one_that_heard_all_takes_over(tmp_path: Path, server: tuple[str, int]) -> None:
    with staged(tmp_path, server, 2, password=PASSWORD, dead_after_ms=2000) as stage:
        keys = keys_in(stage.look().nodes["1-0"].slots, COUNT)
        fill(stage, keys)
        stage.until(lambda seen: seen.nodes["1-1"].keys == seen.nodes["1-2"].keys == COUNT, "both have them")
        deafen(stage, "1-1", "1-0")
        stage.until(lambda seen: seen.nodes["1-2"].in_sync, "the other is linked again")
        drop(stage, keys[:DROPPED])
        stage.until(lambda seen: seen.nodes["1-2"].keys == COUNT - DROPPED, "one has heard of it")
        assert stage.look().nodes["1-1"].keys == COUNT
        end(stage, "1-0", "2-0")
        stage.until(lambda seen: isinstance(plan(stage.spec, 3, seen).step, Failover), "one is appointed")
        while isinstance(step := plan(stage.spec, 3, seen := stage.look()).step, Failover):
            assert step.replica != "1-1"
            act(step, seen, stage, stage.access)
        until(lambda: there(stage, keys) == COUNT - DROPPED, "the rest is served")
        assert there(stage, keys[:DROPPED]) == 0


@SERVERS
def test_a_replica_that_is_the_last_and_missed_it_is_no_heir(tmp_path: Path, server: tuple[str, int]) -> None:
    """Its primary is gone, so its blocks are lost: that is the lesser evil."""
    with staged(tmp_path, server, 1, password=PASSWORD, dead_after_ms=2000) as stage:
        keys = keys_in(stage.look().nodes["1-0"].slots, COUNT)
        fill(stage, keys)
        stage.until(lambda seen: seen.nodes["1-1"].keys == COUNT, "it has them")
        deafen(stage, "1-1", "1-0")
        drop(stage, keys[:DROPPED])
        late = MISSED_SECONDS + 4
        stage.until(lambda seen: seen.nodes["1-1"].unlinked_seconds > late, "it has missed more than a moment")
        end(stage, "1-0", "2-0")
        given = False
        while not given:
            decided = plan(stage.spec, 3, seen := stage.look())
            if decided.step is not None:
                assert decided.step != Failover("1-1", taken=True)
                given = isinstance(decided.step, Assign)
                act(decided.step, seen, stage, stage.access)
        stage.nodes["1-1"].server.ask("CONFIG", "SET", "masterauth", PASSWORD)
        stage.converge()
        assert there(stage, keys) == 0


@SERVERS
def test_what_is_left_over_does_not_come_back_with_its_slot(tmp_path: Path, server: tuple[str, int]) -> None:
    with staged(tmp_path, server, 0) as stage:
        seen = stage.look()
        keys = keys_in(seen.nodes["1-0"].slots, 5, 3)
        for name in ("0-0", "2-0"):  # as from a move that ended otherwise
            server_ = stage.nodes[name].server
            with Wire(server_.host, server_.port) as wire:
                for key in keys:
                    slot = slot_of(key)
                    opened = wire.call(
                        [("CLUSTER", "SETSLOT", slot, "IMPORTING", seen.nodes["1-0"].id), ("ASKING",),
                         ("SET", key, b"old"), ("CLUSTER", "SETSLOT", slot, "STABLE")]
                    )  # fmt: skip
                    assert opened == ["OK"] * 4
        assert there(stage, keys) == 0
        end(stage, "1-0")
        stage.until(lambda seen: isinstance(plan(stage.spec, 3, seen).step, Assign), "its slots are given away")
        while isinstance(step := plan(stage.spec, 3, seen := stage.look()).step, Assign):
            act(step, seen, stage, stage.access)
        assert there(stage, keys) == 0


@SERVERS
def test_who_finds_an_empty_newcomer_where_its_primary_was_keeps_its_blocks(
    tmp_path: Path, server: tuple[str, int]
) -> None:
    """Half of the primaries end, and come back at their addresses, as containers do: nobody could be elected before."""
    with staged(tmp_path, server, 1, dead_after_ms=2000) as stage:
        keys = keys_in(stage.look().nodes["1-0"].slots, COUNT)
        fill(stage, keys)
        stage.until(lambda seen: seen.nodes["1-1"].keys == COUNT, "it has them")
        for name in ("1-0", "2-0"):
            stage.nodes[name].server.kill()
        for name in ("1-0", "2-0"):
            one = stage.nodes[name].server
            delayed = ("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", str(AGAIN_SECONDS))
            one.options = (*one.options, *delayed)
            stage.revive(name)
        newcomer = stage.nodes["1-0"].server
        until(lambda: b"slave0" in newcomer.ask("INFO", "replication"), "its replica has found it")
        until(lambda: int(fields(newcomer.ask("INFO"), "INFO")["uptime_in_seconds"]) > 3, "it would have filled it")
        assert stage.look().nodes["1-1"].keys == COUNT
        stage.converge()
        assert there(stage, keys) == COUNT
