"""The page of the proxy, over HTTP and in a real browser: correct, live, safe and accessible."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send
from tests.doors.http.page.test_access import FAINT, FOLDER, HEADINGS, NAMELESS, WIDE
from tests.doors.proxy.served_requests import MARKUP, day, fold, served_request
from tests.serving import serve

from foldline.doors.proxy.gate import Gate, GateRules
from foldline.doors.proxy.page import FREE_PATHS, ProxyMetrics, routes
from foldline.doors.proxy.served_request import ServedRequest
from foldline.doors.proxy.status import ProxyStatus

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LOOK = FOLDER.parents[1] / "proxy" / "look"
TOKEN = "the-token-of-these-tests"


@dataclass(frozen=True, slots=True)
class Looked:
    """The page, served; `tell` lets it hear of requests."""

    url: str
    standing: ProxyStatus
    loop: asyncio.AbstractEventLoop

    def tell(self, *several: ServedRequest) -> None:
        """Let the proxy have ended these requests, on its own loop."""

        async def work() -> None:
            for one in several:
                self.standing(one)

        asyncio.run_coroutine_threadsafe(work(), self.loop).result(120)

    def stop(self) -> None:
        """End the streams, as the proxy does when it stops."""
        self.loop.call_soon_threadsafe(self.standing.stop)


def guarded(app: ASGIApp) -> ASGIApp:
    """Behind the gate, with a token."""
    return Gate(app, GateRules(token=TOKEN))


class Line:
    """What a page's stream goes through; while it is cut, none comes through."""

    def __init__(self) -> None:
        self._cuts: set[asyncio.Task[None]] = set()
        self._whole = True

    def __call__(self, app: ASGIApp) -> ASGIApp:
        async def inner(scope: Scope, receive: Receive, send: Send) -> None:
            if scope.get("path") != "/foldline/events":
                await app(scope, receive, send)
                return
            if not self._whole:
                raise ConnectionResetError
            task = asyncio.ensure_future(app(scope, receive, send))
            self._cuts.add(task)
            try:
                await task
            except asyncio.CancelledError:
                raise ConnectionResetError from None
            finally:
                self._cuts.discard(task)

        return inner

    def cut(self) -> None:
        self._whole = False
        for task in self._cuts:
            task.cancel()

    def mend(self) -> None:
        self._whole = True


@contextmanager
def looked(
    *several: ServedRequest, through: Callable[[ASGIApp], ASGIApp] = lambda app: app, **given: Any
) -> Iterator[Looked]:
    standing, metrics = ProxyStatus(**given), ProxyMetrics()
    for one in several:
        standing(one)
        metrics(one)
    with serve(through(Starlette(routes=routes(standing, metrics)))) as served:
        look = Looked(served.url, standing, served.loop)
        try:
            yield look
        finally:
            look.stop()


@pytest.fixture(scope="module")
def look() -> Iterator[Looked]:
    """A day of the proxy, which tests look at and add to."""
    with looked(*day(), upstream="https://api.example.com/v1", pace_seconds=0.01) as running:
        yield running


# --- over HTTP -------------------------------------------------------------------------------------------------------


def test_every_file_of_the_page_comes_with_its_type_and_a_strict_policy(look: Looked) -> None:
    with httpx.Client(base_url=look.url) as api:
        page = api.get("/foldline")
        linked = re.findall(r'(?:src|href)="(foldline/[^"]+)"', page.text)
        assert len(linked) > 10
        for path in ("foldline", *linked):
            answer = api.get(f"/{path}")
            assert answer.status_code == 200, path
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert api.get(f"/{path}", headers={"If-None-Match": answer.headers["etag"]}).status_code == 304


def test_every_file_that_the_page_loads_is_free_and_no_figure_is(look: Looked) -> None:
    page = httpx.get(f"{look.url}/foldline").text
    modules = {f"/{path}" for path in re.findall(r'(?:src|href)="(foldline/[^"]+)"', page)}
    assert modules <= FREE_PATHS
    assert FREE_PATHS.isdisjoint({"/foldline/state", "/foldline/folds", "/foldline/events", "/metrics"})


