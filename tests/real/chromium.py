"""A real Chromium for the tests, Debian's, driven by Playwright.

The browser lives as long as a test module, not as the session: while Playwright's synchronous interface is open its
event loop counts as the running one of the thread, so `asyncio.run` is refused there, which other modules need. In a
test that uses `page`, serve the application from a thread (`tests.serving.serve`). A module that asks for it pays about
a second, each test about 50 milliseconds.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.real.parts import missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

__all__ = ["browser", "browser_context", "page"]

# Playwright adds --headless, --no-sandbox (root needs it), --no-first-run, --disable-background-networking and a new
# user folder by itself. These keep it from asking hosts of its maker.
FLAGS = ("--disable-component-update", "--disable-gpu", "--disable-quic", "--disable-sync")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A running browser; `browser.new_context(...)` for a phone, a colour scheme or a second person."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    if program is None:
        missing("chromium", "it is not installed (apt-get install chromium)")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield running
        running.close()


@pytest.fixture
def browser_context(browser: Browser) -> Iterator[BrowserContext]:
    """A context of this test's own: no cookies, no storage, nothing that a test before it left."""
    context = browser.new_context()
    yield context
    context.close()


@pytest.fixture
def page(browser_context: BrowserContext) -> Iterator[Page]:
    """An empty page in a context of its own. An error that a script of it does not catch fails the test at its end."""
    opened = browser_context.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    assert errors == []
