"""Lines, questions and one notice about how full the window is, in the words of the documented token display."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from foldline.engine.window_usage import WindowUsage
from foldline.reducers.summarize import SUMMARY_PREFIX
from foldline.view.transcript import Fold

__all__ = [
    "RunNotice",
    "colour",
    "compact_question",
    "compacted",
    "preview",
    "summary_of",
    "telegram_compacted",
    "telegram_footer",
    "telegram_warning",
    "threshold_question",
    "token_line",
]

# A message on Telegram has 4,096 characters at most; the whole summary stays in the session.
PREVIEW_CHARS = 500


def token_line(figures: WindowUsage) -> str:
    """The line after a reply in a terminal."""
    return f"[tokens: {_spaced_usage(figures)} | response: {figures.last_completion_tokens:,} tokens]"


def colour(utilization: float) -> Literal["green", "yellow", "red"]:
    """The colour of that line: green under 70 %, yellow from 70 %, red from 90 %."""
    # 90 % is also the threshold of `RunNotice`: the line turns red when the model is told to compact.
    if utilization >= 0.9:
        return "red"
    return "yellow" if utilization >= 0.7 else "green"


def telegram_footer(figures: WindowUsage) -> str:
    """The last line of a reply on Telegram."""
    return f"📊 Context: {_usage(figures)}"


def threshold_question(figures: WindowUsage) -> str:
    """The question of a terminal when the threshold is reached."""
    used, most = figures.used_tokens, figures.max_context_tokens
    return f"⚠ Context usage at {figures.utilization:.0%} ({used:,}/{most:,} tokens). Compact conversation? [y/N]"


def telegram_warning(figures: WindowUsage) -> str:
    """The warning on Telegram when the threshold is reached: it names the command, and does nothing by itself."""
    return f"⚠ Context usage at {figures.utilization:.0%}. Reply /compact to summarize and continue, or keep chatting."


def compact_question(figures: WindowUsage) -> str:
    """The question of a terminal after /compact."""
    used, most = figures.used_tokens, figures.max_context_tokens
    return f"Context: {used:,}/{most:,} ({figures.utilization:.0%}). Compact conversation? [y/N]"


def compacted(after: WindowUsage, summary: str) -> str:
    """The text of a terminal after a compaction: the summary, and the new figures."""
    return f"{summary}\n\nContext: {_usage(after)}"


def telegram_compacted(before: WindowUsage, after: WindowUsage, summary: str) -> str:
    """The answer to /compact on Telegram: figures before and after, and up to 500 characters of the summary."""
    return f"📊 Context before: {_usage(before)}\n📊 Context after: {_usage(after)}\n\n{preview(summary)}"


def preview(text: str, max_chars: int = PREVIEW_CHARS) -> str:
    """The beginning of a text, at most `max_chars` characters including the mark of the cut."""
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"


def summary_of(folds: Iterable[Fold]) -> str:
    """The texts of the summaries among these folds, without their headings."""
    # The heading is for the model, which must know that these words are a summary; a person asked for it.
    shown = (fold.shown[0] for fold in folds if fold.shown and fold.shown[0].kind == "summary")
    return "\n\n".join(message.text.removeprefix(SUMMARY_PREFIX).strip() for message in shown)


@dataclass(slots=True)
class RunNotice:
    """The notice for a model in a tool loop that its window is filling up, given once in each run.

    `threshold` is a share of the window; `tool` is the tool that the notice names.
    """

    threshold: float = 0.9
    tool: str = "compact_context"
    shown: bool = False

    def text(self, figures: WindowUsage, *, continues: bool) -> str | None:
        """The notice if it is due; `continues` says whether the model is called again in this run."""
        due = figures.utilization >= self.threshold or figures.asks
        # A run that ends here is compacted after its reply, if at all: a notice would only make the model call a tool.
        if self.shown or not continues or not due:
            return None
        # Once: a model that goes on after it has decided to, and a repeated notice costs the tokens that are short.
        self.shown = True
        return (
            f"[Context notice: {figures.utilization:.0%} of the window is used ({figures.used_tokens:,} of "
            f"{figures.max_context_tokens:,} tokens). Call the tool {self.tool} to sum up this conversation and go on, "
            "or finish soon.]"
        )


def _usage(figures: WindowUsage) -> str:
    return f"{figures.used_tokens:,}/{figures.max_context_tokens:,} ({figures.utilization:.1%})"


def _spaced_usage(figures: WindowUsage) -> str:
    return f"{figures.used_tokens:,} / {figures.max_context_tokens:,} ({figures.utilization:.1%})"
