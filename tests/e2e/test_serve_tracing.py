"""`mmcache serve` as a process that tells of itself: traces, metrics, and a dashboard beside it."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("uvloop")
pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry is not installed: pip install 'mmcache[otel]'")
service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
httpx = pytest.importorskip("httpx")

from tests.e2e.test_serve import EMBEDDINGS, Process, embed, serving  # noqa: E402
from tests.unit.server.upstream import Upstream, served  # noqa: E402

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PATIENCE = 60.0
KEY = {"authorization": "Bearer sk-one"}


@dataclass
class Span:
    trace: str
    span: str
    parent: str
    name: str
    kind: int
    told: dict[str, Any]


@dataclass
class Receiver:
    """Takes OTLP, as a collector does."""

    address: str = ""
    spans: list[Span] = field(default_factory=list)
    resource: dict[str, Any] = field(default_factory=dict)
    tokens: set[str | None] = field(default_factory=set)
    more: threading.Condition = field(default_factory=threading.Condition)

    def take(self, body: bytes, token: str | None) -> None:
        found = service.ExportTraceServiceRequest.FromString(body)
        with self.more:
            self.tokens.add(token)
            for group in found.resource_spans:
                self.resource = values(group.resource.attributes)
                for scoped in group.scope_spans:
                    for one in scoped.spans:
                        ids = one.trace_id.hex(), one.span_id.hex(), one.parent_span_id.hex()
                        self.spans.append(Span(*ids, one.name, one.kind, values(one.attributes)))
            self.more.notify_all()

    def until(self, done: Callable[[list[Span]], bool]) -> list[Span]:
        """All spans, once they are as wished."""
        with self.more:
            assert self.more.wait_for(lambda: done(self.spans), PATIENCE), self.spans
            return list(self.spans)


def values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path == "/v1/traces":
                found.take(body, self.headers["authorization"])
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *words: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def upstream() -> Iterator[tuple[Upstream, str]]:
    app = Upstream()
    app.on(EMBEDDINGS, embed)
    with served(app) as address:
        yield app, address


def ask(proxy: Process, text: str, **headers: str) -> str:
    """What the cache did."""
    answer = httpx.post(
        proxy.address + EMBEDDINGS, json={"model": "small", "input": text}, headers=KEY | headers, timeout=PATIENCE
    )
    answer.raise_for_status()
    outcome: str = answer.headers["x-mmcache"].partition(";")[0]
    return outcome


def test_one_trace_from_the_caller_to_the_upstream(
    upstream: tuple[Upstream, str], receiver: Receiver, tmp_path: Path
) -> None:
    app, behind = upstream
    config = tmp_path / "mmcache.toml"
    config.write_text('[telemetry]\ntoken_env = "ADMIN"\nregion = "eu-west"\n')
    options = ["--upstream", behind, "--config", str(config), "--otlp", receiver.address, "--sample", "1"]
    with serving(*options, "--service", "front", cwd=tmp_path) as proxy:
        parent = f"00-{TRACE}-{SPAN}-01"
        assert ask(proxy, "a cat", traceparent=parent, tracestate="a=1", **{"user-agent": "curl/8.5.0"}) == "miss"
        reached = [asked for asked in app.asked if asked.path == EMBEDDINGS][-1]
        assert proxy.end() == 0  # sends what is left
    wanted = {"cache.lookup", "cache.compute", f"POST {EMBEDDINGS}", f"upstream POST {EMBEDDINGS}"}
    spans = {span.name: span for span in receiver.until(lambda found: wanted <= {span.name for span in found})}
    server, sent = spans[f"POST {EMBEDDINGS}"], spans[f"upstream POST {EMBEDDINGS}"]
    assert {span.trace for span in spans.values()} == {TRACE}
    assert server.parent == SPAN
    assert spans["cache.lookup"].parent == spans["cache.compute"].parent == server.span
    assert sent.parent == spans["cache.compute"].span
    assert reached.header(b"traceparent") == f"00-{TRACE}-{sent.span}-01".encode()
    assert reached.header(b"tracestate") == b"a=1"
    where = {"cache.route": EMBEDDINGS, "cache.client": "curl/8.5", "cache.client.region": "eu-west"}
    for span in (server, spans["cache.lookup"], spans["cache.compute"]):
        assert where.items() <= span.told.items(), span
    assert spans["cache.lookup"].told["cache.miss.reason"] == server.told["cache.miss.reason"] == "absent"
    assert spans["cache.lookup"].told["cache.upstream.span_id"] == server.span
    assert spans["cache.lookup"].told["cache.tenant"] == server.told["cache.tenant"]
    assert {span.told["cache.sampling.weight"] for span in spans.values()} == {1.0}
    assert receiver.resource["service.name"] == "front"
    assert receiver.tokens == {"Bearer the admin's long token"}
    shown = str(receiver.spans)
    assert "sk-one" not in shown
    assert "a cat" not in shown


def test_a_hit_is_in_its_requests_trace(upstream: tuple[Upstream, str], receiver: Receiver, tmp_path: Path) -> None:
    _, behind = upstream
    with serving("--upstream", behind, "--otlp", receiver.address, "--sample", "1", cwd=tmp_path) as proxy:
        while ask(proxy, "a cat", traceparent=f"00-{'1' * 32}-{SPAN}-01") != "hit":
            pass
        for _ in range(3):
            assert ask(proxy, "a cat", traceparent=f"00-{TRACE}-{SPAN}-01") == "hit"
        assert proxy.end() == 0
    found = receiver.until(lambda spans: sum(span.trace == TRACE for span in spans) >= 6)
    ours = [span for span in found if span.trace == TRACE]
    servers = {span.span for span in ours if span.name == f"POST {EMBEDDINGS}"}
    lookups = [span for span in ours if span.name == "cache.lookup"]
    assert (len(servers), len(lookups), len(ours)) == (3, 3, 6)
    assert {span.parent for span in lookups} == servers
    assert {(span.told["cache.outcome"], span.told["cache.tier"]) for span in lookups} == {("hit", "memory")}
    assert {span.told["cache.sampling.weight"] for span in ours} == {1.0}


def test_without_telemetry_headers_pass_untouched(upstream: tuple[Upstream, str], tmp_path: Path) -> None:
    app, behind = upstream
    with serving("--upstream", behind, cwd=tmp_path) as proxy:
        ask(proxy, "a cat", traceparent="not one", tracestate="=", baggage="a=b")
        reached = [asked for asked in app.asked if asked.path == EMBEDDINGS][-1]
        assert reached.header(b"traceparent") == b"not one"
        assert reached.header(b"tracestate") == b"="
        assert reached.header(b"baggage") == b"a=b"
        assert "mmcache_proxy_requests_total" in httpx.get(f"{proxy.address}/metrics").text
        assert proxy.end() == 0


def test_a_receiver_that_is_down_costs_nobody_anything(upstream: tuple[Upstream, str], tmp_path: Path) -> None:
    _, behind = upstream
    with serving("--upstream", behind, "--otlp", "http://127.0.0.1:9", "--sample", "1", cwd=tmp_path) as proxy:
        assert ask(proxy, "a cat") == "miss"
        assert "not received" in proxy.until("warning")["message"]
        assert ask(proxy, "a dog") == "miss"
        assert proxy.end() == 0


@contextmanager
def with_dashboard(behind: str, folder: Path) -> Iterator[Process]:
    pytest.importorskip("duckdb", reason="the dashboard's store is not installed: pip install 'mmcache[dashboard]'")
    pytest.importorskip("starlette")
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    try:
        with serving("--upstream", behind, "--dashboard", cwd=folder) as proxy:
            yield proxy
    finally:
        if before is None:
            del os.environ["XDG_STATE_HOME"]
        else:
            os.environ["XDG_STATE_HOME"] = before


def gone(address: str) -> bool:
    """Wait until nobody answers there."""
    for _ in range(int(PATIENCE / 0.05)):
        try:
            httpx.get(f"{address}/api/v1/meta", timeout=PATIENCE)
        except httpx.TransportError:
            return True
        threading.Event().wait(0.05)
    return False


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["drained", "killed"])
def test_a_dashboard_beside_it_is_fed_and_ends_with_it(
    upstream: tuple[Upstream, str], tmp_path: Path, number: int
) -> None:
    _, behind = upstream
    with with_dashboard(behind, tmp_path) as proxy:
        page = proxy.told["dashboard"]
        assert page.startswith("http://127.0.0.1:")
        assert ask(proxy, "a cat") == "miss"
        for _ in range(int(PATIENCE / 0.05)):
            found = httpx.get(f"{page}/api/v1/requests", timeout=PATIENCE).json()["requests"]
            if found:
                break
            threading.Event().wait(0.05)
        assert {one["route"] for one in found} == {EMBEDDINGS}
        assert "sk-one" not in json.dumps(found)
        code = proxy.end(number)
        assert code == (0 if number == signal.SIGTERM else -signal.SIGKILL)
        assert gone(page)


@pytest.mark.slow
def test_a_dashboard_that_cannot_start_says_why(upstream: tuple[Upstream, str], tmp_path: Path) -> None:
    from mmcache.cli.companion import companion
    from mmcache.model.errors import SettingsError

    with (
        pytest.raises(SettingsError, match=r"dashboard did not start: .*port"),
        companion(["dashboard", "--otlp", "nonsense:port", "--json"]),
    ):
        pass
