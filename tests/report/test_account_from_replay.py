from __future__ import annotations

from functools import cache

import pytest
from tests.report.stored_sessions import example

from foldline.errors import InvalidInput
from foldline.recorded.sessions import Session
from foldline.replay import NONE, MeasuredSession
from foldline.report.account import AGAIN, Account
from foldline.report.account_from_replay import account_of_replay


@cache
def long_chat() -> tuple[MeasuredSession, Account]:
    recording = MeasuredSession(example("share-general"))
    return recording, account_of_replay(recording, file="chat.json", policy="balanced", window=16_000)


def test_without_a_policy_both_bills_are_one() -> None:
    account = account_of_replay(MeasuredSession(example("tau")), file="f", policy=NONE, window=16_000, model="gpt-5")
    assert account.managed == account.unmanaged
    assert (account.folds, account.hidden, account.hidden_messages) == ((), (), 0)


def test_the_first_request_that_would_not_have_fitted_is_named() -> None:
    recording = MeasuredSession(example("devai"))
    account = account_of_replay(recording, file="f", policy="balanced", window=16_000)
    number = account.refused_from
    assert number is not None
    turns, limit = account.sent.turns, account.sent.limit_tokens
    assert turns[number - 1].recorded_tokens > limit >= turns[number - 2].recorded_tokens
    assert account_of_replay(recording, file="f", policy="balanced", window=200_000).refused_from is None


def test_hidden_messages_have_their_first_line_and_place() -> None:
    recording, account = long_chat()
    hidden = [message for one in account.hidden for message in one.messages]
    assert hidden
    for message in hidden:
        text = recording.history[message.seq].text
        assert message.tokens == recording.history[message.seq].tokens
        if message.line not in {"(image)", "(no text)"} and "…" not in message.line and "REDACTED" not in message.line:
            assert message.line in text
    assert account.hidden[0].read.endswith(" of chat.json")
    spans = [(one.mark.start, one.mark.stop) for one in account.hidden if not one.shortened]
    assert account.hidden_messages == sum(stop - start for start, stop in spans)


def test_a_fold_that_a_later_one_covers_says_so() -> None:
    _, account = long_chat()
    held = {one.mark for one in account.hidden}
    assert {made.since for made in account.folds} == {"", AGAIN}
    assert {made.mark for made in account.folds if not made.since} == held
    assert sum(len(turn.folds) for turn in account.sent.turns) == len(account.folds)


def test_a_session_in_which_nobody_answered_has_no_request() -> None:
    session = Session(name="s", dialect="openai-chat", messages=({"role": "user", "content": "Hello?"},))
    account = account_of_replay(MeasuredSession(session), file="f", policy="balanced", window=16_000)
    assert (account.sent.requests, account.managed.calls, account.title) == (0, 0, "Hello?")


def test_a_window_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(InvalidInput):
        account_of_replay(MeasuredSession(example("tau")), file="f", policy="no such", window=16_000)
