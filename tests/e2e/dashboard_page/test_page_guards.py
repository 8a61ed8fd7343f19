"""What the page keeps itself from: covered controls, endless rows, times of another zone, one colour for two names."""

from __future__ import annotations

import time
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install -r requirements/test.txt")

from playwright.sync_api import expect
from tests.e2e.dashboard_page import incident
from tests.e2e.dashboard_page.conftest import OpenPage
from tests.e2e.dashboard_page.fake_api import FakeApi, Query
from tests.e2e.dashboard_page.stage import NIGHT, chart, ready, rows, says, until

pytestmark = pytest.mark.slow
COVERED = """() => { const at = document.activeElement;
    return at !== document.body && !document.getElementById("drawer").contains(at); }"""
OPENED = f"{NIGHT}&trace={incident.TRACE}&span={incident.LOOKUP}"


def live(api: FakeApi) -> None:
    """The page follows the time: its newest data are of now."""
    now = time.time()
    api.answers["meta"] = lambda _: incident.meta() | {"from": now - 86400, "to": now + 86400}


def test_an_open_trace_keeps_the_focus(api: FakeApi, open_page: OpenPage) -> None:
    page = open_page(api.origin + NIGHT)
    ready(page)
    rows(page).nth(2).locator("a").click()
    drawer = page.get_by_role("dialog", name="Trace")
    expect(drawer.locator(".movedtable")).to_be_visible()
    for key in ["Shift+Tab"] * 12 + ["Tab"] * 24:
        page.keyboard.press(key)
        assert not page.evaluate(COVERED), key
    page.locator("#drawer h2").focus()
    for key in ("c", "f", "q", "0", "4"):
        page.keyboard.press(key)  # what is behind it hears no keys
    assert not page.evaluate(COVERED)
    assert says(page, "range") is None
    page.keyboard.press("Escape")
    expect(drawer).to_be_hidden()
    expect(rows(page).nth(2).locator("a")).to_be_focused()
    assert says(page, "trace") is None


def test_an_open_trace_closes_beside_it_and_comes_back(api: FakeApi, open_page: OpenPage) -> None:
    page = open_page(api.origin + OPENED)
    ready(page)
    drawer = page.get_by_role("dialog", name="Trace")
    expect(drawer.get_by_role("treeitem")).to_have_count(5)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()
    expect(drawer).to_be_visible()
    page.mouse.click(100, 500)
    expect(drawer).to_be_hidden()
    page.go_back()
    expect(drawer.get_by_role("treeitem")).to_have_count(5)
    page.go_forward()
    expect(drawer).to_be_hidden()


def test_a_tick_disturbs_no_open_trace(api: FakeApi, open_page: OpenPage) -> None:
    live(api)
    page = open_page(f"{api.origin}/?trace={incident.TRACE}&span={incident.LOOKUP}", height=420)
    ready(page)
    page.get_by_role("treeitem", name="cache.compute").click()
    expect(page.locator(".detail h3")).to_have_text("cache.compute")
    page.evaluate("document.querySelector('#drawer .inner').scrollTop = 60")
    page.evaluate("getSelection().selectAllChildren(document.querySelector('.attributes dd'))")
    before, explained = len(api.queries("ratio")), len(api.queries("explain"))
    api.tick()
    until(page, lambda: len(api.queries("ratio")) > before, "asked again")
    ready(page)
    expect(page.locator(".detail h3")).to_have_text("cache.compute")
    assert page.evaluate("document.querySelector('#drawer .inner').scrollTop") == 60
    assert page.evaluate("String(getSelection())").strip()
    assert len(api.queries("explain")) == explained


def test_rows_that_come_live_are_bounded(api: FakeApi, open_page: OpenPage) -> None:
    live(api)
    newest = [0]

    def requests(query: Query) -> dict[str, Any]:
        if "before" in query:
            first = newest[0] - int(query["before"][0])
        else:
            newest[0] += 49  # of the fifty that are told, one was known
            first = 0
        numbers = [newest[0] - first - n for n in range(50)]
        out = [incident.request(n, time.time() - 60) | {"trace": f"{n + 100:032x}"} for n in numbers]
        return {"requests": out, "next": str(numbers[-1] - 1)}

    api.answers["requests"] = requests
    page = open_page(api.origin)
    ready(page)
    counts, first = [], rows(page).first.locator("a")
    for _ in range(24):
        before = len(api.queries("requests"))
        page.keyboard.press("r")
        until(page, lambda before=before: len(api.queries("requests")) > before, "asked again")  # type: ignore[misc]
        until(
            page, lambda: f"trace={newest[0] + 100:032x}" in (first.get_attribute("href") or ""), "the newest is told"
        )
        counts.append(rows(page).count())
    assert max(counts) <= 1050
    assert any(later < earlier for earlier, later in pairwise(counts)), "it began again"


