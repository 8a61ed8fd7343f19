"""One container: a process that is started, probed, started again when it dies, and ended."""

from __future__ import annotations

import datetime
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmcache.lab.kubernetes.probes import Probe
from mmcache.lab.servers.process import bound_to_us

Json = dict[str, Any]
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, _STEADY_SECONDS = 0.5, 8.0, 30.0
"""Before the second start and later ones; shorter than the kubelet's ten seconds to five minutes."""


@dataclass
class Container:
    """`words` is the command line; empty = nothing runs, and it counts as ready."""

    told: Mapping[str, Any]
    words: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    address: str
    pool: Executor
    again: bool = True
    """Whether it is started again after it ended well; after it failed see `after_failure`."""
    after_failure: bool = True
    pre_stop: Sequence[str] = ()
    probes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """`readinessProbe`, `livenessProbe`, `startupProbe`, their paths read."""
    process: subprocess.Popen[bytes] | None = None
    restarts: int = 0
    ready: bool = False
    exit_code: int | None = None
    """Of the last process that ended."""
    started_at: str = ""
    _running: dict[str, Probe] = field(default_factory=dict)
    _start_at: float = 0.0
    _since: float = 0.0
    _failures: int = 0

    @property
    def name(self) -> str:
        """As in the pod."""
        return str(self.told["name"])

    @property
    def log(self) -> Path:
        """Its output and errors."""
        return self.folder / f"{self.name}.log"

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.poll() is None

    @property
    def over(self) -> bool:
        """It has ended and is not started again."""
        return self.exit_code is not None and self.process is None and not self._wanted_again()

    def _wanted_again(self) -> bool:
        return self.again or (self.after_failure and self.exit_code != 0)

    def tick(self, now: float) -> None:
        """Look after it."""
        if not self.words:
            self.ready = True
            return
        if self.process is None:
            if (self.exit_code is None or self._wanted_again()) and now >= self._start_at:
                self._start(now)
            return
        if self.process.poll() is not None:
            self._ended(now)
            return
        startup = self._running.get("startupProbe")
        if startup is not None and not startup.outcome:
            startup.tick(now)
            if startup.outcome is False:
                self.kill()
            return
        for probe in self._running.values():
            if probe is not startup:
                probe.tick(now)
        readiness, liveness = self._running.get("readinessProbe"), self._running.get("livenessProbe")
        self.ready = readiness is None or bool(readiness.outcome)
        if liveness is not None and liveness.outcome is False:
            self.kill()

    def run(self, words: Sequence[str], log: Path | None = None) -> subprocess.Popen[bytes]:
        """A command inside it, in a process group of its own."""
        with (log or Path(os.devnull)).open("ab") as sink:
            return subprocess.Popen(
                [*bound_to_us(), *words], stdout=sink, stderr=sink, stdin=subprocess.DEVNULL, cwd=self.folder,
                env=dict(self.environment), start_new_session=True,
            )  # fmt: skip

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """A signal to it and all that it started."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, how)

    def drop(self) -> None:
        """At once, and for good."""
        self.kill()
        if self.process is not None:
            self.process.wait()
        self._quiet()

    def _start(self, now: float) -> None:
        if self.exit_code is not None:
            self.restarts += 1
        self.process = self.run(self.words, self.log)
        self._since, self.started_at = now, moment()
        ports = {port["name"]: port["containerPort"] for port in self.told.get("ports") or () if "name" in port}
        self._running = {
            kind: Probe(told, self.address, ports, self.run, self.pool) for kind, told in self.probes.items()
        }

    def _ended(self, now: float) -> None:
        assert self.process is not None
        self.kill()  # what it started and left
        self.exit_code, self.process, self.ready = self.process.returncode, None, False
        self._quiet()
        self._failures = 0 if now - self._since > _STEADY_SECONDS else self._failures + 1
        pause = _FIRST_PAUSE_SECONDS * 2 ** (self._failures - 1) if self._failures else 0.0
        self._start_at = now + min(pause, _LONGEST_PAUSE_SECONDS)

    def _quiet(self) -> None:
        for probe in self._running.values():
            probe.stop()
        self._running = {}
        self.ready = False

    def status(self) -> Json:
        """As in `containerStatuses`."""
        ended = {"exitCode": self.exit_code or 0, "reason": "Completed" if self.exit_code == 0 else "Error"}
        state: Json
        if self.process is not None or not self.words:
            state = {"running": {"startedAt": self.started_at or moment()}}
        elif self.exit_code is None:
            state = {"waiting": {"reason": "ContainerCreating"}}
        else:
            state = {"terminated": ended} if self.over else {"waiting": {"reason": "CrashLoopBackOff"}}
        return {
            "name": self.name, "image": self.told["image"], "imageID": f"lab://{self.told['image']}",
            "ready": self.ready, "started": "running" in state, "restartCount": self.restarts, "state": state,
            "lastState": {} if self.exit_code is None or self.over else {"terminated": ended},
        }  # fmt: skip


def moment() -> str:
    """Now, as Kubernetes writes it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
