"""Words of blocks that only the provider interprets, wherever a session is read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline import Context
from foldline.codecs import codec
from foldline.hosting.session_text import message_text
from foldline.messages import Opaque, block_words
from foldline.reducers.digest import digest_message
from foldline.testing import ScriptedModel

BASE64 = "iVBORw0KGgoAAAANSUhEUgAA" * 40
LINES = "".join(f"line {n}: name_{n * 7919 % 99991} = {n}\n" for n in range(30))


def anthropic(*blocks: Any) -> tuple[str, list[Any]]:
    content = [{"type": "text", "text": "working"}, *blocks, {"type": "text", "text": "ok"}]
    return "anthropic", [{"role": "user", "content": LINES}, {"role": "assistant", "content": content}]


def responses(*items: Any) -> tuple[str, list[Any]]:
    done = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]}
    return "openai-responses", [{"role": "user", "content": LINES}, *items, done]


def chat(message: Any) -> tuple[str, list[Any]]:
    return "openai-chat", [{"role": "user", "content": LINES}, {"role": "assistant", **message}]


CASES: dict[str, tuple[tuple[str, list[Any]], list[str]]] = {
    "web search": (
        anthropic(
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "quiet pumps"}},
            {
                "type": "web_search_tool_result",
                "tool_use_id": "s1",
                "content": [
                    {
                        "type": "web_search_result",
                        "url": "https://pumps.example/a",
                        "title": "Pumps compared",
                        "encrypted_content": BASE64,
                    }
                ],
            },
        ),
        ["web_search", "quiet pumps", "https://pumps.example/a", "Pumps compared"],
    ),
    "code run by the provider": (
        anthropic(
            {"type": "server_tool_use", "id": "s1", "name": "bash_code_execution", "input": {"command": "df -h"}},
            {
                "type": "bash_code_execution_tool_result",
                "tool_use_id": "s1",
                "content": {
                    "type": "bash_code_execution_result",
                    "stdout": "/dev/sda1 81%",
                    "stderr": "permission denied: /root2",
                    "return_code": 1,
                    "content": [{"type": "bash_code_execution_output", "file_id": "file_1"}],
                },
            },
        ),
        ["bash_code_execution", "df -h", "/dev/sda1 81%", "permission denied: /root2"],
    ),
    "a search that failed": (
        anthropic(
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}},
            {
                "type": "web_search_tool_result",
                "tool_use_id": "s1",
                "content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"},
            },
        ),
        ["max_uses_exceeded"],
    ),
    "a call of an MCP server": (
        anthropic(
            {"type": "mcp_tool_use", "id": "m", "name": "deploy", "server_name": "ops", "input": {"to": "prod-7"}},
            {
                "type": "mcp_tool_result",
                "tool_use_id": "m",
                "is_error": False,
                "content": [{"type": "text", "text": "deployed 41ac"}],
            },
        ),
        ["deploy", "prod-7", "deployed 41ac"],
    ),
    "a citation": (
        anthropic(
            {
                "type": "text",
                "text": "It is so.",
                "citations": [
                    {
                        "type": "web_search_result_location",
                        "url": "https://cited.example",
                        "title": "The source",
                        "cited_text": "so it is",
                        "encrypted_index": BASE64,
                    }
                ],
            }
        ),
        ["https://cited.example", "The source", "so it is"],
    ),
    "a block of a kind to come": (
        anthropic({"type": "dream", "plot": {"scenes": ["a red door", {"line": "who is there?"}]}, "signature": "Zz"}),
        ["a red door", "who is there?"],
    ),
    "mcp_call": (
        responses(
            {
                "type": "mcp_call",
                "id": "mcp_1",
                "server_label": "ops",
                "name": "deploy",
                "arguments": '{"to": "prod-7"}',
                "output": "deployed 41ac",
            }
        ),
        ["deploy", "prod-7", "deployed 41ac"],
    ),
    "mcp_list_tools": (
        responses(
            {
                "type": "mcp_list_tools",
                "id": "l1",
                "server_label": "ops",
                "tools": [{"name": "deploy", "description": "Ships a build.", "input_schema": {"type": "object"}}],
            }
        ),
        ["ops", "deploy", "Ships a build."],
    ),
    "file_search_call": (
        responses(
            {
                "type": "file_search_call",
                "id": "f1",
                "queries": ["refund rules"],
                "status": "completed",
                "results": [{"file_id": "f", "filename": "terms.pdf", "score": 0.9, "text": "within 14 days"}],
            }
        ),
        ["refund rules", "terms.pdf", "within 14 days"],
    ),
    "code_interpreter_call": (
        responses(
            {
                "type": "code_interpreter_call",
                "id": "c1",
                "container_id": "cntr_1",
                "code": "print(6 * 7)",
                "status": "completed",
                "outputs": [{"type": "logs", "logs": "forty-two"}],
            }
        ),
        ["print(6 * 7)", "forty-two"],
    ),
    "web_search_call": (
        responses({"type": "web_search_call", "id": "w", "action": {"type": "open_page", "url": "https://p.example"}}),
        ["web_search", "https://p.example"],
    ),
    "image_generation_call": (
        responses({"type": "image_generation_call", "id": "i", "revised_prompt": "a grey cat", "result": "QUJD"}),
        ["a grey cat"],
    ),
    "an approval": (
        responses({"type": "mcp_approval_request", "id": "a", "name": "drop_table", "arguments": '{"t": "bills"}'}),
        ["drop_table", "bills"],
    ),
    "a spoken answer": (
        chat({"content": None, "audio": {"id": "audio_1", "data": "QUJD", "transcript": "The port is 7743."}}),
        ["The port is 7743."],
    ),
    "a retired call": (
        chat({"content": None, "function_call": {"name": "lookup", "arguments": '{"id": "K-88"}'}}),
        ["lookup", "K-88"],
    ),
    "a refusal": (chat({"content": None, "refusal": "I cannot open the vault."}), ["I cannot open the vault."]),
    "annotations": (
        chat(
            {
                "content": "It rains.",
                "annotations": [{"type": "url_citation", "url_citation": {"url": "https://w.example", "title": "Sky"}}],
            }
        ),
        ["https://w.example", "Sky"],
    ),
}
NEVER = (BASE64[:60], "QUJD", "file_1", "cntr_1", "audio_1", '"Zz"')


def context_of(dialect: str, messages: list[Any]) -> Context:
    context = Context(dialect=dialect, window=60_000, max_output_tokens=1_000)
    context.extend([*messages, {"role": "user", "content": "thanks, next"}])
    return context


@pytest.mark.parametrize("name", CASES)
def test_a_summary_is_made_of_what_provider_run_tools_brought_too(name: str) -> None:
    (dialect, messages), words = CASES[name]
    context, model = context_of(dialect, messages), ScriptedModel(["Goal: pumps. Next: buy one."], repeat=True)
    context.compact(summarize=model)
    prompt = "\n".join(message["content"] for message in model.calls[0].messages)
    assert [word for word in words if word not in prompt.replace('\\"', '"')] == []
    assert [word for word in NEVER if word in prompt] == []


@pytest.mark.parametrize("name", CASES)
def test_a_digest_tells_what_provider_run_tools_brought(name: str) -> None:
    (dialect, messages), words = CASES[name]
    view = context_of(dialect, messages).view
    text = digest_message(view, 0, len(view.entries) - 1, 3_000).text
    assert [word for word in words if word not in text] == []
    assert [word for word in NEVER if word in text] == []


@pytest.mark.parametrize("name", CASES)
def test_recall_and_a_person_find_what_provider_run_tools_brought(name: str) -> None:
    (dialect, messages), words = CASES[name]
    context = context_of(dialect, messages)
    shown = "\n".join(message_text(entry.message) for entry in context.view.entries.values())
    for word in words:
        assert context.grep(word.replace("?", "\\?").replace("(", "\\(").replace(")", "\\)").replace("*", "\\*"))
        assert word in shown


def test_a_digest_tells_calls_of_the_provider_as_it_tells_those_of_the_client() -> None:
    (dialect, messages), _ = CASES["code run by the provider"]
    view = context_of(dialect, messages).view
    lines = digest_message(view, 0, len(view.entries) - 1, 3_000).text.split("\n")
    assert '- bash_code_execution {"command": "df -h"}' in lines
    assert any(line.startswith("  failed: /dev/sda1 81%") for line in lines)


@pytest.mark.parametrize(
    ("block", "failed"),
    [
        ({"type": "mcp_tool_result", "is_error": True, "content": "no"}, True),
        ({"type": "mcp_call", "name": "x", "arguments": "{}", "error": "timed out"}, True),
        ({"type": "web_search_tool_result", "content": {"type": "web_search_tool_result_error"}}, True),
        ({"type": "x_tool_result", "content": {"type": "x_result", "return_code": 2}}, True),
        ({"type": "x_tool_result", "content": {"type": "x_result", "return_code": 0}}, False),
        ({"type": "web_search_call", "status": "completed"}, False),
    ],
)
def test_what_failed_is_told_as_failed(block: dict[str, Any], failed: bool) -> None:
    assert block_words(block["type"], block).failed is failed


@pytest.mark.parametrize("dialect", ["anthropic", "openai-responses"])
def test_encrypted_items_and_references_have_no_words(dialect: str) -> None:
    for item in ({"type": "compaction", "encrypted_content": BASE64}, {"type": "item_reference", "id": "rs_1"}):
        wire = item if dialect == "openai-responses" else {"role": "assistant", "content": [item]}
        (part,) = codec(dialect).read(wire).parts
        assert isinstance(part, Opaque)
        assert part.text == ""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
)


@given(st.sampled_from(["server_tool_use", "mcp_call", "x_call", "audio", "function_call", "?"]), JSON)
def test_any_block_can_be_read(kind: str, raw: Any) -> None:
    assert isinstance(Opaque(kind, raw).text, str)


def test_a_block_that_is_nested_deeper_than_the_stack_is_read() -> None:
    value: Any = "at the bottom"
    for _ in range(100_000):
        value = [value]
    assert Opaque("deep", {"type": "deep", "content": value}).text == "at the bottom"
    assert Opaque("server_tool_use", {"name": "x", "input": value}).text == "x at the bottom"
