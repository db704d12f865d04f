"""Condenses a conversation by the engine: a summary by a model, or a digest, and the messages that stay beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from foldline.codecs import codec
from foldline.engine.context import Context, SummarizeWith
from foldline.engine.policy import Policy
from foldline.errors import DoesNotFit, SummaryError
from foldline.messages import Message, Wire
from foldline.reducers.summarize import SUMMARY_PREFIX
from foldline.text.shorten import head_and_tail
from foldline.tokens import ESTIMATE, Counter, message_tokens
from foldline.view.harness_texts import RECORD_HEADER, RULES_HEADER
from foldline.view.standing_rules import with_rules, without_rules
from foldline.view.system_and_tools import System, Tools
from foldline.view.user_words import speaks

__all__ = ["ClientHistory", "Condensed", "condense", "condense_whole", "summary_note"]

# Stands behind a conversation that is to be summarised as a whole: words of the user that are answered may be folded.
_ACKNOWLEDGED: Final = "Noted."

# The newest group stays word for word up to this share of the window: the model has not answered it yet.
_TAIL_SHARE: Final = 0.25

# A digest stands in the prompt with as much of the window as this, at most.
_DIGEST_SHARE: Final = 0.25

# What the user said last, at the end of a summary of everything. Longer words, or more characters than the window
# has tokens, are in the summary alone.
_NEWEST_CHARS: Final = 8_000
_NEWEST: Final = "The newest message of the user, not answered yet, word for word:"

# A record in place of a summary, where there is too little to summarise: at most this share of the window.
_RECORD_SHARE: Final = 0.25
_CHARS_PER_TOKEN: Final = 2  # fewer than in any usual text, so that the record fits
# What a digest by the engine begins with (`foldline.reducers.digest`): it says what it is.
DIGEST_START: Final = "[Digest of "

# The window that is reckoned with where nobody knows it: as much as the conversation has, and some room.
_ROOM_FACTOR: Final = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHistory:
    """A conversation to condense, as its client sends it. `window_tokens` is None for an unknown window.

    `summaries` are the positions of messages that show an earlier summary: they are no words of the user.
    """

    dialect: str
    messages: Sequence[Wire]
    system: System = None
    tools: Tools = None
    model: str = ""
    window_tokens: int | None = None
    max_output_tokens: int | None = None
    summaries: frozenset[int] = frozenset()

    def kind_at(self, at: int) -> str:
        """The kind of a message, as a context records it."""
        return "summary" if at in self.summaries else ""


@dataclass(frozen=True, slots=True)
class Condensed:
    """What stands for a conversation: `summary`, and the messages around it (None in the place of the summary).

    `by_model` says who wrote it; `failure` why no model did, where one was asked.
    """

    summary: str
    shown: tuple[Wire | None, ...]
    by_model: bool
    failure: str = ""


def summary_note(dialect: str, summary: str) -> Message:
    """Return the message that shows a summary to the model: the user's, as text of the dialect."""
    named = summary.startswith((DIGEST_START, RECORD_HEADER))
    text = summary if named else f"{SUMMARY_PREFIX}\n{summary}"
    return codec(dialect).note(text, kind="summary")


def condense(
    history: ClientHistory, policy: Policy, summarize: SummarizeWith | None, instructions: str | None = None
) -> Condensed | None:
    """Condense a conversation; None where nothing can be folded. O(history), and a call of the model.

    The newest group, which the model has not answered yet, stays word for word beside the summary. Raises InvalidInput
    for messages that cannot be read.
    """
    stop = _newest_group(history, ESTIMATE)
    found = _folded(history, stop, policy, summarize, instructions, more=False)
    if found is None:
        return None
    return Condensed(found.summary, (*found.shown, *history.messages[stop:]), found.by_model, found.failure)


def condense_whole(
    history: ClientHistory, policy: Policy, summarize: SummarizeWith | None, instructions: str | None = None
) -> Condensed:
    """Summarise all of a conversation; one that is too short for that is repeated. O(history), and a call of the model.

    Raises InvalidInput for messages that cannot be read.
    """
    found = _folded(history, len(history.messages), policy, summarize, instructions, more=True)
    if found is None:
        return Condensed(_record_of(history, policy), (None,), by_model=False)
    summary, newest = without_rules(found.summary), _newest_words(history)
    if newest:
        # Before the rules: what stands behind their header would be one of them from then on.
        summary = f"{summary}\n\n{_NEWEST}\n{_plain(newest)}{found.summary[len(summary) :]}"
        return replace(found, summary=summary, shown=(None,))
    return replace(found, shown=(None,))


def _folded(
    history: ClientHistory,
    stop: int,
    policy: Policy,
    summarize: SummarizeWith | None,
    instructions: str | None,
    *,
    more: bool,
) -> Condensed | None:
    """Fold what may be folded of the first `stop` messages; None if that is nothing.

    With `more` the newest words of the user may be folded too: they count as answered.
    """
    failure = ""
    if summarize is not None:
        context = _context(history, policy, stop, more)
        try:
            context.compact(instructions, summarize=summarize)
            return _condensed(context, "")
        except SummaryError as error:
            failure = error.reason
    # A digest takes what its window leaves it, and stays in the prompt for as long as the client carries it.
    small = replace(history, system=None, tools=None, window_tokens=int(_DIGEST_SHARE * _window_of(history)))
    context = _context(small, policy, stop, more)
    try:
        context.compact(None, summarize=None)
    except SummaryError:
        return None
    return _condensed(context, failure, by_model=False)


