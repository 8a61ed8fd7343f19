"""The graph of hot keys on the page: from a node to its requests, by mouse and by keys; who cannot see it, too."""

from __future__ import annotations

import time
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install -r requirements/test.txt")

from playwright.sync_api import Locator, Page, expect
from tests.e2e.dashboard_page import hot_graph, incident
from tests.e2e.dashboard_page.conftest import OpenPage
from tests.e2e.dashboard_page.fake_api import FakeApi, Query
from tests.e2e.dashboard_page.stage import NIGHT, ready, says, until
from tests.e2e.dashboard_page.test_page_looks import OVERFLOW
from tests.e2e.dashboard_page.test_page_names import NASTY, spoil, unharmed

pytestmark = pytest.mark.slow
PLACES = "[...document.querySelectorAll('#graph .node')].map((n) => n.dataset.key + n.getAttribute('transform'))"


def drawn(page: Page) -> None:
    """Its nodes stand."""
    expect(page.locator("#graph")).to_have_attribute("aria-busy", "false")
    expect(page.locator("#graph .stage")).to_have_attribute("data-settled", "true")


def node(page: Page, number: int) -> Locator:
    return page.locator(f'#graph .node[data-key="{hot_graph.key(number)}"]')


def details(page: Page) -> Locator:
    return page.get_by_role("region", name="The chosen key")


def test_from_a_node_to_its_requests(api: FakeApi, open_page: OpenPage) -> None:
    page = open_page(api.origin + NIGHT)
    ready(page)
    drawn(page)
    expect(page.locator("#graph .node")).to_have_count(sum(hot_graph.SIZES.values()) + hot_graph.ALONE)
    expect(page.locator("#graph .hint").first).to_contain_text("51 keys, 100 edges")
    expect(page.locator("#graph .hint").first).to_contain_text("2 processes")
    node(page, 4).click()
    chosen = details(page)
    expect(chosen).to_contain_text(hot_graph.key(4))
    expect(chosen.get_by_role("list", name="Parts of the score").get_by_role("listitem")).to_have_count(3)
    expect(chosen.locator("dl")).to_contain_text("nobody says")
    assert says(page, "hot") == hot_graph.key(4)
    node(page, 6).click()
    expect(chosen.locator("dl")).to_contain_text("2.3 d, 80 % sure")
    expect(chosen.locator("dl")).to_contain_text("memory")
    chosen.get_by_role("link", name="Requests of this key").click()
    expect(page.get_by_role("list", name="Active filters")).to_contain_text("key")
    until(
        page, lambda: api.queries("requests")[-1].get("key") == [hot_graph.key(6)], "requests of the key are asked for"
    )
    assert "key" not in api.queries("graph")[-1]  # the graph stays whole
    expect(page.locator("#requests .scroll")).to_be_focused()
    page.go_back()
    ready(page)
    expect(chosen).to_contain_text(hot_graph.key(6))
    node(page, 6).click()
    expect(chosen).to_be_hidden()
    assert says(page, "hot") is None


def test_by_keys_alone(api: FakeApi, open_page: OpenPage) -> None:
    page = open_page(api.origin + NIGHT)
    ready(page)
    drawn(page)
    page.keyboard.press("g")
    expect(node(page, 0)).to_be_focused()
    expect(page.locator('#graph .node[tabindex="0"]')).to_have_count(1)
    focused = "document.activeElement.dataset.key"
    seen = {page.evaluate(focused)}
    for key in ["ArrowLeft", "ArrowUp", "ArrowRight", "ArrowDown"] * 3:
        before = page.evaluate("document.activeElement.getAttribute('transform')")
        page.keyboard.press(key)
        after = page.evaluate("document.activeElement.getAttribute('transform')")
        x, y = ([float(n) for n in place[10:-1].split(",")] for place in (before, after))
        moved = {"ArrowLeft": x[0] - y[0], "ArrowRight": y[0] - x[0], "ArrowUp": x[1] - y[1], "ArrowDown": y[1] - x[1]}
        assert before == after or moved[key] > 0
        seen.add(page.evaluate(focused))
    assert len(seen) > 4
    page.keyboard.press("Home")
    page.keyboard.press("PageDown")
    expect(node(page, 1)).to_be_focused()
    assert hot_graph.key(1) in (node(page, 1).get_attribute("aria-label") or "")
    page.keyboard.press("Enter")
    expect(details(page)).to_contain_text(hot_graph.key(1))
    expect(node(page, 1)).to_be_focused()
    expect(node(page, 1)).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#status")).to_contain_text("stays hot")
    page.keyboard.press("Tab")
    expect(details(page).get_by_role("button", name="Close the key")).to_be_focused()
    for _ in range(40):
        if page.evaluate("document.activeElement.textContent") == "Requests of this key":
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    until(page, lambda: says(page, "key") == hot_graph.key(1), "the key filters")
    page.keyboard.press("g")
    expect(node(page, 1)).to_be_focused()
    page.keyboard.press("Escape")
    expect(details(page)).to_be_hidden()
    assert says(page, "key") == hot_graph.key(1)  # Esc left the key alone


