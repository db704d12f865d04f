"""The list of sessions on the page, in a real browser over the real server."""

from __future__ import annotations

import re

import pytest
from tests.interfaces.serving.page.paging import TITLE, WINDOW_TOKENS, Paged

from foldline import POLICIES

pytest.importorskip("playwright")
from playwright.sync_api import Page, expect


def test_the_list_shows_how_full_each_context_is_and_what_it_runs_on(page: Page, served: Paged, folded: str) -> None:
    row = served.got(f"/v1/sessions/{folded}")
    page.goto(served.url)
    item = page.get_by_role("list", name="Sessions").get_by_role("listitem").filter(has_text=TITLE)
    meter = item.get_by_role("meter", name="Context")
    share = row["tokens"] / WINDOW_TOKENS
    figures = re.compile(rf"^{row['tokens']:,} of {WINDOW_TOKENS:,} tokens, {int(share * 100)}\.\d %$")
    expect(meter).to_have_attribute("aria-valuetext", figures)
    expect(meter).to_have_attribute("data-level", "full" if share >= 0.9 else "high" if share >= 0.7 else "calm")
    expect(item).to_contain_text("fake-model · balanced")
    expect(item.locator(".turns")).to_have_text(re.compile(rf"^{row['turns']} turns$"))
    expect(item.locator(".folds")).to_have_text(re.compile(rf"^{row['folds']} folds?$"))


def test_the_filter_narrows_the_list_and_says_when_nothing_is_left(page: Page, served: Paged, folded: str) -> None:
    served.created(title="Another matter")
    page.goto(served.url)
    items = page.get_by_role("list", name="Sessions").get_by_role("listitem")
    expect(items.filter(has_text="Another matter")).to_have_count(1)
    page.get_by_role("searchbox", name="Filter sessions").fill("towns")
    expect(items.filter(has_text="Another matter")).to_have_count(0)
    expect(items.filter(has_text=TITLE)).to_have_count(1)
    page.get_by_role("searchbox").fill("nothing is called so")
    expect(page.get_by_text("No session matches.")).to_be_visible()


def test_the_bar_turns_yellow_from_70_and_red_from_90_percent(page: Page, served: Paged, folded: str) -> None:
    page.goto(served.url)
    levels = page.evaluate("""async () => {
        const { level } = await import("/static/dom.js");
        return [0, 0.699, 0.7, 0.899, 0.9, 1.2].map(level);
    }""")
    assert levels == ["calm", "calm", "high", "high", "full", "full"]


def test_a_session_begun_on_the_page_has_the_title_and_the_policy_that_were_chosen(page: Page, served: Paged) -> None:
    page.goto(served.url)
    page.get_by_role("button", name="New session").click()
    dialog = page.get_by_role("dialog", name="New session")
    offered = dialog.get_by_label("Policy").get_by_role("option").all_inner_texts()
    assert set(offered[1:]) == set(POLICIES)
    dialog.get_by_label("Title").fill("From the page")
    dialog.get_by_label("Policy").select_option("economical")
    dialog.get_by_role("button", name="Begin").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("From the page")
    expect(page.locator(".title .about")).to_contain_text("economical")


def test_a_session_that_is_not_there_is_said_to_be_so(page: Page, served: Paged) -> None:
    page.goto(f"{served.url}/#/s/20200101-000000-00000000")
    expect(page.get_by_role("heading", level=1)).to_have_text("No such session")
    page.get_by_role("link", name="Sessions").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sessions")
