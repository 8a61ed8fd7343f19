"""Programs of other people, as the deploy kit starts them: rotel and Prometheus; and a receiver of OTLP."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
PROMETHEUS = shutil.which("prometheus")
PATIENCE = 120.0
T = TypeVar("T")


def until(told: Callable[[], T], what: str, patience: float = PATIENCE) -> T:
    """The first answer that says yes. Fails when none has come for as long as nobody waits."""
    end = time.monotonic() + patience
    while True:
        if found := told():
            return found
        assert time.monotonic() < end, f"never came: {what}"
        threading.Event().wait(0.1)


def free_ports(count: int) -> list[int]:
    """Ports that are free now; who starts on one must be ready to be told that it is no longer."""
    holders = [socket.socket() for _ in range(count)]
    try:
        for holder in holders:
            holder.bind(("127.0.0.1", 0))
        return [holder.getsockname()[1] for holder in holders]
    finally:
        for holder in holders:
            holder.close()


def accepts(port: int) -> bool:
    """Whether somebody listens."""
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except OSError:
        return False
    return True


@contextmanager
def started(command: Callable[[list[int]], list[str]], ports: int, log: Path, **env: str) -> Iterator[list[int]]:
    """A process that listens at ports of its own, until the end; with others, where somebody was faster."""
    for _ in range(5):
        given = free_ports(ports)
        with log.open("ab") as out:
            process = subprocess.Popen(
                command(given), stdin=subprocess.DEVNULL, stdout=out, stderr=out, env={**os.environ, **env}
            )
        try:
            up = until(lambda p=process, g=given: p.poll() is not None or all(map(accepts, g)), log.read_text)  # type: ignore[misc,arg-type]
            if up and process.poll() is None:
                yield given
                return
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    raise AssertionError(f"it never started: {log.read_text()[-2000:]}")


@contextmanager
def rotel(receiver: str, log: Path) -> Iterator[int]:
    """rotel.sh as it stands, with other ports and another receiver; its OTLP/HTTP port."""

    def command(ports: list[int]) -> list[str]:
        told = {
            "ROTEL_OTLP_HTTP_ENDPOINT": f"127.0.0.1:{ports[0]}", "ROTEL_OTLP_GRPC_ENDPOINT": f"127.0.0.1:{ports[1]}",
            "ROTEL_OTLP_EXPORTER_ENDPOINT": receiver, "ROTEL_PID_FILE": str(log.with_suffix(".pid")),
            "PYTHON": sys.executable,
        }  # fmt: skip
        return ["env", *(f"{name}={value}" for name, value in told.items()), str(DEPLOY / "collector/rotel.sh")]

    with started(command, 2, log) as ports:
        yield ports[0]


@contextmanager
def dashboard(folder: Path) -> Iterator[str]:
    """`mmcache dashboard`; its address."""
    with (folder / "dashboard.log").open("ab") as log:
        command = [sys.executable, "-m", "mmcache.cli", "dashboard", "--otlp", "127.0.0.1:0", "--store", ":memory:"]
        process = subprocess.Popen(
            [*command, "--json"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder,
        )  # fmt: skip
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, (folder / "dashboard.log").read_text()
        yield json.loads(line)["otlp"]
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


@dataclass
class Received:
    """What a receiver of OTLP/HTTP was sent."""

    address: str = ""
    requests: list[tuple[str, str, int]] = field(default_factory=list)
    """Path, content encoding, spans in it."""
    spans: list[tuple[str, dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    """Name, attributes, those of the resource."""
    metrics: set[str] = field(default_factory=set)


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@contextmanager
def receiver() -> Iterator[Received]:
    """Takes spans and metrics, and says yes."""
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    found = Received()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            encoding = self.headers.get("content-encoding", "")
            body = gzip.decompress(body) if encoding == "gzip" else body
            count = 0
            if self.path == "/v1/traces":
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    of = _values(resource.resource.attributes)
                    for scope in resource.scope_spans:
                        count += len(scope.spans)
                        found.spans += [(span.name, _values(span.attributes), of) for span in scope.spans]
            else:
                for metrics in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    found.metrics |= {metric.name for scope in metrics.scope_metrics for metric in scope.metrics}
            found.requests.append((self.path, encoding, count))
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    found.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus, asked by its own interface."""

    address: str

    def ask(self, path: str, **words: str) -> Any:
        """The `data` of an answer; None while it has none to give."""
        query = urllib.parse.urlencode(words)
        try:
            with urllib.request.urlopen(f"{self.address}/api/v1/{path}?{query}", timeout=30) as reply:
                return json.load(reply)["data"]
        except (urllib.error.URLError, OSError, ValueError):
            return None

    def value(self, expression: str) -> float | None:
        """Of an expression that gives one series, or none."""
        data = self.ask("query", query=expression)
        return float(data["result"][0]["value"][1]) if data and data["result"] else None

    def firing(self) -> set[str] | None:
        """Names of alerts that fire now; None where it gave no answer."""
        data = self.ask("alerts")
        if data is None:
            return None
        return {one["labels"]["alertname"] for one in data["alerts"] if one["state"] == "firing"}


def quickened(rules: str, factor: int) -> str:
    """The same rules with all their minutes so many times shorter; `for` becomes 0, since one look is enough."""

    def shorter(found: re.Match[str]) -> str:
        seconds = int(found[2]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[found[3]]
        return f"{found[1]}{max(seconds * 1000 // factor, 1)}ms"

    rules = re.sub(r"(\[|offset )([0-9]+)([smhd])(?=\]|\b)", shorter, rules)
    return re.sub(r"^( +for: ).+$", r"\g<1>0s", rules, flags=re.M)


@contextmanager
def prometheus(target: str, folder: Path, factor: int) -> Iterator[Prometheus]:
    """Prometheus with the kit's configuration and rules, their times so many times shorter, looking at `target`."""
    folder.mkdir()
    rules = (DEPLOY / "prometheus/rules.yml").read_text(encoding="utf-8")
    (folder / "rules.yml").write_text(quickened(rules, factor), encoding="utf-8")
    text = (DEPLOY / "prometheus/prometheus.yml").read_text(encoding="utf-8")
    text = text.replace("127.0.0.1:8090", target).replace(": 15s", ": 2s")
    config = folder / "prometheus.yml"
    config.write_text(text, encoding="utf-8")

    def command(ports: list[int]) -> list[str]:
        assert PROMETHEUS is not None
        return [
            PROMETHEUS, f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{ports[0]}", "--enable-feature=exemplar-storage", "--log.level=warn",
        ]  # fmt: skip

    with started(command, 1, folder / "log") as ports:
        found = Prometheus(f"http://127.0.0.1:{ports[0]}")
        until(lambda: found.ask("status/runtimeinfo"), "Prometheus is ready")
        yield found
