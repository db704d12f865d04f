"""One server for all tests of the page, and pages that have its token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.doors.http.page.page_server import ENTERED, PageServer, paged

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Error, Page


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    """The server; it asks for a token."""
    sync_api = pytest.importorskip("playwright.sync_api")
    sync_api.expect.set_options(timeout=15_000)  # a busy machine is not a fault
    with paged(tmp_path_factory.mktemp("page")) as running:
        yield running


@pytest.fixture(scope="session")
def folded(served: PageServer) -> str:
    """A session that is looked at, and not changed."""
    return served.folded()


@pytest.fixture(scope="module")
def lasting(browser: Browser) -> Iterator[Page]:
    """A page that has the token. Tests go from view to view in it, as people do: to load it takes most of a second."""
    context = browser.new_context()
    page = context.new_page()
    page.add_init_script(ENTERED)
    yield page
    context.close()


@pytest.fixture
def page(lasting: Page) -> Iterator[Page]:
    """It, with no dialogue open. An error that a script of it does not catch fails the test at its end."""
    errors: list[str] = []

    def hear(error: Error) -> None:
        errors.append(str(error))

    lasting.on("pageerror", hear)
    yield lasting
    lasting.remove_listener("pageerror", hear)
    lasting.evaluate("document.querySelectorAll('dialog[open]').forEach((one) => one.close())")
    assert errors == []
