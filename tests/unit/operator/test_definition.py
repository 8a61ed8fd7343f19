"""Schema, CEL rules, webhook and `ClusterSpec.faults` say the same of the same specs."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.operator.wishes import resource

from mmcache.operator import crd, reference, rules
from mmcache.operator.fields import BURST, CLUSTER
from mmcache.operator.handlers import refusals
from mmcache.operator.resource import OURS, faults

jsonschema = pytest.importorskip("jsonschema")
yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parents[3]

GOOD: dict[str, dict[str, Any]] = {
    "empty": {},
    "whole": {
        "minShards": 5, "maxShards": 9, "replicas": 2, "qpsThreshold": 12.5, "memory": "2Gi",
        "image": "valkey/valkey:9.1", "scaleIn": {"allowEviction": True}, "burst": {"factor": 3, "endFactor": 1},
        "authSecretRef": {"name": "secret"}, "tls": {"secretName": "tls"},
        "config": {"maxmemory-policy": "allkeys-lfu"}, "antiAffinity": "Preferred",
        "nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}],
    },
    "bytes": {"memory": 1 << 30},
    "least-memory": {"memory": 16 << 20},
    "most-memory": {"memory": 16 << 40},
    "most-memory-in-words": {"memory": "16Ti"},
    "memory-in-powers": {"memory": "1e9"},
    "memory-and-a-half": {"memory": "1.5Gi"},
    "no-replicas": {"replicas": 0},
    "most": {"minShards": 500, "maxShards": 500, "burst": {"mostShardsAStep": 50, "quietSeconds": 0}},
}  # fmt: skip
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "max-below-min": ({"minShards": 4, "maxShards": 3}, "maxShards"),
    "max-default-below-min": ({"minShards": 4}, "maxShards"),
    "ends-where-it-begins": ({"burst": {"factor": 1.5, "endFactor": 1.5}}, "burst.endFactor"),
    "ends-above": ({"burst": {"factor": 1.5, "endFactor": 2.5}}, "burst.endFactor"),
    "no-amount": ({"memory": "lots"}, "memory"),
    "negative-amount": ({"memory": "-1Gi"}, "memory"),
    "too-little-memory": ({"memory": 16_777_215}, "memory"),
    "no-machine-has-so-much": ({"memory": (16 << 40) + 1}, "memory"),
    "absurd-memory": ({"memory": "9Ei"}, "memory"),
    "absurd-memory-in-digits": ({"memory": "9" * 20}, "memory"),
    "absurd-memory-in-powers": ({"memory": "1e99"}, "memory"),
    "a-word": ({"minShards": "three"}, "minShards"),
    "yes-is-no-number": ({"replicas": True}, "replicas"),
    "half-a-shard": ({"minShards": 3.5, "maxShards": 9}, "minShards"),
    "another-place": ({"authSecretRef": {"name": "../../other/secrets/theirs"}}, "authSecretRef.name"),
    "another-kind": ({"tls": {"secretName": "s?watch=1"}}, "tls.secretName"),
    "a-program": ({"authSecretRef": {"name": "s", "key": "$(id)"}}, "authSecretRef.key"),
    "nameless": ({"authSecretRef": {}}, "name"),
    "two-directives": ({"config": {"maxclients": "9\nloadmodule /x"}}, "config.maxclients"),
    "a-silent-node": ({"nodeTimeoutSeconds": 0}, "nodeTimeoutSeconds"),
    "none-of-both": ({"antiAffinity": "Never"}, "antiAffinity"),
    "no-list": ({"tolerations": {"operator": "Exists"}}, "tolerations"),
    "no-name-in-a-list": ({"imagePullSecrets": [{"name": "a"}, {}]}, "name"),
    "no-label": ({"podLabels": {"a": 1}}, "podLabels.a"),
    "long": ({"image": "i" * 513}, "image"),
    "many": ({"config": {f"a-{number}": "1" for number in range(65)}}, "config"),
    "a-switch": ({"scaleIn": {"allowEviction": "no"}}, "scaleIn.allowEviction"),
}


def edges() -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Every field at its limits and beside them."""
    for field in (*CLUSTER, *BURST):
        step = 1 if field.type == "integer" else 0.25
        for name, value, good in (
            ("low", field.low, not field.above_low), ("below", None if field.low is None else field.low - step, False),
            ("high", field.high, True), ("above", None if field.high is None else field.high + step, False),
        ):  # fmt: skip
            if value is None:
                continue
            spec: dict[str, Any] = {"minShards": 3, "maxShards": 500, "burst": {"factor": 100, "endFactor": 1}}
            at = spec["burst"] if field.burst else spec
            at[field.name] = value
            if field.path in ("maxShards", "burst.endFactor") and name == "high":
                good = field.path == "maxShards"
            yield f"{field.path}-{name}", spec, good


