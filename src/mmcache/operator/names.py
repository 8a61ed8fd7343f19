"""What things are called in Kubernetes."""

from __future__ import annotations

GROUP = "mmcache.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "MultimodalCache"
PLURAL = "multimodalcaches"

MANAGER = "mmcache-operator"
"""Owner of the fields that are applied, source of events."""
FINALIZER = f"{GROUP}/drain"
FORCE_DELETE = f"{GROUP}/force-delete"
"""Annotation: with "true", a deletion waits for nothing any more."""
TEMPLATE = f"{GROUP}/template"
"""Label of a pod: a hash of all that it was made from."""
CLUSTER = f"{GROUP}/cluster"
SHARD = f"{GROUP}/shard"

PORT = 6379
BUS = 10_000
"""Nodes talk to each other on the port so much higher."""
LONGEST_NAME = 40
"""A pod's label `controller-revision-hash` has NAME-shard-499-, ten more letters, and room for 63."""


def stateful_set(name: str, shard: int) -> str:
    """Of a shard."""
    return f"{name}-shard-{shard}"


def pod(name: str, shard: int, place: int) -> str:
    """Of a member; Kubernetes makes it so from the StatefulSet's."""
    return f"{stateful_set(name, shard)}-{place}"


def labels(name: str, shard: int | None = None) -> dict[str, str]:
    """By which a cluster's objects are found; a shard's have one more."""
    found = {
        "app.kubernetes.io/name": "mmcache",
        "app.kubernetes.io/component": "cluster",
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/managed-by": MANAGER,
        CLUSTER: name,
    }
    return found if shard is None else {**found, SHARD: str(shard)}