def _condensed(context: Context, failure: str, *, by_model: bool = True) -> Condensed | None:
    try:
        context.prepare(None)  # repairs and joints: what is shown around the summary is a valid request
    except DoesNotFit:
        return None
    texts: list[str] = []
    shown: list[Wire | None] = []
    for tile in context.view.tiles:
        notes = () if tile.fold is None else tile.fold.shown
        summaries = {note.text for note in notes if note.kind and note.role == "user"}
        for message in tile.messages:
            if message.text in summaries:
                texts.append(message.text.removeprefix(SUMMARY_PREFIX).strip())
                shown += [] if None in shown else [None]
            elif tile.entries or not (message.kind and message.role == "assistant" and shown[-1:] == [None]):
                shown.append(context.view.codec.write(message))  # no acknowledgement: the joint stands for it
    if not texts:
        return None
    # The client sends this as a message of the user, in which only the list at its end is read as rules.
    folded = [tile for tile in context.view.tiles if tile.fold is not None]
    rules = [rule for rule in context.rules if any(tile.start <= rule.seq < tile.stop for tile in folded)]
    return Condensed(with_rules(texts, rules), tuple(shown), by_model, failure)


def _window_of(history: ClientHistory) -> int:
    if history.window_tokens is not None:
        return history.window_tokens
    reader = codec(history.dialect)
    total = sum(message_tokens(reader.read(wire), ESTIMATE) for wire in history.messages)
    return max(8_192, int(_ROOM_FACTOR * total))


def _context(history: ClientHistory, policy: Policy, stop: int, answered: bool) -> Context:
    """A context with the first `stop` messages, the last of which counts as `answered`."""
    window_tokens = _window_of(history)
    cap = history.max_output_tokens
    context = Context(
        dialect=history.dialect,
        model=history.model or None,
        policy=policy,
        window=window_tokens,
        max_output_tokens=None if cap is None else max(1, min(cap, window_tokens // 4)),
        system=history.system,
        tools=history.tools,
        counter=ESTIMATE,
    )
    for at, wire in enumerate(history.messages[:stop]):
        context.append(wire, kind=history.kind_at(at))
    reader = context.view.codec
    if answered and reader.read(history.messages[-1]).role != "assistant":
        context.append(reader.write(reader.note(_ACKNOWLEDGED, role="assistant")))
    return context


# --- what stays word for word -----------------------------------------------------------------------------------------


def _newest_group(history: ClientHistory, counter: Counter) -> int:
    """Where the newest group begins that the model has not answered: calls with their results, or words of the user.

    The end, if there is none, or if it takes more than its share of the window.
    """
    messages = [codec(history.dialect).read(wire) for wire in history.messages]
    start = len(messages)
    # An assistant message at the end is the beginning of the reply (a prefill, a paused turn): it stays with its turn.
    while start > 0 and messages[start - 1].role == "assistant":
        start -= 1
    while start > 0 and messages[start - 1].role != "assistant":
        start -= 1
    # Results belong to their calls, and those to the calls beside them: a group is never cut.
    while (call := _answered_call(messages, start)) < start:
        start = call
        while start > 0 and messages[start - 1].role == "assistant":
            start -= 1
    size = sum(message_tokens(message, counter) for message in messages[start:])
    most = _TAIL_SHARE * (history.window_tokens or 4 * size)
    return len(messages) if size > most else start


def _answered_call(messages: Sequence[Message], start: int) -> int:
    """Where the last call before `start` stands that is answered from there on; `start` if there is none.

    A late result may come long after its call. The last, because some clients use the same id again and again.
    """
    answered = {result.call_id for message in messages[start:] for result in message.results}
    own = {call.id for message in messages[start:] for call in message.calls}
    open_calls = answered - own
    calls = (at for at in reversed(range(start)) if any(call.id in open_calls for call in messages[at].calls))
    return next(calls, start)


def _newest_words(history: ClientHistory) -> str:
    """The words of the user that nobody has answered yet, if they are few enough to be repeated."""
    reader = codec(history.dialect)
    for at, wire in reversed(list(enumerate(history.messages))):
        message = reader.read(wire)
        if message.role == "assistant" or history.kind_at(at):
            return ""
        if speaks(message):
            words = message.text.strip()
            return words if len(words) <= min(_NEWEST_CHARS, history.window_tokens or _NEWEST_CHARS) else ""
    return ""


def _record_of(history: ClientHistory, policy: Policy) -> str:
    """A short conversation as a text, in place of a summary that would be no shorter."""
    reader, lines = codec(history.dialect), [RECORD_HEADER]
    context = _context(history, policy, len(history.messages), answered=False)
    for wire in history.messages:
        message = reader.read(wire)
        if message.text.strip():
            lines.append(f"{message.role}: {message.text.strip()}")
        lines += [f"call {call.name}: {call.arguments}" for call in message.calls]
        lines += [f"result: {result.text}" for result in message.results]
    text = _plain("\n".join(lines))
    most = int(_CHARS_PER_TOKEN * _RECORD_SHARE * (history.window_tokens or 128_000))
    if len(text) > most:
        head, tail = head_and_tail(text, most // 2, most // 2)
        text = f"{head}\n[…]\n{tail}"
    return with_rules([text], context.rules)


def _plain(text: str) -> str:
    """A text in which nothing poses as our list of rules: results and words are quoted in it."""
    return text.replace(RULES_HEADER, "Rules:")
