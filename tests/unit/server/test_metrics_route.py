"""`GET /metrics`: what is told, in which form, and to whom."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import msgspec
import pytest

parser = pytest.importorskip("prometheus_client.parser")
openmetrics = pytest.importorskip("prometheus_client.openmetrics.parser")
httpx = pytest.importorskip("httpx")

from tests.unit.server.conftest import KEY, World  # noqa: E402
from tests.unit.server.echo import ECHO  # noqa: E402

from mmcache import Cache  # noqa: E402
from mmcache.server import scraped  # noqa: E402
from mmcache.server.config import ServerSettings, TelemetryRules  # noqa: E402
from mmcache.server.journal import Journal  # noqa: E402
from mmcache.server.scraped import local, share_out  # noqa: E402
from mmcache.server.settings_file import Configured  # noqa: E402
from mmcache.telemetry.exposition import render  # noqa: E402

PATIENCE = 60.0
TOKEN = "the admin's long token"
ACCEPT = {"accept": "application/openmetrics-text; version=1.0.0"}
ADMIN = {"authorization": f"Bearer {TOKEN}"}


def samples(text: str, read: Any = parser) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in read.text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.parametrize("read", [parser, openmetrics], ids=["text", "openmetrics"])
def test_requests_are_counted_by_route_outcome_and_reason(proxied: Callable[..., World], read: Any) -> None:
    world = proxied()
    world.ask()
    world.ask()
    world.client.get("/v1/files/private", headers=KEY)
    world.client.get("/healthz")
    answer = world.client.get("/metrics", headers=ACCEPT if read is openmetrics else {})
    assert answer.status_code == 200
    kind = "application/openmetrics-text" if read is openmetrics else "text/plain"
    assert answer.headers["content-type"].startswith(kind)
    assert answer.headers["cache-control"] == "no-store"
    found = samples(answer.text, read)
    counted = {labels: value for (name, labels), value in found.items() if name == "mmcache_proxy_requests_total"}
    assert counted == {
        (("outcome", "miss"), ("reason", "absent"), ("route", ECHO)): 1,
        (("outcome", "hit"), ("route", ECHO)): 1,
        (("outcome", "pass"), ("route", "other")): 1,
    }
    name = "mmcache_proxy_duration_seconds"
    for outcome, route in (("hit", ECHO), ("pass", "other")):
        labels = ("outcome", outcome), ("route", route)
        assert found[f"{name}_count", labels] == 1
        assert found[f"{name}_sum", labels] > 0
        assert found[f"{name}_bucket", (("le", "+Inf"), *labels)] == 1
    assert found["mmcache_tier_limit_bytes", (("tier", "memory"),)] == 16 << 20
    assert "private" not in answer.text


def test_what_is_counted_is_what_the_status_says(proxied: Callable[..., World]) -> None:
    world = proxied(admin_token=TOKEN)
    for _ in range(3):
        world.ask()
    routes = world.client.get("/mmcache/status", headers=ADMIN).json()["routes"]
    assert routes == {ECHO: {"miss": {"count": 1, "reasons": {"absent": 1}}, "hit": {"count": 2, "reasons": {}}}}


def test_a_lookup_counts_for_its_route_and_region(proxied: Callable[..., World]) -> None:
    world = proxied(telemetry=TelemetryRules(region="eu-west"))
    world.ask()
    found = samples(world.client.get("/metrics").text)
    (labels,) = [labels for (name, labels), value in found.items() if name == "mmcache_lookups_total" and value]
    assert {"client_region": "eu-west", "route": ECHO, "outcome": "miss"}.items() <= dict(labels).items()
    assert not {"curl", "client", "key"} & dict(labels).keys()


def test_hits_are_shared_out_among_routes_and_regions(proxied: Callable[..., World]) -> None:
    with Cache(memory="16MiB") as cache:
        share_out(cache, 1)
        world = proxied(cache=cache, telemetry=TelemetryRules(region="eu-west"))
        for _ in range(9):
            world.ask()
        found = samples(world.client.get("/metrics").text)
    hits = {
        labels: n
        for (name, labels), n in found.items()
        if name == "mmcache_lookups_total" and ("outcome", "hit") in labels
    }
    assert sum(hits.values()) == 8
    for labels in hits:
        assert {("client_region", "eu-west"), ("route", ECHO), ("tier", "memory")} <= set(labels)
    assert found["mmcache_hit_ratio_by_client_region", (("client_region", "eu-west"),)] == 8 / 9


@pytest.mark.parametrize(
    ("who", "token", "given", "status"),
    [
        ("loopback", None, {}, 200),
        ("loopback", TOKEN, {}, 200),
        ("loopback", None, {"x-forwarded-for": "10.0.0.1"}, 404),
        ("loopback", None, {"forwarded": "for=10.0.0.1"}, 404),
        ("loopback", None, {"host": "rebound.example"}, 404),
        ("loopback", TOKEN, {"host": "rebound.example"}, 401),
        ("loopback", TOKEN, {"host": "rebound.example"} | ADMIN, 200),
        ("token", TOKEN, {}, 401),
        ("token", TOKEN, {"authorization": "Bearer another long token"}, 401),
        ("token", TOKEN, ADMIN, 200),
        ("open", None, {"x-forwarded-for": "10.0.0.1", "host": "a.example"}, 200),
    ],
)
def test_who_may_read_them(
    proxied: Callable[..., World], who: Any, token: str | None, given: dict[str, str], status: int
) -> None:
    world = proxied(telemetry=TelemetryRules(metrics=who), admin_token=token)
    answer = world.client.get("/metrics", headers=given)
    assert answer.status_code == status
    assert ("mmcache_" in answer.text) == (status == 200)
    assert world.upstream.count("/metrics") == 0


def test_switched_off_the_path_passes_like_any_other(proxied: Callable[..., World]) -> None:
    world = proxied(telemetry=TelemetryRules(metrics="off"))
    assert world.client.get("/metrics").headers["x-mmcache"] == "pass"
    assert world.upstream.count("/metrics") == 1


def test_however_many_ask_it_is_written_once_at_a_time(
    proxied: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bool] = []
    go = threading.Event()

    def slow(cache: Cache, openmetrics: bool) -> bytes:
        written.append(openmetrics)
        assert go.wait(PATIENCE)
        return render(cache, openmetrics)

    monkeypatch.setattr(scraped, "render", slow)
    world = proxied()
    with ThreadPoolExecutor(12) as threads:
        answers = [threads.submit(httpx.get, f"{world.address}/metrics", timeout=PATIENCE) for _ in range(12)]
        until = time.monotonic() + PATIENCE
        while len(world.frame.watch.flights) < 12 and time.monotonic() < until:
            threading.Event().wait(0.01)
        go.set()
        assert {answer.result().status_code for answer in answers} == {200}
    assert written == [False]
    assert world.client.get("/metrics").status_code == 200
    assert written == [False, False]


def test_only_what_reads_is_taken(proxied: Callable[..., World]) -> None:
    world = proxied()
    assert world.client.post("/metrics").status_code == 405
    head = world.client.head("/metrics")
    assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize(
    ("client", "host", "near"),
    [
        ("127.0.0.1", "localhost:8090", True), ("127.9.0.1", "127.0.0.1", True), ("::1", "[::1]:8090", True),
        ("::ffff:127.0.0.1", "LOCALHOST", True), ("10.0.0.1", "localhost", False), ("127.0.0.1", "a.b", False),
        ("::1", "[::1", True), ("nonsense", "localhost", False), (None, "localhost", False),
        ("127.0.0.1", "203.0.113.5", False), ("127.0.0.1", "0.0.0.0:8090", True), ("127.0.0.6", "10.0.0.5:8090", False),
    ],
)  # fmt: skip
def test_who_is_of_this_machine(client: str | None, host: str, near: bool) -> None:
    scope = {"client": None if client is None else (client, 1), "headers": [(b"host", host.encode())]}
    assert local(scope) is near
    assert not local(scope | {"headers": [*scope["headers"], (b"host", b"localhost")]})  # type: ignore[misc]


@pytest.mark.parametrize(
    "more",
    [
        {"http_version": "1.0"}, {"headers": [(b"x-forwarded-proto", b"https")]}, {"headers": [(b"via", b"1.1 a")]},
        {"headers": [(b"x-envoy-attempt-count", b"1")]}, {"headers": [(b"cf-connecting-ip", b"203.0.113.5")]},
    ],
)  # fmt: skip
def test_a_front_proxy_of_this_machine_asks_for_somebody_else(more: dict[str, Any]) -> None:
    assert local({"client": ("127.0.0.1", 1), "headers": [(b"host", b"localhost")], "http_version": "1.1"})
    headers = [(b"host", b"localhost"), *more.get("headers", [])]
    assert not local({"client": ("127.0.0.1", 1)} | more | {"headers": headers})


def test_only_a_restart_changes_what_is_told(proxied: Callable[..., World]) -> None:
    wanted: list[ServerSettings] = []
    world = proxied(admin_token=TOKEN, reload=lambda: Configured(wanted[-1]))
    old = world.frame.live.proxy.settings
    wanted.append(replace(old, telemetry=TelemetryRules(otlp="http://elsewhere", metrics="open")))
    found = world.client.post("/mmcache/reload", headers=ADMIN).json()
    assert found == {"changed": [], "needs_restart": ["telemetry"]}
    assert world.frame.live.proxy.settings == old


def test_warnings_are_told_as_events() -> None:
    lines: list[str] = []
    journal = Journal(lines.append, as_json=True)
    with journal.listening("mmcache"):
        logging.getLogger("mmcache.telemetry").warning("not\nreceived (%s)", "why")
        logging.getLogger("mmcache.telemetry").info("of no interest")
    logging.getLogger("mmcache.telemetry").warning("too late")
    (told,) = map(msgspec.json.decode, lines)
    assert told.pop("time") > 0
    assert told == {"event": "warning", "logger": "mmcache.telemetry", "message": "not received (why)"}
