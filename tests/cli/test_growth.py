from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from foldline import Context
from foldline.cli.main import cli
from foldline.store.call_log import CallLog
from foldline.store.paths import calls_path
from foldline.testing import session
from foldline.view.transcript import Usage


def clock() -> Iterator[datetime]:
    start = datetime(2026, 11, 28, 9, tzinfo=UTC)
    yield from (start + timedelta(seconds=20 * number) for number in range(10_000))


def fill(path: Path, *, turns: int = 60, name: str = "20261128-demo") -> None:
    """A session that was folded a few times, and an older one with a single call."""
    times = clock()
    context = Context(policy="balanced", window=6_000, max_output_tokens=500)
    with CallLog(path, clock=lambda: next(times)) as log:
        log.record("20261127-old", {"messages": []}, Usage(input_tokens=7, output_tokens=1), seconds=0.2)
        for wire in session(turns, result="some words of a result. " * 20):
            context.append(wire)
            if wire["role"] == "tool":
                request = context.prepare()
                usage = Usage(input_tokens=request.tokens, output_tokens=33, cached_tokens=5, reported=False)
                body = {"model": "m-1", "messages": request.messages}
                log.record(name, body, usage, seconds=1.25, folds=len(request.folds))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fill(tmp_path / "calls.sqlite")
    return tmp_path / "calls.sqlite"


def invoke(path: Path, *arguments: str, columns: int = 100) -> Result:
    return CliRunner().invoke(cli, ["growth", "--db", str(path), *arguments], env={"COLUMNS": str(columns)})


def table(out: str) -> list[list[str]]:
    lines = [line.split() for line in out.splitlines()]
    return [cells for cells in lines if len(cells) >= 7 and ":" in cells[1]]


def test_the_newest_calls_of_the_last_session_come_first(path: Path) -> None:
    result = invoke(path, "--calls", "5")
    assert result.exit_code == 0
    assert result.stdout.startswith("session 20261128-demo\n60 calls, ")
    rows = table(result.stdout)
    assert [row[0] for row in rows] == ["61", "60", "59", "58", "57"]
    assert rows[0][4].startswith("~")
    assert rows[0][5:8] == ["5", "~33", "1.2"]
    assert "~ our own count: the server reported none" in result.stdout
    assert result.stderr == "foldline: 1 other session: 20261127-old\n"


def test_bytes_are_those_of_the_growth_query(path: Path) -> None:
    database = sqlite3.connect(path)
    rows = database.execute("SELECT id, LENGTH(request_messages) FROM llm_calls ORDER BY created_at DESC LIMIT 20")
    wanted = [(f"{number}", f"{size:,}") for number, size in rows]
    database.close()
    assert [(row[0], row[3]) for row in table(invoke(path).stdout)] == wanted


@pytest.mark.parametrize("columns", [60, 72, 100, 200])
def test_it_stays_whole_on_any_terminal(columns: int, path: Path) -> None:
    result = invoke(path, columns=columns)
    assert max(map(len, result.stdout.splitlines())) <= columns
    assert "…" not in result.stdout
    assert len(table(result.stdout)) == 20
    assert ("seconds" in result.stdout) == (columns >= 72)


