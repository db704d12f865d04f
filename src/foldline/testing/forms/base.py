"""What the fake needs of a dialect: how to read its requests, and how to write its replies, streams and errors.

Wordings about size, pairs of calls and results, empty content, item ids and cache breakpoints are the providers' own,
as public reports of the errors quote them, because clients match on them. The others keep the form of the provider's
messages and contain the finding of the rule.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Protocol, TypeAlias

from foldline.codecs.dialect import dialect_named
from foldline.codecs.rulebook import Violation
from foldline.testing.script import Body, FakeReply, Refusal
from foldline.testing.token_counts import count_text, dumped

__all__ = [
    "EPOCH",
    "Counts",
    "FakeTurn",
    "Form",
    "Prompt",
    "Stream",
    "StreamEvent",
    "form_of",
    "output_counts",
    "pieces",
    "refuse_rule",
    "refuse_status",
    "with_field",
]

StreamEvent: TypeAlias = Mapping[str, Any] | str
"""The data of one event: an object, or a bare text ("[DONE]")."""

EPOCH: Final = 1_790_000_000
"""The time of the first reply; each later one is a second younger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The fields of a request that every dialect has. `max_output_tokens` is None if it sets none."""

    model: str
    messages: Any
    system: Any
    tools: Any
    max_output_tokens: int | None
    streamed: bool


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens as the fake reports them: `input_tokens` includes the cached and the written ones."""

    input_tokens: int
    cached_tokens: int
    written_tokens: int
    output_tokens: int
    reasoning_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeTurn:
    """One turn of the fake: a reply with all that its wire form needs. `counts` is None if no usage is reported."""

    reply: FakeReply
    body: Body
    model: str
    number: int
    counts: Counts | None

    @property
    def created(self) -> int:
        """Seconds since 1970, counted up instead of read from a clock, so that two runs are equal."""
        return EPOCH + self.number

    def named(self, prefix: str, part: int | None = None) -> str:
        """Return an id that no other turn of this fake has."""
        return f"{prefix}_{self.number:06d}" if part is None else f"{prefix}_{self.number:06d}_{part}"

    @property
    def finish(self) -> str:
        """The finish reason in the neutral word."""
        return self.reply.finish_reason or ("tool_calls" if self.reply.calls else "stop")


@dataclass(frozen=True, slots=True)
class Stream:
    """The events of a reply: opening, content, closing. The content has `lead` events before its first piece."""

    opening: Sequence[StreamEvent]
    content: Sequence[StreamEvent]
    closing: Sequence[StreamEvent]
    lead: int = 0

    @property
    def first_piece(self) -> int:
        """The number of the event with the first piece of content."""
        return len(self.opening) + self.lead


class Form(Protocol):
    """One dialect as a server speaks it. Each `refuse` method returns a refusal in the words of its provider."""

    dialect: str
    rule_words: Mapping[str, str]
    """The wording for a broken rule: {at} is the number of the message, {ids} and {number} are quoted from {detail},
    which is the finding."""
    status_words: Mapping[int, str]
    """The usual wording by HTTP status."""
    status_codes: Mapping[int, str]
    """The usual `code` by HTTP status, in dialects that have one."""
    fault_status: int
    """The status of an error inside a reply with status 200."""
    count_field: str
    """The field with the tokens of a count."""

    def read(self, body: Body, path: str) -> Prompt | Refusal:
        """Return the request, or what is wrong with its outermost fields. The path may name its model."""

    def whole(self, turn: FakeTurn) -> Mapping[str, Any]:
        """Return the reply as one object."""

    def stream(self, turn: FakeTurn) -> Stream:
        """Return the reply in pieces."""

    def frame(self, event: StreamEvent, number: int) -> bytes:
        """Return event `number` of a stream as a server-sent event."""

    def error(self, refusal: Refusal, number: int) -> Mapping[str, Any]:
        """Return the body of a refusal."""

    def error_event(self, refusal: Refusal, turn: FakeTurn) -> StreamEvent:
        """Return a refusal inside a stream that has begun."""

    def session(self, rounds: int, result: str, task: str) -> list[Mapping[str, Any]]:
        """Return a task, then `rounds` rounds of one call and its result."""

    def place(self, index: str) -> str:
        """Return the name of a message in errors; `index` is "" for the whole list."""

    def refuse_json(self, reason: str) -> Refusal:
        """Refuse a body that is no JSON object."""

    def refuse_field(self, place: str | None, reason: str) -> Refusal:
        """Refuse a field that cannot be read."""

    def refuse_key(self, *, given: bool) -> Refusal:
        """Refuse a wrong key, or a missing one."""

    def refuse_model(self, model: str) -> Refusal:
        """Refuse a model that is not served."""

    def refuse_bytes(self, max_request_bytes: int) -> Refusal:
        """Refuse a body that is too large to be read."""

    def refuse_prompt(self, tokens: int, window_tokens: int) -> Refusal:
        """Refuse a request that is larger than the window by itself."""

    def refuse_sum(self, tokens: int, output_tokens: int, window_tokens: int) -> Refusal | None:
        """Refuse a request that fits, but not together with its output; None without such a rule."""

    def refuse_output(self, output_tokens: int, cap_tokens: int, model: str) -> Refusal:
        """Refuse more output than the model can write."""


