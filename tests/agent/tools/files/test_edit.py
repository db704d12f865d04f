"""write_file and edit_file: nothing without consent, everything or nothing, and nobody's line ends changed."""

from __future__ import annotations

import asyncio
import codecs
import os
import stat
from pathlib import Path

import pytest
from tests.agent.tools.support import Person, run, scope

from foldline.agent.tools.base import CONSENT_NEEDED, PermissionRequest, ToolOutcome
from foldline.agent.tools.files.edit import EditFile, WriteFile, preview
from foldline.agent.tools.workspace import Workspace
from foldline.errors import InvalidInput


@pytest.fixture
def write(tmp_path: Path) -> WriteFile:
    return WriteFile(Workspace(tmp_path))


@pytest.fixture
def edit(tmp_path: Path) -> EditFile:
    return EditFile(Workspace(tmp_path))


def done(tool: WriteFile | EditFile, person: Person | None = None, **arguments: object) -> str:
    outcome = run(tool, scope(person=person or Person()), **arguments)
    assert not outcome.is_error
    return outcome.text


def test_a_new_file_is_asked_for_and_made_with_its_folders(write: WriteFile, tmp_path: Path) -> None:
    person = Person()
    answer = done(write, person, path="src/new/x.py", content="a = 'é'\nb = 2\n")
    assert person.asked == [
        PermissionRequest("write_file", "write 15 bytes to src/new/x.py (new file)\n+a = 'é'\n+b = 2")
    ]
    assert answer == "Wrote src/new/x.py: 15 bytes, 2 lines (a new file)."
    assert (tmp_path / "src/new/x.py").read_bytes() == "a = 'é'\nb = 2\n".encode()


