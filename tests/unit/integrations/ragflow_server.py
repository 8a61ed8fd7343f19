"""A small server that stands in for RAGFlow's HTTP API, for its real SDK to talk to: datasets, documents, retrieval.

Written from its published HTTP reference and the SDK's own requests; it is no part of RAGFlow.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class Stage:
    """What the server knows; tests write to it."""

    address: str = ""
    keys: set[str] = field(default_factory=lambda: {"key-a", "key-b"})
    datasets: dict[str, dict[str, Any]] = field(default_factory=dict)
    chunks: list[dict[str, Any]] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    """Bodies of retrievals."""
    told: int = 0
    """How often the state of a dataset was asked for."""
    down: bool = False

    def add(self, dataset: str, document: str, content: str, at: float) -> None:
        """A document of one chunk, uploaded and parsed at `at` (seconds since 1970)."""
        row = self.datasets.setdefault(dataset, {"id": dataset, "name": dataset, "documents": []})
        row["documents"].append({"id": document, "update_time": int(at * 1000), "run": "DONE", "status": "1"})
        row |= {"update_time": int(at * 1000), "document_count": len(row["documents"])}
        row["chunk_count"] = len(row["documents"])
        self.chunks.append(
            {
                "id": f"chunk-{document}", "content": content, "dataset_id": dataset, "document_id": document,
                "document_name": f"{document}.txt", "similarity": 0.5, "vector_similarity": 0.25,
                "term_similarity": 0.75, "positions": [[1, 2.5, 3]], "important_keywords": ["a"], "unknown": "dropped",
            }
        )  # fmt: skip

    def answer(self, method: str, path: str, query: dict[str, str], body: dict[str, Any], key: str) -> dict[str, Any]:
        """The body of the answer to one request."""
        if key not in self.keys:
            return {"code": 109, "message": "API key is invalid"}
        parts = path.removeprefix("/api/v1/").split("/")
        if (method, parts) == ("GET", ["datasets"]):
            self.told += 1
            found = [row for row in self.datasets.values() if query.get("id") in (None, row["id"])]
            if not found:
                return {"code": 108, "message": "lacks permission for dataset"}
            return {"code": 0, "data": [{k: v for k, v in row.items() if k != "documents"} for row in found]}
        if method == "GET" and len(parts) == 3 and parts[2] == "documents":
            docs = sorted(self.datasets[parts[1]]["documents"], key=lambda row: -row["update_time"])
            return {"code": 0, "data": {"docs": docs[: int(query["page_size"])], "total": len(docs)}}
        if (method, parts) == ("POST", ["retrieval"]):
            self.asked.append(body)
            words = set(body["question"].split())
            found = [
                chunk
                for chunk in self.chunks
                if chunk["dataset_id"] in body["dataset_ids"] and words & set(chunk["content"].split())
            ]
            return {"code": 0, "data": {"chunks": found[: body["page_size"]], "total": len(found)}}
        return {"code": 404, "message": f"no {method} {path}"}


@contextmanager
def serving() -> Iterator[Stage]:
    """A stage that answers on loopback."""
    stage = Stage()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            split = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(split.query).items()}
            raw = self.rfile.read(int(self.headers.get("content-length") or 0))
            key = self.headers.get("authorization", "").removeprefix("Bearer ")
            answer = stage.answer(self.command, split.path, query, json.loads(raw or b"{}"), key)
            encoded = b"nonsense" if stage.down else json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

        do_GET = do_POST = _serve  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stage.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield stage
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
