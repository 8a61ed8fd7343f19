"""A real cluster that the steps of scaling are done on, clients that notice every wrong answer, and a cut anywhere."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE

from mmcache.lab import servers
from mmcache.lab.servers import Binary, Cluster, Node
from mmcache.model.clock import SystemClock
from mmcache.model.errors import AssetError, ScaleError
from mmcache.scale.access import Access
from mmcache.scale.act import act
from mmcache.scale.observe import look
from mmcache.scale.observed import Member, Observed
from mmcache.scale.plan import plan
from mmcache.scale.spec import ClusterSpec
from mmcache.scale.status import Phase
from mmcache.scale.steps import Step
from mmcache.scale.talk import Command, Wire
from mmcache.settings import SharedSettings
from mmcache.tiers.valkey.client import Client, Request

VALKEY, REDIS_7, REDIS_6 = ("valkey", 9), ("redis", 7), ("redis", 6)
DEAD_AFTER_MS = 8000
"""Nobody is to be taken for dead because a busy machine stood still for seconds; a test in which one dies says less."""
PASSWORD = "a secret of the cluster"


def chosen(name: str, major: int) -> Binary:
    """Or the test is skipped."""
    try:
        return servers.choose(name, major)
    except AssetError as missing:
        pytest.skip(str(missing))


@dataclass
class Stage:
    """A `Platform` of a laboratory's cluster: a member that died comes back empty, under a new id, when it is told."""

    cluster: Cluster
    access: Access
    spec: ClusterSpec
    nodes: dict[str, Node] = field(default_factory=dict)

    def members(self) -> Sequence[Member]:
        """See `Platform`."""
        return [
            Member(*place_of(name), node.server.host, node.server.port, ready=node.server.alive)
            for name, node in sorted(self.nodes.items())
        ]

    def start_shard(self, shard: int, members: int) -> None:
        """See `Platform`."""
        for place in range(members):
            if f"{shard}-{place}" not in self.nodes:
                server = self.cluster.setup.new(self.cluster.folder / f"{shard}-{place}-{len(self.cluster.nodes)}")
                server.start()
                self.cluster.nodes.append(Node(server))
                self.nodes[f"{shard}-{place}"] = self.cluster.nodes[-1]
                server.await_answer()

    def stop_shard(self, shard: int, keep: int = 0) -> None:
        """See `Platform`."""
        for name in [name for name in self.nodes if place_of(name)[0] == shard and place_of(name)[1] >= keep]:
            self.nodes.pop(name).server.stop()

    def replace(self, member: Member) -> None:
        """See `Platform`."""
        self.revive(member.name)

    def revive(self, name: str) -> None:
        """It starts again and knows nothing."""
        server = self.nodes[name].server
        server.kill()
        for left in ("nodes.conf", "dump.rdb"):  # by the second a replica was filled
            (server.folder / left).unlink(missing_ok=True)
        server.restart()

    def look(self) -> Observed:
        """At everything, now."""
        return look(self, self.access, time.monotonic())

    def do(self, step: Step, cancelled: Callable[[], bool] = lambda: False) -> None:
        """One step, after a look."""
        act(step, self.look(), self, self.access, cancelled)

    def until(self, met: Callable[[Observed], object], what: str) -> Observed:
        """Look until it is so."""
        end = time.monotonic() + PATIENCE
        while not met(seen := self.look()):
            assert time.monotonic() < end, f"never {what}: {describe(seen)}"
            time.sleep(0.02)
        return seen

    def converge(self, wanted: int = 3) -> Observed:
        """Look, plan, act, over and over, until nothing is left to do. What fails is planned anew."""
        end = time.monotonic() + 2 * PATIENCE
        failed = ""
        while True:
            seen = self.look()
            planned = plan(self.spec, wanted, seen)
            if planned.step is None and planned.phase is Phase.STEADY and settled(seen):
                return seen
            assert time.monotonic() < end, f"never steady: {planned}; {failed}; {describe(seen)}"
            if planned.step is None:
                time.sleep(0.05)
                continue
            try:
                act(planned.step, seen, self, self.access)
            except ScaleError as error:
                failed = str(error)
                time.sleep(0.05)


@contextmanager
def staged(
    folder: Path,
    server: tuple[str, int],
    replicas: int = 1,
    *,
    password: str | None = None,
    dead_after_ms: int = DEAD_AFTER_MS,
) -> Iterator[Stage]:
    """Three shards; members are named as `Stage.members` says."""
    with servers.cluster(
        folder, 3, replicas, binary=chosen(*server), password=password, node_timeout_ms=dead_after_ms
    ) as made:
        spec = ClusterSpec(3, 5, replicas)
        stage = Stage(made, Access(password, timeout_seconds=10.0), spec)
        for number, node in enumerate(made.nodes):
            stage.nodes[f"{number % 3}-{number // 3}"] = node
        yield stage


def place_of(name: str) -> tuple[int, int]:
    """Shard and place of a member."""
    shard, _, place = name.partition("-")
    return int(shard), int(place)


def settled(seen: Observed) -> bool:
    """All primaries agree on who serves what, and no slot is open."""
    primaries = [node for node in seen.nodes.values() if not node.primary]
    owners = {node.id: node.slots for node in primaries if node.slots}
    return (
        not any(node.importing or node.migrating or node.moving for node in primaries)
        and all(node.cluster_ok for node in primaries)
        and all({o.id: o.slots for o in node.others.values() if o.slots} == owners for node in primaries)
    )


