"""Sessions in five parts by where they come from, so that what is settled on some sources is judged by the others.

Sessions of one source are alike: the same agent, the same tools, often the same tasks. A setting that was chosen with
some of them and measured on others of the same source shows how well it remembers, not how well it carries over.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Literal

from foldline.text.formatting import plural

__all__ = ["PARTS", "SessionParts", "parts_of", "source_of"]

PARTS: Final = 5
"""Four to settle on and one to judge by: fewer would leave too little to settle on, more too little to judge by."""

# "3f2a9c1e-…" or "20261128-…": a name that begins like this is a number, and says nothing of where it comes from.
_NUMBER: Final = re.compile(r"[0-9a-f]+", re.IGNORECASE)


def source_of(source: str, place: str) -> str:
    """Return where a session comes from: its own word for it, else the start of its file's name, else its folder.

    The start is what stands before the first "-": "support" of "support-0042.json". A name without one, or that begins
    with a number, says nothing.
    """
    named = source.partition(" (")[0].strip()
    if named:
        return named
    folder, file = os.path.split(place)
    start, dash, _ = file.partition("-")
    return start if dash and start and not _NUMBER.fullmatch(start) else os.path.basename(folder)


@dataclass(frozen=True, slots=True)
class SessionParts:
    """Names of sessions in parts, the largest part first, and how they were made.

    `by` "source": all sessions of a source are in one part. `by` "hash": there were too few sources, and sessions of
    one source are in several parts.
    """

    parts: tuple[tuple[str, ...], ...]
    by: Literal["source", "hash"]
    sources: int

    def about(self) -> str:
        """Say in words how the parts were made."""
        if self.by == "source":
            where = f"{plural(self.sources, 'source')} in {plural(len(self.parts), 'part')}"
            return f"parts by source: {where}, none torn apart"
        those = "is only 1 source" if self.sources == 1 else f"are only {self.sources} sources"
        return (
            f"parts by hash, as there {those} and not {len(self.parts)}: sessions of one source are on both sides, "
            "so the figures say little about sessions from elsewhere"
        )


def parts_of(sources: Mapping[str, str], count: int = PARTS) -> SessionParts:
    """Divide sessions, given by name with their sources, into `count` parts of similar size; fewer into one each.

    O(sessions · log sessions). The same sessions give the same parts.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for name, source in sources.items():
        groups[source].append(name)
    parts: list[list[str]] = [[] for _ in range(min(count, len(sources)))]
    by: Literal["source", "hash"] = "hash" if len(groups) < len(parts) else "source"
    if by == "hash":
        # A hash and not the order of names: neighbours are alike.
        for place, name in enumerate(
            sorted(sources, key=lambda name: sha256(name.encode("utf-8", "surrogateescape")).digest())
        ):
            parts[place % len(parts)].append(name)
    else:
        # The largest source first, each into the part that is smallest so far (Graham's rule for even loads, 1969).
        for source in sorted(groups, key=lambda source: (-len(groups[source]), source)):
            min(parts, key=len).extend(groups[source])
    ranked = sorted((tuple(sorted(part)) for part in parts), key=lambda part: (-len(part), part))
    return SessionParts(tuple(ranked), by, len(groups))
