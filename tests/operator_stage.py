"""A real API server with machines, the operator as a process with its own rights, and a cache in use meanwhile."""

from __future__ import annotations

import itertools
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pytest

from mmcache import Cache
from mmcache.lab.kubernetes.api import Api, ApiError, Json
from mmcache.lab.kubernetes.build import find
from mmcache.lab.kubernetes.control_plane import ControlPlane, control_plane
from mmcache.lab.kubernetes.kubelet import Kubelet, kubelet
from mmcache.model.errors import AssetError, TierError
from mmcache.model.event import Refused
from mmcache.scale import binaries
from mmcache.scale.talk import ask
from mmcache.settings import SharedSettings

PATIENCE = 120.0
"""Seconds; for a busy machine."""
NEW, OLD = "valkey/valkey:9.1", "redis:7.0"
"""Images, and what they are here: see `mmcache.lab.kubernetes.images`."""
SLOTS = 16384


@contextmanager
def kubernetes(
    folder: Path, machines: int = 4, *words: str, kind: type[Stage] | None = None, **how: Any
) -> Iterator[Any]:
    """Skips the test where there is no API server or no Valkey 9. words, how: of the operator, see `operated`."""
    pytest.importorskip("kopf")
    pytest.importorskip("lightkube")
    from mmcache.lab.kubernetes import operated

    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl here")
    try:
        servers = find()
        images = {NEW: binaries.choose("valkey", 9), OLD: binaries.choose("redis", 7)}
    except AssetError as error:
        pytest.skip(str(error))
    with control_plane(folder, servers) as plane, kubelet(plane, folder, machines, images) as nodes:
        operated.installed(plane)
        with operated.operator(plane, folder / "operator", *words, **how) as operator:
            yield (kind or Stage)(plane, nodes, operator, folder)


@dataclass
class Stage:
    """All of it."""

    plane: ControlPlane
    nodes: Kubelet
    operator: Any
    folder: Path
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def api(self) -> Api:
        """As administrator."""
        return self.plane.admin

    def namespace(self) -> str:
        """A new one."""
        name = f"test-{next(self._numbers)}"
        self.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
        return name

    def until(self, met: Callable[[], Any], what: str) -> Any:
        """Wait for it; the operator's last words where it does not come."""
        end = time.monotonic() + PATIENCE
        while not (found := met()):
            assert time.monotonic() < end, f"never {what}\n{self.state()}"
            if self.look_after():
                end = time.monotonic() + PATIENCE
            time.sleep(0.1)
        return found

    def look_after(self) -> bool:
        """Whatever is to be done meanwhile; whether the wait begins anew."""
        assert self.operator.alive, f"the operator has ended\n{self.state()}"
        return False

    def state(self) -> str:
        """For a test that fails."""
        listed = ("get", "mmc,sts,pods", "--all-namespaces", "-o", "wide")
        return f"{self.plane.kubectl(*listed, check=False).stdout}\n{self.operator.said()[-4000:]}\n{self.nodes.errors}"

    @contextmanager
    def cluster(self, name: str = "shared", **spec: Any) -> Iterator[Deployed]:
        """One that serves, in a namespace of its own; then everything goes."""
        made = Deployed(self, self.namespace(), name)
        made.create(**spec)
        try:
            made.steady()
            yield made
        finally:
            made.remove()


