"""A real cluster on loopback, made by plain commands: no command-line tool is needed."""

from __future__ import annotations

import binascii
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mmcache.lab.servers.certificates import Certificates
from mmcache.lab.servers.network import Host
from mmcache.lab.servers.process import Server, ask_to_stop, until
from mmcache.lab.servers.reshard import SlotMove
from mmcache.lab.servers.single import Setup
from mmcache.model.errors import AssetError, TierError
from mmcache.scale.binaries import Binary

SLOTS = 16384
NODE_TIMEOUT_MS = 1500
"""A node that is silent for so long is taken for dead by the others."""


def slot_of(key: bytes) -> int:
    """The slot of a key: CRC-16/XMODEM of its hash tag, or of all of it (the cluster specification)."""
    _, brace, rest = key.partition(b"{")
    tag, closed, _ = rest.partition(b"}")
    return binascii.crc_hqx(tag if brace and closed and tag else key, 0) % SLOTS


@dataclass(frozen=True)
class Seen:
    """What one node says of one node."""

    name: str
    port: int
    flags: frozenset[str]
    primary: str
    linked: bool
    slots: frozenset[int]


@dataclass
class Node:
    """One server of a cluster; `server` is the process."""

    server: Server
    name: str = ""
    """The forty hexadecimal digits that the cluster knows it by."""

    @property
    def port(self) -> int:
        """Of its clients."""
        return self.server.port

    @property
    def pid(self) -> int:
        """Of its process."""
        return self.server.pid

    @property
    def role(self) -> str:
        """`primary`, `replica` or `down`, as it says itself now. A paused node cannot be asked: `OSError`."""
        if not self.server.alive:
            return "down"
        said = self.server.ask("ROLE")[0]
        return "primary" if said == b"master" else "replica"

    def sees(self) -> dict[str, Seen]:
        """The cluster, as it sees it, by name. Raises `OSError`, `TierError`."""
        text = self.server.ask("CLUSTER", "NODES").decode()
        return {seen.name: seen for seen in map(_seen, text.splitlines())}


@dataclass
class Cluster:
    """A running cluster. Nodes are started, killed, paused and added; slots move."""

    folder: Path
    nodes: list[Node]
    setup: Setup
    """How its nodes are started."""

    @property
    def url(self) -> str:
        """What a cache is given as `shared=`; names all nodes."""
        safe = self.setup.tls is not None
        at = [f"{node.server.host}:{node.server.public_port}" for node in self.nodes]
        return f"{'valkeys' if safe else 'valkey'}://{','.join(at)}?cluster=true"

    @property
    def running(self) -> list[Node]:
        """Those that have a process."""
        return [node for node in self.nodes if node.server.alive]

    @property
    def primaries(self) -> list[Node]:
        """Those that say so of themselves."""
        return [node for node in self.running if node.role == "primary"]

    def primary_of(self, slot: int) -> Node:
        """Who serves a slot, as those say that can be asked. Raises `TierError` when nobody does."""
        for node in self.running:
            try:
                owners = [seen for seen in node.sees().values() if slot in seen.slots and not seen.flags & _DEAD]
            except (OSError, TierError):
                continue
            for owner in owners:
                return self.named(owner.name)
        raise TierError(f"nobody serves slot {slot}")

    def replicas_of(self, primary: Node) -> list[Node]:
        """As the primary sees them."""
        return [self.named(seen.name) for seen in primary.sees().values() if seen.primary == primary.name]

    def named(self, name: str) -> Node:
        """The node of a name."""
        return next(node for node in self.nodes if node.name == name)

    def kill(self, node: Node) -> None:
        """SIGKILL."""
        node.server.kill()

    def pause(self, node: Node) -> None:
        """SIGSTOP: it keeps its connections, and does nothing."""
        node.server.pause()

    def resume(self, node: Node) -> None:
        """SIGCONT."""
        node.server.resume()

    def restart(self, node: Node) -> None:
        """Start a killed node again; it comes back as what the others have made of it."""
        node.server.restart()

    def add_node(self, at: Host | None = None) -> Node:
        """One more primary, without slots yet. Raises `AssetError`."""
        (node,) = _start(self.folder, self.setup, len(self.nodes), [at])
        self.nodes.append(node)
        for other in self.running:
            if other is not node:
                node.server.ask("CLUSTER", "MEET", other.server.host, other.server.public_port)
        self.await_healthy()
        return node

    def moving(self, slot: int, target: Node) -> SlotMove:
        """The move of one slot, to be done step by step: see `SlotMove`."""
        source = self.primary_of(slot)
        everyone = [node.server for node in self.primaries]
        return SlotMove(slot, source.server, target.server, source.name, target.name, everyone)

    def move_slots(self, slots: Sequence[int], target: Node) -> None:
        """Move slots with their keys, wherever they are; clients go on meanwhile. Raises `TierError`."""
        for slot in slots:
            move = self.moving(slot, target)
            if move.source is not target.server:
                move.whole()

    def await_healthy(self) -> None:
        """Until every running node sees all slots served, and every replica has its primary. Raises `AssetError`."""
        if not until(self._healthy):
            raise AssetError(f"the cluster is not well: {self._symptoms()}")

    def _healthy(self) -> bool:
        try:
            views = [node.sees() for node in self.running]
            states = [node.server.ask("CLUSTER", "INFO") for node in self.running]
            followers = [node.server.ask("INFO", "replication") for node in self.running]
        except (OSError, TierError):
            return False
        here = {node.name for node in self.running}
        owners = [{seen.name: seen.slots for seen in view.values() if seen.slots} for view in views]
        return (
            all(b"cluster_state:ok" in state for state in states)
            and all(b"role:master" in said or b"master_link_status:up" in said for said in followers)
            and all(owner == owners[0] for owner in owners)
            and here >= set(owners[0])
            and sum(map(len, owners[0].values())) == SLOTS
            and all(here <= {seen.name for seen in view.values() if seen.linked} for view in views)
            and not any(seen.flags & _DEAD for view in views for seen in view.values() if seen.name in here)
        )

    def _symptoms(self) -> str:
        return "; ".join(f"{node.port}: {node.role}, {len(node.sees())} seen" for node in self.running)


