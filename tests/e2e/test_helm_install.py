"""`helm install`, `upgrade` and `uninstall` for real: a kube-apiserver 1.20 with its controllers, the operator, proxies
and dashboard as the chart starts them, and a Valkey cluster that the operator makes. In order: each test goes on where
the one before it ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count

import pytest
from tests.e2e.helm_stage import NAMESPACE, RELEASE, Stage, embedded, models, until
from tests.unit.deploy.chart import CHART, VERSIONS, WISHES, needs_helm, rendered

pytest.importorskip("kopf")
pytest.importorskip("lightkube")
pytest.importorskip("uvicorn")
pytest.importorskip("duckdb")

from mmcache.lab.kubernetes.build import find
from mmcache.lab.kubernetes.control_plane import control_plane
from mmcache.lab.kubernetes.kubelet import kubelet
from mmcache.model.errors import AssetError
from mmcache.scale.binaries import binary

pytestmark = [pytest.mark.slow, needs_helm]
SECRETS = ("mmcache-auth", "mmcache-proxy", "mmcache-dashboard", "mmcache-operator-webhook")
SMALL = {"memory": "32Mi", "maxShards": 3, "drainSeconds": 60}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    try:
        servers = find()
        binary("valkey")
    except AssetError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("helm")
    with models() as upstream, control_plane(folder, servers) as plane, kubelet(plane, folder, machines=4) as machines:
        plane.kubectl("create", "namespace", NAMESPACE)
        yield Stage(plane, machines, upstream, folder)


def values(stage: Stage, **cache: str) -> dict[str, object]:
    config = {"cache": {"memory": "64MiB", "disk": "256MiB", **cache}, "server": {"drain_seconds": 5}}
    return {"proxy": {"upstream": {"url": stage.upstream}, "config": config}, "cluster": {"spec": SMALL}}


@pytest.fixture(scope="module")
def installed(stage: Stage) -> Stage:
    told = stage.put("install", **values(stage))
    assert f"kubectl -n {NAMESPACE} get mmc {RELEASE} -w" in told
    stage.steady()
    return stage


def test_one_command_makes_all_of_it(installed: Stage) -> None:
    until(lambda: installed.steady()["status"]["readyNodes"] == 6, "six nodes that are ready")
    assert installed.steady()["status"]["shards"] == 3
    until(lambda: len(installed.pods("proxy")) == 2, "two proxies that are ready")
    until(lambda: len(installed.pods("operator")) == 1, "the operator is ready")
    until(lambda: len(installed.pods("dashboard")) == 1, "the dashboard is ready")
    table = installed.plane.kubectl("--namespace", NAMESPACE, "get", "mmc").stdout.split("\n")
    assert table[0].split() == ["NAME", "SHARDS", "QPS", "PHASE", "MOVED", "HIT", "RATIO", "AGE"]
    assert "Steady" in table[1]


def test_what_runs_can_do_nothing_that_it_need_not(installed: Stage) -> None:
    account = f"system:serviceaccount:{NAMESPACE}:mmcache-operator"
    for question, answer in (
        (("get", "secrets/mmcache-auth"), "yes"), (("get", "secrets/mmcache-proxy"), "no"), (("list", "secrets"), "no"),
        (("create", "pods"), "no"), (("delete", "multimodalcaches"), "no"), (("get", "nodes"), "no"),
        (("patch", "statefulsets"), "yes"),
    ):  # fmt: skip
        words = ("--namespace", NAMESPACE, "auth", "can-i", *question, "--as", account)
        assert installed.plane.kubectl(*words, check=False).stdout.strip() == answer, question


def test_an_upgrade_keeps_secrets_and_nodes_and_what_they_hold(installed: Stage) -> None:
    """It restarts the proxies, since their configuration changes: there is no DNS here, so they are told an address."""
    before = {name: installed.get("secret", name)["data"] for name in SECRETS}
    until(lambda: len(installed.pods("cluster")) == 6, "six nodes that are ready")
    nodes = {pod["metadata"]["uid"]: pod["status"]["podIP"] for pod in installed.pods("cluster")}
    old = {pod["metadata"]["uid"] for pod in installed.pods("proxy")}
    installed.put("upgrade", **values(installed, shared=f"valkey://{next(iter(nodes.values()))}:6379?cluster=true"))
    assert {name: installed.get("secret", name)["data"] for name in SECRETS} == before

    def others() -> list[str]:
        found = installed.pods("proxy")
        new = {pod["metadata"]["uid"] for pod in found}
        return [pod["status"]["podIP"] for pod in found] if len(new) == 2 and not new & old else []

    one, two = until(others, "two other proxies")
    until(lambda: {pod["metadata"]["uid"] for pod in installed.pods("cluster")} == nodes.keys(), "the same nodes")
    texts = (f"a cat on mat {number}" for number in count())

    def shared() -> bool:
        """A busy machine may keep a node from answering in time: then that text is computed, and another is tried."""
        text, keys = next(texts), installed.steady()["status"]["keys"]
        first, vector = embedded(one, text)
        assert first == "miss"
        until(lambda: installed.steady()["status"]["keys"] > keys, "what was computed is in the cluster")
        then, same = embedded(two, text)
        assert same == vector
        return then == "hit"

    until(shared, "what one proxy has computed, another serves")


def test_an_upgrade_brings_the_definition_up_to_date(installed: Stage) -> None:
    """helm itself leaves crds/ alone. A field that is new with it is known when it is first said."""
    name, field = "multimodalcaches.mmcache.dev", "drainSeconds"
    there = installed.get("crd", name)["spec"]
    version = "/spec/versions/0"
    take = [
        {"op": "remove", "path": f"{version}/additionalPrinterColumns"},
        {"op": "remove", "path": f"{version}/schema/openAPIV3Schema/properties/spec/properties/{field}"},
    ]
    installed.plane.kubectl("patch", "crd", name, "--type", "json", "--patch", json.dumps(take))
    assert installed.get("crd", name)["spec"] != there
    said = ("--reuse-values", "--set", f"cluster.spec.{field}=61", "--disable-openapi-validation")
    installed.helm("upgrade", RELEASE, str(CHART), *said)
    assert installed.get("crd", name)["spec"] == there
    assert installed.get("multimodalcache", RELEASE)["spec"][field] == 61


def test_the_server_has_nothing_against_whatever_is_wished(installed: Stage) -> None:
    """Server-side dry run, where nothing is yet; the Prometheus operator's kinds are not known here."""
    installed.plane.kubectl("create", "namespace", "empty")
    for wish in WISHES:
        things = [
            thing for thing in rendered(wish, VERSIONS[0]).objects
            if not thing["apiVersion"].startswith("monitoring.coreos.com")
            and thing["kind"] != "CustomResourceDefinition"
        ]  # fmt: skip
        assert installed.plane.dry_run(things, "empty") == [], wish


