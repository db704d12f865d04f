"""An answer that streams in: finished blocks of markdown one by one, and what is still being written."""

from __future__ import annotations

import re
from typing import Final

from foldline.text.printable import plain

__all__ = ["Answer"]

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_INDENTED: Final = re.compile(r"[ \t]")
_MOST_CHARS: Final = 20_000
"""A block without an end (a list of thousands of lines) is let go of at its next line end."""


class Answer:
    """Takes text as it comes and gives out whole blocks: paragraphs, lists, tables, fenced code.

    A block ends at an empty line that no indented line follows (that would belong to an item of a list), code where its
    fence does.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._half = ""
        self._fence = ""
        self._gap = False
        self._chars = 0

    @property
    def rest(self) -> str:
        """What has come of the block that is not finished."""
        return "\n".join([*self._lines, self._half]) if self._lines else self._half

    def feed(self, text: str) -> list[str]:
        """Take a piece; the blocks that it finished."""
        done: list[str] = []
        *whole, self._half = (self._half + plain(text)).split("\n")
        for line in whole:
            done += self._take(line)
        return done

    def finish(self) -> list[str]:
        """The last block, if something of it has come. What comes then begins anew."""
        done = self._take(self._half) if self._half else []
        self._half = ""
        return done + self._end()

    def _take(self, line: str) -> list[str]:
        found = _FENCE.match(line)
        if self._fence:
            self._add(line)
            closing = found is not None and found[1].startswith(self._fence) and not found[2].strip()
            return self._end() if closing else []
        if not line.strip():
            self._gap = bool(self._lines)
            return []
        done: list[str] = []
        if self._gap and not _INDENTED.match(line):
            done = self._end()
        elif self._gap:
            self._add("")
        self._gap = False
        if found is not None and "`" not in found[2]:
            done += self._end()
            self._fence = found[1]
        self._add(line)
        if self._chars > _MOST_CHARS and not self._fence:
            done += self._end()
        return done

    def _add(self, line: str) -> None:
        self._lines.append(line)
        self._chars += len(line) + 1

    def _end(self) -> list[str]:
        block = "\n".join(self._lines)
        self._lines, self._fence, self._gap, self._chars = [], "", False, 0
        return [block] if block.strip() else []
