"""The processes of table `gateways`: the upstream, `mmcache serve`, and an application."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from mmcache.lab.gateways.said import Said
from mmcache.model.errors import AssetError

END_SECONDS = 30
ENVIRONMENT = ("OMP_NUM_THREADS=1", "LITELLM_LOCAL_MODEL_COST_MAP=True")
"""Besides our own. LiteLLM else asks the network for prices when it is imported."""


class Process:
    """Speaks JSON lines."""

    def __init__(self, log: Path, *command: str) -> None:
        self._log = log.open("w+", encoding="utf-8")
        self._process = subprocess.Popen(
            ["env", *ENVIRONMENT, sys.executable, "-W", "ignore", *command],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
        )  # fmt: skip
        try:
            self.told = self.read()
        except AssetError:
            self.close()
            raise

    def ask(self, **asked: Any) -> dict[str, Any]:
        """One line, and the answer to it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return self.read()

    def read(self) -> dict[str, Any]:
        """Raises `AssetError` when the process has died, or lacks what it needs."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise AssetError(f"its process ended: {self._log.read().strip().rpartition(chr(10))[2][-300:]}")
        found: dict[str, Any] = json.loads(line)
        if "missing" in found:
            raise AssetError(found["missing"])
        return found

    def close(self, *, end: bool = False) -> None:
        """end: by a signal; else its input ends, and it does by itself."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        if end:
            self._process.terminate()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def __enter__(self) -> Self:
        return self


class Upstream(Process):
    """See `upstream`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "upstream.log", "-m", "mmcache.lab.gateways.upstream")
        self.address: str = self.told["address"]

    def count(self) -> int:
        """Chat requests that have reached it."""
        with urllib.request.urlopen(f"{self.address}/count", timeout=END_SECONDS) as got:
            return int(json.load(got)["chat"])

    def __exit__(self, *_: object) -> None:
        self.close(end=True)


@dataclass(frozen=True)
class Got:
    """What an application got."""

    said: Said | None
    """None: an error."""
    ms: float
    hit: bool
    """The upstream was not asked."""
    failed: str = ""


class Application:
    """One contender: an application, with a proxy before the upstream where the contender is one."""

    def __init__(self, name: str, upstream: Upstream, folder: Path, server: str = "") -> None:
        """server: `host:port` of the Redis that `litellm/redis` keeps its answers in. Raises `AssetError`."""
        folder.mkdir(parents=True, exist_ok=True)
        self._upstream, self._proxy = upstream, None
        address = server or upstream.address
        if name.startswith("serve"):
            options = ["--port", "0", "--json", "--upstream", address, "--root", str(folder / "cache")]
            if name == "serve/semantic":
                (folder / "mmcache.toml").write_text(SEMANTIC, encoding="utf-8")
                options += ["--config", str(folder / "mmcache.toml")]
            self._proxy = Process(folder / "proxy.log", "-m", "mmcache.cli", "serve", *options)
            address = self._proxy.told["address"]
        try:
            self._process = Process(
                folder / "application.log", "-m", "mmcache.lab.gateways.worker",
                name, upstream.address, address, str(folder / "kept"),
            )  # fmt: skip
        except AssetError:
            if self._proxy is not None:
                self._proxy.close(end=True)
            raise

    def ask(self, body: dict[str, Any], key: str, *, cached: bool = True) -> Got:
        """One request, and whether the upstream saw it. Nothing else may ask the upstream meanwhile."""
        before = self._upstream.count()
        found = self._process.ask(body=body, key=key, cached=cached)
        hit = self._upstream.count() == before
        if "failed" in found:
            return Got(None, 0.0, False, found["failed"])
        return Got(Said.from_json(found["said"]), found["ms"], hit)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close()
        if self._proxy is not None:
            self._proxy.close(end=True)


SEMANTIC = '[routes."/v1/chat/completions"]\nsemantic_max_error = 0.01\n'
