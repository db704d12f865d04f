"""A browser of one's own: it runs scripts, and each test begins with nothing kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route
from tests.serving import serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.xdist_group("chromium")  # one browser for all of these

COUNTING = """<!doctype html><title>Counting</title><button onclick="
    localStorage.seen = Number(localStorage.seen || 0) + 1; this.textContent = localStorage.seen">none</button>"""


async def counting(request: Request) -> HTMLResponse:
    return HTMLResponse(COUNTING)


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with serve(Starlette(routes=[Route("/", counting)])) as served:
        yield served.url


@pytest.mark.parametrize("visit", ["first", "second"])
def test_a_script_runs_and_nothing_is_kept_from_an_earlier_test(page: Page, site: str, visit: str) -> None:
    page.goto(site)
    page.get_by_role("button", name="none").click()
    assert page.get_by_role("button").inner_text() == "1"


def test_a_context_can_be_a_phone_in_the_dark(browser: Browser, site: str) -> None:
    with browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark") as context:
        page = context.new_page()
        page.goto(site)
        assert page.evaluate("[innerWidth > 300, matchMedia('(prefers-color-scheme: dark)').matches]") == [True, True]
