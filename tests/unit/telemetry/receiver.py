"""A receiver of OTLP over HTTP on a port of its own, which keeps what came."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import pytest

pytest.importorskip("opentelemetry.proto", reason="OTLP's messages are not here")

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PATIENCE = 60.0
"""Seconds: a busy machine is no failure."""


class Receiver:
    """`with Receiver() as receiver: instrument(cache, otlp=receiver.address)`."""

    def __init__(self, status: int = 200) -> None:
        self.status, self.headers = status, list[dict[str, str]]()
        self.traces: list[Any] = []
        self.metrics: list[Any] = []
        self.hold = threading.Event()
        """Set = answers; what comes before waits."""
        self.hold.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
                receiver.hold.wait(PATIENCE)
                if receiver.status == 200:
                    traces = self.path == "/v1/traces"
                    found = ExportTraceServiceRequest() if traces else ExportMetricsServiceRequest()
                    found.ParseFromString(body)
                    (receiver.traces if traces else receiver.metrics).append(found)
                self.send_response(receiver.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.05], daemon=True)
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def spans(self, instance: str | None = None) -> list[Any]:
        """All that came, or those of one instance."""
        return [
            span
            for request in list(self.traces)
            for by in request.resource_spans
            if instance in (None, told(by.resource)["service.instance.id"])
            for scope in by.scope_spans
            for span in scope.spans
        ]

    def sums(self, name: str, instance: str | None = None) -> Counter[tuple[tuple[str, str], ...]]:
        """The latest of a counter, by its labels."""
        found = Counter[tuple[tuple[str, str], ...]]()
        for request in list(self.metrics):
            for by in request.resource_metrics:
                if instance in (None, told(by.resource)["service.instance.id"]):
                    for metric in (metric for scope in by.scope_metrics for metric in scope.metrics):
                        for point in metric.sum.data_points if metric.name == name else ():
                            found[tuple(sorted(told(point).items()))] = point.as_int
        return found

    def resources(self) -> list[dict[str, Any]]:
        """Of whom anything came, each once."""
        found: dict[str, dict[str, Any]] = {}
        for request in list(self.traces):
            for by in request.resource_spans:
                found[told(by.resource)["service.instance.id"]] = told(by.resource)
        for request in list(self.metrics):
            for by in request.resource_metrics:
                found[told(by.resource)["service.instance.id"]] = told(by.resource)
        return list(found.values())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.hold.set()
        self._server.shutdown()
        self._server.server_close()


def told(of: Any) -> dict[str, Any]:
    """Attributes by name."""
    return {a.key: a.value.string_value or a.value.int_value or a.value.double_value for a in of.attributes}


def until(true: Callable[[], object]) -> None:
    """Wait for it, patiently."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)
