"""Images and files that a provider would refuse: labelled right, shown elsewhere, or told in a line."""

from __future__ import annotations

import struct
from base64 import b64encode
from typing import Any

import pytest

from foldline.codecs import codec
from foldline.codecs.dialect import dialect_named
from foldline.codecs.limits import Amounts
from foldline.codecs.media import amounts_of, mend_media, pages_of
from foldline.engine.context import Context
from foldline.engine.one_shot import check, fit

Wire = dict[str, Any]
DIALECTS = ("openai-chat", "openai-responses", "anthropic")
TEXT = {"openai-chat": "text", "openai-responses": "input_text", "anthropic": "text"}


def png(width: int = 8, height: int = 8, more: int = 0) -> str:
    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b64encode(b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + size + b"\0" * more).decode()


def pdf(pages: int) -> str:
    tree = f"1 0 obj <</Type /Pages /Count {pages}>>\n" + "<< /Type /Page >>\n" * pages
    return b64encode(f"%PDF-1.7\n{tree}".encode()).decode()


def image(dialect: str, data: str, media_type: str = "image/png") -> Wire:
    if dialect == "anthropic":
        return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}
    url = f"data:{media_type};base64,{data}"
    return {"type": "input_image", "image_url": url} if dialect == "openai-responses" else chat_image(url)


def chat_image(url: str) -> Wire:
    return {"type": "image_url", "image_url": {"url": url}}


def says(dialect: str, *blocks: Wire) -> Wire:
    return {"role": "user", "content": [{"type": TEXT[dialect], "text": "look"}, *blocks]}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        ("PHN2Zz48L3N2Zz4=", "image/svg+xml"),
        ("", "image/png"),
        (pdf(1), "image/png"),
        (pdf(1), "application/pdf"),
        ("AAAA", "image/tiff"),
    ],
)
def test_an_image_that_is_none_is_told_in_a_line(dialect: str, data: str, media_type: str) -> None:
    wires = [says(dialect, image(dialect, data, media_type))]
    assert {violation.rule for violation in check(wires, dialect=dialect)} == {"image"}
    out = fit(wires, max_tokens=10_000, dialect=dialect)
    assert check(out.messages, dialect=dialect) == []
    assert "[image left out: " in out.messages[0]["content"][1]["text"]
    assert len(out.repairs) == 1


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("media_type", ["image/jpeg", "image/webp", "image/png"])
def test_an_image_that_is_taken_is_sent_as_it_came(dialect: str, media_type: str) -> None:
    wires = [says(dialect, image(dialect, "AAAA", media_type))]
    out = fit(wires, max_tokens=10_000, dialect=dialect)
    assert out.messages[0] is wires[0]
    assert not out.repairs


def test_a_wrong_label_is_put_right_where_the_provider_looks_at_it() -> None:
    block = image("anthropic", png(), "image/jpeg")
    faults: list[str] = []
    mended = mend_media(block, dialect_named("anthropic").limits, "text", faults)
    assert mended["source"] == {"type": "base64", "media_type": "image/png", "data": png()}
    assert len(faults) == 1
    loose = chat_image(f"data:application/octet-stream;base64,{png()}")
    assert mend_media(loose, dialect_named("openai-chat").limits, "text", [])["image_url"]["url"].startswith(
        "data:image/png;"
    )
    fine = chat_image(f"data:image/jpg;base64,{png()}")
    assert mend_media(fine, dialect_named("openai-chat").limits, "text", []) is fine, "OpenAI looks at the file itself"


def test_an_image_over_the_size_of_its_provider_is_told_in_a_line() -> None:
    wide, heavy = image("anthropic", png(8_001, 10)), image("anthropic", png(more=4_000_000))
    for block, why in ((wide, "8,001 pixels"), (heavy, "bytes")):
        out = fit([says("anthropic", block)], max_tokens=10_000, dialect="anthropic")
        assert why in out.messages[0]["content"][1]["text"]
        assert check(out.messages, dialect="anthropic") == []
    assert (
        fit([says("anthropic", image("anthropic", png(8_000, 10)))], max_tokens=10_000, dialect="anthropic").repairs
        == ()
    )


