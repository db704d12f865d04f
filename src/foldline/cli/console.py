"""Where commands write lines for people: as wide as the terminal, with nothing in them that it would obey."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from foldline.cli.files import terminal
from foldline.text.printable import plain

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Sheet"]

_ASCII: Final = str.maketrans({"→": ">", "←": "<", "…": "~", "–": "-", "·": "-", "█": "#", "░": "."})


class Sheet:
    """Standard output, line by line. What is recorded is made plain here, whatever it holds."""

    def __init__(self) -> None:
        self.console: Console = terminal()
        self.width = self.console.width
        self._ascii_only = self.console.options.ascii_only

    def line(self, text: str = "", style: str | None = None) -> None:
        """One line, cut where the terminal ends."""
        from rich.cells import cell_len, set_cell_size

        text = " ".join(plain(text).splitlines())
        if cell_len(text) > self.width:
            text = set_cell_size(text, self.width - 1).rstrip() + "…"
        self._print(text.rstrip(), style)

    def words(self, text: str, style: str | None = None) -> None:
        """A text that wraps."""
        self.console.print(self._fit(plain(text)), style=style)

    def path(self, text: str) -> None:
        """A path, whole: a terminal that is too narrow breaks it, so that it can still be copied."""
        self.console.print(plain(text), soft_wrap=True)

    def block(self, text: str, indent: str = "  ") -> None:
        """A text of many lines; long lines go on in the next one."""
        from rich.cells import chop_cells

        for line in plain(text).expandtabs(4).split("\n"):
            for piece in chop_cells(line, max(8, self.width - len(indent))) or [""]:
                self._print(f"{indent}{piece}".rstrip(), None)

    def whole(self, text: str, indent: str = "  ") -> None:
        """A text of many lines, each as long as it is: a terminal folds it, a file has it as it was."""
        for line in plain(text).expandtabs(4).split("\n"):
            self._print(f"{indent}{line}".rstrip(), None)

    def _print(self, text: str, style: str | None) -> None:
        self.console.print(self._fit(text), style=style, no_wrap=True, crop=False, overflow="ignore")

    def _fit(self, text: str) -> str:
        return text.translate(_ASCII) if self._ascii_only else text
