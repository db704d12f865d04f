"""The account of a recorded session: what a policy would have sent of it, and what no management would have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from foldline.replay import Recording, Replay, replay
from foldline.report.account import AGAIN, Account, Made, hidden_by, title_of
from foldline.report.spend import Due, expected
from foldline.view.budget import cache_rule_of, limits_of

__all__ = ["recorded_account", "refused_from"]


def recorded_account(
    recording: Recording, *, file: str, policy: str, window: int, model: str | None = None, updated: str = ""
) -> Account:
    """Replay a session under a policy and tell of it. `file` is where a person reads what is hidden.

    The model (default: the one that is recorded) gives prices, cache rule and the room for answers. O(requests x
    messages). Raises what `replay` raises, and InvalidInput for a window that leaves no room.
    """
    session = recording.session
    named = model or session.model
    limits = limits_of(window, named, None)
    rule = cache_rule_of(named, session.dialect)
    sent = replay(recording, policy, window=window, max_output_tokens=window - limits.room_tokens, rule=rule)
    answers = [sum(recording.history[place].tokens for place in reply) for reply in recording.replies]
    managed = expected(_managed(sent, answers), model=named, rule=rule)
    unmanaged = expected(_unmanaged(sent, answers), model=named, rule=rule)
    marks = [(mark, mark.stop - mark.start == 1, "") for turn in sent.turns for mark in turn.folds]
    messages = {seq: recording.codec.read(wire) for seq, wire in enumerate(session.messages)}
    tokens = {seq: seen.tokens for seq, seen in enumerate(recording.history)}
    hidden = hidden_by(marks, range(len(messages)), messages, tokens, lambda start, stop: _where(file, start, stop))
    held = {one.mark for one in hidden}
    return Account(
        name=session.name,
        title=title_of(messages.values()),
        model=named or "",
        updated=updated,
        origin="replayed",
        sent=sent,
        folds=tuple(
            Made(mark, turn.index + 1, "" if mark in held else AGAIN) for turn in sent.turns for mark in turn.folds
        ),
        hidden=tuple(hidden),
        managed=managed,
        unmanaged=unmanaged,
        refused_from=refused_from(sent),
    )


def refused_from(sent: Replay) -> int | None:
    """The first request (from 1) that would have been larger than the limit without management. O(requests)."""
    return next((turn.index + 1 for turn in sent.turns if turn.recorded_tokens > sent.limit_tokens), None)


def _managed(sent: Replay, answers: Sequence[int]) -> Iterator[Due]:
    for turn, answer in zip(sent.turns, answers, strict=True):
        if not turn.refused:
            yield Due(turn.tokens, turn.cached_tokens, answer)


def _unmanaged(sent: Replay, answers: Sequence[int]) -> Iterator[Due]:
    """Everything that was recorded so far, at each request: the one before is always its beginning."""
    before = 0
    for turn, answer in zip(sent.turns, answers, strict=True):
        yield Due(turn.recorded_tokens, before, answer)
        before = turn.recorded_tokens


def _where(file: str, start: int, stop: int) -> str:
    return f"message {start} of {file}" if stop - start == 1 else f"messages {start} to {stop - 1} of {file}"
