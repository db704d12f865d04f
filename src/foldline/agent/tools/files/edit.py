"""The tools that change files, write_file and edit_file. A person allows each call before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import groupby
from typing import Final

from foldline.agent.tools.base import CONSENT_NEEDED, CallScope, PermissionRequest, ToolOutcome, one_line
from foldline.agent.tools.files.file_text import DecodedText, decoded
from foldline.agent.tools.workspace import FileLocation, Workspace
from foldline.agent.workers import StopSignal, run_in_thread
from foldline.display import size_text
from foldline.errors import InvalidInput
from foldline.messages import Json

__all__ = ["CONTEXT_LINES", "EditFile", "WriteFile", "clipped", "preview"]

CONTEXT_LINES: Final = 2
PREVIEW_LINES: Final = 40
PREVIEW_CHARS: Final = 300
# Lines shown of a run of removed lines in a long change: added lines matter more, and must not be crowded out.
REMOVED_LINES: Final = 5
# Longer changes are shown as all old lines removed and all new ones added: a comparison by lines is quadratic.
COMPARED_LINES: Final = 1_000


def clipped(line: str) -> str:
    """Return a line that is safe for a terminal; a long one is cut, with the number of further characters."""
    line = one_line(line)
    more = len(line) - PREVIEW_CHARS
    return line if more <= 0 else f"{line[:PREVIEW_CHARS]}… ({more:,} more characters)"


def preview(old: str | None, new: str) -> list[str]:
    """Return the lines of a new file ("+" before each), or the change from `old` as a diff; a long one is cut.

    No line of a file begins with the mark "…" here. O(size), and O(COMPARED_LINES²) at most.
    """
    if old is None:
        return _limit_lines([f"+{line}" for line in _file_lines(new)])
    changes = list(_changes(_file_lines(old), _file_lines(new)))
    return _limit_lines(changes) if changes else ["… no line changes"]


def _file_lines(text: str) -> list[str]:
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def _limit_lines(lines: Sequence[str]) -> list[str]:
    """Return the first lines. If there are too many, long runs of removed lines are cut first."""
    counted = [_with_count(line) for line in lines]
    if len(counted) > PREVIEW_LINES:
        counted = []
        for removed, run in groupby(lines, lambda line: line.startswith("-")):
            whole = list(run)
            shown = whole[:REMOVED_LINES] if removed else whole
            counted += map(_with_count, shown)
            if len(whole) > len(shown):
                counted.append((f"… {len(whole) - len(shown):,} more lines that go", len(whole) - len(shown)))
    out = [clipped(line) for line, _ in counted[:PREVIEW_LINES]]
    if hidden := sum(count for _, count in counted[PREVIEW_LINES:]):
        out.append(f"… {hidden:,} more line{'s' * (hidden != 1)} of this change not shown")
    return out


def _with_count(line: str) -> tuple[str, int]:
    """Return a line, and the number of lines of a file that it stands for."""
    return line, int(not line.startswith("@@"))


def _changes(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """Yield the diff, each place with lines of context."""
    least = min(len(old), len(new))
    # Equal lines at both ends are left out first: difflib is quadratic, and most edits touch few lines.
    head = next((at for at in range(least) if old[at] != new[at]), least)
    tail = next((at for at in range(least - head) if old[-1 - at] != new[-1 - at]), least - head)
    start, after = max(0, head - CONTEXT_LINES), min(tail, CONTEXT_LINES)
    removed, added = old[start : len(old) - tail + after], new[start : len(new) - tail + after]
    for group in _opcodes(removed, added, head - start, after):
        kind, first, last, _, _ = group[0]
        yield f"@@ line {start + (last if kind == 'equal' else first) + 1:,} @@"
        for kind, first, last, new_first, new_last in group:
            if kind == "equal":
                yield from (f" {line}" for line in removed[first:last])
            else:
                yield from (f"-{line}" for line in removed[first:last])
                yield from (f"+{line}" for line in added[new_first:new_last])


def _opcodes(
    removed: Sequence[str], added: Sequence[str], before: int, after: int
) -> Iterator[Sequence[tuple[str, int, int, int, int]]]:
    """Yield the differences as opcodes of difflib; `before` and `after` lines are equal in both."""
    if max(len(removed), len(added)) <= COMPARED_LINES:
        yield from SequenceMatcher(None, removed, added).get_grouped_opcodes(CONTEXT_LINES)
        return
    end, new_end = len(removed) - after, len(added) - after
    yield [
        ("equal", 0, before, 0, before),
        ("replace", before, end, before, new_end),
        ("equal", end, len(removed), new_end, len(added)),
    ]


# Larger files are not edited: an edit reads the whole file.
MAX_BYTES: Final = 16 * 1024 * 1024
# Lines of a change that a person sees.
SHOWN_LINES: Final = 60
SHOWN_PLACES: Final = 3
# Places of one edit. Nobody can judge more.
MAX_PLACES: Final = 100_000
NAMED_LINES: Final = 10

_REFUSED: Final = ToolOutcome(CONSENT_NEEDED, is_error=True)


def _write_schema() -> dict[str, Json]:
    return {
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1, "description": "Path of the file in the workspace."},
            "content": {"type": "string", "description": "All of the file's new content."},
        },
        "required": ["path", "content"],
        "additionalProperties": False,
    }


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Creates a file, or replaces its content."""

    workspace: Workspace
    name: str = "write_file"
    description: str = "Writes a file: makes it, with the folders above it, or replaces all of its content."
    parameters: Mapping[str, Json] = field(default_factory=_write_schema)

    async def run(self, arguments: Mapping[str, Json], scope: CallScope) -> ToolOutcome:
        """Ask, then write. Raises InvalidInput for a path that cannot be a file, or that changed meanwhile."""
        path: str = arguments["path"]
        data = _encoded(DecodedText(""), arguments["content"], "content")
        # Prepared before the question, so that a call that must fail does not bother a person.
        place, shown = await run_in_thread(lambda _: self._shown(path, data, arguments["content"]))
        before = place.status.st_size if place.status else None
        if not await scope.allowed(PermissionRequest(self.name, shown)):
            return _REFUSED

        def write(stop: StopSignal) -> None:
            stop.check()
            self.workspace.write(place, data)

        await run_in_thread(write, run_to_end=True)
        lines = data.count(b"\n") + (data[-1:] not in {b"", b"\n"})
        then = "a new file" if before is None else f"it had {_bytes(before)}"
        return ToolOutcome(f"Wrote {place.name}: {_bytes(len(data))}, {_counted(lines, 'line')} ({then}).")

    def _shown(self, path: str, data: bytes, content: str) -> tuple[FileLocation, str]:
        """Return the location, and the question to a person: the file, and the new content."""
        place = self.workspace.writable(path)
        was = "new file" if place.status is None else f"replaces {_bytes(place.status.st_size)}"
        out = [one_line(f"write {_bytes(len(data))} to {place.name} ({was})")]
        # The old content is only for the preview: a binary file may be replaced without one.
        old = None
        if place.status is not None:
            try:
                old = _content(self.workspace, place.name)[1].text
            except InvalidInput as fault:  # no text, or too large: it can be replaced all the same
                out.append(one_line(f"… what is there now {fault.reason}"))
        return place, "\n".join([*out, *preview(old, content)])


