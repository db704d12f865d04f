from __future__ import annotations

import gzip
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from html import unescape
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from tests.agent.support import DIALECTS
from tests.hosting.stored_sessions import SECRET, delegate, good, plain, run, store_in, talk

import foldline
from foldline.cli.main import cli
from foldline.hosting.session_text import redacted
from foldline.recorded.files import read_session
from foldline.store import read_events

ROOT = Path(__file__).parents[3]

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)
posix_only = pytest.mark.skipif(sys.platform == "win32", reason="locks are those of POSIX")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def snapshot_of_files(home: Path) -> dict[str, tuple[bytes, int]]:
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in home.rglob("*") if path.is_file()}


# --- list -------------------------------------------------------------------------------------------------------------


def test_without_sessions_it_says_how_to_begin(home: Path) -> None:
    result = run(home, "list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "foldline: no session yet; `foldline chat` begins one\n"
    assert plain(home, "list") == []
    assert not home.exists()


@pytest.mark.parametrize("columns", [60, 80, 110, 200])
def test_the_list_has_the_newest_first_and_stays_whole_on_any_terminal(columns: int, home: Path) -> None:
    first, _ = talk(home)
    second, _ = talk(home, 1)
    lines = good(home, "list", columns=columns).splitlines()
    assert max(map(len, lines)) <= columns
    rows = [line.split() for line in lines if line.startswith("2")]
    assert [second.startswith(rows[0][0]), first.startswith(rows[1][0])] == [True, True]
    counts = rows[1][3:6] if columns >= 72 else ["6", *rows[1][3:5]]
    assert counts[:2] == ["6", "24"]
    assert int(counts[2]) > 0
    assert (columns < 72) == any("6 turns · Question 0" in line for line in lines)
    assert [plain(home, "show", row[0])["session"] for row in rows] == [second, first]
    assert "/3k" in lines[1]
    assert any("Question 0" in line for line in lines)


def test_the_list_as_json_has_what_the_snapshot_has(home: Path) -> None:
    name, _ = talk(home)
    (one,) = plain(home, "list")
    assert (one["id"], one["turns"], one["messages"], one["window_tokens"]) == (name, 6, 24, 3_000)
    assert one["damage"] is None
    assert Path(one["path"]).is_dir()


def test_a_damaged_session_is_in_the_list_with_the_reason(home: Path) -> None:
    name, _ = talk(home, 1)
    (store_in(home).root / name / "events.jsonl").write_text('{"type": "session"\nnonsense\n')
    result = run(home, "list")
    assert result.exit_code == 0
    assert "(damaged)" in result.stdout
    assert f"{name} cannot be read: " in result.stderr
    assert "line 1" in result.stderr
    assert "line 1" in plain(home, "list")[0]["damage"]


def test_a_damaged_session_is_repaired_by_the_command_that_its_error_names(home: Path) -> None:
    name, _ = talk(home, 2)
    log = store_in(home).root / name / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:3], b'{"type": "entry", "wi\n', *lines[4:]]))
    (log.parent / "state.yaml").unlink()
    refused = run(home, "show", name)
    assert refused.exit_code == 2
    assert f"foldline sessions repair {name}" in refused.stderr
    result = run(home, "repair", name)
    assert result.exit_code == 0
    assert "line 4 of the log was damaged" in result.stdout
    assert run(home, "show", name).exit_code == 0
    assert run(home, "repair", name).stdout == "nothing is damaged\n"


def test_a_damaged_session_is_named_wherever_it_is_asked_for(home: Path) -> None:
    name, _ = talk(home, 2)
    log = store_in(home).root / name / "events.jsonl"
    whole = log.read_bytes()
    log.write_bytes(whole[:400] + bytes([whole[400] ^ 1]) + whole[401:])
    for command in (
        ("show", name),
        ("show", "latest"),
        ("export", name),
        ("why", name, "0"),
        ("undo", name),
        ("view", name),
    ):
        refused = run(home, *command)
        assert (refused.exit_code, refused.stdout) == (2, ""), command
        assert f"foldline sessions repair {name}" in refused.stderr
    assert f"foldline sessions repair {name}" in plain(home, "list")[0]["damage"]
    other, _ = talk(home, 1)
    assert run(home, "show", "latest").exit_code == 0, "other sessions go on"
    report = plain(home, "repair", name)
    assert report["damaged"]
    assert report["damage"][0]["kind"] in ("checksum", "not-json")
    assert Path(report["kept"]).read_bytes() != whole
    assert plain(home, "repair", name) == {"session": name, "damaged": False}
    assert {one["id"]: one["damage"] for one in plain(home, "list")} == {name: None, other: None}


