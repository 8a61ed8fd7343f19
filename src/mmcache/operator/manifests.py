"""What a cluster is in Kubernetes, beside its pods: services, settings, the budget of disruptions. Plain objects."""

from __future__ import annotations

from typing import Any

from mmcache.operator.conf import valkey_conf
from mmcache.operator.names import BUS, PORT, labels
from mmcache.operator.resource import Wish

Manifest = dict[str, Any]


def metadata(wish: Wish, name: str, shard: int | None = None) -> Manifest:
    """Of an object that goes when the resource goes."""
    return {
        "name": name,
        "namespace": wish.namespace,
        "labels": labels(wish.name, shard),
        "ownerReferences": [wish.owner],
    }


def nodes_service(wish: Wish) -> Manifest:
    """Gives every pod a name, from the moment that it has an address."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(wish, f"{wish.name}-nodes"),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": selector(wish),
            "ports": [_port("valkey", PORT), _port("bus", PORT + BUS)],
        },
    }


def service(wish: Wish) -> Manifest:
    """What a cache is given: any node, from which it learns of the others."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(wish, wish.name),
        "spec": {"type": "ClusterIP", "selector": selector(wish), "ports": [_port("valkey", PORT)]},
    }


def address(wish: Wish) -> str:
    """For `shared=` of a cache."""
    scheme = "valkeys" if wish.pods.tls else "valkey"
    return f"{scheme}://{wish.name}.{wish.namespace}.svc:{PORT}?cluster=true"


def _port(name: str, port: int) -> Manifest:
    return {"name": name, "port": port, "targetPort": port, "protocol": "TCP"}


def selector(wish: Wish, shard: int | None = None) -> dict[str, str]:
    """Only labels that are ours alone."""
    return {key: value for key, value in labels(wish.name, shard).items() if not key.startswith("app.")}


def settings(wish: Wish) -> Manifest:
    """`valkey.conf`, as a ConfigMap."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(wish, f"{wish.name}-conf"),
        "data": {"valkey.conf": valkey_conf(wish)},
    }


def baseline(wish: Wish, saved: str) -> Manifest:
    """What the burst detector has learned of the load: it would take days to learn it again."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(wish, f"{wish.name}-load"),
        "data": {"load.json": saved},
    }


def disruption_budget(wish: Wish, version: str = "v1") -> Manifest:
    """Of all nodes, one at a time may be taken away by whoever drains machines."""
    return {
        "apiVersion": f"policy/{version}",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(wish, wish.name),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": selector(wish)}},
    }
