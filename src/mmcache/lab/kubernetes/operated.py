"""The operator as a process of its own, with a token that may do what its role says and no more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmcache.lab.cdc.process import stop
from mmcache.lab.kubernetes.api import ApiError
from mmcache.lab.kubernetes.control_plane import ControlPlane
from mmcache.lab.servers.process import bound_to_us, until
from mmcache.model.errors import AssetError
from mmcache.operator import rbac
from mmcache.operator.crd import definition

HOME = "mmcache-system"
"""The namespace that it runs in."""


@dataclass
class Operator:
    """May be killed and started again."""

    plane: ControlPlane
    kubeconfig: Path
    log: Path
    words: Sequence[str] = ()
    """More options."""
    program: Sequence[str] = (str(Path(sys.executable).parent / "mmcache"),)
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Does not wait."""
        with self.log.open("ab") as sink:
            self.process = subprocess.Popen(
                [*bound_to_us(), *self.program, "operator", "run", "--kubeconfig", str(self.kubeconfig), *self.words],
                stdout=sink, stderr=sink, stdin=subprocess.DEVNULL, cwd=self.log.parent,
                env={"PATH": os.defpath, "HOME": str(self.log.parent), **self.environment},
            )  # fmt: skip

    def kill(self) -> None:
        """As when memory runs out."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.kill()
            self.process.wait()

    def stop(self) -> int | None:
        """As Kubernetes ends it; the exit code."""
        if self.process is None:
            return None
        stop(self.process, signal.SIGTERM, 60.0)
        return self.process.returncode

    def said(self) -> str:
        """All that it has logged."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""


def installed(plane: ControlPlane) -> None:
    """The definition of the resource (without CEL where the server is too old), the operator's account and its rights.

    Raises `ApiError`, `AssetError`.
    """
    for thing in (definition(cel=False), *prerequisites()):
        plane.apply(thing, HOME)
    if not until(lambda: _known(plane)):
        raise AssetError("the API server does not take the definition of MultimodalCache")


def prerequisites() -> list[dict[str, Any]]:
    """The operator's namespace, account and rights."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": rbac.NAME, "namespace": HOME}},
        *rbac.manifests(home=HOME),
    ]


def _known(plane: ControlPlane) -> bool:
    try:
        plane.admin.items("/apis/mmcache.dev/v1alpha1/multimodalcaches")
    except ApiError:
        return False
    return True


@contextmanager
def operator(plane: ControlPlane, folder: Path, *words: str, **how: Any) -> Iterator[Operator]:
    """It runs while the block does. `installed` is to be called before. `how`: see `Operator`."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Operator(plane, plane.as_service_account(HOME, rbac.NAME), folder / "operator.log", words, **how)
    made.start()
    try:
        yield made
    finally:
        made.stop()
