"""The graph on a real dashboard: views come by OTLP, it follows, a restart finds them, hostile names stay names."""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install -r requirements/test.txt")

pytest.importorskip("duckdb", reason="the dashboard's extra is not installed: pip install 'mmcache[dashboard]'")
pytest.importorskip("starlette")
pytest.importorskip("opentelemetry.proto")

from playwright.sync_api import expect
from tests.e2e.dashboard_page.conftest import OpenPage
from tests.e2e.dashboard_page.real import attributes, dashboard, lookup, send
from tests.e2e.dashboard_page.stage import ready
from tests.e2e.dashboard_page.test_page_graph import drawn
from tests.e2e.dashboard_page.test_page_names import NASTY, unharmed

from mmcache.hotkeys.view import EVENT_NAME, Community, HotEdge, HotKey, HotView, encode

pytestmark = pytest.mark.slow


def tell(page: str, view: HotView, instance: str, service: str = "mmcache") -> Any:
    """A view by OTLP as JSON; the answer."""
    record = {"eventName": EVENT_NAME, "body": {"stringValue": encode(view).decode()}}
    resource = {"attributes": attributes({"service.name": service, "service.instance.id": instance})}
    body = {"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": [record]}]}]}
    kind = {"content-type": "application/json"}
    request = urllib.request.Request(f"{page}/v1/logs", json.dumps(body).encode(), kind)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
        return json.load(answer)


def view(keys: int, communities: list[Community], first: int = 1, **more: Any) -> HotView:
    hot = [
        HotKey(key=f"{number:016x}", score=100.0 / number, heat=9.0, community=communities[number % 2].id, **more)
        for number in range(first, first + keys)
    ]
    edges = [HotEdge(at, (at + 2) % keys, 1.0) for at in range(keys)]
    return HotView(time.time(), "", "", hot, edges, communities, tracked_keys=500, tracked_edges=900)


def two(state: Any = "living") -> list[Community]:
    return [Community(1, 8, 4.0, "living", time.time() - 900), Community(2, 8, 3.0, state, time.time() - 60)]


def test_it_follows_what_comes_and_comes_back(tmp_path: Path, open_page: OpenPage) -> None:
    store = tmp_path / "traces.duckdb"
    with dashboard(store) as address:
        page = open_page(address)
        expect(page.get_by_role("region", name="No data")).to_be_visible()
        assert tell(address, view(12, two("appeared")), "web-1") == {}
        expect(page.locator("#graph .node")).to_have_count(12)
        drawn(page)
        expect(page.locator("#graph .together .hint")).to_have_text("1 appeared · 1 living")
        assert tell(address, view(8, two(), first=9), "web-2") == {}
        expect(page.locator("#graph .node")).to_have_count(16)
        expect(page.locator("#graph .hint").first).to_contain_text("16 keys, 18 edges, 2 processes")
        said = tell(address, HotView(0.0, "", "", [HotKey("nothing", 1.0)]), "web-1")
        assert said["partialSuccess"]["rejectedLogRecords"] == "1"
        send(address, [lookup(1, time.time() - 5, hit=True, **{"key.hash": f"{3:016x}"})])
        page.locator("#graph .node").first.focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("region", name="The chosen key")).to_contain_text(f"{1:016x}")
    with dashboard(store) as address:
        page = open_page(address)
        ready(page)
        drawn(page)
        expect(page.locator("#graph .node")).to_have_count(16)
        page.locator(f'#graph .node[data-key="{3:016x}"]').click()
        page.get_by_role("link", name="Requests of this key").click()
        expect(page.locator("#requests tbody tr")).to_have_count(1)


def test_hostile_names_by_otlp(tmp_path: Path, open_page: OpenPage) -> None:
    with dashboard(tmp_path / "traces.duckdb") as address:
        whole = [name.encode("utf-16", "surrogatepass").decode("utf-16").replace("\u0000", "") for name in NASTY]
        for at, name in enumerate(whole):
            more = {"tenant": name, "modality": name, "tier": name, "parts": {name: 1.0}}
            assert tell(address, view(4, two(), first=1 + 4 * at, **more), name, name) == {}
        page = open_page(address)
        drawn(page)
        expect(page.locator("#graph .node")).to_have_count(4 * len(NASTY))
        for at in range(0, 4 * len(NASTY), 4):
            page.locator("#graph .node").nth(at).focus()
            page.keyboard.press("Enter")
            expect(page.get_by_role("region", name="The chosen key")).to_be_visible()
            page.keyboard.press("Escape")
        for at in range(len(NASTY)):
            page.locator("#graph .communities button").nth(at).click()
        page.get_by_role("combobox", name="Process").select_option(index=3)
        expect(page.locator("#graph .node")).to_have_count(4)
        drawn(page)
        unharmed(page)
