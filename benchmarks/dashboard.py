"""The dashboard over ten million generated spans: how long each question takes over HTTP, and how quick it takes in."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from mmcache.hotkeys.view import EVENT_NAME, MOST_EDGES, MOST_KEYS, Community, HotEdge, HotKey, HotView, encode
from mmcache.lab.bench import main
from mmcache.lab.incident.many import build
from mmcache.lab.incident.spans import SWAP_AT, Night
from mmcache.lab.table import Progress, Result, Row, Table, percentile
from mmcache.model.errors import MMCacheError

COPIES, QUICK_COPIES = 20, 1
NIGHT, QUICK_NIGHT = 580_000, 200_000
"""Spans asked of the generator; it makes about a tenth less."""
HOURS = 24.0
TARGET_MS = 200.0
BATCH = 512
QUESTIONS: dict[str, dict[str, Any]] = {
    "ratio": {},
    "ratio by tenant": {"by": "tenant"},
    "ratio, filtered": {"by": "instance", "tenant": "shop", "region": ["eu-west", "us-east"]},
    "ratio, 1000 points": {"points": 1000},
    "reasons": {},
    "saved": {},
    "tiers": {},
    "keys": {},
    "keys, filtered": {"tenant": "clinic", "instance": "web-2"},
    "requests": {},
    "requests, rare": {"reason": "signature", "tenant": "clinic", "region": "ap-south"},
    "requests of a key": {"key": "KEY"},
    "ratio of a key": {"key": "KEY"},
    "causes": {},
}


class Client:
    """One connection to a dashboard that runs in a process of its own."""

    def __init__(self, base: str) -> None:
        self.base = urlsplit(base)
        self._connection = http.client.HTTPConnection(str(self.base.hostname), self.base.port, timeout=600)

    def get(self, path: str, **query: Any) -> tuple[Any, float]:
        """The answer, and how many milliseconds it took."""
        began = time.perf_counter()
        pairs = {name.rstrip("_"): value for name, value in query.items()}
        self._connection.request("GET", f"{path}?{urlencode(pairs, doseq=True)}")
        reply = self._connection.getresponse()
        raw = reply.read()
        took = (time.perf_counter() - began) * 1e3
        if reply.status != 200:
            raise MMCacheError(f"{path}: {reply.status} {raw[:200]!r}")
        return json.loads(raw), took

    def post(self, body: bytes, path: str = "/v1/traces") -> float:
        """Milliseconds until it was on the disk."""
        began = time.perf_counter()
        headers = {"content-type": "application/x-protobuf", "content-encoding": "gzip"}
        self._connection.request("POST", path, body, headers)
        reply = self._connection.getresponse()
        reply.read()
        if reply.status != 200:
            raise MMCacheError(f"refused: {reply.status}")
        return (time.perf_counter() - began) * 1e3


def watched(client: Client, processes: int = 8) -> None:
    """The largest views of hot keys that there are, of several processes that have most keys in common."""
    for process in range(processes):
        keys = [
            HotKey(
                f"{at + 10 * process + 1:016x}", 200.0 - at, {"heat": 150.0 - at, "attention": 50.0}, 150.0, "text",
                f"tenant-{at % 5}", "memory", 4096, 12.0, 0.8, at // 10 + 1,
            )
            for at in range(MOST_KEYS)
        ]  # fmt: skip
        edges = [HotEdge(at % MOST_KEYS, (7 * at + 1) % MOST_KEYS, 1.0 + at % 9) for at in range(MOST_EDGES)]
        groups = [Community(at + 1, 10, 20.0, "living", time.time()) for at in range(MOST_KEYS // 10)]
        request = ExportLogsServiceRequest()
        group = request.resource_logs.add()
        group.resource.attributes.add(key="service.instance.id").value.string_value = f"web-{process}"
        record = group.scope_logs.add().log_records.add(event_name=EVENT_NAME)
        record.body.string_value = encode(HotView(time.time(), "mmcache", "", keys, edges, groups)).decode()
        client.post(gzip.compress(request.SerializeToString(), 1), "/v1/logs")


@contextmanager
def dashboard(store: Path) -> Iterator[str]:
    """The command, and its address."""
    command = [sys.executable, "-m", "mmcache.cli", "dashboard", "--otlp", ":0", "--json", "--limit", "8GiB"]
    with subprocess.Popen([*command, "--store", str(store)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield str(json.loads(process.stdout.readline())["page"])
        finally:
            process.terminate()


def batch() -> bytes:
    """One request of 512 lookups, as an SDK's exporter sends it."""
    request, now = ExportTraceServiceRequest(), time.time_ns()
    group = request.resource_spans.add()
    group.resource.attributes.add(key="service.name").value.string_value = "mmcache"
    spans = group.scope_spans.add().spans
    for at in range(BATCH):
        span = spans.add(trace_id=os.urandom(16), span_id=os.urandom(8), name="cache.lookup", kind=1)
        span.start_time_unix_nano, span.end_time_unix_nano = now, now + 200_000
        texts = {
            "cache.outcome": "hit", "cache.strategy": "exact", "cache.tier": "memory", "cache.modality": "image",
            "cache.tenant": f"tenant-{at % 20}", "cache.route": "/v1/embeddings", "cache.client.region": "eu-west",
            "cache.key.hash": os.urandom(8).hex(), "cache.content.id": os.urandom(16).hex(),
            "cache.signature": "a3f19c0d5be27784", "cache.signature.model_version": "clip@4",
            "cache.content": os.urandom(16).hex(), "cache.client": "openai-python/2.8",
        }  # fmt: skip
        for name, text in texts.items():
            span.attributes.add(key=name).value.string_value = text
        span.attributes.add(key="cache.hit").value.bool_value = True
        span.attributes.add(key="cache.saved_ms").value.double_value = 74.0
        span.attributes.add(key="cache.bytes").value.int_value = 197_000
        span.attributes.add(key="cache.sampling.weight").value.double_value = 100.0
    return gzip.compress(request.SerializeToString(), 1)


