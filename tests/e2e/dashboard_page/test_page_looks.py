"""It fits, it can be read, it says what is missing."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
import threading

import pytest

pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install -r requirements/test.txt")

from playwright.sync_api import expect
from tests.e2e.dashboard_page import incident
from tests.e2e.dashboard_page.conftest import OpenPage
from tests.e2e.dashboard_page.fake_api import PAGE, FakeApi
from tests.e2e.dashboard_page.stage import NIGHT, chart, ready, rows

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
TEXT = [("text", "surface"), ("text", "bg"), ("text", "sunken"), ("text", "raised"), ("text", "accent-soft")]
TEXT += [("muted", "surface"), ("muted", "bg"), ("muted", "sunken"), ("muted", "raised"), ("muted", "accent-soft")]
TEXT += [("accent", "surface"), ("accent", "accent-soft"), ("on-accent", "accent"), ("surface", "text")]
TEXT += [("good", "good-soft"), ("bad", "bad-soft"), ("good", "surface"), ("bad", "surface"), ("text", "bad-soft")]

PARSERS = r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function"
PARSE = """
import { readFileSync } from "node:fs";
import { SourceTextModule } from "node:vm";
const files = process.argv.slice(1);
for (const name of files) new SourceTextModule(readFileSync(name, "utf8"), { identifier: name });
console.log(files.length);
"""


def light(colour: str) -> float:
    """Relative luminance (WCAG 2) of `#rrggbb`."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_can_be_read(scheme: str) -> None:
    css = (PAGE / "tokens.css").read_text(encoding="utf-8")
    both = re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);", css)
    colours = {name: dark if scheme == "dark" else light for name, light, dark in both}
    assert {pair: c for pair in TEXT if (c := contrast(colours[pair[0]], colours[pair[1]])) < 4.5} == {}
    series = {f"s{i}": contrast(colours[f"s{i}"], colours["surface"]) for i in range(1, 13)}
    assert {name: c for name, c in series.items() if c < 4.2} == {}, "flags carry small figures"
    assert contrast(colours["line-strong"], colours["surface"]) >= 3


def test_every_colour_is_said_once_for_both_themes() -> None:
    css = (PAGE / "tokens.css").read_text(encoding="utf-8")
    names = re.findall(r"(--[\w-]+):", css)
    assert [name for name in set(names) if names.count(name) > 1] == ["--c"]  # of a series, a class each
    assert len(re.findall(r"light-dark\(", css)) > 30
    others = [path for path in PAGE.rglob("*.css") if "prefers-color-scheme" in path.read_text(encoding="utf-8")]
    assert others == []


def test_an_old_browser_has_each_light_colour() -> None:
    tokens, plain = ((PAGE / name).read_text(encoding="utf-8") for name in ("tokens.css", "plain.css"))
    assert "@supports not (color: light-dark(" in plain
    said = dict(re.findall(r"(--[\w-]+): (.+);", tokens))
    meant = {name: value for name, value in said.items() if "light-dark" in value}
    nested = r"(?:[^(),]|\([^()]*\))+"
    for name, value in meant.items():
        meant[name] = re.sub(rf"light-dark\(({nested}), {nested}\)", r"\1", value)
    assert dict(re.findall(r"(--[\w-]+): (.+);", plain)) == meant
    html = (PAGE / "index.html").read_text(encoding="utf-8")
    assert html.index("tokens.css") < html.index("plain.css")


def test_the_page_is_small_and_whole() -> None:
    files = [path for path in PAGE.rglob("*") if path.is_file()]
    assert sum(len(gzip.compress(path.read_bytes())) for path in files) < 76 * 1024
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) < 300, path.name
        assert not re.search(PARSERS, text), path.name
        assert not re.search(r"https?://(?!www\.w3\.org|127\.0\.0\.1)", text), path.name
    html = (PAGE / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! src| type=\"module\" src)", html)


