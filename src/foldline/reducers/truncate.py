"""Cuts an oversized result or argument, with a line that says what is missing.

The texts of the notices and their numbers are those of the documented systems (docs/policies.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from foldline.errors import InvalidInput
from foldline.messages import Json, ToolCall, ToolResult
from foldline.reducers.base import form_fold, result_entries, with_texts
from foldline.text.shorten import Mode, clip_bytes, clip_tokens, extract, head_and_tail
from foldline.tokens import Counter
from foldline.view.budget import Need
from foldline.view.tiles import Tile
from foldline.view.transcript import Entry, Fold, Seq
from foldline.view.view import View

__all__ = [
    "NEXT_PART",
    "CharLimit",
    "FileViewLimit",
    "OutputLimits",
    "ResultLimit",
    "ShortForm",
    "cut_chars",
    "cut_file_view",
    "cut_output",
    "cut_result",
    "each_fresh",
    "fresh_forms",
    "shorten",
    "shorten_arguments",
    "shortened",
    "shorter",
    "tool_names",
]


def cut_file_view(text: str, limit_bytes: int = 4_000) -> str:
    """A file view cut at `limit_bytes` on a character boundary, with the notice of the autopilot system."""
    # Head only: what a file is about stands at its beginning, and its end can be viewed by line numbers.
    total = _bytes(text)
    if total <= limit_bytes:
        return text
    head = clip_bytes(text, limit_bytes)
    return f"{head}...\n[truncated, showing first {_bytes(head)} bytes of {total} total]"


def cut_chars(text: str, max_len: int) -> str:
    """A text of at most `max_len` characters, notice included where there is room for one."""
    if len(text) <= max_len:
        return text
    # The notice counts too: the documented limit is that of the whole result.
    kept = max_len - len(_chars_notice(max_len, len(text)))
    return f"{text[:kept]}{_chars_notice(kept, len(text))}" if kept > 0 else text[: max(0, max_len)]


def _chars_notice(kept: int, total: int) -> str:
    return f"...\n[truncated, showing first {kept} characters of {total} total]"


def cut_result(text: str, limit_tokens: int, mode: Mode, counter: Counter) -> str:
    """A result cut to `limit_tokens`, with the indicator of the three-layer system for head, tail or both."""
    total = counter.text(text)
    if total <= limit_tokens:
        return text
    head, tail = clip_tokens(text, limit_tokens, counter, mode)
    which = {"head": "first", "tail": "last", "both": "first+last"}[mode]
    notice = f"[truncated: kept {which} ~{limit_tokens} of ~{total} tokens ({mode})]"
    return shorter("\n".join(piece for piece in (head, notice, tail) if piece), text, counter)


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """Limits of one tool output, and the reducer that applies them to what has just come in.

    Defaults of the checkpoint system: 2,000 lines, 50 KiB, 200 Ki characters; `mode` "head" or "head_tail".
    """

    max_lines: int = 2_000
    max_bytes: int = 50 * 1024
    max_chars: int = 200 * 1024
    mode: Literal["head", "head_tail"] = "head_tail"
    name: str = "truncate"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per fresh result over a limit."""
        return each_fresh(view, need, self.name, lambda text, _: cut_output(text, self))


def cut_output(text: str, limits: OutputLimits) -> str:
    """An output cut by lines, then characters, then bytes, with the figures in a notice after it."""
    # Lines first: they are the mildest cut, and the one that a reader understands. The notice gives all three figures,
    # since its reader does not know which limit it was.
    lines = text.splitlines()
    before = (len(lines), len(text), _bytes(text))
    # Each limit cuts what the one before has left, so that one output may carry more than one marker.
    out = text if len(lines) <= limits.max_lines else "\n".join(_fewer_lines(lines, limits))
    out = _cut_ends(out, limits.max_chars, limits.mode, "characters", head_and_tail)
    out = _cut_ends(out, limits.max_bytes, limits.mode, "bytes", _byte_ends)
    if out == text:
        return text
    after = (len(out.splitlines()), len(out), _bytes(out))
    figures = ", ".join(
        f"{a} of {b} {unit}" for a, b, unit in zip(after, before, ("lines", "characters", "bytes"), strict=True)
    )
    return f"{out}\n[output truncated: {figures}]"


# The least limit with room for two ends and the marker between them (checkpoint system).
LEAST_LINES = 4


