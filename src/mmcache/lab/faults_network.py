"""Scenes of a network: hosts that are cut off from some or all others, and a host whose cable is slow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

from mmcache.lab.faults_trial import Scene, nothing, settings_for
from mmcache.lab.servers import Cluster, Host, Network, Node, cluster, network
from mmcache.model.errors import AssetError

_NAMES = ("p1", "p2", "p3", "r1", "r2", "r3")
_SLOW_BYTES = 500
"""A second; a reply of one small block takes three."""
_DELAY_MS = 400


@contextmanager
def spread(folder: Path, *options: str, node_timeout_ms: int = 1500) -> Iterator[tuple[Network, Cluster]]:
    """A cluster with each node on a host of its own. Raises `AssetError`."""
    with (
        network(_NAMES) as made,
        cluster(folder, 3, 1, *options, node_timeout_ms=node_timeout_ms, hosts=made.hosts) as nodes,
    ):
        yield made, nodes


def host_of(made: Network, node: Node) -> Host:
    """Where a node stands."""
    return next(host for host in made.hosts if host.address == node.server.host)


@contextmanager
def cut_off(folder: Path, rng: Random) -> Iterator[Scene]:
    """This host no longer reaches one primary, which all others reach: nobody takes over."""
    with spread(folder) as (made, nodes):
        host = host_of(made, rng.choice(nodes.primaries))
        yield Scene(
            settings_for(nodes.url), lambda: made.cut(made.here, host), lambda: made.heal(made.here, host)
        )  # fmt: skip


@contextmanager
def isolated(folder: Path, rng: Random) -> Iterator[Scene]:
    """One primary is cut off from everyone; its replica takes over, and it comes back as a replica."""
    with spread(folder) as (made, nodes):
        host = host_of(made, rng.choice(nodes.primaries))
        yield Scene(settings_for(nodes.url), lambda: made.isolate(host), lambda: made.rejoin(host), lasts=5.0)


@contextmanager
def split(folder: Path, rng: Random) -> Iterator[Scene]:
    """One primary and this host are cut off from all other nodes: what it takes is lost when it comes back."""
    with spread(folder) as (made, nodes):
        yield _split(made, nodes, rng)


@contextmanager
def split_careful(folder: Path, rng: Random) -> Iterator[Scene]:
    """The same, but a primary without its replica takes no writes."""
    with spread(folder, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "1") as (made, nodes):
        yield _split(made, nodes, rng)


def _split(made: Network, nodes: Cluster, rng: Random) -> Scene:
    host = host_of(made, rng.choice(nodes.primaries))
    others = [other for other in made.hosts if other is not host]

    def strike() -> None:
        for other in others:
            made.cut(host, other)
            made.cut(made.here, other)

    def mend() -> None:
        for other in others:
            made.heal(host, other)
            made.heal(made.here, other)

    return Scene(settings_for(nodes.url), strike, mend, lasts=5.0)


@contextmanager
def slow_cable(folder: Path, rng: Random) -> Iterator[Scene]:
    """What one primary sends arrives late: by `netem` where the kernel has it, else through a cable of 500 B/s."""
    with spread(folder, node_timeout_ms=15_000) as (made, nodes):
        host = host_of(made, rng.choice(nodes.primaries))

        def strike() -> None:
            with suppress(AssetError):
                made.delay(host, _DELAY_MS)
                return
            made.throttle(host, _SLOW_BYTES)

        yield Scene(settings_for(nodes.url), strike, lambda: made.at_ease(host), nothing)
