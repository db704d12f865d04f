"""Actions on the page: pins, folds and turns, shown live on all pages; and who may act."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.doors.http.page.page_server import (
    SUMMARY,
    TITLE,
    TOKEN,
    PageServer,
    details,
    everything,
    listed,
    opened,
    report,
    say,
    shown,
    size,
)

pytest.importorskip("playwright")
from playwright.sync_api import Browser, Page, expect

pytestmark = pytest.mark.xdist_group("context page")  # one server, and one session that has folds, for all of these


def test_a_message_is_pinned_and_unpinned(page: Page, served: PageServer) -> None:
    session = served.create_session(title="Pins")
    served.say(session, "Keep this")
    opened(page, served, session)
    item = everything(page).filter(has_text="Keep this").first
    item.get_by_role("button").click()
    details(page).get_by_role("button", name="Pin", exact=True).click()
    expect(details(page).get_by_role("button", name="Unpin")).to_be_focused()
    expect(item.locator(".mark")).to_have_text("pinned")
    details(page).get_by_role("button", name="Unpin").click()
    expect(item.locator(".mark")).to_have_count(0)


def test_messages_are_folded_from_one_to_another(page: Page, served: PageServer) -> None:
    session = served.create_session(title="Chosen")
    for number in range(4):
        served.say(session, report(number))
    opened(page, served, session)
    everything(page).filter(has_text="Report 1.").first.get_by_role("button").click()
    details(page).get_by_role("spinbutton", name="Fold from here to message").fill("3")
    details(page).get_by_role("button", name="Fold from here to", exact=True).click()
    expect(shown(page).filter(has_text=SUMMARY.splitlines()[1])).to_have_count(1)
    expect(shown(page).filter(has_text="Report 1.")).to_have_count(0)
    expect(shown(page).filter(has_text="Report 2.").first).to_be_visible()
    page.get_by_role("button", name="Undo", exact=True).click()
    expect(shown(page).filter(has_text="Report 1.").first).to_be_visible()


def test_going_back_to_a_message_shows_the_branch_that_was_left(page: Page, served: PageServer) -> None:
    session = served.create_session(title="Branches")
    for words in ("First this", "Then that", "At last the other"):
        served.say(session, words)
    opened(page, served, session)
    branches = page.get_by_role("region", name="Branches")
    expect(branches).to_have_count(0)
    everything(page).filter(has_text="Then that").first.get_by_role("button").click()
    details(page).get_by_role("button", name="Go back to before this").click()
    expect(branches.get_by_role("listitem")).to_have_count(2)
    expect(branches.get_by_role("listitem").filter(has_text="left")).to_contain_text("2–5")
    expect(shown(page).filter(has_text="Then that")).to_have_count(0)
    branches.get_by_role("button", name="2–5").click()
    expect(everything(page).filter(has_text="Then that").first).to_be_visible()


def test_compacting_shows_the_figures_before_and_after_and_undo_takes_it_back(page: Page, served: PageServer) -> None:
    session = served.create_session(title="Compacted")
    for number in range(3):
        served.say(session, report(number))
    before = size(served, session)
    opened(page, served, session)
    page.get_by_role("button", name="Compact…").click()
    dialog = page.get_by_role("dialog", name="Compact")
    dialog.get_by_role("textbox").fill("the towns")
    dialog.get_by_role("button", name="Compact", exact=True).click()
    cells = dialog.get_by_role("cell")
    expect(cells.first).to_have_text(f"{before:,}")
    after = size(served, session)
    assert after < before
    expect(cells.nth(2)).to_have_text(f"{after:,}")
    expect(dialog.locator("pre")).to_have_text(SUMMARY)
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Compact…")).to_be_focused()
    expect(shown(page).filter(has_text="The user reports of towns")).to_have_count(1)
    assert "the towns" in served.fetch(f"/v1/sessions/{session}/folds")["folds"][-1]["reason"]
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#announcer")).to_have_text("1 fold taken back")
    expect(page.locator(".pane.all [data-state='hidden']")).to_have_count(0)


def test_a_compaction_that_is_refused_says_why(page: Page, served: PageServer) -> None:
    session = served.create_session(title="Empty")
    opened(page, served, session)
    page.get_by_role("button", name="Compact…").click()
    dialog = page.get_by_role("dialog", name="Compact")
    dialog.get_by_role("button", name="Compact", exact=True).click()
    expect(dialog.get_by_role("alert")).to_be_visible()
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()


def test_a_turn_said_on_the_page_is_answered_piece_by_piece(page: Page, served: PageServer) -> None:
    session = served.create_session(title="Said")
    opened(page, served, session)
    served.gate("Please wait")
    say(page, "Please wait")
    steps = page.get_by_role("list", name="The turn as it happens").get_by_role("listitem")
    expect(steps.filter(has_text="assistant").locator(".words")).to_have_text("First")
    expect(page.locator(".state")).to_have_text("running")
    expect(page.get_by_role("button", name="Cancel the turn")).to_be_visible()
    served.open_gate("Please wait")
    expect(steps.filter(has_text="assistant").locator(".words")).to_have_text(
        "First a piece, then <i>the rest</i> of the answer."
    )
    expect(page.locator("#announcer")).to_have_text(re.compile("^Answer: First a piece"))
    expect(page.locator(".state")).to_have_text("idle")
    expect(page.get_by_role("button", name="Cancel the turn")).to_be_hidden()
    expect(everything(page)).to_have_count(2)
    expect(page.get_by_role("list", name="Turns").get_by_role("button")).to_have_count(1)


def test_calls_of_tools_are_lines_of_the_turn(page: Page, served: PageServer) -> None:
    session = served.create_session(title="Tools")
    opened(page, served, session)
    say(page, "What is on page 3 of the ledger?")
    steps = page.get_by_role("list", name="The turn as it happens").get_by_role("listitem")
    expect(steps.filter(has_text="calls")).to_contain_text("ledger.txt")
    expect(steps.filter(has_text="result")).to_contain_text(re.compile(r"read_file: [\d,]+ tokens"))
    expect(steps.last).to_contain_text("The ledger has many lines.")


def test_a_turn_is_cancelled_from_the_page(page: Page, served: PageServer) -> None:
    session = served.create_session(title="Cancelled")
    opened(page, served, session)
    served.gate("Do not wait")
    say(page, "Do not wait")
    page.get_by_role("button", name="Cancel the turn").click()
    steps = page.get_by_role("list", name="The turn as it happens").get_by_role("listitem")
    expect(steps.last).to_contain_text("cancelled")
    expect(page.locator(".state")).to_have_text("idle")


def test_what_another_client_says_is_seen_live_with_its_folds(page: Page, served: PageServer) -> None:
    session = served.create_session(title="Together")
    for number in range(4):
        served.say(session, report(number))
    opened(page, served, session)
    expect(page.locator(".pane.shown [data-fold]")).to_have_count(0)
    served.say(session, report(4))
    steps = page.get_by_role("list", name="The turn as it happens").get_by_role("listitem")
    expect(steps.filter(has_text="folded")).to_contain_text("summarize")
    expect(steps.last).to_contain_text("Noted: Report 4.")
    expect(page.locator(".pane.shown [data-fold]")).to_have_count(1)
    expect(everything(page)).to_have_count(10)
    expect(everything(page).last).to_be_in_viewport()
    expect(shown(page).last).to_be_in_viewport()


def test_the_list_marks_a_session_that_is_at_work(page: Page, served: PageServer) -> None:
    session = served.create_session(title="At work")
    listed(page, served)
    item = page.get_by_role("list", name="Sessions").get_by_role("listitem").filter(has_text="At work")
    expect(item.locator(".running")).to_be_hidden()
    served.gate("All wait")
    with ThreadPoolExecutor(1) as beside:
        turn = beside.submit(served.say, session, "All wait")
        expect(item.locator(".running")).to_be_visible()
        served.open_gate("All wait")
        assert turn.result()["reason"] == "done"
    expect(item.locator(".running")).to_be_hidden()
    expect(item.locator(".turns")).to_have_text("1 turn")


def test_a_lost_connection_is_said_and_comes_back(page: Page, served: PageServer, folded: str) -> None:
    opened(page, served, folded)
    events = re.compile("/events$")
    page.route(events, lambda route: route.abort())
    page.evaluate("location.hash = '#/'")
    expect(page.locator("#connection")).to_have_text(re.compile("^disconnected"))
    page.unroute(events)
    expect(page.locator("#connection")).to_have_text("live")


def test_a_token_is_asked_for_and_kept_for_this_tab_only(browser: Browser, served: PageServer, folded: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(served.url)
    dialog = page.get_by_role("dialog", name="This server asks for a token")
    expect(dialog.get_by_label("Token")).to_be_focused()
    dialog.get_by_label("Token").fill("a wrong one")
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("alert")).to_have_text("The server did not take this token.")
    dialog.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.get_by_text(TITLE)).to_be_visible()
    expect(page.locator("#connection")).to_have_text("live")
    page.reload()
    expect(page.get_by_text(TITLE)).to_be_visible()
    assert page.evaluate("Object.values(localStorage).join() + document.cookie + location.href") == f"{served.url}/"
    other = context.new_page()
    other.goto(served.url)
    expect(other.get_by_role("dialog", name="This server asks for a token")).to_be_visible()
    context.close()
