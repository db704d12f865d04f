"""What was found in a text is found once, and the memory of it does not grow."""

from __future__ import annotations

from foldline.messages import Message, Text, ToolResult
from foldline.text.memory import TextMemory
from foldline.tokens import ESTIMATE, message_tokens

LONG = [f"2026-01-01 12:00:00 INFO svc.module: request {number} took {number % 1_000} ms" for number in range(200)]


def test_a_text_that_comes_again_is_not_read_again() -> None:
    memory, text = TextMemory(ESTIMATE), "\n".join(LONG)
    assert memory.passages(text) is memory.passages(f"{text}x"[:-1])
    assert memory.names(text) is memory.names(f"{text}x"[:-1])


def test_a_memory_of_texts_does_not_grow_with_the_session() -> None:
    memory = TextMemory(ESTIMATE, most_chars=1_000)
    for number in range(300):
        memory.passages(f"text {number} " + "x" * 90)
    kept = memory._passages
    assert 900 <= sum(map(len, {**kept._old, **kept._new})) <= 2_000
    memory.passages("y" * 1_001)
    assert "y" * 1_001 not in kept._new


def test_the_text_of_a_result_that_was_counted_as_it_came_is_not_counted_again() -> None:
    counted: list[str] = []

    class Noting:
        name = "noting"

        def text(self, text: str, /) -> int:
            counted.append(text)
            return ESTIMATE.text(text)

    memory, text = TextMemory(Noting()), "\n".join(LONG)
    message = Message("tool", (ToolResult("c1", (Text(text),)),))
    memory.note_reads(3, message, message_tokens(message, ESTIMATE))
    assert memory.tokens(text) == ESTIMATE.text(text)
    assert not counted
