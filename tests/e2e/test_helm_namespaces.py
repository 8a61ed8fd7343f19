"""One operator for several namespaces: teams without rights in the cluster, a quota, an operator that goes first.

What docs/how-to/kubernetes.md says of them, on a real API server. Each test goes on where the one before it ended.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.helm_stage import Stage, until
from tests.unit.deploy.chart import CHART, HELM, needs_helm

pytest.importorskip("kopf")
pytest.importorskip("lightkube")

from mmcache.lab.kubernetes.build import find
from mmcache.lab.kubernetes.control_plane import control_plane
from mmcache.lab.kubernetes.kubelet import kubelet
from mmcache.model.errors import AssetError
from mmcache.scale.binaries import binary

pytestmark = [pytest.mark.slow, needs_helm]
WITHOUT = {"proxy": {"enabled": False}, "dashboard": {"enabled": False}}
OPERATOR = {**WITHOUT, "operator": {"watch": "cluster"}, "cluster": {"enabled": False}}
TEAM = {
    **WITHOUT, "operator": {"enabled": False}, "crds": {"upgrade": False},
    "cluster": {"spec": {"memory": "32Mi", "maxShards": 3, "replicas": 0, "drainSeconds": 60}},
}  # fmt: skip
MAY = {
    "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
    "metadata": {"name": "mmcache-user"},
    "rules": [{"apiGroups": ["mmcache.dev"], "resources": ["multimodalcaches"],
               "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"]}],
}  # fmt: skip


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    try:
        servers = find()
        binary("valkey")
    except AssetError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("helm")
    with control_plane(folder, servers) as plane, kubelet(plane, folder, machines=4) as machines:
        for name in ("ops", "audio", "video"):
            plane.kubectl("create", "namespace", name)
        yield Stage(plane, machines, "", folder)


def helm(
    stage: Stage, namespace: str, *words: str, put: Any = None, of: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """As administrator, or as whose kubeconfig it is."""
    assert HELM is not None
    home = {"KUBECONFIG": str(of or stage.plane.kubeconfig), "HOME": str(stage.folder), "PATH": os.defpath}
    given = [] if put is None else ["--values", "-"]
    return subprocess.run(
        [HELM, "--namespace", namespace, *words, *given, "--timeout", "300s"], env=home, text=True, timeout=600,
        input=None if put is None else json.dumps(put), capture_output=True, check=False,
    )  # fmt: skip


def cache(stage: Stage, namespace: str) -> dict[str, Any]:
    """The status of the team's resource, with a key for the deletion that is under way."""
    done = stage.plane.kubectl("--namespace", namespace, "get", "mmc", "mmcache", "--output", "json", check=False)
    found = json.loads(done.stdout) if done.returncode == 0 else {}
    return {**found.get("status", {}), "leaving": found.get("metadata", {}).get("deletionTimestamp")} if found else {}


def left(stage: Stage, namespace: str) -> list[str]:
    words = ("--namespace", namespace, "get", "statefulsets,pods,services,poddisruptionbudgets", "--output", "name")
    return stage.plane.kubectl(*words).stdout.split()


def team(stage: Stage, namespace: str) -> Path:
    """Kubernetes' own role `admin` in one namespace (its parts: no controller adds them up here), and the right to a
    MultimodalCache there."""
    stage.plane.kubectl("--namespace", namespace, "create", "serviceaccount", "team")
    for role in (*(f"system:aggregate-to-{kind}" for kind in ("admin", "edit", "view")), "mmcache-user"):
        name = role.replace(":", "-")
        stage.plane.kubectl("--namespace", namespace, "create", "rolebinding", name, f"--clusterrole={role}",
                            f"--serviceaccount={namespace}:team")  # fmt: skip
    return stage.plane.as_service_account(namespace, "team")


def test_teams_need_no_rights_in_the_cluster(stage: Stage) -> None:
    done = helm(stage, "ops", "install", "mmcache", str(CHART), put=OPERATOR)
    assert done.returncode == 0, done.stderr
    stage.plane.apply(MAY)
    for namespace in ("audio", "video"):
        theirs = team(stage, namespace)
        done = helm(stage, namespace, "install", "mmcache", str(CHART), "--skip-crds", put=TEAM, of=theirs)
        assert done.returncode == 0, done.stderr
        assert "this one has none" in done.stdout
    for namespace in ("audio", "video"):
        until(lambda at=namespace: cache(stage, at).get("phase") == "Steady", f"{namespace} is Steady")  # type: ignore[misc]


def test_with_an_operator_of_its_own_a_team_is_refused(stage: Stage) -> None:
    """The operator may do more than `admin`: nobody gives away what he has not."""
    stage.plane.kubectl("create", "namespace", "text")
    theirs = team(stage, "text")
    own = {**TEAM, "operator": {"enabled": True, "webhook": {"enabled": False}}}
    done = helm(stage, "text", "install", "mmcache", str(CHART), "--skip-crds", put=own, of=theirs)
    assert done.returncode != 0
    assert "attempting to grant RBAC permissions not currently held" in done.stderr
    done = helm(stage, "text", "install", "second", str(CHART), put=TEAM | {"crds": {"upgrade": True}}, of=theirs)
    assert done.returncode != 0
    assert "customresourcedefinitions" in done.stderr or "clusterroles" in done.stderr


def test_a_quota_is_told_where_the_guide_says(stage: Stage) -> None:
    stage.plane.kubectl("create", "namespace", "small")
    stage.plane.kubectl("--namespace", "small", "create", "quota", "few", "--hard=pods=2")
    counted = {"status": {"hard": {"pods": "2"}, "used": {"pods": "0"}}}  # by a controller, elsewhere
    stage.plane.admin.patch("/api/v1/namespaces/small/resourcequotas/few/status", counted)
    done = helm(stage, "small", "install", "mmcache", str(CHART), "--skip-crds", put=TEAM)
    assert done.returncode == 0, done.stderr

    def said() -> str:
        return stage.plane.kubectl("--namespace", "small", "describe", "statefulset").stdout

    until(lambda: "exceeded quota: few" in said(), "the quota is named")
    stage.plane.kubectl("--namespace", "small", "delete", "quota", "few")
    until(lambda: cache(stage, "small").get("phase") == "Steady", "it goes on when there is room")
    assert helm(stage, "small", "uninstall", "mmcache").returncode == 0
    until(lambda: not left(stage, "small"), "nothing is left")


def test_a_team_takes_its_cluster_away(stage: Stage) -> None:
    assert helm(stage, "audio", "uninstall", "mmcache").returncode == 0
    until(lambda: not left(stage, "audio"), "nothing of it is left")
    assert cache(stage, "audio") == {}
    assert cache(stage, "video")["phase"] == "Steady"


def test_where_the_operator_went_first_the_finalizer_is_taken_by_hand(stage: Stage) -> None:
    assert helm(stage, "ops", "uninstall", "mmcache").returncode == 0
    until(lambda: not left(stage, "ops"), "the operator is gone")
    assert len([name for name in left(stage, "video") if name.startswith("pod/")]) == 3, "nodes go on without it"
    assert helm(stage, "video", "uninstall", "mmcache").returncode == 0
    until(lambda: cache(stage, "video").get("leaving"), "its resource waits for whoever drains it")
    assert left(stage, "video")
    stage.plane.kubectl("--namespace", "video", "patch", "mmc", "mmcache", "--type", "merge", "--patch",
                        '{"metadata": {"finalizers": null}}')  # fmt: skip
    until(lambda: not left(stage, "video"), "what belonged to it goes with it")
    assert cache(stage, "video") == {}
