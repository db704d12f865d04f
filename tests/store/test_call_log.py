"""The record of model calls: each request as it was sent, each text stored once, with several writers."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import dear

from foldline.errors import InvalidInput
from foldline.store import calls as calls_schema
from foldline.store.call_log import CallLog, usage_or_count
from foldline.store.calls import newest_request_head, read_calls, read_sessions
from foldline.store.sqlite import make_private_file
from foldline.view.transcript import Usage

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="modes and limits of POSIX")

USAGE = Usage(input_tokens=100, output_tokens=20, cached_tokens=60)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def body(messages: Sequence[Any], **beside: Any) -> dict[str, Any]:
    return {"model": "m-1", "messages": messages, **beside}


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def query(path: Path, statement: str) -> list[Any]:
    database = sqlite3.connect(path)
    try:
        return database.execute(statement).fetchall()
    finally:
        database.close()


def recorded(path: Path) -> list[str]:
    """The messages of each request in the view, oldest first."""
    return [text for (text,) in query(path, "SELECT request_messages FROM llm_calls ORDER BY id")]


def ticking() -> Callable[[], datetime]:
    """A clock that advances by a second at each reading."""
    times = (datetime(2026, 11, 28, 9, tzinfo=UTC) + timedelta(seconds=second) for second in range(100_000))
    return lambda: next(times)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "calls.sqlite"


# --- what a row says --------------------------------------------------------------------------------------------------


def test_a_call_comes_back_with_all_that_was_recorded(path: Path) -> None:
    with CallLog(path, clock=ticking()) as log:
        number = log.record("s-1", body([user("hi")]), USAGE, seconds=1.5, folds=2, error="429", purpose="summary")
    (call,) = read_calls(path)
    assert (call.id, call.session_id, call.purpose, call.model) == (number, "s-1", "summary", "m-1")
    assert (call.message_count, call.request_bytes) == (1, len(compact([user("hi")])))
    assert (call.prompt_tokens, call.cached_tokens, call.completion_tokens, call.estimated) == (100, 60, 20, False)
    assert (call.seconds, call.folds, call.error) == (1.5, 2, "429")
    assert call.created_at == datetime(2026, 11, 28, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("sent", "system"),
    [
        (body([user("a")], system="be brief", tools=[{"name": "t"}], stream=True), "be brief"),
        ({"model": "m-1", "input": [user("a")], "instructions": "be brief", "tools": [{"name": "t"}]}, "be brief"),
        (body([{"role": "system", "content": "be brief"}, user("a")], tools=[{"name": "t"}]), None),
    ],
)
def test_the_whole_request_is_read_back_in_each_dialect(sent: Any, system: Any, path: Path) -> None:
    with CallLog(path) as log:
        log.record("s", sent, USAGE, seconds=1)
    ((listed, beside, tools, rest),) = query(
        path, "SELECT request_messages, request_system, request_tools, request_parameters FROM llm_calls"
    )
    assert json.loads(listed) == sent.get("messages", sent.get("input"))
    assert (beside and json.loads(beside)) == system
    assert json.loads(tools) == [{"name": "t"}]
    assert json.loads(rest) == {key: sent[key] for key in ("model", "stream") if key in sent}


@pytest.mark.parametrize(
    "text", ["plain", "größe 你好 🙂", 'quotes " and \\ and \n and \0', "half \ud83d of a pair", ""]
)
def test_messages_stand_there_byte_for_byte_as_they_are_sent(text: str, path: Path) -> None:
    with CallLog(path) as log:
        log.record("s", body([user(text), user("more")]), USAGE, seconds=1)
    (row,) = recorded(path)
    half = "\ud83d" in text
    assert row == json.dumps([user(text), user("more")], ensure_ascii=half, separators=(",", ":"))
    assert read_calls(path)[0].request_bytes == len(row.encode())
    ((length,),) = query(path, "SELECT LENGTH(request_messages) FROM llm_calls")
    assert length == len(row)


def test_a_request_without_messages_is_an_empty_list(path: Path) -> None:
    with CallLog(path) as log:
        log.record("s", body([]), USAGE, seconds=1)
    assert recorded(path) == ["[]"]
    assert read_calls(path)[0].request_bytes == 2


# --- any history ------------------------------------------------------------------------------------------------------

TEXTS = [user(f"text {number} é") for number in range(6)]
CALLS = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 1), st.lists(st.sampled_from(TEXTS), max_size=6)), max_size=12
)


@dear
@given(calls=CALLS, keep=st.integers(1, 12), copies=st.booleans())
def test_every_request_is_rebuilt_with_several_writers(
    calls: list[tuple[str, int, list[dict[str, Any]]]], keep: int, copies: bool
) -> None:
    """Two writers with two sessions: lists that grow, fold, change and repeat, as the same objects or as copies."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calls.sqlite"
        with CallLog(path) as first, CallLog(path) as second:
            for session_id, writer, messages in calls:
                sent = [dict(message) for message in messages] if copies else messages
                (first, second)[writer].record(session_id, body(sent), USAGE, seconds=0)
            wanted = [compact(messages) for _, _, messages in calls]
            assert recorded(path) == wanted
            assert [call.request_bytes for call in read_calls(path)] == [len(text.encode()) for text in wanted]
            assert first.prune(keep_calls=keep) == max(len(calls) - keep, 0)
            assert recorded(path) == wanted[-keep:]
            second.record("a", body(TEXTS), USAGE, seconds=0)  # it knows lanes that may be gone
            second.record("b", body(TEXTS[1:]), USAGE, seconds=0)
            assert recorded(path) == [*wanted[-keep:], compact(TEXTS), compact(TEXTS[1:])]


