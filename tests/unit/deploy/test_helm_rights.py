"""What the operator and the hooks may do in the cluster: what they need, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pytest
from tests.unit.deploy.chart import VERSIONS, WISHES, Manifest, Rendered, needs_helm, rendered

from mmcache.operator import rbac
from mmcache.operator.names import GROUP, PLURAL

pytestmark = needs_helm
Right = tuple[str, str, str]


@pytest.fixture(params=[(wish, version) for wish in WISHES for version in VERSIONS[::2]], ids="-".join, name="found")
def of_each(request: pytest.FixtureRequest) -> Rendered:
    return rendered(*request.param)


def rights(rules: Iterable[Mapping[str, Sequence[str]]]) -> set[Right]:
    return {
        (group, resource, verb)
        for rule in rules for group in rule["apiGroups"] for resource in rule["resources"] for verb in rule["verbs"]
    }  # fmt: skip


def bound(found: Rendered, account: str) -> list[Manifest]:
    """The roles that a service account has."""
    roles = {
        (role["kind"], role["metadata"]["name"]): role for kind in ("Role", "ClusterRole") for role in found.of(kind)
    }
    bindings = found.of("RoleBinding") + found.of("ClusterRoleBinding")
    for binding in bindings:
        assert {one["namespace"] for one in binding["subjects"]} == {"vision"}
    return [
        roles[one["roleRef"]["kind"], one["roleRef"]["name"]]
        for one in bindings if account in {subject["name"] for subject in one["subjects"]}
    ]  # fmt: skip


def operators(found: Rendered) -> list[Manifest]:
    """What it may do where its clusters are, and where it is itself."""
    return sorted(bound(found, "mmcache-operator"), key=lambda role: "lease" in role["metadata"]["name"])


def test_the_operator_may_do_what_it_says_that_it_does() -> None:
    for wish, kind in (("default", "Role"), ("everything", "ClusterRole"), ("own-secrets", "Role")):
        for version in VERSIONS:
            first, lease = operators(rendered(wish, version))
            assert first["kind"] == kind
            assert rights(first["rules"]) == rights(rbac.rules())
            assert lease["kind"] == "Role"
            assert rights(lease["rules"]) == rights(rbac.lease_rules())


def test_secrets_are_read_by_name_where_one_namespace_is_watched() -> None:
    for wish, names in (("default", ["mmcache-auth"]), ("own-secrets", ["own-auth", "another"])):
        first, _ = operators(rendered(wish))
        (rule,) = [rule for rule in first["rules"] if "secrets" in rule["resources"]]
        assert rule["resourceNames"] == names


def test_nobody_may_do_everything(found: Rendered) -> None:
    for role in found.of("Role") + found.of("ClusterRole"):
        for _, resource, verb in rights(role["rules"]):
            assert "*" not in resource + verb
            assert verb not in {"escalate", "bind", "impersonate", "deletecollection"}
            assert resource not in {"roles", "clusterroles", "nodes", "pods/exec", "serviceaccounts"}


def test_hooks_may_touch_the_one_thing_that_they_are_for(found: Rendered) -> None:
    for job in found.of("Job"):
        (role,) = bound(found, job["spec"]["template"]["spec"]["serviceAccountName"])
        (rule,) = role["rules"]
        if job["metadata"]["name"] == "mmcache-definition":
            assert (rule["resources"], rule["verbs"]) == (["customresourcedefinitions"], ["get", "patch"])
            assert rule["resourceNames"] == [f"{PLURAL}.{GROUP}"]
        else:
            (resource,) = found.of("MultimodalCache")
            assert (rule["resources"], rule["verbs"]) == ([PLURAL], ["get", "delete"])
            assert rule["resourceNames"] == [resource["metadata"]["name"]]


def test_who_is_bound_is_there_and_runs_as_it(found: Rendered) -> None:
    accounts = {account["metadata"]["name"] for account in found.of("ServiceAccount")}
    users = {
        thing["spec"]["template"]["spec"]["serviceAccountName"]
        for thing in found.of("Deployment") + found.of("Job")
        if "serviceAccountName" in thing["spec"]["template"]["spec"]
    }
    assert accounts == users


def test_a_hook_has_all_that_it_needs_before_it_runs(found: Rendered) -> None:
    """And everything goes when it is done."""
    for thing in found.objects:
        told = thing["metadata"].get("annotations", {})
        if "helm.sh/hook" in told and thing["kind"] not in ("Job", "Pod"):
            assert int(told["helm.sh/hook-weight"]) < 0
        if "helm.sh/hook" in told:
            assert told["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"
