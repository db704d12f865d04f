"""Blocks of a framework as they are counted, and the same blocks again."""

from __future__ import annotations

from typing import Any

import pytest

from foldline.adapters.content_blocks import counted_block, restored_blocks
from foldline.codecs import codec
from foldline.engine.one_shot import count
from foldline.messages import Wire

DATA = "QUJD" * 50_000
CHAT = codec("openai-chat")
BLOCKS: list[Any] = [
    "text",
    {"type": "text", "text": "cited", "citations": [1]},
    {"text": "without a type"},
    {"type": "thought", "signature": "sig", "words": "hm"},
    {"type": "image", "base64": DATA, "mime_type": "image/heic"},
    {"image": {"format": "png", "source": {"bytes": DATA}}},
    {"type": "audio", "base64": DATA, "mime_type": "audio/wav"},
    {"type": "blob", "data": b"bytes" * 1_000},
]


def message(role: str, blocks: list[Any]) -> Wire:
    result = {"tool_call_id": "c"} if role == "tool" else {}
    return {"role": role, **result, "content": [counted_block(block, role) for block in blocks]}


@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
def test_what_is_shown_whole_is_the_block_itself_also_where_the_dialect_would_have_another(role: str) -> None:
    before = message(role, BLOCKS)
    mended = CHAT.sanitize(CHAT.read(before)).message
    assert mended is not None
    for wire in (before, CHAT.write(mended)):
        sent = restored_blocks(wire, before, BLOCKS)
        assert [len(blocks) for blocks in sent] == [1] * len(BLOCKS)
        assert all(blocks[0] is own for blocks, own in zip(sent, BLOCKS, strict=True))


@pytest.mark.parametrize("role", ["assistant", "tool"])
def test_bytes_of_a_file_are_not_counted_as_text(role: str) -> None:
    assert count([message(role, BLOCKS)]) < 1_000


def test_a_shortened_block_stands_in_its_place_among_the_others() -> None:
    before = message("tool", BLOCKS)
    short = {"type": "text", "text": "short"}
    wire = {**before, "content": [short, *before["content"][1:]]}
    assert restored_blocks(wire, before, BLOCKS)[:2] == [[short], [BLOCKS[1]]]


def test_one_text_in_place_of_all_blocks_stands_first() -> None:
    before = message("tool", BLOCKS)
    sent = restored_blocks({**before, "content": "[masked]"}, before, BLOCKS)
    assert sent == [[{"type": "text", "text": "[masked]"}], *([[]] * (len(BLOCKS) - 1))]


def test_equal_blocks_are_each_sent_once() -> None:
    twice: list[Any] = [{"type": "text", "text": "a"}, {"type": "text", "text": "a"}]
    before = message("user", twice)
    sent = restored_blocks(before, before, twice)
    assert [blocks[0] is own for blocks, own in zip(sent, twice, strict=True)] == [True, True]


def test_what_is_added_to_a_message_without_blocks_is_sent() -> None:
    before = message("assistant", [])
    assert restored_blocks({**before, "content": "words"}, before, []) == [[{"type": "text", "text": "words"}]]


def test_images_and_pdf_files_of_the_user_are_counted_as_such() -> None:
    image = {"type": "image", "base64": "iVBORw0KGgo", "mime_type": "image/png"}
    pdf = {"type": "file", "base64": "JVBERi0xLjQ=", "mime_type": "application/pdf"}
    assert counted_block(image, "user")["type"] == "image_url"
    assert counted_block(pdf, "user")["type"] == "file"
    assert counted_block(image, "tool")["type"] == "text"
