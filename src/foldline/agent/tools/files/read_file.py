"""The tool that reads a file: whole if it fits its share of the window, else its size and how to read parts."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import BinaryIO, Final

from foldline.agent.tools.base import CallScope, ToolOutcome
from foldline.agent.tools.files.file_text import (
    HEAD_BYTES,
    decoded,
    each_line,
    is_pdf,
    notebook_text,
    part,
    pdf_text,
    refuse_binary,
    streamed,
)
from foldline.agent.tools.workspace import FileLocation, Workspace
from foldline.agent.workers import READERS, StopSignal, run_in_thread
from foldline.display import Room, file_part, file_refusal, file_view, line_bounds
from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.tokens import ESTIMATE, Counter

__all__ = ["ReadFile"]

# Larger files are read in pieces, unless the budget is so large that one may fit.
MAX_WHOLE_BYTES: Final = 8 * 1024 * 1024
# More characters per token than any prose or code has: a longer file is certainly over the budget.
CHARS_PER_TOKEN: Final = 8
PREVIEW_LINES: Final = 50
PREVIEW_CHARS: Final = 20_000
# Every sixteenth piece of a large file is counted, and the rest estimated: counting all would take seconds.
SAMPLED: Final = 16
# Texts of PDFs in memory. Without them each part of one would be extracted again, half a second each.
MAX_RECENT: Final = 4


def _schema() -> dict[str, Json]:
    return {
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1, "description": "Path of the file in the workspace."},
            "start_line": {"type": "integer", "description": "First line to read, from 1."},
            "end_line": {"type": "integer", "description": "Last line to read, included."},
        },
        "required": ["path"],
        "additionalProperties": False,
    }


@dataclass(frozen=True, slots=True)
class ReadFile:
    """Reads text files, and the text of PDFs and notebooks (S4.06)."""

    workspace: Workspace
    counter: Counter = ESTIMATE
    name: str = "read_file"
    description: str = (
        "Reads a file, or lines start_line to end_line of it; PDFs and notebooks as text. A file that is too large "
        "is shown by its first lines only, with how to read it in parts."
    )
    parameters: Mapping[str, Json] = field(default_factory=_schema)
    _recent: dict[tuple[int, ...], str] = field(default_factory=dict, init=False, repr=False, compare=False)

    async def run(self, arguments: Mapping[str, Json], scope: CallScope) -> ToolOutcome:
        """Read. Raises InvalidInput for an unknown path or line, and for a file without text."""
        request = _ReadRequest(
            arguments["path"], arguments.get("start_line"), arguments.get("end_line"), scope.room(), self.counter
        )
        shown = await run_in_thread(lambda stop: self._read(request, stop))
        if shown is None:
            shown = await READERS.run(lambda stop: self._read_pdf(request, stop))
        return ToolOutcome(shown)

    def _read(self, request: _ReadRequest, stop: StopSignal) -> str | None:
        """Return what is shown of a file. None for a PDF: its process is awaited in another pool."""
        request.check()
        with self.workspace.open(request.path) as (file, place):
            # By content, not by name: what a file is called need not be what it holds.
            head = file.read(HEAD_BYTES)
            file.seek(0)
            if is_pdf(head):
                return None
            size_bytes = place.status.st_size if place.status else 0
            refuse_binary(head, request.path, size_bytes)
            max_bytes = max(MAX_WHOLE_BYTES, CHARS_PER_TOKEN * request.room.budget_tokens)
            if size_bytes > max_bytes:
                view, note = _large(file, size_bytes, request, stop)
                return _noted(view, note)
            data = file.read(max_bytes)
        found = decoded(data, request.path)
        if not found.text:
            return "[the file is empty: 0 bytes]" if not data else "[the file has no text in it]"
        # By its name: the JSON of a notebook is mostly outputs and metadata, and pictures in base64.
        if place.name.endswith(".ipynb"):
            try:
                return request.view(notebook_text(found.text), found.note)
            except InvalidInput as error:
                note = f"[not a notebook that can be read (it {error.reason}); shown as it is]"
                return request.view(found.text, note)
        return request.view(found.text, found.note)

    def _read_pdf(self, request: _ReadRequest, stop: StopSignal) -> str:
        with self.workspace.open(request.path) as (file, place):
            return request.view(self._pdf_text(file, place, request.path, stop))

    def _pdf_text(self, file: BinaryIO, place: FileLocation, path: str, stop: StopSignal) -> str:
        stamp = place.stamp or ()
        if (text := self._recent.get(stamp)) is None:
            text = pdf_text(file, path, stop)
            # Threads share it. Each operation on the dict is atomic, and at worst a text is extracted twice.
            for old in list(self._recent)[: max(0, len(self._recent) + 1 - MAX_RECENT)]:
                self._recent.pop(old, None)
            self._recent[stamp] = text
        return text


@dataclass(frozen=True, slots=True)
class _ReadRequest:
    """The arguments of a call, and its share of the window."""

    path: str
    start_line: object
    end_line: object
    room: Room
    counter: Counter

    @property
    def whole(self) -> bool:
        return self.start_line is None and self.end_line is None

    def check(self) -> None:
        """Raise InvalidInput for impossible bounds, before anything is read."""
        if isinstance(self.start_line, int) and self.start_line < 1:
            raise InvalidInput(f"must be 1 or more, not {self.start_line}", place="start_line")
        line_bounds(self.start_line, self.end_line, sys.maxsize)

    def view(self, text: str, note: str = "") -> str:
        """Return what is shown of a text."""
        view = file_view(
            self.path, text, self.room, start_line=self.start_line, end_line=self.end_line, counter=self.counter
        )
        return _noted(view, note)


def _noted(view: str, note: str) -> str:
    return f"{note}\n{view}" if note else view


def _large(file: BinaryIO, size_bytes: int, request: _ReadRequest, stop: StopSignal) -> tuple[str, str]:
    """Return the size of a file too large for memory, or the requested lines that fit; and a note on its encoding."""
    # The whole file cannot fit, so that it is read for its figures alone.
    if request.whole:
        figures, note = streamed(file, request.path, lambda pieces: _FileFigures.of(pieces, request.counter), stop)
        view = file_refusal(
            request.path,
            size_bytes=size_bytes,
            tokens=figures.tokens,
            total_lines=figures.total_lines,
            first_lines=figures.first_lines,
            room=request.room,
            counter=request.counter,
        )
        return view, note
    start = request.start_line if isinstance(request.start_line, int) else 1
    last = request.end_line if isinstance(request.end_line, int) else None
    # One more than can fit, so that the view knows that lines were left out.
    max_chars = CHARS_PER_TOKEN * request.room.budget_tokens + 1
    found, note = streamed(file, request.path, lambda pieces: part(pieces, start, last, max_chars), stop)
    if found.total_lines is not None:
        start, last = line_bounds(request.start_line, request.end_line, found.total_lines)
    return file_part(found.lines, start, request.room, stop=last, counter=request.counter), note


@dataclass(frozen=True, slots=True)
class _FileFigures:
    """The figures of a file in a refusal."""

    tokens: int
    total_lines: int
    first_lines: list[str]

    @classmethod
    def of(cls, pieces: Iterator[str], counter: Counter) -> _FileFigures:
        chars = ends = sampled_chars = sampled_tokens = 0
        first: list[str] = []
        last = ""
        # In one pass: the file may be larger than memory, and a second one would double the wait.
        for number, piece in enumerate(pieces):
            if number == 0:
                first = list(islice(each_line(iter((piece,)), PREVIEW_CHARS), PREVIEW_LINES))
            if number % SAMPLED == 0:
                sampled_chars += len(piece)
                sampled_tokens += counter.text(piece)
            chars += len(piece)
            ends += piece.count("\n")
            last = piece[-1:] or last
        tokens = sampled_tokens * chars // max(1, sampled_chars)
        return cls(tokens, ends + (last != "\n"), first)