def _edit_schema() -> dict[str, Json]:
    return {
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1, "description": "Path of the file in the workspace."},
            "old": {"type": "string", "minLength": 1, "description": "The exact text to replace."},
            "new": {"type": "string", "description": "What stands there instead."},
            "all": {"type": "boolean", "description": "Replace it wherever it occurs."},
        },
        "required": ["path", "old", "new"],
        "additionalProperties": False,
    }


@dataclass(frozen=True, slots=True)
class EditFile:
    """Replaces a text in a file. Its encoding, its line ends and its mode stay."""

    workspace: Workspace
    name: str = "edit_file"
    description: str = (
        "Replaces a text in a file. old must occur exactly once, whitespace included, unless all is true."
    )
    parameters: Mapping[str, Json] = field(default_factory=_edit_schema)

    async def run(self, arguments: Mapping[str, Json], scope: CallScope) -> ToolOutcome:
        """Ask, then edit. Raises InvalidInput if `old` does not occur as often as it must.

        The edit applies to the file as it is after the answer, so that edits of one turn do not undo each other.
        """
        old, new, everywhere = arguments["old"], arguments["new"], arguments.get("all") is True
        plan = await run_in_thread(lambda _: _plan(self.workspace, arguments["path"], old, new, everywhere=everywhere))
        if not await scope.allowed(PermissionRequest(self.name, plan.shown())):
            return _REFUSED

        def edit(stop: StopSignal) -> _Plan:
            # Planned anew under the lock: other edits of this turn may have changed the file while a person decided.
            with self.workspace.lock:
                now = _plan(self.workspace, plan.place.name, old, new, everywhere=everywhere)
                if (now.place.name, len(now.offsets)) != (plan.place.name, len(plan.offsets)):
                    raise InvalidInput("has changed in the meantime: nothing was written", place=plan.place.name)
                stop.check()
                self.workspace.write(now.place, now.data)
                return now

        done = await run_in_thread(edit, run_to_end=True)
        before = done.place.status.st_size if done.place.status else 0
        return ToolOutcome(
            f"Edited {done.place.name}: {_counted(len(done.offsets), 'place')} ({_line_list(done.lines)}); "
            f"{_bytes(before)} before, {_bytes(len(done.data))} now."
        )