def test_communities_say_what_became_of_them(api: FakeApi, open_page: OpenPage) -> None:
    page = open_page(api.origin + NIGHT)
    ready(page)
    drawn(page)
    listed = page.get_by_role("list", name="Communities").get_by_role("listitem")
    expect(listed).to_have_count(5)
    expect(page.locator("#graph .together .hint")).to_have_text("1 appeared · 2 living · 1 fading · 1 faded")
    expect(listed.nth(0)).to_contain_text("since 01:45")
    expect(listed.nth(0)).to_contain_text("took in 4")
    expect(listed.nth(1)).to_contain_text("2 · web-1")  # another process has a number 2, too
    expect(listed.nth(2)).to_contain_text("2 · web-2")
    expect(listed.nth(4)).to_contain_text("faded12 keys01:05–01:35")
    looks = page.evaluate("""[...document.querySelectorAll('#graph .communities .sign')]
        .map((s) => s.getAttribute('class') + s.firstChild.getAttribute('d'))""")
    assert len(set(looks)) == 5
    assert len({look.split("M")[1] for look in looks}) == 5  # not by colour alone
    listed.nth(3).get_by_role("button").click()
    expect(page.locator("#graph .node.lit")).to_have_count(hot_graph.SIZES["7-bbbbbbbb"])
    listed.nth(3).get_by_role("button").click()
    expect(page.locator("#graph .node.lit")).to_have_count(0)


