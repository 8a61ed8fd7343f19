"""The page on a real dashboard: the night of the incident, live updates, a restart, hostile names by OTLP."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install -r requirements/test.txt")

pytest.importorskip("duckdb", reason="the dashboard's extra is not installed: pip install 'mmcache[dashboard]'")
pytest.importorskip("starlette")
pytest.importorskip("opentelemetry.proto")

from playwright.sync_api import expect
from tests.e2e.dashboard_page.conftest import CHROMIUM, OpenPage
from tests.e2e.dashboard_page.real import dashboard, lookup, send
from tests.e2e.dashboard_page.stage import chart, ready, rows, says, until
from tests.e2e.dashboard_page.test_page_names import NASTY, unharmed

pytestmark = pytest.mark.slow


MIDNIGHT = 1_790_208_000.0
"""Of the generated night, Unix seconds."""
QUARTER_PAST_TWO = MIDNIGHT + 2.25 * 3600
BEGIN, END = QUARTER_PAST_TWO - 3600, QUARTER_PAST_TWO + 3600


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A dashboard over the generated night of `mmcache.lab.incident`; its address."""
    if not CHROMIUM.exists():
        pytest.skip("Chromium is not installed: apt-get install chromium")
    store = tmp_path_factory.mktemp("night") / "night.duckdb"
    words = ["--store", str(store), "--spans", "40000", "--hours", "3.5", "--midnight", str(MIDNIGHT)]
    subprocess.run([sys.executable, "-m", "mmcache.lab.incident", *words], check=True, capture_output=True)
    with dashboard(store) as address:
        yield address


def test_from_the_dip_of_the_night_to_the_part_of_the_key(night: str, open_page: OpenPage) -> None:
    page = open_page(f"{night}/?from={BEGIN:.0f}&to={END:.0f}&by=instance")
    ready(page)
    expect(page.locator("#ratio path.line")).to_have_count(3)
    swap = page.locator("#causes li.cause").filter(has_text="Another signature")
    expect(swap).to_contain_text("since 02:15")
    expect(swap.locator(".where")).to_contain_text("instance web-2")
    expect(swap.locator(".moved ins")).to_have_text("resize=256,crop=centre")
    flood = page.locator("#causes li.cause").filter(has_text="A flood")
    expect(flood).to_contain_text("since 02:16")
    expect(flood.locator(".where")).to_contain_text("tenant archive")
    box = chart(page).bounding_box()
    assert box
    page.mouse.click(box["x"] + 46 + (0.5 + 30 / 7200) * (box["width"] - 56), box["y"] + box["height"] / 2)
    expect(page.locator("#requests .chip")).to_contain_text("02:15–02:16")
    ready(page)
    row = rows(page).filter(has_text="signature").first
    expect(row).to_contain_text("web-2")
    row.locator("a").click()
    expect(page.get_by_role("treeitem", name="cache.lookup, signature")).to_have_attribute("aria-selected", "true")
    moved = page.locator(".explain .movedtable tbody tr")
    expect(moved.get_by_role("rowheader")).to_have_text("preprocess")
    expect(moved.locator("del")).to_have_text("resize=224,crop=centre")
    expect(moved.locator("ins")).to_have_text("resize=256,crop=centre")
    expect(page.locator(".spread tbody tr").filter(has_text="web-2")).to_have_count(1)
    assert says(page, "trace")
    last_hit = page.locator(".explain .before a")
    if last_hit.count():  # not every input was asked for before
        last_hit.click()
        expect(page.locator(".explain .pill")).to_contain_text("hit")


def test_a_cause_narrows_the_page(night: str, open_page: OpenPage) -> None:
    page = open_page(f"{night}/?from={BEGIN:.0f}&to={END:.0f}")
    ready(page)
    page.locator("#causes li.cause").filter(has_text="A flood").get_by_role("button").click()
    ready(page)
    assert says(page, "tenant") == "archive"
    expect(rows(page).first).to_contain_text("archive")
    expect(rows(page).filter(has_text="shop")).to_have_count(0)
    page.go_back()
    ready(page)
    page.locator("#keys tbody button").first.click()
    until(page, lambda: says(page, "key") is not None, "the key filters")
    ready(page)
    expect(page.locator("#keys tbody tr")).to_have_count(1)


def test_live_and_after_a_restart(tmp_path: Path, open_page: OpenPage) -> None:
    store = tmp_path / "traces.duckdb"
    now = time.time()
    with dashboard(store) as address:
        page = open_page(address + "/")
        expect(page.get_by_role("region", name="No data")).to_contain_text("Nothing has come yet")
        expect(page.locator(".live")).to_have_text("Live")
        send(address, [lookup(n, now - n, hit=n % 4 > 0, tenant="shop") for n in range(40)])
        expect(page.get_by_role("region", name="No data")).to_be_hidden()
        expect(page.locator("#saved .lookups .value")).to_have_text("40")
        expect(page.locator("#saved .hit .value")).to_have_text("75 %")
        send(address, [lookup(n, now - n + 40, hit=True, tenant="search") for n in range(40, 80)])
        expect(page.locator("#saved .lookups .value")).to_have_text("80")
        port = int(address.rsplit(":", 1)[1])
    expect(page.locator(".live")).to_have_text("Reconnecting")
    with dashboard(store, port) as address:
        expect(page.locator(".live")).to_have_text("Live")
        send(address, [lookup(n, now - n + 80, hit=True, tenant="search") for n in range(80, 100)])
        expect(page.locator("#saved .lookups .value")).to_have_text("100")
        expect(page.locator(".panel.failed")).to_have_count(0)


def test_hostile_names_by_otlp(tmp_path: Path, open_page: OpenPage) -> None:
    now = time.time()
    names = [name.replace("\u0000", "") for name in NASTY]
    with dashboard(tmp_path / "traces.duckdb") as address:
        for n, name in enumerate(names):
            more = {"tenant": name, "route": name, "key.hash": name, "miss.detail": name, name: name}
            span = lookup(n, now - 5, hit=n % 2 == 0, **more)
            child = lookup(n, now - 5, hit=True, name=name)
            child |= {"spanId": f"{n + 500:016x}", "parentSpanId": span["spanId"]}
            child["attributes"].append({"key": name, "value": {"stringValue": name}})
            send(address, [span, child], instance=name, service=name)
        page = open_page(f"{address}/?by=tenant")
        ready(page)
        expect(rows(page)).to_have_count(len(names))
        for n in range(len(names)):
            page.evaluate("document.querySelector('#requests .scroll').scrollTop = 0")
            rows(page).nth(n).locator("a").press("Enter")
            expect(page.get_by_role("treeitem")).to_have_count(2)
            page.get_by_role("treeitem").nth(1).click()
            page.keyboard.press("Escape")
            expect(page.locator("#drawer")).to_be_hidden()
        for axis in ("route", "instance", "service"):
            page.get_by_role("combobox", name="Hit ratio by").select_option(axis)
            ready(page)
        expect(page.locator("#keys .none")).to_be_visible()  # a key is 16 hex digits, or it is none
        unharmed(page)
