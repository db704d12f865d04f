"""Reads entries as they were appended, shown or folded: an excerpt of one, a search in all.

Answers are bounded: an entry that was folded for its size must not return to the window in full.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from foldline.codecs.base import Codec
from foldline.errors import InvalidInput
from foldline.messages import Document, Message, Opaque, Reasoning, Text
from foldline.text.safe_regex import Pattern, Work
from foldline.view.transcript import Entry, Seq

__all__ = ["entry_excerpt", "excerpt", "full_text", "grep", "search", "search_text"]

# Bounds of one excerpt; the characters are about 5,000 tokens. A model that asks for all of a large entry gets its
# beginning and the place to go on from: less than that would cost it a call for every page.
MOST_LINES = 400
MOST_CHARS = 20_000

# Bounds of one search: lines, and characters of one line, which is cut to the part around the match.
MOST_FOUND = 200
LINE_CHARS = 400


def entry_excerpt(
    codec: Codec,
    entries: Mapping[Seq, Entry],
    seq: Seq,
    *,
    start_line: int = 1,
    start_char: int = 1,
    lines: int = 50,
    call_id: str | None = None,
) -> str:
    """Lines of an entry; with `call_id` of that result or that call's arguments. See `excerpt`.

    Raises InvalidInput for an entry, call or line that does not exist. O(size of the entry).
    """
    entry = _entry(entries, seq)
    found = full_text(_original(codec, entry), call_id)
    if found is None:
        raise InvalidInput(f"entry {seq} has neither a call nor a result {call_id!r}", place="call_id")
    return excerpt(found, f"entry {seq}", start_line=start_line, start_char=start_char, lines=lines)


def excerpt(text: str, name: str, *, start_line: int = 1, start_char: int = 1, lines: int = 50) -> str:
    """The lines of a text from `start_line` on, the first of them from `start_char` on; both count from 1.

    At most 400 lines and 20,000 characters; a last line says where to continue. Raises InvalidInput for a line or
    character that does not exist. O(size of the text).
    """
    for place, number in (("start_line", start_line), ("start_char", start_char), ("lines", lines)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise InvalidInput(f"must be a whole number from 1 on, not {number!r}", place=place)
    # Only at line feeds, not `splitlines`: line numbers have to agree with those of `grep`, and of other tools.
    found = text.split("\n")
    if start_line > len(found):
        raise InvalidInput(f"{name} has {len(found):,} lines", place="start_line")
    if start_char > max(1, len(found[start_line - 1])):
        raise InvalidInput(f"line {start_line} has {len(found[start_line - 1]):,} characters", place="start_char")
    return _shown(found, start_line, start_char, lines)


def _shown(text: list[str], start_line: int, start_char: int, lines: int) -> str:
    shown: list[str] = []
    chars = 0
    first, *rest = text[start_line - 1 : start_line - 1 + min(lines, MOST_LINES)]
    for line in (first[start_char - 1 :], *rest):
        room = MOST_CHARS - chars
        if len(line) > room:
            # A cut line ends the excerpt. Its rest is read by `start_char`; with the next line it would be lost.
            shown.append(f"{line[:room]}… [{len(line) - room:,} more characters in this line]")
            break
        shown.append(line)
        chars += len(line) + 1
        if chars >= MOST_CHARS:
            break
    stop = start_line - 1 + len(shown)
    if stop < len(text):
        shown.append(f"[lines {start_line:,}-{stop:,} of {len(text):,}; go on with start_line={stop + 1}]")
    return "\n".join(shown)


def grep(
    codec: Codec,
    entries: Mapping[Seq, Entry],
    pattern: str,
    *,
    seq: Seq | None = None,
    work: Work | None = None,
) -> list[tuple[Seq, int, str]]:
    """(seq, line number from 1, line) of each line that matches `pattern`, oldest first, 200 at most.

    Line numbers are those of `entry_excerpt` without `call_id`. `pattern` is a regular expression, matched in one pass
    over the text (`text/safe_regex.py`): none can hang a session. `work` bounds the whole search, and can end it from
    another thread. Raises InvalidInput for a pattern that does not compile, or that takes more steps than `work` has.
    O(size of the texts).
    """
    found = list(entries.values()) if seq is None else [_entry(entries, seq)]
    return search(codec, found, pattern, work)


def search(
    codec: Codec, entries: Iterable[Entry], pattern: str, work: Work | None = None
) -> list[tuple[Seq, int, str]]:
    """`grep` over entries that arrive one by one, as from a stored log."""
    wanted, work = Pattern(pattern), work or Work()
    out: list[tuple[Seq, int, str]] = []
    for entry in entries:
        work.spend(1)  # also for an entry without a line: many small ones must not escape the bound
        lines = _matching(full_text(_original(codec, entry)) or "", wanted, work)
        out += [(entry.seq, number, line) for number, line in islice(lines, MOST_FOUND - len(out))]
        if len(out) == MOST_FOUND:
            break
    return out


def search_text(text: str, pattern: str, work: Work | None = None) -> list[tuple[int, str]]:
    """(line number from 1, line) of each line of a text that matches `pattern`, 200 at most: see `grep`."""
    return list(islice(_matching(text, Pattern(pattern), work or Work()), MOST_FOUND))


def _matching(text: str, wanted: Pattern, work: Work) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), 1):
        if (stop := wanted.search(line, work)) is not None:
            yield number, _around(line, stop)


def full_text(message: Message, call_id: str | None = None) -> str | None:
    """All text of a message: words, calls with arguments, results. None if it has no call or result `call_id`."""
    pieces: list[str] = []
    if call_id is None:
        kinds = Text | Document | Reasoning | Opaque
        pieces += [text for part in message.parts if isinstance(part, kinds) and (text := part.text)]
        pieces += [message.cited] if message.cited else []
    pieces += [f"{call.name} {call.arguments}" for call in message.calls if call_id in {None, call.id}]
    pieces += [result.text for result in message.results if call_id in {None, result.call_id}]
    return "\n".join(pieces) if pieces or call_id is None else None


def _entry(entries: Mapping[Seq, Entry], seq: Seq) -> Entry:
    if seq not in entries:
        raise InvalidInput(f"no entry {seq}", place="seq")
    return entries[seq]


def _original(codec: Codec, entry: Entry) -> Message:
    """The message as it was appended, before any repair."""
    # Read again at each look-up: to keep a second form of every entry would double the memory of a session.
    return codec.read(entry.recorded)


def _around(line: str, stop: int) -> str:
    """A long line, cut to the part that ends a little after the match."""
    if len(line) <= LINE_CHARS:
        return line
    # Three quarters before the end of the match: what leads to it says more than what follows.
    start = max(0, min(stop - LINE_CHARS * 3 // 4, len(line) - LINE_CHARS))
    end = start + LINE_CHARS
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"