def test_it_is_a_table_too(api: FakeApi, open_page: OpenPage) -> None:
    page = open_page(api.origin + NIGHT)
    ready(page)
    page.get_by_role("button", name="Hot keys as a table").click()
    table = page.get_by_role("table", name="Hot keys", exact=True)
    expect(table.get_by_role("row")).to_have_count(1 + sum(hot_graph.SIZES.values()) + hot_graph.ALONE)
    expect(table.get_by_role("row").nth(1)).to_contain_text(hot_graph.key(0))
    expect(table.get_by_role("columnheader")).to_have_count(10)
    expect(page.locator("#graph .stage")).to_be_hidden()
    page.get_by_role("button", name="Hot keys as a table").click()
    drawn(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_seen_in_both_themes(api: FakeApi, open_page: OpenPage, scheme: str) -> None:
    page = open_page(api.origin + NIGHT, scheme=scheme)
    ready(page)
    drawn(page)
    fills = page.evaluate("""[...document.querySelectorAll('#graph .node:not(.alone) .shape')]
        .map((s) => getComputedStyle(s).fill)""")
    ground = page.evaluate("getComputedStyle(document.querySelector('#graph .stage')).backgroundColor")
    assert len(set(fills)) == 4
    assert ground not in fills
    assert ground == {"light": "rgb(240, 242, 245)", "dark": "rgb(15, 19, 25)"}[scheme]
    assert page.evaluate("getComputedStyle(document.querySelector('#graph .edge')).stroke") != ground


def test_it_fits_a_phone(api: FakeApi, open_page: OpenPage) -> None:
    page = open_page(api.origin + NIGHT, width=390, height=844, has_touch=True)
    ready(page)
    drawn(page)
    assert page.evaluate(OVERFLOW) <= 0
    node(page, 0).scroll_into_view_if_needed()
    node(page, 0).tap()
    expect(details(page)).to_contain_text(hot_graph.key(0))
    assert page.evaluate(OVERFLOW) <= 0
    outside = page.evaluate("""(() => { const stage = document.querySelector("#graph .stage").getBoundingClientRect();
        return [...document.querySelectorAll("#graph .node .shape")].map((n) => n.getBoundingClientRect())
            .filter((n) => n.left < stage.left || n.right > stage.right || n.top < stage.top || n.bottom > stage.bottom)
            .length; })()""")
    assert outside == 0
    page.get_by_role("button", name="Hot keys as a table").click()
    assert page.evaluate(OVERFLOW) <= 0


def test_it_stands_the_same_each_time_with_and_without_motion(api: FakeApi, open_page: OpenPage) -> None:
    still = open_page(api.origin + NIGHT)
    drawn(still)
    places = still.evaluate(PLACES)
    still.reload()
    drawn(still)
    assert still.evaluate(PLACES) == places
    moving = open_page(api.origin + NIGHT, reduced_motion="no-preference")
    moving.locator("#graph").scroll_into_view_if_needed()
    drawn(moving)
    assert moving.evaluate(PLACES) == places
    assert len(set(places)) == len(places)


def now(api: FakeApi) -> None:
    """The page follows the time."""
    at = time.time()
    api.answers["meta"] = lambda _: incident.meta() | {"from": at - 86400, "to": at + 86400}


def test_a_new_view_moves_only_what_is_new(api: FakeApi, open_page: OpenPage) -> None:
    now(api)
    page = open_page(api.origin)
    ready(page)
    drawn(page)
    expect(page.locator(".live")).to_have_text("Live")
    node(page, 3).focus()
    page.keyboard.press("Enter")
    asked, others = len(api.queries("graph")), len(api.queries("ratio"))

    def more(query: Query) -> Any:
        said = hot_graph.graph(query)
        said["nodes"][-1] = hot_graph.node(900, None)
        said["communities"][3]["state"] = "living"
        return said

    api.answers["graph"] = more
    for watcher in list(api.watchers):
        watcher.put('event: graph\ndata: {"views": 2}\n\n')
    expect(node(page, 900)).to_have_count(1)
    drawn(page)
    assert len(api.queries("graph")) - asked > len(api.queries("ratio")) - others  # only the graph asks for it
    expect(node(page, 3)).to_be_focused()
    expect(details(page)).to_contain_text(hot_graph.key(3))
    expect(page.locator("#graph .together .hint")).to_have_text("1 appeared · 3 living · 1 faded")


def test_another_order_of_the_same_keys_and_edges_moves_nothing(api: FakeApi, open_page: OpenPage) -> None:
    now(api)
    page = open_page(api.origin)
    ready(page)
    drawn(page)
    places = sorted(page.evaluate(PLACES))
    first = page.locator("#graph .node").first.get_attribute("data-key")

    def turned(query: Query) -> Any:
        said = hot_graph.graph(query)
        last = len(said["nodes"]) - 1
        said["nodes"].reverse()
        said["edges"] = [
            {"source": last - one["source"], "target": last - one["target"], "weight": one["weight"]}
            for one in reversed(said["edges"])
        ]
        return said

    api.answers["graph"] = turned
    for watcher in list(api.watchers):
        watcher.put('event: graph\ndata: {"views": 2}\n\n')
    expect(page.locator("#graph .node").last).to_have_attribute("data-key", str(first))
    drawn(page)
    assert sorted(page.evaluate(PLACES)) == places


def test_a_key_that_goes_while_it_is_chosen_leaves_nothing_behind(api: FakeApi, open_page: OpenPage) -> None:
    now(api)
    page = open_page(api.origin)
    ready(page)
    drawn(page)
    node(page, 3).focus()
    page.keyboard.press("Enter")
    expect(details(page)).to_contain_text(hot_graph.key(3))
    api.answers["graph"] = lambda _: hot_graph.nothing()
    for watcher in list(api.watchers):
        watcher.put('event: graph\ndata: {"views": 2}\n\n')
    expect(page.locator("#graph .how")).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("ArrowLeft")
    del api.answers["graph"]
    for watcher in list(api.watchers):
        watcher.put('event: graph\ndata: {"views": 2}\n\n')
    expect(node(page, 3)).to_have_attribute("aria-pressed", "true")
    expect(details(page)).to_contain_text(hot_graph.key(3))


def test_one_process_of_several(api: FakeApi, open_page: OpenPage) -> None:
    page = open_page(api.origin + NIGHT)
    ready(page)
    page.get_by_role("combobox", name="Process").select_option(label="web-2")
    until(page, lambda: api.queries("graph")[-1].get("instance") == ["web-2"], "of one process")
    assert (says(page, "instance"), says(page, "service")) == ("web-2", "mmcache")
    expect(page.locator("#graph .hint").first).to_contain_text("51 of 4,300 keys, 100 edges, one process")
    page.get_by_role("combobox", name="Process").select_option(label="All processes")
    until(page, lambda: "instance" not in api.queries("graph")[-1], "of all")
    page.go_back()
    expect(page.get_by_role("combobox", name="Process")).to_have_value("1")


def test_nothing_yet_says_how(api: FakeApi, open_page: OpenPage) -> None:
    api.answers["graph"] = lambda _: hot_graph.nothing()
    page = open_page(api.origin + NIGHT)
    ready(page)
    expect(page.locator("#graph .how")).to_contain_text("No process says which of its keys are hot")
    expect(page.locator("#graph .how code")).to_contain_text(f'otlp="{api.origin}"')
    expect(page.locator("#graph .stage")).to_be_hidden()
    api.answers["graph"] = lambda query: hot_graph.graph(query) | {"nodes": [], "edges": [], "communities": []}
    page.keyboard.press("r")
    expect(page.locator("#graph .how")).to_contain_text("None of the hot keys is of what is filtered")
    del api.answers["graph"]
    page.keyboard.press("r")
    drawn(page)
    expect(page.locator("#graph .how")).to_be_hidden()


def test_a_process_that_sends_hot_keys_alone_is_seen(api: FakeApi, open_page: OpenPage) -> None:
    api.answers["meta"] = lambda _: incident.meta() | {"spans": 0, "from": None, "to": None, "views": 1, "axes": {}}
    page = open_page(api.origin)
    drawn(page)
    expect(page.get_by_role("region", name="No data")).to_be_hidden()


@pytest.mark.parametrize("turn", [0, 5, 9])
def test_no_name_becomes_code(api: FakeApi, open_page: OpenPage, turn: int) -> None:
    def spoiled(query: Query) -> Any:
        said = spoil(hot_graph.graph(query), [turn])
        for at, one in enumerate(said["nodes"]):
            one["key"] = hot_graph.key(at) if at % 2 else f"{NASTY[(turn + at) % len(NASTY)]}{at}"
            one["parts"] = dict.fromkeys(NASTY, 1.5)
            one["community"] = f"{NASTY[at % 3]}"
        for at, one in enumerate(said["communities"]):
            one["id"], one["number"], one["state"] = NASTY[at], 2, NASTY[at]
        return said

    api.answers["graph"] = spoiled
    page = open_page(f"{api.origin}{NIGHT}&hot=%3Cimg%20src=x%3E")
    ready(page)
    drawn(page)
    assert says(page, "hot") == "<img src=x>"  # and is not believed
    for at in (1, 2):
        page.locator("#graph .node").nth(at).focus()
        page.keyboard.press("Enter")
    unharmed(page)
    page.locator("#graph .communities button").first.click()
    page.get_by_role("combobox", name="Process").select_option(index=1)
    ready(page)
    drawn(page)
    unharmed(page)
    page.get_by_role("button", name="Hot keys as a table").click()
    expect(page.locator("#graph table.data tbody tr").first).to_be_visible()
    unharmed(page)