def test_a_message_is_kept_once_over_folds_sessions_and_purposes(path: Path) -> None:
    messages = [user(f"message {number} " + "x" * 50) for number in range(20)]
    with CallLog(path) as log:
        log.record("s", body(messages), USAGE, seconds=1)
        log.record("s", body([user("digest"), *messages[10:]]), USAGE, seconds=1, folds=1)
        log.record("t", body(messages), USAGE, seconds=1, purpose="summary")
    ((texts,),) = query(path, "SELECT COUNT(*) FROM texts WHERE body LIKE '%role%'")
    assert texts == 21


def test_a_session_of_600_turns_takes_the_room_of_its_messages(path: Path) -> None:
    messages: list[dict[str, Any]] = []
    with CallLog(path, clock=ticking()) as log:
        for turn in range(600):
            messages += [user(f"turn {turn} " + "word " * 60), {"role": "assistant", "content": f"{turn} " + "x" * 300}]
            log.record("s", body(messages, tools=[{"name": "read_file"}]), USAGE, seconds=0.5)
    distinct_bytes = sum(len(compact(message)) for message in messages)
    per_call_bytes = 700  # a row, its index entries, two slots and two hashes
    assert path.stat().st_size <= distinct_bytes + 600 * per_call_bytes
    assert path.stat().st_size <= 2 * distinct_bytes
    ((slots,),) = query(path, "SELECT COUNT(*) FROM slots")
    assert slots == 1_200
    growth = (
        "SELECT id, LENGTH(request_messages) as bytes, created_at FROM llm_calls ORDER BY created_at DESC LIMIT 20;"
    )
    rows = query(path, growth)
    assert [number for number, _, _ in rows] == list(range(600, 580, -1))
    assert [size for _, size, _ in rows] == [len(compact(messages[: 2 * turn])) for turn in range(600, 580, -1)]
    plan = " ".join(row[-1] for row in query(path, f"EXPLAIN QUERY PLAN {growth}"))
    assert "INDEX calls_by_time" in plan
    assert "TEMP B-TREE" not in plan  # nothing is sorted: only the 20 rows are put together


def test_a_breakpoint_that_moves_costs_the_messages_that_it_touched(path: Path) -> None:
    """Anthropic's cache points are on the last message and move with the next call."""
    messages = [user(f"message {number}") for number in range(50)]
    with CallLog(path) as log:
        for stop in range(1, 51):
            sent = [dict(message) for message in messages[:stop]]
            sent[-1]["cache_control"] = {"type": "ephemeral"}
            log.record("s", body(sent), USAGE, seconds=1)
    ((slots,),) = query(path, "SELECT COUNT(*) FROM slots")
    assert slots == 99
    assert json.loads(recorded(path)[24])[:24] == messages[:24]


def test_pruning_gives_room_back(path: Path) -> None:
    with CallLog(path) as log:
        for turn in range(40):
            log.record(f"s-{turn}", body([user(f"{turn}" * 20_000)]), USAGE, seconds=1)
        log.prune(keep_calls=2)
    assert path.stat().st_size < 200_000
    assert read_sessions(path) == ["s-39", "s-38"]


