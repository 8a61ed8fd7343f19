"""Members as pods, against an API server in memory."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from tests.unit.operator.fake_server import FakeServer, refusal
from tests.unit.operator.wishes import wish

from mmcache.model.errors import KubernetesError, ScaleError
from mmcache.operator.api import BUDGETS, BUDGETS_BEFORE_1_21, PODS, SERVICES, STATEFUL_SETS
from mmcache.operator.platform import KubernetesPlatform
from mmcache.operator.troubles import told
from mmcache.scale.platform import Platform

NS = "inference"


def started(server: FakeServer, *, shards: int = 1, members: int = 2, **spec: Any) -> KubernetesPlatform:
    platform = KubernetesPlatform(server.api(), wish(**spec))
    for number in range(shards):
        platform.start_shard(number, members)
    server.make_pods()
    return platform


def test_it_is_a_platform() -> None:
    platform: Platform = KubernetesPlatform(FakeServer().api(), wish())
    assert platform.members() == []


def test_a_shard_has_members_before_it_has_pods() -> None:
    server = FakeServer()
    platform = KubernetesPlatform(server.api(), wish())
    platform.start_shard(2, 2)
    assert [(one.name, one.host, one.ready, one.leaving) for one in platform.members()] == [
        ("2-0", "", False, False), ("2-1", "", False, False),
    ]  # fmt: skip
    server.make_pods(ready=False)
    assert [(bool(one.host), one.ready, one.current) for one in platform.members()] == [(True, False, True)] * 2


def test_pods_are_what_they_say() -> None:
    server = FakeServer()
    platform = started(server, shards=12)
    members = platform.members()
    assert [one.name for one in members][-2:] == ["11-0", "11-1"]
    assert all(one.ready and one.current and not one.leaving and one.port == 6379 for one in members)
    assert {one.machine for one in members} == {"machine-0", "machine-1"}


def test_everything_may_be_said_twice() -> None:
    server = FakeServer()
    platform = started(server)
    before = {path: dict(thing, metadata={**thing["metadata"], "resourceVersion": ""})
              for path, thing in server.objects.items()}  # fmt: skip
    platform.start_shard(0, 2)
    KubernetesPlatform(server.api(), wish()).start_shard(0, 2)
    after = {path: dict(thing, metadata={**thing["metadata"], "resourceVersion": ""})
             for path, thing in server.objects.items()}  # fmt: skip
    assert after == before


def test_starting_fewer_members_ends_none() -> None:
    server = FakeServer()
    platform = started(server, members=3)
    platform.start_shard(0, 2)
    server.make_pods()
    assert len(platform.members()) == 3


def test_a_shard_shrinks_from_its_top_and_goes() -> None:
    server = FakeServer()
    platform = started(server, members=3)
    platform.stop_shard(0, keep=1)
    assert [(one.place, one.leaving, one.ready) for one in platform.members()] == [
        (0, False, True), (1, True, False), (2, True, False),
    ]  # fmt: skip
    server.make_pods()
    platform.stop_shard(0, keep=1)
    platform.stop_shard(0)
    assert [one.leaving for one in platform.members()] == [True]
    server.make_pods()
    platform.stop_shard(0)
    assert platform.members() == []
    assert platform.empty()


def test_pods_of_an_older_template_are_not_current_until_they_are_replaced() -> None:
    server = FakeServer()
    platform = started(server)
    platform.wish = wish(image="valkey/valkey:9.9")
    before = platform.members()
    assert [one.current for one in before] == [False, False]
    platform.replace(before[1])
    platform.replace(before[1])
    assert len([path for path in server.objects if "/pods/" in path]) == 1
    server.make_pods()
    after = platform.members()
    assert [one.current for one in after] == [False, True]
    assert after[0].host == before[0].host


def test_only_the_pod_that_was_meant_is_replaced() -> None:
    """It was made anew between the look and the step."""
    server = FakeServer()
    platform = started(server)
    old = platform.members()[0]
    del server.objects[PODS.path(NS, "shared-shard-0-0")]
    server.make_pods()
    now = server.objects[PODS.path(NS, "shared-shard-0-0")]
    platform.replace(old)
    assert server.objects[PODS.path(NS, "shared-shard-0-0")] is now


def test_a_deletion_names_the_uid() -> None:
    server = FakeServer()
    platform = started(server)
    uid = server.objects[PODS.path(NS, "shared-shard-0-1")]["metadata"]["uid"]
    platform.replace(platform.members()[1])
    assert {"uid": uid} in [body.get("preconditions") for body in server.sent]


def test_what_is_being_deleted_is_left_alone() -> None:
    server = FakeServer()
    platform = started(server)
    server.objects[STATEFUL_SETS.path(NS, "shared-shard-0")]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    member = platform.members()[0]
    assert member.leaving
    sent = len(server.sent)
    platform.start_shard(0, 2)
    platform.replace(member)
    assert not [body for body in server.sent[sent:] if body.get("kind") in ("StatefulSet", "DeleteOptions")]


@pytest.mark.parametrize("change", [
    {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, {"status": {"phase": "Failed"}},
], ids=["deleted", "failed"])  # fmt: skip
def test_a_pod_that_ends_is_leaving(change: dict[str, Any]) -> None:
    server = FakeServer()
    platform = started(server)
    for part, changed in change.items():
        server.objects[PODS.path(NS, "shared-shard-0-0")][part].update(changed)
    assert [(one.leaving, one.ready) for one in platform.members()] == [(True, False), (False, True)]


def test_strangers_with_our_labels_are_no_members() -> None:
    server = FakeServer()
    platform = started(server)
    labels = dict(server.objects[PODS.path(NS, "shared-shard-0-0")]["metadata"]["labels"])
    server.put(PODS.path(NS, "debug-7"), {"metadata": {"name": "debug-7", "labels": labels}})
    server.put(STATEFUL_SETS.path(NS, "x"), {"metadata": {"name": "x", "labels": {**labels, "mmcache.dev/shard": "y"}},
                                            "spec": {"replicas": 2}})  # fmt: skip
    assert [one.name for one in platform.members()] == ["0-0", "0-1"]


def test_a_server_before_1_21_gets_the_budget_that_it_knows() -> None:
    server = FakeServer("policy/v1/")
    started(server)
    assert BUDGETS_BEFORE_1_21.path(NS, "shared") in server.objects
    assert BUDGETS.path(NS, "shared") not in server.objects


def test_what_was_taken_away_comes_back() -> None:
    server = FakeServer()
    platform = started(server)
    gone = SERVICES.path(NS, "shared")
    del server.objects[gone]
    platform.ensure()
    assert gone not in server.objects  # nothing changed here: nothing is sent
    platform.wish = wish(config={"io-threads": "2"})
    platform.repair()
    assert gone in server.objects
    template = server.objects[STATEFUL_SETS.path(NS, "shared-shard-0")]["spec"]["template"]
    assert not platform.members()[0].current
    del server.objects[PODS.path(NS, "shared-shard-0-0")]  # as when its machine dies
    server.make_pods()
    assert platform.members()[0].current
    assert template["spec"]["containers"][0]["image"]


def test_many_pods_come_in_pages() -> None:
    server = FakeServer()
    platform = started(server, shards=130, members=6)
    assert len(platform.members()) == 780
    assert len([call for call in server.calls if call == ("GET", PODS.path(NS))]) == 2


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (refusal(403, 'pods is forbidden: User "x" cannot list'), "403, pods is forbidden"),
        (refusal(410, "the continue token is too old"), "410, the continue token"),
        (refusal(429, "too many requests"), "429, too many"),
        (refusal(500, "failed to create typed patch object: .spec: expected list"), "500, failed to create typed"),
        (httpx2.Response(502, text="<html>bad gateway"), "502, <html>"),
        (httpx2.Response(200, text="not json"), "no JSON"),
    ],
    ids=["forbidden", "gone", "throttled", "untyped", "proxy", "nonsense"],
)
def test_refusals_say_what_was_asked_and_why(answer: httpx2.Response, said: str) -> None:
    server = FakeServer()
    platform = started(server)
    server.broken.append(answer)
    with pytest.raises(ScaleError, match=said) as told:
        platform.members()
    assert "statefulsets" in str(told.value)
    assert len(platform.members()) == 2  # the next turn


def test_a_server_that_is_away_is_a_scale_error() -> None:
    def away(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused", request=request)

    from mmcache.operator.api import Api

    platform = KubernetesPlatform(
        Api(httpx2.Client(base_url="https://kubernetes", transport=httpx2.MockTransport(away))), wish()
    )
    with pytest.raises(KubernetesError, match="was not reached") as told:
        platform.members()
    assert told.value.code == 0
    assert isinstance(told.value.__cause__, httpx2.ConnectError)


CRASHED = {"terminated": {"reason": "Error", "exitCode": 127}}
UNSCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"containerStatuses": [{"state": {"waiting": {"reason": reason, "message": message}}}]}


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"conditions": [UNSCHEDULED]}, "Unschedulable, 0/1 nodes"),
        (waiting("ImagePullBackOff", "no such image"), "ImagePullBackOff, no such image"),
        (waiting("ContainerCreating"), None),
        (waiting("CrashLoopBackOff"), "CrashLoopBackOff, started 1 times"),
        (
            {
                "containerStatuses": [
                    {"restartCount": 4, "ready": False, "state": {"running": {}}, "lastState": CRASHED}
                ]
            },
            "Error, started 5 times, ended with 127",
        ),
        ({"containerStatuses": [{"restartCount": 4, "ready": True, "state": {"running": {}}}]}, None),
        ({"containerStatuses": [{"state": {"running": {}}}]}, None),
        ({}, None),
    ],
    ids=["machine", "image", "creating", "crashed", "crashes", "recovered", "running", "new"],
)
def test_why_a_pod_does_not_run_is_known(status: dict[str, Any], said: str | None) -> None:
    server = FakeServer()
    platform = started(server)
    server.objects[PODS.path(NS, "shared-shard-0-1")]["status"] = status
    platform.members()
    assert platform.troubles == ({} if said is None else {"0-1": said})
    server.objects[PODS.path(NS, "shared-shard-0-1")]["status"] = {}
    platform.members()
    assert platform.troubles == {}


def test_a_message_names_a_few() -> None:
    assert told("waiting", {}) == "waiting"
    assert told("waiting", {f"{number}-0": "no" for number in range(5)}) == "waiting; 0-0: no; 1-0: no; 2-0: no; …"
