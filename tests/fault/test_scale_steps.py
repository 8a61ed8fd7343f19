"""Every step of scaling is cut off after every command, and done again: all keys are there, and nobody is confused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mmcache.lab.servers import slot_of
from mmcache.model.errors import ScaleError
from mmcache.scale import resharding
from mmcache.scale.observed import Observed
from mmcache.scale.present import Present
from mmcache.scale.steps import Assign, Failover, Forget, Meet, MoveSlots, Replicate, Settle, Step
from tests.scale_stage import (
    PASSWORD,
    REDIS_6,
    REDIS_7,
    VALKEY,
    Cut,
    Stage,
    cut_after,
    fill,
    held,
    keys_in,
    settled,
    staged,
)

_MOST = 400
"""Commands of one step, here."""
SERVERS = pytest.mark.parametrize("server", [VALKEY, REDIS_7, REDIS_6], ids=lambda server: f"{server[0]}{server[1]}")


def cuts(
    stage: Stage, move: MoveSlots, monkeypatch: pytest.MonkeyPatch, stride: int, key_by_key: bool
) -> Iterator[int]:
    """The move is cut off after 0, `stride`, … commands, until it gets to its end."""
    for commands in range(0, _MOST, stride):
        seen = stage.look()
        whole = True
        with cut_after(commands, monkeypatch), Present(seen, stage.access) as present:
            try:
                resharding.move(move, present, lambda: False, key_by_key=key_by_key)
            except Cut:
                whole = False
        yield commands
        if whole:
            return
    raise AssertionError(f"not done after {_MOST} commands")


@pytest.mark.slow
@pytest.mark.parametrize(("server", "key_by_key"), [(VALKEY, False), (VALKEY, True), (REDIS_7, True), (REDIS_6, True)],
                         ids=["atomic", "valkey", "redis7", "redis6"])  # fmt: skip
def test_a_move_that_is_cut_off_anywhere_goes_on(
    tmp_path: Path, server: tuple[str, int], key_by_key: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with staged(tmp_path, server, 0, password=PASSWORD) as stage:
        keys = keys_in(stage.look().nodes["0-0"].slots, 4, 3)
        values = fill(stage, keys)
        move = MoveSlots(tuple(sorted({slot_of(key) for key in keys})), "0-0", "1-0")
        count = 0
        for _ in cuts(stage, move, monkeypatch, 3, key_by_key):
            stage.converge()
            held(stage, values)
            seen = stage.look()
            back = [slot for slot in move.slots if slot not in seen.nodes["0-0"].slots]
            for name in ("1-0", "2-0"):
                if there := [slot for slot in back if slot in seen.nodes[name].slots]:
                    stage.do(MoveSlots(tuple(there), name, "0-0"))
            count += 1
        assert count > 3
        held(stage, values)
