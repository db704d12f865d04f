"""The account of a recorded session, from a replay under a policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from foldline.replay import MeasuredSession, Replay, replay
from foldline.report.account import (
    AGAIN,
    Account,
    ExpectedRequest,
    ReportedFold,
    expected,
    hidden_by,
    refused_from,
    title_of,
)
from foldline.view.budget import cache_rule_of, limits_of

__all__ = ["account_of_replay"]


def account_of_replay(
    recording: MeasuredSession, *, file: str, policy: str, window: int, model: str | None = None, updated: str = ""
) -> Account:
    """Replay a session under a policy and report on it. `file` is where a person finds the hidden messages.

    The model (by default the recorded one) determines prices, cache rule and room for answers. O(requests x messages).
    Raises as `replay` does, and InvalidInput for a window without room.
    """
    session = recording.session
    priced_model = model or session.model
    # The room for the answer as `Context` leaves it: the replay and the limit in the chart are then the same.
    limits = limits_of(window, priced_model, None)
    rule = cache_rule_of(priced_model, session.dialect)
    sent = replay(recording, policy, window=window, max_output_tokens=window - limits.room_tokens, rule=rule)
    # Both bills hold the recorded replies. What a model would have answered to another request, nobody knows.
    answers = [sum(recording.history[place].tokens for place in reply) for reply in recording.replies]
    managed = expected(_managed(sent, answers), model=priced_model, rule=rule)
    unmanaged = expected(_unmanaged(sent, answers), model=priced_model, rule=rule)
    marks = [(mark, mark.stop - mark.start == 1, "") for turn in sent.turns for mark in turn.folds]
    messages = {seq: recording.codec.read(wire) for seq, wire in enumerate(session.messages)}
    tokens = {seq: seen.tokens for seq, seen in enumerate(recording.history)}
    hidden = hidden_by(marks, range(len(messages)), messages, tokens, lambda start, stop: _where(file, start, stop))
    # A replay takes no fold back, so one that hides nothing any more lies under a later one.
    visible = {one.mark for one in hidden}
    return Account(
        name=session.name,
        title=title_of(messages.values()),
        model=priced_model or "",
        updated=updated,
        origin="replayed",
        sent=sent,
        folds=tuple(
            ReportedFold(mark, turn.index + 1, "" if mark in visible else AGAIN)
            for turn in sent.turns
            for mark in turn.folds
        ),
        hidden=tuple(hidden),
        managed=managed,
        unmanaged=unmanaged,
        refused_from=refused_from(sent),
    )


def _managed(sent: Replay, answers: Sequence[int]) -> Iterator[ExpectedRequest]:
    for turn, answer in zip(sent.turns, answers, strict=True):
        # A refused request was not sent, so it costs nothing: the page shows their number beside the bill.
        if not turn.refused:
            yield ExpectedRequest(turn.tokens, turn.cached_tokens, answer)


def _unmanaged(sent: Replay, answers: Sequence[int]) -> Iterator[ExpectedRequest]:
    """The whole history at each request: each begins with the one before."""
    before = 0
    for turn, answer in zip(sent.turns, answers, strict=True):
        yield ExpectedRequest(turn.recorded_tokens, before, answer)
        before = turn.recorded_tokens


def _where(file: str, start: int, stop: int) -> str:
    return f"message {start} of {file}" if stop - start == 1 else f"messages {start} to {stop - 1} of {file}"