def test_modules_parse() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    files = [str(path) for path in PAGE.rglob("*.js")]
    done = subprocess.run(
        [node, "--experimental-vm-modules", "--no-warnings", "--input-type=module", "-e", PARSE, *files],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == len(files) > 20


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits(api: FakeApi, open_page: OpenPage, width: int) -> None:
    page = open_page(api.origin + NIGHT, width=width, height=844)
    ready(page)
    assert page.evaluate(OVERFLOW) <= 0
    rows(page).first.locator("a").click()
    expect(page.get_by_role("treeitem")).to_have_count(5)
    expect(page.locator(".explain .movedtable")).to_be_visible()
    assert page.evaluate(OVERFLOW) <= 0
    assert page.evaluate("(d => d.scrollWidth - d.clientWidth)(document.querySelector('#drawer .inner'))") <= 0


@pytest.mark.slow
def test_the_theme_follows_the_system_until_it_is_chosen(api: FakeApi, open_page: OpenPage) -> None:
    page = open_page(api.origin + NIGHT, scheme="dark")
    ready(page)
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    assert dark == "rgb(12, 15, 20)"
    page.emulate_media(color_scheme="light")
    assert page.evaluate(background) == "rgb(244, 245, 247)"
    page.get_by_role("button", name="Light or dark").click()
    assert page.evaluate(background) == dark
    page.reload()
    ready(page)
    assert page.evaluate(background) == dark


@pytest.mark.slow
def test_a_chart_is_a_table_too(api: FakeApi, open_page: OpenPage) -> None:
    page = open_page(api.origin + NIGHT)
    ready(page)
    page.get_by_role("button", name="Hit ratio as a table").click()
    table = page.get_by_role("table", name="Hit ratio over time")
    expect(table.get_by_role("columnheader")).to_have_text(["from", "image", "text", "speech", "lookups"])
    expect(table.get_by_role("row")).to_have_count(121)
    page.get_by_role("button", name="Hit ratio as a table").click()
    expect(chart(page)).to_be_visible()
    page.get_by_role("button", name="Misses as a table").click()
    expect(page.get_by_role("table", name="Misses over time by reason")).to_contain_text("signature")


@pytest.mark.slow
def test_nothing_has_come_yet(api: FakeApi, open_page: OpenPage) -> None:
    api.answers["meta"] = lambda _: incident.meta() | {"spans": 0, "axes": {}}
    page = open_page(api.origin)
    empty = page.get_by_role("region", name="No data")
    expect(empty).to_contain_text("Nothing has come yet")
    expect(empty.locator("code")).to_have_count(2)
    expect(empty).to_contain_text(f"--otlp {api.origin}")
    expect(page.locator("#ratio")).to_be_hidden()
    del api.answers["meta"]
    page.keyboard.press("r")
    expect(empty).to_contain_text("What is kept lies in 15 Mar, 01:00–03:00")
    empty.get_by_role("button").click()
    ready(page)
    expect(empty).to_be_hidden()
    expect(page.locator("#ratio path.line")).to_have_count(3)


@pytest.mark.slow
def test_an_error_is_said_and_tried_again(api: FakeApi, open_page: OpenPage) -> None:
    api.answers["ratio"] = api.answers["traces"] = api.answers["explain"] = lambda _: 503
    page = open_page(api.origin + NIGHT)
    expect(page.locator("#ratio .notice")).to_contain_text("No data. no ratio today")
    expect(page.locator("#reasons path.area").first).to_be_visible()
    rows(page).first.locator("a").click()
    drawer = page.locator("#drawer")
    expect(drawer.get_by_role("alert")).to_contain_text("no traces today")
    del api.answers["traces"]
    drawer.get_by_role("button", name="Try again").click()
    expect(drawer.get_by_role("treeitem")).to_have_count(5)
    expect(drawer.get_by_role("alert")).to_contain_text("no explain today")
    api.answers.clear()
    drawer.get_by_role("button", name="Try again").click()
    expect(drawer.locator(".movedtable")).to_be_visible()
    page.keyboard.press("Escape")
    page.locator("#ratio").get_by_role("button", name="Try again").click()
    expect(page.locator("#ratio path.line")).to_have_count(3)
    expect(page.locator("#ratio .notice")).to_be_hidden()


@pytest.mark.slow
def test_nothing_jumps_while_it_loads(api: FakeApi, open_page: OpenPage) -> None:
    gates = [api.gates.setdefault(name, threading.Event()) for name in ("saved", "ratio", "reasons")]
    page = open_page(api.origin + NIGHT)
    expect(page.locator("#ratio .skeleton")).to_be_visible()
    expect(page.locator("#causes li")).to_have_count(2)
    places = "['saved', 'ratio', 'causes'].map((id) => document.getElementById(id).getBoundingClientRect().top)"
    before = page.evaluate(places)
    for gate in gates:
        gate.set()
    ready(page)
    assert page.evaluate(places) == before
