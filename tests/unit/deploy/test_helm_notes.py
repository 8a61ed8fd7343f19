"""What helm prints after an install is true: names, ports, what is not there. And what else may be chosen."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.deploy.chart import CHART, WISHES, Manifest, helm, needs_helm, objects_in, template

pytestmark = needs_helm
MADE = '{"apiVersion": "v1", "kind": "Notes", "metadata": {"name": "notes"}, "text": {{ include "notes" . | toJson }} }'


def noted(tmp_path: Path, values: Mapping[str, Any]) -> tuple[str, list[Manifest]]:
    """The notes, which helm renders for a cluster only, and everything else."""
    chart = tmp_path / "mmcache"
    shutil.copytree(CHART, chart)
    text = (chart / "templates/NOTES.txt").read_text("utf-8")
    (chart / "templates/_notes.tpl").write_text(f'{{{{- define "notes" -}}}}{text}{{{{- end -}}}}')
    (chart / "templates/notes.yaml").write_text(MADE)
    words = ["template", "mmcache", str(chart), "--namespace", "vision", "--values", "-"]
    done = helm(*words, put=json.dumps(values))
    assert done.returncode == 0, done.stderr
    found = objects_in(done.stdout)
    (notes,) = [thing for thing in found if thing["kind"] == "Notes"]
    return str(notes["text"]), found


@pytest.mark.parametrize("wish", WISHES)
def test_the_notes_name_what_is_there(wish: str, tmp_path: Path) -> None:
    text, found = noted(tmp_path, WISHES[wish])
    services = {thing["metadata"]["name"]: thing for thing in found if thing["kind"] == "Service"}
    for name, port in re.findall(r"port-forward svc/(\S+) \d+:(\d+)", text):
        assert int(port) in {one["port"] for one in services[name]["spec"]["ports"]}
    for name, port in re.findall(r"http://(mmcache-\w+)\.vision:(\d+)/v1", text):
        assert int(port) in {one["port"] for one in services[name]["spec"]["ports"]}
    clusters = {thing["metadata"]["name"] for thing in found if thing["kind"] == "MultimodalCache"}
    assert set(re.findall(r"get mmc (\S+) -w", text)) == clusters
    made = {thing["metadata"]["name"] for thing in found if thing["kind"] == "Secret"}
    for part, name in (("auth", "auth"), ("proxy", "proxy"), ("dashboard", "dashboard")):
        assert (f"{part}.existingSecret" in text) == (f"mmcache-{name}" in made), part
    tests = [thing for thing in found if thing["metadata"].get("annotations", {}).get("helm.sh/hook") == "test"]
    assert ("helm -n vision test mmcache" in text) == bool(tests)
    assert "\n\n\n" not in text


def test_the_notes_say_what_is_missing(tmp_path: Path) -> None:
    for number, (wish, said) in enumerate((
        ("own-cache", "stands in front of http://vllm:8000"), ("operator-alone", "serves the namespace vision"),
        ("everything", "what the Secret model-server names"), ("proxy-alone", "Its caches share nothing"),
        ("tls", "must be for the name\n  mmcache.vision.svc\n"),
    )):  # fmt: skip
        assert said in noted(tmp_path / str(number), WISHES[wish])[0], wish
    text, _ = noted(tmp_path / "other", {"operator": {"enabled": False}})
    assert "this one has none" in text


def one(values: Mapping[str, Any], kind: str, name: str) -> Manifest:
    done = template(values)
    assert done.returncode == 0, done.stderr
    (found,) = [
        thing for thing in objects_in(done.stdout) if (thing["kind"], thing["metadata"]["name"]) == (kind, name)
    ]  # fmt: skip
    return found


def test_the_operators_account_may_have_annotations() -> None:
    values = {"operator": {"serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn"}}}}
    account = one(values, "ServiceAccount", "mmcache-operator")
    assert account["metadata"]["annotations"] == {"eks.amazonaws.com/role-arn": "arn"}
    assert "annotations" not in one({}, "ServiceAccount", "mmcache-operator")["metadata"]


def test_proxies_are_spread_as_is_said() -> None:
    zone = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
    chosen = {**zone, "labelSelector": {"matchLabels": {"team": "vision"}}}
    deployment = one({"proxy": {"topologySpreadConstraints": [zone, chosen]}}, "Deployment", "mmcache-proxy")
    first, second = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert first == {**zone, "labelSelector": deployment["spec"]["selector"]}
    assert second == chosen
    none = one({"proxy": {"topologySpreadConstraints": []}}, "Deployment", "mmcache-proxy")
    assert "topologySpreadConstraints" not in none["spec"]["template"]["spec"]


@pytest.mark.parametrize("label", ["app.kubernetes.io/name", "app.kubernetes.io/component", "helm.sh/chart"])
def test_labels_that_selectors_rest_on_are_not_for_taking(label: str) -> None:
    done = template({"labels": {label: "mine"}})
    assert done.returncode != 0
    assert "labels" in done.stderr