@dataclass
class Deployed:
    """A `MultimodalCache` and what became of it."""

    stage: Stage
    namespace: str
    name: str
    password: str | None = None

    @property
    def path(self) -> str:
        """In the API."""
        return f"/apis/mmcache.dev/v1alpha1/namespaces/{self.namespace}/multimodalcaches/{self.name}"

    def resource(self) -> Json:
        """As it is now."""
        return self.stage.api.get(self.path)

    @property
    def status(self) -> Json:
        """As it is told."""
        found: Json = self.resource().get("status") or {}
        return found

    def create(self, **spec: Any) -> None:
        """Small, and quick to notice a death; `spec` says what is different."""
        small = {"maxShards": 6, "memory": "64Mi", "image": NEW, "nodeTimeoutSeconds": 1}
        self.stage.api.create(self.path.rpartition("/")[0], {
            "apiVersion": "mmcache.dev/v1alpha1", "kind": "MultimodalCache", "metadata": {"name": self.name},
            "spec": {**small, **spec},
        })  # fmt: skip

    def change(self, **spec: Any) -> None:
        """Fields of `spec`."""
        self.stage.api.patch(self.path, {"spec": spec})

    def steady(self, shards: int = 3, nodes: int | None = None) -> Json:
        """Wait until it serves as wanted, and says so of what was asked last."""

        def met() -> Json | None:
            found = self.resource()
            status = found.get("status") or {}
            right = (
                status.get("observedGeneration") == found["metadata"]["generation"]
                and (status.get("phase"), status.get("shards")) == ("Steady", shards)
                and status.get("nodes") == status.get("readyNodes") == (2 * shards if nodes is None else nodes)
            )
            return status if right and self.whole(shards) else None

        found: Json = self.stage.until(met, f"{shards} shards")
        return found

    def phase(self, phase: str, reason: str | None = None) -> Json:
        """Wait for a phase."""

        def met() -> Json | None:
            status = self.status
            return status if status.get("phase") == phase and reason in (None, status.get("reason")) else None

        found: Json = self.stage.until(met, f"in phase {phase} {reason or ''}")
        return found

    def pods(self) -> dict[str, Json]:
        """By name; those that are there to stay."""
        found = self.stage.api.items(f"/api/v1/namespaces/{self.namespace}/pods")
        return {pod["metadata"]["name"]: pod for pod in found if "deletionTimestamp" not in pod["metadata"]}

    def address(self, pod: str) -> str:
        """Its IP."""
        return str(self.pods()[pod]["status"]["podIP"])

    def ask(self, pod: str, *words: Any) -> Any:
        """A command to its server. Raises `OSError`, `TierError`."""
        return ask(6379, *words, host=self.address(pod), password=self.password)

    def role(self, pod: str) -> str:
        """`master` or `slave`."""
        found: bytes = self.ask(pod, "ROLE")[0]
        return found.decode()

    def primaries(self) -> dict[str, int]:
        """Pods that serve slots, and how many."""
        found = {}
        for pod in self.pods():
            with suppress(OSError, TierError, KeyError):
                mine = next(
                    line.split() for line in self.ask(pod, "CLUSTER", "NODES").decode().splitlines() if "myself" in line
                )
                ranges = [word.partition("-") for word in mine[8:] if not word.startswith("[")]
                if count := sum(int(high or low) - int(low) + 1 for low, _, high in ranges):
                    found[pod] = count
        return found

    def whole(self, shards: int) -> bool:
        """As the nodes say themselves: every slot is served, every other node is a replica that has everything."""
        replicas = 0
        for pod in self.pods():
            try:
                role, *rest = self.ask(pod, "ROLE")
            except (OSError, TierError, KeyError):
                return False
            replicas += role == b"slave" and rest[2] == b"connected"
        primaries = self.primaries()
        return len(primaries) == shards and sum(primaries.values()) == SLOTS and len(self.pods()) == shards + replicas

    def versions(self) -> set[str]:
        """Of the servers."""
        return {
            line
            for pod in self.pods()
            for line in self.ask(pod, "INFO", "server").decode().split("\r\n")
            if line.startswith(("redis_version", "valkey_version"))
        }

    def cache(self, folder: str) -> Cache:
        """One of the product, on a host of its own."""
        hosts = ",".join(f"{pod['status']['podIP']}:6379" for pod in self.pods().values() if pod["status"].get("podIP"))
        # Long enough for a failover, also of a node that stood still with a busy machine.
        shared = SharedSettings(f"valkey://{hosts}?cluster=true", password=self.password, timeout_seconds=10.0)
        return Cache(self.stage.folder / "hosts" / self.namespace / folder, secret=bytes(32), shared=shared)

    def use(self) -> Users:
        """Hosts that use it all the time."""
        return Users(self)

    def delete(self) -> None:
        """Wait until it is gone, and all that was made for it."""
        api, within = self.stage.api, f"/namespaces/{self.namespace}/"
        api.delete(self.path)
        self.stage.until(lambda: not _there(api, self.path), f"{self.name} deleted")
        parts = (f"/apis/apps/v1{within}statefulsets", f"/api/v1{within}pods", f"/api/v1{within}services",
                 f"/apis/policy/v1beta1{within}poddisruptionbudgets", f"/api/v1{within}configmaps")  # fmt: skip
        self.stage.until(lambda: not any(map(api.items, parts)), f"nothing left of {self.name}")

    def remove(self) -> None:
        """With its namespace, for whose end nobody waits."""
        self.delete()
        self.stage.api.delete(f"/api/v1/namespaces/{self.namespace}")


def _there(api: Api, path: str) -> bool:
    try:
        api.get(path)
    except ApiError as error:
        return error.code != 404
    return True


class Users:
    """One host stores arrays, another one reads what the first has stored: what it gets must be what was stored.

    What the shared tier did not acknowledge counts in `refused`, not in `stored`.
    """

    def __init__(self, cluster: Deployed) -> None:
        self.cluster = cluster
        self.stored: list[int] = []
        self.wrong: list[int] = []
        self.refused = 0
        self.hits = self.misses = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._failed: BaseException | None = None

    def __enter__(self) -> Users:
        self._thread.start()
        self.cluster.stage.until(lambda: self.hits >= 3 or self._failed, "used")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        number = str(id(self))
        try:
            with self.cluster.cache(f"writer-{number}") as writer, self.cluster.cache(f"reader-{number}") as reader:
                for index in itertools.count():
                    if self._stop.wait(0.01):
                        return
                    key = _key(writer, index)
                    writer.put(key, _value(index))
                    writer.flush()
                    if not _acknowledged(writer, key):
                        self.refused += 1
                        continue
                    self.stored.append(index)
                    found = reader.get(_key(reader, index))
                    self.hits, self.misses = self.hits + (found is not None), self.misses + (found is None)
                    if found is not None and not np.array_equal(found, _value(index)):
                        self.wrong.append(index)
        except BaseException as error:  # noqa: BLE001 - raised where the test sees it
            self._failed = error

    def kept(self) -> tuple[int, int]:
        """How many of those that were stored a new host still finds, and of how many. All that it finds is right."""
        with self.cluster.cache(f"judge-{id(self)}-{len(self.stored)}") as judge:
            found = {index: judge.get(_key(judge, index)) for index in self.stored}
        there = {index: value for index, value in found.items() if value is not None}
        wrong = self.wrong + [index for index, value in there.items() if not np.array_equal(value, _value(index))]
        assert not wrong, wrong[:5]
        return len(there), len(found)


def _acknowledged(cache: Cache, key: Any) -> bool:
    """Whether the shared tier, which has settled, did not refuse what was just put."""
    return not any(isinstance(one, Refused) and one.key == key for one in cache.events.recent())


def _key(cache: Cache, index: int) -> Any:
    return cache.key(f"picture {index}", modality="text", signature="s")


def _value(index: int) -> Any:
    return np.random.default_rng(index).standard_normal(500)
