"""The laboratory's Kubernetes by itself: pods become processes, and what befalls them is told as Kubernetes does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.patience import until

from mmcache.lab.kubernetes.api import ApiError
from mmcache.lab.kubernetes.build import find
from mmcache.lab.kubernetes.control_plane import ControlPlane, control_plane
from mmcache.lab.kubernetes.kubelet import Kubelet, kubelet
from mmcache.model.errors import AssetError
from mmcache.scale.talk import ask

pytestmark = pytest.mark.slow
SECRET = "only for this test"
LABELS = {"app": "db"}
APART = {"labelSelector": {"matchLabels": LABELS}, "topologyKey": "kubernetes.io/hostname"}
CONTAINER = {
    "name": "server", "image": "valkey/valkey:9.1",
    "command": [
        "/bin/sh", "-c", 'exec valkey-server /etc/app/server.conf --dir /data --requirepass "$(cat /etc/key/word)"',
    ],
    "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
    "readinessProbe": {
        "exec": {"command": ["sh", "-c", 'REDISCLI_AUTH=$(cat /etc/key/word) valkey-cli -h "$POD_IP" ping | grep PONG']}
    },
    "livenessProbe": {"tcpSocket": {"port": 6379}},
    "volumeMounts": [
        {"name": "conf", "mountPath": "/etc/app"}, {"name": "key", "mountPath": "/etc/key"},
        {"name": "data", "mountPath": "/data"},
    ],
}  # fmt: skip
VOLUMES = [
    {"name": "conf", "configMap": {"name": "conf"}}, {"name": "key", "secret": {"secretName": "key"}},
    {"name": "data", "emptyDir": {}},
]  # fmt: skip


def stateful_set(replicas: int) -> dict[str, Any]:
    spec = {
        "terminationGracePeriodSeconds": 20, "containers": [CONTAINER], "volumes": VOLUMES,
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [APART]}},
    }  # fmt: skip
    return {
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {"serviceName": "db", "replicas": replicas, "podManagementPolicy": "Parallel",
                 "selector": {"matchLabels": LABELS}, "template": {"metadata": {"labels": LABELS}, "spec": spec}},
    }  # fmt: skip


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ControlPlane, Kubelet]]:
    folder: Path = tmp_path_factory.mktemp("lab")
    try:
        servers = find()
        with control_plane(folder, servers) as plane, kubelet(plane, folder, 3) as nodes:
            plane.apply(stateful_set(3))
            until(lambda: pods(plane, "db-"), "made")  # they wait for their files
            plane.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf"},
                         "data": {"server.conf": 'save ""\n'}})  # fmt: skip
            plane.apply(
                {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": {"word": SECRET}}
            )
            try:
                until(lambda: ready(plane) == 3, "ready")
            except AssertionError as error:
                found = [pod["status"] for pod in pods(plane, "db-").values()]
                raise AssertionError(f"{error}: {found} {nodes.errors} {nodes.log('default', 'db-0')}") from error
            yield plane, nodes
            assert not nodes.errors
    except AssetError as error:
        pytest.skip(str(error))


def ready(plane: ControlPlane) -> int:
    found: int = plane.admin.get("/apis/apps/v1/namespaces/default/statefulsets/db")["status"].get("readyReplicas", 0)
    return found


def pods(plane: ControlPlane, prefix: str) -> dict[str, Any]:
    found = plane.admin.items("/api/v1/namespaces/default/pods")
    return {pod["metadata"]["name"]: pod for pod in found if pod["metadata"]["name"].startswith(prefix)}


def test_pods_are_processes_with_their_files_and_secrets(lab: tuple[ControlPlane, Kubelet]) -> None:
    plane, nodes = lab
    found = pods(plane, "db-")
    assert len({pod["spec"]["nodeName"] for pod in found.values()}) == 3
    assert len({pod["status"]["podIP"] for pod in found.values()}) == 3
    for name, pod in found.items():
        assert ask(6379, "PING", host=pod["status"]["podIP"], password=SECRET) == "PONG"
        folder = ask(6379, "CONFIG", "GET", "dir", host=pod["status"]["podIP"], password=SECRET)[1].decode()
        assert name in folder
    assert "Ready to accept connections" in nodes.log("default", "db-0")


def test_a_process_that_dies_is_started_again(lab: tuple[ControlPlane, Kubelet]) -> None:
    plane, nodes = lab
    before = nodes.pid("default", "db-0")
    nodes.kill("default", "db-0")
    until(lambda: nodes.pid("default", "db-0") not in (None, before), "started again")
    until(lambda: restarts(plane, "db-0") == 1 and ready(plane) == 3, "told")


def restarts(plane: ControlPlane, name: str) -> int:
    found: int = pods(plane, name)[name]["status"]["containerStatuses"][0]["restartCount"]
    return found


def test_a_machine_is_drained_as_budgets_allow_and_lost(lab: tuple[ControlPlane, Kubelet]) -> None:
    plane, nodes = lab
    plane.apply({"apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget", "metadata": {"name": "db"},
                 "spec": {"maxUnavailable": 1, "selector": {"matchLabels": LABELS}}})  # fmt: skip
    budget = "/apis/policy/v1beta1/namespaces/default/poddisruptionbudgets/db"
    until(lambda: plane.admin.get(budget).get("status", {}).get("disruptionsAllowed") == 1, "allowed")
    first, second = (nodes.machines.of("default", name) for name in ("db-0", "db-1"))
    nodes.machines.drain(first)
    until(lambda: unschedulable(plane, "db-0"), "no machine is left for it")
    until(lambda: allowed(plane) == 0, "no more")
    assert not nodes.machines.evict("default", "db-1")
    nodes.machines.cordon(first, closed=False)
    until(lambda: ready(plane) == 3, "back")
    nodes.lose(second)
    until(lambda: ready(plane) == 2 and unschedulable(plane, "db-1"), "made anew, and nowhere to go")
    nodes.join(second)
    until(lambda: ready(plane) == 3, "whole")
    before = pods(plane, "db-0")["db-0"]["status"]["podIP"]
    nodes.fail(nodes.machines.of("default", "db-0"))
    until(lambda: ready(plane) == 2, "its power is cut")
    nodes.recover(nodes.machines.of("default", "db-0"))
    until(lambda: ready(plane) == 3, "back")
    assert pods(plane, "db-0")["db-0"]["status"]["podIP"] != before


def allowed(plane: ControlPlane) -> int:
    found: int = plane.admin.get("/apis/policy/v1beta1/namespaces/default/poddisruptionbudgets/db")["status"][
        "disruptionsAllowed"
    ]
    return found


def unschedulable(plane: ControlPlane, name: str) -> bool:
    found = pods(plane, name).get(name, {}).get("status", {}).get("conditions") or ()
    return any(one.get("reason") == "Unschedulable" for one in found)


@pytest.mark.parametrize(("words", "phase"), [(["--version"], "Succeeded"), (["no-such-command"], "Failed")],
                         ids=["well", "badly"])  # fmt: skip
def test_a_job_of_ours_ends(lab: tuple[ControlPlane, Kubelet], words: list[str], phase: str) -> None:
    plane, _ = lab
    name = phase.lower()
    container = {"name": "one", "image": "registry/mmcache:1", "args": words}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    plane.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
                 "spec": {"backoffLimit": 0, "template": template}})  # fmt: skip
    until(lambda: {pod["status"].get("phase") for pod in pods(plane, name).values()} == {phase}, phase)


def test_what_is_wrong_is_told_by_the_server(lab: tuple[ControlPlane, Kubelet]) -> None:
    plane, _ = lab
    wrong = [
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "x"}, "spec": {}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "date": {}},
        stateful_set(-1),
    ]
    found = plane.dry_run([*wrong, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}])
    assert [said.partition(":")[0] for said in found] == ["PodDisruptionBudget/x", "ConfigMap/x", "StatefulSet/db"]
    assert "the server has no policy/v1" in found[0]
    assert "date" in found[1]


def test_who_has_no_right_is_refused(lab: tuple[ControlPlane, Kubelet]) -> None:
    plane, _ = lab
    plane.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody"}})
    api = plane.api_of(plane.service_account_token("default", "nobody"))
    with pytest.raises(ApiError, match="cannot list resource") as refused:
        api.items("/api/v1/namespaces/default/secrets")
    api.close()
    assert refused.value.code == 403
