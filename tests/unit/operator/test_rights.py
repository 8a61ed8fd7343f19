"""The operator asks for the rights that it uses, and uses those that it asks for."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.unit.operator.fake_server import FakeServer
from tests.unit.operator.test_status import made
from tests.unit.operator.wishes import resource, wish

from mmcache.model.errors import KubernetesError
from mmcache.operator import events, rbac
from mmcache.operator.api import CACHES, PODS, SECRETS, STATEFUL_SETS
from mmcache.operator.cluster import Cluster
from mmcache.operator.lease import Leadership
from mmcache.operator.platform import KubernetesPlatform
from mmcache.scale.controller import never
from mmcache.scale.observed import Observed
from mmcache.scale.status import Happened

_PARTS = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/[^/]+(?:/namespaces/[^/]+)?/(?P<what>[a-z]+)(?P<name>/[^/]+)?(?P<sub>/[a-z]+)?"
)
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}
BY_KOPF = {
    ("mmcache.dev", "multimodalcaches", "list"), ("mmcache.dev", "multimodalcaches", "watch"),
    ("mmcache.dev", "multimodalcaches", "patch"),
}  # fmt: skip
BY_ADMISSION = {("mmcache.dev", "multimodalcaches/finalizers", "update")}
"""Asked of whoever sets `blockOwnerDeletion`, where OwnerReferencesPermissionEnforcement is on."""


def granted() -> set[tuple[str, str, str]]:
    return {
        (rule["apiGroups"][0], rule["resources"][0], verb)
        for rule in (*rbac.rules(), *rbac.lease_rules())
        for verb in rule["verbs"]
    }


def used(server: FakeServer) -> set[tuple[str, str, str]]:
    found = set()
    for method, path in server.calls:
        parts = _PARTS.fullmatch(path)
        assert parts is not None, path
        verb = "list" if method == "GET" and not parts["name"] else _VERBS[method]
        what = parts["what"] + (parts["sub"] or "")
        found.add((parts["group"] or "", what, verb))
        if method == "PATCH" and parts["what"] in ("statefulsets", "services", "configmaps", "poddisruptionbudgets"):
            found.add((parts["group"] or "", what, "create"))  # an apply of what is not there yet
    return found


def test_no_more_and_no_less(monkeypatch: pytest.MonkeyPatch) -> None:
    server = FakeServer()
    platform = KubernetesPlatform(server.api(), wish())
    platform.start_shard(0, 3)
    server.make_pods()
    platform.mark(Observed(tuple(platform.members())), "2026-01-01T00:00:00Z")
    platform.replace(platform.members()[0])
    platform.stop_shard(0, 1)
    platform.repair()
    platform.stop_shard(0)
    server.put(CACHES.path("inference", "shared"), resource({"authSecretRef": {"name": "s"}}))
    server.put(SECRETS.path("inference", "s"), {"metadata": {}, "data": {"password": "aGkK"}})

    class Idle:
        seen = None

        def __init__(self, *_: object) -> None: ...

        def turn(self, *_: object) -> object:
            return made(happened=(Happened("Meet", "a meets b"),))

        def saved(self) -> dict[str, Any]:
            return {}

    monkeypatch.setattr("mmcache.operator.cluster.Controller", Idle)
    cluster = Cluster(server.api(), "inference", "shared")
    cluster.turn(never)
    events.post(server.api(), wish(), Happened("Meet", "a meets b"), "2026-01-01T00:00:00Z")
    lease = Leadership(server.api(), "home", "lease", "one")
    lease.renew()
    lease.renew()
    assert used(server) | BY_KOPF | BY_ADMISSION == granted()


def test_nothing_is_granted_wholesale() -> None:
    for rule in rbac.rules():
        assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
    secrets = [rule["verbs"] for rule in rbac.rules() if rule["resources"] == ["secrets"]]
    assert secrets == [["get"]]


@pytest.mark.parametrize("namespaces", [(), ("a", "b")], ids=["everywhere", "two"])
def test_the_manifests_fit_kubernetes_schemas(namespaces: tuple[str, ...]) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    found = rbac.manifests("account", "home", namespaces)
    for thing in found:
        validate.validate(thing, "1.33", strict=True)
    kinds = [thing["kind"] for thing in found]
    assert kinds.count("ClusterRole") == (0 if namespaces else 1)
    assert {thing["metadata"].get("namespace") for thing in found} == (
        {"home", "a", "b"} if namespaces else {"home", None}
    )


def test_pods_and_stateful_sets_have_paths_of_the_api() -> None:
    assert PODS.path("n", "p") == "/api/v1/namespaces/n/pods/p"
    assert STATEFUL_SETS.path() == "/apis/apps/v1/statefulsets"
    assert CACHES.path("n", "x", "status") == "/apis/mmcache.dev/v1alpha1/namespaces/n/multimodalcaches/x/status"


@pytest.mark.parametrize("name", ["../../other/secrets/theirs", "..", "s?watch=1", "a/b", "s#", "%2e%2e", "a\n"])
def test_no_name_leads_elsewhere(name: str) -> None:
    """A client takes `..` out of a path: what another namespace has would be read."""
    server = FakeServer()
    for ask in (
        lambda: server.api().get(SECRETS, "inference", name), lambda: server.api().list(SECRETS, name),
        lambda: server.api().delete(STATEFUL_SETS, "inference", name),
    ):  # fmt: skip
        with pytest.raises(KubernetesError, match="is no name"):
            ask()
    assert server.calls == []
