"""The state of the page: correct totals, bounded memory, and changes at a steady pace."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.doors.proxy.served_requests import MARKUP, day, fold, served_request

from foldline.doors.proxy.served_request import ServedRequest
from foldline.doors.proxy.status import (
    MAX_CONVERSATIONS,
    MAX_FOLDS,
    MAX_FOLLOWERS,
    MAX_REQUESTS,
    ProxyStatus,
)
from foldline.view.standing_rules import StandingRule
from foldline.view.tool_sizes import ToolSize
from foldline.view.transcript import Usage


def standing_of(*several: ServedRequest) -> ProxyStatus:
    standing = ProxyStatus()
    for one in several:
        standing(one)
    return standing


def totals(*several: ServedRequest) -> dict[str, Any]:
    found: dict[str, Any] = standing_of(*several).state()["totals"]
    return found


def conversations(standing: ProxyStatus) -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in standing.state()["conversations"]}


# --- totals ----------------------------------------------------------------------------------------------------------


def test_tokens_count_where_a_model_took_the_request() -> None:
    found = totals(
        served_request(1, given_tokens=9_000, sent_tokens=2_000, outcome="folded"),
        served_request(2, given_tokens=500, sent_tokens=500),
    )
    assert (found["given_tokens"], found["sent_tokens"], found["saved_tokens"]) == (9_500, 2_500, 7_000)


@pytest.mark.parametrize(
    "given",
    [
        {"status": 429, "failure": "rate"},
        {"status": 400, "outcome": "refused"},
        {"status": 502, "outcome": "cut"},
        {"status": 0, "outcome": "left"},
        {"path": "/v1/messages/count_tokens", "dialect": "anthropic"},
        {"path": "/v1/models", "dialect": ""},
    ],
)
def test_what_no_model_took_saves_nothing(given: dict[str, Any]) -> None:
    found = totals(served_request(given_tokens=9_000, sent_tokens=2_000, **given))
    assert found["requests"] == 1
    assert (found["given_tokens"], found["sent_tokens"], found["saved_tokens"], found["saved_usd"]) == (0, 0, 0, None)


def test_a_stream_that_broke_off_was_paid_for() -> None:
    assert totals(served_request(outcome="cut", status=200, given_tokens=900, sent_tokens=300))["saved_tokens"] == 600


def test_each_kind_of_trouble_is_counted_once() -> None:
    found = totals(*day())
    names = ("refused", "faults", "cut", "failed", "recoveries", "truncations")
    assert {name: found[name] for name in names} == dict(zip(names, (1, 1, 1, 1, 1, 1), strict=True))
    assert found["requests"] == len(day())
    assert found["folds"] == sum(len(one.new_folds) for one in day())


# --- money -----------------------------------------------------------------------------------------------------------


def test_money_is_told_only_where_the_catalogue_has_prices() -> None:
    assert totals(served_request(model="no-such-model", given_tokens=9_000, sent_tokens=0))["saved_usd"] is None
    assert totals(served_request(model="gpt-5", given_tokens=1_001_000, sent_tokens=1_000))[
        "saved_usd"
    ] == pytest.approx(1.25)


def test_what_a_price_step_would_have_added_is_saved_too() -> None:
    # All of gpt-5.5's 300,000 tokens at twice $5, less 100,000 at $5.
    assert totals(served_request(model="gpt-5.5", given_tokens=300_000, sent_tokens=100_000))[
        "saved_usd"
    ] == pytest.approx(2.5)


def test_money_is_counted_at_the_price_of_cached_input_once_the_upstream_caches_the_conversation() -> None:
    standing = standing_of(
        served_request(1, given_tokens=1_001_000, sent_tokens=1_000, cached_tokens=900),
        served_request(2, given_tokens=1_001_000, sent_tokens=1_000, cached_tokens=0),
        served_request(3, given_tokens=1_001_000, sent_tokens=1_000, session="another"),
    )
    found = conversations(standing)
    assert found["4f1c9a20b7d3e865"]["saved_usd"] == pytest.approx(0.25)  # both a tenth of $1.25
    assert found["another"]["saved_usd"] == pytest.approx(1.25)


def test_what_summaries_cost_is_taken_from_what_was_saved() -> None:
    wrote = (Usage(input_tokens=100_000, cached_tokens=90_000, output_tokens=1_000),)
    saving = {"given_tokens": 1_001_000, "sent_tokens": 1_000}
    # 10,000 at $1.25, 90,000 at a tenth of it, 1,000 at $10 a million.
    cost = 0.0125 + 0.01125 + 0.01
    found = totals(served_request(**saving, summaries=wrote, summary_model="gpt-5"))
    assert (found["saved_usd"], found["summary_tokens"]) == (pytest.approx(1.25 - cost), 101_000)
    assert totals(served_request(**saving, summaries=wrote, summary_model="unheard-of"))["saved_usd"] == pytest.approx(
        1.25 - cost
    )
    assert totals(served_request(status=500, summaries=wrote, summary_model="gpt-5"))["saved_usd"] == pytest.approx(
        -cost
    )


# --- conversations ---------------------------------------------------------------------------------------------------


def test_a_conversation_stands_as_its_last_request_left_it() -> None:
    standing = standing_of(
        served_request(1, given_tokens=1_000, sent_tokens=1_000, title="First"),
        served_request(2, given_tokens=3_000, sent_tokens=900, folds=2, outcome="folded", title=""),
        served_request(
            3,
            status=429,
            given_tokens=4_000,
            sent_tokens=1_900,
            folds=2,
            warning="the store cannot be reached",
            title="",
        ),
    )
    (one,) = standing.state()["conversations"]
    assert one["title"] == "First"
    assert (one["requests"], one["given_tokens"], one["sent_tokens"]) == (3, 4_000, 1_900)
    assert (one["tokens"], one["folds"], one["window_tokens"]) == (900, 2, 128_000)
    assert one["warning"] == "the store cannot be reached"
    assert one["at"] == "2026-11-28T09:00:03.000+00:00"


def test_fold_lines_say_why_the_newest_first() -> None:
    folds = tuple(fold(n, n + 1, 400, 20, "mask", f"reason {n}") for n in range(MAX_FOLDS + 5))
    standing = standing_of(served_request(new_folds=folds[:3]), served_request(2, new_folds=folds[3:]))
    found: Any = standing.details("4f1c9a20b7d3e865")
    lines = found["folds"]
    assert [line["reason"] for line in lines] == [f"reason {n}" for n in reversed(range(5, MAX_FOLDS + 5))]
    assert (lines[0]["reducer"], lines[0]["before_tokens"], lines[0]["tokens"]) == ("mask", 400, 20)
    assert standing.details("nobody") is None


def test_rules_and_tools_are_listed_cut_and_without_secrets() -> None:
    rules = (
        StandingRule("Never push. " + "x" * 5_000, "AGENTS.md", 0, 900),
        StandingRule("Always use the key sk-proj-0123456789abcdef0123456789abcdef.", "user", 4, 12),
    )
    sizes = (ToolSize("mcp__docs__search", 300, "docs"), ToolSize("mcp__docs__open", 500, "docs"), ToolSize("bash", 90))
    standing = standing_of(served_request(rules=rules, tool_sizes=sizes), served_request(2))
    found: Any = standing.details("4f1c9a20b7d3e865")
    assert [(rule["source"], rule["tokens"]) for rule in found["rules"]] == [("user", 12), ("AGENTS.md", 900)]
    assert "0123456789abcdef" not in str(found)
    assert max(len(rule["text"]) for rule in found["rules"]) <= 300
    assert [tool["name"] for tool in found["tools"]] == ["mcp__docs__open", "mcp__docs__search", "bash"]
    assert found["servers"] == [
        {"server": "docs", "tools": 2, "tokens": 800},
        {"server": "", "tools": 1, "tokens": 90},
    ]
    (one,) = standing.state()["conversations"]
    assert (one["rules"], one["rules_tokens"], one["tools"], one["tools_tokens"]) == (2, 912, 3, 890)


def test_what_going_on_costs_is_listed_with_the_cache_warm_and_expired() -> None:
    known = served_request(model="claude-sonnet-4-5", sent_tokens=100_000, session="known")
    unknown = served_request(2, model="somebody-own", sent_tokens=100_000, session="unknown")
    two, one = standing_of(known, unknown).state()["conversations"]
    assert one["resume_usd"] == pytest.approx(0.375)  # written to the cache anew: 1.25 of 3 dollars a million
    assert one["resume_warm_usd"] == pytest.approx(0.03)
    assert one["cache_seconds"] == 300
    assert (two["resume_usd"], two["resume_warm_usd"]) == (None, None)


def test_memory_is_bounded_and_the_longest_unseen_goes_first() -> None:
    standing = standing_of(*(served_request(n, session=f"s{n}") for n in range(MAX_CONVERSATIONS)))
    standing(served_request(MAX_CONVERSATIONS, session="s0"))  # seen again
    standing(served_request(MAX_CONVERSATIONS + 1, session="new"))
    state = standing.state()
    ids = [one["id"] for one in state["conversations"]]
    assert len(ids) == standing.conversations == MAX_CONVERSATIONS
    assert ids[:2] == ["new", "s0"]
    assert "s1" not in ids
    assert len(state["requests"]) == MAX_REQUESTS
    assert [one["number"] for one in state["requests"][:2]] == [MAX_CONVERSATIONS + 1, MAX_CONVERSATIONS]


def test_long_texts_of_clients_are_cut() -> None:
    state = standing_of(served_request(title="t" * 10_000, model="m" * 10_000, path="/" + "p" * 10_000)).state()
    assert len(json.dumps(state)) < 5_000


def test_texts_are_kept_as_they_are() -> None:
    (one,) = standing_of(served_request(title=MARKUP)).state()["conversations"]
    assert one["title"] == MARKUP


# --- following -------------------------------------------------------------------------------------------------------


def followed(work: Callable[[ProxyStatus], None], **given: Any) -> list[tuple[str, Any]]:
    """What a page hears that follows after `work`, until the streams are stopped: when it has heard of a change."""

    async def run() -> list[tuple[str, Any]]:
        standing = ProxyStatus(**given)
        standing(served_request(1))
        stream = standing.follow()
        assert stream is not None
        work(standing)
        text, stopped = b"", False
        while (piece := await stream.outbox.next()) is not None:
            text += piece
            if b"event: change" in text and not stopped:
                stopped = True
                standing.stop()
        events = [one.split(b"\ndata: ") for one in text.split(b"\n\n") if one.startswith(b"event: ")]
        return [(name.removeprefix(b"event: ").decode(), json.loads(data)) for name, data in events]

    return asyncio.run(asyncio.wait_for(run(), 120))


def test_a_page_hears_the_state_first_and_then_what_changes() -> None:
    def work(standing: ProxyStatus) -> None:
        standing(served_request(2, title="Second", new_folds=(fold(0, 4, 900, 30, "mask", "old"),)))
        standing(served_request(3, session="other"))

    (first, state), (second, change), *_, (last, _) = followed(work, pace_seconds=0.001)
    assert (first, second, last) == ("state", "change", "stopping")
    assert [one["number"] for one in state["requests"]] == [1]
    assert [one["number"] for one in change["requests"]] == [3, 2]
    assert {one["id"] for one in change["conversations"]} == {"4f1c9a20b7d3e865", "other"}
    assert change["totals"]["requests"] == 3


def test_a_thousand_requests_are_one_piece_of_news() -> None:
    def work(standing: ProxyStatus) -> None:
        for number in range(2, 1_002):
            standing(served_request(number))

    news = [data for name, data in followed(work) if name == "change"]
    assert len(news) == 1
    assert len(news[0]["conversations"]) == 1
    assert [one["number"] for one in news[0]["requests"]] == list(range(1_001, 1_001 - MAX_REQUESTS, -1))
    assert news[0]["totals"]["requests"] == 1_001


def test_only_so_many_may_follow_and_nothing_is_kept_for_nobody() -> None:
    standing = ProxyStatus()
    streams = [standing.follow() for _ in range(MAX_FOLLOWERS)]
    assert None not in streams
    assert standing.follow() is None
    assert standing.following == MAX_FOLLOWERS
    standing.stop()
    late = ProxyStatus()
    late(served_request())  # outside of any event loop: nobody follows, so nothing is to be told


def test_who_follows_after_the_stop_is_sent_away_at_once() -> None:
    async def run() -> None:
        standing = ProxyStatus()
        standing.stop()
        stream = standing.follow()
        assert stream is not None
        assert b"event: state" in (await stream.outbox.next() or b"")
        assert await stream.outbox.next() is None

    asyncio.run(asyncio.wait_for(run(), 120))


def test_times_are_told_in_utc() -> None:
    (one,) = standing_of(served_request(at=datetime(2026, 11, 28, 10, 0, tzinfo=UTC).astimezone())).state()["requests"]
    assert one["at"] == "2026-11-28T10:00:00.000+00:00"
