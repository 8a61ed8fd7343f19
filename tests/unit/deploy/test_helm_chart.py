"""The chart, linted and rendered by helm itself; every object by the schema of the Kubernetes version it is for."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.unit.deploy.chart import (
    CHART,
    VERSIONS,
    WISHES,
    Manifest,
    Rendered,
    definition_spec,
    helm,
    needs_helm,
    objects_in,
    pods,
    rendered,
    template,
)  # fmt: skip
from tests.unit.deploy.kit import DEPLOY, complaints, jsonschema, yaml

from mmcache.operator.crd import definition

pytestmark = needs_helm
RECOMMENDED = {"name", "instance", "component", "version", "part-of", "managed-by"}


@pytest.fixture(params=[(wish, version) for wish in WISHES for version in VERSIONS], ids="-".join, name="found")
def of_each(request: pytest.FixtureRequest) -> Rendered:
    return rendered(*request.param)


def test_helm_has_nothing_against_it() -> None:
    for wish, values in WISHES.items():
        done = helm("lint", "--strict", str(CHART), "--values", "-", put=json.dumps(values))
        assert done.returncode == 0, f"{wish}: {done.stdout}"
        assert "[WARNING]" not in done.stdout


def test_what_is_packaged_is_the_same(tmp_path: Path) -> None:
    done = helm("package", str(CHART), "--destination", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.glob("mmcache-*.tgz")
    values = json.dumps(WISHES["own-secrets"])
    ours, theirs = (
        helm("template", "mmcache", str(chart), "--include-crds", "--values", "-", put=values).stdout
        for chart in (CHART, file)
    )
    assert ours == theirs != ""


@cache
def validator(version: str, kind: str, api_version: str) -> Any:
    """Kubernetes' own schema, unknown fields forbidden. The oldest that are to be had are of 1.25."""
    kubernetes = pytest.importorskip("kubernetes_validate")
    root = Path(kubernetes.__file__).parent / "kubernetes-json-schema" / f"v{version}-local-strict"
    group, _, number = api_version.rpartition("/")
    prefix = f"{group.split('.')[0]}-" if group else ""
    schema = json.loads((root / f"{kind.lower()}-{prefix}{number}.json").read_text("utf-8"))
    return jsonschema.Draft202012Validator(schema, registry=_words(root))


@cache
def _words(root: Path) -> Any:
    from referencing import Registry, Resource

    schema = json.loads((root / "_definitions.json").read_text("utf-8"))
    return Resource.from_contents(schema) @ Registry()


def faults(thing: Manifest, version: str) -> list[str]:
    api, kind = thing["apiVersion"], thing["kind"]
    if api.startswith("monitoring.coreos.com/"):
        return complaints(thing, "prometheus/operator.schema.json")
    if kind == "MultimodalCache":
        checked = jsonschema.Draft202012Validator(definition_spec())
    else:
        # The definition is one file for all: an old server forgets what it does not know.
        asked = max(version, "1.27.0" if kind == "CustomResourceDefinition" else "1.25.0")
        if api == "policy/v1beta1":  # 1.25 has it no more; the fields that are used are the same
            thing = {**thing, "apiVersion": "policy/v1"}
        checked = validator(asked, kind, thing["apiVersion"])
    return [f"{kind} {'/'.join(map(str, e.absolute_path))}: {e.message[:300]}" for e in checked.iter_errors(thing)]


def test_every_object_fits_its_servers_schema(found: Rendered) -> None:
    for thing in found.objects:
        assert faults(thing, found.version) == [], thing["metadata"]["name"]


def test_the_schemas_notice_what_is_wrong() -> None:
    found = rendered("everything")
    for kind, path, value in (
        ("Deployment", ("spec", "replica"), 2), ("Service", ("spec", "ports", 0, "port"), "eighty"),
        ("NetworkPolicy", ("spec", "podselector"), {}), ("MultimodalCache", ("spec", "minShards"), 2),
        ("MultimodalCache", ("spec", "minshards"), 3), ("ServiceMonitor", ("spec", "endpoint"), []),
    ):  # fmt: skip
        broken = json.loads(json.dumps(found.of(kind)[0]))
        place = broken
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
        assert faults(broken, found.version), (kind, path)


def test_each_version_gets_the_kinds_that_it_serves() -> None:
    for version, budget, scaler in (
        ("1.20.2", "policy/v1beta1", "autoscaling/v2beta2"), ("1.21.0", "policy/v1", "autoscaling/v2beta2"),
        ("1.32.0", "policy/v1", "autoscaling/v2"),
    ):  # fmt: skip
        found = rendered("everything", version)
        assert {each["apiVersion"] for each in found.of("PodDisruptionBudget")} == {budget}
        assert {each["apiVersion"] for each in found.of("HorizontalPodAutoscaler")} == {scaler}


def test_the_webhook_is_there_where_rules_in_the_definition_are_not() -> None:
    assert rendered(version="1.20.2").of("ValidatingWebhookConfiguration")
    assert not rendered(version="1.25.0").of("ValidatingWebhookConfiguration")
    done = template({"operator": {"webhook": {"enabled": False}}}, "1.20.2")
    assert "ValidatingWebhookConfiguration" not in done.stdout


