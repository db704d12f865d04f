"""The contents of the page in a real browser: the list, and one session with reasons and originals."""

from __future__ import annotations

import re

import pytest
from tests.doors.http.page.page_server import (
    MARKUP,
    SUMMARY,
    TITLE,
    WINDOW_TOKENS,
    PageServer,
    details,
    everything,
    listed,
    opened,
    report,
)

from foldline import POLICIES

pytest.importorskip("playwright")
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.xdist_group("context page")  # one server, and one session that has folds, for all of these

# --- the list ---------------------------------------------------------------------------------------------------------


def test_the_list_shows_how_full_each_context_is_and_what_it_runs_on(
    page: Page, served: PageServer, folded: str
) -> None:
    row = served.fetch(f"/v1/sessions/{folded}")
    listed(page, served)
    item = page.get_by_role("list", name="Sessions").get_by_role("listitem").filter(has_text=TITLE)
    meter = item.get_by_role("meter", name="Context")
    share = row["tokens"] / WINDOW_TOKENS
    figures = re.compile(rf"^{row['tokens']:,} of {WINDOW_TOKENS:,} tokens, {int(share * 100)}\.\d %$")
    expect(meter).to_have_attribute("aria-valuetext", figures)
    expect(meter).to_have_attribute("data-level", "full" if share >= 0.9 else "high" if share >= 0.7 else "calm")
    expect(item).to_contain_text("fake-model · balanced")
    expect(item.locator(".turns")).to_have_text(re.compile(rf"^{row['turns']} turns$"))
    expect(item.locator(".folds")).to_have_text(re.compile(rf"^{row['folds']} folds?$"))


def test_the_filter_narrows_the_list_and_says_when_nothing_is_left(page: Page, served: PageServer, folded: str) -> None:
    served.create_session(title="Another matter")
    listed(page, served)
    items = page.get_by_role("list", name="Sessions").get_by_role("listitem")
    expect(items.filter(has_text="Another matter")).to_have_count(1)
    page.get_by_role("searchbox", name="Filter sessions").fill("towns")
    expect(items.filter(has_text="Another matter")).to_have_count(0)
    expect(items.filter(has_text=TITLE)).to_have_count(1)
    page.get_by_role("searchbox").fill("nothing is called so")
    expect(page.get_by_text("No session matches.")).to_be_visible()


def test_the_bar_turns_yellow_from_70_and_red_from_90_percent(page: Page, served: PageServer, folded: str) -> None:
    listed(page, served)
    levels = page.evaluate("""async () => {
        const { level } = await import("/static/dom.js");
        return [0, 0.699, 0.7, 0.899, 0.9, 1.2].map(level);
    }""")
    assert levels == ["calm", "calm", "high", "high", "full", "full"]


def test_a_session_begun_on_the_page_has_the_title_and_the_policy_that_were_chosen(
    page: Page, served: PageServer
) -> None:
    listed(page, served)
    page.get_by_role("button", name="New session").click()
    dialog = page.get_by_role("dialog", name="New session")
    offered = dialog.get_by_label("Policy").get_by_role("option").all_inner_texts()
    assert set(offered[1:]) == set(POLICIES)
    dialog.get_by_label("Title").fill("From the page")
    dialog.get_by_label("Policy").select_option("economical")
    dialog.get_by_role("button", name="Begin").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("From the page")
    expect(page.locator(".title .about")).to_contain_text("economical")


def test_a_session_that_is_not_there_is_said_to_be_so(page: Page, served: PageServer) -> None:
    page.goto(f"{served.url}/#/s/20200101-000000-00000000")
    expect(page.get_by_role("heading", level=1)).to_have_text("No such session")
    page.get_by_role("link", name="Sessions").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sessions")


# --- one session ------------------------------------------------------------------------------------------------------


def test_a_session_shows_its_window_by_parts_its_totals_and_its_turns(
    page: Page, served: PageServer, folded: str
) -> None:
    opened(page, served, folded)
    context = served.fetch(f"/v1/sessions/{folded}/context")
    session = served.fetch(f"/v1/sessions/{folded}")
    expect(page.locator(".sum")).to_contain_text(f"{context['tokens']:,} of {WINDOW_TOKENS:,} tokens")
    for name, tokens in context["parts"].items():
        if tokens:
            expect(page.locator(f".legend [data-part='{name}'] b")).to_have_text(f"{tokens:,}")
    expect(page.locator(".totals > div").filter(has_text="Prompt").locator("dd").first).to_have_text(
        f"{session['usage']['prompt_tokens']:,}"
    )
    turns = served.fetch(f"/v1/sessions/{folded}/turns")["turns"]
    bars = page.get_by_role("list", name="Turns").get_by_role("button")
    expect(bars).to_have_count(len(turns))
    folding = next(turn for turn in turns if turn["folds"])
    expect(bars.nth(folding["number"] - 1)).to_have_accessible_name(re.compile(rf"Turn {folding['number']} .* fold"))