@dataclass(frozen=True, slots=True)
class _Plan:
    """An edit of the current content of a file."""

    place: FileLocation
    text: str
    old: str
    new: str
    offsets: tuple[int, ...]
    data: bytes

    @property
    def lines(self) -> list[int]:
        return _lines_at(self.text, self.offsets)

    def shown(self) -> str:
        """Return the question to a person: the file, and the change as a diff."""
        out = [line for offset in self.offsets[:SHOWN_PLACES] for line in self._hunk(offset)]
        if len(out) > SHOWN_LINES:
            out[SHOWN_LINES:] = [f"… {len(out) - SHOWN_LINES:,} more lines of this change are not shown"]
        if len(self.offsets) > SHOWN_PLACES:
            out.append(f"… and the same in {len(self.offsets) - SHOWN_PLACES:,} more places")
        head = f"edit {self.place.name}: {_counted(len(self.offsets), 'place')} ({_line_list(self.lines)})"
        return "\n".join(clipped(line) for line in [head, *out])

    def _hunk(self, offset: int) -> list[str]:
        """Return the diff of one place with lines of context."""
        end = offset + len(self.old)
        start = self.text.rfind("\n", 0, offset) + 1
        stop = self.text.find("\n", end)
        stop = len(self.text) if stop < 0 else stop
        removed = _lines(self.text[start:stop])
        added = _lines(self.text[start:offset] + self.new + self.text[end:stop])
        # Bounded: a line before the change may be megabytes long.
        before = _lines(self.text[max(0, start - 2_000) : start])[:-1][-CONTEXT_LINES:]
        rest = self.text[stop + 1 : stop + 2_000]
        after = _lines(rest.removesuffix("\n"))[:CONTEXT_LINES] if rest else []
        # Equal lines at both ends of the change are shown as context, so that the diff shows only what differs.
        same = min(len(removed), len(added))
        head = next((n for n in range(same) if removed[n] != added[n]), same)
        tail = next((n for n in range(same - head) if removed[-1 - n] != added[-1 - n]), same - head)
        number = self.text.count("\n", 0, start) + 1 + head
        return [
            f"@@ line {number:,} @@",
            *(f" {line}" for line in [*before, *removed[:head]][-CONTEXT_LINES:]),
            *(f"-{line}" for line in removed[head : len(removed) - tail]),
            *(f"+{line}" for line in added[head : len(added) - tail]),
            *(f" {line}" for line in [*removed[len(removed) - tail :], *after][:CONTEXT_LINES]),
        ]