def test_times_are_all_of_one_zone(api: FakeApi, open_page: OpenPage) -> None:
    def explain(query: Query) -> Any:
        path = f"explain/{incident.TRACE}/{incident.LOOKUP}"
        return dict(incident.answer(path, query) or {}) | {
            "text": ["It last hit at 22:45:09 UTC, see <b>99:99:99 UTC</b>."]
        }

    api.answers["explain"] = explain
    page = open_page(api.origin + NIGHT, timezone_id="Asia/Kolkata")
    ready(page)
    row = rows(page).first.locator("a")
    local = row.inner_text()
    page.get_by_role("button", name="Times are local; show UTC").click()
    expect(row).not_to_have_text(local)
    row.click()
    expect(page.locator(".explain .verdict")).to_contain_text("at 22:45:09 UTC, see <b>99:99:99 UTC</b>.")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Times are UTC; show local time").click()
    expect(row).to_have_text(local)
    row.click()
    expect(page.locator(".explain .verdict")).to_contain_text("at 04:15:09, see <b>99:99:99 UTC</b>.")


def test_green_is_live_alone(api: FakeApi, open_page: OpenPage) -> None:
    live(api)
    page = open_page(api.origin)
    ready(page)
    dot = "getComputedStyle(document.querySelector('.live i')).backgroundColor"
    expect(page.locator(".live")).to_have_text("Live")
    assert page.evaluate(dot) == "rgb(11, 122, 80)"
    page.goto(api.origin + NIGHT)
    expect(page.locator(".live")).to_have_text("Fixed time")
    assert page.evaluate(dot) != "rgb(11, 122, 80)"


def test_what_lies_below_is_said(api: FakeApi, open_page: OpenPage) -> None:
    def causes(query: Query) -> Any:
        said: Any = incident.answer("causes", query)
        one = said["causes"][0]
        return said | {"causes": [one | {"where": {"instance": f"i{n}"}} for n in range(6)]}

    api.answers["causes"] = causes
    page = open_page(api.origin + NIGHT)
    ready(page)
    below = page.locator("#causes").get_by_role("button", name="more below")
    expect(below).to_be_visible()
    page.evaluate("document.querySelector('#causes .body').scrollTop = 9999")
    expect(below).to_be_hidden()
    expect(page.locator("#causes li").last.get_by_role("link")).to_be_in_viewport()


def test_twelve_tenants_have_twelve_colours(api: FakeApi, open_page: OpenPage) -> None:
    names = [f"tenant {n}" for n in range(60)]

    def ratio(query: Query) -> Any:
        said: Any = incident.answer("ratio", query)
        shown = [*names[::5][:11], "other"]
        return said | {"series": [said["series"][0] | {"name": name} for name in shown]}

    api.answers["ratio"] = ratio
    api.answers["meta"] = lambda _: incident.meta() | {"axes": {"tenant": names}}
    page = open_page(f"{api.origin}{NIGHT}&by=tenant")
    ready(page)
    expect(page.locator("#ratio path.line")).to_have_count(12)
    page.keyboard.press("r")
    ready(page)
    colours = page.evaluate("[...document.querySelectorAll('#ratio path.line')].map((one) => one.className.baseVal)")
    assert len(set(colours)) == 12


def test_the_bar_is_one_row(api: FakeApi, open_page: OpenPage) -> None:
    page = open_page(api.origin + NIGHT)
    ready(page)
    assert page.evaluate("document.getElementById('top').offsetHeight") < 60
    expect(page.get_by_role("combobox", name="Add a filter")).to_be_visible()


def emptied(name: str, nothing: dict[str, Any], query: Query) -> Any:
    return dict(incident.answer(name, query) or {}) | nothing


def test_nobody_looked_anything_up(api: FakeApi, open_page: OpenPage) -> None:
    empty: dict[str, Any] = {"ratio": {"series": []}, "reasons": {"reasons": {}}, "keys": {"keys": []}}
    for name, nothing in empty.items():
        api.answers[name] = partial(emptied, name, nothing)
    unknown = {"from": incident.BEGIN, "to": incident.END, "ratio": None}
    api.answers["causes"] = lambda _: {"baseline": unknown, "now": unknown, "causes": []}
    page = open_page(api.origin + NIGHT)
    ready(page)
    expect(page.locator("#causes")).to_contain_text("There is nothing to compare")
    expect(page.locator("#saved .hit .value")).to_have_text("–")
    expect(page.locator("#reasons .tick").filter(has_text="1")).not_to_have_count(0)
    ticks = page.locator("#reasons line.rule").count()
    assert ticks == 1
    expect(chart(page)).to_be_visible()


def test_where_to_send_is_what_the_server_says(api: FakeApi, open_page: OpenPage) -> None:
    api.answers["meta"] = lambda _: incident.meta() | {"spans": 0, "axes": {}, "otlp": "http://0.0.0.0:4399"}
    page = open_page(api.origin)
    expect(page.get_by_role("region", name="No data")).to_contain_text("--otlp http://127.0.0.1:4399")
