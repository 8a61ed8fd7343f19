"""What the tests do on the page, in the words of who uses it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Locator, Page, expect
from tests.e2e.dashboard_page import incident

NIGHT = f"/?from={incident.BEGIN:.0f}&to={incident.END:.0f}"
LEFT, RIGHT = 46, 10
"""Margins of a chart, pixels."""


def chart(page: Page, panel: str = "ratio") -> Locator:
    return page.locator(f"#{panel} .plot")


def ready(page: Page) -> None:
    """All panels have their data."""
    for name in ("saved", "ratio", "causes", "reasons", "tiers", "requests", "keys"):
        expect(page.locator(f"#{name}")).to_have_attribute("aria-busy", "false")


def place(page: Page, at: float, panel: str = "ratio") -> tuple[float, float]:
    """Where a moment is on the screen, the chart showing the whole night."""
    chart(page, panel).scroll_into_view_if_needed()
    box = chart(page, panel).bounding_box()
    assert box
    share = (at - incident.BEGIN) / (incident.END - incident.BEGIN)
    return box["x"] + LEFT + share * (box["width"] - LEFT - RIGHT), box["y"] + box["height"] / 2


def click_at(page: Page, at: float) -> None:
    page.mouse.click(*place(page, at))


def until(page: Page, holds: Callable[[], Any], what: str) -> None:
    """Waits, patiently, while the browser goes on."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, f"not within a minute: {what}"
        page.wait_for_timeout(50)


def says(page: Page, name: str) -> str | None:
    """What the address says of `name`."""
    found: str | None = page.evaluate("(name) => new URLSearchParams(location.search).get(name)", name)
    return found


def rows(page: Page) -> Locator:
    return page.locator("#requests tbody tr")
