"""One pod on one machine: its files, its containers in order, what is told of it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from typing import Any

from mmcache.lab.kubernetes.api import Api, ApiError, Json
from mmcache.lab.kubernetes.container import Container, moment
from mmcache.lab.kubernetes.images import Images
from mmcache.lab.kubernetes.volumes import Files, Words, expand

_PROBES = ("readinessProbe", "livenessProbe", "startupProbe")
_RETRY_SECONDS = 0.5


class RunningPod:
    """Driven by `tick`; `ended` when a deletion is through."""

    def __init__(self, api: Api, told: Json, address: str, folder: Path, images: Images, pool: Executor) -> None:
        self.told, self.address = told, address
        self._api, self._folder, self._images, self._pool = api, folder, images, pool
        self._files = Files(api, told, address, folder)
        self.first: list[Container] = []
        """The init containers."""
        self.containers: list[Container] = []
        self.problem = ""
        """Why its containers cannot be made yet."""
        self.ended = False
        self.kubeconfig: Path | None = None
        """Given to its containers, where it has a service account of its own."""
        self._retry_at = 0.0
        self._made = False
        self._deadline: float | None = None
        self._leaving: list[subprocess.Popen[bytes]] = []
        self._asked = False
        self._started = moment()

    @property
    def restart(self) -> str:
        """`Always`, `OnFailure` or `Never`."""
        return str(self.told["spec"].get("restartPolicy", "Always"))

    def tick(self, now: float) -> None:
        """Look after it. Raises `OSError` where the API server is away."""
        if self._deadline is not None:
            self._leave(now)
            return
        if not self._made:
            if now < self._retry_at:
                return
            self._retry_at = now + _RETRY_SECONDS
            self._make()
            if not self._made:
                return
        for container in self.first:
            if not (container.over and container.exit_code == 0):
                container.tick(now)
                return
        for container in self.containers:
            container.tick(now)

    def leave(self, now: float, grace: float) -> None:
        """Its deletion was asked for; asked again it may have less time."""
        end = now + grace
        self._deadline = end if self._deadline is None else min(self._deadline, end)

    def drop(self) -> None:
        """End everything at once, and its files: its machine is lost, or it is gone from the API."""
        for process in self._leaving:
            _end(process)
        for container in [*self.first, *self.containers]:
            container.drop()
        self._files.remove()
        self.ended = True

    def _leave(self, now: float) -> None:
        running = [container for container in [*self.first, *self.containers] if container.alive]
        if not self._asked:
            if not self._leaving and now < (self._deadline or 0):
                self._leaving = [one.run(one.pre_stop) for one in running if one.pre_stop]
            if any(process.poll() is None for process in self._leaving) and now < (self._deadline or 0):
                return
            for container in running:
                container.kill(signal.SIGTERM)
            self._asked = True
        if not running or now >= (self._deadline or 0):
            self.drop()

    def _make(self) -> None:
        try:
            self.first = [self._container(told, first=True) for told in self.told["spec"].get("initContainers") or ()]
            self.containers = [self._container(told) for told in self.told["spec"]["containers"]]
        except ApiError as error:
            self.problem = str(error)
            return
        self._made, self.problem = True, ""

    def _container(self, told: Mapping[str, Any], *, first: bool = False) -> Container:
        words = self._files.words(told)
        image = self._images.pulled(told["image"])
        environment = {
            "PATH": ":".join(filter(None, (str(image.path) if image else "", os.defpath, "/usr/local/bin"))),
            "HOME": str(self._folder), "HOSTNAME": self.told["metadata"]["name"], "LAB_POD_IP": self.address,
            **({"KUBECONFIG": str(self.kubeconfig)} if self.kubeconfig else {}),
            **self._files.environment(told, words),
        }  # fmt: skip
        command = [*(told.get("command") or (image.entrypoint if image else ())), *(told.get("args") or ())]
        command = [words.read(expand(word, environment)) for word in command]
        if image is None and not told.get("command"):
            command = []  # nothing here stands for it
        stop = ((told.get("lifecycle") or {}).get("preStop") or {}).get("exec", {}).get("command") or ()
        return Container(
            told, command, environment, self._folder, self.address, self._pool,
            again=self.restart == "Always" and not first, after_failure=self.restart != "Never",
            pre_stop=[words.read(word) for word in stop],
            probes={} if first else {kind: _read(told[kind], words) for kind in _PROBES if told.get(kind)},
        )  # fmt: skip

    def status(self, told: Mapping[str, Any]) -> Json:
        """As in `status`, as a strategic merge patch. told: the pod as the API has it, whose gates others open."""
        ready = self._made and bool(self.containers) and all(one.ready for one in self.containers)
        first = self._made and all(one.over and one.exit_code == 0 for one in self.first)
        gates = _open(told)
        why = None if ready and gates else "ReadinessGatesNotReady" if ready else "ContainersNotReady"
        conditions = {
            "PodScheduled": (True, None), "Initialized": (first, None),
            "ContainersReady": (ready, None if ready else why), "Ready": (ready and gates, why),
        }  # fmt: skip
        waiting = [] if self._made else [
            {"name": told["name"], "image": told["image"], "imageID": "", "ready": False, "restartCount": 0,
             "state": {"waiting": {"reason": "CreateContainerConfigError", "message": self.problem}}}
            for told in self.told["spec"]["containers"]
        ]  # fmt: skip
        return {
            "phase": self._phase(first), "podIP": self.address, "hostIP": "127.0.0.1",
            "podIPs": [{"$patch": "replace"}, {"ip": self.address}], "startTime": self._started,
            "conditions": [
                {"type": kind, "status": str(value), "reason": reason} for kind, (value, reason) in conditions.items()
            ],
            "containerStatuses": waiting or [one.status() for one in self.containers],
            "initContainerStatuses": [one.status() for one in self.first],
        }  # fmt: skip

    def _phase(self, first: bool) -> str:
        if self.restart != "Always" and self.containers and all(one.over for one in self.containers):
            return "Succeeded" if all(one.exit_code == 0 for one in self.containers) else "Failed"
        if self.restart == "Never" and any(one.over and one.exit_code for one in self.first):
            return "Failed"
        return "Running" if first else "Pending"


def _open(told: Mapping[str, Any]) -> bool:
    """All readiness gates of a pod are open."""
    known = {one["type"]: one["status"] for one in (told.get("status") or {}).get("conditions") or ()}
    return all(known.get(gate["conditionType"]) == "True" for gate in told["spec"].get("readinessGates") or ())


def _read(told: Json, words: Words) -> Json:
    if "exec" not in told:
        return told
    return {**told, "exec": {"command": [words.read(word) for word in told["exec"]["command"]]}}


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
