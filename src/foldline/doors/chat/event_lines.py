"""Events as one line of text each, and the log of a chat, which consists of such lines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final

from foldline.agent.events import AgentEvent, Calling, Notice, ReplyFinished, ToolFinished, ToolStarted, TurnEnded
from foldline.display import size_text, token_line
from foldline.engine.events import FoldFinished, FoldStarted, call_line, log_line
from foldline.engine.window_usage import WindowUsage
from foldline.messages import Json
from foldline.text.formatting import plain_line
from foldline.text.redaction import redact
from foldline.view.transcript import Fold

__all__ = [
    "FILE",
    "Journal",
    "call_text",
    "calling_text",
    "failure_text",
    "fold_source",
    "fold_text",
    "main_argument",
    "reply_text",
    "result_text",
    "seconds_text",
    "usage_text",
]

# Arguments that say most about a call, the most telling first.
_MAIN: Final = ("command", "pattern", "path", "url", "query", "task", "name", "seq", "glob", "instructions")
_ARGUMENT_CHARS: Final = 200  # two lines of a usual terminal
# Anything faster feels instant to a person (Nielsen's limit).
_NOTICED_SECONDS: Final = 0.1


def seconds_text(seconds: float) -> str:
    """A duration for people: "0.3 s", "2 min 5 s"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


def main_argument(arguments: str) -> str:
    """The most telling argument of a call, as one line; "" without any."""
    try:
        # A model writes the arguments, so they may be no JSON at all, or nested without end.
        parsed = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return plain_line(arguments, _ARGUMENT_CHARS)
    if not isinstance(parsed, Mapping) or not parsed:
        return ""
    # Unknown tools show their first argument, as most put the subject first.
    name = next((name for name in _MAIN if name in parsed), next(iter(parsed)))
    shown = _value(parsed[name])
    if name == "path" and isinstance(parsed.get("start_line"), int):
        shown = f"{shown}:{parsed['start_line']}-{parsed.get('end_line') or ''}"
    if name == "pattern" and isinstance(parsed.get("path"), str):
        shown = f"{shown} in {parsed['path']}"
    return plain_line(shown, _ARGUMENT_CHARS)


def _value(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def call_text(call: ToolStarted) -> str:
    """A call: its tool and main argument."""
    return f"{plain_line(call.tool, 64)} {main_argument(call.arguments)}".strip()


def result_text(result: ToolFinished, call: str = "") -> str:
    """The result of a call: its size, and its time if noticeable; or its error, without repeating the call."""
    if result.is_error:
        first = next((line for line in result.text.splitlines() if line.strip()), "failed")
        # Most errors begin with the path that the call names already; on one line it would stand twice.
        place, colon, reason = plain_line(first, 300).partition(": ")
        return reason if colon and reason and place in call.split(" ") else plain_line(first, 300)
    size = size_text(len(result.text.encode("utf-8", "replace")))
    return size if result.seconds < _NOTICED_SECONDS else f"{size}, {seconds_text(result.seconds)}"


def failure_text(message: str) -> str:
    """An error message without "other: ", the kind of errors that have none."""
    return plain_line(message, 2_000).removeprefix("other: ")


def calling_text(event: Calling, model: str) -> str:
    """The activity while a model is called."""
    again = f", step {event.iteration}" if event.iteration > 1 else ""
    return f"calling {plain_line(model, 40) or 'the model'} (~{event.tokens:,} tokens{again})"


def fold_text(event: FoldFinished) -> str | None:
    """The effect of a fold: messages, tokens before and after, reducers, commands to inspect it; None for none."""
    if not event.folds:
        return None
    # A later fold may cover an earlier one of the same batch. Counted twice, its messages would exceed the session.
    outer = [
        fold
        for fold in event.folds
        if not any(o is not fold and o.start <= fold.start and fold.stop <= o.stop for o in event.folds)
    ]
    count = sum(fold.stop - fold.start for fold in outer)
    by = ", ".join(dict.fromkeys(map(fold_source, event.folds)))
    messages = "1 message" if count == 1 else f"{count:,} messages"
    # Of several folds, people ask about the one that covers most.
    seq = max(outer, key=lambda fold: fold.before_tokens).start
    return f"folded {messages}: {event.tokens_before:,} → {event.tokens:,} tokens ({by}) · /why {seq} · /undo"


def fold_source(fold: Fold) -> str:
    """The reducer of a fold, or "digest" if one without a model stands in for it."""
    is_digest = any(message.kind == "digest" for message in fold.shown)
    return "digest" if is_digest else plain_line(fold.reducer, 64)


def usage_text(figures: WindowUsage, *, estimated: bool) -> str:
    """The figures after a reply; `~` marks our own count, where the server reported none."""
    line = token_line(figures)
    return line.replace("[tokens: ", "[tokens: ~").replace("response: ", "response: ~") if estimated else line


def reply_text(event: ReplyFinished) -> str:
    """One model call, for the log."""
    about = "~" if event.estimated else ""
    return (
        f"Reply: {about}{event.prompt_tokens} prompt tokens ({event.cached_tokens} cached, {event.expected_tokens} "
        f"expected), {about}{event.completion_tokens} answered, {event.calls} calls, {event.seconds:.1f} s"
    )


# --- the log of a chat ------------------------------------------------------------------------------------------------


FILE: Final = "chat.log"


class Journal:
    """Writes the log lines of S0.04 and others, with secrets of known shapes removed.

    `folder` returns the session's folder once it is on disk; the file is created there (0600). A line that cannot be
    written stops nothing. With `verbose`, lines go to standard error too.
    """

    def __init__(self, folder: Callable[[], Path | None], *, verbose: IO[str] | None = None) -> None:
        self._folder, self._loud = folder, verbose

    def on_event(self, event: AgentEvent) -> None:
        """Log an event, if it belongs in the log."""
        line = _line(event)
        if line is not None:
            self._write(redact(plain_line(line, 2_000)))

    def _write(self, line: str) -> None:
        if self._loud is not None:
            self._loud.write(f"{line}\n")
            self._loud.flush()
        folder = self._folder()
        if folder is None:  # the session is not on disk yet, or never will be (--no-save)
            return
        stamp = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        # O_NOFOLLOW: a link planted in the folder must not redirect the log.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        try:
            handle = os.open(folder / FILE, flags, 0o600)
            with os.fdopen(handle, "a", encoding="utf-8", errors="replace") as file:
                file.write(f"{stamp} {line}\n")
        except OSError as error:
            # Once, to standard error: from then on the lines themselves go there too, and nothing is lost.
            if self._loud is None:
                self._loud = sys.stderr
                self._write(f"the log cannot be written: {error}")


def _line(event: AgentEvent) -> str | None:
    match event:
        case Calling():
            return call_line(event.messages, event.size_bytes)
        case FoldStarted() | FoldFinished():
            return log_line(event)
        case ReplyFinished():
            return reply_text(event)
        case ToolFinished():
            how = "failed" if event.is_error else "done"
            return f"Tool {event.tool} {how}: {event.tokens} tokens, {event.seconds:.1f} s"
        case Notice():
            return f"Notice: {event.text}"
        case TurnEnded():
            return f"Turn ended: {event.reason} {event.message}".strip()
        case _:
            return None