def test_a_terminal_without_unicode_gets_plain_characters(home: Path) -> None:
    talk(home, 2)
    environment = {**os.environ, "TERM": "dumb", "PYTHONIOENCODING": "ascii", "COLUMNS": "60"}
    command = [sys.executable, "-m", "foldline.cli.main", "sessions", "list", "--home", str(home)]
    out = subprocess.run(command, capture_output=True, env=environment, check=True).stdout.decode("ascii")
    assert "#" in out
    assert "?" not in out.partition("Question")[0]


# --- naming a session -------------------------------------------------------------------------------------------------


def test_a_session_is_named_by_its_id_its_beginning_or_latest(home: Path) -> None:
    name, _ = talk(home, 1)
    assert {plain(home, "show", each)["session"] for each in (name, name[:20], "latest")} == {name}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "20"), "there is no session '20'"),
        (("view", "latest"), "there is no session yet"),
        (("why", "../../etc", "3"), "there is no session '..'"),
        (("undo", "/"), "there is no session ''"),
        (("export", "agents"), "say which one"),
        (("search", "(a"), "is not a regular expression"),
        (("search", r"(a)\1"), "which one pass cannot match"),
    ],
)
def test_what_is_not_there_is_one_line(arguments: tuple[str, ...], said: str, home: Path) -> None:
    result = run(home, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_one_line(home: Path) -> None:
    talk(home, 1)
    root = store_in(home).root
    root.chmod(0)
    try:
        result = run(home, "list")
    finally:
        root.chmod(0o700)
    assert result.exit_code == 2
    assert "Permission denied" in result.stderr


def test_home_that_is_a_file_has_no_sessions(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert run(tmp_path / "file", "list").exit_code == 0


def test_sessions_of_sub_agents_are_reached_through_their_agent(home: Path) -> None:
    name = delegate(home)
    result = run(home, "list")
    assert f"with sub-agents (foldline sessions list ID): {name}" in result.stderr
    (child,) = plain(home, "list", name)
    assert child["id"].startswith(f"{name}/agents/")
    assert child["parent"] == name
    for named in (child["id"], f"{name}/agents/latest", "latest/latest"):
        assert plain(home, "show", named)["session"] == child["id"]
    assert {hit["session"] for hit in plain(home, "search", "secret word")} == {name, child["id"]}
    assert "1 sub-agent" in good(home, "show", name)


# --- show -------------------------------------------------------------------------------------------------------------


def test_everything_that_happened_is_shown_in_order(home: Path) -> None:
    name, _ = talk(home)
    store = store_in(home)
    with store.open(name) as stored:
        stored.change(model="another-model", policy="cost")
        stored.note(text="a note")
    out = good(home, "show", name, "--limit", "1000")
    seqs = [int(line.split()[0]) for line in out.splitlines() if line.startswith("  ") and line[:5].strip().isdigit()]
    assert seqs == list(range(24))
    for words in (
        "turn begun",
        "turn ended at",
        "tokens in",
        "fold 0: ",
        'settings: {"model": "another-model"',
        "a note",
    ):
        assert words in out
    assert "- folded" in out or "~ shortened" in out
    assert "model another-model, policy cost, window 3,000" in out


def test_a_page_begins_where_it_is_told_and_says_where_the_next_one_does(home: Path) -> None:
    name, _ = talk(home)

    def shown(*arguments: str) -> list[int]:
        events = plain(home, "show", name, *arguments)["events"]
        return [event["seq"] for event in events if event["type"] == "message"]

    assert shown("--limit", "5") == [0, 1, 2, 3, 4]
    assert shown("--from", "7", "--limit", "2") == [7, 8]
    assert shown("--from", "-2") == [22, 23]
    assert shown("--from", "99") == []
    assert "19 more messages: --from 5" in run(home, "show", name, "--limit", "5").stderr


def test_json_has_texts_in_full_and_the_folds_over_each_message(home: Path) -> None:
    name, _ = talk(home)
    events = plain(home, "show", name)["events"]
    results = [event for event in events if event.get("who") == "tool"]
    assert all(len(event["text"]) > 1_500 for event in results)
    folded = [event for event in events if event.get("folds")]
    assert folded
    assert {event["state"] for event in folded} <= {"folded", "shortened"}
    for event in folded:
        assert [
            fold["id"] for fold in plain(home, "why", name, str(event["seq"]))["folds"] if fold["in_effect"]
        ] == event["folds"]


def test_the_command_of_the_report_prints_all_of_a_message(home: Path) -> None:
    name, _ = talk(home)
    hidden = next(event for event in plain(home, "show", name)["events"] if event.get("folds"))
    page = home / "report.html"
    assert CliRunner().invoke(cli, ("report", name, "--home", str(home), "-o", str(page))).exit_code == 0
    printed = unescape(page.read_text("utf-8")).split("<code>foldline ")[1:]
    commands = [shlex.split(each.partition("</code>")[0]) for each in printed]
    shows = [each for each in commands if each[:2] == ["sessions", "show"]]
    assert shows
    outs = [CliRunner(env={"COLUMNS": "60"}).invoke(cli, each) for each in shows]
    assert {out.exit_code for out in outs} == {0}
    lines = {line.strip() for out in outs for line in out.stdout.splitlines()}
    assert {line.replace("\x1b", "\u241b").strip() for line in hidden["text"].split("\n")} <= lines


@pytest.mark.parametrize(
    "command", [("show",), ("show", "--whole"), ("view", "--full"), ("why", "2"), ("search", "file 0")]
)
def test_recorded_text_cannot_steer_the_terminal(command: tuple[str, ...], home: Path) -> None:
    name, _ = talk(home, 1)
    arguments = ("search", "file 0") if command[0] == "search" else (command[0], name, *command[1:])
    out = good(home, *arguments)
    assert "file 0" in out
    assert "\x1b" not in out


@pytest.mark.parametrize("columns", [60, 100])
@pytest.mark.parametrize("command", ["show", "view"])
def test_no_line_is_longer_than_the_terminal(command: str, columns: int, home: Path) -> None:
    name, _ = talk(home)
    assert max(map(len, good(home, command, name, columns=columns).splitlines())) <= columns


def test_what_a_crash_left_is_said(home: Path) -> None:
    name, _ = talk(home, 1)
    log = store_in(home).root / name / "events.jsonl"
    log.write_bytes(log.read_bytes() + b'{"type": "message", "se')
    assert "the last record is only half there (23 bytes)" in run(home, "show", name).stderr
    store_in(home).open(name).close()
    said = run(home, "show", name).stderr
    assert "half a record; it was set aside in events.torn-" in said
    assert "only half there" not in said


# --- view -------------------------------------------------------------------------------------------------------------


@every_dialect
def test_the_view_is_the_request_that_the_agent_would_send(dialect: str, home: Path) -> None:
    name, messages = talk(home, dialect=dialect)
    before = snapshot_of_files(home)
    shown = plain(home, "view", name)
    assert shown["messages"] == messages
    assert shown["new_folds"] == 0
    assert len(shown["message_tokens"]) == len(messages)
    assert foldline.check(shown["messages"], dialect=dialect) == []
    out = good(home, "view", "latest", "--full")
    assert snapshot_of_files(home) == before
    assert f"of 3,000 ({shown['tokens'] / 3_000:.0%})" in out


def test_system_text_and_tools_are_those_of_the_newest_call(home: Path) -> None:
    name = delegate(home)
    wanted = json.loads((home / "next.json").read_text())
    shown = plain(home, "view", name)
    assert {field: shown[field] for field in wanted} == wanted
    assert shown["parts"]["tools"] > 500
    result = run(home, "view", name)
    assert "no call of this session" not in result.stderr
    other, _ = talk(home, 1)
    assert "no call of this session is on record" in run(home, "view", other).stderr


def test_a_request_that_does_not_fit_is_shown_with_the_reason(home: Path) -> None:
    store = store_in(home)
    with store.create(dialect="openai-chat", window=1_000) as stored:
        context = foldline.Context(window=100_000)
        context.append({"role": "user", "content": "word " * 5_000})
        stored.append(context.events)
    result = run(home, "view", "latest")
    assert result.exit_code == 0
    assert "user" in result.stdout
    assert "it does not fit: " in result.stderr


def test_nothing_to_send_is_one_line(home: Path) -> None:
    store_in(home).create(dialect="openai-chat").close()
    for command in (("view", "latest"), ("export", "latest")):
        assert "nothing has been said in it yet" in run(home, *command).stderr
    assert run(home, "why", "latest", "0").exit_code == 2


# --- why and undo -----------------------------------------------------------------------------------------------------


def first_folded(home: Path, name: str) -> int:
    events = plain(home, "show", name)["events"]
    return next(int(event["seq"]) for event in events if event.get("folds"))


def test_why_names_every_fold_its_reason_sizes_and_original(home: Path) -> None:
    name, _ = talk(home)
    number = first_folded(home, name)
    found = plain(home, "why", name, str(number))
    fold = found["folds"][0]
    assert fold["in_effect"]
    assert fold["tokens"] < fold["before_tokens"]
    assert Path(fold["path"]).name == fold["archive"]
    assert Path(fold["path"]).is_file()
    out = good(home, "why", name, str(number), "--lines", "2")
    for words in (fold["reducer"], fold["reason"], fold["archive"], fold["path"], f"batch {fold['batch']}"):
        assert words in out
    assert "more lines" in out
    assert f"{fold['before_tokens']:,} → {fold['tokens']:,} tokens" in out


def test_why_says_when_nothing_covers_a_message_or_there_is_none(home: Path) -> None:
    name, _ = talk(home)
    assert "The model sees it in full." in good(home, "why", name, "23")
    result = run(home, "why", name, "24")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "there is no message 24; it has messages 0 to 23" in result.stderr


def test_undo_takes_back_the_last_batch_and_says_so(home: Path) -> None:
    name, _ = talk(home)
    counts = [plain(home, "list")[0]["folds"]]
    while counts[-1]:
        report = plain(home, "undo", name)
        assert report["tokens_after"] > report["tokens_before"]
        assert report["unfolded"]
        counts.append(plain(home, "list")[0]["folds"])
    assert counts == sorted(counts, reverse=True)
    assert len(set(counts)) == len(counts) > 1
    assert all("undone" in good(home, "show", name) for _ in "1")
    result = run(home, "undo", name)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "there is nothing to undo" in result.stderr


def test_what_was_taken_back_is_still_told(home: Path) -> None:
    name, _ = talk(home)
    fold = max(
        plain(home, "show", name)["events"], key=lambda event: event.get("id", -1) if event["type"] == "fold" else -1
    )
    assert f"fold {fold['id']}" in good(home, "undo", name)
    assert "undone since" in good(home, "why", name, str(fold["start"]))


@posix_only
def test_an_open_session_can_be_seen_and_not_changed(home: Path) -> None:
    name, messages = talk(home)
    with store_in(home).open(name):
        log = (store_in(home).root / name / "events.jsonl").read_bytes()
        result = run(home, "undo", name)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "open in another process" in result.stderr
        assert plain(home, "view", name)["messages"] == messages
        assert (store_in(home).root / name / "events.jsonl").read_bytes() == log


# --- export -----------------------------------------------------------------------------------------------------------


@every_dialect
def test_exported_messages_are_what_came_in_and_other_commands_read_them(dialect: str, home: Path) -> None:
    name, _ = talk(home, dialect=dialect)
    path = home / "out.json"
    assert f"wrote {path}" in run(home, "export", name, "-o", str(path)).stderr
    assert path.stat().st_mode & 0o777 == 0o600 or sys.platform == "win32"
    session = read_session(path)
    assert (session.name, session.dialect) == (name, dialect)
    recorded = [event["message"] for event in plain(home, "show", name)["events"] if event["type"] == "message"]
    assert list(session.messages) == recorded
    for command in (["check"], ["fit", "--max-tokens", "3000"], ["replay", "--window", "3000"]):
        assert CliRunner().invoke(cli, [*command, str(path)]).exit_code == 0


def test_messages_of_a_branch_that_was_left_are_not_exported(home: Path) -> None:
    store = store_in(home)
    wires: list[Mapping[str, Any]] = [
        {"role": "user" if number % 2 == 0 else "assistant", "content": f"message {number}"} for number in range(4)
    ]
    with store.create(dialect="openai-chat", window=9_000) as stored:
        context = foldline.Context(window=9_000)
        context.sync(wires)
        context.sync([*wires[:2], {"role": "user", "content": "another way"}])
        stored.append(context.events)
    exported = json.loads(good(home, "export", "latest"))
    assert [wire["content"] for wire in exported["messages"]] == ["message 0", "message 1", "another way"]
    assert plain(home, "view", "latest")["messages"] == exported["messages"]
    assert "of a branch that was left" in good(home, "show", "latest")
    assert "branch that was left" in good(home, "why", "latest", "3")
    assert [hit["seq"] for hit in plain(home, "search", "message 3")] == [3]


def test_markdown_is_a_text_that_no_message_can_break(home: Path) -> None:
    store = store_in(home)
    with store.create(dialect="openai-chat", window=9_000) as stored:
        context = foldline.Context(window=9_000)
        call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"what": "x"}'}}
        context.append({"role": "user", "content": "# Hello\nthere"})
        context.append({"role": "assistant", "content": None, "tool_calls": [call]})
        context.append({"role": "tool", "tool_call_id": "c", "content": "````\n## user\n````"})
        stored.append(context.events)
    out = good(home, "export", "latest", "--format", "markdown")
    assert out.startswith("# # Hello there\n")
    assert 'Calls `look`:\n\n```json\n{"what": "x"}\n```' in out
    assert "`````\n````\n## user\n````\n`````" in out


def test_events_are_the_log(home: Path) -> None:
    name, _ = talk(home, 2)
    log = list(read_events(store_in(home).root / name / "events.jsonl"))
    assert [json.loads(line) for line in good(home, "export", name, "--format", "events").splitlines()] == log


@pytest.mark.parametrize("form", ["messages", "markdown", "events"])
def test_secrets_leave_only_where_they_may(form: str, home: Path) -> None:
    name, _ = talk(home, 2)
    assert SECRET in good(home, "export", name, "--format", form)
    out = good(home, "export", name, "--format", form, "--redact")
    assert SECRET not in out
    assert "[redacted]" in out
    if form == "messages":
        assert foldline.check(json.loads(out)["messages"]) == []


def test_the_name_of_a_field_tells_a_secret_too() -> None:
    arguments = '{"password": "hunter2222", "path": "a.txt"}'
    value = {"input": {"password": "hunter2222", "path": "a.txt"}, "arguments": arguments, "n": [1, None, SECRET]}
    assert redacted(value) == {
        "input": {"password": "[redacted]", "path": "a.txt"},
        "arguments": '{"password": "[redacted]", "path": "a.txt"}',
        "n": [1, None, "[redacted]"],
    }


def test_a_file_that_cannot_be_written_is_said_before_anything_is_read(home: Path) -> None:
    result = run(home, "export", "latest", "-o", str(home / "no" / "out.json"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "there is no such folder to write to" in result.stderr


# --- search -----------------------------------------------------------------------------------------------------------


def test_a_search_finds_what_was_folded_and_names_the_place(home: Path) -> None:
    name, _ = talk(home)
    number = first_folded(home, name)
    hits = plain(home, "search", r"file \d")
    assert [name] == list({hit["session"] for hit in hits})
    assert number in {hit["seq"] for hit in hits} or number + 1 in {hit["seq"] for hit in hits}
    assert all("file" in hit["text"] for hit in hits)
    assert f"  {hits[0]['seq']}:{hits[0]['line']}  " in good(home, "search", r"file \d")


def test_a_search_is_bounded_and_says_so(home: Path) -> None:
    first, _ = talk(home, 1)
    second, _ = talk(home, 1)
    assert len(plain(home, "search", "words of a result")) == 200
    assert len(plain(home, "search", "words", "--limit", "3")) == 3
    assert "more than 3 lines" in run(home, "search", "words", "--limit", "3").stderr
    assert {hit["session"] for hit in plain(home, "search", "words", "--session", first)} == {first}
    assert plain(home, "search", "words", "--limit", "1")[0]["session"] == second
    result = run(home, "search", "no such words")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "foldline: nothing found\n")


def test_a_pattern_that_would_hang_others_does_not(home: Path) -> None:
    store = store_in(home)
    with store.create(dialect="openai-chat", window=90_000) as stored:
        context = foldline.Context(window=90_000)
        context.append({"role": "user", "content": "a" * 20_000 + "!"})
        stored.append(context.events)
    assert plain(home, "search", "(a+)+$") == []


def test_a_damaged_session_does_not_end_a_search(home: Path) -> None:
    first, _ = talk(home, 1)
    second, _ = talk(home, 1)
    (store_in(home).root / second / "events.jsonl").write_text("nonsense\n")
    result = run(home, "search", "Question")
    assert first in result.stdout
    assert f"{second} cannot be searched" in result.stderr


# --- the manual -------------------------------------------------------------------------------------------------------


def commands() -> Iterator[tuple[str, click.Command]]:
    group = cli.commands["sessions"]
    assert isinstance(group, click.Group)
    yield from group.commands.items()


@pytest.mark.parametrize(("name", "command"), list(commands()))
def test_every_command_and_option_is_in_the_manual(name: str, command: click.Command) -> None:
    text = (ROOT / "docs" / "commands.md").read_text("utf-8")
    section = text.partition("## `foldline sessions")[2].partition("\n## ")[0]
    assert f"`foldline sessions {name}" in section
    options = [option for p in command.params if isinstance(p, click.Option) for option in p.opts]
    assert [option for option in options if f"`{option}`" not in section] == []


def test_exported_files_may_be_packed(home: Path) -> None:
    name, _ = talk(home, 1)
    packed = home / "out.json.gz"
    packed.write_bytes(gzip.compress(good(home, "export", name).encode()))
    assert CliRunner().invoke(cli, ["check", str(packed)]).exit_code == 0
