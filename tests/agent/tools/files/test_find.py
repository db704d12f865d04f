"""list_files and search_files over real folders."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from tests.agent.tools.support import scope, text

from foldline.agent.tools.files.find import ListFiles, SearchFiles
from foldline.agent.tools.files.name_patterns import Glob
from foldline.agent.tools.files.walk import Walk
from foldline.agent.tools.toolbox import Toolbox
from foldline.agent.tools.workspace import FolderEntry, Workspace
from foldline.agent.workers import StopSignal, WorkCancelled
from foldline.errors import InvalidInput
from foldline.messages import ToolCall
from foldline.tokens import ESTIMATE


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small project beside a folder that nobody may see."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.py").write_text("def secret(): ...\n")
    root = tmp_path / "root"
    for name, content in {
        "README.md": "# Title\n\nHow to define things.\n",
        "src/app/main.py": "def main():\n    return helper()\n",
        "src/app/deep/er/x.py": "def x(): pass\n",
        "src/lib.ts": "export function lib() {}\n",
        "tests/test_main.py": "def test_main():\n    assert main()\r\n",
        ".git/config": "def hidden\n",
        "node_modules/m/index.js": "def ignored\n",
        ".env": "KEY=def\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content.encode())
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "logo.png").write_bytes(b"\x89PNG def \0\0")
    return root


@pytest.fixture
def listing(root: Path) -> ListFiles:
    return ListFiles(Workspace(root))


@pytest.fixture
def searching(root: Path) -> SearchFiles:
    return SearchFiles(Workspace(root))


def test_a_listing_is_sorted_with_sizes_and_shows_links_without_following(listing: ListFiles, root: Path) -> None:
    assert text(listing).split("\n") == [
        "README.md  31 bytes",
        "logo.png  11 bytes",
        f"out -> {root.parent / 'outside'}",
        "src/",
        "src/app/",
        "src/lib.ts  25 bytes",
        "tests/",
        "tests/test_main.py  36 bytes",
        "[3 hidden or ignored left out; hidden=true shows them]",
    ]


def test_a_listing_of_one_folder_goes_as_deep_as_asked(listing: ListFiles) -> None:
    assert text(listing, path="src", depth=1).split("\n") == ["src/app/", "src/lib.ts  25 bytes"]
    assert text(listing, path="src/app", depth=9).split("\n")[-1] == "src/app/main.py  32 bytes"
    assert ".git/config  11 bytes" in text(listing, hidden=True).split("\n")
    assert text(listing, path=".git") == ".git/config  11 bytes"


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("*.py", ["src/app/deep/er/x.py", "src/app/main.py", "tests/test_main.py"]),
        ("src/**/*.py", ["src/app/deep/er/x.py", "src/app/main.py"]),
        ("*.{ts,md}", ["README.md", "src/lib.ts"]),
        ("test_?ai[a-n].py", ["tests/test_main.py"]),
        ("**/deep", ["src/app/deep/"]),
    ],
)
def test_a_pattern_is_looked_for_in_all_folders(listing: ListFiles, pattern: str, paths: list[str]) -> None:
    shown = text(listing, pattern=pattern).split("\n")
    assert [line.split("  ")[0] for line in shown if not line.startswith("[")] == paths


def test_a_listing_is_bounded_and_prefers_what_is_further_up(listing: ListFiles, root: Path) -> None:
    for folder in range(10):
        (root / f"d{folder}").mkdir()
        for file in range(30):
            (root / f"d{folder}" / f"f{file}").touch()
    lines = text(listing, limit=20).split("\n")
    assert lines[-2] == "… and 298 more; list a folder further down, or give a pattern"
    assert {f"d{n}/" for n in range(10)} | {"src/", "tests/", "README.md  31 bytes"} <= set(lines)
    assert lines[:-2] == sorted(lines[:-2])


def test_lists_and_matches_stay_within_the_budget_of_a_small_window(
    listing: ListFiles, searching: SearchFiles, root: Path
) -> None:
    (root / "many.txt").write_text("a line with a word in it\n" * 1_000)
    for number in range(200):
        (root / f"file-{number:03}").touch()
    for window in (0, 500, 2_048, 4_000):
        for shown in (text(listing, window, limit=2_000), text(searching, window, pattern="word", max_matches=1_000)):
            assert ESTIMATE.text(shown) <= max(80, window // 4)
            assert " more; " in shown


def test_nothing_to_list_says_so(listing: ListFiles, root: Path) -> None:
    (root / "empty").mkdir()
    assert text(listing, path="empty") == "[nothing to show in empty]"
    assert text(listing, pattern="*.rs").startswith("[nothing like '*.rs' in .]\n")
    for path, reason in {"none": "there is no such folder", "README.md": "is a file, not", "out": "leads out"}.items():
        with pytest.raises(InvalidInput, match=reason):
            text(listing, path=path)


def test_matches_name_path_and_line(searching: SearchFiles) -> None:
    assert text(searching, pattern=r"^def \w+\(").split("\n") == [
        "src/app/deep/er/x.py:1: def x(): pass",
        "src/app/main.py:1: def main():",
        "tests/test_main.py:1: def test_main():",
        "[1 binary or unreadable files skipped]",
        "[3 hidden or ignored left out; hidden=true shows them]",
    ]
    assert text(searching, pattern="main", path="tests", glob="*.py").split("\n") == [
        "tests/test_main.py:1: def test_main():",
        "tests/test_main.py:2:     assert main()",
    ]
    assert text(searching, pattern="(?i)TITLE", path="README.md") == "README.md:1: # Title"
    assert text(searching, pattern="def", path=".git/config") == ".git/config:1: def hidden"
    assert text(searching, pattern="nowhere", glob="*.md").startswith("[no line matches, in 1 file]")


def test_a_search_does_not_leave_the_workspace(searching: SearchFiles) -> None:
    assert "secret" not in text(searching, pattern="secret|def", hidden=True)
    with pytest.raises(InvalidInput, match="leads out of the workspace"):
        text(searching, pattern="def", path="out")


def test_matches_are_bounded_and_the_rest_is_counted(searching: SearchFiles, root: Path) -> None:
    (root / "many.txt").write_text("needle\n" * 5_000)
    (root / "more.txt").write_text("needle\n" * 5_000)
    lines = text(searching, pattern="needle", max_matches=3).split("\n")
    assert lines[:4] == [
        *(f"many.txt:{n}: needle" for n in (1, 2, 3)),
        "… and 9,997 more; 10,000 lines match, in 2 of 7 files",
    ]


def test_of_a_long_line_the_part_around_the_match_is_shown(searching: SearchFiles, root: Path) -> None:
    (root / "wide.json").write_text("a" * 3_000_000 + "needle" + "b" * 3_000)
    line = text(searching, pattern="needle", path="wide.json")
    assert len(line) < 250
    assert line.startswith("wide.json:1: …aaa")
    assert "needlebbb" in line
    assert line.endswith("b…")


def test_a_pattern_that_would_hang_others_ends(searching: SearchFiles, root: Path) -> None:
    (root / "evil.txt").write_text("a" * 50_000 + "\n")
    assert text(searching, pattern="(a+)+$", path="evil.txt").startswith("evil.txt:1: ")
    assert text(searching, pattern="(a|aa)+b", path="evil.txt") == "[no line matches, in 1 file]"
    with pytest.raises(InvalidInput, match="is not a regular expression"):
        text(searching, pattern="(")
    assert not Glob("*a" * 100 + "b").matches("a" * 10_000)


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (r"colou?r", "color"),
        (r"ab{0,2}c", "ac"),
        (r"x*yz", "yz"),
        (r"a.c", "abc"),
        (r"[xyz]+\d", "z1"),
        (r"[]a]b", "ab"),
        (r"one|two", "two"),
        (r"(?i)ABC", "abc"),
        (r"\x41bc", "Abc"),
        (r"\bword\b", "a word here"),
        (r"^$", ""),
        (r"a\+b", "a+b"),
        (r"(ab)?c", "c"),
        (r"fine\[0\] = \w+", "fine[0] = x"),
        (r"[^a]b", "xb"),
        (r"é+ 中", "éé 中"),
    ],
)
def test_the_quick_look_before_a_match_loses_none(searching: SearchFiles, root: Path, pattern: str, line: str) -> None:
    (root / "one.txt").write_text(line + "\n", "utf-8")
    assert text(searching, pattern=pattern, path="one.txt") == f"one.txt:1: {line}"


@pytest.mark.parametrize(
    ("glob", "yes", "no"),
    [
        ("*.py", "a/b.py", "a/b.pyc"),
        ("a/*.py", "a/b.py", "a/b/c.py"),
        ("**/b", "b", "ab"),
        ("a/**", "a/b/c", "ab"),
        ("[!a]*", "b", "a"),
        ("a+(b).txt", "a+(b).txt", "aab.txt"),
        ("{a,b}{1,2}", "b1", "ab"),
        ("[", "[", "x"),
        ("{a", "a", "{a"),
        ("x,y", "x,y", "x"),
        ("./*.md", "r.md", "a/r.md"),
    ],
)
def test_wildcards_mean_what_they_do_in_a_shell(glob: str, yes: str, no: str) -> None:
    assert (Glob(glob).matches(yes), Glob(glob).matches(no)) == (True, False)


def test_a_link_to_its_own_folder_is_no_endless_walk(listing: ListFiles, root: Path) -> None:
    (root / "src" / "again").symlink_to("..")
    assert "src/again -> .." in text(listing, depth=50).split("\n")


def test_a_folder_that_vanishes_or_is_closed_is_told_not_fatal(root: Path) -> None:
    class Closed(Workspace):
        def scan(self, path: str, **how: Any) -> list[FolderEntry]:
            if path == "src/app":
                raise InvalidInput("permission denied", place=path)
            return super().scan(path, **how)

    shown = text(ListFiles(Closed(root)), depth=9)
    assert "[1 could not be read: src/app]" in shown
    assert "tests/test_main.py" in shown


def test_both_are_tools_that_the_toolbox_takes(listing: ListFiles, searching: SearchFiles) -> None:
    box = Toolbox([listing, searching])
    for name, arguments, wanted in (
        ("list_files", "{}", "README.md"),
        ("search_files", '{"pattern": "Title"}', "README.md:1: # Title"),
        ("search_files", "{}", "'pattern' is missing"),
        ("list_files", '{"depth": 0}', "depth: must be at least 1"),
    ):
        assert wanted in asyncio.run(box.run(ToolCall("1", name, arguments), scope())).text


@pytest.mark.skipif(os.name == "nt", reason="names are text there")
def test_names_that_are_no_text_do_not_break_a_listing(listing: ListFiles, root: Path) -> None:
    (Path(os.fsdecode(os.fsencode(root) + b"/bad\xff"))).touch()
    call = ToolCall("1", "list_files", "{}")
    assert "bad\N{REPLACEMENT CHARACTER}  0 bytes" in asyncio.run(Toolbox([listing]).run(call, scope())).text


@pytest.fixture
def project(root: Path) -> Path:
    """The small project with rules of its own about what is ignored."""
    (root / ".gitignore").write_text("*.log\n/build/\n!keep.log\n")
    (root / "src" / ".gitignore").write_text("lib.ts\n")
    (root / ".git" / "info").mkdir()
    (root / ".git" / "info" / "exclude").write_text("/scratch*\n")
    for name in ("a.log", "keep.log", "build/out.py", "src/app/x.log", "scratch.py", "src/build/b.py"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("def made(): ...\n")
    return root


def test_what_the_project_ignores_is_left_out_and_said_so(listing: ListFiles, project: Path) -> None:
    shown = text(listing, depth=9).split("\n")
    assert "keep.log  16 bytes" in shown
    assert "src/build/b.py  16 bytes" in shown
    assert not {"a.log  16 bytes", "build/", "scratch.py  16 bytes", "src/app/x.log  16 bytes"} & set(shown)
    assert "src/lib.ts" not in "\n".join(shown)
    assert shown[-1] == "[5 left out by .gitignore; include_ignored=true shows them]"


def test_a_search_honours_it_too_and_both_look_there_when_asked(
    listing: ListFiles, searching: SearchFiles, project: Path
) -> None:
    found = text(searching, pattern="def made")
    assert [line.partition(":")[0] for line in found.split("\n")[:2]] == ["keep.log", "src/build/b.py"]
    assert "include_ignored=true shows them" in found
    every = text(searching, pattern="def made", include_ignored=True)
    assert "build/out.py:1: def made" in every
    assert "src/app/x.log:1: def made" in every
    assert "left out by .gitignore" not in every
    assert "build/out.py  16 bytes" in text(listing, depth=9, include_ignored=True).split("\n")


def test_rules_of_folders_above_hold_in_a_folder_that_is_named(listing: ListFiles, project: Path) -> None:
    assert "x.log" not in text(listing, path="src/app", depth=1)
    assert "src/lib.ts" not in text(listing, path="src", depth=1)


def test_all_of_an_ignored_folder_is_shown_when_it_is_named(listing: ListFiles, project: Path) -> None:
    assert text(listing, path="build") == "build/out.py  16 bytes"
    assert text(listing, path="build", pattern="*.py") == "build/out.py  16 bytes"


def test_rules_behind_a_link_are_not_read(listing: ListFiles, root: Path) -> None:
    (root.parent / "outside" / "rules").write_text("*\n")
    (root / ".gitignore").symlink_to("../outside/rules")
    assert "src/lib.ts  25 bytes" in text(listing).split("\n")


def test_rules_that_are_too_much_are_told_and_stop_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foldline.agent.tools.files.walk.RULE_STEPS", 1_000)
    (root / ".gitignore").write_text("*a*b*c*d\n" * 500)
    shown = text(ListFiles(Workspace(root)), depth=9)
    assert "src/lib.ts  25 bytes" in shown
    assert "[the rules of .gitignore are too much to be matched" in shown


def test_a_folder_of_very_many_names_is_looked_at_so_far_and_no_further(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foldline.agent.tools.files.walk.MAX_VISITED", 50)
    (root / "many").mkdir()
    for number in range(120):
        (root / "many" / f"{number}.txt").touch()
    workspace = Workspace(root)
    assert len(workspace.scan("many", most=30)) == 30
    walk = Walk(workspace, StopSignal())
    assert len(list(walk.below("many"))) == 50
    assert walk.notes() == ["[ended after 50 names; name a folder further down]"]


def test_a_walk_ends_within_a_folder_once_nobody_waits(root: Path) -> None:
    stop = StopSignal()
    stop.set()
    with pytest.raises(WorkCancelled):
        Workspace(root).scan(".", check=stop.check)


def test_a_search_whose_pattern_takes_too_many_steps_shows_what_it_found_and_says_so(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foldline.agent.tools.files.find.MAX_STEPS", 20_000)
    (root / "a.txt").write_text("first ab1\n" + "ab1" * 40_000)
    shown = text(SearchFiles(Workspace(root)), pattern=r"1$|(.{0,100}a){6}x")
    assert shown.startswith("a.txt:1: first ab1")
    assert "[ended after" in shown
    assert "begin it with plain letters]" in shown


def test_millions_of_empty_lines_take_steps_too(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foldline.agent.tools.files.find.MAX_STEPS", 1_000_000)
    (root / "a.txt").write_text("\n" * 2_000_000)
    assert "[ended after 1 million steps" in text(SearchFiles(Workspace(root)), pattern="needle")


def test_a_line_of_many_megabytes_is_searched_in_its_first_part_and_the_rest_is_told(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foldline.agent.tools.files.find.MAX_LINE_CHARS", 10_000)
    (root / "min.js").write_text("x" * 9_000 + "needle" + "x" * 3_000_000 + "needle\n")
    shown = text(SearchFiles(Workspace(root)), pattern="needle")
    assert "min.js:1: …" in shown
    assert "[1 lines have more than 10,000 characters: the rest was not searched]" in shown


def test_wildcards_of_endless_length_are_refused_before_they_are_read() -> None:
    with pytest.raises(InvalidInput, match="has 200,000 characters, more than 1,000"):
        Glob("[" * 200_000)