@pytest.mark.parametrize(
    ("source", "taken"),
    [
        ({"type": "base64", "media_type": "application/pdf", "data": pdf(2)}, True),
        ({"type": "base64", "media_type": "application/pdf", "data": ""}, False),
        ({"type": "base64", "media_type": "application/msword", "data": "AAAA"}, False),
        ({"type": "text", "media_type": "text/plain", "data": "x"}, True),
        ({"type": "url", "url": "https://example.com/a.pdf"}, True),
    ],
)
def test_a_document_is_a_pdf_or_text(source: Wire, taken: bool) -> None:
    wires = [says("anthropic", {"type": "document", "source": source})]
    assert (check(wires, dialect="anthropic") == []) is taken
    assert check(fit(wires, max_tokens=50_000, dialect="anthropic").messages, dialect="anthropic") == []


def shot(call_id: str, *blocks: Wire) -> list[Wire]:
    call = {"id": call_id, "type": "function", "function": {"name": "shot", "arguments": "{}"}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": [{"type": "text", "text": "here"}, *blocks]},
    ]


def test_images_of_tool_messages_are_shown_in_a_message_of_the_user() -> None:
    picture = image("openai-chat", png())
    wires = [{"role": "user", "content": "look"}, *shot("a", picture)]
    assert [violation.rule for violation in check(wires)] == ["result-text"]
    context = Context(window=100_000, max_output_tokens=0)
    context.extend(wires)
    first = context.prepare()
    assert check(first.messages) == []
    assert [message["role"] for message in first.messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert first.messages[4]["content"][1] == picture
    assert [repair.rule for repair in first.repairs] == ["result-text"]
    context.extend(shot("b", picture))
    assert context.prepare().messages[:5] == first.messages
    assert context.view.newest_user == 0, "it is no word of the user"


def test_text_and_unknown_blocks_of_tool_messages_stay() -> None:
    wires = [{"role": "user", "content": "look"}, *shot("a", {"type": "from_the_future", "blob": 1})]
    assert fit(wires, max_tokens=10_000).messages == wires


@pytest.mark.parametrize("role", ["assistant", "system"])
def test_only_the_user_sends_images_in_a_chat(role: str) -> None:
    wires: list[Wire] = [
        {"role": "user", "content": "hi"},
        {"role": role, "content": [{"type": "text", "text": "a"}, image("openai-chat", png())]},
    ]
    assert {violation.rule for violation in check(wires)} == {"image-place"}
    assert check(fit(wires, max_tokens=10_000).messages) == []


@pytest.mark.parametrize(
    "extra",
    [
        image("anthropic", png()),
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}},
        {"type": "tool_reference", "tool_name": "t"},
    ],
)
def test_a_failed_result_with_more_than_text_keeps_what_it_shows(extra: Wire) -> None:
    content = [{"type": "text", "text": "boom"}, extra]
    wires: list[Wire] = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t", "is_error": True, "content": content}],
        },
    ]
    assert {violation.rule for violation in check(wires, dialect="anthropic")} == {"failed-media"}
    out = fit(wires, max_tokens=10_000, dialect="anthropic")
    assert check(out.messages, dialect="anthropic") == []
    result = out.messages[2]["content"][0]
    assert result["content"] == [{"type": "text", "text": "[The call failed.]"}, *content]
    assert not result["is_error"]


def test_a_marker_on_thinking_is_left_out() -> None:
    marked = {"type": "thinking", "thinking": "t", "signature": "s", "cache_control": {"type": "ephemeral"}}
    wires: list[Wire] = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [marked, {"type": "text", "text": "a"}]},
        {"role": "user", "content": "y"},
    ]
    out = fit(wires, max_tokens=10_000, dialect="anthropic")
    assert out.messages[1]["content"][0] == {"type": "thinking", "thinking": "t", "signature": "s"}
    assert check(out.messages, dialect="anthropic") == []


def test_what_a_message_holds_is_counted_inside_results_too() -> None:
    document = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": pdf(7)}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [image("anthropic", png(2_001, 9)), document]}
    message = codec("anthropic").read({"role": "user", "content": [result, image("anthropic", png())]})
    assert amounts_of(message.parts) == Amounts(images=2, pages=7, messages=1, large_images=1)
    assert pages_of("not base64 at all!") == 1


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses"])
def test_a_file_of_more_bytes_than_openai_takes_gives_way_to_a_line(dialect: str) -> None:
    for size, kept in ((1_000, True), (50 * 1024 * 1024 * 4 // 3 + 8, False)):
        inner = {"filename": "a.pdf", "file_data": "data:application/pdf;base64," + "A" * size}
        block = {"type": "file", "file": inner} if dialect == "openai-chat" else {"type": "input_file", **inner}
        faults: list[str] = []
        mended = mend_media(block, dialect_named(dialect).limits, "text", faults)
        assert (mended is block) == kept == (not faults)
