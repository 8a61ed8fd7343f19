"""What real servers count as requests: all that clients do, and nothing that replicas and resharding do."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.scale_stage import REDIS_6, REDIS_7, VALKEY, Stage, fill, keys_in, staged

from mmcache.lab.load.blocks import Blocks
from mmcache.lab.servers import slot_of
from mmcache.scale.load import Readings
from mmcache.scale.observed import Observed
from mmcache.scale.present import Present
from mmcache.scale.resharding import move
from mmcache.scale.steps import MoveSlots
from mmcache.settings import SharedSettings
from mmcache.tiers.valkey.tier import ValkeyTier

SMALL, STAGED, IN_PIECES = 1000, 50_000, 1_500_000
MOST_MORE = 100
"""Lookups that are nobody's block: of the clock, and of scripts that a server did not know."""


def counted(before: Observed, after: Observed, moved: set[tuple[str, str]] | None = None) -> float:
    """As if a second had passed."""
    readings = Readings()
    assert readings.take(before.nodes, 0.0, 60.0) is None
    rate = readings.take(after.nodes, 1.0, 60.0, moved or set())
    assert rate is not None
    return rate.requests


def replicated(stage: Stage) -> Observed:
    """Every replica has as many keys as its primary."""
    return stage.until(
        lambda seen: all(
            other.keys == node.keys
            for node in seen.nodes.values() for other in seen.nodes.values() if other.primary == node.id
        ),
        "replicated",
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("server", [VALKEY, REDIS_7, REDIS_6], ids=["valkey", "redis7", "redis6"])
def test_puts_and_gets_are_seen_and_moves_are_not(tmp_path: Path, server: tuple[str, int]) -> None:
    with staged(tmp_path, server) as stage:
        url = f"valkey://127.0.0.1:{stage.nodes['0-0'].port}?cluster=true"
        tier = ValkeyTier(SharedSettings(url, timeout_seconds=20.0), heartbeat=False)
        try:
            for size, blocks, least in ((SMALL, 300, 2), (STAGED, 300, 3), (IN_PIECES, 40, 4)):
                made = Blocks({size: 1.0}, size)
                frames = [made.frame(number, 0) for number in range(blocks)]
                before = stage.look()
                assert set(tier.put(frames, [None] * blocks)) == {None}
                after = replicated(stage)
                assert least * blocks <= counted(before, after)
                if size != IN_PIECES:
                    assert counted(before, after) <= least * blocks + MOST_MORE
                assert all(tier.get([frame.key for frame in frames]))
                assert counted(after, stage.look()) >= blocks
        finally:
            tier.close()
        keys = keys_in(stage.look().nodes["0-0"].slots, 60, 5)
        before = stage.look()
        fill(stage, keys)
        assert counted(before, replicated(stage)) < MOST_MORE  # as is said of NodeSeen.requests
        for key_by_key in (False, True):
            # A MIGRATE that was not answered in time is looked into, which counts: not every time.
            found = [moved(stage, keys, key_by_key, server == VALKEY and not key_by_key) for _ in range(3)]
            assert min(found) == 0, found


def moved(stage: Stage, keys: list[bytes], key_by_key: bool, own: bool) -> float:
    """What counts while ten slots of five keys each go. own: by the server's own migration."""
    before = stage.look()
    ends = before.nodes["0-0"], before.nodes["1-0"]
    here = sorted({slot_of(key) for key in keys} & ends[0].slots)[:10]
    with Present(before, stage.access) as present:
        move(MoveSlots(tuple(here), "0-0", "1-0"), present, lambda: False, key_by_key=key_by_key)
    after = replicated(stage)
    assert after.nodes["0-0"].keys <= ends[0].keys - 50
    return counted(before, after, set() if own else {(ends[0].id, ends[1].id)})
