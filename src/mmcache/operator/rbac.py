"""What the operator may do: no more than it does. One list, for the chart and for the tests that run under it."""

from __future__ import annotations

from typing import Any

from mmcache.operator.names import GROUP, PLURAL

NAME = "mmcache-operator"
LEASE = "mmcache-operator"
Rule = dict[str, list[str]]


def rules(secrets: tuple[str, ...] = ()) -> list[Rule]:
    """In the namespaces that it serves. Secrets are read by the names that resources give, never listed.

    secrets: those that it may read; none: all.
    """
    named = {"resourceNames": list(secrets)} if secrets else {}
    return [
        _rule(GROUP, PLURAL, "get", "list", "watch", "patch"),
        _rule(GROUP, f"{PLURAL}/status", "patch"),
        _rule(GROUP, f"{PLURAL}/finalizers", "update"),  # asked of whoever sets blockOwnerDeletion, where enforced
        _rule("apps", "statefulsets", "get", "list", "create", "patch", "delete"),
        _rule("", "pods", "get", "list", "delete"),
        _rule("", "pods/status", "patch"),
        _rule("", "services", "get", "create", "patch"),
        _rule("", "configmaps", "get", "create", "patch"),
        {**_rule("", "secrets", "get"), **named},
        _rule("", "events", "get", "create", "patch"),
        _rule("policy", "poddisruptionbudgets", "get", "create", "patch"),
    ]


def lease_rules() -> list[Rule]:
    """In its own namespace. What is yet to be made has no name that a rule could ask for."""
    leases = _rule("coordination.k8s.io", "leases", "get", "update")
    return [_rule("coordination.k8s.io", "leases", "create"), {**leases, "resourceNames": [LEASE]}]


def manifests(
    account: str = NAME, home: str = "mmcache", namespaces: tuple[str, ...] = (), secrets: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """A service account's rights: everywhere, or in these namespaces only; to read all Secrets there, or these only."""
    made = _bound("Role", f"{NAME}-lease", lease_rules(), account, home, home)
    if not namespaces:
        return made + _bound("ClusterRole", NAME, rules(secrets), account, home, None)
    for namespace in namespaces:
        made += _bound("Role", NAME, rules(secrets), account, home, namespace)
    return made


def _rule(group: str, resource: str, *verbs: str) -> Rule:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


def _bound(
    kind: str, name: str, found: list[Rule], account: str, home: str, namespace: str | None
) -> list[dict[str, Any]]:
    where = {} if namespace is None else {"namespace": namespace}
    version = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    return [
        {**version, "kind": kind, "metadata": {"name": name, **where}, "rules": found},
        {
            **version,
            "kind": f"{kind}Binding",
            "metadata": {"name": name, **where},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": home}],
        },
    ]
