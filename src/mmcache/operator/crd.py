"""The CustomResourceDefinition, made from the same fields as the parser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mmcache.operator import quantity, rules
from mmcache.operator.fields import BURST, CLUSTER, SpecField
from mmcache.operator.names import API_VERSION, GROUP, KIND, PLURAL, VERSION
from mmcache.operator.status_schema import status
from mmcache.scale.spec import LEAST_MEMORY, MOST_MEMORY, ClusterSpec

DEFAULT_IMAGE = "valkey/valkey:9.0"
NODE_TIMEOUT_SECONDS = 5
DRAIN_SECONDS = 300
DIRECTIVE = r"^[a-z][a-z0-9-]{0,63}$"

Schema = dict[str, Any]
_NAME: Schema = {
    "type": "string", "minLength": 1, "maxLength": 253, "pattern": r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
}  # fmt: skip
"""Of another object: it becomes a part of a path."""
_KEY: Schema = {"type": "string", "minLength": 1, "maxLength": 253, "pattern": r"^[-._a-zA-Z0-9]+$"}
"""Of a Secret: it becomes a part of a script."""
_LABELS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}


def definition(cel: bool = True) -> Schema:
    """As a manifest. Without `cel`, for servers before 1.27: there the webhook and the operator refuse instead."""
    root: Schema = {
        "type": "object",
        "description": "A Valkey cluster that grows with its load; blocks of mmcache are shared in it.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec(cel),
            "status": status(),
        },
        **_ruled(cel, rules.of_object()),
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": root},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.minShards",
                "statusReplicasPath": ".status.shards",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": _columns(),
    }
    names = {"kind": KIND, "listKind": f"{KIND}List", "plural": PLURAL, "singular": KIND.lower(),
             "shortNames": ["mmc"], "categories": ["all"]}  # fmt: skip
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}", "labels": {"app.kubernetes.io/name": "mmcache"}},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def example() -> Schema:
    """A resource that says the least."""
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "shared"}, "spec": {"maxShards": 6}}


def _columns() -> list[Schema]:
    told = (
        ("Shards", "integer", ".status.shards", 0), ("Wanted", "integer", ".status.wanted", 1),
        ("QPS", "number", ".status.qps", 0), ("Phase", "string", ".status.phase", 0),
        ("Moved", "string", ".status.progress.told", 0),
        ("Hit Ratio", "number", ".status.hitRatio", 0), ("Nodes", "integer", ".status.readyNodes", 1),
        ("Message", "string", ".status.message", 1), ("Age", "date", ".metadata.creationTimestamp", 0),
    )  # fmt: skip
    return [
        {"name": name, "type": kind, "jsonPath": path, **({"priority": priority} if priority else {})}
        for name, kind, path, priority in told
    ]


def _ruled(cel: bool, found: list[Schema]) -> Schema:
    return {"x-kubernetes-validations": found} if cel else {}


def spec(cel: bool = True) -> Schema:
    """Of a resource's `spec`."""
    burst: Schema = {
        "type": "object",
        "description": "When load counts as a burst, and when it is over.",
        "default": {},
        "properties": _told(BURST),
        **_ruled(cel, rules.of_burst()),
    }
    properties: Schema = {
        **_told(CLUSTER),
        "memory": {
            "x-kubernetes-int-or-string": True,
            "pattern": quantity.MEMORY_PATTERN,
            "minimum": LEAST_MEMORY,
            "maximum": MOST_MEMORY,
            "default": quantity.write(ClusterSpec.memory_bytes),
            "description": "That one node may fill with blocks (maxmemory): "
            f"{quantity.write(LEAST_MEMORY)} to {quantity.write(MOST_MEMORY)}.",
        },
        "scaleIn": {
            "type": "object",
            "default": {},
            "properties": {
                "allowEviction": {
                    "type": "boolean",
                    "default": ClusterSpec.allow_eviction,
                    "description": "Scale in even where the blocks do not fit into fewer nodes: the least wanted go.",
                }
            },
        },
        "burst": burst,
        **_secrets(),
        **_pods(),
    }
    return {"type": "object", "properties": properties, **_ruled(cel, rules.of_spec())}


def _told(fields: Sequence[SpecField]) -> Schema:
    return {field.name: field.schema() for field in fields}


def _secrets() -> Schema:
    return {
        "authSecretRef": {
            "type": "object",
            "description": "The nodes' password; in the Secret's key `previous`, one that is still taken.",
            "required": ["name"],
            "properties": {"name": _NAME, "key": {**_KEY, "default": "password"}},
        },
        "tls": {
            "type": "object",
            "description": "A Secret with tls.crt, tls.key and ca.crt: nodes speak TLS only.",
            "required": ["secretName"],
            "properties": {"secretName": _NAME},
        },
    }


def _open(tells: str) -> Schema:
    return {"type": "object", "description": tells, "x-kubernetes-preserve-unknown-fields": True}


def _pods() -> Schema:
    return {
        "image": {
            "type": "string", "minLength": 1, "maxLength": 512, "default": DEFAULT_IMAGE,
            "description": "Has sh and valkey-server.",
        },
        "imagePullPolicy": {"type": "string", "enum": ["Always", "IfNotPresent", "Never"]},
        "imagePullSecrets": {
            "type": "array",
            "items": {"type": "object", "required": ["name"], "properties": {"name": _NAME}},
        },
        "config": {
            "type": "object",
            "description": "More directives of valkey.conf, such as `maxmemory-policy: allkeys-lfu`.",
            "maxProperties": 64,
            "additionalProperties": {"type": "string", "maxLength": 1024, "pattern": r"^[^\r\n\x00]*$"},
        },
        "nodeTimeoutSeconds": {
            "type": "integer", "minimum": 1, "maximum": 60, "default": NODE_TIMEOUT_SECONDS,
            "description": "A node that is silent for so long is taken for dead by the others.",
        },
        "drainSeconds": {
            "type": "integer", "minimum": 0, "maximum": 86_400, "default": DRAIN_SECONDS,
            "description": "A deletion ends after so long, drained or not.",
        },
        "antiAffinity": {
            "type": "string", "enum": ["Required", "Preferred"], "default": "Required",
            "description": "Of one shard's nodes. Preferred is for clusters of one machine: a replica may be lost with "
            "its primary.",
        },
        "resources": _open("Of a node's container; by default made from memory."),
        "nodeSelector": _LABELS,
        "tolerations": {"type": "array", "items": _open("As in a pod.")},
        "affinity": {
            "type": "object",
            "description": "As in a pod; the nodes' distance from each other is added.",
            "properties": {
                "nodeAffinity": _open("As in a pod."),
                "podAffinity": _open("As in a pod."),
                "podAntiAffinity": {
                    **_open("As in a pod."),
                    "properties": {
                        name: {"type": "array", "items": _open("As in a pod.")}
                        for name in (
                            "requiredDuringSchedulingIgnoredDuringExecution",
                            "preferredDuringSchedulingIgnoredDuringExecution",
                        )
                    },
                },
            },
        },
        "topologySpreadConstraints": {"type": "array", "items": _open("As in a pod, without labelSelector.")},
        "priorityClassName": _NAME,
        "serviceAccountName": _NAME,
        "podLabels": _LABELS,
        "podAnnotations": _LABELS,
    }  # fmt: skip
