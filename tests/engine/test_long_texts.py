"""Work on one long text follows its size, however short its lines are: counted in characters that are looked at."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from foldline import Context
from foldline.tokens import ESTIMATE

TEXTS = ["ab\n", "\n", "a", "中文字", "a.", "QUJDRA", '{"a":1},', "word ", "\u2705"]


class Counting:
    """The estimate, and how many characters it was asked about."""

    name = "estimate"

    def __init__(self) -> None:
        self.chars = 0

    def text(self, text: str, /) -> int:
        self.chars += len(text)
        return ESTIMATE.text(text)


def said(text: str) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": text},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "?"},
    ]


def brought(text: str) -> list[dict[str, Any]]:
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    return [
        {"role": "user", "content": "Read it."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": text},
        {"role": "user", "content": "?"},
    ]


def called(text: str) -> list[dict[str, Any]]:
    call = {"id": "c", "type": "function", "function": {"name": "write", "arguments": json.dumps({"content": text})}}
    return [
        {"role": "user", "content": "Write it."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "Written."},
        {"role": "user", "content": "?"},
    ]


def looked_at(messages: list[dict[str, Any]]) -> int:
    counter = Counting()
    context = Context(dialect="openai-chat", window=4_000, max_output_tokens=0, counter=counter)
    context.extend(messages)
    context.prepare(lambda asked, most: "A short summary of what was said.")
    return counter.chars


@pytest.mark.parametrize("shape", [said, brought, called])
@pytest.mark.parametrize("piece", TEXTS)
def test_twice_the_text_takes_twice_the_work(shape: Callable[[str], list[dict[str, Any]]], piece: str) -> None:
    once, twice = (looked_at(shape(piece * (chars // len(piece)))) for chars in (100_000, 200_000))
    assert twice < 3 * once
    assert twice < 60 * 200_000
