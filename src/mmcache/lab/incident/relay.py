"""Stands between processes and the dashboard and moves what they tell to the minutes of a story.

A rehearsal takes seconds and tells of forty minutes. Each of its rounds stands for one minute: the traces of a round
are spread over its minute, each process's evenly, in the order in which they began, each moved as a whole. Nothing else
of them is changed.
"""

from __future__ import annotations

import gzip
from collections import defaultdict
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

SECOND = 1_000_000_000
MINUTE_SECONDS = 60.0
PATIENCE_SECONDS = 60.0
KIND = "application/x-protobuf"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    """Of connections that nobody took yet: on a busy machine the usual five are soon refused."""


class Relay:
    """An OTLP receiver that holds what comes until `tell`. Its address is `address`."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._held: list[tuple[str, bytes]] = []
        self._lock = lock = Lock()
        held = self._held

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                with lock:
                    held.append((self.path, body))
                self.send_response(200)
                self.send_header("content-type", KIND)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                return

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = Thread(target=self._server.serve_forever, name="mmcache-relay", daemon=True)
        self._thread.start()

    def tell(self, minute: float) -> None:
        """Hand on all that came since the last time, as of the minute that begins at `minute`, Unix seconds.

        Raises `OSError` where the dashboard does not take it.
        """
        with self._lock:
            held = self._held[:]
            self._held.clear()
        traces = [(path, _traces(body)) for path, body in held if path.endswith("/traces")]
        spans = [span for _, said in traces for _, span in _spans(said)]
        moves: dict[bytes, int] = {}
        for began in _processes(said for _, said in traces).values():
            length = (MINUTE_SECONDS - 1) * SECOND / len(began)
            for place, trace in enumerate(sorted(began, key=lambda trace: began[trace])):
                moves[trace] = int(minute * SECOND + place * length) - began[trace]
        for span in spans:
            by = moves[span.trace_id]
            span.start_time_unix_nano += by
            span.end_time_unix_nano += by
            for event in span.events:
                event.time_unix_nano += by
        end = int((minute + MINUTE_SECONDS - 1) * SECOND)
        others = [(path, _metrics(body, end)) for path, body in held if not path.endswith("/traces")]
        opener = build_opener(ProxyHandler({}))
        for path, said in [*traces, *others]:
            request = Request(f"{self._target}{path}", said.SerializeToString(), {"content-type": KIND})
            with opener.open(request, timeout=PATIENCE_SECONDS) as answer:
                answer.read()

    def close(self) -> None:
        """Nothing more is taken."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _traces(body: bytes) -> Any:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    return ExportTraceServiceRequest.FromString(body)


def _spans(said: Any) -> Iterator[tuple[str, Any]]:
    """With the instance that told it."""
    for resource in said.resource_spans:
        known = {one.key: one.value.string_value for one in resource.resource.attributes}
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield known.get("service.instance.id", ""), span


def _processes(said: Iterable[Any]) -> dict[str, dict[bytes, int]]:
    """Of each process, its traces, and when they began."""
    found: dict[str, dict[bytes, int]] = defaultdict(dict)
    for instance, span in (pair for one in said for pair in _spans(one)):
        began = found[instance].get(span.trace_id, span.start_time_unix_nano)
        found[instance][span.trace_id] = min(span.start_time_unix_nano, began)
    return found


def _metrics(body: bytes, end: int) -> Any:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    said = ExportMetricsServiceRequest.FromString(body)
    for resource in said.resource_metrics:
        for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
            for point in getattr(metric, metric.WhichOneof("data") or "gauge").data_points:
                by = end - point.time_unix_nano
                point.time_unix_nano = end
                point.start_time_unix_nano += by if point.start_time_unix_nano else 0
                for exemplar in getattr(point, "exemplars", ()):
                    exemplar.time_unix_nano += by
    return said