def test_the_record_of_calls_does_not_grow_for_ever(path: Path) -> None:
    with CallLog(path, keep_calls=20) as log:
        for turn in range(100):
            log.record("s", body([user(f"{number}") for number in range(turn + 1)]), USAGE, seconds=1)
            assert len(recorded(path)) <= 20 + 3
    assert json.loads(recorded(path)[-1]) == [user(f"{number}") for number in range(100)]
    with CallLog(path) as log:
        for _ in range(30):
            log.record("s", body([user("another")]), USAGE, seconds=1)
    assert len(recorded(path)) > 30
    CallLog(path, keep_calls=10).close()
    assert len(recorded(path)) == 10, "when it is opened, too"


def test_pruning_to_nothing_is_refused(path: Path) -> None:
    with CallLog(path) as log, pytest.raises(InvalidInput, match="keep_calls"):
        log.prune(keep_calls=0)


# --- who reads and writes ---------------------------------------------------------------------------------------------

WRITER = """
import sys
from foldline.store.call_log import CallLog
from foldline.view.transcript import Usage
path, name = sys.argv[1:]
with CallLog(path) as log:
    for turn in range(50):
        log.record("shared", {"messages": [name, turn]}, Usage(input_tokens=1), seconds=0)
"""


def test_several_processes_make_and_write_one_record(path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name in ("a", "b", "c")]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    rows = [json.loads(row) for row in recorded(path)]
    assert sorted(rows) == [[name, turn] for name in "abc" for turn in range(50)]


def test_tables_created_concurrently_are_not_mistaken_for_another_programs(path: Path) -> None:
    make_private_file(path)
    made: list[CallLog] = []

    def meanwhile(statement: str) -> None:
        if "user_version" in statement and not made:
            made.append(CallLog(path, busy_seconds=0))

    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")  # a reader keeps no writer out
        database.set_trace_callback(meanwhile)
        assert not calls_schema._is_ours(database, path)  # there is no other way between what it reads
        assert calls_schema._is_ours(database, path)
    made.pop().close()


@posix_only
def test_only_the_owner_may_read_it(path: Path) -> None:
    path.parent.mkdir()
    path.touch(0o644)
    with CallLog(path) as log:
        log.record("s", body([user("secret")]), USAGE, seconds=1)
        files = list(path.parent.iterdir())
        assert len(files) == 3  # -wal and -shm beside it
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


@posix_only
def test_the_folder_is_made_for_the_owner(path: Path) -> None:
    CallLog(path).close()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_reading_makes_no_file(tmp_path: Path) -> None:
    for read in (read_calls, read_sessions):
        with pytest.raises(FileNotFoundError):
            read(tmp_path / "none.sqlite")
    assert list(tmp_path.iterdir()) == []


def test_sessions_are_listed_by_their_last_call(path: Path) -> None:
    with CallLog(path) as log:
        for session_id in ("a", "b", "a", "c", "b"):
            log.record(session_id, body([]), USAGE, seconds=1)
    assert read_sessions(path) == ["b", "c", "a"]
    assert [call.id for call in read_calls(path, session_id="a")] == [1, 3]


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [{"model": "m"}, {"messages": "hi"}, {"input": "hi"}, {"messages": [{"x": float("nan")}]}, {"messages": [{1}]}],
)
def test_a_body_without_messages_is_refused_and_leaves_nothing(bad: Any, path: Path) -> None:
    with CallLog(path) as log:
        log.record("s", body([user("a")]), USAGE, seconds=1)
        with pytest.raises(InvalidInput):
            log.record("s", bad, USAGE, seconds=1)
        log.record("s", body([user("a"), user("b")]), USAGE, seconds=1)
    assert recorded(path) == [compact([user("a")]), compact([user("a"), user("b")])]
    ((texts,),) = query(path, "SELECT COUNT(*) FROM texts")
    assert texts == 3


