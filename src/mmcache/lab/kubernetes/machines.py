"""Machines as the API knows them: registered, ready or not, closed to new pods, drained, given up."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from mmcache.lab.kubernetes.api import STRATEGIC, Api, ApiError, Json
from mmcache.lab.kubernetes.container import moment
from mmcache.model.errors import AssetError


class Machines:
    """`machine-0`, `machine-1`…"""

    def __init__(self, api: Api, count: int) -> None:
        self._api = api
        self.names = [f"machine-{number}" for number in range(count)]

    def of(self, namespace: str, pod: str) -> str:
        """Where a pod is; "" while it is nowhere. Raises `ApiError`."""
        return str(self._api.get(f"/api/v1/namespaces/{namespace}/pods/{pod}")["spec"].get("nodeName", ""))

    def cordon(self, machine: str, *, closed: bool = True) -> None:
        """No more pods go there; or they do again."""
        self._api.patch(f"/api/v1/nodes/{machine}", {"spec": {"unschedulable": closed or None}})

    def drain(self, machine: str, seconds: float = 60.0) -> None:
        """As `kubectl drain`: no more pods, and those there are evicted as their budgets allow. Raises `AssetError`."""
        self.cordon(machine)
        end = time.monotonic() + seconds
        while pods := self.pods_on(machine):
            if time.monotonic() > end:
                raise AssetError(
                    f"{machine} was not drained in {seconds:g} s: {[pod['metadata']['name'] for pod in pods]}"
                )
            for pod in pods:
                self.evict(pod["metadata"]["namespace"], pod["metadata"]["name"])
            time.sleep(0.2)

    def evict(self, namespace: str, name: str) -> bool:
        """Ask for a pod to go; False where its budget says not now."""
        asked = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
        try:
            self._api.create(f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", asked)
        except ApiError as error:
            if error.code == 404:
                return True
            if error.code in (429, 500):  # 500: a controller has yet to see the pod
                return False
            raise
        return True

    def register(self, name: str) -> None:
        """It is there, empty and ready."""
        node = {
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
        }  # fmt: skip
        with suppress(ApiError):  # it is there
            self._api.create("/api/v1/nodes", node)
        self.set_ready(name, ready=True)

    def set_ready(self, machine: str, *, ready: bool) -> None:
        """What the controller that watches machines would say of it and, where it is not ready, of its pods."""
        room = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        condition = {"type": "Ready", "status": "True" if ready else "Unknown", "reason": "Lab", "message": "",
                     "lastHeartbeatTime": moment(), "lastTransitionTime": moment()}  # fmt: skip
        status = {"capacity": room, "allocatable": room, "conditions": [condition],
                  "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}  # fmt: skip
        self._api.patch(f"/api/v1/nodes/{machine}/status", {"status": status})
        taints = None if ready else [{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]
        self._api.patch(f"/api/v1/nodes/{machine}", {"spec": {"taints": taints}})
        if not ready:
            for pod in self.pods_on(machine):
                no = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
                with suppress(ApiError):
                    self._api.patch(f"{path(pod)}/status", no, STRATEGIC)

    def give_up(self, machine: str) -> None:
        """It and its pods go from the API."""
        self._api.delete(f"/api/v1/nodes/{machine}")
        for pod in self.pods_on(machine):
            self._api.delete(path(pod), {"gracePeriodSeconds": 0})

    def pods_on(self, machine: str) -> list[Json]:
        """That are bound to it."""
        return self._api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={machine}")


def path(pod: Mapping[str, Any]) -> str:
    """Of a pod, in the API."""
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