def test_a_file_that_is_there_is_replaced_and_keeps_its_mode(write: WriteFile, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("x" * 1_204)
    (tmp_path / "run").chmod(0o755)
    person = Person()
    assert done(write, person, path="run", content="y") == "Wrote run: 1 byte, 1 line (it had 1,204 bytes)."
    head, place, *change = person.asked[0].what.split("\n")
    assert (head, place) == ("write 1 byte to run (replaces 1,204 bytes)", "@@ line 1 @@")
    assert change == [f"-{'x' * 299}… (905 more characters)", "+y"]
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o755


def test_without_consent_nothing_is_touched(write: WriteFile, edit: EditFile, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    refused = ToolOutcome(CONSENT_NEEDED, is_error=True)
    for person in (Person(answer=False), None):  # None: nobody can be asked
        assert run(write, scope(person=person), path="new/a", content="x") == refused
        assert run(write, scope(person=person), path="a", content="x") == refused
        assert run(edit, scope(person=person), path="a", old="old", new="x") == refused
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_what_cannot_be_written_is_not_even_asked(write: WriteFile, edit: EditFile, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / "locked").write_text("x")
    (tmp_path / "locked").chmod(0o400)
    os.mkfifo(tmp_path / "pipe")
    person = Person()
    for path, reason in {
        "../x": "leads out of the workspace",
        "out/passwd": "leads out of the workspace",
        "folder": "is a folder",
        "pipe": "is a pipe",
        "locked": "is read-only",
        "locked/x": "is a file, not a folder",
    }.items():
        with pytest.raises(InvalidInput, match=reason):
            run(write, scope(person=person), path=path, content="x")
        with pytest.raises(InvalidInput, match=reason):
            run(edit, scope(person=person), path=path, old="x", new="y")
    with pytest.raises(InvalidInput, match=r"content: has '\\ud800', which the encoding utf-8 has not"):
        run(write, scope(person=person), path="a", content="\ud800")
    assert person.asked == []


def test_a_person_sees_the_file_that_is_meant_and_no_trick_of_a_terminal(write: WriteFile, tmp_path: Path) -> None:
    (tmp_path / "real.py").write_text("")
    (tmp_path / "link").symlink_to("real.py")
    person = Person()
    done(write, person, path="link", content="x")
    done(write, person, path="a\n\x1b[2K\u202egnp.sh", content="x")
    assert "real.py" in person.asked[0].what
    assert "a\\n\\x1b[2K\\u202egnp.sh" in person.asked[1].what


def test_a_replaced_file_is_shown_as_a_diff_without_tricks_of_a_terminal(write: WriteFile, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("".join(f"line {n}\n" for n in range(1, 100)))
    person = Person()
    content = "".join(f"line {n}\n" for n in range(1, 100) if n != 90).replace("line 50\n", "fifty\x1b[2K\u202e\n")
    done(write, person, path="x.py", content=content)
    assert person.asked[0].what.split("\n")[1:] == [
        "@@ line 50 @@",
        " line 48",
        " line 49",
        "-line 50",
        "+fifty\\x1b[2K\\u202e",
        " line 51",
        " line 52",
        "@@ line 90 @@",
        " line 88",
        " line 89",
        "-line 90",
        " line 91",
        " line 92",
    ]


@pytest.mark.parametrize("old", [b"\x89PNG\0\0", b"\xff\xfe\0"])
def test_what_is_no_text_is_said_and_the_new_content_is_shown(write: WriteFile, tmp_path: Path, old: bytes) -> None:
    (tmp_path / "a.png").write_bytes(old)
    person = Person()
    done(write, person, path="a.png", content="now a text")
    head, reason, *shown = person.asked[0].what.split("\n")
    assert head.startswith("write 10 bytes to a.png (replaces ")
    assert reason.startswith(("… what is there now is a binary file", "… what is there now begins like"))
    assert shown == ["+now a text"]


def test_what_changes_while_the_person_thinks_is_not_overwritten(
    write: WriteFile, edit: EditFile, tmp_path: Path
) -> None:
    path = tmp_path / "a"

    class Slow(Person):
        def meanwhile(self) -> None:
            path.write_text("somebody else's")

    with pytest.raises(InvalidInput, match="has changed in the meantime: nothing was written"):
        run(write, scope(person=Slow()), path="a", content="mine")
    path.write_text("one two")
    with pytest.raises(InvalidInput, match="old: does not occur"):
        run(edit, scope(person=Slow()), path="a", old="one", new="1")
    assert path.read_text() == "somebody else's"


def test_a_link_put_in_place_while_the_person_thinks_is_not_followed(
    write: WriteFile, edit: EditFile, tmp_path: Path
) -> None:
    (tmp_path / "other").write_text("one")
    (tmp_path / "a").write_text("one")

    class Slow(Person):
        def meanwhile(self) -> None:
            (tmp_path / "a").unlink(missing_ok=True)
            (tmp_path / "a").symlink_to("other")

    with pytest.raises(InvalidInput, match=r"not followed|in the meantime"):
        run(write, scope(person=Slow()), path="a", content="mine")
    (tmp_path / "a").unlink()
    (tmp_path / "a").write_text("one")
    with pytest.raises(InvalidInput, match="in the meantime"):
        run(edit, scope(person=Slow()), path="a", old="one", new="mine")
    assert (tmp_path / "other").read_text() == "one"


def test_an_edit_replaces_the_one_place_and_shows_it_before(edit: EditFile, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("".join(f"line {n}\n" for n in range(1, 10)))
    person = Person()
    answer = done(edit, person, path="x.py", old="line 4\nline 5\n", new="line 4\nfive\nand more\n")
    assert (tmp_path / "x.py").read_text().split("\n")[3:7] == ["line 4", "five", "and more", "line 6"]
    assert answer == "Edited x.py: 1 place (line 4); 63 bytes before, 70 bytes now."
    assert person.asked == [
        PermissionRequest(
            "edit_file",
            "edit x.py: 1 place (line 4)\n@@ line 5 @@\n line 3\n line 4\n-line 5\n+five\n+and more\n line 6\n line 7",
        )
    ]


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ("a", "A", "@@ line 1 @@\n-a\n+A\n b\n c"),
        ("c", "C", "@@ line 3 @@\n a\n b\n-c\n+C"),
        ("b\n", "", "@@ line 2 @@\n a\n-b\n c"),
        ("c", "c\nd", "@@ line 4 @@\n b\n c\n+d"),
        ("a\nb\nc", "", "@@ line 1 @@\n-a\n-b\n-c\n+"),
    ],
)
def test_the_change_is_shown_as_it_will_be(edit: EditFile, tmp_path: Path, old: str, new: str, shown: str) -> None:
    (tmp_path / "x").write_text("a\nb\nc")
    person = Person()
    done(edit, person, path="x", old=old, new=new)
    assert person.asked[0].what.partition("\n")[2] == shown
    assert (tmp_path / "x").read_text() == "a\nb\nc".replace(old, new)


def test_a_long_change_is_shown_in_part_and_says_so(edit: EditFile, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("word\n" * 50)
    person = Person()
    done(edit, person, path="x", old="word", new="w" * 1_000, all=True)
    lines = person.asked[0].what.split("\n")
    assert lines[0] == "edit x: 50 places (lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …)"
    assert lines[-1] == "… and the same in 47 more places"
    assert f"+{'w' * 299}… (701 more characters)" in lines
    done(edit, person, path="x", old="w" * 1_000 + "\n", new="y\n" * 10, all=True)
    done(edit, person, path="x", old="y\n" * 500, new="z\n" * 500)
    lines = person.asked[2].what.split("\n")
    assert lines[-1] == "… 942 more lines of this change are not shown"


def test_a_text_must_occur_exactly_once(edit: EditFile, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("a = 1\nb = 2\na = 1\n    if x:\n        y\n")
    for old, reason in {
        "a = 1": r"old: occurs 2 times in x\.py \(lines 1, 3\); give more of the text around it, or all=true",
        "c = 3": r"old: does not occur in x\.py; read the file again",
        "if  x:\n    y": "old: does not occur in x.py; its first line is like line 4, so compare the whitespace",
        "b = 2": "new: is the same as old",
    }.items():
        with pytest.raises(InvalidInput, match=reason):
            run(edit, scope(person=Person()), path="x.py", old=old, new="b = 2")
    assert done(edit, path="x.py", old="a = 1", new="c", all=True).startswith("Edited x.py: 2 places (lines 1, 3);")
    assert (tmp_path / "x.py").read_text() == "c\nb = 2\nc\n    if x:\n        y\n"


@pytest.mark.parametrize("old", ["two\nthree", "two\r\nthree"])
def test_line_ends_of_windows_are_kept(edit: EditFile, tmp_path: Path, old: str) -> None:
    (tmp_path / "x").write_bytes(b"one\r\ntwo\r\nthree\r\nfour\r\n")
    person = Person()
    done(edit, person, path="x", old=old, new="2\nand\n3")
    assert (tmp_path / "x").read_bytes() == b"one\r\n2\r\nand\r\n3\r\nfour\r\n"
    assert "\\r" not in person.asked[0].what


def test_a_single_foreign_line_end_stays_one(edit: EditFile, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"one\ntwo\r\nthree\nfour\n")
    done(edit, path="x", old="three", new="3\n3")
    assert (tmp_path / "x").read_bytes() == b"one\ntwo\r\n3\n3\nfour\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_the_encoding_is_kept(edit: EditFile, tmp_path: Path, encoding: str) -> None:
    before = "café\nnoir\n".encode(encoding)
    (tmp_path / "x").write_bytes(before)
    done(edit, path="x", old="noir", new="crème")
    after = (tmp_path / "x").read_bytes()
    assert after == "café\ncrème\n".encode(encoding)
    assert after.startswith(codecs.BOM_UTF8) == (encoding == "utf-8-sig")


def test_a_character_that_the_encoding_has_not_is_refused(edit: EditFile, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"caf\xe9\n")
    with pytest.raises(InvalidInput, match=r"new: has '\\u4e2d', which the encoding latin-1 has not"):
        run(edit, scope(person=Person()), path="x", old="caf", new="中")
    assert (tmp_path / "x").read_bytes() == b"caf\xe9\n"


def test_binary_and_missing_files_are_not_edited(edit: EditFile, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\x7fELF\0")
    for path, reason in {"x": "is a binary file", "none": "there is no such file"}.items():
        with pytest.raises(InvalidInput, match=reason):
            run(edit, scope(person=Person()), path=path, old="a", new="b")


def test_edits_of_one_turn_do_not_undo_each_other(edit: EditFile, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("".join(f"<{n}>\n" for n in range(12)))

    async def all_at_once() -> list[ToolOutcome]:
        calls = (edit.run({"path": "x", "old": f"<{n}>", "new": f"[{n}]"}, scope(person=Person())) for n in range(12))
        return list(await asyncio.gather(*calls))

    assert not any(outcome.is_error for outcome in asyncio.run(all_at_once()))
    assert (tmp_path / "x").read_text() == "".join(f"[{n}]\n" for n in range(12))


def test_an_edit_of_more_places_than_anybody_can_judge_is_refused_before_it_is_asked(
    edit: EditFile, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("a" * 200_000)
    person = Person()
    with pytest.raises(InvalidInput, match=r"occurs 200,000 times in a\.txt, more than 100,000"):
        run(edit, scope(person=person), path="a.txt", old="a", new="b", all=True)
    with pytest.raises(InvalidInput, match=r"occurs 200,000 times in a\.txt \(lines 1, 1"):
        run(edit, scope(person=person), path="a.txt", old="a", new="b")
    assert person.asked == []


def test_an_edit_that_would_make_a_file_too_large_is_refused_before_it_is_made(edit: EditFile, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("ab" * 50_000)
    with pytest.raises(InvalidInput, match=r"would make a\.txt larger than 16\.0 MB"):
        run(edit, scope(person=Person()), path="a.txt", old="a", new="x" * 1_000_000, all=True)


def numbered(stop: int, word: str = "line") -> str:
    return "".join(f"{word} {number}\n" for number in range(stop))


def test_a_new_file_is_shown_by_its_first_lines() -> None:
    assert preview(None, "a\n\nb") == ["+a", "+", "+b"]
    assert preview(None, "") == []
    shown = preview(None, numbered(100))
    assert shown[:40] == [f"+line {number}" for number in range(40)]
    assert shown[40:] == ["… 60 more lines of this change not shown"]


def test_lines_that_go_do_not_crowd_out_those_that_come() -> None:
    shown = preview(numbered(500, "old"), numbered(20, "new"))
    assert shown[0] == "@@ line 1 @@"
    assert shown[1:7] == [*(f"-old {number}" for number in range(5)), "… 495 more lines that go"]
    assert shown[7:] == [f"+new {number}" for number in range(20)]


@pytest.mark.parametrize("count", [900, 5_000])
def test_every_line_that_is_not_shown_is_counted(count: int) -> None:
    shown = preview(f"same\n{numbered(count, 'old')}end\n", f"same\n{numbered(count, 'new')}end\n")
    assert shown[:2] == ["@@ line 2 @@", " same"]
    assert shown[7] == f"… {count - 5:,} more lines that go"
    comes = sum(line.startswith("+") for line in shown)
    assert len(shown) == 41
    assert shown[-1] == f"… {count - comes + 1:,} more lines of this change not shown"  # with the one after it


def test_a_change_of_no_line_is_said() -> None:
    assert preview("a\nb", "a\nb\n") == ["… no line changes"]


def test_another_line_end_is_a_change_that_is_seen() -> None:
    assert preview("a\r\n", "a\n") == ["@@ line 1 @@", "-a\\r", "+a"]


def test_an_insertion_names_the_line_before_which_it_stands() -> None:
    assert preview("a\nb\n", "a\nnew\nb\n") == ["@@ line 2 @@", " a", "+new", " b"]
    assert preview("", "new\n") == ["@@ line 1 @@", "+new"]
    assert preview("gone\n", "") == ["@@ line 1 @@", "-gone"]
