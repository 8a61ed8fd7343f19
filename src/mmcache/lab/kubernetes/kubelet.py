"""Machines that are none: they take pods and run their commands as real processes of this machine.

One thread does all: it hears of pods by a watch, binds new ones to machines (`scheduler`), looks after those that are
bound (`pod`, `container`), and tells the API server how they are. A machine can fail, come back, be lost for good, be
cordoned and be drained. Nothing is isolated: pods are processes on 127.X.0.0/16 with their files in a folder.
"""

from __future__ import annotations

import itertools
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mmcache.lab.kubernetes import scheduler
from mmcache.lab.kubernetes.api import STRATEGIC, ApiError, Json, Watch
from mmcache.lab.kubernetes.control_plane import ControlPlane
from mmcache.lab.kubernetes.images import Images
from mmcache.lab.kubernetes.machines import Machines, path
from mmcache.lab.kubernetes.pod import RunningPod
from mmcache.model.errors import AssetError
from mmcache.scale.binaries import Binary

_TURN_SECONDS = 0.03
_RESCHEDULE_SECONDS = 0.5
_CLAIM_PORT = 10250
Where = tuple[str, str]
"""Namespace and name."""


class Kubelet:
    """Of all machines. Its methods may be called by any thread."""

    def __init__(self, plane: ControlPlane, folder: Path, machines: int, images: Images, network: int) -> None:
        self.plane, self.api, self._folder, self._images = plane, plane.admin, folder, images
        self.machines = Machines(plane.admin, machines)
        self._network = network
        self._addresses = itertools.count(1)
        self._pods: dict[str, Json] = {}
        """All that the API has, by uid."""
        self._running: dict[str, RunningPod] = {}
        self._told: dict[str, Json] = {}
        self._down: set[str] = set()
        self._due = 0.0
        self._orders: queue.Queue[tuple[Callable[[], Any], threading.Event]] = queue.Queue()
        self._news: queue.Queue[tuple[str, Json]] = queue.Queue()
        """As a watch tells it, and ANEW with a list of all that there is."""
        self._ended = threading.Event()
        self._watch: Watch | None = None
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="probe")
        self._threads = [threading.Thread(target=self._hear, daemon=True), threading.Thread(target=self._work)]
        self.errors: list[str] = []
        """What went wrong in its own work."""

    def start(self) -> None:
        """Register the machines, and begin."""
        for name in self.machines.names:
            self.machines.register(name)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End every process."""
        self._ended.set()
        if self._watch is not None:
            self._watch.close()
        for thread in self._threads:
            thread.join()
        self._pool.shutdown()

    def pid(self, namespace: str, pod: str, container: int = 0) -> int | None:
        """Of the process that a container is, or None where it does not run now."""
        found = self._of((namespace, pod))
        one = found.containers[container] if found is not None and found.containers else None
        return one.process.pid if one is not None and one.alive and one.process is not None else None

    def log(self, namespace: str, pod: str) -> str:
        """What the containers of a pod have printed."""
        found = self._of((namespace, pod))
        logs = [one.log for one in found.containers] if found is not None else []
        return "".join(log.read_text(errors="replace") for log in logs if log.exists())

    def kill(self, namespace: str, pod: str) -> None:
        """SIGKILL to a pod's containers, as when memory runs out: they are started again."""
        found = self._of((namespace, pod))
        for container in found.containers if found is not None else ():
            container.kill()

    def fail(self, machine: str) -> None:
        """The power of a machine is cut: all on it is gone at once; then it and its pods count as not ready."""
        self._order(lambda: self._fail(machine))
        self.machines.set_ready(machine, ready=False)

    def recover(self, machine: str) -> None:
        """A failed machine has started again, with nothing in its memory: its pods start anew."""
        self._order(lambda: self._down.discard(machine))
        self.machines.set_ready(machine, ready=True)

    def lose(self, machine: str) -> None:
        """A failed machine is given up: its pods are made elsewhere."""
        self.fail(machine)
        self.machines.give_up(machine)

    def join(self, machine: str) -> None:
        """A machine of this name is there (again), empty."""
        self._order(lambda: self._down.discard(machine))
        self.machines.register(machine)

    def _hear(self) -> None:
        while not self._ended.is_set():
            try:
                listed = self.api.get("/api/v1/pods")
                self._watch = self.api.watch("/api/v1/pods", since=listed["metadata"]["resourceVersion"])
                if self._ended.is_set():  # who ends us may have seen the watch before this one
                    self._watch.close()
                self._news.put(("ANEW", listed))
                for event in self._watch:
                    self._news.put(event)
            except (OSError, ApiError):
                self._ended.wait(0.2)

    def _work(self) -> None:
        try:
            while not self._ended.is_set():
                with suppress(queue.Empty):
                    self._learn(*self._news.get(timeout=_TURN_SECONDS))
                    while True:
                        self._learn(*self._news.get_nowait())
                with suppress(queue.Empty):
                    while True:
                        order, done = self._orders.get_nowait()
                        order()
                        done.set()
                try:
                    self._turn(time.monotonic())
                except (OSError, ApiError) as error:
                    self.errors.append(str(error))
        finally:
            for pod in self._running.values():
                pod.drop()

    def _order(self, order: Callable[[], Any]) -> None:
        """Done by the one thread."""
        done = threading.Event()
        self._orders.put((order, done))
        while not done.wait(0.2) and self._threads[1].is_alive():
            pass

    def _learn(self, kind: str, pod: Json) -> None:
        if kind == "ANEW":  # all at once: for a moment without them their processes would be ended
            self._pods = {one["metadata"]["uid"]: one for one in pod["items"]}
            self._due = 0.0
            return
        uid = pod["metadata"]["uid"]
        if kind == "DELETED":
            self._pods.pop(uid, None)
        else:
            self._pods[uid] = pod
        self._due = 0.0

    def _turn(self, now: float) -> None:
        if now >= self._due:
            self._due = now + _RESCHEDULE_SECONDS
            self._schedule()
        for uid, pod in list(self._pods.items()):
            machine = pod["spec"].get("nodeName")
            if machine in self.machines.names and machine not in self._down and not _over(pod):
                try:
                    self._look_after(uid, pod, now)
                except ApiError as error:
                    self.errors.append(f"{pod['metadata']['name']}: {error}")
        for uid in self._running.keys() - self._pods.keys():
            self._running.pop(uid).drop()
            self._told.pop(uid, None)

    def _look_after(self, uid: str, pod: Json, now: float) -> None:
        running = self._running.get(uid)
        if running is None and (running := self._begin(pod, now)) is None:
            return
        if "deletionTimestamp" in pod["metadata"]:
            running.leave(now, float(pod["metadata"].get("deletionGracePeriodSeconds") or 0))
        running.tick(now)
        self._tell(uid, pod, running)

    def _begin(self, pod: Json, now: float) -> RunningPod | None:
        namespace, name, uid = (pod["metadata"][word] for word in ("namespace", "name", "uid"))
        if "deletionTimestamp" in pod["metadata"]:
            self._gone(pod)
            return None
        number = next(self._addresses)
        address = f"127.{self._network}.{number // 250}.{number % 250 + 2}"
        folder = self._folder / f"{namespace}_{name}_{uid[:8]}"
        running = RunningPod(self.api, pod, address, folder, self._images, self._pool)
        account = pod["spec"].get("serviceAccountName")
        if account not in (None, "", "default"):
            running.kubeconfig = self.plane.as_service_account(namespace, account)
        self._running[uid] = running
        return running

    def _tell(self, uid: str, pod: Json, running: RunningPod) -> None:
        if running.ended:
            self._running.pop(uid)
            self._gone(pod)
            return
        status = running.status(pod)
        if status == self._told.get(uid):
            return
        try:
            self.api.patch(f"{path(pod)}/status", {"metadata": {"uid": uid}, "status": status}, STRATEGIC)
        except ApiError as error:
            if error.code not in (404, 409):
                raise
        self._told[uid] = status

    def _gone(self, pod: Json) -> None:
        self.api.delete(path(pod), {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}})

    def _schedule(self) -> None:
        live = [pod for pod in self._pods.values() if not _over(pod)]
        waiting = [
            pod for pod in live if not pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
        ]
        if not waiting:
            return
        machines = [
            machine for machine in self.api.items("/api/v1/nodes") if machine["metadata"]["name"] in self.machines.names
        ]
        for pod in waiting:
            chosen, why = scheduler.choose(pod, machines, live)
            if chosen is None:
                self._unschedulable(pod, why)
                continue
            target = {"apiVersion": "v1", "kind": "Node", "name": chosen}
            binding = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": pod["metadata"]["name"]},
                "target": target,
            }
            with suppress(ApiError):  # it was deleted meanwhile
                self.api.create(f"{path(pod)}/binding", binding)
            pod["spec"]["nodeName"] = chosen

    def _unschedulable(self, pod: Json, why: str) -> None:
        told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
        known = (pod.get("status") or {}).get("conditions") or ()
        if not any(known_one.get("message") == why for known_one in known):
            with suppress(ApiError):
                self.api.patch(f"{path(pod)}/status", {"status": {"conditions": [told]}}, STRATEGIC)

    def _fail(self, machine: str) -> None:
        self._down.add(machine)
        for uid, running in list(self._running.items()):
            if running.told["spec"].get("nodeName") == machine:
                self._running.pop(uid).drop()
                self._told.pop(uid, None)

    def _of(self, where: Where) -> RunningPod | None:
        for running in list(self._running.values()):
            told = running.told["metadata"]
            if (told["namespace"], told["name"]) == where:
                return running
        return None


def _over(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


@contextmanager
def kubelet(
    plane: ControlPlane, folder: Path, machines: int = 4, images: Mapping[str, Binary] | None = None
) -> Iterator[Kubelet]:
    """Machines for a control plane, named `machine-0`…; all their processes end with the block.

    `images`: the server that an image is; others are found by name and tag (see `Images`). Raises `AssetError`.
    """
    with _network() as network:
        made = Kubelet(plane, folder / "pods", machines, Images(folder / "images", images), network)
        made.start()
        try:
            yield made
        finally:
            made.stop()


@contextmanager
def _network() -> Iterator[int]:
    """X of 127.X.0.0/16, that no other one on this machine has: it is theirs who listen there."""
    for number in range(1, 250):
        with socket.socket() as claim:
            try:
                claim.bind((f"127.{number}.0.1", _CLAIM_PORT))
                claim.listen()
            except OSError:
                continue
            yield number
            return
    raise AssetError("all of 127.1.0.0 to 127.249.0.0 are taken")