def test_the_state_and_the_folds_come_as_json(look: Looked) -> None:
    with httpx.Client(base_url=look.url) as api:
        state = api.get("/foldline/state")
        assert state.headers["cache-control"] == "no-store"
        assert state.json()["totals"]["requests"] >= len(day())
        one = next(one for one in state.json()["conversations"] if one["folds_made"])
        details = api.get("/foldline/folds", params={"session": one["id"]}).json()
        folds = details["folds"]
        assert details.keys() == {"folds", "rules", "tools", "servers"}
        assert folds[0].keys() >= {"reducer", "reason", "before_tokens", "tokens"}
        assert api.get("/foldline/folds", params={"session": "nobody"}).status_code == 404
        assert api.get("/foldline/folds").status_code == 404


def test_metrics_come_as_text(look: Looked) -> None:
    answer = httpx.get(f"{look.url}/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "foldline_proxy_requests_total{" in answer.text


@pytest.mark.parametrize(
    "path", ["/foldline/index.html", "/foldline/..%2fpage.py", "/foldline/nothing.js", "/foldline/x/y"]
)
def test_no_other_file_can_be_asked_for(look: Looked, path: str) -> None:
    assert httpx.get(f"{look.url}{path}").status_code == 404


def test_a_slash_too_many_leads_to_the_page_under_any_prefix(look: Looked) -> None:
    answer = httpx.get(f"{look.url}/foldline/")
    assert (answer.status_code, answer.headers["location"]) == (307, "../foldline")


def test_only_reading_is_allowed_and_a_head_request_of_the_stream_ends(look: Looked) -> None:
    assert httpx.post(f"{look.url}/foldline/state").status_code == 405
    assert httpx.head(f"{look.url}/foldline/events").status_code == 200


def test_the_stream_begins_with_the_state_and_ends_when_the_proxy_stops() -> None:
    with looked(served_request(1)) as own, httpx.stream("GET", f"{own.url}/foldline/events", timeout=120) as stream:
        assert stream.headers["content-security-policy"]
        lines = stream.iter_lines()
        assert next(line for line in lines if line.startswith("event:")) == "event: state"
        assert json.loads(next(lines).removeprefix("data: "))["totals"]["requests"] == 1
        own.stop()
        assert "event: stopping" in list(lines)


def test_too_many_pages_are_told_to_come_later() -> None:
    with looked() as own:
        streams = [own.standing.follow() for _ in range(64)]
        answer = httpx.get(f"{own.url}/foldline/events")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "30")
        assert len(streams) == 64


# --- in a browser ----------------------------------------------------------------------------------------------------


def opened(page: Page, look: Looked) -> None:
    page.goto(f"{look.url}/foldline")
    page.locator("#connection[data-state='live']").wait_for()
    page.locator("#conversations li").first.wait_for()


def test_the_totals_are_seen_at_a_glance(page: Page) -> None:
    from playwright.sync_api import expect

    several = [
        served_request(n, given_tokens=100_000, sent_tokens=25_000, outcome="folded", folds=1) for n in range(1, 5)
    ]
    with looked(*several, served_request(5, outcome="refused", status=400), upstream="http://127.0.0.1:8080") as own:
        opened(page, own)
        expect(page.locator("#saved")).to_have_text("75.0 % of all tokens saved")
        expect(page.locator("#balance-words")).to_have_text("400k given → 100k sent on · 300k saved")
        tiles = page.locator("#tiles")
        expect(tiles).to_contain_text("Requests5")
        expect(tiles).to_contain_text("≈ $0.38")
        expect(tiles.locator("[data-state='bad']")).to_have_count(1)
        expect(page.locator("#about")).to_contain_text("http://127.0.0.1:8080 · folds what does not fit")
        expect(page).to_have_title("75.0 % saved · Foldline proxy")


def test_a_dry_run_says_that_nothing_was_saved_yet(page: Page) -> None:
    from playwright.sync_api import expect

    with looked(served_request(given_tokens=1_000, sent_tokens=400, mode="dry-run"), mode="dry-run") as own:
        opened(page, own)
        expect(page.locator("#saved")).to_have_text("60.0 % of all tokens would be saved")


def test_no_money_is_shown_without_prices(page: Page) -> None:
    from playwright.sync_api import expect

    with looked(served_request(model="my-own-model", given_tokens=9_000, sent_tokens=1_000)) as own:
        opened(page, own)
        expect(page.locator("#tiles")).to_contain_text("Requests")
        expect(page.locator("main")).not_to_contain_text("$")


def test_what_happens_is_seen_as_it_happens(page: Page, look: Looked) -> None:
    from playwright.sync_api import expect

    opened(page, look)
    look.tell(served_request(900, session="live", title="Just begun", given_tokens=30_000, sent_tokens=30_000))
    row = page.locator("#conversations li").first
    expect(row).to_contain_text("Just begun")
    expect(row).to_contain_text("23.4 %")  # of the window
    row.get_by_role("button").click()
    expect(row).to_contain_text("every request fitted as it came")
    why = "the oldest results are shown shortened"
    new = (fold(2, 9, 41_000, 1_000, "mask", why),)
    given: dict[str, Any] = {"given_tokens": 60_000, "sent_tokens": 20_000, "folds": 1, "outcome": "folded"}
    look.tell(served_request(901, session="live", title="Just begun", new_folds=new, **given))
    expect(row.locator(".folds li")).to_contain_text("mask · messages 2–8")
    expect(row.locator(".folds li")).to_contain_text("41,000 → 1,000 tokens")
    expect(row.locator(".folds li")).to_contain_text(why)
    newest = page.locator("#requests li").first
    expect(newest).to_contain_text("folded200")
    expect(newest).to_contain_text("60k → 20k tokens")
    expect(newest).to_contain_text("1 fold made")


def test_it_connects_again_by_itself_and_shows_what_it_missed(page: Page) -> None:
    from playwright.sync_api import expect

    line = Line()
    with looked(served_request(1, title="Before"), through=line) as own:
        opened(page, own)
        own.loop.call_soon_threadsafe(line.cut)
        expect(page.locator("#connection")).to_have_attribute("data-state", "lost")
        own.tell(served_request(2, session="b", title="Meanwhile"))
        own.loop.call_soon_threadsafe(line.mend)
        expect(page.locator("#connection")).to_have_attribute("data-state", "live")
        expect(page.locator("#conversations li").first).to_contain_text("Meanwhile")


def test_texts_of_clients_are_text_only(page: Page) -> None:
    from playwright.sync_api import expect

    hostile = served_request(
        1, title=MARKUP, model=MARKUP, session=MARKUP, warning=MARKUP, failure=MARKUP, path=f"/{MARKUP}", status=400,
        truncated=MARKUP, new_folds=(fold(0, 3, 90, 9, MARKUP, MARKUP),),
    )  # fmt: skip
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    with looked(hostile, served_request(2, session="x", title="\u202egnp.exe"), upstream=MARKUP) as own:
        opened(page, own)
        page.get_by_role("button", name=re.compile("onerror")).click()
        expect(page.locator(".folds li")).to_contain_text(MARKUP)
        expect(page.locator("#requests li").last).to_contain_text(MARKUP)
        expect(page.locator("#about")).to_contain_text(MARKUP)
        assert page.locator("main img, main script").count() == 0
        assert page.locator("main b", has_text=re.compile("^bold$")).count() == 0
        assert "broken in" not in page.title()
    assert [text for text in complaints if "Content Security" in text or "Refused" in text] == []


def test_a_token_is_asked_for_and_one_in_the_address_is_taken_from_there(browser: Browser) -> None:
    from playwright.sync_api import expect

    with looked(served_request(1), through=guarded) as own:
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{own.url}/foldline")
        field = page.get_by_label("Token", exact=True)
        field.fill("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_text("did not take this token")).to_be_visible()
        field.fill(TOKEN)
        page.keyboard.press("Enter")
        expect(page.locator("#conversations li")).to_have_count(1)
        context.close()

        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{own.url}/foldline#token={TOKEN}")
        expect(page.locator("#conversations li")).to_have_count(1)
        assert page.url == f"{own.url}/foldline"
        assert page.evaluate("history.length") <= 2  # the address with the token was not left behind
        page.reload()
        expect(page.locator("#conversations li")).to_have_count(1)
        context.close()

        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{own.url}/~{TOKEN}/foldline")  # as clients have it in their base URL
        expect(page.locator("#conversations li")).to_have_count(1)
        context.close()


def test_all_is_reached_by_the_keyboard_alone(page: Page, look: Looked) -> None:
    from playwright.sync_api import expect

    opened(page, look)
    focused = page.locator(":focus")
    press = page.keyboard.press
    press("j")
    first = focused.get_attribute("aria-label")
    press("j")
    assert focused.get_attribute("aria-label") != first
    press("k")
    assert focused.get_attribute("aria-label") == first
    press("Enter")
    expect(focused).to_have_attribute("aria-expanded", "true")
    outline = (
        "getComputedStyle(document.activeElement).outlineStyle + getComputedStyle(document.activeElement).outlineWidth"
    )
    assert page.evaluate(outline) == "solid2px"
    press("Escape")
    expect(page.locator("#conversations [aria-expanded='true']")).to_have_count(0)
    expect(focused).to_have_attribute("aria-expanded", "false")
    press("/")
    page.keyboard.type("importer")
    expect(page.locator("#conversations li")).to_have_count(1)
    press("Enter")
    expect(focused).to_have_accessible_name(re.compile("^Rewrite the importer"))
    press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()


def test_the_keyboard_stays_where_it_is_when_rows_change(page: Page, look: Looked) -> None:
    from playwright.sync_api import expect

    opened(page, look)
    row = page.locator("#conversations li", has_text="Rewrite the importer")
    row.get_by_role("button").focus()
    look.tell(
        served_request(950, session="9b2e61d07c44a1f3", title="Rewrite the importer so that it streams", given_tokens=7)
    )
    expect(page.locator("#conversations li").first).to_contain_text("Rewrite the importer")
    expect(page.locator(":focus")).to_have_accessible_name(re.compile("^Rewrite the importer.* 121 requests"))


@dataclass(frozen=True, slots=True)
class Open:
    """The page with one conversation's folds in view, what it asked for and what the browser complained of."""

    page: Page
    url: str
    asked: list[str]
    complaints: list[str]


@pytest.fixture(scope="module")
def unfolded(browser: Browser, look: Looked) -> Iterator[Open]:
    """A page for tests that only look at it."""
    with browser.new_context() as context:
        page, asked, complaints = context.new_page(), list[str](), list[str]()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        opened(page, look)
        page.get_by_role("button", name=re.compile("^Rewrite the importer")).click()
        page.locator(".folds li").first.wait_for()
        page.mouse.move(0, 0)
        yield Open(page, look.url, asked, complaints)


def test_everything_has_a_name_headings_are_in_order_and_text_stands_out(unfolded: Open) -> None:
    assert unfolded.page.evaluate(NAMELESS) == []
    levels = unfolded.page.evaluate(HEADINGS)
    assert levels.count(1) == 1
    assert all(below - above <= 1 for above, below in pairwise(levels))
    schemes: tuple[Any, ...] = ("light", "dark")
    for scheme in schemes:
        unfolded.page.emulate_media(color_scheme=scheme)
        assert unfolded.page.evaluate(FAINT) == [], scheme


def test_nothing_is_wider_than_the_screen(unfolded: Open) -> None:
    for width in (320, 375, 760, 1024, 1440):
        unfolded.page.set_viewport_size({"width": width, "height": 812})
        assert unfolded.page.evaluate(WIDE) == 0, width


def test_nothing_comes_from_elsewhere(unfolded: Open) -> None:
    assert len(unfolded.asked) > 12
    assert [url for url in unfolded.asked if not url.startswith(f"{unfolded.url}/foldline")] == []
    assert unfolded.complaints == []


# --- its files -------------------------------------------------------------------------------------------------------


def test_the_page_reads_no_markup_from_texts() -> None:
    sources = "".join(file.read_text("utf-8") for file in LOOK.glob("*.js"))
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|eval\(", sources) == []
    page = (LOOK / "index.html").read_text("utf-8")
    assert re.findall(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", page) == []


def test_every_module_is_asked_for_at_once_and_none_imports_what_is_not_served() -> None:
    page = (LOOK / "index.html").read_text("utf-8")
    served: Callable[[str], bool] = lambda name: f"/foldline/{name}" in FREE_PATHS  # noqa: E731
    for file in LOOK.glob("*.js"):
        assert f'"foldline/{file.name}"' in page
        assert file.read_text("utf-8").count("\n") <= 400
        assert all(map(served, re.findall(r'from "\./([^"]+)"', file.read_text("utf-8"))))
    assert Path(LOOK / "proxy.css").is_file()