def test_an_older_server_is_refused() -> None:
    done = template({}, "1.19.0")
    assert done.returncode != 0
    assert "incompatible with Kubernetes v1.19.0" in done.stderr


def test_monitors_are_there_where_somebody_reads_them() -> None:
    assert not rendered().of("ServiceMonitor")
    done = template({}, apis=["monitoring.coreos.com/v1"])
    assert "kind: ServiceMonitor" in done.stdout
    assert "kind: PrometheusRule" in done.stdout


def test_the_rules_are_those_of_the_kit() -> None:
    ours = (DEPLOY / "prometheus/rules.yml").read_text("utf-8")
    copy = CHART / "files/rules.yml"
    assert copy.read_text("utf-8") == ours, f"cp deploy/prometheus/rules.yml {copy.relative_to(DEPLOY.parent)}"
    (made,) = rendered("everything").of("PrometheusRule")
    assert made["spec"] == yaml.safe_load(ours)


def test_a_release_has_the_rules_of_its_parts() -> None:
    """An operator by itself must not complain that no cache says anything."""
    groups = [group["name"] for group in yaml.safe_load((DEPLOY / "prometheus/rules.yml").read_text("utf-8"))["groups"]]
    for wish, wanted in (
        ("default", groups), ("operator-alone", ["mmcache.clusters"]), ("proxy-alone", groups[:-1]),
    ):  # fmt: skip
        done = template({**WISHES[wish], "metrics": {"rules": {"enabled": True}}})
        (made,) = [thing for thing in objects_in(done.stdout) if thing["kind"] == "PrometheusRule"]
        assert [group["name"] for group in made["spec"]["groups"]] == wanted, wish
        assert faults(made, VERSIONS[-1]) == []


def test_the_definition_is_the_operators() -> None:
    """Nothing of it is a template: helm installs it before it looks at anything else."""
    there = yaml.safe_load((CHART / "crds/multimodalcache.yaml").read_text("utf-8"))
    assert there == definition(), "mmcache operator crd > deploy/helm/mmcache/crds/multimodalcache.yaml"


def test_names_and_labels_are_as_is_usual(found: Rendered) -> None:
    seen = set()
    for thing in found.objects:
        told = thing["metadata"]
        if thing["kind"] == "CustomResourceDefinition":
            continue
        assert "mmcache" in told["name"] or told["name"].startswith("shared"), told["name"]
        assert (thing["kind"], told["name"]) not in seen
        seen.add((thing["kind"], told["name"]))
        assert {f"app.kubernetes.io/{name}" for name in RECOMMENDED} | {"helm.sh/chart"} <= told["labels"].keys()
        assert "namespace" not in told, "helm says where"


@pytest.mark.parametrize("wish", WISHES)
def test_a_long_name_of_a_release_is_cut(wish: str) -> None:
    done = template(WISHES[wish], name="a-release-with-the-longest-name-that-helm-lets-pass-x")
    assert done.returncode == 0, done.stderr
    dns = [name for thing in objects_in(done.stdout) if "." not in (name := thing["metadata"]["name"])]
    assert dns
    assert all(len(name) <= 63 and not name.endswith("-") for name in dns)


def test_what_cannot_be_changed_is_the_same_whatever_is_wished() -> None:
    """A Deployment's selector, or a Job's, of another release or value would make `helm upgrade` fail."""
    for version in VERSIONS:
        for wish in WISHES:
            for thing in rendered(wish, version).of("Deployment"):
                component = thing["metadata"]["labels"]["app.kubernetes.io/component"]
                assert thing["metadata"]["name"] == f"mmcache-{component}"
                assert thing["spec"]["selector"]["matchLabels"] == {
                    "app.kubernetes.io/name": "mmcache", "app.kubernetes.io/instance": "mmcache",
                    "app.kubernetes.io/component": component,
                }  # fmt: skip


def test_nobody_runs_as_root_or_may_become_it(found: Rendered) -> None:
    """As the `restricted` profile of pod security asks; and a root file system that is only read."""
    for name, pod in pods(found):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        assert not [volume for volume in spec.get("volumes", ()) if "hostPath" in volume]
        for each in spec["containers"]:
            assert each["securityContext"] == {
                "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
            }, name  # fmt: skip
            assert each["resources"]["requests"].keys() == {"cpu", "memory"}
            assert "memory" in each["resources"]["limits"]
            assert not each["image"].endswith(":latest")
            assert ":" in each["image"]


def test_only_those_who_talk_to_the_api_server_have_a_token(found: Rendered) -> None:
    with_token = {name for name, pod in pods(found) if pod["spec"]["automountServiceAccountToken"]}
    talk = {"Deployment/mmcache-operator", "Job/mmcache-definition", "Job/mmcache-removal"}
    there = {name for name, _ in pods(found)}
    assert with_token == talk & there
    assert all(account["automountServiceAccountToken"] is False for account in found.of("ServiceAccount"))
