"""What a result is shown as when it arrives, before it is sent for the first time.

Nothing that stands in a provider's cache changes here, so that it costs nothing but what is left out. What an agent has
just requested is what it uses next. So a result stays whole whenever the request can be made to fit with it
(docs/design/011-stages.md has the figures).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from foldline.messages import Message, ToolResult
from foldline.reducers.base import form_fold, result_entries, with_texts
from foldline.reducers.truncate import NEXT_PART, fresh_forms
from foldline.text.shorten import extract
from foldline.tokens import lone_text
from foldline.view.budget import Need
from foldline.view.tiles import Tile
from foldline.view.transcript import Entry, Fold, Seq
from foldline.view.view import View

__all__ = ["RepeatNotices", "RepeatedLines", "ShortenNew", "even_limit", "fresh_results", "new_lines"]


@dataclass(frozen=True, slots=True)
class ShortenNew:
    """Shortens fresh results that are too large for the window to their beginning, end and the lines with names.

    A result of up to `share` of the room for history stays whole, and of a larger one `of_result` of the rest. Results
    that arrive together share `group` of that room: the small ones stay whole, the large ones get the same limit. What
    stands before them makes room for them, so that a full window takes as much of a result as an empty one.
    """

    share: float = 0.14
    of_result: float = 0.30
    group: float = 0.50
    least_tokens: int = 128
    exempt: frozenset[str] = frozenset({"spawn_agent", "recall"})
    name: str = "truncate"

    def exempting(self, tools: frozenset[str], /) -> ShortenNew:
        """The same reducer, which leaves results of these tools alone too."""
        return replace(self, exempt=self.exempt | tools)

    def arriving(self, share: float | None, of_result: float | None, /) -> ShortenNew:
        """The same reducer with other shares (None: as they are). A share above that of the group raises it."""
        share = self.share if share is None else share
        of_result = self.of_result if of_result is None else of_result
        return replace(self, share=share, of_result=of_result, group=max(self.group, share))

    def limit_tokens(self, room_tokens: int, result_tokens: int) -> int:
        """What a result may take of the room for history when it arrives alone."""
        whole = int(self.share * room_tokens)
        wanted = whole + int(self.of_result * max(0, result_tokens - whole))
        return max(self.least_tokens, min(wanted, int(self.group * room_tokens)))

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per message with a fresh result over its limit."""
        fresh = fresh_results(view, need)
        if not fresh:
            return ()
        room = max(0, need.limit_tokens - view.fixed_tokens)
        whole = [entry.tokens for entry in fresh]
        if max(whole) <= self.share * room and sum(whole) <= self.group * room:
            return ()
        sizes = [min(entry.tokens, self.limit_tokens(room, entry.tokens)) for entry in fresh]
        shared = max(self.least_tokens, even_limit(sizes, int(self.group * room)))
        # A message that is one text was counted as it came: a megabyte is not counted twice.
        counted = dict(filter(None, (lone_text(entry.message, entry.tokens, view.counter) for entry in fresh)))

        def changing(tile: Tile, entry: Entry) -> Callable[[ToolResult], str | None]:
            calls = {call.id: call for other in tile.entries for call in other.message.calls}

            def change(result: ToolResult) -> str | None:
                call = calls.get(result.call_id)
                if call is not None and call.name in self.exempt:
                    return None
                text = result.text
                tokens = counted[text] if text in counted else view.counter.text(text)
                limit = min(shared, self.limit_tokens(room, tokens))
                # A result barely over its limit stays whole: the notice would use up what is saved.
                if tokens <= limit + self.least_tokens // 2:
                    return None
                reads = 0 if call is None else view.texts.earlier_reads(entry.seq, call.name, call.arguments, text)
                return _cut(text, tokens, limit, view, reads)

            return change

        return fresh_forms(view, need, self.name, changing)


# Tokens of the notice under a cut result, figures included.
_NOTICE_TOKENS = 24


