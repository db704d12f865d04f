from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import costly

from foldline import count
from foldline.messages import Document, Image, Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from foldline.tokens import ESTIMATE, json_tokens, message_tokens, system_tokens, tools_tokens, wire_bytes

ANY_TEXT = st.text(alphabet=st.characters(codec=None, exclude_categories=()), max_size=60)
JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)
LEAVES: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, ANY_TEXT, JSON_VALUES),
    st.builds(Image, st.integers(-1, 9_000), st.integers(-1, 9_000), raw=JSON_VALUES),
    st.builds(Document, ANY_TEXT, st.integers(-1, 10**9), ANY_TEXT, JSON_VALUES),
    st.builds(Reasoning, ANY_TEXT, st.booleans(), JSON_VALUES),
    st.builds(ToolCall, ANY_TEXT, ANY_TEXT, ANY_TEXT),
    st.builds(Opaque, ANY_TEXT, JSON_VALUES),
)
PARTS = LEAVES | st.builds(ToolResult, ANY_TEXT, st.lists(LEAVES, max_size=3).map(tuple))
WORDS = " ".join(["alpha"] * 200)


def size(*parts: Part) -> int:
    return message_tokens(Message("assistant", parts))


class Characters:
    """A counter of which the figures are easy to foresee."""

    name = "characters"

    def text(self, text: str, /) -> int:
        return len(text)


@costly
@given(st.lists(PARTS, max_size=5))
def test_any_message_has_a_size_which_is_the_sum_of_its_parts(parts: list[Part]) -> None:
    empty = size()
    assert size(*parts) == empty + sum(size(part) - empty for part in parts)
    assert empty > 0


@costly
@given(st.lists(LEAVES, max_size=3))
def test_a_result_takes_its_parts_and_a_little_more(parts: list[Part]) -> None:
    assert 0 < size(ToolResult("a", tuple(parts))) - size(*parts) <= 10


def test_results_within_results_are_counted() -> None:
    nested: Part = Text(WORDS)
    for _ in range(5_000):
        nested = ToolResult("a", (nested,))
    assert size(nested) > 5_000


def test_text_is_counted_by_the_counter_given() -> None:
    message = Message("user", (Text("1234567890"), ToolCall("id", "name", "{}")))
    bare = message_tokens(Message("user", (Text(""), ToolCall("id", "", ""))), Characters())
    assert message_tokens(message, Characters()) == bare + 10 + 4 + 2


def test_a_call_takes_its_arguments_and_a_little_more() -> None:
    arguments = json.dumps({"path": "src/app.py", "content": WORDS})
    assert ESTIMATE.text(arguments) < size(ToolCall("call_1", "write_file", arguments)) < ESTIMATE.text(arguments) + 20


def test_thinking_counts_as_text() -> None:
    assert size(Reasoning(WORDS)) == size(Text(WORDS))


@pytest.mark.parametrize("key", ["signature", "data", "encrypted_content"])
def test_encrypted_thinking_counts_by_what_it_may_hold(key: str) -> None:
    sealed = size(Reasoning("", True, {key: "A" * 40_000})) - size()
    assert 5_000 < sealed <= 40_000 // 4
    assert size(Reasoning("", True, {key: "A" * 300})) == size()
    assert size(Reasoning("", True, [{key: "A" * 40_000}])) == sealed + size()


def test_a_summary_of_thinking_is_no_less_than_the_sealed_whole() -> None:
    assert size(Reasoning("short", True, {"signature": "A" * 40_000})) > 5_000
    assert size(Reasoning(WORDS, True, {"signature": "A" * 100})) == size(Text(WORDS))


@pytest.mark.parametrize(
    ("document", "least", "most"),
    [
        (Document("application/pdf", 400_000), 10_000, 20_000),
        (Document("application/pdf", 40_000_000), 150_000, 150_000),
        (Document("audio/mp3", 400_000), 500, 700),
        (Document("text/plain", 4_000), 700, 800),
        (Document("application/pdf"), 2_048, 2_048),
        (Document("text/plain", 9_999, WORDS), 200, 250),
    ],
    ids=["pdf", "large pdf", "audio", "text by size", "by id", "text"],
)
def test_documents_count_by_text_else_by_size(document: Document, least: int, most: int) -> None:
    assert least <= size(document) - size() <= most


