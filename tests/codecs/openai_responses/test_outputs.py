"""The shapes of `output` in the Responses dialect."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest

from foldline.codecs.blocks import source_of
from foldline.codecs.openai_responses.outputs import empty_output, is_output, read_output, settle_output
from foldline.messages import Image, Text
from foldline.tokens import image_size

CHUNK = {"stdout": "out", "stderr": "err", "outcome": {"type": "timeout"}}


@pytest.mark.parametrize(
    ("kind", "expected"), [("function_call_output", True), ("mcp_call", False), ("code_interpreter_call", False)]
)
def test_an_output_is_known_by_its_ending(kind: str, expected: bool) -> None:
    assert is_output(kind) is expected


def test_a_shell_says_both_of_its_streams() -> None:
    parts = read_output({"output": [CHUNK, {"stdout": "only"}, "odd"]}, "shell_call_output")
    assert [part.text for part in parts if isinstance(part, Text)] == ["out\nerr", "only", "odd"]


def test_a_shortened_chunk_keeps_its_outcome() -> None:
    (part,) = read_output({"output": [CHUNK]}, "shell_call_output")
    assert isinstance(part, Text)
    output, settled = settle_output([CHUNK], [replace(part, text="short")], "shell_call_output")
    assert output == [{"stdout": "short", "stderr": "", "outcome": {"type": "timeout"}}]
    assert settled[0].raw is output[0]
    same, _ = settle_output([CHUNK], [part], "shell_call_output")
    assert same[0] is CHUNK


def test_new_text_of_a_shell_is_a_chunk() -> None:
    output, _ = settle_output([CHUNK], [Text("gone")], "shell_call_output")
    assert output == empty_output("shell_call_output", "gone")


def test_a_screenshot_that_became_text_is_shown_blank() -> None:
    output, parts = settle_output({}, [Text("[image]")], "computer_call_output")
    assert output == empty_output("computer_call_output")
    assert image_size(base64.b64decode(source_of(output).data)) == (1, 1)
    assert isinstance(parts[0], Image)


def test_a_screenshot_stays_the_very_one() -> None:
    screen: dict[str, Any] = {"type": "computer_screenshot", "image_url": "https://example.org/a.png"}
    parts = read_output({"output": screen}, "computer_call_output")
    output, settled = settle_output(screen, parts, "computer_call_output")
    assert output is screen
    assert settled == parts


def test_text_output_stays_text_and_a_list_stays_a_list() -> None:
    assert settle_output("long", [Text("short")], "function_call_output")[0] == "short"
    listed, _ = settle_output([], [Text("short")], "function_call_output")
    assert listed == [{"type": "input_text", "text": "short"}]
