"""One server for all tests of the page, and pages that have its token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.interfaces.serving.page.paging import ENTERED, Paged, paged

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture(scope="package")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Paged]:
    """The server; it asks for a token."""
    with paged(tmp_path_factory.mktemp("page")) as running:
        yield running


@pytest.fixture(scope="package")
def folded(served: Paged) -> str:
    """A session that is looked at, and not changed."""
    return served.folded()


@pytest.fixture
def page(page: Page) -> Page:
    """An empty page that has the token."""
    page.add_init_script(ENTERED)
    return page
