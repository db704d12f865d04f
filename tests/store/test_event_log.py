"""The log on disk: events are whole and in order whatever happens to the process that writes them."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import dear

from foldline.errors import InvalidInput
from foldline.store import EventLog, Torn, read_events

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="modes, locks and limits of POSIX")

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
EVENTS = st.lists(st.dictionaries(st.text(), JSON, max_size=4), max_size=5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "session" / "events.jsonl"


def written(path: Path, *events: Mapping[str, object]) -> bytes:
    with EventLog(path) as log:
        for event in events:
            log.append(event)
    return path.read_bytes()


@dear
@given(events=EVENTS)
def test_events_come_back_as_they_were_and_in_order(events: list[dict[str, object]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.jsonl"
        data = written(path, *events)
        assert list(read_events(path)) == events
        assert data.count(b"\n") == len(events)
        with EventLog(path) as log:
            assert list(log) == events
            assert log.torn is None
        assert path.read_bytes() == data


@dear
@given(events=EVENTS, data=st.data())
def test_wherever_a_crash_cuts_the_file_no_half_event_is_left(
    events: list[dict[str, object]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.jsonl"
        whole = written(path, *events)
        cut = data.draw(st.integers(0, len(whole)))
        path.write_bytes(whole[:cut])
        kept = list(read_events(path))
        assert kept == events[: len(kept)]
        assert path.read_bytes() == whole[:cut], "reading changes nothing"
        with EventLog(path) as log:
            lost = len(log.torn.data) if log.torn else 0
            assert path.read_bytes().rstrip(b"\n") == whole[: cut - lost].rstrip(b"\n")
            log.append({"after": "the crash"})
            assert list(log) == [*kept, {"after": "the crash"}]


def test_a_partial_event_is_reported(path: Path) -> None:
    whole = written(path, {"seq": 0}, {"seq": 1})
    at = whole.index(b"\n") + 1
    path.write_bytes(whole[: at + 6])
    with EventLog(path) as log:
        assert log.torn == Torn(at_byte=at, data=b'{"seq"')
        assert str(log.torn) == f"a half-written event of 6 bytes at byte {at}"
    with EventLog(path) as log:
        assert log.torn is None


def test_a_partial_event_longer_than_a_block_is_cut_off(path: Path) -> None:
    whole = written(path, {"seq": 0}, {"text": "é" * 200_000})
    path.write_bytes(whole[:-3])
    with EventLog(path) as log:
        assert log.torn is not None
        assert log.torn.at_byte == whole.index(b"\n") + 1
        assert list(log) == [{"seq": 0}]


def test_zeros_left_by_a_power_cut_are_cut_off(path: Path) -> None:
    whole = written(path, {"seq": 0})
    path.write_bytes(whole + b"\0" * 70_000)
    with EventLog(path) as log:
        assert log.torn == Torn(len(whole), b"\0" * 70_000)
        assert list(log) == [{"seq": 0}]


def test_a_last_event_without_its_line_break_is_intact(path: Path) -> None:
    whole = written(path, {"seq": 0}, {"seq": 1})
    path.write_bytes(whole[:-1])
    assert list(read_events(path)) == [{"seq": 0}, {"seq": 1}]
    with EventLog(path) as log:
        assert log.torn is None
    assert path.read_bytes() == whole


@pytest.mark.parametrize("line", [b"not json", b"[1]", b'"text"', b"", b"\xff\xfe", b"{} {}", b"[" * 100_000])
def test_damage_inside_the_log_is_named_and_not_skipped(path: Path, line: bytes) -> None:
    written(path, {"seq": 0})
    with path.open("ab") as file:
        file.write(line + b'\n{"seq":2}\n')
    events = read_events(path)
    assert next(events) == {"seq": 0}
    with pytest.raises(InvalidInput, match="line 2"):
        next(events)


@pytest.mark.parametrize(
    "event", [[1], "text", None, {"n": float("nan")}, {"n": float("inf")}, {"x": object()}, {"b": b""}]
)
def test_anything_but_a_json_object_is_refused_and_leaves_no_trace(path: Path, event: object) -> None:
    with EventLog(path) as log:
        log.append({"seq": 0})
        with pytest.raises(InvalidInput):
            log.append(event)  # type: ignore[arg-type]
        log.append({"seq": 1})
        assert list(log) == [{"seq": 0}, {"seq": 1}]


def test_line_breaks_and_lone_surrogates_stay_inside_their_event(path: Path) -> None:
    event = {"text": "a\nb\r\u2028\x85 \ud83d 日本"}
    assert written(path, event).count(b"\n") == 1
    assert list(read_events(path)) == [event]


def test_text_is_written_as_text(path: Path) -> None:
    assert '{"text":"日本語",'.encode() in written(path, {"text": "日本語"})


def test_the_order_of_fields_is_kept(path: Path) -> None:
    assert written(path, json.loads('{"z":1,"a":{"y":2,"b":3}}')).startswith(b'{"z":1,"a":{"y":2,"b":3},"n":0,')


def test_a_log_can_be_read_while_it_is_written(path: Path) -> None:
    with EventLog(path) as log:
        log.append({"seq": 0})
        assert list(read_events(path)) == [{"seq": 0}]
        log.append({"seq": 1})
        assert list(read_events(path)) == [{"seq": 0}, {"seq": 1}]


def test_a_missing_log_is_an_error(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        next(read_events(path))


def test_a_closed_log_takes_nothing(path: Path) -> None:
    log = EventLog(path, fsync=True)
    log.append({"seq": 0})
    log.close()
    log.close()
    with pytest.raises(ValueError, match="closed"):
        log.append({"seq": 1})
    assert list(log) == [{"seq": 0}]


@pytest.mark.skipif(sys.platform != "linux", reason="open files are listed in /proc")
def test_a_released_log_holds_no_file_open(path: Path) -> None:
    with EventLog(path) as log:
        open_files = len(os.listdir("/proc/self/fd"))
        log.release()
        assert len(os.listdir("/proc/self/fd")) == open_files - 1
        with EventLog(path) as other:
            with pytest.raises(InvalidInput, match="another writer"):
                log.acquire()
            other.append({"seq": 0})
        log.acquire()
        log.append({"seq": 1})
        assert list(log) == [{"seq": 0}, {"seq": 1}]
        log.release()
        path.unlink()
        with pytest.raises(InvalidInput, match="log no longer exists"):
            log.acquire()


def test_a_batch_is_written_all_or_none(path: Path) -> None:
    with EventLog(path, fsync=True) as log:
        log.extend([{"seq": 0}, {"seq": 1}])
        log.extend([])
        with pytest.raises(InvalidInput):
            log.extend([{"seq": 2}, {"n": float("nan")}])
        assert list(log) == [{"seq": 0}, {"seq": 1}]
        assert log.size_bytes == path.stat().st_size == 2 * len(b'{"seq":0,"n":0,"crc":"12345678"}\n')


@posix_only
def test_only_the_owner_can_read(path: Path) -> None:
    before = os.umask(0)
    try:
        written(path, {"seq": 0})
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.chmod(0o644)
    EventLog(path).close()
    assert path.stat().st_mode & 0o777 == 0o600


@posix_only
def test_a_second_writer_is_refused_and_harms_nothing(path: Path) -> None:
    with EventLog(path) as log:
        log.append({"seq": 0})
        with pytest.raises(InvalidInput, match="another writer"):
            EventLog(path)
        log.append({"seq": 1})
    with EventLog(path) as log:
        assert list(log) == [{"seq": 0}, {"seq": 1}]


@posix_only
def test_an_event_that_does_not_fit_on_the_disk_is_undone(path: Path) -> None:
    import resource
    import signal

    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with EventLog(path) as log:
        log.append({"seq": 0})
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, before[1]))
            with pytest.raises(OSError, match="too large"):
                log.append({"text": "x" * 5_000})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)
        log.append({"seq": 1})
        assert list(log) == [{"seq": 0}, {"seq": 1}]
