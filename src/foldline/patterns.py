"""Regular expressions that cannot hang."""

from __future__ import annotations

import re

from foldline.errors import InvalidInput

__all__ = ["Pattern"]


class Pattern:
    """A pattern to search lines for. Raises InvalidInput for one that does not compile."""

    def __init__(self, pattern: str) -> None:
        try:
            self._compiled = re.compile(pattern)
        except re.error as error:
            raise InvalidInput(f"not a regular expression: {error}", place="pattern") from None

    def search(self, line: str) -> int | None:
        """Where the first match ends; None if there is none."""
        found = self._compiled.search(line)
        return None if found is None else found.end()
