"""Names of files by wildcards, matched in one pass whatever a model writes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from foldline.errors import InvalidInput
from foldline.text.safe_regex import Pattern, Work

__all__ = ["Glob"]

_PIECE = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\]|\{|\}|,|.", re.DOTALL)
MOST_CHARS = 1_000
_PLAIN = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


@dataclass(frozen=True, slots=True, init=False)
class Glob:
    """Wildcards: * and ? within a name, ** over folders, [a-z], {a,b}. Without a "/" it is for names in any folder.

    All matches together take no more than `work`. Raises InvalidInput.
    """

    text: str
    _pattern: Pattern
    _work: Work

    def __init__(self, text: str, work: Work | None = None) -> None:
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "_work", work or Work())
        if len(text) > MOST_CHARS:
            raise InvalidInput(f"has {len(text):,} characters, more than {MOST_CHARS:,}", place=repr(text[:80]))
        try:
            pattern = Pattern(rf"(?s)\A(?:{_expression(text.removeprefix('./'))})\Z")
        except InvalidInput as error:
            raise InvalidInput(f"is not a pattern of names: {error.reason}", place=repr(text[:80])) from None
        object.__setattr__(self, "_pattern", pattern)

    def matches(self, *paths: str) -> bool:
        """Whether it fits one of the ways to write a path; of a pattern without "/" the name counts.

        Raises OutOfSteps, and what the work raises.
        """
        tried = paths if "/" in self.text else (paths[0].rpartition("/")[2],)
        return any(self._pattern.search(path, self._work) is not None for path in tried)


def _expression(glob: str) -> str:
    out: list[str] = []
    depth = 0
    for found in _PIECE.finditer(glob):
        piece = found[0]
        if piece in _PLAIN:
            out.append(_PLAIN[piece])
        elif piece == "{":
            depth += 1
            out.append("(?:")
        elif piece == "}" and depth:
            depth -= 1
            out.append(")")
        elif piece == "," and depth:
            out.append("|")
        elif len(piece) > 1:
            inner = piece[1:-1]
            negated = inner.startswith("!")
            out.append(f"[{'^' if negated else ''}{_class(inner[negated:])}]")
        else:
            out.append(re.escape(piece))
    return "".join(out) + ")" * depth


def _class(inner: str) -> str:
    return re.sub(r"([\\\[\]^&~|])", r"\\\1", inner)
