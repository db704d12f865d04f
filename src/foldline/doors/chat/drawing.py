"""Markdown as a terminal shows it. Loaded when the first answer comes: reading markdown takes long to load."""

from __future__ import annotations

from typing import Any, ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown
from rich.text import Text

__all__ = ["markdown"]


class _Heading(Heading):
    """A heading as a line of its own, at the left, without a box."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Markdown(Markdown):
    elements: ClassVar[dict[str, Any]] = {**Markdown.elements, "heading_open": _Heading}


def markdown(block: str) -> Markdown | Text:
    """A block, drawn. Nothing of it is left out: HTML is shown as it stands, links with their address."""
    try:
        drawn = _Markdown(block, code_theme="ansi_dark", hyperlinks=False)
    except RecursionError:  # nested deeper than anybody writes
        return Text(block)
    for token in drawn.parsed:
        if token.type == "html_block":
            token.type, token.tag, token.info = "fence", "code", ""
        for child in token.children or ():
            if child.type == "html_inline":
                child.type = "text"
    return drawn
