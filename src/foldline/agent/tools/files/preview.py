"""What a person is shown of a file before it is written: what is new in it, or what changes, in a few dozen lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from typing import Final

from foldline.agent.tools.permission import one_line

__all__ = ["CONTEXT_LINES", "clipped", "preview"]

CONTEXT_LINES: Final = 2
SHOWN_LINES: Final = 40
SHOWN_CHARS: Final = 300
GOING_LINES: Final = 5
"""Lines of a long change that are shown of those that go together: what comes matters more, and must not be crowded
out by them."""
COMPARED_LINES: Final = 1_000
"""Longer changes are not compared line by line (that takes quadratic time): all of the old goes, all of the new comes.
"""


def clipped(line: str) -> str:
    """A line as a terminal may get it, cut where it is very long; how much more there is is said."""
    line = one_line(line)
    return line if len(line) <= SHOWN_CHARS else f"{line[:SHOWN_CHARS]}… ({len(line) - SHOWN_CHARS:,} more characters)"


def preview(old: str | None, new: str) -> list[str]:
    """The lines of a new file ("+" before each), or the change from `old` as a diff; how many more there are is said.

    No line of a file begins with the mark "…" here. O(size), and O(COMPARED_LINES²) at most.
    """
    if old is None:
        return _first([f"+{line}" for line in _lines(new)])
    changes = list(_changes(_lines(old), _lines(new)))
    return _first(changes) if changes else ["… no line changes"]


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def _first(lines: Sequence[str]) -> list[str]:
    """The first of these lines. Where there are too many, long runs of lines that go are cut first."""
    told = [_counted(line) for line in lines]
    if len(told) > SHOWN_LINES:
        told = []
        for goes, run in groupby(lines, lambda line: line.startswith("-")):
            whole = list(run)
            shown = whole[:GOING_LINES] if goes else whole
            told += map(_counted, shown)
            if len(whole) > len(shown):
                told.append((f"… {len(whole) - len(shown):,} more lines that go", len(whole) - len(shown)))
    out = [clipped(line) for line, _ in told[:SHOWN_LINES]]
    if hidden := sum(count for _, count in told[SHOWN_LINES:]):
        out.append(f"… {hidden:,} more line{'s' * (hidden != 1)} of this change not shown")
    return out


def _counted(line: str) -> tuple[str, int]:
    """A line that may be shown, and how many lines of a file it stands for."""
    return line, int(not line.startswith("@@"))


def _changes(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """The change as a diff: each place with the lines around it."""
    least = min(len(old), len(new))
    head = next((at for at in range(least) if old[at] != new[at]), least)
    tail = next((at for at in range(least - head) if old[-1 - at] != new[-1 - at]), least - head)
    start, after = max(0, head - CONTEXT_LINES), min(tail, CONTEXT_LINES)
    gone, come = old[start : len(old) - tail + after], new[start : len(new) - tail + after]
    for group in _places(gone, come, head - start, after):
        kind, first, last, _, _ = group[0]
        yield f"@@ line {start + (last if kind == 'equal' else first) + 1:,} @@"
        for kind, first, last, new_first, new_last in group:
            if kind == "equal":
                yield from (f" {line}" for line in gone[first:last])
            else:
                yield from (f"-{line}" for line in gone[first:last])
                yield from (f"+{line}" for line in come[new_first:new_last])


def _places(
    gone: Sequence[str], come: Sequence[str], before: int, after: int
) -> Iterator[Sequence[tuple[str, int, int, int, int]]]:
    """Where they differ, as difflib has it; `before` and `after` lines are the same in both."""
    if max(len(gone), len(come)) <= COMPARED_LINES:
        yield from SequenceMatcher(None, gone, come).get_grouped_opcodes(CONTEXT_LINES)
        return
    end, new_end = len(gone) - after, len(come) - after
    yield [
        ("equal", 0, before, 0, before),
        ("replace", before, end, before, new_end),
        ("equal", end, len(gone), new_end, len(come)),
    ]