_DEAD = frozenset({"fail", "fail?", "handshake", "noaddr"})


@contextmanager
def cluster(
    folder: Path,
    primaries: int = 3,
    replicas: int = 1,
    *options: str,
    node_timeout_ms: int = NODE_TIMEOUT_MS,
    binary: Binary | None = None,
    ahead: float | None = None,
    password: str | None = None,
    users: Mapping[str, str] | None = None,
    tls: Certificates | None = None,
    hosts: Sequence[Host] | None = None,
) -> Iterator[Cluster]:
    """A cluster of so many primaries, each with so many replicas, on free ports of 127.0.0.1; ended by its own pids.

    The nodes may stand on hosts of a `network`, one on each: primaries first, then their replicas in the same order.
    For the rest see `Setup`. Raises `AssetError`.
    """
    words = ("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout",
             str(node_timeout_ms), *options)  # fmt: skip
    if tls is not None:
        words += ("--tls-cluster", "yes", "--tls-replication", "yes")
    setup = Setup(words, binary, ahead, password, users, tls)
    made = Cluster(folder, [], setup)
    try:
        made.nodes += _start(folder, setup, 0, hosts or [None] * (primaries * (1 + replicas)))
        _introduce(made.nodes)
        for number, node in enumerate(made.nodes[:primaries]):
            mine = range(SLOTS * number // primaries, SLOTS * (number + 1) // primaries)
            node.server.ask("CLUSTER", "ADDSLOTS", *mine)
        for number, node in enumerate(made.nodes[primaries:]):
            node.server.ask("CLUSTER", "REPLICATE", made.nodes[number % primaries].name)
        made.await_healthy()
        yield made
    finally:
        ask_to_stop([node.server for node in made.nodes])


def _start(folder: Path, setup: Setup, first: int, hosts: Sequence[Host | None]) -> list[Node]:
    """Nodes that know nobody yet, one on each host."""
    started = [setup.new(folder / str(number), at=host) for number, host in enumerate(hosts, first)]
    try:
        for server in started:
            server.start()
        for server in started:
            server.await_answer()
    except BaseException:
        ask_to_stop(started)
        raise
    return [Node(server, server.ask("CLUSTER", "MYID").decode()) for server in started]


def _introduce(nodes: Sequence[Node]) -> None:
    for epoch, node in enumerate(nodes, 1):
        node.server.ask("CLUSTER", "SET-CONFIG-EPOCH", epoch)
    for number, node in enumerate(nodes):
        for other in nodes[:number]:
            node.server.ask("CLUSTER", "MEET", other.server.host, other.server.public_port)
    names = {node.name for node in nodes}
    if not until(lambda: all(_known(node) >= names for node in nodes)):
        raise AssetError("the nodes of a cluster do not find each other")


def _known(node: Node) -> set[str]:
    return {seen.name for seen in node.sees().values() if seen.linked and "handshake" not in seen.flags}


def _seen(line: str) -> Seen:
    name, address, flags, primary, _, _, _, link, *ranges = line.split()
    slots: set[int] = set()
    for word in ranges:
        if not word.startswith("["):  # a slot that is being moved; it is in its owner's ranges as well
            low, _, high = word.partition("-")
            slots.update(range(int(low), int(high or low) + 1))
    port = int(address.partition("@")[0].rpartition(":")[2])
    return Seen(name, port, frozenset(flags.split(",")), primary, link == "connected", frozenset(slots))