def closed(schema: Any) -> Any:
    """Kubernetes' dialect (OpenAPI 3.0) in JSON schema's: an exclusive limit is a number there."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    if made.get("exclusiveMinimum") is True:
        made["exclusiveMinimum"] = made.pop("minimum")
    if made.get("x-kubernetes-int-or-string") is True:
        made["anyOf"] = [{"type": "integer"}, {"type": "string", "pattern": made.pop("pattern")}]
    return made


def root(cel: bool = True) -> dict[str, Any]:
    found: dict[str, Any] = crd.definition(cel)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def defaulted(spec: dict[str, Any], schema: dict[str, Any] | None = None) -> dict[str, Any]:
    """As the API server fills it."""
    schema = root()["properties"]["spec"] if schema is None else schema
    made = copy.deepcopy(spec)
    for name, told in schema["properties"].items():
        if name not in made and "default" in told:
            made[name] = copy.deepcopy(told["default"])
        if isinstance(made.get(name), dict) and "properties" in told:
            made[name] = defaulted(made[name], told)
    return made


def schema_says(spec: dict[str, Any]) -> list[str]:
    checked = jsonschema.Draft202012Validator(closed(root()))
    return [error.message for error in checked.iter_errors(resource(defaulted(spec)))]


def cel_says(spec: dict[str, Any], old: dict[str, Any] | None = None) -> list[str]:
    """The messages of the rules that fail. A number is a double, as its schema says."""
    cel = pytest.importorskip("cel")
    full = defaulted(spec)
    for path in ("factor", "endFactor"):
        full["burst"][path] = float(full["burst"][path])
    told = []
    for found, self in ((rules.of_spec(), full), (rules.of_burst(), full["burst"])):
        for rule in found:
            names: dict[str, Any] = {"self": self}
            if "oldSelf" in rule["rule"]:
                if old is None:
                    continue
                names["oldSelf"] = defaulted(old)
            if not cel.evaluate(rule["rule"], names):
                wording = rule.get("messageExpression")
                told.append(rule["message"] if wording is None else cel.evaluate(wording, names))
    return told


@pytest.mark.parametrize("name", GOOD)
def test_good_specs_are_good_for_all(name: str) -> None:
    assert schema_says(GOOD[name]) == []
    assert cel_says(GOOD[name]) == []
    assert faults(resource(GOOD[name])) == refusals(resource(GOOD[name]), None) == []


@pytest.mark.parametrize("name", BAD)
def test_bad_specs_are_bad_for_all(name: str) -> None:
    spec, field = BAD[name]
    (said,) = faults(resource(spec))
    assert field in said
    assert refusals(resource(spec), None) == [said]
    by_schema = schema_says(spec)
    if not by_schema:  # then it is two fields that do not fit, and CEL says it in the same words
        assert cel_says(spec) == [said]


@pytest.mark.parametrize(("spec", "good"), [edge[1:] for edge in edges()], ids=[edge[0] for edge in edges()])
def test_every_limit_is_the_same_for_all(spec: dict[str, Any], good: bool) -> None:
    assert (not faults(resource(spec))) == good
    assert (not schema_says(spec) and not cel_says(spec)) == good


def test_defaults_are_the_same_for_all() -> None:
    from mmcache.operator.resource import understood

    assert understood(resource(defaulted({}))) == understood(resource({}))


@pytest.mark.parametrize("name", rules.FIXED)
def test_what_cannot_change_is_refused_by_both(name: str) -> None:
    old: dict[str, Any] = {}
    new = {name: {"name": "a"} if name == "authSecretRef" else {"secretName": "a"}}
    other = {name: {"name": "b"} if name == "authSecretRef" else {"secretName": "b"}}
    for before, after in ((old, new), (new, old), (new, other)):
        (said,) = cel_says(after, before)
        assert refusals(resource(after), resource(before)) == [said]
    assert cel_says(new, new) == []
    assert refusals(resource({**new, "maxShards": 9}), resource(new)) == []


def test_a_name_that_pods_cannot_carry() -> None:
    cel = pytest.importorskip("cel")
    (rule,) = rules.of_object()
    for letters in (40, 41):
        named = resource({}, "n" * letters)
        assert cel.evaluate(rule["rule"], {"self": named}) == (not faults(named)) == (letters == 40)
    assert faults(resource({}, "n" * 41)) == [rule["message"]]
    for wrong in ("1st", "a.b", "a-", "../a"):  # no Service could be called so
        assert not cel.evaluate(rule["rule"], {"self": resource({}, wrong)})
        assert faults(resource({}, wrong)) == [rule["message"]]


@pytest.mark.parametrize("name", [name.replace("*", "x") for name in OURS] + ["Port", "a b", "", "maxclients\n"])
def test_directives_that_the_operator_sets_are_refused(name: str) -> None:
    (said,) = faults(resource({"config": {name: "1"}}))
    assert f"config.{name}" in said


def test_all_that_is_wrong_is_told_at_once() -> None:
    said = faults(resource({"minShards": 1, "replicas": 9, "burst": {"factor": 1000}}))
    assert [line.split()[0] for line in said] == ["minShards", "replicas", "burst.factor"]


def test_a_bad_resource_can_still_be_deleted() -> None:
    """Its finalizer is taken away by an update, which a webhook must let through."""
    bad = resource({"minShards": 1})
    assert refusals(bad, None)
    assert refusals(resource({"minShards": 1}, finalizers=[]), bad) == []
    assert refusals(resource({"minShards": 2}, deletionTimestamp="2026-01-01T00:00:00Z"), bad) == []


def test_without_cel_nothing_of_it_is_left() -> None:
    assert "x-kubernetes-validations" in str(crd.definition())
    assert "x-kubernetes-validations" not in str(crd.definition(cel=False))


def test_it_is_a_definition_for_kubernetes() -> None:
    validate = pytest.importorskip("kubernetes_validate")
    validate.validate(crd.definition(), "1.33", strict=False)
    validate.validate(crd.definition(cel=False), "1.33", strict=False)


@pytest.mark.parametrize(("file", "cel"), [("multimodalcache", True), ("multimodalcache-no-cel", False)])
def test_the_files_are_what_is_printed_today(file: str, cel: bool) -> None:
    """Else: mmcache operator crd > deploy/crd/multimodalcache.yaml"""
    kept = (ROOT / "deploy" / "crd" / f"{file}.yaml").read_text(encoding="utf-8")
    assert list(yaml.safe_load_all(kept)) == [crd.definition(cel)]


def test_the_page_about_its_fields_is_current() -> None:
    """Else: mmcache operator crd --format md > docs/reference/multimodalcache.md"""
    page = (ROOT / "docs/reference/multimodalcache.md").read_text(encoding="utf-8")
    assert page == reference.page()
    for name in (*crd.spec()["properties"], *(told.path for told in BURST)):
        assert f"| `{name}" in page


def test_columns_and_scale_point_at_fields_that_there_are() -> None:
    version = crd.definition()["spec"]["versions"][0]
    paths = [column["jsonPath"] for column in version["additionalPrinterColumns"]]
    paths += [path for name, path in version["subresources"]["scale"].items() if name.endswith("Path")]
    for path in paths:
        at: dict[str, Any] = root()
        for part in path.strip(".").split("."):
            if part == "metadata":
                break
            at = at["properties"][part]
