"""Stands between processes and the dashboard and moves what they tell to the minutes of a story.

A rehearsal takes a minute or less and tells of forty. Each of its rounds stands for one minute: every trace, as a
whole, goes to the minute of the round in which it began, and the order within is kept. Nothing else of it is changed.
"""

from __future__ import annotations

import gzip
import time
from bisect import bisect_right
from collections import OrderedDict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

SECOND = 1_000_000_000
MINUTE_SECONDS = 60.0
FULL = 55.0
"""Seconds of a minute that a round fills, if it takes as long as was guessed."""
MOST_TRACES = 200_000
PATIENCE_SECONDS = 60.0


class Story:
    """Which real time is which of the story's, nanoseconds. Safe under threads."""

    def __init__(self) -> None:
        self._began: list[int] = []
        self._rounds: list[tuple[int, float]] = []
        self._traces: OrderedDict[bytes, int] = OrderedDict()
        self._lock = Lock()

    def round(self, minute: float, guess: float) -> None:
        """From now on it is `minute` (Unix seconds); it will take about `guess` real seconds."""
        with self._lock:
            self._began.append(time.time_ns())
            self._rounds.append((int(minute * SECOND), FULL / max(guess, 0.01)))

    def moved(self, when: int) -> int:
        """By how much something of the real time `when` is moved."""
        with self._lock:
            place = max(bisect_right(self._began, when) - 1, 0)
            began, (minute, speed) = self._began[place], self._rounds[place]
        into = min(max(0, when - began) * speed, (MINUTE_SECONDS - 1) * SECOND)
        return minute + int(into) - when

    def of_trace(self, trace: bytes, when: int) -> int:
        """By how much all spans of a trace are moved; `when` is the real start of the first one that came."""
        with self._lock:
            known = self._traces.get(trace)
        if known is None:
            known = self.moved(when)
            with self._lock:
                self._traces[trace] = known
                if len(self._traces) > MOST_TRACES:
                    self._traces.popitem(last=False)
        return known


class Relay:
    """An OTLP receiver that hands on what it has moved. Its address is `address`."""

    def __init__(self, target: str) -> None:
        self.story = story = Story()
        opener = build_opener(ProxyHandler({}))

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                moved = _traces(body, story) if self.path.endswith("/traces") else _metrics(body, story)
                request = Request(f"{target}{self.path}", moved, {"content-type": "application/x-protobuf"})
                try:
                    with opener.open(request, timeout=PATIENCE_SECONDS) as answer:
                        status, said = answer.status, answer.read()
                except HTTPError as error:
                    with error:
                        status, said = error.code, error.read()
                self.send_response(status)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, format: str, *args: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = Thread(target=self._server.serve_forever, name="mmcache-relay", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Nothing more is handed on."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _traces(body: bytes, story: Story) -> bytes:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    said = ExportTraceServiceRequest.FromString(body)
    for resource in said.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                by = story.of_trace(span.trace_id, span.start_time_unix_nano)
                span.start_time_unix_nano += by
                span.end_time_unix_nano += by
                for event in span.events:
                    event.time_unix_nano += by
    out: bytes = said.SerializeToString()
    return out


def _metrics(body: bytes, story: Story) -> bytes:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    said = ExportMetricsServiceRequest.FromString(body)
    for resource in said.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                _points(getattr(metric, metric.WhichOneof("data") or "gauge").data_points, story)
    out: bytes = said.SerializeToString()
    return out


def _points(points: Any, story: Story) -> None:
    for point in points:
        point.time_unix_nano += story.moved(point.time_unix_nano)
        if point.start_time_unix_nano:
            point.start_time_unix_nano += story.moved(point.start_time_unix_nano)
        for exemplar in getattr(point, "exemplars", ()):
            exemplar.time_unix_nano += story.moved(exemplar.time_unix_nano)
