"""Pictures of the dashboard's page, made by a real browser: what the walk-through shows."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mmcache.model.errors import DashboardError, SettingsError

ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
PATIENCE_MS = 60_000.0
PANELS = ("saved", "ratio", "causes", "reasons", "tiers", "requests", "keys")


@contextmanager
def browser() -> Iterator[Any]:
    """Debian's Chromium, driven by Playwright. Raises `SettingsError` where one of them is missing."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        raise SettingsError("pictures need a browser: apt-get install chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError as error:
        raise SettingsError("pictures need Playwright: pip install playwright") from error
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=list(ARGUMENTS))
        try:
            yield started
        finally:
            started.close()


def opened(browser: Any, address: str, width: int = 1280, height: int = 1000, scheme: str = "light") -> Any:
    """The page, with all its panels drawn."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, timezone_id="UTC", locale="en-GB",
        reduced_motion="reduce",
    )  # fmt: skip
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(address)
    drawn(page)
    return page


def drawn(page: Any) -> None:
    """Wait until every panel has its data."""
    for name in PANELS:
        page.locator(f'#{name}[aria-busy="false"]').wait_for()


def story(origin: str, window: tuple[float, float]) -> str:
    """The address that shows the whole story, by tenant."""
    return f"{origin}/?from={window[0]:.0f}&to={window[1]:.0f}&by=tenant"


def signature_cause(page: Any) -> Any:
    """The cause that is a signature, in the panel of causes."""
    return page.locator("#causes li.cause").filter(has_text="Another signature")


def held_against_a_hit(get: Callable[..., Any], window: tuple[float, float]) -> tuple[str, str]:
    """Trace and span of a miss under another signature, of an input whose last hit was recorded."""
    query = {"from": window[0], "to": window[1], "reason": "signature", "limit": 100}
    for one in get("requests", **query)["requests"]:
        spans = get(f"traces/{one['trace']}")["spans"]
        lookup = next((span["span"] for span in spans if span["name"] == "cache.lookup"), one["span"])
        told = get(f"explain/{one['trace']}/{lookup}")
        if told["before"] is not None and "It last hit" in " ".join(told["text"]):
            return one["trace"], lookup
    raise DashboardError("no miss of an input that hit before was found")


def take(get: Callable[..., Any], origin: str, window: tuple[float, float], folder: Path) -> list[Path]:
    """The walk-through's pictures in `folder`, of the page at `origin`; returns their paths. get: asks its API."""
    folder.mkdir(parents=True, exist_ok=True)
    taken: list[Path] = []

    def keep(name: str, what: Any, **how: Any) -> None:
        taken.append(folder / f"{name}.png")
        what.screenshot(path=taken[-1], animations="disabled", **how)

    with browser() as started:
        page = opened(started, story(origin, window))
        keep("page", page)
        keep("causes", page.locator("#causes"))
        signature_cause(page).locator("button.pickcause").click()
        drawn(page)
        page.locator("#requests").scroll_into_view_if_needed()
        keep("misses", page.locator("#requests"))
        trace, span = held_against_a_hit(get, window)
        page.goto(f"{story(origin, window)}&trace={trace}&span={span}")
        page.locator(".explain .before").wait_for()
        drawn(page)
        keep("explain", page)
    return taken
