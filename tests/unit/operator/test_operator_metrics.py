"""What Prometheus reads of several clusters: of one that is deleted, of names that are none, without the lease."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.operator.fake_server import FakeServer
from tests.unit.operator.test_status import made
from tests.unit.operator.world import AT, Steered, World

parser = pytest.importorskip("prometheus_client.parser")
pytest.importorskip("kopf")

from mmcache.operator import cluster as turning  # noqa: E402
from mmcache.operator import handlers as room  # noqa: E402
from mmcache.operator.handlers import Clusters  # noqa: E402
from mmcache.operator.metrics import OF_CLUSTERS, OF_OPERATOR, exposition  # noqa: E402
from mmcache.scale.controller import never  # noqa: E402
from mmcache.scale.status import Condition, Phase, Progress  # noqa: E402

HOSTILE = 'a"} 1\nmmcache_operator_leading{x="\\'


class Deleted:
    """Stands for a `Cluster` that is drained at once, or turned once."""

    status: Any = None
    refused = False

    def __init__(self, *_: object) -> None:
        pass

    def turn(self, _: object) -> float:
        return 5.0

    def drain(self, _: object) -> bool:
        return True

    def close(self) -> None:
        pass


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clusters]:
    monkeypatch.setattr(room, "Cluster", Deleted)
    monkeypatch.setattr("mmcache.operator.handlers.time.time", lambda: 1_790_000_000.25)
    found = Clusters(FakeServer().api(), lambda: True)
    yield found
    found.close()


def put(clusters: Clusters, uid: str, namespace: str, name: str, **status: Any) -> None:
    cluster: Any = clusters._cluster(uid, namespace, name)
    cluster.status = made(**status)


def read(clusters: Clusters) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Samples by name."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in parser.text_string_to_metric_families(exposition(clusters)):
        for one in family.samples:
            found.setdefault(one.name, []).append((one.labels, one.value))
    return found


def test_two_caches_of_one_name_are_two(clusters: Clusters) -> None:
    put(clusters, "u", "vision", "shared", shards=3)
    put(clusters, "v", "audio", "shared", shards=5, phase=Phase.BLOCKED)
    found = read(clusters)
    assert found["mmcache_cluster_shards"] == [
        ({"namespace": "audio", "name": "shared"}, 5), ({"namespace": "vision", "name": "shared"}, 3),
    ]  # fmt: skip
    phases = {(at["namespace"], at["phase"]) for at, value in found["mmcache_cluster_phase"] if value}
    assert phases == {("vision", "Steady"), ("audio", "Blocked")}
    assert found["mmcache_operator_clusters"] == [({}, 2)]


def test_one_that_cannot_be_followed_is_blocked(clusters: Clusters) -> None:
    """Whatever its nodes do meanwhile; also where there are none yet."""
    put(clusters, "u", "vision", "shared", phase=Phase.STEADY)
    clusters._cluster("v", "vision", "new").refused = True
    clusters.known["u"][2].refused = True
    found = read(clusters)
    phases = {(at["name"], at["phase"]) for at, value in found["mmcache_cluster_phase"] if value}
    assert phases == {("shared", "Blocked"), ("new", "Blocked")}
    assert len(found["mmcache_cluster_shards"]) == 1


def test_a_turn_says_whether_it_is_followed_and_that_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turning, "Controller", Steered)
    world = World({"minShards": 9, "maxShards": 3})
    world.cluster.turn(never)
    assert (world.cluster.refused, world.cluster.status) == (True, None)
    world.server.objects[AT]["spec"] = {}
    world.cluster.turn(never)
    assert not world.cluster.refused
    assert world.cluster.status is not None
    del world.server.objects[AT]  # and the watch did not say so
    world.cluster.turn(never)
    assert world.cluster.status is None


async def test_of_a_deleted_one_nothing_is_left(clusters: Clusters) -> None:
    put(clusters, "u", "vision", "shared")
    put(clusters, "v", "audio", "shared")
    clusters.turned["u"] = 1.0
    await clusters.drained("u", "vision", "shared")
    text = exposition(clusters)
    assert "vision" not in text
    assert 'namespace="audio"' in text
    clusters.gone("v")
    found = read(clusters)
    assert {name for name in found if "cluster_" in name} == set()
    assert found["mmcache_operator_clusters"] == [({}, 0)]
    assert not clusters.turned


def test_one_that_is_made_anew_is_told_once(clusters: Clusters) -> None:
    put(clusters, "old", "vision", "shared", shards=9)
    put(clusters, "new", "vision", "shared", shards=3)
    assert [value for _, value in read(clusters)["mmcache_cluster_shards"]] == [3]


def test_names_that_are_none_stay_within_their_quotes(clusters: Clusters) -> None:
    told = Condition(HOSTILE, True, "x", "y")
    put(clusters, "u", HOSTILE, "shared", shards=3, conditions=(told,))
    found = read(clusters)
    assert found["mmcache_cluster_shards"] == [({"namespace": HOSTILE, "name": "shared"}, 3)]
    assert found["mmcache_cluster_condition"] == [({"namespace": HOSTILE, "name": "shared", "type": HOSTILE}, 1)]
    assert found["mmcache_operator_leading"] == [({}, 1)]


def test_without_the_lease_another_tells(clusters: Clusters) -> None:
    put(clusters, "u", "vision", "shared")
    clusters.leading = lambda: False
    found = read(clusters)
    assert not [name for name in found if name.startswith("mmcache_cluster_")]
    assert (found["mmcache_operator_leading"], found["mmcache_operator_clusters"]) == ([({}, 0)], [({}, 0)])


class _Once:
    """As kopf's flag: set after one turn."""

    def __init__(self) -> None:
        self.asked = 0

    def __bool__(self) -> bool:
        self.asked += 1
        return self.asked > 1

    async def wait(self, _: float) -> None:
        raise AssertionError("nobody waits")


async def test_it_is_told_when_a_turn_ended(clusters: Clusters) -> None:
    put(clusters, "u", "vision", "shared")
    assert "mmcache_cluster_turn_timestamp_seconds" not in read(clusters)
    await clusters.turns_of("u", "vision", "shared", _Once())
    ((labels, value),) = read(clusters)["mmcache_cluster_turn_timestamp_seconds"]
    assert (labels, value) == ({"namespace": "vision", "name": "shared"}, 1_790_000_000.25)


async def test_every_name_is_listed_and_figures_are_whole(clusters: Clusters) -> None:
    put(
        clusters, "u", "vision", "shared", baseline_qps=1.0, hit_ratio=0.5, used_bytes=12_345_678_901,
        progress=Progress(1, 2), conditions=(Condition("Burst", False, "Usual", ""),),
    )  # fmt: skip
    await clusters.turns_of("u", "vision", "shared", _Once())
    found = read(clusters)
    assert found["mmcache_cluster_used_bytes"][0][1] == 12_345_678_901
    names = {f"mmcache_cluster_{name}" for name in OF_CLUSTERS} | {f"mmcache_operator_{name}" for name in OF_OPERATOR}
    assert found.keys() == names
