"""A small server with the dashboard's page and an API of canned answers, each of which a test may replace."""

from __future__ import annotations

import json
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.e2e.dashboard_page import incident

import mmcache

PAGE = Path(mmcache.__file__).parent / "dashboard" / "page"
KINDS = {".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
)
Query = dict[str, list[str]]


class FakeApi:
    """Its answers, and what was asked of it."""

    def __init__(self) -> None:
        self.answers: dict[str, Callable[[Query], Any]] = {}
        """By first part of the path (`ratio`, `traces`): replaces what `incident` says. An int is an error's status."""
        self.asked: list[tuple[str, Query]] = []
        self.connections: set[socket.socket] = set()
        self.watchers: list[queue.Queue[str | None]] = []
        self.gates: dict[str, threading.Event] = {}
        """An answer waits for its gate."""
        self.origin = ""

    def tick(self) -> None:
        for watcher in list(self.watchers):
            watcher.put('event: tick\ndata: {"to": 1, "spans": 1, "lookups": 1, "hits": 1, "ratio": 1}\n\n')

    def queries(self, name: str) -> list[Query]:
        return [query for path, query in list(self.asked) if path.split("/")[0] == name]


class Handler(BaseHTTPRequestHandler):
    api: FakeApi
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.api.connections.add(self.connection)

    def finish(self) -> None:
        self.api.connections.discard(self.connection)
        with suppress(OSError):
            super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in {
            "content-type": kind,
            "content-length": str(len(body)),
            "content-security-policy": CSP,
            "x-content-type-options": "nosniff",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        if address.path.startswith("/api/v1/"):
            self.tell(address.path.removeprefix("/api/v1/"), parse_qs(address.query, keep_blank_values=True))
            return
        name = "index.html" if address.path == "/" else address.path.removeprefix("/static/")
        file = PAGE / name
        if ".." in name or not file.is_file():
            self.send(404, "text/plain", b"")
        else:
            self.send(200, KINDS[file.suffix], file.read_bytes())

    def tell(self, path: str, query: Query) -> None:
        if path == "live":
            self.stream()
            return
        self.api.asked.append((path, query))
        first = path.split("/")[0]
        if first in self.api.gates:
            self.api.gates[first].wait(60)
        own = self.api.answers.get(first)
        said = own(query) if own else incident.answer(path, query)
        status = said if isinstance(said, int) else 200 if said is not None else 404
        if status != 200:
            said = {"error": {"message": f"no {first} today", "code": "made-up"}}
        self.send(status, "application/json", json.dumps(said).encode())

    def stream(self) -> None:
        waiting: queue.Queue[str | None] = queue.Queue()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        self.api.watchers.append(waiting)
        try:
            self.wfile.write(b": here\n\n")
            while (event := waiting.get()) is not None:
                self.wfile.write(event.encode())
        except OSError:
            pass  # the browser left
        finally:
            self.api.watchers.remove(waiting)


@contextmanager
def serving(api: FakeApi, port: int = 0) -> Iterator[FakeApi]:
    """The server on loopback, until the block is left."""
    server = ThreadingHTTPServer(("127.0.0.1", port), type("Bound", (Handler,), {"api": api}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    api.origin = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield api
    finally:
        for gate in api.gates.values():
            gate.set()
        for watcher in list(api.watchers):
            watcher.put(None)
        server.shutdown()
        server.server_close()
        for connection in list(api.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