def _plan(workspace: Workspace, path: str, old: str, new: str, *, everywhere: bool) -> _Plan:
    """Plan an edit. Raises InvalidInput if it cannot be done."""
    # Refused before the file is read and searched: the edit could not be written.
    workspace.writable(path)
    place, source = _content(workspace, path)
    text = source.text
    if 2 * text.count("\r\n") > text.count("\n"):  # most lines end so, and a model writes "\n"
        new = _with_crlf(new)
        old = old if old in text else _with_crlf(old)
    # After the line ends are adapted, or an edit that changes nothing would ask a person.
    if old == new:
        raise InvalidInput("is the same as old: there is nothing to change", place="new")
    count = text.count(old)
    if not count:
        raise InvalidInput(f"does not occur in {path}{_near(text, old)}", place="old")
    if count > 1 and not everywhere:
        where = _line_list(_lines_at(text, _offsets(text, old, NAMED_LINES + 1)))
        raise InvalidInput(
            f"occurs {count:,} times in {path} ({where}); give more of the text around it, or all=true", place="old"
        )
    if count > MAX_PLACES:
        reason = f"occurs {count:,} times in {path}, more than {MAX_PLACES:,}: give more of the text around it"
        raise InvalidInput(reason, place="old")
    # Computed before the replacement is built: a small `old` in many places can grow a file without bound.
    if len(text) + count * (len(new) - len(old)) > MAX_BYTES:
        raise InvalidInput(f"would make {path} larger than {size_text(MAX_BYTES)}", place="new")
    offsets = _offsets(text, old, count)
    return _Plan(place, text, old, new, offsets, _encoded(source, text.replace(old, new), "new"))


def _content(workspace: Workspace, path: str) -> tuple[FileLocation, DecodedText]:
    """Read a file. Raises InvalidInput if it is too large or no text."""
    with workspace.open(path) as (file, place):
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise InvalidInput(f"has more than {size_text(MAX_BYTES)}, which is too large to edit", place=path)
    return place, decoded(data, path)


def _with_crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _offsets(text: str, old: str, most: int) -> tuple[int, ...]:
    """Return the first offsets of a text."""
    found: list[int] = []
    at = text.find(old)
    while at >= 0 and len(found) < most:
        found.append(at)
        at = text.find(old, at + len(old))
    return tuple(found)


def _near(text: str, old: str) -> str:
    """Say where the first line of `old` occurs with other whitespace, the usual mistake."""
    wanted = next((line.split() for line in old.splitlines() if line.strip()), [])
    like = [number for number, line in enumerate(text.split("\n"), 1) if wanted and line.split() == wanted]
    if not like:
        return "; read the file again"
    return f"; its first line is like {_line_list(like)}, so compare the whitespace, and the lines after it"


def _lines_at(text: str, offsets: tuple[int, ...]) -> list[int]:
    lines: list[int] = []
    number, before = 1, 0
    for offset in offsets:
        number += text.count("\n", before, offset)
        before = offset
        lines.append(number)
    return lines


def _line_list(numbers: list[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:NAMED_LINES])
    return f"line{'s' * (len(numbers) > 1)} {shown}{', …' * (len(numbers) > NAMED_LINES)}"


def _lines(text: str) -> list[str]:
    return [line.removesuffix("\r") for line in text.split("\n")]


def _encoded(source: DecodedText, text: str, place: str) -> bytes:
    try:
        return source.encode(text)
    except UnicodeEncodeError as error:
        bad = text[error.start : error.start + 1]
        raise InvalidInput(f"has {bad!a}, which the encoding {source.encoding} has not", place=place) from None


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _bytes(number: int) -> str:
    return _counted(number, "byte")
