"""Texts for a file that is too large to be read whole: a preview, and how to read it in parts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from foldline.errors import InvalidInput
from foldline.reducers.result_share import share_tokens
from foldline.text.shorten import clip_tokens
from foldline.tokens import ESTIMATE, Counter

__all__ = ["Room", "file_part", "file_refusal", "file_view", "line_bounds", "preview_lines", "size_text"]

# The words and figures of this module are those of the documented file tool. Models are measured with them, so a change
# of wording is a change of behaviour.
PREVIEW_LINES = 50

# A preview is a look, not a read: fifty lines of ordinary text are well under this.
PREVIEW_TOKENS = 2_000
CHUNK_LINES = 500


@dataclass(frozen=True, slots=True)
class Room:
    """The room that a window has left for one result."""

    window_tokens: int
    used_tokens: int = 0

    @property
    def budget_tokens(self) -> int:
        """Tokens that one result may take: the smaller of 25 % of the window and 50 % of what is left."""
        # The same share as the guard that cuts results after the fact: a file that passes here is not cut there.
        return share_tokens(self.window_tokens, self.used_tokens)

    def share(self, tokens: int) -> float:
        """Tokens as a share of the window."""
        return tokens / self.window_tokens if self.window_tokens > 0 else 0.0


def file_view(
    path: str,
    text: str,
    room: Room,
    *,
    start_line: object = None,
    end_line: object = None,
    counter: Counter = ESTIMATE,
) -> str:
    """A file as a model may read it: whole, the requested lines, or a refusal that says how to continue.

    Lines count from 1, `end_line` included. Raises InvalidInput for bounds that are no such numbers. O(size).
    """
    # Split at \n alone, as editors count lines; `splitlines` would also split at form feeds and U+2028.
    lines = text.removesuffix("\n").split("\n")
    if start_line is None and end_line is None:
        tokens = counter.text(text)
        if tokens <= room.budget_tokens:
            return text
        return file_refusal(
            path,
            # A lone surrogate may come from a file name or a decoder; the size is all that is wanted here.
            size_bytes=len(text.encode("utf-8", "surrogatepass")),
            tokens=tokens,
            total_lines=len(lines),
            first_lines=lines[:PREVIEW_LINES],
            room=room,
            counter=counter,
        )
    start, stop = line_bounds(start_line, end_line, len(lines))
    return file_part(lines[start - 1 : stop], start, room, counter=counter)


def line_bounds(start_line: object, end_line: object, total: int) -> tuple[int, int]:
    """The first and the last line of a part, from the arguments of a model and the `total` of lines.

    Raises InvalidInput for a bound that is no integer, that lies outside the file, or that ends before the start.
    """
    # The arguments come from a model: text, floats and true occur. A bool is an int to Python, but no line number.
    for place, value in (("start_line", start_line), ("end_line", end_line)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise InvalidInput(f"must be an integer, not {value!r}", place=place)
    start = start_line if isinstance(start_line, int) else 1
    stop = end_line if isinstance(end_line, int) else total
    if not 1 <= start <= total:
        raise InvalidInput(f"must be from 1 to {total:,}, the lines of the file, not {start:,}", place="start_line")
    if stop < start:
        raise InvalidInput(f"must not be before start_line ({start:,}), not {stop:,}", place="end_line")
    return start, min(stop, total)


def file_part(
    lines: Sequence[str], start: int, room: Room, *, stop: int | None = None, counter: Counter = ESTIMATE
) -> str:
    """Lines from number `start` on, cut to the budget with a notice.

    `stop` is the last requested line, when `lines` are only the first of them.
    """
    budget_tokens = room.budget_tokens
    text = "\n".join(lines)
    if counter.text(text) <= budget_tokens:
        return text
    # Whole lines if at least one fits, so that the model can go on at a line number. Else part of the one long line.
    kept = clip_tokens(text, budget_tokens, counter)[0]
    whole = kept.count("\n")
    stop = stop or start + len(lines) - 1
    if whole:
        kept = kept[: kept.rindex("\n")]
        return (
            f"{kept}\n[⚠ cut: lines {start}-{start + whole - 1} of the lines {start}-{stop} asked for; the budget for "
            f"this read is ~{budget_tokens:,} tokens. Go on with start_line={start + whole}.]"
        )
    return (
        f"{kept}\n[⚠ cut: {len(kept):,} of the {len(lines[0]):,} characters of line {start}; the budget for this read "
        f"is ~{budget_tokens:,} tokens.]"
    )


def file_refusal(
    path: str,
    *,
    size_bytes: int,
    tokens: int,
    total_lines: int,
    first_lines: Sequence[str],
    room: Room,
    counter: Counter = ESTIMATE,
) -> str:
    """The text in place of a file over its budget: its figures, its first lines, how to read it in parts.

    The preview takes half of the budget at most, so that the refusal of a large file is never large itself.
    """
    budget = room.budget_tokens
    head = preview_lines(first_lines, min(PREVIEW_TOKENS, budget // 2), counter)
    # Nine tenths: lines differ in length, and a part that is cut costs one more call.
    chunk = max(1, min(CHUNK_LINES, budget * 9 * total_lines // (10 * max(1, tokens))))
    # Calls that can be copied as they are: models repeat an example more reliably than they follow a description.
    parts = [
        f"  - read_file(path={json.dumps(path, ensure_ascii=False)}, start_line={first}, "
        f"end_line={min(first + chunk - 1, total_lines)})"
        for first in (1, chunk + 1)
        if first <= total_lines
    ]
    if total_lines > 2 * chunk:
        parts.append(f"  - ...and so on in chunks of ~{chunk} lines")
    return "\n".join(
        [
            "⚠ FILE TOO LARGE FOR FULL READ",
            "",
            f"File: {path}",
            f"Size: {size_text(size_bytes)} (~{tokens:,} tokens)",
            f"Total lines: {total_lines:,}",
            f"Would occupy: {room.share(tokens):.1%} of context window",
            f"Current context usage: {room.share(room.used_tokens):.1%}",
            f"Budget for this read: ~{budget:,} tokens",
            "",
            f"--- Preview (lines 1-{len(head)}) ---" if head else "--- Preview (no room for one) ---",
            *head,
            "--- End of preview ---",
            "",
            "To read this file, use partial reads:",
            *parts,
            "",
            "Or delegate to a sub-agent that can process the file in its own context window.",
        ]
    )


def preview_lines(lines: Sequence[str], most_tokens: int = PREVIEW_TOKENS, counter: Counter = ESTIMATE) -> list[str]:
    """The first lines, at most fifty, within `most_tokens`; the line that goes over is cut."""
    out: list[str] = []
    left = most_tokens
    for line in lines[:PREVIEW_LINES]:
        # One for the line break.
        tokens = counter.text(line) + 1
        if tokens > left:
            piece = clip_tokens(line, left - 2, counter)[0] if left > 2 else ""
            return [*out, f"{piece}…"] if piece else out
        out.append(line)
        left -= tokens
    return out


def size_text(size_bytes: int) -> str:
    """A size for people: "812 bytes", "3.4 KB", "1.2 MB"."""
    for unit, bytes_each in (("MB", 1024 * 1024), ("KB", 1024)):
        if size_bytes >= bytes_each:
            return f"{size_bytes / bytes_each:.1f} {unit}"
    return f"{size_bytes} bytes"