def sent(base: str, seconds: float) -> tuple[float, list[float]]:
    """Spans a second of two senders that wait for each answer, and how long each answer took."""
    taken: list[float] = []

    def run(bodies: list[bytes]) -> None:
        client = Client(base)
        taken.extend(client.post(body) for body in bodies)

    before = [batch() for _ in range(4)]
    estimate = sum(Client(base).post(body) for body in before) / 4e3
    count = max(4, min(60, int(seconds / estimate)))
    senders = [threading.Thread(target=run, args=([batch() for _ in range(count)],)) for _ in range(2)]
    began = time.perf_counter()
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    return 2 * count * BATCH / (time.perf_counter() - began), taken


class DashboardTable(Table):
    """Questions and intake."""

    name = "bench-dashboard"
    title = "How quick is the dashboard at ten million spans?"
    default_seeds = (0,)

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        copies, spans, rounds = (QUICK_COPIES, QUICK_NIGHT, 5) if quick else (COPIES, NIGHT, 21)
        midnight = time.time() // 86400 * 86400 - 86400
        rows: list[Row] = []
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "traces.duckdb"
            progress("generating spans", 0, 3)
            count = build(path, Night(midnight, spans, HOURS, seeds[0]), copies)
            progress("asking", 1, 3)
            with dashboard(path) as base:
                watched(Client(base))
                rows += self._asked(Client(base), midnight, rounds)
                progress("sending", 2, 3)
                rate, answers = sent(base, 2.0 if quick else 8.0)
            rows.append(Row.of("store/size", "bytes a span in the file", "B", "lower", path.stat().st_size / count))
        rows.append(
            Row.of("take/otlp", "spans a second, two senders over OTLP", "spans/s", "higher", rate, target=5000)
        )
        rows.append(Row.of("take/answer", f"answer to {BATCH} spans, on the disk", "ms", "lower", answers))
        progress("done", 3, 3)
        real = (f"{count:,} spans in DuckDB, asked over HTTP on loopback, {rounds} times each",)
        generated = (
            f"the spans, their times, keys and misses are generated (mmcache.lab.incident), {copies} times over",
        )
        return Result(self.name, quick, tuple(seeds), real, generated, tuple(rows))

    def _asked(self, client: Client, midnight: float, rounds: int) -> list[Row]:
        day = {"from_": midnight, "to": midnight + HOURS * 3600}
        hour = {"from_": midnight + SWAP_AT - 1800, "to": midnight + SWAP_AT + 1800}
        key = client.get("/api/v1/keys", **day, top=1)[0]["keys"][0]["key"]
        (miss,) = client.get("/api/v1/requests", **day, limit=1, reason="signature")[0]["requests"]
        asked: list[tuple[str, str, dict[str, Any]]] = [("meta", "/api/v1/meta", {})]
        for name, window in (("hour", hour), ("day", day)):
            for said, query in QUESTIONS.items():
                given = {axis: key if value == "KEY" else value for axis, value in query.items()}
                asked.append((f"{name}, {said}", f"/api/v1/{said.split()[0].rstrip(',')}", window | given))
        asked.append(("graph of hot keys", "/api/v1/graph", {}))  # of now
        asked.append(("one trace", f"/api/v1/traces/{miss['trace']}", {}))
        asked.append(("explain", f"/api/v1/explain/{miss['trace']}/{miss['span']}", {}))
        taken: dict[str, list[float]] = {name: [] for name, _, _ in asked}
        for at in range(rounds + 1):
            for name, path, query in asked:
                took = client.get(path, **query)[1]
                if at:  # the first is from a cold file
                    taken[name].append(took)
        rows = []
        for name, times in taken.items():
            rows.append(Row.of(f"ask/{name}", name, "ms", "lower", times))
            p95 = percentile(times, 0.95)
            rows.append(Row.of(f"p95/{name}", f"{name}, 95th percentile", "ms", "lower", p95, target=TARGET_MS))
        return rows


if __name__ == "__main__":
    sys.exit(main(DashboardTable()))