def test_the_server_refuses_what_the_schema_of_the_resource_does_not_know(installed: Stage) -> None:
    (resource,) = rendered("default", VERSIONS[0]).of("MultimodalCache")
    (said,) = installed.plane.dry_run([{**resource, "spec": {**resource["spec"], "minShards": 1}}], "empty")
    assert "minShards" in said


def test_everything_else_may_change_in_a_release_that_runs(installed: Stage) -> None:
    """No field that the server holds fast; and back."""
    installed.plane.kubectl("create", "priorityclass", "high", "--value", "1000")
    installed.plane.kubectl("label", "nodes", "--all", "disk=ssd")
    wished = {name: part for name, part in WISHES["everything"].items() if name not in ("cluster", "metrics")}
    unheard = {**WISHES["everything"]["operator"], "webhook": {"enabled": True}}  # the server reaches no Service here
    installed.put("upgrade", **{**wished, "operator": unheard, "cluster": {"spec": SMALL}})
    assert installed.get("horizontalpodautoscaler", "mmcache-proxy")
    assert installed.get("persistentvolumeclaim", "mmcache-dashboard")
    assert not installed.get("role", "mmcache-operator"), "it serves all namespaces now"
    installed.helm("rollback", RELEASE, "3")
    assert not installed.get("horizontalpodautoscaler", "mmcache-proxy")
    assert installed.get("role", "mmcache-operator")
    assert installed.steady()["status"]["keys"] > 0


def test_uninstalling_leaves_the_definition_only(installed: Stage) -> None:
    """The operator is ended last: before, its resource is gone, and all that belongs to it."""
    installed.helm("uninstall", RELEASE, "--timeout", "300s")
    assert installed.get("multimodalcache", RELEASE) == {}
    kinds = "deployments,statefulsets,jobs,services,configmaps,secrets,networkpolicies,poddisruptionbudgets,roles," \
            "rolebindings,serviceaccounts,pods"  # fmt: skip

    def left() -> list[str]:
        found = [f"{one['kind']}/{one['metadata']['name']}" for one in installed.all(kinds)]
        return [name for name in found if name not in ("ServiceAccount/default", "ConfigMap/kube-root-ca.crt")]

    until(lambda: not left(), f"nothing is left; there are {left()}")
    wide = json.loads(installed.plane.kubectl("get", "clusterroles,clusterrolebindings,validatingwebhookconfigurations",
                                              "--output", "json").stdout)["items"]  # fmt: skip
    assert not [one["metadata"]["name"] for one in wide if "mmcache" in one["metadata"]["name"]]
    assert installed.get("crd", "multimodalcaches.mmcache.dev"), "with it, clusters of others would go"
