"""helm on a real API server, whose pods are processes of this machine; and a model server for proxies."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

from tests.unit.deploy.chart import CHART, HELM

from mmcache.lab.kubernetes.control_plane import ControlPlane
from mmcache.lab.kubernetes.kubelet import Kubelet

PATIENCE = 300.0
RELEASE = "mmcache"
NAMESPACE = "vision"
T = TypeVar("T")


def until(told: Callable[[], T], what: str) -> T:
    """The first answer that says yes."""
    end = time.monotonic() + PATIENCE
    while not (found := told()):
        assert time.monotonic() < end, f"never came: {what}"
        threading.Event().wait(0.2)
    return found


@dataclass
class Stage:
    """A cluster with helm in front of it."""

    plane: ControlPlane
    kubelet: Kubelet
    upstream: str
    folder: Path

    def helm(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """As administrator."""
        assert HELM is not None
        home = {"KUBECONFIG": str(self.plane.kubeconfig), "HOME": str(self.folder), "PATH": os.defpath}
        done = subprocess.run(
            [HELM, "--namespace", NAMESPACE, *words], env=home, capture_output=True, text=True, timeout=600, check=False
        )
        assert not check or done.returncode == 0, f"helm {' '.join(words)}\n{done.stdout}\n{done.stderr}\n{self.said()}"
        return done

    def put(self, verb: str, **values: Any) -> str:
        """`helm install` or `upgrade` with these values, and what it prints."""
        file = self.folder / "values.json"
        file.write_text(json.dumps(values))
        return self.helm(verb, RELEASE, str(CHART), "--values", str(file), "--timeout", f"{PATIENCE:.0f}s").stdout

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """An object; {} where there is none."""
        words = ["--namespace", NAMESPACE, "get", kind, name, "--output", "json", "--ignore-not-found"]
        said = self.plane.kubectl(*words).stdout
        return dict(json.loads(said)) if said.strip() else {}

    def all(self, kinds: str, labels: str = "") -> list[dict[str, Any]]:
        """Objects with these labels."""
        words = ["--namespace", NAMESPACE, "get", kinds, "--output", "json", "--selector", labels]
        return list(json.loads(self.plane.kubectl(*words).stdout)["items"])

    def pods(self, component: str) -> list[dict[str, Any]]:
        """Those of a part of the release that are ready and stay."""
        found = self.all("pods", f"app.kubernetes.io/component={component}")
        return [
            pod for pod in found
            if "deletionTimestamp" not in pod["metadata"] and any(
                one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", ())
            )
        ]  # fmt: skip

    def steady(self) -> dict[str, Any]:
        """The cluster's resource, when it is as it is to be."""

        def now() -> dict[str, Any]:
            found = self.get("multimodalcache", RELEASE)
            status = found.get("status", {})
            seen = status.get("observedGeneration") == found["metadata"]["generation"]
            return found if seen and status.get("phase") == "Steady" else {}

        return until(now, f"Steady; {self.said()}")

    def said(self) -> str:
        """The end of what pods have printed that are not well, and of the operator."""
        lines = []
        for pod in self.plane.admin.get(f"/api/v1/namespaces/{NAMESPACE}/pods").get("items", ()):
            name = pod["metadata"]["name"]
            if "-shard-" not in name:
                lines.append(f"{name}: {self.kubelet.log(NAMESPACE, name)[-1500:]}")
        return "\n".join(lines)


def embedded(address: str, text: str) -> tuple[str, list[float]]:
    """What a proxy did for a text, and its vector."""
    asked = urllib.request.Request(
        f"http://{address}:8090/v1/embeddings",
        json.dumps({"model": "clip", "input": [text]}).encode(),
        {"authorization": "Bearer sk-one", "content-type": "application/json"},
    )
    with urllib.request.urlopen(asked, timeout=60) as answer:
        told = json.load(answer)
        return answer.headers["x-mmcache"].partition(";")[0], told["data"][0]["embedding"]


class _Models(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._say({"object": "list", "data": [{"id": "clip", "object": "model"}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        data = [
            {"object": "embedding", "index": at, "embedding": [float(len(text)), 0.5]}
            for at, text in enumerate(asked["input"])
        ]
        usage = {"prompt_tokens": 2, "total_tokens": 2}
        self._say({"object": "list", "data": data, "model": asked["model"], "usage": usage})

    def _say(self, found: Any) -> None:
        body = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """A proxy that is ended leaves its connections."""


@contextmanager
def models() -> Iterator[str]:
    """The address of a model server."""
    server = _Quiet(("127.0.0.1", 0), _Models)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
