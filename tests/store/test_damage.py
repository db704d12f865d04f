"""Damage in logs is never silent, and requests are valid whatever a log says."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from tests.property.sessions import BUILDERS, DIALECTS
from tests.remembered import REMEMBERED
from tests.store.logs import records_in, replace_records, write_older_form
from tests.store.test_session import Ticking

from foldline.engine.context import Context
from foldline.engine.one_shot import check
from foldline.errors import FoldlineError, InvalidInput
from foldline.store import EventLog, FileStore, read_events
from foldline.store.repair import LOST
from foldline.view.transcript import Entry

BITS = 400
"""The number of bits of a log that one test flips, of some 110,000; all were flipped once (docs/design/004)."""


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "sessions", clock=Ticking(), fsync=False)


def begun(store: FileStore, dialect: str) -> tuple[str, Path]:
    """A session with folds, summaries, an undo, a pin and a fork, without its snapshot."""
    build = BUILDERS[dialect]
    with store.create(dialect=dialect, window=2_000) as session:
        context = Context(dialect=dialect, window=2_000, max_output_tokens=0, counter=REMEMBERED)
        context.extend(build.user("first words", False))
        for number in range(3):
            ids = [f"c{number}", f"d{number}"]
            context.extend(build.turn(ids, ["result line\n" * 90, "short"], "w " * 8, None))
            context.extend(build.user(f"go on {number}", False))
            context.prepare(lambda _messages, _cap: "the summary of it")
        context.compact(None, summarize=lambda _messages, _cap: "the summary of all")
        context.extend(build.turn(["e"], ["result line\n" * 60], "w " * 8, None))
        context.extend(build.user("more", False))
        context.compact(None, summarize=None)
        context.undo()
        context.pin(max(context.view.entries))
        context.extend(build.turn(["f"], ["result line\n" * 60], "w " * 8, None))
        left = [event.recorded for event in context.events if isinstance(event, Entry)]
        context.extend(build.user("and now", False))
        context.sync([*left, *build.user("otherwise", False)])
        context.prepare(lambda _messages, _cap: "another summary")
        session.append(context.events)
        session.turn("ended", reason="done")
    return session.id, store.root / session.id / "events.jsonl"


def flipped(data: bytes, bit: int) -> bytes:
    out = bytearray(data)
    out[bit // 8] ^= 1 << bit % 8
    return bytes(out)


def some_bits(data: bytes, seed: int) -> Iterable[int]:
    return sorted(random.Random(seed).sample(range(8 * len(data)), BITS))


def answer(store: FileStore, name: str) -> list[object]:
    """The next request of a session, as an agent that resumes it would send it. Raises what opening raises."""
    with store.open(name) as session:
        header = session.header
        context = Context.replay(
            session.events(), dialect=header.dialect, window=header.window or 2_000, counter=REMEMBERED
        )
    request = context.prepare()
    assert check(request.messages, dialect=header.dialect, system=request.system) == []
    return list(request.messages)


# --- one flipped bit --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_flipped_bit_opens_without_a_word(store: FileStore, dialect: str) -> None:
    name, path = begun(store, dialect)
    data, whole = path.read_bytes(), records_in(path)
    for bit in some_bits(data, 1):
        path.write_bytes(flipped(data, bit))
        line = data[: bit // 8].count(b"\n") + 1
        try:
            with store.open(name) as session:
                assert session.torn is not None, f"bit {bit}"
                assert records_in(path) == whole
        except InvalidInput as error:
            assert f"line {line}: damaged at byte" in str(error) or bit // 8 == len(data) - 1, f"bit {bit}"
            assert f"foldline sessions repair {name}" in str(error)


def test_every_bit_of_a_short_log_is_guarded(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    events: list[dict[str, object]] = [
        {"type": "session", "n": "its own"},
        {"seq": 0, "text": "größer 1e5 \ud800"},
        {},
        {"crc": 7, "a": [1.5]},
    ]
    replace_records(path, events)
    data = path.read_bytes()
    for bit in range(8 * len(data) - 8):
        path.write_bytes(flipped(data, bit))
        with pytest.raises(InvalidInput, match="line"):
            list(read_events(path))
    for bit in range(8 * len(data) - 8, 8 * len(data)):
        path.write_bytes(flipped(data, bit))
        assert list(read_events(path)) == events, "a line break means nothing"
        with EventLog(path) as log:
            assert log.torn is not None
        assert path.read_bytes() == data


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_old_log_with_a_flipped_bit_yields_a_valid_request_or_an_error(store: FileStore, dialect: str) -> None:
    name, path = begun(store, dialect)
    data = write_older_form(path)
    refused = 0
    for bit in some_bits(data, 2):
        path.write_bytes(flipped(data, bit))
        try:
            answer(store, name)
        except FoldlineError as error:
            assert str(path) in str(error) or name in str(error) or "events" in str(error) or "entry" in str(error)
            refused += 1
    assert 0 < refused < BITS


# --- whole records ----------------------------------------------------------------------------------------------------


def _other(store: FileStore) -> list[bytes]:
    _, path = begun(store, "openai-chat")
    return path.read_bytes().splitlines(keepends=True)


def _lost(lines: list[bytes], _other: list[bytes]) -> list[bytes]:
    return [*lines[:9], *lines[10:]]


def _doubled(lines: list[bytes], _other: list[bytes]) -> list[bytes]:
    return [*lines[:9], lines[8], *lines[9:]]


def _swapped(lines: list[bytes], _other: list[bytes]) -> list[bytes]:
    return [*lines[:8], lines[9], lines[8], *lines[10:]]


def _spliced(lines: list[bytes], other: list[bytes]) -> list[bytes]:
    return [*lines[:8], *other[8:11], *lines[11:]]


def _inserted(lines: list[bytes], other: list[bytes]) -> list[bytes]:
    return [*lines[:8], other[8], *lines[8:]]


def _zeros(lines: list[bytes], _other: list[bytes]) -> list[bytes]:
    whole = b"".join(lines)
    at = len(b"".join(lines[:6])) + 11
    return [whole[:at] + b"\0" * 512 + whole[at + 512 :]]


def _hole(lines: list[bytes], _other: list[bytes]) -> list[bytes]:
    whole = b"".join(lines)
    at = len(b"".join(lines[:6])) + 11
    return [whole[:at] + whole[at + 700 :]]


def _edited(lines: list[bytes], _other: list[bytes]) -> list[bytes]:
    return [*lines[:1], lines[1].replace(b"first", b"other"), *lines[2:]]


def _written_by_hand(lines: list[bytes], _other: list[bytes]) -> list[bytes]:
    record = {"type": "note", "text": "by hand"}
    return [*lines[:9], json.dumps(record).encode() + b"\n", *lines[9:]]


def _stripped(lines: list[bytes], _other: list[bytes]) -> list[bytes]:
    return [lines[0], lines[1].partition(b',"n":')[0] + b"}\n", *lines[2:]]


def _headless(lines: list[bytes], _other: list[bytes]) -> list[bytes]:
    return [lines[0].partition(b',"n":')[0] + b"}\n", *lines[1:]]


HARMS = [
    _lost, _doubled, _swapped, _spliced, _inserted, _zeros, _hole, _edited, _written_by_hand, _stripped, _headless
]  # fmt: skip


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__[1:])
def test_a_log_that_was_tampered_with_is_named_and_repaired(
    store: FileStore, harm: Callable[[list[bytes], list[bytes]], list[bytes]]
) -> None:
    other = _other(store)
    name, path = begun(store, "openai-chat")
    lines = path.read_bytes().splitlines(keepends=True)
    whole = records_in(path)
    spoilt = b"".join(harm(lines, other))
    path.write_bytes(spoilt)
    for taking in (store.open, store.read, lambda name: list(store.records(name))):
        with pytest.raises(InvalidInput, match=rf"line \d+: damaged at byte [\d,]+: .*sessions repair {name}"):
            taking(name)
    assert [one.damage for one in store.sessions() if one.id == name] != [""]
    done = store.repair(name)
    assert done is not None
    assert Path(done.old_log).read_bytes() == spoilt
    kept = records_in(path)
    if harm in (_doubled, _swapped, _inserted):
        assert [one for one in kept if one["type"] != "note"] == whole, "nothing of it is lost"
    assert done.lost_messages == sum(LOST in json.dumps(one) for one in kept)
    assert any("repaired" in one for one in kept)
    again = [one for one in kept if one in whole]
    assert len(again) >= len(whole) - 26
    answer(store, name)
    assert store.repair(name) is None
    assert records_in(path) == kept


def test_a_log_that_was_cut_off_at_a_line_is_noticed_by_its_snapshot(store: FileStore) -> None:
    name, path = begun(store, "openai-chat")
    with store.open(name) as session:
        session.save(store.read(name).replay())
    data = path.read_bytes()
    for cut in (data[: data.rindex(b"\n", 0, -1) + 1], data[:-30], data[:-200] + b"\0" * 200):
        path.write_bytes(cut)
        with pytest.raises(InvalidInput, match=r"damaged at byte [\d,]+: the last [\d,]+ bytes .* are missing"):
            store.read(name)
        with pytest.raises(InvalidInput, match="are missing"):
            store.open(name)
        assert "are missing" in store.sessions(save=False)[0].damage
        done = store.repair(name)
        assert done is not None
        assert [one.kind for one in done.damage] == ["missing"]
        answer(store, name)
        (path.parent / "state.yaml").unlink()
        path.write_bytes(data)
        with store.open(name) as session:
            session.save(store.read(name).replay())


def test_a_message_that_is_lost_at_the_end_is_counted(store: FileStore) -> None:
    with store.create(dialect="openai-chat", window=2_000) as session:
        context = Context(window=2_000)
        context.extend([{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}])
        session.append(context.events)
    path = store.root / session.id / "events.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"hello"', b'"jello"').replace(b'"hi"}', b'"hi"]'))
    done = store.repair(session.id)
    assert done is not None
    assert (done.lines, done.lost_messages) == ((2, 3), 2)
    assert [LOST in json.dumps(one) for one in records_in(path)] == [False, True, True, False]


def test_harmless_changes_are_accepted(store: FileStore) -> None:
    name, path = begun(store, "openai-chat")
    whole = records_in(path)
    data = path.read_bytes()
    for harmless in (data.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + data, data[:-1]):
        path.write_bytes(harmless)
        assert records_in(path) == whole
        store.open(name).close()
        assert records_in(path) == whole


# --- older logs -------------------------------------------------------------------------------------------------------


def test_an_older_log_is_read_on_and_guarded_from_there_on(store: FileStore) -> None:
    name, path = begun(store, "openai-chat")
    old = write_older_form(path)
    before = records_in(path)
    with store.open(name) as session:
        session.note(text="goes on")
        session.note(text="and on")
    assert path.read_bytes().startswith(old), "what was written stays as it is"
    assert [one for one in records_in(path) if one["type"] != "note"] == before
    data = path.read_bytes()
    spoilt = data.replace(b"first words", b"other words", 1)
    path.write_bytes(spoilt)
    with pytest.raises(InvalidInput, match="something before it was altered"):
        store.open(name)
    assert store.repair(name) is not None
    assert len(records_in(path)) == len(before) + 3, "which of them it was nobody knows: all that can be read is kept"
    path.write_bytes(b"".join(line for at, line in enumerate(data.splitlines(keepends=True)) if at != 5))
    with pytest.raises(InvalidInput, match="line"):
        store.open(name)


def test_messages_that_are_missing_or_twice_in_an_older_log_are_named(store: FileStore) -> None:
    name, path = begun(store, "openai-chat")
    lines = write_older_form(path).splitlines(keepends=True)
    for spoilt in ([*lines[:4], *lines[5:]], [*lines[:4], lines[3], *lines[4:]]):
        path.write_bytes(b"".join(spoilt))
        with pytest.raises(InvalidInput, match=r"line 5: seq: message \d+ is here instead of \d+"):
            store.read(name)
        assert store.repair(name) is not None
        answer(store, name)


# --- what a fold shows ------------------------------------------------------------------------------------------------


SHOWN = {
    "openai-chat": [
        [{"message": {"role": "tool", "tool_call_id": "nowhere", "content": "x"}}],
        [{"message": {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}}],
        [{"message": {"role": "user", "content": 7}}],
        [{"message": {"role": "nobody", "content": "x"}}],
        [{"message": {"role": "system", "content": "second"}}, {"message": {"role": "assistant", "content": ""}}],
    ],
    "openai-responses": [
        [{"message": {"type": "function_call_output", "call_id": "nowhere", "output": "x"}}],
        [{"message": {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}}],
        [{"message": {"role": "user", "content": 7}}],
        [{"message": {"type": "reasoning", "id": "rs_1", "summary": []}}],
    ],
    "anthropic": [
        [{"message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "nowhere", "content": "x"}]}}],
        [{"message": {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}}],
        [{"message": {"role": "user", "content": []}}],
        [{"message": {"role": "assistant", "content": "begins"}}],
        [{"message": {"role": "system", "content": "x"}}],
    ],
    "gemini": [
        [{"message": {"role": "user", "parts": [{"functionResponse": {"id": "x", "name": "f", "response": {}}}]}}],
        [{"message": {"role": "model", "parts": [{"functionCall": {"id": "c", "name": "f", "args": {}}}]}}],
        [{"message": {"role": "user", "parts": []}}],
        [{"message": {"role": "user", "parts": 7}}],
        [{"message": {"role": "model", "parts": [{"text": "begins"}]}}],
    ],
}  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("start", [0, 1, 2])
def test_requests_are_valid_whatever_a_fold_shows(store: FileStore, dialect: str, start: int) -> None:
    name, path = begun(store, dialect)
    whole = records_in(path)
    folds = [number for number, record in enumerate(whole) if record["type"] == "fold"]
    assert folds
    for shown in SHOWN[dialect]:
        for number in folds:
            for more in ({}, {"start": start, "stop": start + 1}, {"start": start, "stop": start + 2}):
                records = [dict(record) for record in whole]
                records[number] |= {"shown": shown, **more}
                replace_records(path, records)
                try:
                    answer(store, name)
                except FoldlineError as error:
                    assert str(error)


def test_latest_names_the_damage_when_no_session_can_be_read(store: FileStore) -> None:
    with pytest.raises(InvalidInput, match="there is no session yet"):
        store.find("latest")
    name, path = begun(store, "openai-chat")
    path.write_bytes(flipped(path.read_bytes(), 9_000))
    with pytest.raises(InvalidInput, match=rf"no session can be read; {name}: .*line \d+.*sessions repair {name}"):
        store.find("latest")
    other, _ = begun(store, "openai-chat")
    assert store.find("latest") == other
