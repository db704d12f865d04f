"""Walks the tree below a folder of the workspace, in order. Links are shown and not followed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from foldline.agent.tools.files.name_patterns import EXCLUDES, MAX_BYTES, NAME, NONE, IgnoreRules
from foldline.agent.tools.workspace import IGNORED_FOLDERS, FileLocation, FolderEntry, Workspace
from foldline.agent.workers import StopSignal
from foldline.errors import InvalidInput
from foldline.text.safe_regex import OutOfSteps, Work

__all__ = ["MAX_DEPTH", "Walk"]

MAX_DEPTH: Final = 64
# Names that one walk visits, so that a walk of a whole disk ends.
MAX_VISITED: Final = 100_000
# Steps of all ignore rules in one walk: a few seconds. 100,000 names under 100 rules take a third of it.
RULE_STEPS: Final = 50_000_000


@dataclass(slots=True)
class Walk:
    """A walk, with counts of what it left out: hidden names and generated folders unless `hidden`, and what .gitignore
    names unless `include_ignored`.
    """

    workspace: Workspace
    stop: StopSignal
    hidden: bool = False
    include_ignored: bool = False
    max_depth: int = MAX_DEPTH
    visited: int = 0
    left_out: int = 0
    ignored: int = 0
    unreadable: list[str] = field(default_factory=list)
    out_of_steps: bool = False
    _work: Work = field(init=False)

    def __post_init__(self) -> None:
        self._work = Work(RULE_STEPS, self.stop.check)

    def below(self, path: str) -> Iterator[tuple[int, FolderEntry]]:
        """Yield (depth, entry), a folder before its content; depth 1 is the folder itself.

        Raises WorkCancelled, and InvalidInput for an unreadable folder; folders further down are only counted.
        """
        place = self.workspace.find(path)
        above = None if self.include_ignored else self._above(place)
        return self._below(path, 1, above)

    def _below(self, path: str, depth: int, above: IgnoreRules | None) -> Iterator[tuple[int, FolderEntry]]:
        # One more than may be visited, so that the walk knows that it was cut off.
        most = MAX_VISITED - self.visited + 1
        found = self.workspace.scan(path, most=most, check=self.stop.check)
        rules = above
        if above is not None and any(item.name == NAME and item.kind == "file" for item in found):
            rules = self._with_file(above, found[0].path.rpartition("/")[0])
        for item in found:
            self.stop.check()
            if self.ended:
                return
            self.visited += 1
            if not self.hidden and (item.name.startswith(".") or item.name in IGNORED_FOLDERS):
                self.left_out += 1
                continue
            if rules is not None and self._is_ignored(item, rules):
                self.ignored += 1
                continue
            yield depth, item
            if item.kind == "folder" and depth < self.max_depth:
                yield from self._further(item.path, depth + 1, rules)

    def _further(self, path: str, depth: int, rules: IgnoreRules | None) -> Iterator[tuple[int, FolderEntry]]:
        try:
            yield from self._below(path, depth, rules)
        except InvalidInput:
            self.unreadable.append(path)

    # --- what the project ignores ------------------------------------------------------------------------------------

    def _above(self, place: FileLocation) -> IgnoreRules | None:
        """Return the rules of the folders above. None if the folder is ignored itself: its content was asked for."""
        rules = self._with_rules(NONE, EXCLUDES, "")
        names = [] if place.name == "." else place.name.split("/")
        for number in range(len(names)):
            rules = self._with_file(rules, "/".join(names[:number]))
            if self._ignores(rules, "/".join(names[: number + 1]), True):
                return None
        return rules

    def _with_file(self, rules: IgnoreRules, folder: str) -> IgnoreRules:
        return self._with_rules(rules, f"{folder}/{NAME}" if folder else NAME, folder)

    def _with_rules(self, rules: IgnoreRules, path: str, folder: str) -> IgnoreRules:
        try:
            if self.workspace.find(path).kind != "file":  # git follows no link here either
                return rules
            with self.workspace.open(path) as (file, _):
                return rules.with_file(file.read(MAX_BYTES), folder)
        except InvalidInput:  # it cannot be read
            return rules

    def _is_ignored(self, item: FolderEntry, rules: IgnoreRules) -> bool:
        return self._ignores(rules, item.path, item.kind == "folder")

    def _ignores(self, rules: IgnoreRules, path: str, is_folder: bool) -> bool:
        # Too much is better than too little: a file that is shown needlessly can be skipped.
        if self.out_of_steps:
            return False
        try:
            return rules(path, is_folder, self._work)
        except OutOfSteps:
            self.out_of_steps = True
            return False

    @property
    def ended(self) -> bool:
        """Whether the walk was cut off for its length."""
        return self.visited >= MAX_VISITED

    def notes(self) -> list[str]:
        """Return notes on what was left out, each in brackets."""
        out = []
        if self.left_out:
            out.append(f"[{self.left_out:,} hidden or ignored left out; hidden=true shows them]")
        if self.ignored:
            out.append(f"[{self.ignored:,} left out by {NAME}; include_ignored=true shows them]")
        if self.out_of_steps:
            out.append(f"[the rules of {NAME} are too much to be matched: from there on nothing was left out by them]")
        if self.unreadable:
            shown = ", ".join(self.unreadable[:5])
            out.append(f"[{len(self.unreadable):,} could not be read: {shown}{', …' * (len(self.unreadable) > 5)}]")
        if self.ended:
            out.append(f"[ended after {self.visited:,} names; name a folder further down]")
        return out
