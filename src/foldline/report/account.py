"""The account of one session: its requests, its folds and what they hide, its bill; and that of a replay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from foldline.engine.lookup import full_text
from foldline.messages import Image, Message
from foldline.replay import Mark, MeasuredSession, Replay, replay
from foldline.report.spend import ExpectedRequest, Spend, expected
from foldline.text.redaction import redact
from foldline.view.budget import cache_rule_of, limits_of

__all__ = [
    "AGAIN",
    "BACK",
    "Account",
    "Hidden",
    "HiddenMessage",
    "ReportedFold",
    "account_of_replay",
    "author",
    "first_line",
    "hidden_by",
    "refused_from",
    "title_of",
]

AGAIN: Final = "folded again"
BACK: Final = "taken back"

_LINE_CHARS: Final = 160
_SEARCHED_CHARS: Final = 4_000  # of a message, for its first line: results may have megabytes
_REDACTED_CHARS: Final = 400  # of a line, before it is cut: a secret cut in two would not be recognised
_LISTED_FOLDS: Final = 60
_LISTED_MESSAGES: Final = 12  # under one fold; counts cover all of them


@dataclass(frozen=True, slots=True)
class ReportedFold:
    """A fold and the request that followed it, counted from 1; None when none followed.

    `since` is its later fate: "" while it is in effect, "folded again", "taken back".
    """

    mark: Mark
    request: int | None
    since: str


@dataclass(frozen=True, slots=True)
class HiddenMessage:
    """A message that the model no longer sees in full: its number, author, size and first line, cut."""

    seq: int
    who: str
    tokens: int
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden:
    """The messages under one fold in effect: `messages` are the first of them, `count` and `tokens` cover all.

    `read` tells a person how to read them: a command, or words. `archive` is the key of the original in the session's
    archive, "" without one. `shortened` means that the message is shown in a shorter form.
    """

    mark: Mark
    count: int
    tokens: int
    read: str
    archive: str
    shortened: bool
    messages: tuple[HiddenMessage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The report on one session.

    `sent` holds its requests in the form of a replay: what was sent, and in `recorded_tokens` what no management would
    have sent. `origin` is the source of the sizes: reported by the provider, counted by us, or replayed. `refused_from`
    is the first request, counted from 1, that would have exceeded the window without management. `updated` is ISO 8601,
    "" when unknown; `read_one` is the command that shows message N; `more` are further sentences about the figures.
    """

    name: str
    title: str
    model: str
    updated: str
    origin: Literal["reported", "counted", "replayed"]
    sent: Replay
    folds: tuple[ReportedFold, ...]
    hidden: tuple[Hidden, ...]
    managed: Spend
    unmanaged: Spend
    refused_from: int | None
    read_one: str = ""
    more: tuple[str, ...] = ()

    @property
    def hidden_messages(self) -> int:
        """The number of messages that are not shown."""
        return sum(one.count for one in self.hidden if not one.shortened)

    @property
    def shortened_messages(self) -> int:
        """The number of messages shown in a shorter form."""
        return sum(one.count for one in self.hidden if one.shortened)

    @property
    def hidden_tokens(self) -> int:
        """The original size of both."""
        return sum(one.tokens for one in self.hidden)


def author(message: Message) -> str:
    """The author of a message: user, assistant or tool, or the kind of a message that Foldline made."""
    return "tool" if message.results else message.kind or message.role


def first_line(message: Message) -> str:
    """The first non-empty line of a message, at most 160 characters, with known secrets redacted."""
    text = (full_text(message) or "")[:_SEARCHED_CHARS]
    line = next((stripped for each in text.splitlines() if (stripped := each.strip())), "")
    if not line:
        return "(image)" if any(isinstance(part, Image) for part in message.parts) else "(no text)"
    line = redact(line[:_REDACTED_CHARS])
    return line if len(line) <= _LINE_CHARS else f"{line[: _LINE_CHARS - 1]}…"


def title_of(messages: Iterable[Message]) -> str:
    """The first line of the user; "" without one."""
    said = (one for one in messages if author(one) == "user" and one.agent_visible and one.text.strip())
    return next((first_line(one) for one in said), "")


def hidden_by(
    folds: Iterable[tuple[Mark, bool, str]],
    seqs: Sequence[int],
    messages: Mapping[int, Message],
    tokens: Mapping[int, int],
    read: Callable[[int, int], str],
    *,
    listing: bool = True,
) -> list[Hidden]:
    """The messages that folds hide, in order. Each fold is its mark, whether it shortens, and its archive key.

    `seqs` are the messages of the session. `read(start, stop)` tells how to read a range. Without `listing` messages
    are only counted. O(messages + messages under folds).
    """
    # Later folds cover earlier ones, so the newest fold over a message is the one that shows it.
    cover: dict[int, int] = {}
    given = list(folds)
    for number, (mark, _, _) in enumerate(given):
        cover.update(dict.fromkeys(range(mark.start, mark.stop), number))
    under: dict[int, list[int]] = {}
    for seq in seqs:
        if seq in cover:
            under.setdefault(cover[seq], []).append(seq)
    out: list[Hidden] = []
    for number, covered in sorted(under.items(), key=lambda item: item[1][0]):
        mark, shortened, key = given[number]
        # The page must stay small: counts cover everything, lists only the first.
        listed = covered[:_LISTED_MESSAGES] if listing and len(out) < _LISTED_FOLDS else []
        rows = (HiddenMessage(seq, author(messages[seq]), tokens[seq], first_line(messages[seq])) for seq in listed)
        out.append(
            Hidden(
                mark=mark,
                count=len(covered),
                tokens=sum(tokens[seq] for seq in covered),
                read=read(covered[0], covered[-1] + 1),
                archive=key,
                shortened=shortened,
                messages=tuple(rows),
            )
        )
    return out


def account_of_replay(
    recording: MeasuredSession, *, file: str, policy: str, window: int, model: str | None = None, updated: str = ""
) -> Account:
    """Replay a session under a policy and report on it. `file` is where a person finds the hidden messages.

    The model (by default the recorded one) determines prices, cache rule and room for answers. O(requests x messages).
    Raises as `replay` does, and InvalidInput for a window without room.
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
            ReportedFold(mark, turn.index + 1, "" if mark in held else AGAIN)
            for turn in sent.turns
            for mark in turn.folds
        ),
        hidden=tuple(hidden),
        managed=managed,
        unmanaged=unmanaged,
        refused_from=refused_from(sent),
    )


def refused_from(sent: Replay) -> int | None:
    """The first request, from 1, that would have exceeded the limit without management. O(requests)."""
    return next((turn.index + 1 for turn in sent.turns if turn.recorded_tokens > sent.limit_tokens), None)


def _managed(sent: Replay, answers: Sequence[int]) -> Iterator[ExpectedRequest]:
    for turn, answer in zip(sent.turns, answers, strict=True):
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
