"""A resource as it was written, understood: what the cluster is to be, and what its pods are to be like."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mmcache.model.errors import SettingsError
from mmcache.operator import crd, quantity, rules, schema
from mmcache.operator.fields import BURST, CLUSTER, SpecField
from mmcache.operator.names import API_VERSION, KIND
from mmcache.scale.spec import BurstSpec, ClusterSpec

OURS = ("port", "tls-*", "bind*", "dir", "save", "appendonly", "cluster-*", "requirepass", "masterauth", "primaryauth",
        "masteruser", "primaryuser", "user", "aclfile", "include", "loadmodule", "rename-command", "maxmemory",
        "daemonize", "pidfile", "logfile", "unixsocket*", "replicaof", "slaveof", "supervised", "protected-mode",
        "stop-writes-on-bgsave-error", "repl-diskless-*", "repl-backlog-size", "rdb-del-sync-files")  # fmt: skip
"""Directives that the operator sets, or that would undo what it does."""
_SCHEMA = crd.spec(cel=False)
_TOLD = frozenset(told.path for told in (*CLUSTER, *BURST))
"""Fields whose limits `ClusterSpec` knows, with better words."""


@dataclass(frozen=True)
class Pods:
    """What the nodes' pods are like; the rest of `spec`."""

    image: str = crd.DEFAULT_IMAGE
    pull_policy: str = ""
    pull_secrets: tuple[str, ...] = ()
    config: Mapping[str, str] = field(default_factory=dict)
    node_timeout_seconds: int = crd.NODE_TIMEOUT_SECONDS
    spread: bool = True
    """Two nodes of a shard must not be on one machine; False: should not."""
    auth: tuple[str, str] | None = None
    """Name and key of the Secret."""
    tls: str | None = None
    """Name of the Secret."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a pod that go into it as they are: nodeSelector, tolerations…"""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, Any] = field(default_factory=dict)
    affinity: Mapping[str, Any] = field(default_factory=dict)
    zones: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Wish:
    """A resource, understood."""

    name: str
    namespace: str
    uid: str
    generation: int
    cluster: ClusterSpec
    pods: Pods
    drain_seconds: int = crd.DRAIN_SECONDS

    @property
    def owner(self) -> dict[str, Any]:
        """The reference by which Kubernetes deletes what is made for it."""
        return {"apiVersion": API_VERSION, "kind": KIND, "name": self.name, "uid": self.uid, "controller": True,
                "blockOwnerDeletion": True}  # fmt: skip


def understood(resource: Mapping[str, Any]) -> Wish:
    """Raises `SettingsError`, which says all that is wrong."""
    if wrong := faults(resource):
        raise SettingsError("; ".join(wrong))
    spec, told = resource.get("spec") or {}, resource["metadata"]
    return Wish(told["name"], told.get("namespace") or "default", told.get("uid", ""), told.get("generation", 0),
                _cluster(spec), _pods(spec), int(spec.get("drainSeconds", crd.DRAIN_SECONDS)))  # fmt: skip


def faults(resource: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> list[str]:
    """What is wrong with it, one sentence each; with `old`, what an update may not change as well."""
    spec = resource.get("spec") or {}
    if not isinstance(spec, Mapping):
        return ["spec must be an object"]
    wrong = rules.of_name(resource["metadata"]["name"])
    if misfits := schema.faults(spec, _SCHEMA, free=_TOLD):
        return wrong + misfits
    wrong += _amounts(spec) or _plain(spec).faults()
    wrong += [
        f"config.{name} cannot be set: the operator does"
        for name in spec.get("config") or {}
        if not re.fullmatch(crd.DIRECTIVE, name) or any(_matches(name, pattern) for pattern in OURS)
    ]
    return wrong + (rules.changed(old.get("spec") or {}, spec) if old is not None else [])


def _matches(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _value(spec: Mapping[str, Any], told: SpecField) -> Any:
    section = (spec.get("burst") or {}) if told.burst else spec
    found = section.get(told.name)
    return told.default if found is None else found


def _amounts(spec: Mapping[str, Any]) -> list[str]:
    try:
        quantity.parse(spec.get("memory", ClusterSpec.memory_bytes))
    except SettingsError as error:
        return [f"memory: {error}"]
    return []


def _plain(spec: Mapping[str, Any]) -> ClusterSpec:
    """Unchecked: `faults` says what is wrong with it."""
    made: ClusterSpec = object.__new__(ClusterSpec)
    for name, value in _arguments(spec).items():
        object.__setattr__(made, name, value)
    return made


def _cluster(spec: Mapping[str, Any]) -> ClusterSpec:
    return ClusterSpec(**_arguments(spec))


def _arguments(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{told.attribute: _value(spec, told) for told in CLUSTER},
        "memory_bytes": quantity.parse(spec.get("memory", ClusterSpec.memory_bytes)),
        "version": spec.get("image", crd.DEFAULT_IMAGE),
        "allow_eviction": bool((spec.get("scaleIn") or {}).get("allowEviction", ClusterSpec.allow_eviction)),
        "burst": BurstSpec(**{told.attribute: _value(spec, told) for told in BURST}),
    }


def _pods(spec: Mapping[str, Any]) -> Pods:
    auth, tls = spec.get("authSecretRef"), spec.get("tls")
    pull: Sequence[Mapping[str, str]] = spec.get("imagePullSecrets") or ()
    given = ("nodeSelector", "tolerations", "priorityClassName", "serviceAccountName")
    return Pods(
        image=spec.get("image", crd.DEFAULT_IMAGE),
        pull_policy=spec.get("imagePullPolicy", ""),
        pull_secrets=tuple(one["name"] for one in pull),
        config=dict(spec.get("config") or {}),
        node_timeout_seconds=int(spec.get("nodeTimeoutSeconds", crd.NODE_TIMEOUT_SECONDS)),
        spread=spec.get("antiAffinity", "Required") == "Required",
        auth=None if auth is None else (auth["name"], auth.get("key", "password")),
        tls=None if tls is None else tls["secretName"],
        given={name: spec[name] for name in given if spec.get(name)},
        labels=dict(spec.get("podLabels") or {}),
        annotations=dict(spec.get("podAnnotations") or {}),
        resources=dict(spec.get("resources") or {}),
        affinity=dict(spec.get("affinity") or {}),
        zones=tuple(spec.get("topologySpreadConstraints") or ()),
    )
