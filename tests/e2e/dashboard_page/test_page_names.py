"""Names that are code: whatever a key, a tenant or a span is called, the page shows it as text."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install -r requirements/test.txt")

from playwright.sync_api import Page, expect
from tests.e2e.dashboard_page import incident
from tests.e2e.dashboard_page.conftest import OpenPage
from tests.e2e.dashboard_page.fake_api import FakeApi, Query
from tests.e2e.dashboard_page.stage import NIGHT, chart, place, ready, rows

NASTY = [
    "<img src=x onerror=\"window.hacked='img'\">",
    "<script>window.hacked='script'</script>",
    "javascript:window.hacked='url'",
    "\"><svg onload=window.hacked='svg'>",
    "'-alert(1)-'",
    "</style><style>*{display:none}",
    "{{constructor.constructor('window.hacked=1')()}}",
    "__proto__",
    "constructor",
    "\u202egnissim\u0000\ud83d\ude48",
    "<iframe srcdoc=\"<script>parent.hacked='iframe'</script>\">",
    "x" * 3000,
]


def spoil(value: Any, turn: list[int]) -> Any:
    """Every string becomes a nasty one; numbers, and the names that the contract fixes, stay."""
    if isinstance(value, str):
        turn[0] += 1
        return NASTY[turn[0] % len(NASTY)]
    if isinstance(value, list):
        return [spoil(v, turn) for v in value]
    if isinstance(value, dict):
        return {key: spoil(v, turn) for key, v in value.items()}
    return value


def spoiled(api: FakeApi, name: str, turn: int) -> None:
    def answer(query: Query) -> Any:
        path = f"{name}/{incident.TRACE}/{incident.LOOKUP}"
        said = incident.answer(path if name in ("traces", "explain") else name, query)
        out = spoil(said, [turn])
        if name == "reasons":
            out["reasons"] |= {text: [1.0] * len(out["t"]) for text in NASTY}
        if name == "causes":
            for cause in out["causes"]:
                cause["where"] |= {"tenant": NASTY[0], NASTY[1]: NASTY[2]}
        if name == "traces":
            for number, span in enumerate(out["spans"]):
                span["span"], span["parent"] = f"{number + 1:016x}", None if number == 0 else f"{number:016x}"
                span["attributes"] |= dict.fromkeys(NASTY, NASTY[number])
                span["attributes"]["cache.tenant"] = NASTY[number]
                span["name"] = "cache.lookup" if number == 1 else span["name"]
        return out

    api.answers[name] = answer


def unharmed(page: Page) -> None:
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("window.broken") == []
    foreign = "img, iframe, object, embed, style, main script, svg script, [onerror], [onload], [srcdoc]"
    assert page.locator(foreign).count() == 0
    links = page.evaluate("[...document.querySelectorAll('a')].map((a) => a.getAttribute('href'))")
    assert [link for link in links if not link.startswith(("?", "#"))] == []


@pytest.mark.slow
@pytest.mark.parametrize("turn", [0, 4, 8])
def test_no_name_becomes_code(api: FakeApi, open_page: OpenPage, turn: int) -> None:
    names = ("ratio", "reasons", "saved", "tiers", "keys", "requests", "traces", "explain", "causes")
    for number, name in enumerate(names):
        spoiled(api, name, turn + number)
    api.answers["meta"] = lambda _: incident.meta() | {"axes": {"tenant": NASTY, "route": NASTY, NASTY[0]: NASTY}}
    page = open_page(api.origin + NIGHT)
    ready(page)
    page.mouse.move(*place(page, incident.MOVED))
    expect(page.locator("#ratio .stamp")).to_be_visible()
    for panel in ("ratio", "reasons"):
        page.locator(f"#{panel} .legend button").first.hover()
        page.get_by_role("button", name="as a table").first.click()
    unharmed(page)
    page.keyboard.press("f")
    expect(page.get_by_role("listbox", name="Filters").get_by_role("option").first).to_contain_text(NASTY[0])
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("list", name="Active filters")).to_contain_text(NASTY[0][:38])
    ready(page)
    page.locator("#keys tbody button").first.click()
    page.locator("#causes .pickcause").first.click()
    ready(page)
    unharmed(page)
    rows(page).first.locator("a").press("Enter")
    page.get_by_role("treeitem").nth(1).click()
    expect(page.locator(".explain .verdict")).to_be_visible()
    expect(page.locator(".attributes")).to_contain_text(NASTY[1])
    page.locator(".before a").click()
    expect(page.get_by_role("treeitem").first).to_be_visible()
    unharmed(page)


@pytest.mark.slow
def test_an_address_is_not_believed(api: FakeApi, open_page: OpenPage) -> None:
    bad = quote(NASTY[0])
    page = open_page(f"{api.origin}/?tenant={bad}&key={bad}&by={bad}&range={bad}&show={bad}&trace={bad}&from=NaN")
    ready(page)
    expect(page.get_by_role("button", name=f"tenant {NASTY[0]}: remove")).to_be_visible()
    expect(page.locator("#drawer")).to_be_hidden()
    expect(page.get_by_role("button", name="1 h", exact=False).first).to_have_attribute("aria-pressed", "true")
    unharmed(page)


@pytest.mark.slow
def test_an_error_with_markup_is_text(api: FakeApi, open_page: OpenPage) -> None:
    page = open_page(api.origin + NIGHT)
    ready(page)
    page.route("**/api/v1/ratio?*", lambda route: route.fulfill(status=400, json={"error": {"message": NASTY[0]}}))
    page.keyboard.press("r")
    expect(page.locator("#ratio .notice")).to_contain_text(NASTY[0])
    expect(chart(page)).to_be_visible()
    unharmed(page)
