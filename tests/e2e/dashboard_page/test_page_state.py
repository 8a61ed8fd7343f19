"""The address holds what is looked at; the server is asked no more than needed; ticks disturb nobody."""

from __future__ import annotations

import threading
import time

import pytest

pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install -r requirements/test.txt")

from playwright.sync_api import Page, expect
from tests.e2e.dashboard_page import incident
from tests.e2e.dashboard_page.conftest import OpenPage
from tests.e2e.dashboard_page.fake_api import FakeApi, serving
from tests.e2e.dashboard_page.stage import NIGHT, chart, place, ready, rows, says, until

pytestmark = pytest.mark.slow


def drag(page: Page, begin: float, end: float, *, shift: bool = False) -> None:
    page.mouse.move(*place(page, begin))
    if shift:
        page.keyboard.down("Shift")
    page.mouse.down()
    page.mouse.move(*place(page, (begin + end) / 2))
    page.mouse.move(*place(page, end))
    page.mouse.up()
    if shift:
        page.keyboard.up("Shift")


def test_zoom_and_back(api: FakeApi, open_page: OpenPage) -> None:
    page = open_page(api.origin + NIGHT)
    ready(page)
    drag(page, incident.MOVED - 600, incident.MOVED + 600)
    until(page, lambda: says(page, "from") != f"{incident.BEGIN:.0f}", "zoomed")
    inner = page.url
    assert float(says(page, "to") or 0) - float(says(page, "from") or 0) == pytest.approx(1200, abs=120)
    ready(page)
    page.keyboard.press("Escape")
    until(page, lambda: says(page, "from") == f"{incident.BEGIN:.0f}", "zoomed out")
    page.go_back()
    until(page, lambda: page.url == inner, "back is to the zoomed one")
    page.go_back()
    until(page, lambda: says(page, "from") == f"{incident.BEGIN:.0f}", "back again")


def test_a_brush_lists_its_requests(api: FakeApi, open_page: OpenPage) -> None:
    page = open_page(api.origin + NIGHT)
    ready(page)
    drag(page, incident.MOVED, incident.MOVED + 600, shift=True)
    expect(page.locator("#requests .chip")).to_contain_text("02:15–02:26")
    expect(page.locator("#ratio .picked")).to_be_visible()
    ready(page)
    page.get_by_role("button", name="Load older").click()
    expect(rows(page)).to_have_count(87)
    expect(page.get_by_role("button", name="Load older")).to_be_hidden()
    page.locator("#requests .chip").click()
    expect(page.locator("#ratio .picked")).to_have_count(0)


def test_a_link_shows_the_same(api: FakeApi, open_page: OpenPage) -> None:
    at, until_ = incident.MOVED + 300, incident.MOVED + 360
    link = f"{NIGHT}&by=all&tenant=shop&tenant=search&at={at:.0f}&until={until_:.0f}&show=miss"
    link += f"&trace={incident.TRACE}&span={incident.PUT}"
    page = open_page(api.origin + link)
    ready(page)
    expect(page.get_by_role("combobox", name="Hit ratio by")).to_have_value("")
    expect(page.get_by_role("list", name="Active filters").get_by_role("listitem")).to_have_count(2)
    expect(page.get_by_role("treeitem", name="cache.put")).to_have_attribute("aria-selected", "true")
    assert api.queries("ratio")[-1]["tenant"] == ["shop", "search"]
    assert float(api.queries("requests")[-1]["from"][0]) == at
    page.keyboard.press("Escape")
    page.get_by_role("combobox", name="Hit ratio by").select_option("tenant")
    until(page, lambda: says(page, "by") == "tenant" and api.queries("ratio")[-1].get("by") == ["tenant"], "by tenant")
    page.go_back()
    page.go_back()
    expect(page.get_by_role("treeitem")).to_have_count(5)


def test_a_custom_time(api: FakeApi, open_page: OpenPage) -> None:
    page = open_page(api.origin + NIGHT)
    ready(page)
    page.keyboard.press("0")
    page.get_by_label("From").fill("2026-03-15T02:00:00")
    page.get_by_label("To", exact=True).fill("2026-03-15T01:00:00")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator(".wrong")).to_have_text("The end must come after the beginning.")
    page.get_by_label("To", exact=True).fill("2026-03-15T02:30:00")
    page.keyboard.press("Enter")
    until(page, lambda: float(says(page, "from") or 0) == incident.BEGIN + 3600, "two o'clock")
    expect(page.get_by_role("group", name="Time range")).to_contain_text("15 Mar, 02:00–02:30")


