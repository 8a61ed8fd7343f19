"""From a dip in the hit ratio to the part of the key that changed: with the mouse, and without."""

from __future__ import annotations

import pytest

pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install -r requirements/test.txt")

from playwright.sync_api import Page, expect
from tests.e2e.dashboard_page import incident
from tests.e2e.dashboard_page.conftest import OpenPage
from tests.e2e.dashboard_page.fake_api import FakeApi
from tests.e2e.dashboard_page.stage import NIGHT, chart, click_at, place, ready, rows, says

DIP = incident.MOVED + 330


def explained(page: Page) -> None:
    drawer = page.get_by_role("dialog", name="Trace")
    expect(drawer.get_by_role("treeitem")).to_have_count(5)
    expect(drawer.get_by_role("treeitem", name="cache.lookup, signature")).to_have_attribute("aria-selected", "true")
    explain = drawer.locator(".explain")
    expect(explain).to_contain_text("model_version: v1 → v2, since 02:15, in instance b only")
    moved = explain.locator(".movedtable tbody tr")
    expect(moved).to_have_count(1)
    expect(moved.get_by_role("rowheader")).to_have_text("model_version")
    expect(moved.locator("del")).to_have_text("v1")
    expect(moved.locator("ins")).to_have_text("v2")


def test_the_page_opens_and_shows_the_night(api: FakeApi, open_page: OpenPage) -> None:
    page = open_page(api.origin + NIGHT)
    ready(page)
    expect(page.locator("#ratio path.line")).to_have_count(3)
    expect(page.locator("#saved .hit .value")).to_have_text("85 %")
    expect(page.locator("#causes li")).to_have_count(2)


@pytest.mark.slow
def test_from_a_dip_to_its_cause(api: FakeApi, open_page: OpenPage) -> None:
    page = open_page(api.origin + NIGHT)
    ready(page)
    page.mouse.move(*place(page, DIP))
    expect(page.locator("#ratio .stamp")).to_have_text("02:20")
    expect(page.locator("#ratio .legend li").filter(has_text="image")).to_contain_text("62 %")
    expect(page.locator("#reasons .stamp")).to_be_visible()  # one cursor for all charts
    click_at(page, DIP)
    expect(page.locator("#requests .chip")).to_contain_text("02:20–02:21")
    expect(page.get_by_role("button", name="Misses", exact=True)).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#requests")).to_be_in_viewport()
    ready(page)
    asked = api.queries("requests")[-1]
    assert asked["outcome"] == ["miss"]
    assert float(asked["from"][0]) <= DIP < float(asked["to"][0])
    rows(page).first.click()
    explained(page)
    assert says(page, "trace") == incident.TRACE
    page.get_by_role("link", name="The last hit: 02:06, in a").click()
    expect(page.locator(".explain")).to_contain_text("It hit, in memory")
    page.go_back()
    explained(page)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Trace")).to_be_hidden()
    expect(rows(page).first.locator("a")).to_be_focused()


@pytest.mark.slow
def test_the_same_without_a_mouse(api: FakeApi, open_page: OpenPage) -> None:
    page = open_page(api.origin + NIGHT)
    ready(page)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the charts")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("c")
    expect(chart(page)).to_be_focused()
    page.keyboard.press("d")
    expect(chart(page)).to_have_attribute("aria-valuetext", "02:32: image 65 %, text 50 %, speech –")
    page.keyboard.press("Home")
    expect(chart(page)).to_have_attribute("aria-valuenow", "0")
    for _ in range(8):
        page.keyboard.press("PageDown")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator("#requests .chip")).to_contain_text("02:20–02:23")
    expect(page.get_by_role("region", name="Requests, scrolls")).to_be_focused()
    ready(page)
    page.keyboard.press("Tab")
    expect(rows(page).first.locator("a")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(rows(page).nth(1).locator("a")).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    explained(page)
    expect(page.locator("#drawer h2")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    lookup = page.get_by_role("treeitem", name="cache.lookup")
    expect(lookup).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator(".detail h3")).to_have_text("cache.compute")
    expect(page.locator(".explain")).to_be_hidden()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("treeitem")).to_have_count(1)
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("treeitem")).to_have_count(5)
    page.keyboard.press("Escape")
    expect(page.locator("#drawer")).to_be_hidden()
    page.keyboard.press("Escape")
    expect(page.locator("#requests .chip")).to_be_hidden()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()


@pytest.mark.slow
def test_a_cause_filters_and_its_example_opens(api: FakeApi, open_page: OpenPage) -> None:
    page = open_page(api.origin + NIGHT)
    ready(page)
    cause = page.locator("#causes li").first
    expect(cause).to_contain_text("56 % of the fall")
    expect(cause).to_contain_text("since 02:15")
    expect(page.locator("#ratio .mark")).to_have_count(2)
    cause.get_by_role("button").click()
    expect(page.get_by_role("list", name="Active filters").get_by_role("listitem")).to_have_count(3)
    assert (says(page, "instance"), says(page, "modality"), says(page, "reason")) == ("b", "image", "signature")
    ready(page)
    assert "reason" not in api.queries("causes")[-1]  # of misses alone, no hit ratio can be said
    assert api.queries("reasons")[-1]["reason"] == ["signature"]
    page.locator("#causes li").first.get_by_role("link").first.click()
    explained(page)
    page.get_by_role("button", name="Filter by tenant shop").click()
    assert says(page, "tenant") == "shop"
    page.keyboard.press("Escape")
    page.get_by_role("button", name="tenant shop: remove").click()
    expect(page.get_by_role("list", name="Active filters").get_by_role("listitem")).to_have_count(3)
    page.get_by_role("button", name="Clear all").click()
    expect(page.get_by_role("list", name="Active filters").get_by_role("listitem")).to_have_count(0)
