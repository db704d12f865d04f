"""One server for all tests of the page, and pages that have its token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.interfaces.serving.page.paging import ENTERED, Paged, paged

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Paged]:
    """The server; it asks for a token."""
    sync_api = pytest.importorskip("playwright.sync_api")
    sync_api.expect.set_options(timeout=15_000)  # a busy machine is not a fault
    with paged(tmp_path_factory.mktemp("page")) as running:
        yield running


@pytest.fixture(scope="session")
def folded(served: Paged) -> str:
    """A session that is looked at, and not changed."""
    return served.folded()


@pytest.fixture
def page(page: Page) -> Page:
    """An empty page that has the token."""
    page.add_init_script(ENTERED)
    return page
