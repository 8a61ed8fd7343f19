"""What others made stays as it is, whatever its name and its labels."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.unit.operator.fake_server import FakeServer
from tests.unit.operator.wishes import resource, wish

from mmcache.model.errors import KubernetesError
from mmcache.operator import owned
from mmcache.operator.api import BUDGETS, CACHES, CONFIG_MAPS, PODS, SERVICES, STATEFUL_SETS, Resource
from mmcache.operator.cluster import Cluster
from mmcache.operator.names import labels
from mmcache.operator.platform import KubernetesPlatform
from mmcache.scale.controller import never
from mmcache.scale.observed import Member

NS = "inference"
THEIRS = {"kind": "Deployment", "name": "web", "uid": "u-9", "controller": True}
TAKEN: dict[str, tuple[Resource, str]] = {
    "clients-service": (SERVICES, "shared"), "nodes-service": (SERVICES, "shared-nodes"),
    "settings": (CONFIG_MAPS, "shared-conf"), "budget": (BUDGETS, "shared"), "shard": (STATEFUL_SETS, "shared-shard-0"),
}  # fmt: skip


def foreign(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": NS, **metadata},
        "spec": {"replicas": 3, "selector": {"app": "web"}},
    }


@pytest.mark.parametrize("which", TAKEN)
@pytest.mark.parametrize("owner", [[], [THEIRS]], ids=["nobodys", "somebodys"])
def test_a_name_that_is_taken_is_left_to_whoever_has_it(which: str, owner: list[dict[str, Any]]) -> None:
    kind, name = TAKEN[which]
    server = FakeServer()
    there = server.put(kind.path(NS, name), foreign(name, ownerReferences=owner))
    before = copy.deepcopy(there)
    platform = KubernetesPlatform(server.api(), wish())
    with pytest.raises(KubernetesError, match=f"{name} is there already and was not made for shared") as caught:
        platform.start_shard(0, 2)
    assert caught.value.code == 409
    platform.stop_shard(0, 1)
    platform.stop_shard(0)
    assert server.objects[kind.path(NS, name)] == before


def test_labels_make_nothing_ours() -> None:
    """A StatefulSet of another name, or of another owner; a pod that nobody of ours made."""
    server = FakeServer()
    worn = labels("shared", 0)
    for name, owner in (("web", []), ("shared-shard-0", [THEIRS])):
        server.put(STATEFUL_SETS.path(NS, name), foreign(name, labels=worn, ownerReferences=owner))
    for name, of in (("web-0", "web"), ("shared-shard-0-0", "web"), ("shared-shard-1-0", "shared-shard-1")):
        made = foreign(name, labels=worn, ownerReferences=[{"kind": "StatefulSet", "name": of}])
        server.put(PODS.path(NS, name), made)
    before = copy.deepcopy(server.objects)
    platform = KubernetesPlatform(server.api(), wish())
    assert platform.members() == []
    assert not platform._shards()
    platform.replace(Member(0, 0))
    platform.stop_shard(0)
    assert {path: server.objects.get(path) for path in before} == before


def test_what_was_left_behind_without_an_owner_is_taken_up() -> None:
    """As after `kubectl delete --cascade=orphan`."""
    server = FakeServer()
    platform = KubernetesPlatform(server.api(), wish())
    platform.start_shard(0, 2)
    for thing in server.objects.values():
        del thing["metadata"]["ownerReferences"]
    KubernetesPlatform(server.api(), wish()).start_shard(0, 2)
    assert all(thing["metadata"]["ownerReferences"] for thing in server.objects.values())


def test_an_apply_names_the_object_that_was_seen() -> None:
    """It is another's by now: Kubernetes refuses what names a uid that is gone."""
    server = FakeServer()
    platform = KubernetesPlatform(server.api(), wish())
    platform.ensure()
    uid = server.objects[SERVICES.path(NS, "shared")]["metadata"]["uid"]
    sent = len(server.sent)
    platform.repair()
    assert uid in [body["metadata"].get("uid") for body in server.sent[sent:]]


def test_what_somebody_keeps_under_our_name_is_not_believed() -> None:
    server = FakeServer()
    path = CONFIG_MAPS.path(NS, "shared-load")
    before = copy.deepcopy(server.put(path, {**foreign("shared-load"), "data": {"load.json": '{"version": 1}'}}))
    server.put(CACHES.path(NS, "shared"), resource())
    cluster = Cluster(server.api(), NS, "shared", lambda: 1_800_000_000.0)
    cluster.turn(never)
    assert server.objects[path] == before
    assert not owned.is_ours(before, wish())
    told = [thing["message"] for key, thing in server.objects.items() if "/events/" in key]
    assert any("ConfigMap shared-load is there already" in message for message in told)