def _cut(text: str, tokens: int, limit: int, view: View, reads: int) -> str:
    """`text` in about `limit` tokens, with the notice how to read on; after `reads` cuts of the same the next part."""
    room = max(8, limit - _NOTICE_TOKENS)
    if reads:
        # In order, from the start: what the first cut chose by names was not enough.
        parts = pages(text, max(1, room * len(text) // tokens))
        number = (reads - 1) % len(parts)
        start, stop = parts[number]
        more = f"[part {number + 1} of {len(parts)} of ~{tokens} tokens; {NEXT_PART}"
        return f"{text[start:stop].rstrip(LINE_BREAK)}\n{more}"
    body = extract(text, room, view.counter, view.name_counts, total=tokens)
    return f"{body}\n[shortened: ~{view.counter.text(body)} of ~{tokens} tokens; the same call again shows it in parts]"


LINE_BREAK = "\n"


def pages(text: str, chars: int) -> list[tuple[int, int]]:
    """The parts of a text of at most `chars` characters, by whole lines where lines are shorter. O(parts)."""
    out: list[tuple[int, int]] = []
    start = 0
    while start < len(text):
        stop = min(len(text), start + chars)
        if stop < len(text) and (end := text.rfind(LINE_BREAK, start, stop)) > start:
            stop = end + 1
        out.append((start, stop))
        start = stop
    return out or [(0, 0)]


def fresh_results(view: View, need: Need) -> list[Entry]:
    """The entries with results that have not been sent yet."""
    first = view.index(need.fresh) if need.fresh else 0
    return [entry for _, _, entry in result_entries(view, first) if entry.seq >= need.fresh]


def even_limit(sizes: Sequence[int], room: int) -> int:
    """The largest limit under which all sizes fit `room` together. O(n log n)."""
    left = room
    for count, size in enumerate(sorted(sizes)):
        if size * (len(sizes) - count) > left:
            return max(0, left // (len(sizes) - count))
        left -= size
    return max(sizes, default=0)


# --- lines shown before -----------------------------------------------------------------------------------------------

_POINTING = re.compile(r"^\[(\d+) lines as shown above\]$")

# Fewer lines than this stay: the notice would be as long.
_LEAST_RUN = 4

# A line of so few characters distinguishes nothing: a bracket, a blank line.
_TRIVIAL_CHARS = 2


@dataclass(frozen=True, slots=True)
class RepeatedLines:
    """Leaves out of a fresh result the runs of lines that stand just before it already, as a notice says.

    Agents that edit a file in steps are shown the same window of it after each one: in recorded coding sessions half of
    all lines of results stand in the 8,000 tokens before them. Lines are looked for in the newest `share` of the room
    for history. A call that is repeated after its result lost lines in this way is answered whole: whoever reads a
    thing again wants to see it. When a fold takes the lines above, `RepeatNotices` corrects the notice.
    """

    share: float = 0.40
    context: int = 2
    least_chars: int = 500
    most: float = 0.7
    """The largest share of a result that may be left for the notices to be worth it."""
    exempt: frozenset[str] = frozenset({"spawn_agent", "recall"})
    name: str = "repeats"

    def exempting(self, tools: frozenset[str], /) -> RepeatedLines:
        """The same reducer, which leaves results of these tools alone too."""
        return replace(self, exempt=self.exempt | tools)

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per fresh result with repeated lines. O(new) where none is long enough, else O(results shown)."""
        first = view.index(need.fresh) if need.fresh else 0
        room = int(self.share * (need.limit_tokens - view.fixed_tokens))
        due: set[Seq] = set()
        for _, tile, entry in result_entries(view, first):
            # A larger one is cut by `ShortenNew`, which leaves alone what has a notice already.
            if entry.seq >= need.fresh and entry.seq not in tile.forms and entry.tokens <= room:
                for result in entry.message.results:
                    text = result.text
                    if len(text) >= self.least_chars and "\n" in text:
                        due.add(entry.seq)
        if not due:
            return ()
        return self._folds(view, view.tail(room), due)

    def _folds(self, view: View, first: int, due: Collection[Seq]) -> Iterable[Fold]:
        """Folds of the results in `due`, whose lines are looked for from tile `first` on."""
        rows: list[tuple[int, Tile, Entry, Message]] = []
        for index, tile in enumerate(view.tiles[first:], first):
            for entry in tile.entries if tile.fold is None else ():
                if entry.message.results:
                    form = tile.forms.get(entry.seq)
                    rows.append((index, tile, entry, entry.message if form is None else form.shown[0]))
        shown: set[str] = set()
        for (index, tile, entry, _), lines in zip(
            rows, view.texts.lines_of_each([row[3] for row in rows]), strict=True
        ):
            if entry.seq in due and not shown.isdisjoint(lines):
                fold = self._fold(view, tile, entry, shown)
                if fold is not None and not self._whole(view, first, index, entry):
                    yield fold
                    shown |= view.texts.lines(fold.shown[0])
                    continue
            shown |= lines

    def _whole(self, view: View, first: int, index: int, entry: Entry) -> bool:
        """Whether a result stays whole: its tool is exempt, or the same call was answered with a notice last time."""
        called = {
            call.id: (call.name, call.arguments) for other in view.tiles[index].entries for call in other.message.calls
        }
        keys = {called[result.call_id] for result in entry.message.results if result.call_id in called}
        if any(name in self.exempt for name, _ in keys):
            return True
        # Whoever makes a call again after its result lost lines wants to see them.
        for tile in reversed(view.tiles[first : index + 1]):
            same = {c.id for other in tile.entries for c in other.message.calls if (c.name, c.arguments) in keys}
            for earlier in reversed(tile.entries) if same else ():
                if earlier.seq < entry.seq and any(result.call_id in same for result in earlier.message.results):
                    form = tile.forms.get(earlier.seq)
                    return form is not None and form.reducer == self.name
        return False

    def _fold(self, view: View, tile: Tile, entry: Entry, shown: Collection[str]) -> Fold | None:
        def change(result: ToolResult) -> str | None:
            text = result.text
            # By characters: to count a text again only to leave it as it is would double the work of a turn.
            if len(text) < self.least_chars:
                return None
            new = new_lines(text, shown, self.context)
            return new if len(new) <= self.most * len(text) else None

        parts = with_texts(entry.message, change)
        if all(a is b for a, b in zip(parts, entry.message.parts, strict=True)):
            return None
        return form_fold(view, tile, entry, parts, reducer=self.name, reason="lines that stand just before it already")


@dataclass(frozen=True, slots=True)
class RepeatNotices:
    """Corrects the notices of `RepeatedLines` that point to lines which a fold has taken. Runs after folds.

    To show those lines again would lengthen what is shown, and a fold that does not shrink is refused.
    """

    name: str = "repeats"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per result whose left-out lines no longer all stand before it. O(results shown)."""
        del need
        shown: set[str] = set()
        for _, tile, entry in result_entries(view):
            form = tile.forms.get(entry.seq)
            if form is not None and form.reducer == self.name:
                left_out = view.texts.lines(entry.message) - view.texts.lines(form.shown[0])
                gone = {line for line in left_out if len(line) > _TRIVIAL_CHARS} - shown
                if gone and (fold := self._fold(view, tile, entry)) is not None:
                    yield fold
            shown |= view.texts.lines(tile.form(entry))

    def _fold(self, view: View, tile: Tile, entry: Entry) -> Fold | None:
        own = view.texts.lines(entry.message)  # a tool may have written such a line itself

        def change(result: ToolResult) -> str | None:
            lines = result.text.split(LINE_BREAK)
            new = [line if line in own else _POINTING.sub(r"[\1 lines cut]", line) for line in lines]
            return None if new == lines else LINE_BREAK.join(new)

        form = tile.form(entry)
        parts = with_texts(form, change)
        if all(a is b for a, b in zip(parts, form.parts, strict=True)):
            return None
        return form_fold(view, tile, entry, parts, reducer=self.name, reason="the lines above are folded")


def new_lines(text: str, shown: Collection[str], context: int = 2) -> str:
    """`text` with a notice for each run of lines that are `shown`; `context` lines stay around what is new. O(size)."""
    lines = text.splitlines()
    repeated = [len(line) <= _TRIVIAL_CHARS or line in shown for line in map(str.strip, lines)]
    stays = bytearray(len(lines))
    for number, old in enumerate(repeated):
        if not old:
            start, stop = max(0, number - context), min(len(lines), number + context + 1)
            stays[start:stop] = b"\1" * (stop - start)
    # The ends of a result say what it is: a path, a line count, a prompt.
    for number in (*range(min(2, len(lines))), *range(max(0, len(lines) - 2), len(lines))):
        stays[number] = 1
    out: list[str] = []
    at = 0
    while at < len(lines):
        if stays[at]:
            out.append(lines[at])
            at += 1
            continue
        end = stays.find(1, at)
        end = len(lines) if end < 0 else end
        out += [f"[{end - at} lines as shown above]"] if end - at >= _LEAST_RUN else lines[at:end]
        at = end
    return "\n".join(out)
