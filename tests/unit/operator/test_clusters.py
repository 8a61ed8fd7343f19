"""Turns of many resources, and what is shown of them; without kopf's watches."""

from __future__ import annotations

import asyncio
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.operator.fake_server import FakeServer
from tests.unit.operator.test_status import made

from mmcache.model.errors import KubernetesError

kopf = pytest.importorskip("kopf")

from mmcache.operator import handlers as room  # noqa: E402
from mmcache.operator.handlers import Clusters  # noqa: E402
from mmcache.operator.metrics import Watch, exposition  # noqa: E402


class Stopped:
    """As kopf's flag: false until it is set; a wait ends at once, and is counted."""

    def __init__(self) -> None:
        self.set, self.waits = False, list[float]()

    def __bool__(self) -> bool:
        return self.set

    async def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(0)


class Turned:
    """Stands for `Cluster`."""

    def __init__(self, *_: object) -> None:
        self.turns, self.drains, self.forgotten, self.closed = 0, 0, 0, False
        self.running = 0
        self.do: Callable[[Turned], float] = lambda one: 0.0
        self.status: Any = None
        self.refused = False

    def turn(self, cancelled: Callable[[], bool]) -> float:
        self.running += 1
        assert self.running == 1
        try:
            self.turns += 1
            return self.do(self)
        finally:
            self.running -= 1

    def drain(self, cancelled: Callable[[], bool]) -> bool:
        self.drains += 1
        return self.drains == 3

    def forget(self) -> None:
        self.forgotten += 1

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clusters]:
    monkeypatch.setattr(room, "Cluster", Turned)
    monkeypatch.setattr(room, "_DRAIN_SECONDS", 0.0)
    made = Clusters(FakeServer().api(), lambda: True)
    yield made
    made.close()


def of(clusters: Clusters, uid: str = "u") -> Any:
    return clusters._cluster(uid, "inference", "shared")


async def test_turns_go_on_until_it_is_stopped(clusters: Clusters) -> None:
    stopped, cluster = Stopped(), of(clusters)

    def do(one: Turned) -> float:
        stopped.set = one.turns == 5
        return 0.0

    cluster.do = do
    await clusters.turns_of("u", "inference", "shared", stopped)
    assert (cluster.turns, cluster.closed, clusters.turns) == (5, True, 5)


async def test_failures_wait_longer_each_time_and_end_nothing(
    clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, cluster = Stopped(), of(clusters)
    pauses: list[float] = []

    async def rest(self: Clusters, uid: str, seconds: float, _: object) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(Clusters, "_rest", rest)

    def do(one: Turned) -> float:
        stopped.set = one.turns == 9
        if one.turns < 8:
            raise KubernetesError("etcd has no leader", code=503)
        return 7.0

    cluster.do = do
    await clusters.turns_of("u", "inference", "shared", stopped)
    assert pauses == [1, 2, 5, 10, 30, 30, 30, 7, 7]
    assert clusters.failures == 7


async def test_without_the_lease_nothing_is_done(clusters: Clusters) -> None:
    stopped = Stopped()
    clusters.leading = lambda: len(stopped.waits) >= 3
    cluster = of(clusters)

    def do(one: Turned) -> float:
        stopped.set = True
        return 0.0

    cluster.do = do
    await clusters.turns_of("u", "inference", "shared", stopped)
    assert stopped.waits == [room._WITHOUT_LEASE_SECONDS] * 3
    assert (cluster.turns, cluster.forgotten) == (1, 1)


async def test_a_change_ends_the_pause(clusters: Clusters) -> None:
    stopped, cluster = Stopped(), of(clusters)
    clusters.heard("u", 1)

    def do(one: Turned) -> float:
        stopped.set = one.turns == 3
        if one.turns == 2:
            clusters.heard("u", 1)  # only its status: no change
            clusters.heard("u", 2)
        return 0.0 if stopped.set else 3600.0

    cluster.do = do
    async with asyncio.timeout(60):
        await clusters.turns_of("u", "inference", "shared", stopped)
    assert cluster.turns == 3
    assert sum(stopped.waits) == 0


async def test_a_deletion_waits_for_the_turn_under_way(clusters: Clusters) -> None:
    stopped, cluster, begun, go = Stopped(), of(clusters), threading.Event(), threading.Event()

    def do(one: Turned) -> float:
        begun.set()
        assert go.wait(60)
        stopped.set = True
        return 0.0

    cluster.do = do
    turning = asyncio.create_task(clusters.turns_of("u", "inference", "shared", stopped))
    assert await asyncio.to_thread(begun.wait, 60)
    draining = asyncio.create_task(clusters.drained("u", "inference", "shared"))
    await asyncio.sleep(0)
    assert cluster.drains == 0
    go.set()
    await asyncio.gather(turning, draining)
    assert cluster.drains == 3
    clusters.gone("u")
    assert not clusters.known


async def test_one_that_hangs_holds_up_no_other(clusters: Clusters) -> None:
    go, stopped, other = threading.Event(), Stopped(), Stopped()

    def hang(one: Turned) -> float:
        stopped.set = True
        assert go.wait(60)
        return 0.0

    def do(one: Turned) -> float:
        other.set = True
        return 0.0

    of(clusters, "hangs").do, of(clusters, "goes").do = hang, do
    hanging = asyncio.create_task(clusters.turns_of("hangs", "inference", "shared", stopped))
    await clusters.turns_of("goes", "inference", "shared", other)
    go.set()
    await hanging


def test_prometheus_can_read_the_metrics(clusters: Clusters) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    of(clusters).status = made(baseline_qps=None)
    clusters._cluster("new", "inference", "new")
    families = {one.name: one for one in parser.text_string_to_metric_families(exposition(clusters))}
    (shards,) = families["mmcache_cluster_shards"].samples
    assert (shards.labels, shards.value) == ({"namespace": "inference", "name": "shared"}, 3)
    assert families["mmcache_cluster_baseline_requests_per_second"].samples == []
    phases = {one.labels["phase"]: one.value for one in families["mmcache_cluster_phase"].samples}
    assert phases["Steady"] == 1
    assert sum(phases.values()) == 1
    assert families["mmcache_operator_turns"].type == "counter"


def test_the_watch_tells_when_the_loop_stands(clusters: Clusters, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(("127.0.0.1", 0), clusters)
    try:
        assert fetched(watch, "/readyz")[0] == 503
        watch.ready = True
        assert fetched(watch, "/readyz") == (200, "ok\n")
        assert fetched(watch, "/healthz") == (200, "ok\n")
        assert "mmcache_operator_leading 1" in fetched(watch, "/metrics")[1]
        assert fetched(watch, "/other")[0] == 404
        monkeypatch.setattr("mmcache.operator.metrics._STALE_SECONDS", -1.0)
        assert fetched(watch, "/healthz")[0] == 503
    finally:
        watch.close()


def test_who_connects_and_asks_nothing_is_let_go(clusters: Clusters, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmcache.operator.metrics._WAIT_SECONDS", 0.05)
    watch = Watch(("127.0.0.1", 0), clusters)
    try:
        with socket.create_connection(("127.0.0.1", watch.port), 60.0) as silent:
            assert silent.recv(1) == b""
    finally:
        watch.close()


def fetched(watch: Watch, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{watch.port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_kopf_is_told_to_keep_to_itself() -> None:
    settings = kopf.OperatorSettings()
    room.quiet(settings)
    assert settings.persistence.finalizer == "mmcache.dev/drain"
    assert settings.scanning.disabled
    assert settings.peering.standalone
    assert not settings.posting.enabled
    assert isinstance(settings.watching.server_timeout, int)
