"""The account of one session: its requests, its folds and what they hide, its bill with and without management.

`account_from_log` makes it from a stored session, `account_from_replay` from a recorded one. `billed` adds up reported
calls, whose cached part the provider decided. `expected` prices requests that were never made: the part equal to the
beginning of the last request is read from the cache by the provider's rule, unless the cache has expired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from foldline.catalog.models import HOUR_SECONDS, lookup
from foldline.catalog.prices import CacheRule, request_price
from foldline.engine.excerpts import full_text
from foldline.messages import Image, Message
from foldline.replay import Mark, Replay
from foldline.text.redaction import redact
from foldline.view.budget import cache_rule_of

__all__ = [
    "AGAIN",
    "BACK",
    "Account",
    "BilledCall",
    "ExpectedRequest",
    "Hidden",
    "HiddenMessage",
    "ReportedFold",
    "Spend",
    "author",
    "billed",
    "expected",
    "first_line",
    "hidden_by",
    "refused_from",
    "title_of",
]

AGAIN: Final = "folded again"
BACK: Final = "taken back"

# About two lines on a phone, enough to recognise a message by.
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
    # Results come from the user's side in some dialects (Anthropic, Gemini): the role alone would name the user.
    return "tool" if message.results else message.kind or message.role


def first_line(message: Message) -> str:
    """The first non-empty line of a message, at most 160 characters, with known secrets redacted."""
    # Cut, redacted, cut again: a pattern may not see half of a secret, and must not run over a megabyte.
    text = (full_text(message) or "")[:_SEARCHED_CHARS]
    line = next((stripped for each in text.splitlines() if (stripped := each.strip())), "")
    if not line:
        return "(image)" if any(isinstance(part, Image) for part in message.parts) else "(no text)"
    line = redact(line[:_REDACTED_CHARS])
    return line if len(line) <= _LINE_CHARS else f"{line[: _LINE_CHARS - 1]}…"


def title_of(messages: Iterable[Message]) -> str:
    """The first line of the user; "" without one."""
    spoken = (one for one in messages if author(one) == "user" and one.agent_visible and one.text.strip())
    return next((first_line(one) for one in spoken), "")


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
    # One entry per message, overwritten in the order of folding, instead of a search through the folds per message.
    cover: dict[int, int] = {}
    all_folds = list(folds)
    for number, (mark, _, _) in enumerate(all_folds):
        cover.update(dict.fromkeys(range(mark.start, mark.stop), number))
    under: dict[int, list[int]] = {}
    for seq in seqs:
        if seq in cover:
            under.setdefault(cover[seq], []).append(seq)
    # By the first message of each, the order in which a person reads. Later folds lie on earlier ones, so the order of
    # folding says little.
    out: list[Hidden] = []
    for number, covered in sorted(under.items(), key=lambda item: item[1][0]):
        mark, shortened, key = all_folds[number]
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


def refused_from(sent: Replay) -> int | None:
    """The first request, from 1, that would have exceeded the limit without management. O(requests)."""
    return next((turn.index + 1 for turn in sent.turns if turn.recorded_tokens > sent.limit_tokens), None)


# --- bills ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledCall:
    """One call as reported; `input_tokens` includes tokens read from the cache and written to it.

    `estimated` means that nothing was reported and the counts are our own.
    """

    model: str
    input_tokens: int
    cached_tokens: int = 0
    written_tokens: int = 0
    written_long_tokens: int = 0
    output_tokens: int = 0
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class ExpectedRequest:
    """A request that was never made: its size, the part shared with the last request, and the size of the reply."""

    tokens: int
    cached_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """A bill. `paid_tokens` is the price of all input, in tokens at the full input price of a short request.

    `usd` is None when a model has no price in the catalogue. `estimated` means that some counts are our own.
    """

    calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    paid_tokens: float = 0.0
    usd: float | None = 0.0
    estimated: bool = False

    def __add__(self, other: Spend) -> Spend:
        return Spend(
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            paid_tokens=self.paid_tokens + other.paid_tokens,
            usd=None if self.usd is None or other.usd is None else self.usd + other.usd,
            estimated=self.estimated or other.estimated,
        )


def billed(calls: Iterable[BilledCall], *, dialect: str) -> Spend:
    """The bill of reported calls at the catalogue's prices. O(calls).

    `dialect` selects the cache rule for models that the catalogue lacks.
    """
    return sum((_billed(call, dialect) for call in calls), Spend())


def _billed(call: BilledCall, dialect: str) -> Spend:
    # By the model of each call: a session may change it, and summaries may come from a cheaper one.
    rule = cache_rule_of(call.model, dialect)
    # Reports of some gateways do not add up, and no bill may be negative.
    cached = min(call.cached_tokens, call.input_tokens)
    written = min(call.written_tokens, call.input_tokens - cached)
    fresh = call.input_tokens - cached - written
    long = min(call.written_long_tokens, written)
    # Writes with a longer lifetime have a price of their own, and are part of `written`.
    paid = fresh + cached * rule.read_ratio + (written - long) * rule.write_ratio
    paid += long * cache_rule_of(call.model, dialect, HOUR_SECONDS).write_ratio
    return Spend(
        calls=1,
        input_tokens=call.input_tokens,
        cached_tokens=cached,
        output_tokens=call.output_tokens,
        paid_tokens=paid * rule.step(call.input_tokens).input_ratio,
        usd=lookup(call.model).usd(call.input_tokens, cached, call.output_tokens, written, long),
        estimated=call.estimated,
    )


def expected(requests: Iterable[ExpectedRequest], *, model: str | None, rule: CacheRule, caching: bool = True) -> Spend:
    """The estimated bill of requests that were never made. `rule` prices the cache, `model` the tokens. O(requests).

    Without `caching` every request is paid in full.
    """
    # The price of a token depends on the length of its request: each request is priced by its own step. That is why the
    # sums of tokens cannot be priced at the end.
    info = lookup(model)
    calls = tokens = cached = output = 0
    paid = answers = 0.0
    for request in requests:
        step = rule.step(request.tokens)
        cached_now = rule.cacheable_tokens(min(request.cached_tokens, request.tokens)) if caching else 0
        calls, tokens, cached, output = (
            calls + 1,
            tokens + request.tokens,
            cached + cached_now,
            output + request.output_tokens,
        )
        paid += request_price(rule, request.tokens, cached_now) if caching else request.tokens * step.input_ratio
        answers += request.output_tokens * step.output_ratio
    # No price is no zero: one unknown part makes the whole amount unknown, and tokens are shown in its place.
    price, answer_price = info.input_usd_per_million, info.output_usd_per_million
    priced = info.known and price is not None and answer_price is not None
    return Spend(
        calls=calls,
        input_tokens=tokens,
        cached_tokens=cached,
        output_tokens=output,
        paid_tokens=paid,
        usd=(paid * (price or 0) + answers * (answer_price or 0)) / 1e6 if priced else None,
        estimated=True,
    )