def test_folds_are_marked_below_the_falls(path: Path) -> None:
    result = invoke(path, "--calls", "60", columns=200)
    lines = result.stdout.splitlines()
    (marks,) = [line for line in lines if line.strip() and not line.strip("▼ ")]
    folded = [int(row[0]) for row in table(result.stdout) if row[-1].startswith("fold")]
    (foot,) = [line for line in lines if "┼" in line]
    wide = 3
    assert len(foot.partition("┼")[2]) == 60 * wide
    left = foot.index("┼") + 1
    assert [2 + (at - left) // wide for at, each in enumerate(marks) if each == "▼"] == sorted(folded)
    assert len(folded) >= 2


def test_a_dumb_terminal_without_unicode_gets_plain_characters(path: Path) -> None:
    environment = {**os.environ, "TERM": "dumb", "PYTHONIOENCODING": "ascii", "COLUMNS": "60"}
    command = [sys.executable, "-m", "foldline.cli.main", "growth", "--db", str(path)]
    done = subprocess.run(command, capture_output=True, env=environment, check=True)
    out = done.stdout.decode("ascii")
    assert "?" not in out
    assert "\x1b" not in out
    assert "###" in out
    assert "v folds" in out


def test_a_session_is_named_in_full_or_by_its_beginning(path: Path) -> None:
    for name in ("20261127-old", "20261127"):
        result = invoke(path, name)
        assert result.stdout.startswith("session 20261127-old\n1 call, 0 folds; 7 tokens sent")
        assert result.stderr == ""


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nobody", "no session 'nobody'; the newest are 20261128-demo, 20261127-old"),
        ("2026112", "2 sessions begin with '2026112'; they are 20261128-demo, 20261127-old"),
    ],
)
def test_a_session_that_is_not_there_is_one_line(name: str, reason: str, path: Path) -> None:
    result = invoke(path, name)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"foldline: {path}: {reason}\n"


def test_without_a_record_it_says_so(tmp_path: Path) -> None:
    result = invoke(tmp_path / "none.sqlite")
    assert result.exit_code == 2
    assert (
        result.stderr == f"foldline: {tmp_path / 'none.sqlite'}: no model call is recorded yet: there is no such file\n"
    )
    CallLog(tmp_path / "empty.sqlite").close()
    assert invoke(tmp_path / "empty.sqlite").stderr.endswith("no model call is recorded yet\n")


def test_a_file_that_is_no_record_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text " * 1_000)
    for place in (tmp_path / "text", tmp_path):
        result = invoke(place)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith(f"foldline: {place}: ")
        assert result.stderr.count("\n") == 1


def test_the_record_of_the_user_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDLINE_HOME", str(tmp_path))
    fill(calls_path(), turns=2)
    assert CliRunner().invoke(cli, ["growth"]).stdout.startswith("session 20261128-demo\n2 calls")


def test_json_has_the_newest_calls(path: Path) -> None:
    report = json.loads(invoke(path, "--json", "--calls", "2").stdout)
    assert (report["session"], report["sessions"]) == ("20261128-demo", ["20261128-demo", "20261127-old"])
    newest, before = report["calls"]
    assert (newest["id"], before["id"]) == (61, 60)
    assert newest["created_at"] == "2026-11-28T09:20:00+00:00"
    assert (newest["cached_tokens"], newest["completion_tokens"], newest["estimated"]) == (5, 33, True)
    assert newest["message_count"] > 1


def test_what_failed_is_said_and_cannot_steer_the_terminal(path: Path) -> None:
    with CallLog(path) as log:
        usage = Usage(input_tokens=10, reported=False)
        log.record(
            "\x1b[2Jbad", {"messages": []}, usage, seconds=0.1, error="429: \x1b[31mslow\x07 down", purpose="summary"
        )
    result = invoke(path)
    assert "call 62 failed: 429: \ufffd[31mslow\ufffd down" in result.stdout
    assert "summary, failed" in result.stdout
    assert "1 failed" in result.stdout
    assert "\x1b" not in result.stdout + invoke(path, "nobody").stderr


def test_html_is_a_page_of_its_own(path: Path, tmp_path: Path) -> None:
    page = tmp_path / "growth.html"
    result = invoke(path, "--html", str(page), "--calls", "3")
    assert result.exit_code == 0
    assert f"foldline: wrote {page}\n" in result.stderr
    assert page.read_text("utf-8").startswith("<!doctype html>")


def test_a_page_that_cannot_be_written_is_said_before_anything_is_read(tmp_path: Path) -> None:
    result = invoke(tmp_path / "none.sqlite", "--html", str(tmp_path / "no" / "page.html"))
    assert (result.exit_code, result.stderr) == (
        2,
        f"foldline: {tmp_path / 'no'}: there is no such folder to write to\n",
    )
