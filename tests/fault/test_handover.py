"""A rolling upgrade with the node timeout that clusters on Kubernetes have by default, on real servers, under load.

Nodes tell each other what they are within half of that timeout; what is done sooner meets nodes that do not know yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.patience import PATIENCE
from tests.scale_stage import REDIS_6, REDIS_7, VALKEY, Stage, Users, keys_in, staged

from mmcache.model.errors import ScaleError
from mmcache.operator.crd import NODE_TIMEOUT_SECONDS
from mmcache.scale.act import act
from mmcache.scale.observed import SLOTS, Member
from mmcache.scale.plan import plan
from mmcache.scale.status import Phase
from mmcache.scale.steps import Failover

pytestmark = pytest.mark.slow


class Upgraded:
    """A stage all of whose members are to be replaced, and what was done for it."""

    def __init__(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stage, self.old = stage, set(stage.nodes)
        self.done: list[Failover] = []
        self.failed: list[str] = []
        members: Callable[[], list[Member]] = stage.members  # type: ignore[assignment]
        monkeypatch.setattr(stage, "members", lambda: [replace(m, current=m.name not in self.old) for m in members()])
        monkeypatch.setattr(stage, "replace", self._replace)

    def _replace(self, member: Member) -> None:
        self.stage.revive(member.name)
        self.old.discard(member.name)

    def run(self) -> None:
        """To its end."""
        end = time.monotonic() + 2 * PATIENCE
        while True:
            seen = self.stage.look()
            planned = plan(self.stage.spec, 3, seen)
            if planned.step is None and planned.phase is Phase.STEADY and not self.old:
                return
            assert time.monotonic() < end, (planned, self.failed)
            if planned.step is None:
                time.sleep(0.05)
                continue
            try:
                act(planned.step, seen, self.stage, self.stage.access)
            except ScaleError as error:
                self.failed += [str(error)] if isinstance(planned.step, Failover) else []
            else:
                self.done += [planned.step] if isinstance(planned.step, Failover) else []


@pytest.mark.parametrize("server", [VALKEY, REDIS_7, REDIS_6], ids=lambda server: f"{server[0]}-{server[1]}")
def test_every_primary_hands_over_at_the_first_try_and_no_block_is_lost(
    tmp_path: Path, server: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with staged(tmp_path, server, dead_after_ms=1000 * NODE_TIMEOUT_SECONDS) as stage:
        upgraded = Upgraded(stage, monkeypatch)
        with Users(stage, keys_in(frozenset(range(SLOTS)), 60, 5)) as users:
            upgraded.run()
        users.refused.clear()  # by old primaries, which are ended as soon as they are replicas
        users.check()
        assert len(upgraded.done) == 3
        assert not any(step.taken for step in upgraded.done)
        # A machine that stands still for seconds may cost one; before the replicas waited to be known it was each.
        assert len(upgraded.failed) <= 1, upgraded.failed
        assert users.done > 100