# The second word of a finding about a misplaced block, with the block and the role that it belongs to.
# By the noun of the finding, since the rule is one for all blocks.
_PLACES: Final = {
    "result": ("tool_result", "user"),
    "thinking": ("thinking", "assistant"),
    "redacted_thinking": ("redacted_thinking", "assistant"),
}


def refuse_rule(form: Form, violation: Violation) -> Refusal:
    """Refuse a request that breaks a rule of its dialect."""
    at = "" if violation.index is None else str(violation.index)
    ids = ", ".join(re.findall(r"'([^']*)'", violation.detail))
    words = form.rule_words.get(violation.rule, "")
    if violation.rule == "block-place":
        kind, role = _PLACES.get(violation.detail.split()[1], ("tool_use", "assistant"))
        words = f"messages.{{at}}: `{kind}` blocks can only be in `{role}` messages"
    # A wording whose blanks cannot be filled would mislead: the finding is complete in itself.
    if not words or ("{at}" in words and not at) or ("{ids}" in words and not ids):
        words = f"{form.place(at)}: {{detail}}"
    # The first number of a finding is the count that was exceeded.
    number = next(iter(re.findall(r"\d+", violation.detail)), "")
    message = words.format(at=at, ids=ids, detail=violation.detail, number=number)
    return Refusal(400, violation.rule, message, None, form.place(""))


def refuse_status(form: Form, reply: FakeReply, status: int) -> Refusal:
    """Refuse with the status that a script asks for, in the provider's usual words unless the script has its own."""
    message = reply.message
    if message is None:
        message = form.status_words.get(status, f"The request failed ({status}).")
    code = reply.code or form.status_codes.get(status)
    return Refusal(status, f"scripted-{status}", message, code, None, reply.retry_after_seconds)


def form_of(dialect: str) -> Form:
    """Return the form of a dialect, from its module of this package."""
    # By the name of the row: a new dialect brings its module and touches no table here.
    form: Form = import_module(f"foldline.testing.forms.{dialect_named(dialect).module}").FORM
    return form


def pieces(text: str, chars: int) -> list[str]:
    """Cut a text into pieces of `chars` characters; an empty text gives none."""
    return [text[start : start + chars] for start in range(0, len(text), max(1, chars))]


def output_counts(reply: FakeReply) -> tuple[int, int]:
    """Return the tokens of a reply and of its reasoning: a quarter of their bytes, and 1 for the end of the turn."""
    # All providers bill reasoning as output.
    reasoning = count_text(reply.reasoning)
    calls = sum(count_text(name) + count_text(dumped(arguments)) for name, arguments in reply.calls)
    return reasoning + count_text(reply.text) + calls + 1, reasoning


def with_field(fields: Mapping[str, Any], name: str, value: object) -> dict[str, Any]:
    """Return `fields` with `name`, unless its value is None."""
    return dict(fields) if value is None else {**fields, name: value}
