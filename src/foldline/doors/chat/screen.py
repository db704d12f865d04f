"""Shows the events of an agent: each becomes lines on a rich console, and a spinner names the activity."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Final

from rich.console import Console, Group, OverflowMethod, RenderableType
from rich.live import Live
from rich.segment import Segment
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from foldline.agent.events import (
    AgentEvent,
    Calling,
    Notice,
    ReplyFinished,
    ToolFinished,
    ToolStarted,
    TurnEnded,
)
from foldline.display import colour
from foldline.doors.chat.event_lines import (
    call_text,
    calling_text,
    failure_text,
    fold_text,
    result_text,
    seconds_text,
    usage_text,
)
from foldline.doors.chat.markdown import AnswerBlocks, markdown
from foldline.engine.events import FoldFinished, FoldStarted, LimitLearned, Repaired, SilentTruncation, UsageDoubted
from foldline.providers.base import CallStarted, ReasoningDelta, Retrying, TextDelta
from foldline.text.formatting import plain, plain_line

__all__ = ["Screen"]

_FIELD_COLUMNS: Final = 9  # the longest name, "allowed", and a gap
_REASONING_CHARS: Final = 2_000
# A block in progress is rendered as Markdown up to this size, and as plain lines beyond: it is redrawn at each tick.
_TAIL_CHARS: Final = 4_000
# For terminals whose encoding lacks them: Python would raise UnicodeEncodeError in the middle of a line.
_ASCII: Final = str.maketrans({"→": "->", "·": "-", "✗": "x", "•": "*", "…": "...", "⚠": "!", "⟲": "~", "─": "-"})


class Screen:
    """The output of a conversation. `on_event` is the agent's listener; the other methods are for the driver.

    On a terminal, the answer in progress and the spinner are redrawn in place, and finished text scrolls up. On
    anything else (`live` False), text is written as it comes, and nothing twice. With `answers` False the answer is not
    shown: for scripts, which receive it elsewhere.
    """

    def __init__(
        self,
        console: Console,
        *,
        live: bool | None = None,
        answers: bool = True,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.console = console
        self.model = ""
        # A dumb terminal can neither move the cursor nor erase: redrawing would print each frame.
        self._animated = console.is_terminal and not console.is_dumb_terminal if live is None else live
        self._answers = answers
        self._clock = clock
        self._live: Live | None = None
        self._spinner: Spinner | None = None
        self._answer = AnswerBlocks()
        self._line_open = False
        self._reasoning = ""
        self._running: dict[str, ToolStarted] = {}
        self._activity = ""
        self._since = 0.0
        self._reply: ReplyFinished | None = None
        self._delayed: list[AgentEvent] | None = None
        self._needs_gap = False

    # --- lines -------------------------------------------------------------------------------------------------------

    def line(self, text: str, style: str = "", *, one: bool = False) -> None:
        """Print a text of ours, which may contain foreign words; with `one` it is cut at the width."""
        # Every text may quote a model, a tool or a file, so control characters are made visible here.
        text = plain(text)
        if self.console.options.ascii_only:
            text = text.translate(_ASCII)
        self._end_line()
        self._needs_gap = True
        if self.console.soft_wrap and not one:  # not a terminal: a line stays a line, for grep
            self.console.print(Text(text, style=style))
            return
        overflow: OverflowMethod = "fold" if not one else "crop" if self.console.options.ascii_only else "ellipsis"
        self.console.print(Text(text, style=style), no_wrap=one, overflow=overflow, crop=True, soft_wrap=False)

    def pairs(self, rows: Sequence[tuple[str, str]]) -> None:
        """Print names and their meanings in two columns, each wrapped."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for name, meaning in rows:
            grid.add_row(Text(name), Text(meaning))
        self.show(grid)

    def field(self, name: str, text: str, style: str = "dim") -> None:
        """Print a name and its value, wrapped in a column of its own. An empty name continues the field before."""
        # At least 20 columns: a terminal of width 0 exists (a pseudo-terminal without a size).
        room = max(20, self.console.width - _FIELD_COLUMNS)
        for line in Text(plain(text)).wrap(self.console, room, overflow="fold"):
            self.line(f"{name:<{_FIELD_COLUMNS}}{line.plain.rstrip()}", style)
            name = ""

    def error(self, text: str) -> None:
        """Print an error."""
        self.line(failure_text(text), "red")

    def show(self, drawn: RenderableType) -> None:
        """Print anything that rich can render."""
        self._end_line()
        self._needs_gap = True
        self.console.print(drawn)

    # --- activity ----------------------------------------------------------------------------------------------------

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Show an activity until the block ends."""
        self._start(what)
        try:
            yield
        finally:
            self._stop()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Remove the display during a question to the person."""
        what, was = self._activity, self._live is not None
        self._flush()
        self._stop_live()
        delayed = self._delayed = []  # parallel calls may end meanwhile; their lines must not tear the question apart
        try:
            yield
        finally:
            self._delayed = None
            if was:
                self._start(what)
            for event in delayed:
                self.on_event(event)

    def tick(self) -> None:
        """Redraw what is redrawn in place. Call it a few times a second."""
        if self._live is not None:
            self._live.refresh()

    def _start(self, what: str) -> None:
        # Already live when a turn starts within a command: one region, or rich would raise.
        self._activity, self._since = what, self._clock()
        if self._animated and self._live is None:
            self._spinner = Spinner("line" if self.console.options.ascii_only else "dots", style="cyan")
            self._live = Live(
                console=self.console,
                get_renderable=self._region,
                auto_refresh=False,  # `tick` refreshes: rich's thread would read state while it changes
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
                vertical_overflow="crop",
            )
            self._live.start()

    def _stop(self) -> None:
        self._flush()
        self._stop_live()
        self._running.clear()
        self._activity = ""

    def _stop_live(self) -> None:
        # Cleared first: `stop` renders once more, and that must not find itself live.
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _set_activity(self, what: str) -> None:
        # The same activity goes on: its seconds must not start over with each delta.
        if what != self._activity:
            self._activity, self._since = what, self._clock()

    def _region(self) -> RenderableType:
        """The part that is redrawn in place: the block in progress, and the spinner with the activity."""
        parts: list[RenderableType] = []
        if tail := self._answer.pending:
            parts.append(self._render_tail(tail))
        elif self._reasoning:
            parts.append(Text(plain_line(self._reasoning[-self.console.width :]), "dim italic", no_wrap=True))
        if self._spinner is not None and self._activity:
            seconds = self._clock() - self._since
            # Below two seconds the figure would only flicker.
            wait = f" {seconds_text(seconds)}" if seconds >= 2 else ""
            words = Text(f"{self._activity}{wait}", style="dim", no_wrap=True, overflow="ellipsis")
            self._spinner.update(text=words)
            parts.append(self._spinner)
        return Group(*parts)

    def _render_tail(self, tail: str) -> RenderableType:
        # rich cannot erase lines that have scrolled off, so the region must stay smaller than the terminal.
        rows = max(3, self.console.height - 5)
        width = max(20, self.console.width)
        drawn = markdown(tail) if len(tail) <= _TAIL_CHARS else Text("\n".join(tail.splitlines()[-rows:]))
        lines = self.console.render_lines(drawn, self.console.options.update(width=width), pad=False)
        return _Lines(lines[-rows:])

    # --- events ------------------------------------------------------------------------------------------------------

    def on_event(self, event: AgentEvent) -> None:
        """Show one event; during a question, after it."""
        if self._delayed is not None:
            self._delayed.append(event)
            return
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)

    def _on_calling(self, event: Calling) -> None:
        self._set_activity(calling_text(event, self.model))

    def _on_text(self, event: TextDelta) -> None:
        self._flush_reasoning()
        self._set_activity("answering")
        if not self._answers:
            return
        if self._animated:
            for block in self._answer.feed(event.text):
                self._print_block(block)
        elif text := plain(event.text):
            self._print_gap()
            self._write(text)

    def _on_reasoning(self, event: ReasoningDelta) -> None:
        self._set_activity("thinking")
        # The start is kept, not the end: one line of it is shown, and the rest may be megabytes.
        self._reasoning = (self._reasoning + event.text)[:_REASONING_CHARS]

    def _on_call(self, event: CallStarted) -> None:
        self._flush()
        self._set_activity(f"writing a call of {plain_line(event.name, 64)}")

    def _on_retrying(self, event: Retrying) -> None:
        self._set_activity(f"waiting to try again ({plain_line(event.reason, 60)})")
        self.line(
            f"⟲ {plain_line(event.reason, 200)}; trying again in {event.wait_seconds:.1f} s (attempt {event.attempt})",
            "yellow",
        )

    def _on_reply(self, event: ReplyFinished) -> None:
        self._flush()
        # Printed at the end of the turn: between two calls it would tear the list of tools apart.
        self._reply = event

    def _on_tool_started(self, event: ToolStarted) -> None:
        self._flush()
        self._running[event.call_id] = event
        self._set_activity(", ".join(map(call_text, self._running.values())))

    def _on_tool_finished(self, event: ToolFinished) -> None:
        started = self._running.pop(event.call_id, None)
        call = call_text(ToolStarted(event.call_id, event.tool, "") if started is None else started)
        mark, style = ("✗", "red") if event.is_error else ("•", "cyan")
        result = result_text(event, call)
        # The result is kept and the call is cut: it was shown in full while it ran.
        room = max(20, self.console.width - len(result[:40]) - 6)
        self.line(f"{mark} {plain_line(call, room)} → {result}", style, one=True)
        self._set_activity(", ".join(map(call_text, self._running.values())) or "going on")

    def _on_notice(self, event: Notice) -> None:
        self._flush()
        self.line(plain_line(event.text, 1_000), "yellow")

    def _on_fold_started(self, event: FoldStarted) -> None:
        self._set_activity(f"folding ~{event.tokens:,} tokens: {plain_line(event.reason, 100)}")

    def _on_fold_finished(self, event: FoldFinished) -> None:
        if (text := fold_text(event)) is not None:
            self.line(text, "magenta")
        if event.error is not None:
            self.line(f"while folding: {plain_line(event.error, 300)}", "dim")

    def _on_limit_learned(self, event: LimitLearned) -> None:
        self.line(f"the server named its limit ({event.limit_of}): {event.limit:,} tokens", "yellow")

    def _on_truncation(self, event: SilentTruncation) -> None:
        self.line(f"⚠ {plain_line(event.reason, 300)}", "yellow")

    def _on_usage_doubted(self, event: UsageDoubted) -> None:
        self.line(f"⚠ {plain_line(event.reason, 300)}", "dim")

    def _on_repaired(self, event: Repaired) -> None:
        repair = event.repair
        self.line(f"repaired in message {repair.seq}: {plain_line(repair.detail, 200)}", "dim")

    def _on_turn_ended(self, event: TurnEnded) -> None:
        self._flush()
        self._stop_live()
        # A cancelled turn has calls without a result; a silent end would look like success.
        for call in self._running.values():
            self.line(f"✗ {call_text(call)} → stopped", "red", one=True)
        self._running.clear()
        if event.message:
            style = "yellow" if event.reason in ("cancelled", "length", "iterations", "paused") else "red"
            self.line(failure_text(event.message), style)
        reply, self._reply = self._reply, None
        if reply is not None:
            self.line(usage_text(reply.figures, estimated=reply.estimated), colour(reply.figures.utilization))

    # --- the answer --------------------------------------------------------------------------------------------------

    def _print_block(self, block: str) -> None:
        lines = self.console.render_lines(markdown(block), pad=False)
        empty = [not "".join(segment.text for segment in line).strip() for line in lines]
        # rich pads blocks with empty lines; the gaps between them are ours.
        first = next((at for at, is_empty in enumerate(empty) if not is_empty), len(lines))
        last = next((at for at in range(len(lines), first, -1) if not empty[at - 1]), first)
        self._print_gap()
        self.console.print(_Lines([*lines[first:last], []]), end="")

    def _print_gap(self) -> None:
        """Print an empty line where an answer follows something else."""
        if self._needs_gap:
            self._needs_gap = False
            self.console.print()

    def _write(self, text: str) -> None:
        """Write text as it comes, where nothing is redrawn."""
        if self.console.options.ascii_only:
            text = text.translate(_ASCII)
        self.console.file.write(text)
        self.console.file.flush()
        self._line_open = not text.endswith("\n")

    def _end_line(self) -> None:
        if self._line_open:
            self._line_open = False
            self.console.file.write("\n")

    def _flush(self) -> None:
        """Print the rest of the answer for good."""
        self._flush_reasoning()
        for block in self._answer.finish():
            self._print_block(block)
        self._end_line()

    def _flush_reasoning(self) -> None:
        """Print one dim line of the reasoning once the model speaks or acts."""
        thought, self._reasoning = self._reasoning, ""
        if thought.strip() and self._answers:
            self.line(f"… {plain_line(thought)}", "dim italic", one=True)


class _Lines:
    """Lines that are already rendered."""

    def __init__(self, lines: list[list[Any]]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: object) -> Iterator[Any]:
        for line in self._lines:
            yield from line
            yield Segment.line()


_HANDLERS: Final[dict[type, Callable[[Screen, Any], None]]] = {
    Calling: Screen._on_calling,
    TextDelta: Screen._on_text,
    ReasoningDelta: Screen._on_reasoning,
    CallStarted: Screen._on_call,
    Retrying: Screen._on_retrying,
    ReplyFinished: Screen._on_reply,
    ToolStarted: Screen._on_tool_started,
    ToolFinished: Screen._on_tool_finished,
    Notice: Screen._on_notice,
    FoldStarted: Screen._on_fold_started,
    FoldFinished: Screen._on_fold_finished,
    LimitLearned: Screen._on_limit_learned,
    SilentTruncation: Screen._on_truncation,
    UsageDoubted: Screen._on_usage_doubted,
    Repaired: Screen._on_repaired,
    TurnEnded: Screen._on_turn_ended,
}
