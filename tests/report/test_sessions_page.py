from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest
from tests.report.stored_sessions import example
from tests.report.test_replay_page import HOSTILE, Outline

from foldline.replay import Mark, MeasuredSession
from foldline.report.account import Account, Hidden, HiddenMessage, ReportedFold
from foldline.report.account_from_replay import account_of_replay
from foldline.report.chart import chart
from foldline.report.sessions_page import DETAILED, SkippedSession, sessions_page

SONNET = "claude-sonnet-4-5"
TURNED = "\u202egnp.exe\u202c \u2066x"


@cache
def account() -> Account:
    return account_of_replay(
        MeasuredSession(example("devai")), file="f.json", policy="balanced", window=16_000, model=SONNET
    )


def named(number: int, **more: object) -> Account:
    return replace(account(), name=f"session-{number:04}", updated=f"2026-11-27T{number % 24:02}:00:00Z", **more)  # type: ignore[arg-type]


def text_of(page: str) -> str:
    return " ".join(" ".join(words for _, words in Outline(page).texts).split())


def test_the_page_is_self_contained() -> None:
    page = sessions_page([account()])
    outline = Outline(page)
    assert {tag for tag, _ in outline.elements} & {"script", "link", "img", "iframe", "object", "use", "image"} == set()
    links = [given["href"] for given in outline.named("a")]
    assert all(link.startswith("#") for link in links)
    attributes = [name for _, given in outline.elements for name in given]
    assert not any(name.startswith("on") or name in {"src", "xlink:href"} for name in attributes)
    assert re.search(r"https?://|url\(", page) is None
    policy = [given["content"] for given in outline.named("meta") if given.get("http-equiv")]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_identifiers_are_unique_and_links_lead_somewhere() -> None:
    outline = Outline(sessions_page([named(1), named(2)]))
    identifiers = [given["id"] for _, given in outline.elements if "id" in given]
    assert len(identifiers) == len(set(identifiers))
    links = {given["href"] for given in outline.named("a")}
    assert links == {"#s0", "#s1"}
    assert links <= {f"#{identifier}" for identifier in identifiers}


def test_both_bills_stand_there_and_the_estimate_says_that_it_is_one() -> None:
    words = text_of(sessions_page([account()]))
    assert account().managed.usd is not None
    assert f"with Foldline ~${account().managed.usd:,.3f} replayed" in words
    assert f"without ~${account().unmanaged.usd:,.3f} estimate" in words
    assert "Without is an estimate" in words
    assert "as if every history had fitted the window" in words


def test_a_history_that_would_not_have_fitted_says_from_where_on() -> None:
    number, requests = account().refused_from, account().sent.requests
    assert number is not None
    words = text_of(sessions_page([account()]))
    assert f"refused from request {number} of {requests} on" in words
    assert "sessions that would not have fitted without 1 of 1" in words
    assert "all requests fit" in text_of(sessions_page([replace(account(), refused_from=None)]))


def test_folds_are_described_with_reason_and_sizes() -> None:
    words = text_of(sessions_page([account()]))
    for made in account().folds:
        assert made.mark.reason in words
        assert f"{made.mark.before_tokens:,} → {made.mark.tokens:,}" in words
    assert "a long text cut ( truncate )" in words
    own = ReportedFold(Mark(1, 2, "my_own", "because", 9, 5), 1, "")
    assert "my_own : because" in text_of(sessions_page([replace(account(), folds=(own,))]))


def test_hidden_messages_have_their_first_line_and_a_command() -> None:
    words = text_of(sessions_page([account()]))
    for one in account().hidden:
        assert one.read in words
        for message in one.messages:
            # HTML has no control characters: the page shows the replacement character for each.
            assert " ".join(message.line.replace("\x1b", "\ufffd").split()) in words


def test_text_of_a_session_cannot_become_markup_nor_turn_the_page_around() -> None:
    bad = HOSTILE + TURNED
    mark = Mark(0, 1, bad, bad, 10, 5)
    turns = (replace(account().sent.turns[0], folds=(mark,)),)
    hidden = Hidden(
        mark=mark, count=3, tokens=9, read=bad, archive=bad, shortened=False, messages=(HiddenMessage(0, bad, 9, bad),)
    )
    hostile = replace(
        account(),
        name=bad,
        title=bad,
        model=bad,
        updated=bad,
        sent=replace(account().sent, policy=bad, turns=turns),
        folds=(ReportedFold(mark, 1, ""),),
        hidden=(hidden,),
        read_one=bad,
        more=(bad,),
    )
    page = sessions_page([hostile, named(1)], skipped=[SkippedSession(bad, bad)], created=bad)
    page.encode()
    assert "<script" not in page
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page.replace("\n", ""))
    assert {tag for tag, _ in Outline(page).elements}.isdisjoint({"script", "b-x"})


def test_many_sessions_stay_one_page_of_bounded_size() -> None:
    accounts = [named(number) for number in range(500)]
    page = sessions_page(accounts)
    assert len(page) < 3_000_000
    assert page.count("<section aria-labelledby") <= DETAILED
    assert "The newest" in text_of(page)
    assert "All sessions (500), newest first" in page
    assert all(f"session-{number:04}" in page for number in range(500))


def test_sessions_omitted_from_the_table_are_counted() -> None:
    page = sessions_page([replace(named(number), folds=(), hidden=()) for number in range(1_003)])
    assert "3 older sessions in the sums only." in page
    assert "1,003 sessions" in page


def test_a_session_that_cannot_be_read_is_named_with_the_reason() -> None:
    page = sessions_page([account()], skipped=[SkippedSession("20261127-bad", "line 3: no JSON")])
    assert "1 session not on this page" in page
    assert "20261127-bad : line 3: no JSON" in text_of(page)


def test_sessions_without_a_price_are_not_in_the_sum_of_money() -> None:
    unpriced = account_of_replay(MeasuredSession(example("tau")), file="f", policy="balanced", window=16_000)
    assert unpriced.managed.usd is None
    assert "Not in these sums, because the catalogue has no price: 1 session." in sessions_page([account(), unpriced])
    assert "tokens at its full price" in sessions_page([unpriced])


def test_a_dearer_bill_than_without_is_marked() -> None:
    dear = replace(account(), managed=replace(account().managed, usd=9.0), unmanaged=account().unmanaged)
    assert re.search(r'<td data-is="ratio" class="bad">\d\d\.\d\d</td>', sessions_page([dear, account()]))


def test_nothing_to_tell_is_a_page_too() -> None:
    assert "No sessions." in sessions_page([])


@pytest.mark.parametrize("requests", [1, 5_000])
def test_a_chart_of_any_length_stays_small_and_keeps_its_peaks(requests: int) -> None:
    turn = replace(account().sent.turns[0], recorded_tokens=900, tokens=900)
    fold = Mark(0, 1, "mask", "old", 10, 5)
    turns = tuple(
        replace(turn, index=number, tokens=5_000 if number == 3_210 else 900, folds=(fold,))
        for number in range(requests)
    )
    drawn = chart(replace(account().sent, turns=turns, limit_tokens=6_000), identifier="x")
    Outline(drawn)
    assert len(drawn) < 200_000
    if requests > 1:
        (line,) = re.findall(r'<polyline class="sent" points="([^"]*)"', drawn)
        heights = [float(point.split(",")[1]) for point in line.split()]
        assert min(heights) < 50
        assert sorted(heights)[1] > 100
        assert "Before requests " in drawn
