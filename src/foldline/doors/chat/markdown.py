"""A streamed answer: whole Markdown blocks one by one, the block in progress, and their rendering for a terminal."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final

from rich.text import Text

from foldline.text.formatting import plain

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.markdown import Markdown

__all__ = ["AnswerBlocks", "load_renderer", "markdown"]

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_INDENTED: Final = re.compile(r"[ \t]")
# A larger block (a list of thousands of lines) is cut at its next line end, so that the screen keeps up.
_MOST_CHARS: Final = 20_000


class AnswerBlocks:
    """Splits streamed text into whole blocks: paragraphs, lists, tables, fenced code.

    A block ends at an empty line, unless an indented line follows (that belongs to a list item). Code ends with its
    fence.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._partial = ""
        self._fence = ""
        self._gap = False
        self._chars = 0

    @property
    def pending(self) -> str:
        """The text of the block in progress."""
        return "\n".join([*self._lines, self._partial]) if self._lines else self._partial

    def feed(self, text: str) -> list[str]:
        """Add a piece of text; return the blocks that it completes."""
        done: list[str] = []
        # Control characters are made visible one by one, so a sequence that two pieces share does not escape.
        *whole, self._partial = (self._partial + plain(text)).split("\n")
        for line in whole:
            done += self._add_line(line)
        return done

    def finish(self) -> list[str]:
        """Return the last block, if any, and start over."""
        done = self._add_line(self._partial) if self._partial else []
        self._partial = ""
        return done + self._close_block()

    def _add_line(self, line: str) -> list[str]:
        found = _FENCE.match(line)
        if self._fence:
            self._append(line)
            # A closing fence is at least as long as the opening one, and has no info string (CommonMark 0.31, 4.5).
            closing = found is not None and found[1].startswith(self._fence) and not found[2].strip()
            return self._close_block() if closing else []
        if not line.strip():
            self._gap = bool(self._lines)
            return []
        done: list[str] = []
        # Markdown allows blank lines inside a list item, so a gap ends a block only if no indented line follows.
        if self._gap and not _INDENTED.match(line):
            done = self._close_block()
        elif self._gap:
            self._append("")
        self._gap = False
        # CommonMark 0.31, 4.5: the info string of a backtick fence has no backtick, else it is inline code.
        if found is not None and "`" not in found[2]:
            done += self._close_block()
            self._fence = found[1]
        self._append(line)
        if self._chars > _MOST_CHARS and not self._fence:
            done += self._close_block()
        return done

    def _append(self, line: str) -> None:
        self._lines.append(line)
        self._chars += len(line) + 1

    def _close_block(self) -> list[str]:
        block = "\n".join(self._lines)
        self._lines, self._fence, self._gap, self._chars = [], "", False, 0
        return [block] if block.strip() else []


# rich.markdown takes longer to load than a person takes to begin to type, so it is not loaded with this module.
@cache
def load_renderer() -> type[Markdown]:
    """Load the markdown renderer and return it. Call it in a thread to have it ready for the first answer."""
    from rich import markdown as rich_markdown

    class _Heading(rich_markdown.Heading):
        """A heading as a line of its own, at the left, without a box."""

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            self.text.justify = "left"
            yield self.text

    class _Markdown(rich_markdown.Markdown):
        elements: ClassVar[dict[str, Any]] = {**rich_markdown.Markdown.elements, "heading_open": _Heading}

    return _Markdown


def markdown(block: str) -> Markdown | Text:
    """Render a block. Nothing is left out: HTML stays as written, links keep their address."""
    try:
        # The 16 colours of the terminal, which its user has chosen. No hyperlinks: they would hide the address.
        drawn = load_renderer()(block, code_theme="ansi_dark", hyperlinks=False)
    except RecursionError:  # nested deeper than anybody writes
        return Text(block)
    # rich drops HTML. A model that explains HTML would seem to have said nothing.
    for token in drawn.parsed:
        if token.type == "html_block":
            token.type, token.tag, token.info = "fence", "code", ""
        for child in token.children or ():
            if child.type == "html_inline":
                child.type = "text"
    return drawn
