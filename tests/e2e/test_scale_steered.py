"""Real servers, steered by `plan`, `look` and `act`, while the controller dies again and again.

Every second step is cut off after a few words to a node. The cluster grows, loses a primary, shrinks, gets another
version; no key is lost.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mmcache.lab.servers import slot_of
from mmcache.lab.servers.process import free_row
from mmcache.model.errors import AssetError, ScaleError
from mmcache.scale.access import Access, Contact
from mmcache.scale.act import act
from mmcache.scale.binaries import choose
from mmcache.scale.local.platform import LocalPlatform
from mmcache.scale.observe import look
from mmcache.scale.observed import Observed
from mmcache.scale.plan import plan
from mmcache.scale.spec import ClusterSpec
from mmcache.scale.status import Phase
from mmcache.scale.steps import Settle
from mmcache.scale.talk import Command, ask, talk

PATIENCE = 180.0
"""Seconds for each thing that is wanted, on a machine that is busy."""
KEYS = 400
DEAD_AFTER_MS = 5000
"""Longer than a busy machine stands still: nobody else than the one that is killed is to be replaced."""


class Cut(Exception):
    """The controller dies here."""


class Steered:
    """A controller that is killed again and again."""

    def __init__(self, platform: LocalPlatform, spec: ClusterSpec, monkeypatch: pytest.MonkeyPatch) -> None:
        self.platform, self.spec = platform, spec
        self.access = Access(platform.files.password, timeout_seconds=5.0)
        self.first_port = free_row(30)
        self.draw = random.Random(9)
        self.left: int | None = None
        self.cuts = self.settled = 0
        say = Contact.begin

        def begin(contact: Contact, commands: list[Command], seconds: float | None = None) -> None:
            if self.left is not None:
                self.left -= 1
                if self.left == 0:
                    if self.draw.random() < 0.5:
                        say(contact, commands, seconds)  # it is done, and nobody hears of it
                    raise Cut
            say(contact, commands, seconds)

        monkeypatch.setattr(Contact, "begin", begin)

    def turn(self, wanted: int) -> tuple[bool, Observed]:
        """Whether nothing is left to do, as far as was seen."""
        self.platform.tend()
        seen = look(self.platform, self.access, time.monotonic())
        decided = plan(self.spec, wanted, seen)
        if decided.step is not None:
            self.settled += isinstance(decided.step, Settle)
            self.left = self.draw.randrange(2, 14) if self.draw.random() < 0.5 else None
            try:
                act(decided.step, seen, self.platform, self.access)
            except Cut:
                self.cuts += 1
            except ScaleError:
                pass  # looked at again in the next turn
            self.left = None
        return decided.step is None and decided.phase is Phase.STEADY, seen

    def until(self, wanted: int, met: Callable[[Observed], bool] = lambda _: True) -> Observed:
        """Until it is as wanted, and nothing is left to do five times in a row."""
        end, calm = time.monotonic() + PATIENCE, 0
        while True:
            done, seen = self.turn(wanted)
            calm = calm + 1 if done and met(seen) else 0
            if calm == 5:
                return seen
            assert time.monotonic() < end, plan(self.spec, wanted, seen)
            time.sleep(0.1)

    def owners(self, seen: Observed) -> dict[int, int]:
        """Slot → port."""
        return {slot: m.port for m in seen.members if m.name in seen.nodes for slot in seen.nodes[m.name].slots}

    def keys(self, seen: Observed) -> list[bytes]:
        """Those that are where their slots are."""
        owners, found = self.owners(seen), []
        for number in range(KEYS):
            key = b"key %d" % number
            if ask(owners[slot_of(key)], "GET", key, password=self.access.password) == b"block %d" % number:
                found.append(key)
        return found


@pytest.fixture(params=["valkey 9", "redis 6"])
def steered(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Steered]:
    name, major = request.param.split()
    try:
        choose(name, int(major))
    except AssetError as error:
        pytest.skip(str(error))
    spec = ClusterSpec(max_shards=5, replicas=1, memory_bytes=32 << 20, version=request.param)
    platform = LocalPlatform(tmp_path / "cluster", node_timeout_ms=DEAD_AFTER_MS)
    platform.files.make()
    steered = Steered(platform, spec, monkeypatch)
    platform.want(spec, steered.first_port)
    try:
        yield steered
    finally:
        platform.end_all()


def filled(steered: Steered, seen: Observed) -> None:
    """Keys that the replicas have, too."""
    owners, password = steered.owners(seen), steered.access.password
    for number in range(KEYS):
        key = b"key %d" % number
        told = talk(owners[slot_of(key)], ("SET", key, b"block %d" % number), ("WAIT", 1, 8000), password=password)
        assert told == ["OK", 1]
    assert len(steered.keys(seen)) == KEYS


@pytest.mark.slow
def test_no_key_is_lost_however_often_the_controller_dies(steered: Steered) -> None:
    seen = steered.until(3)
    filled(steered, seen)
    seen = steered.until(4)
    assert len(steered.keys(seen)) == KEYS
    victim = max(name for name, node in seen.nodes.items() if node.slots)
    was = seen.nodes[victim].id
    os.kill(steered.platform.pids()[victim], signal.SIGKILL)
    seen = steered.until(4, lambda seen: all(node.id != was for node in seen.nodes.values()))
    assert len(steered.keys(seen)) == KEYS
    seen = steered.until(3)
    assert {member.shard for member in seen.members} == {0, 1, 2}
    assert len(steered.keys(seen)) == KEYS
    assert steered.cuts > 5


@pytest.mark.slow
@pytest.mark.parametrize("steered", ["redis 6"], indirect=True)
def test_another_version_comes_without_losing_a_key(steered: Steered) -> None:
    try:
        choose("redis", 7)
    except AssetError as error:
        pytest.skip(str(error))
    filled(steered, steered.until(3))
    steered.spec = replace(steered.spec, version="redis 7")
    steered.platform.want(steered.spec, steered.first_port)
    seen = steered.until(3)
    assert {node.version.split(".")[0] for node in seen.nodes.values()} == {"redis 7"}
    assert len(steered.keys(seen)) == KEYS