def test_a_turn_leads_to_its_messages(page: Page, served: PageServer, folded: str) -> None:
    opened(page, served, folded)
    turn = served.fetch(f"/v1/sessions/{folded}/turns")["turns"][1]
    page.get_by_role("list", name="Turns").get_by_role("button").nth(1).press("Enter")
    first = page.get_by_role("list", name="Everything").locator(f"[data-start='{turn['start']}']")
    expect(first.get_by_role("button")).to_be_focused()
    expect(first).to_be_in_viewport()
    expect(page.locator(".all .in-turn")).to_have_count(turn["stop"] - turn["start"])


def test_what_the_model_sees_has_one_row_per_message_with_its_tokens(
    page: Page, served: PageServer, folded: str
) -> None:
    opened(page, served, folded)
    rows = served.fetch(f"/v1/sessions/{folded}/context")["rows"]
    found = page.locator(".pane.shown [data-start]")
    expect(found).to_have_count(len(rows))
    assert found.locator(".tokens").all_text_contents() == [f"{row['tokens']:,}" for row in rows]


def test_hidden_messages_are_shaded_and_tell_why_with_their_original(
    page: Page, served: PageServer, folded: str
) -> None:
    opened(page, served, folded)
    hidden = page.locator(".pane.all [data-state='hidden'][data-who='user']").filter(has_text="Report 1.")
    expect(hidden.locator(".mark")).to_have_text("hidden")
    plain = page.locator(".pane.all [data-state='shown']").first
    shades = [item.evaluate("item => getComputedStyle(item).backgroundColor") for item in (hidden, plain)]
    assert shades[0] != shades[1]
    hidden.get_by_role("button").click()
    aside = details(page)
    expect(aside.get_by_role("heading", level=2)).to_be_focused()
    expect(aside.locator(".why").first).to_contain_text("summarize")
    expect(aside.locator(".why").first).to_contain_text(
        re.compile(r"[\d,]+ → \d+ tokens · in turn \d+ · \d+ \w+ \d{4}")
    )
    expect(aside).to_contain_text(SUMMARY)
    expect(aside.locator("pre").last).to_have_text(report(1))  # whole, though the list has its beginning only
    page.keyboard.press("Escape")
    expect(aside).to_be_hidden()
    expect(hidden.get_by_role("button")).to_be_focused()


def test_a_shortened_result_is_half_shaded_and_its_original_is_whole(
    page: Page, served: PageServer, folded: str
) -> None:
    opened(page, served, folded)
    item = page.locator(".pane.all [data-state='shortened']").last
    expect(item.locator(".mark")).to_have_text("shortened")
    assert "gradient" in item.evaluate("item => getComputedStyle(item).backgroundImage")
    item.get_by_role("button").click()
    seq = item.get_attribute("data-start")
    whole = served.fetch(f"/v1/sessions/{folded}/history/{seq}")
    expect(details(page).locator("pre").last).to_have_text(whole["results"][0]["text"])
    expect(details(page).locator(".why")).to_contain_text(whole["folds"][0]["reason"])


def test_a_fold_is_joined_to_what_it_stands_for(page: Page, served: PageServer, folded: str) -> None:
    opened(page, served, folded)
    page.get_by_role("button", name="Next fold").click()
    row = page.locator(".pane.shown [data-fold]").first
    expect(row.get_by_role("button")).to_be_focused()
    fold = row.get_attribute("data-fold")
    expect(page.locator(f".ribbons .band.on[data-fold='{fold}']")).to_have_count(1)
    linked = page.locator(".pane.all .linked")
    start, stop = int(row.get_attribute("data-start") or 0), int(row.get_attribute("data-stop") or 0)
    expect(linked).to_have_count(stop - start)
    expect(linked.first).to_be_in_viewport()
    row.get_by_role("button").click()
    expect(details(page).get_by_role("heading", level=2)).to_have_text(f"Messages {start}–{stop - 1}, folded")
    details(page).get_by_role("button", name="Show messages").click()
    expect(linked.first.get_by_role("button")).to_be_focused()


def test_markup_in_a_session_is_text(page: Page, served: PageServer, folded: str) -> None:
    opened(page, served, folded)
    expect(page.get_by_role("heading", level=1)).to_have_text(TITLE)
    item = page.locator(".pane.all [data-start]").filter(has_text="Here is markup").first
    expect(item.locator(".text")).to_contain_text(MARKUP)
    item.get_by_role("button").click()
    expect(details(page).locator("pre").last).to_contain_text(MARKUP)
    assert page.locator("main :is(img, script, b:has-text('bold'))").count() == 0
    assert page.title() == f"{TITLE} · Foldline"


def test_a_long_session_is_read_a_hundred_messages_at_a_time_in_both_directions(page: Page, served: PageServer) -> None:
    session = served.long()
    opened(page, served, session)
    items = everything(page)
    expect(items).to_have_count(100)
    expect(items.first).to_have_attribute("data-start", "24")
    page.locator(".pane.all .list").evaluate("list => { list.scrollTop = 0; }")
    expect(items).to_have_count(124)
    expect(items.first).to_have_attribute("data-start", "0")
    expect(items.nth(24)).to_be_in_viewport()  # what was seen stays where it is