def test_title_and_context_of_a_document_are_read_too() -> None:
    plain, titled = Document(text=WORDS), Document(text=WORDS, raw={"title": WORDS, "context": WORDS})
    assert size(titled) >= size(plain) + 400


def test_an_unknown_block_counts_by_its_json() -> None:
    raw = {"type": "from_the_future", "blob": {"x": [1, 2, {"y": "z" * 400}]}}
    assert size(Opaque("from_the_future", raw)) > 50
    assert size(Opaque("from_the_future", {"type": "from_the_future", "text": WORDS})) > 200


@pytest.mark.parametrize("length", [1_000, 100_000, 4_000_000])
def test_a_payload_is_not_text(length: int) -> None:
    raw = {"type": "new_media", "payload": "AbC4" * (length // 4)}
    assert size(Opaque("new_media", raw)) < min(length / 3, 1_700)


def test_a_compaction_item_counts_by_what_it_may_hold() -> None:
    raw = {"type": "compaction", "encrypted_content": "gAAA" * 10_000}
    assert 5_000 < size(Opaque("compaction", raw)) <= 10_100


def test_a_long_chinese_text_is_no_payload() -> None:
    assert json_tokens({"text": "上下文窗口" * 1_000}) > 4_000


@costly
@given(JSON_VALUES)
def test_any_json_has_a_size(value: Any) -> None:
    assert json_tokens(value) >= (0 if value is None else 1)
    assert wire_bytes(value) > 0


def test_what_json_cannot_write_has_a_size() -> None:
    circle: dict[str, Any] = {"text": WORDS}
    circle["self"] = circle
    deep: list[Any] = [WORDS]
    for _ in range(100_000):
        deep = [deep]
    for value in (circle, deep, {"a": {1, 2}, "b": b"bytes", ("c",): object()}):
        assert json_tokens(value) > 0
        assert wire_bytes({"x": value}) > 0
    assert json_tokens(circle) > 200
    assert json_tokens(deep) > 200


def test_tool_schemas_count_in_full() -> None:
    tools = [
        {"type": "function", "function": {"name": f"t{n}", "description": WORDS, "parameters": {"type": "object"}}}
        for n in range(20)
    ]
    assert tools_tokens(tools) > 20 * 200
    assert tools_tokens([tools[0]] * 20) > 20 * 200
    assert tools_tokens(None) == tools_tokens([]) == 0


def test_system_text_counts_alike_as_text_and_as_blocks() -> None:
    assert system_tokens(WORDS) == system_tokens([{"type": "text", "text": WORDS, "cache_control": {"type": "x"}}])
    assert system_tokens(WORDS) > 200
    assert system_tokens(None) == system_tokens("") == system_tokens([]) == 0
    assert system_tokens([{"type": "new", "words": WORDS}]) > 200


@costly
@given(st.dictionaries(st.text(max_size=5), st.text(max_size=50) | st.integers(), max_size=5))
def test_wire_bytes_are_those_of_compact_utf8(wire: dict[str, Any]) -> None:
    assert wire_bytes(wire) == len(json.dumps(wire, ensure_ascii=False, separators=(",", ":")).encode())


def test_wire_bytes_of_a_lone_surrogate_are_counted() -> None:
    assert wire_bytes({"x": "\ud83d"}) == len('{"x":""}') + 3


def test_a_cache_marker_counts_nothing() -> None:
    block = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "why"}}
    marked = {**block, "cache_control": {"type": "ephemeral"}}
    assert json_tokens(marked) == json_tokens(block)
    wires = [{"role": "assistant", "content": [given]} for given in (block, marked)]
    assert count([wires[0]], dialect="anthropic") == count([wires[1]], dialect="anthropic")