def describe(seen: Observed) -> str:
    """For a test that fails."""
    return "; ".join(
        f"{name} {node.id[:4]} of {node.primary[:4] or '-'} slots {len(node.slots)} epoch {node.epoch} "
        f"<{dict(node.importing)} >{dict(node.migrating)} moving {node.moving} ok {node.cluster_ok}"
        for name, node in seen.nodes.items()
    ) + str(dict(seen.silent))  # fmt: skip


class Cut(BaseException):
    """The process ends here, as far as the servers can tell."""


@contextmanager
def cut_after(commands: int, monkeypatch: pytest.MonkeyPatch, kill: Callable[[], Any] | None = None) -> Iterator[None]:
    """So many commands reach servers, in or between pipelines; then nothing more does, and `Cut` is raised."""
    left, lock, whole, ending = [commands], threading.Lock(), Wire.send, threading.Event()

    def send(wire: Wire, asked: Sequence[Command], seconds: float | None = None) -> None:
        with lock:
            granted = min(left[0], len(asked))
            left[0] -= granted
        if granted == len(asked) or ending.is_set():
            whole(wire, asked, seconds)
            return
        if granted:
            whole(wire, asked[:granted], seconds)
            wire.receive(granted)  # they have been done
        if kill is not None:
            ending.set()
            kill()
            ending.clear()
        raise Cut

    with monkeypatch.context() as patched:
        patched.setattr(Wire, "send", send)
        yield


def fill(stage: Stage, keys: Sequence[bytes], size: int = 100) -> dict[bytes, bytes]:
    """A value for each key, told to whoever has it."""
    values = {key: (key * (size // len(key) + 1))[:size] for key in keys}
    with client(stage) as to:
        told = to.ask([Request(key, ("SET", key, value)) for key, value in values.items()])
    assert told == [b"OK"] * len(keys), told
    return values


def held(stage: Stage, values: dict[bytes, bytes]) -> None:
    """Every key has its value, and there is nothing else."""
    with client(stage) as to:
        got = to.ask([Request(key, ("GET", key)) for key in values])
    wrong = [key for key, value, found in zip(values, values.values(), got, strict=True) if found != value]
    assert not wrong, f"{len(wrong)} of {len(values)} are wrong or lost: {wrong[:5]}"


@contextmanager
def client(stage: Stage, seconds: float = 20.0) -> Iterator[Client]:
    """The product's own, that waits patiently."""
    url = ",".join(f"127.0.0.1:{node.server.port}" for node in stage.nodes.values() if node.server.alive)
    made = Client(
        SharedSettings(f"valkey://{url}?cluster=true", password=stage.access.password, timeout_seconds=seconds),
        clock=SystemClock(),
    )
    try:
        yield made
    finally:
        made.close()


class Users:
    """Threads that set, get and delete keys of their own all the time, and know what each answer must be."""

    def __init__(self, stage: Stage, keys: Sequence[bytes], threads: int = 3, size: int = 2000) -> None:
        self.stage, self.size = stage, size
        self.wrong: list[str] = []
        self.refused: list[str] = []
        self.done = 0
        self.known: dict[bytes, bytes | None] = {}
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number, keys[number::threads])) for number in range(threads)
        ]

    def __enter__(self) -> Users:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, seed: int, keys: Sequence[bytes]) -> None:
        draw = random.Random(seed)
        known: dict[bytes, bytes | None] = dict.fromkeys(keys)
        number = 0
        with client(self.stage) as to:
            while not self._stop.is_set():
                key, dice = draw.choice(keys), draw.random()
                number += 1
                fresh = (b"%b %d " % (key, number)).ljust(self.size, b".")
                words: Command = ("GET", key)
                if dice < 0.4:
                    words = ("SET", key, fresh)
                elif dice < 0.6:
                    words = ("DEL", key)
                (reply,) = to.ask([Request(key, words)])
                if not (reply is None or isinstance(reply, bytes | int)) or isinstance(reply, str):
                    self.refused.append(f"{words[0]!s}: {reply!r:.100}")
                    continue
                if words[0] == "GET" and reply != known[key]:
                    self.wrong.append(f"{key!r}: {reply!r:.40}, not {known[key]!r:.40}")
                if words[0] == "DEL" and reply != (known[key] is not None):
                    self.wrong.append(f"{key!r}: deleted {reply!r}, was {known[key]!r:.40}")
                if words[0] != "GET":
                    known[key] = fresh if words[0] == "SET" else None
                self.done += 1
        self.known |= known

    def check(self) -> None:
        """After the end: nothing was wrong, nothing refused, all that was acknowledged is there."""
        assert not self.wrong, self.wrong[:5]
        assert not self.refused, self.refused[:5]
        with client(self.stage) as to:
            got = to.ask([Request(key, ("GET", key)) for key in self.known])
        wrong = [key for key, found in zip(self.known, got, strict=True) if found != self.known[key]]
        assert not wrong, f"{len(wrong)} of {len(self.known)}: {wrong[:5]}"


def keys_in(slots: frozenset[int] | set[int], count: int, each: int = 1) -> list[bytes]:
    """So many keys for each of `count` of these slots."""
    found: dict[int, list[bytes]] = {}
    for number in range(1_000_000):
        key = b"key%d" % number
        slot = servers.slot_of(key)
        if slot in slots and (slot in found or len(found) < count) and len(found.setdefault(slot, [])) < each:
            found[slot].append(key)
            if len(found) == count and all(len(some) == each for some in found.values()):
                break
    return [key for some in found.values() for key in some]


def followed(node: Node) -> bool:
    """Whether its replica has heard of all that it did."""
    told = dict(
        line.split(":", 1) for line in node.server.ask("INFO", "replication").decode().splitlines() if ":" in line
    )
    return f"offset={told['master_repl_offset']}," in told.get("slave0", "")
