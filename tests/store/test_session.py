"""A session on disk: acknowledged events survive whatever happens to the process that wrote them."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.property.sessions import DIALECTS
from tests.store.children import child
from tests.store.logs import records_in, replace_records
from tests.store.writer import write

from foldline.codecs import codec
from foldline.engine.context import Context
from foldline.errors import InvalidInput
from foldline.store import EventLog, FileSession, FileStore
from foldline.view.transcript import Entry, Limited

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="modes, locks, signals and limits of POSIX")

ROOT = Path(__file__).parents[2]


class Ticking:
    """A clock that advances by a second at each reading."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 28, 4, 5, 6, 789_000, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "sessions", clock=Ticking())


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def records(session: FileSession) -> list[dict[str, object]]:
    return records_in(session.folder / "events.jsonl")


def filled(session: FileSession, turns: int = 3, window: int = 4_000) -> Context:
    """A context with some turns, all of them stored."""
    context = Context(dialect=session.header.dialect, window=window, max_output_tokens=0, archive=session.archive)
    for number in range(turns):
        session.turn("begun")
        before = context.event_count
        context.append(user(f"question {number} " + "word " * 50))
        context.append({"role": "assistant", "content": f"answer {number}"})
        context.prepare()
        session.append(context.events_after(before))
        session.turn("ended", reason="done")
    return context


def test_a_session_goes_on_where_it_was(store: FileStore) -> None:
    with store.create(dialect="openai-chat", window=900) as session:
        context = filled(session, 20, 900)
        assert any(context.explain(seq) for seq in range(20)), "something was folded"
    with store.open(session.id) as opened:
        again = Context.replay(opened.events(), window=900, max_output_tokens=0, archive=opened.archive)
        assert opened.torn is None
        assert again.events == context.events
        assert again.view.wires()[0] == context.view.wires()[0]
        assert again.undo() == context.undo()


def test_the_log_begins_with_the_record_of_the_session(store: FileStore) -> None:
    with store.create(dialect="anthropic", model="m", policy="cost", window=9_000, parent="x") as session:
        assert records(session) == [
            {
                "type": "session",
                "v": 1,
                "id": session.id,
                "created": "2026-11-28T04:05:07.789Z",
                "dialect": "anthropic",
                "model": "m",
                "policy": "cost",
                "window": 9_000,
                "title": "",
                "parent": "x",
                "at": "2026-11-28T04:05:07.789Z",
            }
        ]
        assert session.header.window == 9_000


def test_every_record_has_a_time_and_a_batch_has_one(store: FileStore) -> None:
    with store.create(dialect="openai-chat") as session:
        filled(session, 1)
        times = [record["at"] for record in records(session)]
    assert times == [f"2026-11-28T04:05:{second:02}.789Z" for second in (7, 8, 9, 9, 10)]


def test_turns_settings_and_notes_stand_in_the_log(store: FileStore) -> None:
    with store.create(dialect="openai-chat", model="a") as session:
        session.turn("begun")
        session.turn("ended", reason="cancelled")
        session.change(model="b", window=5_000)
        session.note(text="resumed after a crash")
        assert (session.header.model, session.header.window) == ("b", 5_000)
        assert [record["type"] for record in records(session)] == ["session", "turn", "turn", "settings", "note"]
        assert list(session.events()) == []
    with store.open(session.id) as again:
        assert again.header == session.header


@pytest.mark.parametrize("settings", [{"dialect": "anthropic"}, {"id": "x"}, {"model": 3}, {"window": "wide"}])
def test_other_settings_cannot_be_changed(store: FileStore, settings: dict[str, object]) -> None:
    with store.create(dialect="openai-chat") as session:
        with pytest.raises(InvalidInput, match=next(iter(settings))):
            session.change(**settings)
        assert len(records(session)) == 1


