"""A real browser, a page in it that must never break its own rules, and a server of canned answers."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.dashboard_page.fake_api import FakeApi, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

CHROMIUM = Path(shutil.which("chromium") or "/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
PATIENT = 60_000.0
WATCH = """
window.broken = [];
const violated = (e) => window.broken.push(`${e.violatedDirective} ${e.blockedURI}`);
document.addEventListener("securitypolicyviolation", violated);
window.addEventListener("error", (e) => window.broken.push(String(e.message)));
window.addEventListener("unhandledrejection", (e) => window.broken.push(String(e.reason)));
"""
OpenPage = Callable[..., "Page"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not of the session: while Playwright runs, no test may start an event loop of its own."""
    if not CHROMIUM.exists():
        pytest.skip("Chromium is not installed: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        try:
            yield started
        finally:
            started.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """`open_page(address, width=1280, scheme="light")`. At the end no page has broken its Content-Security-Policy."""
    from playwright.sync_api import expect

    expect.set_options(timeout=PATIENT)
    contexts = []
    pages: list[Page] = []
    dialogs: list[str] = []

    def refused(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    def opened(address: str, *, width: int = 1280, height: int = 900, scheme: str = "light", **more: Any) -> Page:
        how: dict[str, Any] = {"timezone_id": "UTC", "locale": "en-GB", "reduced_motion": "reduce", **more}
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **how)
        contexts.append(context)
        context.set_default_timeout(PATIENT)
        context.add_init_script(WATCH)
        page = context.new_page()
        page.on("dialog", lambda dialog: refused(dialog))
        pages.append(page)
        page.goto(address)
        return page

    try:
        yield opened
        assert [page.evaluate("window.broken") for page in pages] == [[] for _ in pages]
        assert dialogs == []
    finally:
        for context in contexts:
            context.close()


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """Answers as `incident` tells them, until a test replaces some."""
    fake = FakeApi()
    with serving(fake):
        yield fake
