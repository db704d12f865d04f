"""What a row of the tables is: a wording, and what it means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from foldline.failures.parts import PartKind

__all__ = ["Kind", "Row"]

Kind = Literal[
    "prompt_overflow",
    "output_overflow",
    "bytes_overflow",
    "image",
    "document",
    "malformed",
    "request_too_large_for_rate",
    "rate",
    "quota",
    "auth",
    "ambiguous",
    "other",
]


@dataclass(frozen=True, slots=True)
class Row:
    """One wording: `pattern` is searched in the text, or must be the whole of a code (`where`).

    `statuses`, if given, are the only HTTP statuses for which the row speaks. `part` is what of the request is refused.
    """

    id: str
    kind: Kind
    provider: str
    source: str
    pattern: str
    where: Literal["text", "code"] = "text"
    statuses: tuple[int, ...] = ()
    part: PartKind | None = None
