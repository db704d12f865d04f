"""Damaged files of other programs: intact parts are read, and the others reported."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.codecs import codec
from foldline.engine.one_shot import check, fit
from foldline.errors import InvalidInput
from foldline.recorded.files import parse_session
from foldline.recorded.json_values import FileReading, text_in, values_in
from foldline.recorded.sessions import Session

TURNS = 6


def claude_code() -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for turn in range(TURNS):
        before = out[-1]["uuid"] if out else None
        more = {"sessionId": "s", "timestamp": f"2026-09-01T10:00:{turn:02}.000Z", "cwd": "/p", "isSidechain": False}
        asked = {"role": "user", "content": f"question {turn} größer\u2028"}
        said = {"id": f"m{turn}", "role": "assistant", "content": [{"type": "text", "text": f"answer {turn}"}]}
        out.append({"type": "user", "uuid": f"u{turn}", "parentUuid": before, "message": asked, **more})
        out.append({"type": "assistant", "uuid": f"a{turn}", "parentUuid": f"u{turn}", "message": said, **more})
    return out


def codex() -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = [{"type": "session_meta", "timestamp": "t", "payload": {"id": "s"}}]
    for turn in range(TURNS):
        for role, kind, words in (("user", "input_text", "question"), ("assistant", "output_text", "answer")):
            block = {"type": kind, "text": f"{words} {turn} größer\u2028"}
            item = {"type": "message", "role": role, "content": [block]}
            out.append({"type": "response_item", "timestamp": f"{role}{turn}", "payload": item})
    return out


def plain() -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for turn in range(TURNS):
        out.append({"role": "user", "content": f"question {turn} größer\u2028"})
        out.append({"role": "assistant", "content": f"answer {turn}"})
    return out


FORMATS: dict[str, Callable[[], list[dict[str, Any]]]] = {"claude-code": claude_code, "codex": codex, "plain": plain}


def lines_of(records: list[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(record, ensure_ascii=False).encode() for record in records]


def joined(lines: list[bytes]) -> bytes:
    return b"\n".join(lines) + b"\n"


def read(data: bytes) -> Session:
    session = parse_session(data, place="s.jsonl", lenient=True)
    read_again = codec(session.dialect)
    for message in session.messages:
        read_again.read(message)
    return session


HARMS: dict[str, Callable[[list[bytes]], bytes]] = {
    "zero bytes as a line": lambda lines: joined([*lines[:5], b"\0" * 300, *lines[5:]]),
    "zero bytes at the end": lambda lines: joined(lines) + b"\0" * 4_096,
    "a torn end": lambda lines: joined(lines)[:-20],
    "a torn line in the middle": lambda lines: joined([*lines[:5], lines[5][:30], *lines[6:]]),
    "two lines in one": lambda lines: joined([*lines[:5], lines[5] + lines[6], *lines[7:]]),
    "no JSON in the middle": lambda lines: joined([*lines[:5], b"Killed", *lines[5:]]),
    "a number in the middle": lambda lines: joined([*lines[:5], b"7", *lines[5:]]),
    "no UTF-8": lambda lines: joined([*lines[:5], lines[5].replace(b" 2", b" \xff\xfe2"), *lines[6:]]),
    "a bad first line": lambda lines: joined([b"\0\0{", *lines]),
    "a torn archive": lambda lines: gzip.compress(joined(lines), mtime=0)[:-12],
}

KEPT = {"a torn end", "a torn line in the middle", "two lines in one", "a torn archive"}
"""Damages that lose a message; the others lose none."""


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("harm", HARMS)
def test_intact_parts_are_read_and_damaged_ones_reported(form: str, harm: str) -> None:
    lines = lines_of(FORMATS[form]())
    whole = read(joined(lines))
    assert whole.unread == ()
    assert len(whole.messages) == 2 * TURNS
    session = read(HARMS[harm](lines))
    assert session.dialect == whole.dialect
    assert len(session.messages) >= (len(whole.messages) - 2 if harm in KEPT else len(whole.messages))
    if harm != "no UTF-8":
        assert all(message in whole.messages for message in session.messages)
    assert session.unread
    assert all(str(one).startswith("s.jsonl") for one in session.unread)
    if harm in ("a torn line in the middle", "no JSON in the middle", "zero bytes as a line"):
        assert session.unread[0].place == "s.jsonl: line 6"


@pytest.mark.parametrize("form", FORMATS)
def test_harmless_changes_are_not_reported(form: str) -> None:
    lines = lines_of(FORMATS[form]())
    whole = read(joined(lines))
    for data in (joined(lines).replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + joined(lines), joined(lines)[:-1]):
        session = read(data)
        assert (session.messages, session.unread) == (whole.messages, ())
    assert read(joined(lines).decode().encode("utf-16")).messages == whole.messages


@pytest.mark.parametrize("form", ["claude-code", "codex"])
def test_a_record_that_was_written_twice_is_read_once(form: str) -> None:
    lines = lines_of(FORMATS[form]())
    session = read(joined([*lines[:5], lines[4], *lines[5:]]))
    assert session.messages == read(joined(lines)).messages
    assert [one.place for one in session.unread] == ["s.jsonl: line 6"]


def test_a_record_that_is_missing_is_named() -> None:
    lines = lines_of(claude_code())
    session = read(joined([*lines[:4], *lines[5:]]))
    assert [str(one) for one in session.unread] == ["s.jsonl: line 5: the record before it is not in the file"]


@pytest.mark.parametrize("around", ['{{"system": "x", "messages": {}}}', "{}"])
def test_a_damaged_list_yields_its_intact_messages(around: str) -> None:
    text = around.format(json.dumps(plain(), indent=1))
    whole = plain()
    torn = read(text[: text.index("answer 4")].encode())
    assert list(torn.messages) == whole[:9]
    spoilt = text.replace('"content": "answer 2"', '"content": answer 2"', 1)
    session = read(spoilt.encode())
    assert list(session.messages) == [*whole[:5], *whole[6:]]
    assert len(session.unread) == 1
    assert "line" in session.unread[0].place


def test_a_message_that_no_codec_knows_is_left_out() -> None:
    data = joined([*lines_of(plain()), b'{"role": 7}', b'{"role": "user", "content": 5}', b'{"x": 1}'])
    session = read(data)
    assert list(session.messages) == plain()
    assert [one.place for one in session.unread] == [f"s.jsonl: line {2 * TURNS + more}" for more in (1, 2, 3)]


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 50, b"nothing here", b'{"x": 1}\n{"y": 2}\n', b"[1, 2]", b"\x1f\x8bgarbage"]
)
def test_a_file_without_anything_readable_is_an_error(data: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"s\.jsonl"):
        read(data)


def test_a_strict_reader_omits_nothing() -> None:
    lines = lines_of(plain())
    for harm in HARMS.values():
        with pytest.raises(InvalidInput):
            parse_session(harm(lines), place="s.jsonl")


@given(seed=st.integers(0, 2**32), form=st.sampled_from(sorted(FORMATS)), cuts=st.integers(1, 4))
def test_any_damage_leaves_a_session_or_is_refused_by_name(seed: int, form: str, cuts: int) -> None:
    chance = random.Random(seed)
    data = bytearray(joined(lines_of(FORMATS[form]())))
    for _ in range(cuts):
        at, length = chance.randrange(len(data)), chance.choice((1, 1, 5, 80))
        match chance.randrange(3):
            case 0:
                data[at : at + length] = chance.randbytes(length)
            case 1:
                del data[at : at + length]
            case _:
                data[at:at] = bytes(length)
    session = read(bytes(data))
    whole = sum(line in joined(lines_of(FORMATS[form]())) for line in bytes(data).split(b"\n") if line)
    assert len(session.messages) >= whole - 2 - cuts
    sent = fit(session.messages, max_tokens=100_000, dialect=session.dialect)
    assert check(sent.messages, dialect=session.dialect, system=sent.system) == []


def test_the_work_grows_as_a_damaged_list_does() -> None:
    """Each damage costs a search through all that follows: without a bound this test would not end."""
    text = '[{"role": x' + ', {"role": x' * 100_000
    with pytest.raises(InvalidInput):
        values_in(text, "s.json", FileReading(lenient=True))
    assert text_in(b"\xff\n" * 50_000, "s", FileReading(lenient=True)).count("\ufffd") == 50_000