def moved_to_now(api: FakeApi) -> None:
    """The incident's data are today's, so that the page follows them."""
    now = time.time()
    api.answers["meta"] = lambda _: incident.meta() | {"from": now - 86400, "to": now + 86400}


def test_one_question_at_a_time_and_no_old_answer(api: FakeApi, open_page: OpenPage) -> None:
    moved_to_now(api)
    page = open_page(api.origin)
    ready(page)
    first = len(api.queries("ratio"))
    gate = api.gates["ratio"] = threading.Event()
    api.tick()
    until(page, lambda: len(api.queries("ratio")) == first + 1, "a tick asks again")
    reasons = len(api.queries("reasons"))
    api.tick()
    until(page, lambda: len(api.queries("reasons")) > reasons, "other panels go on")
    api.tick()
    until(page, lambda: len(api.queries("reasons")) > reasons + 1, "and on")
    assert len(api.queries("ratio")) == first + 1
    page.get_by_role("combobox", name="Hit ratio by").select_option("")
    until(page, lambda: len(api.queries("ratio")) == first + 2, "another question replaces the old one")
    gate.set()
    expect(page.locator("#ratio .legend li")).to_have_count(1)
    expect(page.locator("#ratio .legend li")).to_contain_text("all lookups")


def test_a_tick_keeps_place_and_selection(api: FakeApi, open_page: OpenPage) -> None:
    moved_to_now(api)
    page = open_page(api.origin)
    ready(page)
    expect(rows(page)).to_have_count(50)
    page.evaluate("document.querySelector('#requests .scroll').scrollTop = 300")
    rows(page).nth(12).locator("a").focus()
    row = rows(page).nth(12).locator("a")
    name = row.inner_text()
    legend = page.locator("#ratio .legend button").first
    legend.click()
    expect(legend).to_have_attribute("aria-pressed", "false")
    row.focus()
    newest = incident.request(700, 2e9)
    api.answers["requests"] = lambda q: {**(old := incident.requests(q)), "requests": [newest, *old["requests"]]}
    before = len(api.queries("ratio"))
    api.tick()
    expect(page.get_by_role("button", name="1 new requests")).to_be_visible()
    until(page, lambda: len(api.queries("ratio")) > before, "asked again")
    ready(page)
    expect(row).to_be_focused()
    assert row.inner_text() == name
    assert page.evaluate("document.querySelector('#requests .scroll').scrollTop") > 100
    expect(legend).to_have_attribute("aria-pressed", "false")
    page.get_by_role("button", name="1 new requests").click()
    expect(rows(page)).to_have_count(51)


def test_a_hidden_tab_is_silent(api: FakeApi, open_page: OpenPage) -> None:
    moved_to_now(api)
    page = open_page(api.origin)
    ready(page)
    expect(page.locator(".live")).to_have_text("Live")
    hide = """(hidden) => { Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
        document.dispatchEvent(new Event("visibilitychange")); }"""
    page.evaluate(hide, True)
    expect(page.locator(".live")).to_have_text("Paused")
    before = len(api.queries("ratio"))
    page.evaluate(hide, False)
    expect(page.locator(".live")).to_have_text("Live")
    until(page, lambda: len(api.queries("ratio")) == before + 1, "it looks what it missed")


def test_the_server_comes_back(api: FakeApi, open_page: OpenPage) -> None:
    other = FakeApi()
    moved_to_now(other)
    with serving(other):
        page = open_page(other.origin)
        ready(page)
        expect(page.locator(".live")).to_have_text("Live")
        port = int(other.origin.rsplit(":", 1)[1])
    expect(page.locator(".live")).to_have_text("Reconnecting")
    page.keyboard.press("r")
    expect(page.locator("#ratio .notice")).to_contain_text("Not up to date. The dashboard's server does not answer.")
    expect(chart(page)).to_be_visible()
    with serving(other, port):
        expect(page.locator(".live")).to_have_text("Live")
        expect(page.locator("#ratio .notice")).to_be_hidden()
        ready(page)
