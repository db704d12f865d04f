"""`state.yaml`: strict YAML, bounded, and read back only as it was written."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from tests.property.depth import dear
from tests.property.sessions import DIALECTS, Wire, sessions

from foldline.codecs import codec
from foldline.engine.context import Context
from foldline.engine.settings import memory_limit
from foldline.messages import Message, Text
from foldline.store.snapshot import (
    MESSAGE_CHARS,
    TITLE_CHARS,
    Snapshot,
    read_snapshot,
    shown_messages,
    title_of,
    write_snapshot,
)

SNAPSHOT = Snapshot(
    id="20261128-040506-0123abcd",
    created="2026-11-28T04:05:06.000Z",
    updated="2026-11-28T04:06:00.000Z",
    dialect="openai-chat",
    model=None,
    policy="balanced",
    title="Fix: the build #2 — 日本",
    parent=None,
    turns=2,
    messages=4,
    folds=1,
    tokens=1_234,
    window_tokens=8_192,
    log_bytes=999,
)

ODD = "".join(map(chr, (0, 7, 9, 10, 13, 27, 127, 128, 133, 159, 160, 0x2028, 0x2029, 0xD83D, 0xFEFF, 0xFFFE, 0x1F600)))


@dear
@given(
    title=st.text(st.characters(exclude_categories=())), texts=st.lists(st.text(st.characters(exclude_categories=())))
)
@example(title=ODD, texts=[ODD, "- a: b", "'\"{}[]#&*!|>%@`", "yes", "1e5", "..."])
def test_it_is_yaml_that_says_the_same(title: str, texts: list[str]) -> None:
    shown: list[dict[str, Any]] = [{"role": "user", "text": text, "calls": [{"name": text}]} for text in texts]
    values = {**asdict(SNAPSHOT), "title": title}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.yaml"
        write_snapshot(path, Snapshot(**values), shown)
        written = yaml.safe_load(path.read_bytes())
        assert len(written.pop("crc")) == 8
        assert written == {"v": 1, **values, "shown": shown}
        assert read_snapshot(path) == Snapshot(**values)


def test_it_reads_well(tmp_path: Path) -> None:
    write_snapshot(tmp_path / "state.yaml", SNAPSHOT, [{"role": "user", "text": "größer\n日本"}])
    lines = (tmp_path / "state.yaml").read_text("utf-8").splitlines()
    assert lines[1:3] == ["v: 1", 'id: "20261128-040506-0123abcd"']
    assert lines[-2:] == ["shown:", '- {"role": "user", "text": "größer\\n日本"}']


def test_nothing_is_left_of_a_snapshot_that_could_not_be_written(tmp_path: Path) -> None:
    path = tmp_path / "state.yaml"
    write_snapshot(path, SNAPSHOT, [])
    before = path.read_bytes()
    with pytest.raises(ValueError, match="JSON"):
        write_snapshot(path, SNAPSHOT, [{"role": "user", "n": float("nan")}])
    assert [one.name for one in tmp_path.iterdir()] == ["state.yaml"]
    assert path.read_bytes() == before


@dear
@given(sessions())
def test_each_message_is_cut_to_its_bound(session: tuple[str, list[Wire], bool]) -> None:
    dialect, wires, _ = session
    context = Context(dialect=dialect, window=10**6)
    context.extend(wires)
    shown = list(shown_messages(context.view, None))
    assert len(shown) == len([m for tile in context.view.tiles for m in tile.messages])
    for message in shown:
        texts = [message.get("text", ""), *(c["arguments"] for c in message.get("calls", ()))]
        texts += [result["text"] for result in message.get("results", ())]
        assert sum(map(len, texts)) <= MESSAGE_CHARS
        assert ("cut_chars" in message) <= (sum(map(len, texts)) == MESSAGE_CHARS)


def test_a_huge_message_takes_no_more_room_than_a_long_one() -> None:
    context = Context(window=10**7)
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "x" * 900, "arguments": '{"a":"' + "y" * 900 + '"}'}}
        for n in range(400)
    ]
    context.append({"role": "user", "content": "z" * 10**6})
    context.append({"role": "assistant", "content": None, "tool_calls": calls})
    first, second, *_ = shown_messages(context.view, None)
    assert first == {"role": "user", "text": "z" * MESSAGE_CHARS, "cut_chars": 10**6 - MESSAGE_CHARS}
    assert len(str(second)) < 2 * MESSAGE_CHARS
    assert second["cut_chars"] == 400 * 908 - MESSAGE_CHARS


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_more_messages_than_the_memory_limit_and_the_newest_of_them(dialect: str) -> None:
    context = Context(dialect=dialect, window=10**7)
    write = codec(dialect).write
    for number in range(130):
        context.append(write(Message("user", (Text(f"n{number}"),))))
        context.append(write(Message("assistant", (Text(f"a{number}"),))))
    shown = list(shown_messages(context.view, 8_000))
    assert len(shown) == memory_limit(8_000) == 100
    assert shown[-1] == {"role": "assistant", "text": "a129"}
    assert shown[0] == {"role": "user", "text": "n80"}


def test_the_title_is_the_first_words_on_one_line() -> None:
    assert title_of("  fix\n the\tbuild ") == "fix the build"
    assert len(title_of("word " * 10**5)) <= TITLE_CHARS
    assert title_of("word " * 30).endswith("…")
    assert title_of(" \n ") == ""


def test_a_title_shows_no_key_that_was_pasted() -> None:
    key = "sk-ant-api03-" + "Ab1" * 20
    assert key[:20] not in title_of(f"use {key} for the tests")


def test_no_flipped_bit_of_a_snapshot_is_believed(tmp_path: Path) -> None:
    path = tmp_path / "state.yaml"
    write_snapshot(path, SNAPSHOT, [])
    data = path.read_bytes()
    start, stop = data.index(b"v: 1"), data.index(b"shown:")
    for bit in range(8 * start, 8 * stop):
        spoilt = bytearray(data)
        spoilt[bit // 8] ^= 1 << bit % 8
        path.write_bytes(spoilt)
        assert read_snapshot(path, sealed=True) in (None, SNAPSHOT), f"bit {bit}"
        assert read_snapshot(path) in (None, SNAPSHOT), f"bit {bit}"


def test_a_snapshot_of_an_older_version_is_read_and_proves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state.yaml"
    write_snapshot(path, SNAPSHOT, [])
    path.write_bytes(b"".join(line for line in path.read_bytes().splitlines(keepends=True) if b"crc: " not in line))
    assert read_snapshot(path) == SNAPSHOT
    assert read_snapshot(path, sealed=True) is None
