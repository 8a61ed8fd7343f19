"""The StatefulSet of a shard, and the pods that it makes."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from mmcache.operator import quantity, scripts
from mmcache.operator.conf import valkey_conf
from mmcache.operator.gate import CONDITION
from mmcache.operator.manifests import Manifest, metadata, selector
from mmcache.operator.names import BUS, PORT, TEMPLATE, labels, stateful_set
from mmcache.operator.resource import Wish

USER = 999
"""As in the images of Valkey and Redis."""
GRACE_SECONDS = 60
"""For `scripts.leave`, and then for the server to end."""
_HOST = "kubernetes.io/hostname"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def shard(wish: Wish, number: int, members: int) -> Manifest:
    """Its pods are replaced one by one by the operator, never by Kubernetes itself."""
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata(wish, stateful_set(wish.name, number), number),
        "spec": {
            "serviceName": f"{wish.name}-nodes",
            "replicas": members,
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": selector(wish, number)},
            "template": template(wish, number),
        },
    }


def template(wish: Wish, number: int) -> Manifest:
    """Of a shard's pods, with a label that says what they are made from."""
    pods = wish.pods
    spec: Manifest = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {
            "runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "readinessGates": [{"conditionType": CONDITION}],
        "affinity": _apart(wish, number),
        "containers": [_container(wish)],
        "volumes": _volumes(wish),
        **pods.given,
    }  # fmt: skip
    if pods.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in pods.pull_secrets]
    if pods.zones:
        ours = {"labelSelector": {"matchLabels": selector(wish, number)}}
        spec["topologySpreadConstraints"] = [{**zone, **ours} for zone in pods.zones]
    made: Manifest = {
        "metadata": {
            "labels": {**pods.labels, **labels(wish.name, number)},
            **({"annotations": dict(pods.annotations)} if pods.annotations else {}),
        },
        "spec": spec,
    }
    made["metadata"]["labels"][TEMPLATE] = hash_of(made, valkey_conf(wish))
    return made


def hash_of(made: Manifest, conf: str) -> str:
    """The same for the same pods, in every process. What is in a Secret has no part in it: see `passwords`."""
    told = json.dumps([made, conf], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _apart(wish: Wish, number: int) -> Manifest:
    """Never two of a shard on one machine; of a cluster, as few as can be."""
    affinity: dict[str, Any] = {**wish.pods.affinity}
    apart = affinity["podAntiAffinity"] = dict(affinity.get("podAntiAffinity") or {})
    of_shard = {"labelSelector": {"matchLabels": selector(wish, number)}, "topologyKey": _HOST}
    of_all = {"labelSelector": {"matchLabels": selector(wish)}, "topologyKey": _HOST}
    wanted = [*apart.get(_PREFERRED, ()), {"weight": 10, "podAffinityTerm": of_all}]
    if wish.pods.spread:
        apart[_REQUIRED] = [*apart.get(_REQUIRED, ()), of_shard]
    else:
        wanted.append({"weight": 100, "podAffinityTerm": of_shard})
    apart[_PREFERRED] = wanted
    return affinity


def _container(wish: Wish) -> Manifest:
    auth, tls = wish.pods.auth and wish.pods.auth[1], wish.pods.tls is not None
    mounts: list[Manifest] = [
        {"name": "conf", "mountPath": scripts.CONF, "readOnly": True},
        {"name": "run", "mountPath": scripts.RUN},
        {"name": "data", "mountPath": scripts.DATA},
    ]
    if auth:
        mounts.append({"name": "auth", "mountPath": scripts.AUTH, "readOnly": True})
    if tls:
        mounts.append({"name": "tls", "mountPath": scripts.TLS, "readOnly": True})
    return {
        "name": "valkey",
        "image": wish.pods.image,
        **({"imagePullPolicy": wish.pods.pull_policy} if wish.pods.pull_policy else {}),
        "command": _sh(scripts.start(auth, tls)),
        "env": [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "NODE_WAIT_SECONDS", "value": str(2 * wish.pods.node_timeout_seconds)},
        ],
        "ports": [
            {"name": "valkey", "containerPort": PORT, "protocol": "TCP"},
            {"name": "bus", "containerPort": PORT + BUS, "protocol": "TCP"},
        ],
        "resources": dict(wish.pods.resources) or resources(wish.cluster.memory_bytes),
        "readinessProbe": {
            "exec": {"command": _sh(scripts.ready(auth, tls))}, "periodSeconds": 5, "timeoutSeconds": 5,
        },
        # Long: a node that is busy is not to be killed with all that it holds.
        "livenessProbe": {
            "exec": {"command": _sh(scripts.alive(auth, tls))}, "periodSeconds": 10, "timeoutSeconds": 9,
            "failureThreshold": 12,
            "initialDelaySeconds": 10 + 2 * wish.pods.node_timeout_seconds,
        },
        "lifecycle": {"preStop": {"exec": {"command": _sh(scripts.leave(auth, tls))}}},
        "securityContext": {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }  # fmt: skip


def resources(memory_bytes: int) -> Manifest:
    """Beside the blocks there are buffers to replicas and clients, and pages that change while a replica is filled."""
    more = quantity.write((memory_bytes * 3 // 2 + (128 << 20)) >> 20 << 20)
    return {"requests": {"cpu": "250m", "memory": more}, "limits": {"memory": more}}


def _volumes(wish: Wish) -> list[Manifest]:
    found: list[Manifest] = [
        {"name": "conf", "configMap": {"name": f"{wish.name}-conf"}},
        {"name": "run", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
        {"name": "data", "emptyDir": {}},
    ]
    if wish.pods.auth:
        found.append({"name": "auth", "secret": {"secretName": wish.pods.auth[0], "defaultMode": 0o440}})
    if wish.pods.tls:
        found.append({"name": "tls", "secret": {"secretName": wish.pods.tls, "defaultMode": 0o440}})
    return found


def unlike(made: Manifest, wish: Wish) -> list[str]:
    """Fields of `spec` that cannot change, and are otherwise in a StatefulSet that was made before."""
    was, now = (
        {one["name"]: one["secret"]["secretName"] for one in volumes if "secret" in one}
        for volumes in (made["spec"]["template"]["spec"].get("volumes") or (), _volumes(wish))
    )
    return [field for field, name in (("tls", "tls"), ("authSecretRef", "auth")) if was.get(name) != now.get(name)]


def _sh(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]
