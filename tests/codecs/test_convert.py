"""From one dialect into another: what is said stays, the request is legal, what is lost is named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.codecs.strategies import PIXEL, any_dialect, in_dialect
from tests.property.depth import costly, dear

from foldline.codecs import DIALECTS, codec
from foldline.codecs.convert import convert, convert_all
from foldline.codecs.dialect import ROWS, violations
from foldline.messages import Image, Wire

CHAT_TURN: list[Wire] = [
    {"role": "user", "content": "Fix it."},
    {
        "role": "assistant",
        "content": "Reading.",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}},
            {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": "one"},
    {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "two"}]},
    {"role": "assistant", "content": "Done."},
]


def told(source: str, target: str, wires: list[Wire]) -> tuple[list[Wire], tuple[str, ...]]:
    converted = convert_all([codec(source).read(wire) for wire in wires], codec(target))
    return [codec(target).write(message) for message in converted.messages], converted.lost


def test_a_chat_turn_becomes_one_message_of_blocks() -> None:
    wires, lost = told("openai-chat", "anthropic", CHAT_TURN)
    assert wires == [
        {"role": "user", "content": "Fix it."},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Reading."},
                {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
                {"type": "tool_use", "id": "b", "name": "g", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "one"},
                {"type": "tool_result", "tool_use_id": "b", "content": "two"},
            ],
        },
        {"role": "assistant", "content": "Done."},
    ]
    assert lost == ()


def test_a_chat_turn_becomes_one_item_each() -> None:
    wires, lost = told("openai-chat", "openai-responses", CHAT_TURN)
    assert [wire.get("type", wire.get("role")) for wire in wires] == [
        "user",
        "assistant",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "assistant",
    ]
    assert lost == ()


@pytest.mark.parametrize("middle", DIALECTS)
@pytest.mark.parametrize("target", DIALECTS)
def test_a_turn_survives_any_way_round(middle: str, target: str) -> None:
    there, _ = told("openai-chat", middle, CHAT_TURN)
    back, _ = told(middle, target, there)
    assert violations(back, target) == []
    messages = [codec(target).read(wire) for wire in back]
    assert [(call.id, call.name) for message in messages for call in message.calls] == [("a", "f"), ("b", "g")]
    assert [result.text for message in messages for result in message.results] == ["one", "two"]
    assert "\n".join(message.text for message in messages if message.text) == "Fix it.\nReading.\nDone."


@pytest.mark.parametrize("target", [name for name in DIALECTS if name != "gemini"])
def test_plain_text_is_the_same_in_all(target: str) -> None:
    message = codec("openai-chat").read({"role": "user", "content": "hi"})
    assert convert(message, codec(target)).messages == (message,)


@pytest.mark.parametrize(
    ("source", "block"),
    [
        ("openai-chat", {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}),
        ("openai-responses", {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}),
        ("anthropic", {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}),
    ],
)
@pytest.mark.parametrize("target", DIALECTS)
def test_an_image_arrives_with_its_bytes(source: str, block: dict[str, Any], target: str) -> None:
    wires, lost = told(source, target, [{"role": "user", "content": [block]}])
    (image,) = codec(target).read(wires[0]).parts
    assert isinstance(image, Image)
    assert (image.width, image.height, image.size_bytes) == (1, 1, len(PIXEL))
    assert lost == ()


@pytest.mark.parametrize(
    ("source", "target", "wire", "loss"),
    [
        (
            "anthropic",
            "openai-chat",
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "hm", "signature": "x"}, {"type": "text", "text": "x"}],
            },
            "reasoning",
        ),
        (
            "anthropic",
            "openai-chat",
            {"role": "user", "content": [{"type": "image", "source": {"type": "file", "file_id": "file_1"}}]},
            "an image",
        ),
        (
            "anthropic",
            "openai-responses",
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x", "is_error": True}],
            },
            "error",
        ),
        (
            "openai-chat",
            "anthropic",
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}]},
            "a file",
        ),
        ("openai-responses", "anthropic", {"type": "web_search_call", "id": "ws_1"}, "web_search_call"),
        (
            "openai-responses",
            "anthropic",
            {"type": "custom_tool_call", "call_id": "a", "name": "n", "input": "free"},
            "free text",
        ),
        (
            "openai-responses",
            "openai-chat",
            {
                "role": "assistant",
                "content": [{"type": "output_text", "text": "x", "annotations": [{"type": "url_citation"}]}],
            },
            "annotations",
        ),
    ],
)
def test_what_is_lost_is_named(source: str, target: str, wire: dict[str, Any], loss: str) -> None:
    _, lost = told(source, target, [wire])
    assert [each for each in lost if loss in each]


def test_pdf_files_are_carried_over() -> None:
    wire = {
        "role": "user",
        "content": [{"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}}],
    }
    wires, lost = told("openai-chat", "anthropic", [wire])
    assert wires[0]["content"] == [
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"},
            "title": "a.pdf",
        }
    ]
    assert told("anthropic", "openai-chat", wires)[0] == [wire]
    assert lost == ()


@costly
@given(in_dialect(), any_dialect)
def test_what_was_said_is_still_said_and_legal_alone(case: tuple[str, Wire], target: str) -> None:
    source, wire = case
    message = replace(codec(source).read(wire), kind="summary", pinned=True)
    converted = convert(message, codec(target))
    texts = "\n".join(each.text for each in converted.messages)
    assert all(line in texts for line in message.text.split("\n"))
    assert [call.name for each in converted.messages for call in each.calls] == [call.name for call in message.calls]
    assert sum(len(each.results) for each in converted.messages) == len(message.results)
    for each in converted.messages:
        assert (each.kind, each.pinned) == ("summary", True)
        found = {violation.rule for violation in violations([codec(target).write(each)], target)}
        assert {rule for rule in found if ROWS[target].rules[rule].alone} <= (
            {"role"} if each.role == "system" else set()
        )


@dear
@given(st.lists(in_dialect(broken=True), max_size=4), any_dialect)
def test_damaged_histories_are_converted_too(cases: list[tuple[str, Wire]], target: str) -> None:
    messages = [codec(source).read(wire) for source, wire in cases if "object" not in broken(source, wire)]
    converted = convert_all(messages, codec(target))
    assert all(codec(target).write(message) for message in converted.messages)


def broken(source: str, wire: Wire) -> set[str]:
    return {violation.rule for violation in violations([wire], source)}