def _fewer_lines(lines: list[str], limits: OutputLimits) -> list[str]:
    """`max_lines` lines, the marker included."""
    if limits.mode == "head" or limits.max_lines < LEAST_LINES:
        return lines[: limits.max_lines]
    kept = limits.max_lines - 1
    head = kept - kept // 2
    return [*lines[:head], f"... [{len(lines) - kept} lines omitted] ...", *lines[len(lines) - kept // 2 :]]


def _cut_ends(text: str, limit: int, mode: str, unit: str, ends: Callable[[str, int, int], tuple[str, str]]) -> str:
    """`limit` characters or bytes, the marker included where both ends stay and there is room for it."""
    size = len(text) if unit == "characters" else _bytes(text)
    if size <= limit:
        return text
    # With the whole size in it, the marker is at least as long as the one that is shown.
    kept = limit - len(f"\n... [{size} {unit} omitted] ...\n")
    if mode == "head" or kept <= 0:
        return ends(text, limit, 0)[0]
    head, tail = ends(text, kept - kept // 2, kept // 2)
    shown = len(head) + len(tail) if unit == "characters" else _bytes(head) + _bytes(tail)
    return f"{head}\n... [{size - shown} {unit} omitted] ...\n{tail}"


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _byte_ends(text: str, head: int, tail: int) -> tuple[str, str]:
    return clip_bytes(text, head), clip_bytes(text, tail, end=True) if tail else ""


def shorter(short: str, text: str, counter: Counter) -> str:
    """The cut text, or the whole if the notice made the cut one no shorter."""
    return short if counter.text(short) < counter.text(text) else text


def each_fresh(
    view: View,
    need: Need,
    name: str,
    cut: Callable[[str, str], str],
    *,
    turn: Callable[[Seq], None] = lambda group: None,
) -> Iterable[Fold]:
    """One fold per message with fresh results that `cut(text, tool name)` changes; `turn(group)` precedes each."""
    # Only what has not been sent: to shorten it breaks no cached prefix. A result that this reducer has cut before is
    # passed over, so that a second look (a summary was written meanwhile) does not cut it twice.

    def change(tile: Tile, entry: Entry) -> Callable[[ToolResult], str | None]:
        tools = tool_names(view, tile.start, entry.seq)
        turn(entry.group)
        return lambda result: cut(result.text, tools.get(result.call_id, ""))

    return fresh_forms(view, need, name, change)


def fresh_forms(
    view: View, need: Need, name: str, changing: Callable[[Tile, Entry], Callable[[ToolResult], str | None]]
) -> Iterable[Fold]:
    """One fold per message with fresh results that `changing(tile, entry)` gives another text (None: the same)."""
    for _, tile, entry in result_entries(view, view.index(need.fresh) if need.fresh else 0):
        form = tile.forms.get(entry.seq)
        if entry.seq < need.fresh or (form is not None and form.reducer == name):
            continue
        message = tile.form(entry)
        came = {result.call_id: result.text for result in entry.message.results}
        new_text = changing(tile, entry)

        def change(
            result: ToolResult,
            came: Mapping[str, str] = came,
            new_text: Callable[[ToolResult], str | None] = new_text,
        ) -> str | None:
            if result.text != came[result.call_id]:  # cut by an earlier guard: its notice must stay whole
                return None
            new = new_text(result)
            return None if new == result.text else new

        parts = with_texts(message, change)
        if any(a is not b for a, b in zip(parts, message.parts, strict=True)):
            reason = f"a result of {entry.tokens:,} tokens is over its limit"
            fold = form_fold(view, tile, entry, parts, reducer=name, reason=reason)
            if fold is not None:
                yield fold


def tool_names(view: View, start: Seq, stop: Seq) -> dict[str, str]:
    """Tool names by call id, for the calls of entries in [start, stop]."""
    tile = view.tiles[view.index(start)]
    return {call.id: call.name for entry in tile.entries if start <= entry.seq <= stop for call in entry.message.calls}


@dataclass(frozen=True, slots=True)
class FileViewLimit:
    """Cuts each fresh result at 4,000 bytes (the autopilot system cuts file views when they are fetched).

    `tools` are the tools that view files; without it the results of all tools are cut.
    """

    limit_bytes: int = 4_000
    tools: frozenset[str] = frozenset()
    name: str = "truncate"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per fresh result over the limit."""

        def cut(text: str, tool: str) -> str:
            return text if self.tools and tool not in self.tools else cut_file_view(text, self.limit_bytes)

        return each_fresh(view, need, self.name, cut)


@dataclass(frozen=True, slots=True)
class CharLimit:
    """Cuts every result in view to `limit_chars` characters, old or new: the autopilot system's last resort."""

    limit_chars: int = 1_000
    name: str = "truncate"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per result over the limit, oldest first."""
        del need
        for _, tile, entry in result_entries(view):
            form = tile.form(entry)
            parts = with_texts(
                form, lambda r: cut_chars(r.text, self.limit_chars) if len(r.text) > self.limit_chars else None
            )
            if any(a is not b for a, b in zip(parts, form.parts, strict=True)):
                reason = f"a result of more than {self.limit_chars:,} characters"
                fold = form_fold(view, tile, entry, parts, reducer=self.name, reason=reason)
                if fold is not None:
                    yield fold


@dataclass(frozen=True, slots=True)
class ResultLimit:
    """Cuts each fresh result to `limit_tokens`; `per_tool` gives other limits by tool name.

    Raises InvalidInput when a limit is not positive: a limit of 0 would show no result at all.
    """

    limit_tokens: int = 8_000
    mode: Mode = "head"
    per_tool: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    name: str = "truncate"

    def __post_init__(self) -> None:
        for place, limit in (("max_tool_result_tokens", self.limit_tokens), *self.per_tool.items()):
            if limit <= 0:
                raise InvalidInput(f"must be greater than 0, not {limit}", place=place)

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per fresh result over its limit."""

        def cut(text: str, tool: str) -> str:
            return cut_result(text, self.per_tool.get(tool, self.limit_tokens), self.mode, view.counter)

        return each_fresh(view, need, self.name, cut)


NEXT_PART = "the same call again shows the next]"
"""The end of a part of a result that is read part by part (`foldline.reducers.arrival`)."""


# The largest share of a result that stays: a fold that leaves more is not worth its notice, nor the prefix it changes.
MOST_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class ShortForm:
    """The size of the short form of an old result.

    `share` of a result stays, at least `least_tokens` and at most `most_tokens` or `most_share` of the room for
    history, whichever is more: short forms grow with the window.
    """

    share: float = 0.3
    least_tokens: int = 48
    most_tokens: int = 400
    most_share: float = 0.028

    def limit_tokens(self, result_tokens: int, room_tokens: int, weight: float = 1.0) -> int:
        """What may stay of a result; of one with a `weight` above 1 a larger share, up to `MOST_SHARE`."""
        most = max(self.most_tokens, int(self.most_share * room_tokens))
        return min(most, max(self.least_tokens, int(min(MOST_SHARE, self.share * weight) * result_tokens)))


def shorten(text: str, limit_tokens: int, view: View, total: int | None = None) -> str:
    """`text` in about `limit_tokens`, with the figures in a notice; `total` are its tokens, if known."""
    total = view.texts.tokens(text) if total is None else total
    if total <= limit_tokens:
        return text
    # 16 tokens are the notice, figures included.
    room, known = max(8, limit_tokens - 16), view.texts
    # Names alone get only what no line fits in: of a result that is hardly old, whole lines are used again.
    body = extract(text, room, view.counter, view.name_counts, named=0.0, total=total, memory=known)
    return f"{body}\n{shortened(known.tokens(body), total)}"


def shortened(tokens: int, total: int) -> str:
    """The notice under a text that was shortened."""
    return f"[shortened: ~{tokens} of ~{total} tokens]"


def shorten_arguments(call: ToolCall, limit_tokens: int, counter: Counter) -> str:
    """The arguments of a call with their long strings shortened, largest first; they stay valid JSON of the same shape.

    Short strings, numbers and keys stay (hermes#13574: arguments cut as text are invalid JSON for ever).
    """
    if counter.text(call.arguments) <= limit_tokens:
        return call.arguments
    if call.custom:
        head, tail = clip_tokens(call.arguments, limit_tokens, counter, "both")
        return f"{head}\n[… cut …]\n{tail}"
    try:
        return _shortened_json(call.arguments, limit_tokens, counter)
    except (ValueError, RecursionError):
        # Not JSON, or nested deeper than the stack: such arguments stay whole, and the rungs that drop groups follow.
        return call.arguments


def _shortened_json(text: str, limit_tokens: int, counter: Counter) -> str:
    value = json.loads(text)
    lengths: list[int] = []
    _string_lengths(value, lengths)
    # In steps: each is one pass over the value, and most calls fit after the first one or two.
    for most in (2000, 800, 320, 120, 48):
        if lengths and most >= max(lengths):
            continue
        short = json.dumps(_shortened_strings(value, most), ensure_ascii=False)
        if counter.text(short) <= limit_tokens:
            return short
    return json.dumps(_shortened_strings(value, 24), ensure_ascii=False)


def _string_lengths(value: Json, lengths: list[int]) -> None:
    if isinstance(value, str):
        lengths.append(len(value))
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _string_lengths(inner, lengths)


def _shortened_strings(value: Json, most_chars: int) -> Json:
    # 24 characters are about the length of the marker: a shorter cut would make the string longer.
    if isinstance(value, str) and len(value) > most_chars + 24:
        head, tail = head_and_tail(value, most_chars - most_chars // 3, most_chars // 3)
        return f"{head}[… {len(value) - len(head) - len(tail)} characters cut …]{tail}"
    if isinstance(value, dict):
        return {key: _shortened_strings(inner, most_chars) for key, inner in value.items()}
    if isinstance(value, list):
        return [_shortened_strings(inner, most_chars) for inner in value]
    return value
