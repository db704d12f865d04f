"""Content blocks of all dialects: what is read out of them, and how they are written again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.codecs.strategies import PIXEL

from foldline.codecs.blocks import (
    Source,
    block_fault,
    mend_content,
    read_block,
    read_content,
    settle_block,
    settle_content,
    source_of,
)
from foldline.errors import InvalidInput
from foldline.messages import Document, Image, Opaque, Reasoning, Text

DATA_URL = f"data:image/png;base64,{PIXEL}"


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image_url", "image_url": {"url": DATA_URL}},
        {"type": "image_url", "image_url": DATA_URL},
        {"type": "input_image", "image_url": DATA_URL},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
        {"type": "computer_screenshot", "image_url": DATA_URL},
    ],
)
def test_an_image_in_the_request_is_measured_in_every_dialect(block: dict[str, Any]) -> None:
    image = read_block(block)
    assert image == Image(1, 1, len(PIXEL), raw=block)
    assert source_of(block) == Source("image/png", PIXEL)


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}},
        {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "low"},
        {"type": "input_image", "file_id": "file_1", "detail": "low"},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}, "detail": "low"},
        {"type": "image", "source": None, "detail": "low"},
    ],
)
def test_an_image_elsewhere_takes_no_bytes(block: dict[str, Any]) -> None:
    assert read_block(block) == Image(detail="low", raw=block)


@pytest.mark.parametrize(
    ("block", "media_type", "size", "text"),
    [
        ({"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA"}}, "application/pdf", 4, ""),
        ({"type": "file", "file": {"file_data": "AAAA", "filename": "a.pdf"}}, "", 4, ""),
        ({"type": "file", "file": {"file_id": "file_1"}}, "", 0, ""),
        ({"type": "input_file", "file_url": "https://example.org/a.pdf"}, "", 0, ""),
        ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}}, "audio/mp3", 4, ""),
        (
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "all"}},
            "text/plain",
            0,
            "all",
        ),
        ({"type": "document", "source": {"type": "content", "content": "all"}}, "text/plain", 0, "all"),
        ({"type": "document", "source": {"type": "file", "file_id": "file_1"}}, "", 0, ""),
        ({"type": "document"}, "", 0, ""),
    ],
)
def test_files_say_their_type_size_and_text(block: dict[str, Any], media_type: str, size: int, text: str) -> None:
    assert read_block(block) == Document(media_type, size, text, raw=block)


def test_thinking_is_signed_when_it_has_a_signature() -> None:
    signed = read_block({"type": "thinking", "thinking": "hm", "signature": "c2ln"})
    plain = read_block({"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]})
    hidden = read_block({"type": "redacted_thinking", "data": "Zz"})
    assert [(part.text, part.signed) for part in (signed, plain, hidden) if isinstance(part, Reasoning)] == [
        ("hm", True),
        ("hm", False),
        ("", True),
    ]


@pytest.mark.parametrize("block", [{"type": "from_the_future"}, {"type": 3}, {}, None, 5, [1]])
def test_what_is_unknown_is_opaque(block: Any) -> None:
    part = read_block(block)
    assert isinstance(part, Opaque)
    assert part.raw is block


@pytest.mark.parametrize(
    ("content", "texts"),
    [("x", ["x"]), ("", []), (None, []), ([], []), (["x"], ["x"]), ({"type": "text", "text": "x"}, ["x"]), (5, ["5"])],
)
def test_content_of_any_shape_is_read(content: Any, texts: list[str]) -> None:
    assert [part.text for part in read_content(content) if isinstance(part, Text)] == texts


def test_a_changed_text_keeps_the_other_fields_of_its_block() -> None:
    block = {"type": "text", "text": "long", "cache_control": {"type": "ephemeral"}}
    part = read_block(block)
    assert isinstance(part, Text)
    assert settle_block(part, "text") is part
    changed = settle_block(replace(part, text="short"), "text")
    assert changed.raw == {**block, "text": "short"}
    assert block["text"] == "long"


def test_a_changed_document_becomes_a_text_source() -> None:
    block = {"type": "document", "title": "T", "source": {"type": "content", "content": "long"}}
    part = read_block(block)
    assert isinstance(part, Document)
    changed = settle_block(replace(part, text="short"), "text")
    assert source_of(changed.raw).text == "short"
    assert changed.raw["title"] == "T"
    assert settle_block(Document(text="new"), "text") == Text("new", raw={"type": "text", "text": "new"})


def test_signed_reasoning_is_sent_whole_or_not_at_all() -> None:
    signed = read_block({"type": "thinking", "thinking": "long", "signature": "c2ln"})
    plain = read_block({"type": "thinking", "thinking": "long"})
    assert isinstance(signed, Reasoning)
    assert isinstance(plain, Reasoning)
    with pytest.raises(InvalidInput, match="as it came or not at all"):
        settle_block(replace(signed, text="short"), "text")
    assert settle_block(replace(plain, text="short"), "text").raw == {"type": "thinking", "thinking": "short"}


@pytest.mark.parametrize("part", [Image(1, 1), Document("application/pdf", 4), Opaque("x"), Reasoning("hm")])
def test_a_part_without_json_cannot_be_written(part: Any) -> None:
    with pytest.raises(InvalidInput, match="without its JSON"):
        settle_block(part, "text")


def test_text_stays_text_and_blocks_stay_blocks() -> None:
    def settle(part: Any) -> Any:
        return settle_block(part, "text")

    parts = (Text("a"), Text("b"))
    assert settle_content("old", parts, settle) == ("a\nb", parts)
    content, _ = settle_content([], parts, settle)
    assert content == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


@pytest.mark.parametrize(
    "block", [None, 5, "bare", {}, {"type": ""}, {"type": []}, {"type": "text"}, {"type": "text", "text": 5}]
)
def test_a_faulty_block_is_named_and_mended(block: Any) -> None:
    faults: list[str] = []
    mended = mend_content([{"type": "text", "text": "x"}, block], "text", faults)
    assert block_fault(block)
    assert len(faults) == 1
    assert list(map(block_fault, mended)) == [None, None]
    assert mend_content(mended, "text", faults) is mended


def test_what_a_mended_block_said_is_kept() -> None:
    assert mend_content([{"text": "said"}], "text", []) == [{"type": "text", "text": "said"}]
    assert mend_content(["said"], "text", []) == [{"type": "text", "text": "said"}]
    assert mend_content({"a": 1}, "text", []) == [{"type": "text", "text": '{"a": 1}'}]
