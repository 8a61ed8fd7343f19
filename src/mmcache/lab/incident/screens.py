"""Pictures of the dashboard's page, made by a real browser: what the walk-through shows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mmcache.model.errors import SettingsError

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


def _with_a_hit(page: Any) -> None:
    """Open an example whose last hit was recorded; the last one where none was."""
    examples = signature_cause(page).get_by_role("link").all()
    for at, example in enumerate(examples, start=1):
        example.click()
        page.locator(".explain .movedtable").wait_for()
        if page.locator(".explain .before").count() or at == len(examples):
            return
        page.keyboard.press("Escape")
        page.locator("#drawer").wait_for(state="hidden")


def take(origin: str, window: tuple[float, float], folder: Path) -> list[Path]:
    """The walk-through's pictures in `folder`, with a page of `origin`; returns their paths."""
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
        page.go_back()
        drawn(page)
        _with_a_hit(page)
        keep("explain", page)
        small = opened(started, story(origin, window), width=390, height=844, scheme="dark")
        keep("phone", small)
    return taken
