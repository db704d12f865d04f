"""read_file over real files: texts in every encoding, what is no text, and files too large to hold."""

from __future__ import annotations

import asyncio
import codecs
from pathlib import Path
from typing import Any

import pytest
from tests.agent.tools.support import run, scope, text

from foldline.agent.tools.base import Tool
from foldline.agent.tools.files.file_text import PIECE_BYTES, each_line, part
from foldline.agent.tools.files.read_file import MAX_WHOLE_BYTES, ReadFile
from foldline.agent.tools.toolbox import Toolbox
from foldline.agent.tools.workspace import Workspace
from foldline.agent.workers import StopSignal, WorkCancelled, run_in_thread
from foldline.errors import InvalidInput
from foldline.messages import ToolCall

LARGE = "".join(f"line {n:07} {'é' * 10}\n" for n in range(1, 300_001)).encode()


@pytest.fixture
def tool(tmp_path: Path) -> ReadFile:
    return ReadFile(Workspace(tmp_path))


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A file that comes in pieces: 300,000 numbered lines, in one of them a character that pieces may split."""
    path = tmp_path / "large.log"
    path.write_bytes(LARGE)
    assert path.stat().st_size > MAX_WHOLE_BYTES
    return path


def test_a_text_is_shown_as_it_is(tool: ReadFile, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("one\r\n\ttwo é 中 🙂\n\n".encode())
    assert text(tool, path="a.txt") == "one\r\n\ttwo é 中 🙂\n\n"


def test_it_is_a_tool_that_the_toolbox_takes(tool: ReadFile, tmp_path: Path) -> None:
    checked: Tool = tool
    (tmp_path / "a.txt").write_text("1\n2\n3\n")
    box = Toolbox([checked])
    for arguments, wanted in {
        '{"path": "a.txt", "start_line": 2, "end_line": 2}': "2",
        '{"path": "a.txt", "start_line": "2"}': 'start_line: must be an integer, not "2"',
        '{"path": "../a.txt"}': "../a.txt: leads out of the workspace",
        '{"path": "none"}': "none: there is no such file",
    }.items():
        outcome = asyncio.run(box.run(ToolCall("1", "read_file", arguments), scope()))
        assert wanted in outcome.text
        assert outcome.is_error == (wanted != "2")


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (codecs.BOM_UTF8 + "é\n".encode(), "é\n"),
        (codecs.BOM_UTF16_LE + "é 🙂\n".encode("utf-16-le"), "é 🙂\n"),
        (codecs.BOM_UTF16_BE + "é\n".encode("utf-16-be"), "é\n"),
        (codecs.BOM_UTF32_LE + "é\n".encode("utf-32-le"), "é\n"),
        (b"caf\xe9\n", "[not valid UTF-8: read as Latin-1, so characters beyond ASCII may be wrong]\ncafé\n"),
        (b"", "[the file is empty: 0 bytes]"),
        (codecs.BOM_UTF8, "[the file has no text in it]"),
        (b"\n", "\n"),
    ],
)
def test_every_encoding_is_read(tool: ReadFile, tmp_path: Path, data: bytes, shown: str) -> None:
    (tmp_path / "a.txt").write_bytes(data)
    assert text(tool, path="a.txt") == shown


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "a PNG image; 10 bytes"),
        (b"PK\x03\x04\0\0", "a ZIP archive, or a document in one: docx, xlsx, jar; 6 bytes"),
        (b"\x7fELF\2\1\1\0" + b"\0" * 3000, "an ELF program or library; 2.9 KB"),
        (b"SQLite format 3\0", "an SQLite database; 16 bytes"),
        (b"abc\0", "of an unknown kind; 4 bytes"),
        (bytes(range(1, 32)), "of an unknown kind; 31 bytes"),
    ],
)
def test_a_binary_file_says_what_it_is(tool: ReadFile, tmp_path: Path, data: bytes, what: str) -> None:
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(InvalidInput) as caught:
        text(tool, path="a")
    assert str(caught.value) == f"a: is a binary file ({what}) and has no text to show"


def test_a_byte_order_mark_that_lies_is_told(tool: ReadFile, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(codecs.BOM_UTF16_LE + b"a")
    with pytest.raises(InvalidInput, match="begins like UTF-16-LE, and is not"):
        text(tool, path="a")


def test_colours_of_a_terminal_do_not_make_a_text_binary(tool: ReadFile, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("\x1b[31mred\x1b[0m\n" * 5)
    assert text(tool, path="a").startswith("\x1b[31mred")


def test_a_large_file_is_refused_with_its_figures(tool: ReadFile, large: Path) -> None:
    shown = text(tool, path="large.log")
    assert shown.startswith("⚠ FILE TOO LARGE FOR FULL READ\n\nFile: large.log\n")
    assert f"Size: {large.stat().st_size / 1024**2:.1f} MB (~" in shown
    assert "\nTotal lines: 300,000\n" in shown
    assert f"--- Preview (lines 1-50) ---\nline 0000001 {'é' * 10}\n" in shown
    assert 'read_file(path="large.log", start_line=1, end_line=' in shown


def test_parts_of_a_large_file_are_the_lines_asked_for(tool: ReadFile, large: Path) -> None:
    lines = large.read_text("utf-8").split("\n")
    in_between = lines[199_999:200_003]
    assert text(tool, path="large.log", start_line=200_000, end_line=200_003).split("\n") == in_between
    assert text(tool, path="large.log", start_line=299_999).split("\n") == lines[299_998:300_000]
    assert text(tool, path="large.log", end_line=2).split("\n") == lines[:2]
    assert text(tool, path="large.log", start_line=299_999, end_line=400_000).split("\n") == lines[299_998:300_000]


def test_parts_of_a_large_file_are_cut_to_the_budget(tool: ReadFile, large: Path) -> None:
    for end_line, last in ((None, 300_000), (9_000, 9_000)):
        *lines, note = text(tool, 8_000, path="large.log", start_line=1_000, end_line=end_line).split("\n")
        stop = 999 + len(lines)
        assert lines[0].startswith("line 0001000 ")
        assert f"lines 1000-{stop} of the lines 1000-{last} asked for" in note
        assert f"Go on with start_line={stop + 1}." in note


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        ({"start_line": 300_001}, "start_line: must be from 1 to 300,000, the lines of the file, not 300,001"),
        ({"start_line": 0}, "start_line: must be 1 or more, not 0"),
        ({"start_line": 5, "end_line": 4}, r"end_line: must not be before start_line \(5\), not 4"),
        ({"end_line": 2.5}, "end_line: must be an integer, not 2.5"),
        ({"start_line": True}, "start_line: must be an integer, not True"),
    ],
)
def test_bounds_of_a_large_file_are_checked(tool: ReadFile, large: Path, bounds: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        text(tool, path="large.log", **bounds)


def test_a_large_file_that_is_no_utf8_after_all_is_read_again(tool: ReadFile, large: Path) -> None:
    with large.open("ab") as file:
        file.write(b"caf\xe9\n")
    note, last = text(tool, path="large.log", start_line=300_001).split("\n")
    assert (note[:20], last) == ("[not valid UTF-8: re", "café")
    assert "Total lines: 300,001\n" in text(tool, path="large.log")


def test_one_line_of_many_megabytes_is_no_trouble(tool: ReadFile, tmp_path: Path) -> None:
    (tmp_path / "wide.json").write_text("x" * (2 * MAX_WHOLE_BYTES))
    assert "Total lines: 1\n" in text(tool, path="wide.json")
    assert "characters of line 1; the budget" in text(tool, path="wide.json", start_line=1)


def test_a_file_in_pieces_has_the_same_lines_as_in_one() -> None:
    whole = "a\n\nbc\nd\n" * 7 + "end"
    lines = whole.split("\n")
    for size in (1, 2, 3, 5, 100):
        cut = [whole[at : at + size] for at in range(0, len(whole), size)]
        assert list(each_line(iter(cut), 100)) == lines
        assert list(each_line(iter(cut), 1)) == [line[:1] for line in lines]
        for start in (1, 2, 10, 29):
            for stop in (start, start + 3, None):
                assert part(iter(cut), start, stop, 1_000).lines == lines[start - 1 : stop]
        assert part(iter(cut), 1, None, 1_000).total_lines == len(lines)
        assert part(iter([*cut, "\n"]), 1, None, 1_000).total_lines == len(lines)
    assert PIECE_BYTES < MAX_WHOLE_BYTES


def test_calls_run_beside_each_other(tool: ReadFile, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")

    async def all_at_once() -> list[str]:
        outcomes = await asyncio.gather(*(tool.run({"path": "a"}, scope()) for _ in range(20)))
        return [outcome.text for outcome in outcomes]

    assert asyncio.run(all_at_once()) == ["x"] * 20


def test_a_cancellation_reaches_the_thread() -> None:
    async def cancelled() -> str:
        started, ended = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def work(stop: StopSignal) -> None:
            loop.call_soon_threadsafe(started.set)
            try:
                while True:
                    stop.check()
            except WorkCancelled:
                loop.call_soon_threadsafe(ended.set)
                raise

        task = asyncio.create_task(run_in_thread(work))
        await started.wait()
        task.cancel()
        await ended.wait()
        try:
            await task
        except asyncio.CancelledError:
            return "cancelled"
        return "went on"

    assert asyncio.run(cancelled()) == "cancelled"


def test_a_refusal_is_no_error(tool: ReadFile, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("words and more words\n" * 1_000)
    outcome = run(tool, scope(window_tokens=2_048), path="a")
    assert not outcome.is_error
    assert outcome.text.startswith("⚠ FILE TOO LARGE")