def test_limits_of_a_model_that_was_left_hold_no_longer(store: FileStore) -> None:
    limit = Limited(window_tokens=1_000, max_output_tokens=10)
    with store.create(dialect="openai-chat", model="a") as session:
        session.append([limit])
        session.change(model="a")
        assert list(session.events()) == [limit]
        session.change(model="b")
        assert list(session.events()) == []
        session.append([later := Limited(window_tokens=2_000, max_output_tokens=10)])
    with store.open(session.id) as again:
        assert list(again.events()) == [later]
        assert store.read(session.id).events == (limit, later)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_numbers_that_json_does_not_know_do_not_end_a_session(store: FileStore, dialect: str) -> None:
    odd = json.loads('{"role": "user", "content": "hi", "x": [NaN, -Infinity, 1e999, "\\ud83d"]}')
    with store.create(dialect=dialect) as session:
        context = Context(dialect=dialect, window=4_000)
        context.extend([user("before"), odd, user("after")])
        session.append(context.events)
        again = list(session.events())
        assert [json.dumps(e.recorded) for e in again if isinstance(e, Entry)] == [
            json.dumps(wire) for wire in (user("before"), odd, user("after"))
        ]
        for line in (session.folder / "events.jsonl").read_bytes().splitlines():
            json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_a_batch_with_a_value_that_is_not_json_is_refused_whole(store: FileStore) -> None:
    with store.create(dialect="openai-chat") as session:
        context = Context(window=4_000)
        context.extend([user("good"), {**user("bad"), "x": b"bytes"}])
        with pytest.raises(InvalidInput, match="bytes"):
            session.append(context.events)
        assert list(session.events()) == []


def test_an_empty_batch_writes_nothing(store: FileStore) -> None:
    with store.create(dialect="openai-chat") as session:
        before = (session.folder / "events.jsonl").read_bytes()
        session.append([])
        assert (session.folder / "events.jsonl").read_bytes() == before


# --- crashes ----------------------------------------------------------------------------------------------------------


def told_before_its_end(place: str | Path, name: str, lines: int, lease_seconds: float = 10.0) -> list[int]:
    """The output of a writer that is killed some time after it has sent this many numbers."""
    with child(write, str(place), name, lease_seconds) as writer:
        told = [writer.receive() for _ in range(lines)]
        writer.kill()
        return told + writer.drain()


@posix_only
def test_after_kill_9_every_acknowledged_message_is_stored(tmp_path: Path) -> None:
    """Kill a writer 32 times at random moments: the session opens each time, and the next request can be made."""
    store = FileStore(tmp_path)
    chance = random.Random(7)
    names = []
    for _ in range(4):
        with store.create(dialect="openai-chat", window=2_000) as session:
            names.append(session.id)
    for kill in range(32):
        told = told_before_its_end(tmp_path, names[kill % 4], chance.randint(1, 6))
        with store.open(names[kill % 4]) as session:
            context = Context.replay(session.events(), window=2_000, max_output_tokens=0, archive=session.archive)
        entries = [event for event in context.events if isinstance(event, Entry)]
        numbers = [int(str(entry.recorded["content"]).split()[1]) for entry in entries]
        assert numbers == list(range(len(numbers)))
        assert told[-1] < len(numbers) <= told[-1] + 2
        assert context.prepare().tokens <= 0.9 * 2_000
    assert [one.damage for one in store.sessions()] == [""] * 4


def test_a_partial_last_record_is_saved_aside_and_reported(store: FileStore) -> None:
    with store.create(dialect="openai-chat") as session:
        filled(session, 1)
    path = session.folder / "events.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"type":"message","seq":2,"message":{"role":"user","content":"a person\'s w')
    with store.open(session.id) as again:
        assert again.torn is not None
        assert again.torn.at_byte == len(whole)
        aside = session.folder / f"events.torn-{len(whole)}"
        assert aside.read_bytes() == again.torn.data
        assert sys.platform == "win32" or aside.stat().st_mode & 0o777 == 0o600
        assert len(list(again.events())) == 2
        again.note(text="goes on")
    assert path.read_bytes().startswith(whole)


def test_a_saved_partial_record_is_never_overwritten(store: FileStore) -> None:
    with store.create(dialect="openai-chat") as session:
        pass
    path = session.folder / "events.jsonl"
    whole = path.read_bytes()
    for words in (b'{"type":"one', b'{"type":"two'):
        path.write_bytes(whole + words)
        store.open(session.id).close()
    kept = sorted(session.folder.glob("events.torn-*"))
    assert [one.read_bytes() for one in kept] == [b'{"type":"one', b'{"type":"two']


def test_drafts_of_a_process_that_was_killed_are_cleared_away(store: FileStore) -> None:
    with store.create(dialect="openai-chat") as session:
        (session.folder / ".state.yaml.0123.part").write_text("half a snap")
    store.open(session.id).close()
    assert sorted(one.name for one in session.folder.iterdir()) == ["events.jsonl", "state.yaml"]


