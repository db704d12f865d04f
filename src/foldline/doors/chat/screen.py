"""Shows what an agent tells: each event becomes lines on a rich console, and a spinner says what runs."""

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

_FIELD_COLUMNS: Final = 9
_REASONING_CHARS: Final = 2_000
# A block that is being written is drawn as markdown up to this size, as plain lines beyond it.
_TAIL_CHARS: Final = 4_000
_ASCII: Final = str.maketrans({"→": "->", "·": "-", "✗": "x", "•": "*", "…": "...", "⚠": "!", "⟲": "~", "─": "-"})


class Screen:
    """What is shown of a conversation. `hear` is the listener of the agent; the rest is for whoever drives it.

    On a terminal what is being written and the spinner are redrawn in place, and finished text scrolls up as it is. On
    anything else (`live` False) text is written as it comes, and nothing twice. With `answers` False the answer itself
    is not shown: for scripts, who get it elsewhere.
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
        self._animated = console.is_terminal and not console.is_dumb_terminal if live is None else live
        self._answers = answers
        self._clock = clock
        self._live: Live | None = None
        self._spinner: Spinner | None = None
        self._answer = AnswerBlocks()
        self._written = False
        self._reasoning = ""
        self._running: dict[str, ToolStarted] = {}
        self._busy = ""
        self._since = 0.0
        self._reply: ReplyFinished | None = None
        self._held: list[AgentEvent] | None = None
        self._apart = False

    # --- lines -------------------------------------------------------------------------------------------------------

    def line(self, text: str, style: str = "", *, one: bool = False) -> None:
        """Print a text of ours, in which foreign words may stand; with `one` it is cut at the width."""
        text = plain(text)
        if self.console.options.ascii_only:
            text = text.translate(_ASCII)
        self._end_line()
        self._apart = True
        if self.console.soft_wrap and not one:  # nobody looks at it as it comes: a line stays a line, for grep
            self.console.print(Text(text, style=style))
            return
        overflow: OverflowMethod = "fold" if not one else "crop" if self.console.options.ascii_only else "ellipsis"
        self.console.print(Text(text, style=style), no_wrap=one, overflow=overflow, crop=True, soft_wrap=False)

    def pairs(self, rows: Sequence[tuple[str, str]]) -> None:
        """Print names and what they mean, in two columns that wrap by themselves."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for name, meaning in rows:
            grid.add_row(Text(name), Text(meaning))
        self.show(grid)

    def field(self, name: str, text: str, style: str = "dim") -> None:
        """Print a name and what it is; it wraps beside the name. With an empty name it goes on with the one before."""
        room = max(20, self.console.width - _FIELD_COLUMNS)
        for line in Text(plain(text)).wrap(self.console, room, overflow="fold"):
            self.line(f"{name:<{_FIELD_COLUMNS}}{line.plain.rstrip()}", style)
            name = ""

    def error(self, text: str) -> None:
        """Print what went wrong."""
        self.line(failure_text(text), "red")

    def show(self, drawn: RenderableType) -> None:
        """Print anything that rich can draw."""
        self._end_line()
        self._apart = True
        self.console.print(drawn)

    # --- what runs ---------------------------------------------------------------------------------------------------

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Show what runs until the block ends, however it ends."""
        self._start(what)
        try:
            yield
        finally:
            self._stop()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Take the display away while a person is asked something."""
        what, was = self._busy, self._live is not None
        self._flush()
        self._halt()
        held = self._held = []  # calls beside the one that is asked for end meanwhile: not into the question
        try:
            yield
        finally:
            self._held = None
            if was:
                self._start(what)
            for event in held:
                self.hear(event)

    def tick(self) -> None:
        """Draw again what is redrawn in place. To be called a few times a second."""
        if self._live is not None:
            self._live.refresh()

    def _start(self, what: str) -> None:
        self._busy, self._since = what, self._clock()
        if self._animated and self._live is None:
            self._spinner = Spinner("line" if self.console.options.ascii_only else "dots", style="cyan")
            self._live = Live(
                console=self.console,
                get_renderable=self._region,
                auto_refresh=False,  # by `tick`: a thread of its own would read what is being changed
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
                vertical_overflow="crop",
            )
            self._live.start()

    def _stop(self) -> None:
        self._flush()
        self._halt()
        self._running.clear()
        self._busy = ""

    def _halt(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _now(self, what: str) -> None:
        if what != self._busy:
            self._busy, self._since = what, self._clock()

    def _region(self) -> RenderableType:
        """What is redrawn in place: the block that is being written, and the spinner with what runs."""
        parts: list[RenderableType] = []
        if tail := self._answer.rest:
            parts.append(self._tail(tail))
        elif self._reasoning:
            parts.append(Text(plain_line(self._reasoning[-self.console.width :]), "dim italic", no_wrap=True))
        if self._spinner is not None and self._busy:
            seconds = self._clock() - self._since
            wait = f" {seconds_text(seconds)}" if seconds >= 2 else ""
            words = Text(f"{self._busy}{wait}", style="dim", no_wrap=True, overflow="ellipsis")
            self._spinner.update(text=words)
            parts.append(self._spinner)
        return Group(*parts)

    def _tail(self, tail: str) -> RenderableType:
        rows = max(3, self.console.height - 5)
        width = max(20, self.console.width)
        drawn = markdown(tail) if len(tail) <= _TAIL_CHARS else Text("\n".join(tail.splitlines()[-rows:]))
        lines = self.console.render_lines(drawn, self.console.options.update(width=width), pad=False)
        return _Lines(lines[-rows:])

    # --- events ------------------------------------------------------------------------------------------------------

    def hear(self, event: AgentEvent) -> None:
        """Show one event; while a person is asked something, after that."""
        if self._held is not None:
            self._held.append(event)
            return
        heard = _HANDLERS.get(type(event))
        if heard is not None:
            heard(self, event)

    def _calling(self, event: Calling) -> None:
        self._now(calling_text(event, self.model))

    def _text(self, event: TextDelta) -> None:
        self._thought()
        self._now("answering")
        if not self._answers:
            return
        if self._animated:
            for block in self._answer.feed(event.text):
                self._block(block)
        elif text := plain(event.text):
            self._part()
            self._write(text)

    def _reasons(self, event: ReasoningDelta) -> None:
        self._now("thinking")
        self._reasoning = (self._reasoning + event.text)[:_REASONING_CHARS]

    def _call(self, event: CallStarted) -> None:
        self._flush()
        self._now(f"writing a call of {plain_line(event.name, 64)}")

    def _retrying(self, event: Retrying) -> None:
        self._now(f"waiting to try again ({plain_line(event.reason, 60)})")
        self.line(
            f"⟲ {plain_line(event.reason, 200)}; trying again in {event.wait_seconds:.1f} s (attempt {event.attempt})",
            "yellow",
        )

    def _replied(self, event: ReplyFinished) -> None:
        self._flush()
        self._reply = event

    def _started(self, event: ToolStarted) -> None:
        self._flush()
        self._running[event.call_id] = event
        self._now(", ".join(map(call_text, self._running.values())))

    def _finished(self, event: ToolFinished) -> None:
        started = self._running.pop(event.call_id, None)
        call = call_text(ToolStarted(event.call_id, event.tool, "") if started is None else started)
        mark, style = ("✗", "red") if event.is_error else ("•", "cyan")
        result = result_text(event, call)
        room = max(20, self.console.width - len(result[:40]) - 6)
        self.line(f"{mark} {plain_line(call, room)} → {result}", style, one=True)
        self._now(", ".join(map(call_text, self._running.values())) or "going on")

    def _noticed(self, event: Notice) -> None:
        self._flush()
        self.line(plain_line(event.text, 1_000), "yellow")

    def _folding(self, event: FoldStarted) -> None:
        self._now(f"folding ~{event.tokens:,} tokens: {plain_line(event.reason, 100)}")

    def _folded(self, event: FoldFinished) -> None:
        if (text := fold_text(event)) is not None:
            self.line(text, "magenta")
        if event.error is not None:
            self.line(f"while folding: {plain_line(event.error, 300)}", "dim")

    def _learned(self, event: LimitLearned) -> None:
        self.line(f"the server told its limit ({event.limit_of}): {event.limit:,} tokens", "yellow")

    def _truncated(self, event: SilentTruncation) -> None:
        self.line(f"⚠ {plain_line(event.reason, 300)}", "yellow")

    def _usage_doubted(self, event: UsageDoubted) -> None:
        self.line(f"⚠ {plain_line(event.reason, 300)}", "dim")

    def _repaired(self, event: Repaired) -> None:
        repair = event.repair
        self.line(f"repaired in message {repair.seq}: {plain_line(repair.detail, 200)}", "dim")

    def _ended(self, event: TurnEnded) -> None:
        self._flush()
        self._halt()
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

    def _block(self, block: str) -> None:
        lines = self.console.render_lines(markdown(block), pad=False)
        empty = [not "".join(segment.text for segment in line).strip() for line in lines]
        first = next((at for at, is_empty in enumerate(empty) if not is_empty), len(lines))
        last = next((at for at in range(len(lines), first, -1) if not empty[at - 1]), first)
        self._part()
        self.console.print(_Lines([*lines[first:last], []]), end="")

    def _part(self) -> None:
        """An empty line where an answer follows something else."""
        if self._apart:
            self._apart = False
            self.console.print()

    def _write(self, text: str) -> None:
        """Text as it comes, where nothing is redrawn."""
        if self.console.options.ascii_only:
            text = text.translate(_ASCII)
        self.console.file.write(text)
        self.console.file.flush()
        self._written = not text.endswith("\n")

    def _end_line(self) -> None:
        if self._written:
            self._written = False
            self.console.file.write("\n")

    def _flush(self) -> None:
        """Show for good what has come of an answer."""
        self._thought()
        for block in self._answer.finish():
            self._block(block)
        self._end_line()

    def _thought(self) -> None:
        """One dim line for what the model was thinking, once it begins to speak or to act."""
        thought, self._reasoning = self._reasoning, ""
        if thought.strip() and self._answers:
            self.line(f"… {plain_line(thought)}", "dim italic", one=True)


class _Lines:
    """Lines that are rendered already."""

    def __init__(self, lines: list[list[Any]]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: object) -> Iterator[Any]:
        for line in self._lines:
            yield from line
            yield Segment.line()


_HANDLERS: Final[dict[type, Callable[[Screen, Any], None]]] = {
    Calling: Screen._calling,
    TextDelta: Screen._text,
    ReasoningDelta: Screen._reasons,
    CallStarted: Screen._call,
    Retrying: Screen._retrying,
    ReplyFinished: Screen._replied,
    ToolStarted: Screen._started,
    ToolFinished: Screen._finished,
    Notice: Screen._noticed,
    FoldStarted: Screen._folding,
    FoldFinished: Screen._folded,
    LimitLearned: Screen._learned,
    SilentTruncation: Screen._truncated,
    UsageDoubted: Screen._usage_doubted,
    Repaired: Screen._repaired,
    TurnEnded: Screen._ended,
}
