"""The operator on a real API server: what a user sees, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from tests.operator_stage import SLOTS, Deployed, Stage, kubernetes

from mmcache.lab.kubernetes.api import ApiError

pytestmark = pytest.mark.slow
SECRET = "not to be seen anywhere 7c1f"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with kubernetes(tmp_path_factory.mktemp("kubernetes")) as made:
        yield made


@pytest.fixture(scope="module")
def shared(stage: Stage) -> Iterator[Deployed]:
    with stage.cluster() as made:
        yield made


def test_a_small_wish_becomes_a_cluster(stage: Stage, shared: Deployed) -> None:
    status, pods = shared.steady(), shared.pods()
    assert sorted(pods) == [f"shared-shard-{shard}-{place}" for shard in range(3) for place in range(2)]
    assert sorted(shared.primaries().values()) == [5461, 5461, 5462]
    for shard in range(3):
        assert len({pods[f"shared-shard-{shard}-{place}"]["spec"]["nodeName"] for place in range(2)}) == 2
    told = {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}
    assert told["Available"] == ("True", "AllSlotsServed")
    assert told["Degraded"][0] == told["Progressing"][0] == told["Burst"][0] == "False"
    assert all(one["observedGeneration"] == 1 for one in status["conditions"])
    listed = stage.plane.kubectl("get", "mmc", "-n", shared.namespace).stdout.splitlines()
    assert listed[0].split() == ["NAME", "SHARDS", "QPS", "PHASE", "MOVED", "HIT", "RATIO", "AGE"]
    assert [listed[1].split()[place] for place in (0, 1, 3)] == ["shared", "3", "Steady"]
    events = stage.plane.kubectl("describe", "mmc", "shared", "-n", shared.namespace).stdout
    assert all(word in events for word in ("StartShard", "Meet", "Replicate", "Assign", "mmcache-operator"))
    assert not stage.plane.kubectl("get", "pdb", "-n", shared.namespace).stderr


def test_more_shards_and_fewer_again_while_it_is_used(stage: Stage, shared: Deployed) -> None:
    with shared.use() as users:
        shared.change(minShards=4)
        status = shared.steady(4)
        assert status["observedGeneration"] == shared.resource()["metadata"]["generation"]
        assert sorted(shared.primaries().values()) == [SLOTS // 4] * 4
        assert len(shared.pods()) == 8
        shared.change(minShards=3, maxShards=3)
        shared.steady(3)
        before = len(users.stored)
        stage.until(lambda: len(users.stored) > before + 5, "used on")
    assert len(shared.pods()) == 6
    kept, stored = users.kept()
    assert kept == stored
    assert (users.misses, users.refused) == (0, 0)
    seen = {event["reason"] for event in stage.api.items(f"/api/v1/namespaces/{shared.namespace}/events")}
    assert {"Decided", "MoveSlots", "StopShard"} <= seen
    shared.change(maxShards=6)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"minShards": 2}, "spec.minShards"),
        ({"maxShards": 900}, "spec.maxShards"),
        ({"qpsThreshold": 0}, "spec.qpsThreshold"),
        ({"replicas": -1}, "spec.replicas"),
        ({"memory": "much"}, "spec.memory"),
        ({"memory": "9Ei"}, "spec.memory"),
        ({"memory": (16 << 40) + 1}, "spec.memory"),
        ({"burst": {"factor": "twice"}}, "spec.burst.factor"),
    ],
    ids=lambda value: str(value).strip("{}'") if isinstance(value, str) else None,
)
def test_the_schema_refuses(stage: Stage, spec: dict[str, object], said: str) -> None:
    with pytest.raises(ApiError, match=said) as refused:
        Deployed(stage, "default", "bad").create(**spec)
    assert refused.value.code == 422


def test_what_no_schema_refuses_is_told_in_the_status(stage: Stage) -> None:
    """On a server without CEL, and without the webhook."""
    made = Deployed(stage, stage.namespace(), "wrong")
    made.create(minShards=5, maxShards=3)
    status = made.phase("Blocked", "InvalidSpec")
    assert "maxShards must be minShards..500 (5..500), not 3" in status["message"]
    assert not made.pods()
    made.change(maxShards=5, minShards=3)
    made.steady()
    made.remove()


def test_a_wrong_change_leaves_the_cluster_alone(stage: Stage, shared: Deployed) -> None:
    before = {name: pod["metadata"]["uid"] for name, pod in shared.pods().items()}
    shared.change(burst={"endFactor": 3})
    status = shared.phase("Blocked", "InvalidSpec")
    assert "burst.endFactor" in status["message"]
    assert {one["type"]: one["status"] for one in status["conditions"]}["Available"] == "True"
    assert {name: pod["metadata"]["uid"] for name, pod in shared.pods().items()} == before
    shared.change(burst={"endFactor": None})
    shared.steady()


def test_the_operator_needs_no_more_than_its_rights(stage: Stage) -> None:
    said = stage.operator.said()
    assert not re.search(r"cannot \w+ resource", said)  # 'User … cannot list resource …'
    assert "Traceback" not in said
    assert not stage.nodes.errors
    for verb, what in (("list", "secrets"), ("create", "pods"), ("delete", "namespaces"), ("get", "nodes")):
        asked = stage.plane.kubectl("auth", "can-i", verb, what, "--as", "system:serviceaccount:mmcache-system:"
                                    "mmcache-operator", check=False)  # fmt: skip
        assert asked.stdout.strip() == "no", f"{verb} {what}"
