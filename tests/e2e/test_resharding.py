"""Slots move from node to node while clients use them: no key is lost, none comes back, none is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from mmcache.lab.servers import slot_of
from mmcache.scale import resharding
from mmcache.scale.present import Present
from mmcache.scale.steps import MoveSlots
from tests.scale_stage import PASSWORD, REDIS_6, REDIS_7, VALKEY, Stage, Users, keys_in, settled, staged


def move(stage: Stage, slots: list[int], source: str, target: str, key_by_key: bool = False) -> None:
    with Present(stage.look(), stage.access) as present:
        resharding.move(MoveSlots(tuple(slots), source, target), present, lambda: False, key_by_key=key_by_key)


@pytest.mark.parametrize("server", [VALKEY, REDIS_7, REDIS_6], ids=lambda server: f"{server[0]}{server[1]}")
def test_clients_notice_nothing(tmp_path: Path, server: tuple[str, int]) -> None:
    with staged(tmp_path, server, password=PASSWORD) as stage:
        keys = keys_in(stage.look().nodes["0-0"].slots, 150, 2)
        slots = sorted({slot_of(key) for key in keys})
        with Users(stage, keys) as users:
            for source, target in (("0-0", "1-0"), ("1-0", "2-0"), ("2-0", "0-0")):
                move(stage, slots, source, target)
        users.check()
        assert users.done > 100
        stage.until(settled, "all agree")
