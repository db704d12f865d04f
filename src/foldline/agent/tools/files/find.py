"""The tools that find files, and lines in files: list_files and search_files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from foldline.agent.tools.base import CallScope, ToolOutcome
from foldline.agent.tools.files.file_text import HEAD_BYTES, each_line, is_pdf, refuse_binary, streamed
from foldline.agent.tools.files.name_patterns import Glob
from foldline.agent.tools.files.walk import MAX_DEPTH, Walk
from foldline.agent.tools.workspace import FolderEntry, Workspace
from foldline.agent.workers import StopSignal, run_in_thread
from foldline.display import size_text
from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.text.safe_regex import OutOfSteps, Pattern, Work
from foldline.text.shorten import largest
from foldline.tokens import ESTIMATE, Counter

__all__ = ["ListFiles", "SearchFiles"]

DEFAULT_ENTRIES: Final = 200
MAX_ENTRIES: Final = 2_000
DEFAULT_DEPTH: Final = 2
DEFAULT_MATCHES: Final = 100
MAX_MATCHES: Final = 1_000
# Characters shown of a matching line; of a longer one the part around the match.
LINE_CHARS: Final = 200
MAX_LINE_CHARS: Final = 4_000_000
# Characters that one search reads in all files.
MAX_CHARS: Final = 200_000_000
# Steps of one search (`Work`): some ten seconds.
MAX_STEPS: Final = 100_000_000
# Steps charged for a line even if nothing is matched against it: splitting it costs as much.
LINE_STEPS: Final = 16
# Reserved of the budget for the notes below a list.
NOTES_TOKENS: Final = 80


def _schema(required: tuple[str, ...], **properties: tuple[str, str]) -> dict[str, Json]:
    """Build a schema of arguments from (type, description) by name."""
    described: dict[str, Json] = {}
    for name, (kind, description) in properties.items():
        least = {"integer": {"minimum": 1}, "string": {"minLength": 1}}.get(kind, {})
        described[name] = {"type": kind, **least, "description": description}
    return {"type": "object", "properties": described, "required": list(required), "additionalProperties": False}


def _list_schema() -> dict[str, Json]:
    return _schema(
        (),
        path=("string", "Folder to list; the workspace itself if not given."),
        pattern=("string", "Only names or paths like this: *.py, src/**/test_*."),
        depth=("integer", f"Folders down; {DEFAULT_DEPTH} if not given, all with a pattern."),
        limit=("integer", f"Most entries to show; {DEFAULT_ENTRIES} if not given."),
        hidden=("boolean", "Hidden ones and folders of made things (.git, node_modules, …) too."),
        include_ignored=("boolean", "What .gitignore names too."),
    )


@dataclass(frozen=True, slots=True)
class ListFiles:
    """Lists files and folders. If there are too many, those higher up in the tree are shown first."""

    workspace: Workspace
    counter: Counter = ESTIMATE
    name: str = "list_files"
    description: str = "Lists the files and folders in a folder of the workspace, with sizes."
    parameters: Mapping[str, Json] = field(default_factory=_list_schema)

    async def run(self, arguments: Mapping[str, Json], scope: CallScope) -> ToolOutcome:
        """List. Raises InvalidInput for an unknown folder or an invalid pattern."""
        budget_tokens = max(0, scope.room().budget_tokens - NOTES_TOKENS)
        return ToolOutcome(await run_in_thread(lambda stop: self._list(arguments, budget_tokens, stop)))

    def _list(self, arguments: Mapping[str, Json], budget_tokens: int, stop: StopSignal) -> str:
        path = arguments.get("path") or "."
        glob = Glob(arguments["pattern"], Work(check=stop.check)) if arguments.get("pattern") else None
        depth = min(int(arguments.get("depth") or (MAX_DEPTH if glob else DEFAULT_DEPTH)), MAX_DEPTH)
        limit = min(int(arguments.get("limit") or DEFAULT_ENTRIES), MAX_ENTRIES)
        walk = _walk(self.workspace, arguments, stop, depth)
        above = self.workspace.find(path).name
        found = [
            (depth, number, item)
            for number, (depth, item) in enumerate(walk.below(path))
            if glob is None or glob.matches(item.path, _relative(item.path, above))
        ]
        if not found:
            what = f"nothing like {glob.text!r}" if glob else "nothing to show"
            return "\n".join([f"[{what} in {path}]", *walk.notes()])
        # By depth, then by order: a model that sees the top of a tree can ask for any part of it.
        nearest = sorted(found, key=lambda each: each[:2])

        def text(most: int) -> str:
            return "\n".join(_listed(item) for _, _, item in sorted(nearest[:most], key=lambda each: each[1]))

        most = largest(0, min(limit, len(found)), lambda n: self.counter.text(text(n)) <= budget_tokens)
        more = len(found) - most
        note = [f"… and {more:,} more; list a folder further down, or give a pattern"] if more else []
        return "\n".join([*([text(most)] if most else []), *note, *walk.notes()])


def _walk(workspace: Workspace, arguments: Mapping[str, Json], stop: StopSignal, depth: int = MAX_DEPTH) -> Walk:
    return Walk(
        workspace,
        stop,
        hidden=arguments.get("hidden") is True,
        include_ignored=arguments.get("include_ignored") is True,
        max_depth=depth,
    )


def _relative(path: str, above: str) -> str:
    return path if above == "." else path.removeprefix(f"{above}/")


def _listed(item: FolderEntry) -> str:
    if item.kind == "folder":
        return f"{item.path}/"
    if item.kind == "file":
        return f"{item.path}  {size_text(item.size_bytes)}"
    return f"{item.path} -> {item.target}" if item.kind == "link" else f"{item.path}  [{item.kind}]"


def _search_schema() -> dict[str, Json]:
    return _schema(
        ("pattern",),
        pattern=("string", "Regular expression, matched line by line; (?i) at its start ignores case."),
        path=("string", "Folder or file to search; the whole workspace if not given."),
        glob=("string", "Only files like this: *.py, src/**/*.md."),
        max_matches=("integer", f"Most lines to show; {DEFAULT_MATCHES} if not given."),
        hidden=("boolean", "Hidden ones and folders of made things (.git, node_modules, …) too."),
        include_ignored=("boolean", "What .gitignore names too."),
    )


@dataclass(frozen=True, slots=True)
class SearchFiles:
    """Searches the lines of text files by a regular expression that cannot hang (`Pattern`)."""

    workspace: Workspace
    counter: Counter = ESTIMATE
    name: str = "search_files"
    description: str = "Finds the lines of files that match a regular expression; shows each as path:line: text."
    parameters: Mapping[str, Json] = field(default_factory=_search_schema)

    async def run(self, arguments: Mapping[str, Json], scope: CallScope) -> ToolOutcome:
        """Search. Raises InvalidInput for an unknown path or an invalid pattern."""
        budget_tokens = max(0, scope.room().budget_tokens - NOTES_TOKENS)
        return ToolOutcome(await run_in_thread(lambda stop: self._search(arguments, budget_tokens, stop)))

    def _search(self, arguments: Mapping[str, Json], budget_tokens: int, stop: StopSignal) -> str:
        path = arguments.get("path") or "."
        glob = Glob(arguments["glob"], Work(check=stop.check)) if arguments.get("glob") else None
        walk = _walk(self.workspace, arguments, stop)
        search = _Search(self.workspace, arguments["pattern"], stop)
        place = self.workspace.find(path)
        if place.kind == "file":
            search.file(path)
        else:
            files = (item for _, item in walk.below(path) if item.kind == "file")
            for item in files:
                if search.ended:
                    break
                if glob is None or glob.matches(item.path, _relative(item.path, place.name)):
                    search.file_if_text(item.path)
        limit = min(int(arguments.get("max_matches") or DEFAULT_MATCHES), MAX_MATCHES)
        return self._answer(search, walk, limit, budget_tokens)

    def _answer(self, search: _Search, walk: Walk, limit: int, budget_tokens: int) -> str:
        if not search.count:
            where = "1 file" if search.files == 1 else f"{search.files:,} files"
            return "\n".join([f"[no line matches, in {where}]", *search.notes(), *walk.notes()])
        # As many as fit: a list that is cut later would lose its note on what is missing.
        lines = search.found[:limit]
        fitting = largest(0, len(lines), lambda n: self.counter.text("\n".join(lines[:n])) <= budget_tokens)
        more = search.count - fitting
        note = [f"… and {more:,} more; {search.count:,} lines match, in {search.hits:,} of {search.files:,} files"]
        return "\n".join([*lines[:fitting], *(note if more else []), *search.notes(), *walk.notes()])


class _Search:
    """One search: the matching lines so far, as they are shown, and their number."""

    def __init__(self, workspace: Workspace, pattern: str, stop: StopSignal) -> None:
        self._workspace = workspace
        self._pattern = Pattern(pattern)
        self._needle = _needle(pattern)
        self._stop = stop
        self._work = Work(MAX_STEPS, stop.check)
        self._chars = 0
        self._cut = 0
        self.found: list[str] = []
        self.count = self.hits = self.files = 0
        self.unreadable = 0

    def file_if_text(self, path: str) -> None:
        """Search a file, if it is one that can be read."""
        try:
            self.file(path)
        except InvalidInput:
            self.unreadable += 1

    def file(self, path: str) -> None:
        """Search a file. Raises InvalidInput for one that has no text."""
        if self.ended:
            return
        with self._workspace.open(path) as (file, place):
            # Only the head is read of a binary file, of which a workspace may have gigabytes.
            head = file.read(HEAD_BYTES)
            if is_pdf(head):
                raise InvalidInput("is a PDF, which is not searched; read_file shows its text", place=path)
            refuse_binary(head, path, place.status.st_size if place.status else 0)
            file.seek(0)
            (count, lines), _ = streamed(file, path, lambda pieces: self._matches(pieces, place.name), self._stop)
        self.files += 1
        self.hits += count > 0
        self.count += count
        self.found += lines[: MAX_MATCHES - len(self.found)]

    def _matches(self, pieces: Iterator[str], name: str) -> tuple[int, list[str]]:
        count = 0
        lines: list[str] = []
        try:
            for number, line in enumerate(each_line(self._counted(pieces), MAX_LINE_CHARS), 1):
                self._cut += len(line) == MAX_LINE_CHARS
                # A plain search is much faster than a match, and most lines fail it.
                if self._needle not in line:
                    continue
                if (end := self._pattern.search(line, self._work)) is not None:
                    count += 1
                    if len(lines) < MAX_MATCHES:
                        lines.append(f"{name}:{number}: {_excerpt(line, end)}")
        except OutOfSteps:  # what was found is shown
            pass
        return count, lines

    def _counted(self, pieces: Iterable[str]) -> Iterator[str]:
        for piece in pieces:
            self._chars += len(piece)
            # Charged before the lines are matched, so that a file of empty lines ends the search too.
            self._work.spend(LINE_STEPS * piece.count("\n"))
            yield piece
            if self.ended:
                return

    @property
    def ended(self) -> bool:
        """Whether the search has used up its characters or its steps."""
        return self._chars >= MAX_CHARS or self._work.ended

    def notes(self) -> list[str]:
        """Return notes on what was not searched, each in brackets."""
        out = [f"[{self.unreadable:,} binary or unreadable files skipped]"] if self.unreadable else []
        if self._cut:
            out.append(f"[{self._cut:,} lines have more than {MAX_LINE_CHARS:,} characters: the rest was not searched]")
        if self._work.ended:
            ended = f"[ended after {MAX_STEPS // 1_000_000} million steps; name a folder or a glob, repeat less in the "
            out.append(f"{ended}pattern, or begin it with plain letters]")
        elif self.ended:
            out.append(f"[ended after {self._chars // 1_000_000} million characters; name a folder or a glob]")
        return out


def _excerpt(line: str, end: int) -> str:
    """Return the line, or the part of it around the end of a match."""
    line = line.removesuffix("\r")
    if len(line) <= LINE_CHARS:
        return line
    # Three quarters before the end of the match: the match itself is there, and a little of what follows.
    start = min(max(0, end - LINE_CHARS * 3 // 4), len(line) - LINE_CHARS)
    stop = start + LINE_CHARS
    return f"{'…' * (start > 0)}{line[start:stop]}{'…' * (stop < len(line))}"


def _needle(pattern: str) -> str:
    """Return a text that every matching line contains; "" if none is certain. Finding it is much faster than matching.

    It is the longest run of letters that no repeat makes optional, in patterns without groups, alternatives and coded
    characters.
    """
    # A coded character could stand for a letter of the needle.
    if re.search(r"\\[xuUN0-9]", pattern):
        return ""
    plain = re.sub(r"\\.", "\0", pattern, flags=re.DOTALL)
    plain = re.sub(r"\[\^?\]?[^\]]*\]", "\0", plain)
    if "(" in plain or "|" in plain:
        return ""
    plain = re.sub(r".(?:[*?]|\{[^}]*\})", "\0", plain, flags=re.DOTALL)
    return max(re.findall(r"[\w ]+", plain), key=len, default="")