def test_a_damaged_record_is_named_by_file_and_line(store: FileStore) -> None:
    with store.create(dialect="openai-chat") as session:
        filled(session, 2)
    path = session.folder / "events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3][:20] + b"\x00" + lines[3][21:]
    path.write_bytes(b"".join(lines))
    for taking in (store.open, store.read):
        with pytest.raises(InvalidInput, match=r"events\.jsonl, line 4") as caught:
            taking(session.id)
        assert session.id in str(caught.value)
    EventLog(path).close()  # nobody holds the lock of a session that could not be opened


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"type": "dream"}, "unknown type 'dream'"),
        ({"type": None}, "unknown type None"),
        ({"seq": "two"}, "seq: must be of type int"),
        ({"message": []}, "message: must be of type dict"),
        ({"message": {"content": "no role"}}, "role"),
    ],
)
def test_a_record_that_makes_no_sense_is_named(store: FileStore, change: dict[str, object], words: str) -> None:
    with store.create(dialect="openai-chat") as session:
        filled(session, 1)
    path = session.folder / "events.jsonl"
    lines = records_in(path)
    lines[2] |= change
    replace_records(path, lines)
    with pytest.raises(InvalidInput, match=f"line 3.*{words}"):
        store.read(session.id)


def test_known_parts_of_a_newer_log_are_read(store: FileStore) -> None:
    with store.create(dialect="openai-chat") as session:
        filled(session, 1)
    path = session.folder / "events.jsonl"
    lines = [record | {"unknown": [1]} for record in records_in(path)]
    lines[0]["v"] = 2
    replace_records(path, lines)
    assert len(store.read(session.id).events) == 2
    with EventLog(path) as log:
        log.append({"type": "dream", "v": 2})
    with pytest.raises(InvalidInput, match=r"'dream'; it was written by a newer version \(form 2, this one reads 1\)"):
        store.read(session.id)


@posix_only
def test_a_full_disk_fails_the_append_and_not_the_session(store: FileStore) -> None:
    import resource

    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with store.create(dialect="openai-chat") as session:
        context = filled(session, 1)
        written = context.event_count
        context.append(user("x" * 30_000))
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
            with pytest.raises(OSError, match="too large"):
                session.append(context.events_after(written))
            assert len(list(session.events())) == written
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)
        session.append(context.events_after(written))
        assert len(list(session.events())) == context.event_count


# --- one writer, one reader -------------------------------------------------------------------------------------------


@posix_only
def test_a_second_writer_is_refused_and_a_reader_is_not(store: FileStore) -> None:
    with store.create(dialect="openai-chat") as session:
        context = filled(session, 2)
        with pytest.raises(InvalidInput, match="open in another process") as caught:
            store.open(session.id)
        assert caught.value.place == session.id
        assert store.read(session.id).replay().view.wires()[0] == context.view.wires()[0]
        assert store.sessions()[0].snapshot is not None
        with child(write, str(store.root), session.id, patience_seconds=0) as second:
            assert second.receive() == f"refused: {caught.value}"
        written = context.event_count
        context.append(user("and more"))
        session.append(context.events_after(written))
    store.open(session.id).close()


@posix_only
def test_only_the_owner_can_read_it(store: FileStore) -> None:
    before = os.umask(0)
    try:
        with store.create(dialect="openai-chat", window=900) as session:
            session.save(filled(session, 12, 900))
    finally:
        os.umask(before)
    modes = {path: path.stat().st_mode & 0o777 for path in (store.root, *store.root.rglob("*"))}
    assert any(path.parent.parent.name == "archive" for path in modes)
    assert {path.name for path, mode in modes.items() if mode != (0o700 if path.is_dir() else 0o600)} == set()


def test_a_closed_session_takes_nothing(store: FileStore) -> None:
    session = store.create(dialect="openai-chat")
    session.close()
    session.close()
    with pytest.raises(ValueError, match="closed"):
        session.turn("begun")


def test_reading_a_session_does_not_acquire_it(store: FileStore) -> None:
    with store.create(dialect="openai-chat", model="no-such-model", policy="house rules") as session:
        context = filled(session, 2)
    recording = store.read(session.id)
    assert recording.events == context.events
    assert [record["type"] for record in recording.other] == ["turn"] * 4
    assert recording.replay().view.wires()[0] == context.view.wires()[0]
    assert codec(recording.header.dialect).dialect == "openai-chat"


def test_a_list_made_while_a_record_is_torn_does_not_call_the_session_damaged(store: FileStore) -> None:
    """After kill -9, a list writes a new snapshot before anybody opens the session."""
    with store.create(dialect="openai-chat") as session:
        filled(session)
        log, name = session.folder / "events.jsonl", session.id
    with log.open("ab") as file:
        file.write(b'{"type":"message","seq":99,"mess')
    (listed,) = store.sessions()
    assert listed.damage == ""
    with store.open(name) as session:
        assert session.torn is not None
    assert store.read(name).events
