"""A dashboard's API with canned answers, for `mmcache top`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

REASONS = ("absent", "expired", "evicted", "signature", "denied", "corrupt", "bypassed", "abstained", "timeout",
           "tier-down", "stale-lease")  # fmt: skip


def answers(name: str = "batch") -> dict[str, Any]:
    """By the endpoint's name; `name` is a tenant's, an instance's and a key's."""
    t = [60.0 * at for at in range(30)]
    falling = [0.9 if at < 20 else 0.4 for at in range(30)]

    def line(called: str, ratios: list[Any]) -> dict[str, Any]:
        hits = [100 * (ratio or 0.0) for ratio in ratios]
        return {"name": called, "hits": hits, "misses": [100 - hit for hit in hits], "ratio": ratios}

    return {
        "ratio": {"step": 60, "t": t, "series": [line("all", falling)]},
        "by": {"step": 60, "t": t, "series": [line(name, [None, *falling[1:]]), line("", falling)]},
        "reasons": {"step": 60, "t": t, "reasons": {reason: [float(at)] * 30 for at, reason in enumerate(REASONS)}},
        "saved": {"step": 60, "t": t, "seconds": [1.0], "bytes": [5], "total_seconds": 5025.0, "total_bytes": 7 << 30,
                  "cost_avoided": 3.49, "currency": "USD", "per_hour": 2.5},
        "tiers": {"t": t, "tiers": [{"service": "s", "instance": name, "tier": "memory", "used": [None, 3 << 28],
                                     "limit": 1 << 30, "blocks": [1, 2], "evictions": [0, 812]}]},
        "keys": {"t": t, "keys": [{"key": name, "modality": "image", "tenant": name, "hits": 90, "misses": 10,
                                   "counts": [100]}]},
        "causes": {"baseline": {}, "now": {}, "causes": [
            {"cause": "flood", "text": f"Other traffic (tenant {name}): 11 times as many lookups.", "misses": 20110,
             "share": 0.7, "since": 1790216400.0, "where": {}, "examples": [], "moved": []},
            {"cause": "signature", "text": "Another signature (instance encoder-2): model_version was v1, is v2.",
             "misses": 4777, "share": 0.3, "since": None, "where": {}, "examples": [], "moved": []}]},
    }  # fmt: skip


@contextmanager
def dashboard(canned: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, list[str]]]]]:
    """Its address, and the queries that came. `canned` may be changed meanwhile; what it lacks is 404, and what
    can be called is."""
    asked: list[dict[str, list[str]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = parse_qs(parts.query)
            asked.append(query)
            name = parts.path.removeprefix("/api/v1/")
            found = canned.get("by" if "by" in query else name)
            if callable(found):
                found = found()
            body = found if isinstance(found, bytes) else json.dumps(found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()
            thread.join()