def other_program(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE notes (id INTEGER)")
    database.close()


def newer(path: Path) -> None:
    CallLog(path).close()
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 99")
    database.close()


def torn(path: Path) -> None:
    with CallLog(path) as log:
        log.record("s", body([user("x" * 50_000)]), USAGE, seconds=1)
    with open(path, "r+b") as file:
        file.seek(4_096)
        file.write(b"\xff" * 40_000)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.write_bytes(b"no database at all " * 100), "is damaged, or not a record of model calls"),
        (other_program, "is a database of another program"),
        (newer, "was written by a newer Foldline"),
        (torn, "is damaged, or not a record of model calls"),
    ],
    ids=["garbage", "another program", "newer", "torn"],
)
def test_a_file_that_is_something_else_is_named_and_left_alone(
    make: Callable[[Path], Any], reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "calls.sqlite"
    make(path)
    before = path.read_bytes()
    for act in (read_calls, lambda place: CallLog(place).record("s", body([]), USAGE, seconds=1)):
        with pytest.raises(InvalidInput, match=reason) as raised:
            act(path)
        assert raised.value.place == str(path)
    assert path.read_bytes() == before


def test_a_database_without_tables_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "empty.sqlite").touch()
    with pytest.raises(InvalidInput, match="is not a record of model calls"):
        read_calls(tmp_path / "empty.sqlite")


@posix_only
def test_a_full_disk_is_an_error_of_the_system_and_nothing_is_lost(path: Path) -> None:
    import resource
    import signal

    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with CallLog(path) as log:
        log.record("s", body([user("a")]), USAGE, seconds=1)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
            with pytest.raises(OSError, match="the record of model calls") as raised:
                log.record("s", body([user("a"), user("x" * 500_000)]), USAGE, seconds=1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)
        assert raised.value.filename == str(path)
        log.record("s", body([user("a"), user("b")]), USAGE, seconds=1)
    assert recorded(path) == [compact([user("a")]), compact([user("a"), user("b")])]


def test_a_stuck_writer_is_not_waited_for_without_end(path: Path) -> None:
    with CallLog(path, busy_seconds=0.05) as log:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(BlockingIOError):
            log.record("s", body([]), USAGE, seconds=1)
        other.execute("ROLLBACK")
        other.close()
        log.record("s", body([]), USAGE, seconds=1)
    assert recorded(path) == ["[]"]


@posix_only
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_the_right_to_write_is_an_error_of_the_system(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError):
        CallLog(tmp_path / "calls.sqlite")


def test_a_folder_in_its_place_is_an_error_of_the_system(tmp_path: Path) -> None:
    for open_it in (CallLog, read_calls):
        with pytest.raises(OSError, match=r".") as raised:
            open_it(tmp_path)
        assert raised.value.filename == str(tmp_path)


# --- usage ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [user("hi")], "max_completion_tokens": 700},
        {"input": [user("hi")], "max_output_tokens": 700},
        {"contents": [{"role": "user", "parts": [{"text": "hi"}]}], "generationConfig": {"maxOutputTokens": 700}},
    ],
)
def test_the_output_cap_of_the_newest_request_is_found_in_each_dialect(path: Path, fields: dict[str, Any]) -> None:
    with closing(CallLog(path)) as log:
        log.record("s", {"model": "m", **fields}, USAGE, seconds=1)
    head = newest_request_head(path, "s")
    assert head is not None
    assert head.max_output_tokens == 700


def test_reported_usage_is_unchanged() -> None:
    report = {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
    usage = usage_or_count(report, prompt_tokens=11, completion_tokens=5, request=7)
    assert usage == Usage(input_tokens=9, output_tokens=3, cached_tokens=4, request=7)


@pytest.mark.parametrize(
    ("report", "tokens"),
    [
        (None, (11, 5)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, (11, 5)),
        ({"prompt_tokens": 9, "completion_tokens": 0}, (9, 5)),
        ({"input_tokens": 0, "output_tokens": 3}, (11, 3)),
    ],
)
def test_unreported_usage_is_counted_and_marked(report: Any, tokens: tuple[int, int]) -> None:
    usage = usage_or_count(report, prompt_tokens=11, completion_tokens=5)
    assert (usage.input_tokens, usage.output_tokens, usage.reported) == (*tokens, False)


@pytest.mark.parametrize(
    "report", [{}, {"prompt_tokens": -4}, {"prompt_tokens": float("nan")}, {"prompt_tokens": "9"}, {"total_tokens": 9}]
)
def test_a_report_that_cannot_be_read_is_none_and_says_so(report: Any) -> None:
    usage = usage_or_count(report, prompt_tokens=11, completion_tokens=5)
    assert (usage.input_tokens, usage.output_tokens, usage.reported) == (11, 5, False)
    assert usage.doubt


def test_a_reply_without_words_may_have_no_tokens() -> None:
    usage = usage_or_count({"prompt_tokens": 9, "completion_tokens": 0}, prompt_tokens=11, completion_tokens=0)
    assert (usage.output_tokens, usage.reported) == (0, True)
