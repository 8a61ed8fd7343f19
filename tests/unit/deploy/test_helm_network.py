"""Who may reach whom, as the chart's NetworkPolicies say; judged by a small reading of their rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tests.unit.deploy.chart import Manifest, Rendered, needs_helm, pods, rendered, template
from tests.unit.deploy.kit import yaml

from mmcache.operator.names import BUS, PORT, labels

pytestmark = needs_helm
Labels = Mapping[str, str]


class Pod(NamedTuple):
    labels: Labels
    namespace: str = "vision"
    namespace_labels: Labels = {}  # noqa: RUF012 - nobody changes it


def picks(selector: Mapping[str, Any], of: Labels) -> bool:
    """A label selector."""
    for asked in selector.get("matchExpressions", ()):
        assert asked["operator"] == "Exists"
        if asked["key"] not in of:
            return False
    return bool(selector.get("matchLabels", {}).items() <= of.items())


def is_peer(peer: Mapping[str, Any], who: Pod | None) -> bool:
    """Whether a peer of a rule means `who`; None = something outside."""
    if who is None:
        return "ipBlock" in peer
    if "ipBlock" in peer:
        return False
    near = (
        picks(peer["namespaceSelector"], who.namespace_labels)
        if "namespaceSelector" in peer
        else who.namespace == "vision"
    )
    return near and picks(peer.get("podSelector", {}), who.labels)


def passes(rules: Iterable[Mapping[str, Any]], side: str, who: Pod | None, port: int, protocol: str) -> bool:
    for rule in rules:
        ports = rule.get("ports")
        right = ports is None or any((one["port"], one["protocol"]) == (port, protocol) for one in ports)
        if right and (not rule.get(side) or any(is_peer(peer, who) for peer in rule[side])):
            return True
    return False


def may(found: Iterable[Manifest], source: Pod | None, target: Pod | None, port: int, protocol: str = "TCP") -> bool:
    """Whether `source` may open a connection to `target`; None = something outside the cluster."""
    for who, other, kind, side in ((source, target, "Egress", "to"), (target, source, "Ingress", "from")):
        if who is None or who.namespace != "vision":
            continue
        over = [one["spec"] for one in found if picks(one["spec"]["podSelector"], who.labels)]
        over = [spec for spec in over if kind in spec["policyTypes"]]
        if over and not any(passes(spec.get(kind.lower(), ()), side, other, port, protocol) for spec in over):
            return False
    return True


def cast(found: Rendered) -> dict[str, Pod]:
    """The pods of the release, those that the operator makes, and some others."""
    there = {name.partition("-")[2]: Pod(pod["metadata"]["labels"]) for name, pod in pods(found)}
    cluster = "shared" if found.wish == "everything" else "mmcache"
    return there | {
        "node": Pod(labels(cluster, 0)),
        "other node": Pod(labels(cluster, 2)),
        "node of another cluster": Pod(labels("another", 0)),
        "client": Pod({"app": "trainer", "mmcache.dev/client": "true"}),
        "trainer": Pod({"app": "trainer"}),
        "gateway": Pod({"app": "gateway"}),
        "stranger": Pod({"app": "web"}),
        "prometheus elsewhere": Pod({"app.kubernetes.io/name": "prometheus"}, "monitoring"),
        "stranger elsewhere": Pod({"app": "web"}, "apps", {"apps": "yes"}),
        "client elsewhere": Pod({"mmcache.dev/client": "true"}, "other"),
    }


def reachers(found: Rendered, target: str, port: int) -> set[str]:
    """Who may reach it."""
    policies, there = found.of("NetworkPolicy"), cast(found)
    return {name for name, pod in there.items() if may(policies, pod, there[target], port)}


def test_nodes_are_reached_by_each_other_the_proxy_the_operator_and_clients_only() -> None:
    nodes = {"node", "other node"}
    assert reachers(rendered(), "node", PORT) == nodes | {"proxy", "operator", "client", "test"}
    assert reachers(rendered(), "node", PORT + BUS) == nodes
    assert reachers(rendered("everything"), "node", PORT) == nodes | {"proxy", "operator", "client", "trainer", "test"}
    assert reachers(rendered(), "node", 22) == set()


def test_an_operator_of_all_namespaces_reaches_the_nodes_of_a_release_that_has_none() -> None:
    worn = {"app.kubernetes.io/name": "mmcache", "app.kubernetes.io/component": "operator"}
    central, other = Pod(worn, "operators"), Pod({**worn, "app.kubernetes.io/component": "proxy"}, "operators")
    served = list(yaml.safe_load_all(template({"operator": {"enabled": False}}).stdout))
    policies = [one for one in served if one and one["kind"] == "NetworkPolicy"]
    node = Pod(labels("mmcache", 0))
    assert may(policies, central, node, PORT)
    assert not may(policies, central, node, PORT + BUS)
    assert not may(policies, other, node, PORT)
    assert not may(rendered().of("NetworkPolicy"), central, node, PORT), "this release has an operator of its own"


def test_nodes_reach_each_other_and_names_and_nothing_else() -> None:
    found = rendered()
    policies, there = found.of("NetworkPolicy"), cast(found)
    node = there["node"]
    assert {name for name, pod in there.items() if may(policies, node, pod, PORT)} == {"node", "other node"}
    assert not may(policies, node, None, 443)
    assert may(policies, node, None, 53, "UDP")


def test_the_proxy_is_reached_by_everybody_or_by_whom_one_wants() -> None:
    assert {"stranger", "stranger elsewhere", "trainer"} <= reachers(rendered(), "proxy", 8090)
    assert reachers(rendered("everything"), "proxy", 8090) == {"stranger elsewhere"}
    assert "stranger" not in reachers(rendered(), "proxy", 22)
    found = rendered()
    assert may(found.of("NetworkPolicy"), None, cast(found)["proxy"], 8090), "a load balancer is no pod"


def test_the_operator_reaches_the_api_server_and_nodes_and_tells_prometheus_only() -> None:
    found = rendered()
    policies, there = found.of("NetworkPolicy"), cast(found)
    operator = there["operator"]
    assert may(policies, operator, None, 443)
    assert may(policies, operator, None, 6443)
    assert not may(policies, operator, None, 80)
    assert may(policies, operator, there["node of another cluster"], PORT), "it may own several"
    assert not may(policies, operator, there["proxy"], 8090)
    assert reachers(found, "operator", 8081) == {"prometheus elsewhere"}
    assert reachers(found, "operator", 9443) == set()
    wide = rendered("everything")
    elsewhere = Pod(labels("another", 1), "other")
    assert may(wide.of("NetworkPolicy"), cast(wide)["operator"], elsewhere, PORT)
    assert not may(policies, operator, elsewhere, PORT)


def test_the_webhook_is_reached_by_the_api_server() -> None:
    old = rendered(version="1.20.2")
    assert may(old.of("NetworkPolicy"), None, cast(old)["operator"], 9443)


def test_the_dashboard_is_told_by_proxies_and_shown_to_nobody_unasked() -> None:
    assert reachers(rendered(), "dashboard", 4318) == {"proxy", "client", "test"}
    assert reachers(rendered(), "dashboard", 8080) == set()
    assert reachers(rendered("everything"), "dashboard", 8080) == {"gateway"}
    found = rendered()
    assert not may(found.of("NetworkPolicy"), cast(found)["dashboard"], None, 443)


def test_hooks_reach_the_api_server() -> None:
    found = rendered()
    for name in ("definition", "removal"):
        assert may(found.of("NetworkPolicy"), cast(found)[name], None, 443)


def test_another_release_in_the_namespace_is_no_part_of_it() -> None:
    found = rendered()
    done = template({}, name="mmcache-two")
    two = [one for one in yaml.safe_load_all(done.stdout) if one and one["kind"] == "Deployment"]
    for deployment in two:
        other = Pod(deployment["spec"]["template"]["metadata"]["labels"])
        assert not may(found.of("NetworkPolicy"), other, cast(found)["node"], PORT)
