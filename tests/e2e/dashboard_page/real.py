"""A real `mmcache dashboard`, and spans for it as any SDK would send them: OTLP as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def dashboard(store: Path, port: int = 0) -> Iterator[str]:
    """The process; gives its address."""
    words = ["dashboard", "--otlp", f"127.0.0.1:{port}", "--store", str(store), "--json"]
    process = subprocess.Popen([sys.executable, "-m", "mmcache.cli", *words], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["page"]
    finally:
        process.terminate()
        process.wait(60)
        assert process.stdout is not None
        process.stdout.close()


def attributes(given: dict[str, Any]) -> list[dict[str, Any]]:
    kinds = {bool: "boolValue", float: "doubleValue", str: "stringValue"}
    return [{"key": name, "value": {kinds[type(value)]: value}} for name, value in given.items()]


def lookup(number: int, at: float, *, hit: bool, name: str = "cache.lookup", **more: str) -> dict[str, Any]:
    """A span. more: `tenant="a"` for `cache.tenant`; the rest by `attributes_`."""
    said: dict[str, Any] = {"cache.hit": hit, "cache.outcome": "hit" if hit else "miss", "cache.modality": "image"}
    said |= {} if hit else {"cache.miss.reason": "absent"}
    said |= {f"cache.{key}": value for key, value in more.items()}
    begin = int(at * 1e9)
    return {
        "traceId": f"{number + 1:032x}", "spanId": f"{number + 1:016x}", "name": name, "kind": 1,
        "startTimeUnixNano": str(begin), "endTimeUnixNano": str(begin + 70_000), "attributes": attributes(said),
    }  # fmt: skip


def send(page: str, spans: list[dict[str, Any]], instance: str = "one", service: str = "mmcache") -> None:
    """Posts them; the answer says that they were taken."""
    resource = {"attributes": attributes({"service.name": service, "service.instance.id": instance})}
    body = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}
    kind = {"content-type": "application/json"}
    request = urllib.request.Request(f"{page}/v1/traces", json.dumps(body).encode(), kind)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as answer:
        assert answer.status == 200
