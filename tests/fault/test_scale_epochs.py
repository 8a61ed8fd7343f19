"""Nodes claim their slots with one epoch, and raise it at any time: what moves meanwhile stays where it went."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.patience import until
from tests.scale_stage import REDIS_7, VALKEY, Stage, chosen, fill, held, keys_in, settled, staged

from mmcache.lab import servers
from mmcache.lab.servers import Node, slot_of
from mmcache.model.errors import ScaleError
from mmcache.scale import resharding
from mmcache.scale.access import Access
from mmcache.scale.observed import Observed
from mmcache.scale.present import Present
from mmcache.scale.spec import ClusterSpec
from mmcache.scale.steps import MoveSlots
from mmcache.scale.talk import Wire
from mmcache.scale.views import fields

pytestmark = pytest.mark.slow


def collide(stage: Stage) -> None:
    """All have heard of the same epoch, and each takes the next before it hears of the others: two have the same."""
    with ExitStack() as opened:
        nodes = [stage.nodes[f"{shard}-0"].server for shard in range(3)]
        wires = [opened.enter_context(Wire(node.host, node.port)) for node in nodes]

        def collided() -> bool:
            told = [fields(wire.call([("CLUSTER", "INFO")])[0], "CLUSTER INFO") for wire in wires]
            if len({each["cluster_current_epoch"] for each in told}) > 1:
                return False
            for wire in wires:
                wire.send([("CLUSTER", "BUMPEPOCH")])
            answers = [str(wire.receive(1)[0]) for wire in wires]
            taken = [answer for answer in answers if answer.startswith("BUMPED")]
            return len(set(taken)) < len(taken)

        until(collided, "two take the same epoch")


def distinct(seen: Observed) -> bool:
    """No two primaries claim with the same epoch."""
    epochs = [node.epoch for node in seen.nodes.values() if not node.primary]
    return len(set(epochs)) == len(epochs)


@pytest.mark.parametrize(
    ("server", "key_by_key"), [(VALKEY, False), (VALKEY, True), (REDIS_7, True)], ids=["atomic", "valkey", "redis7"]
)
def test_slots_that_move_while_epochs_collide_stay_where_they_went(
    tmp_path: Path, server: tuple[str, int], key_by_key: bool
) -> None:
    with staged(tmp_path, server, 0) as stage:
        values = fill(stage, keys_in(stage.look().nodes["0-0"].slots, 4, 2))
        slots = tuple(sorted({slot_of(key) for key in values}))
        for turn in range(6):
            source, target = f"{turn % 3}-0", f"{(turn + 1) % 3}-0"
            seen = stage.look()
            collide(stage)
            with Present(seen, stage.access) as present:
                resharding.move(MoveSlots(slots, source, target), present, lambda: False, key_by_key=key_by_key)
            held(stage, values)
        # Of two that have the same the smaller id takes the next: it may have a higher one than who got its slots.
        seen = stage.until(lambda seen: settled(seen) and distinct(seen), "all agree")
        assert seen.nodes["0-0"].slots >= set(slots)
        held(stage, values)


@contextmanager
def deaf(node: Node) -> Iterator[None]:
    """It hears nothing that other nodes say."""
    assert node.server.ask("DEBUG", "DROP-CLUSTER-PACKET-FILTER", "-2") == "OK"
    try:
        yield
    finally:
        node.server.ask("DEBUG", "DROP-CLUSTER-PACKET-FILTER", "-1")


def asked(node: Node) -> int:
    """How many times it was asked for its epochs."""
    lines = node.server.ask("INFO", "commandstats").decode().splitlines()
    return sum(int(line.split("calls=")[1].split(",")[0]) for line in lines if line.startswith("cmdstat_cluster|info:"))


@pytest.mark.parametrize("key_by_key", [False, True], ids=["atomic", "key by key"])
def test_a_slot_is_given_only_to_who_has_heard_of_its_owners_epoch(tmp_path: Path, key_by_key: bool) -> None:
    """Else a late packet of the former owner, who is believed, takes it back with all its keys."""
    debug = ("--enable-debug-command", "local")
    with servers.cluster(tmp_path, 3, 0, *debug, binary=chosen(*VALKEY), node_timeout_ms=60_000) as made:
        names = {f"{number}-0": node for number, node in enumerate(made.nodes)}
        stage = Stage(made, Access(timeout_seconds=10.0), ClusterSpec(3, 5, 0), names)
        values = fill(stage, keys_in(stage.look().nodes["0-0"].slots, 4, 2))
        slots = frozenset(map(slot_of, values))
        step, seen, failed = MoveSlots(tuple(sorted(slots)), "0-0", "1-0"), stage.look(), list[ScaleError]()

        def run() -> None:
            try:
                with Present(seen, stage.access) as present:
                    resharding.move(step, present, lambda: False, key_by_key=key_by_key)
            except ScaleError as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        with deaf(names["1-0"]):
            assert names["0-0"].server.ask("CLUSTER", "BUMPEPOCH").startswith("BUMPED")
            before = asked(names["1-0"])
            thread.start()
            until(lambda: asked(names["1-0"]) > before + 3 or not thread.is_alive(), "it is waited for")
            node = stage.look().nodes["0-0"]
            assert node.slots >= slots
            assert not node.migrating
            assert not node.moving
        thread.join()
        assert not failed
        seen = stage.until(settled, "all agree")
        assert seen.nodes["1-0"].slots >= slots
        assert seen.nodes["1-0"].epoch > seen.nodes["0-0"].epoch
        held(stage, values)
