"""Summaries that continue the client's own request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.doors.proxy.proxies import HEADERS, PATHS, Recording, proxied

from foldline.testing import FakeProvider, FakeReply
from foldline.testing.scripted_model import session

dialects = pytest.mark.parametrize("dialect", list(PATHS))

CHECKPOINT = "Goal: fix the failing test. Done: many files were read, all are in order. Open: the rest."
LIST = {"openai-chat": "messages", "openai-responses": "input", "anthropic": "messages"}
TOOL = {"name": "read_file", "description": "Reads a file."}
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS = {
    "openai-chat": [{"type": "function", "function": {**TOOL, "parameters": SCHEMA}}],
    "openai-responses": [{"type": "function", **TOOL, "parameters": SCHEMA}],
    "anthropic": [{**TOOL, "input_schema": SCHEMA}],
}
ROUNDS = 16


def is_question(body: Mapping[str, Any]) -> bool:
    """Whether a request asks for a checkpoint of the conversation that stands in it."""
    return "[A checkpoint is due]" in json.dumps((body.get("messages") or body.get("input") or [""])[-1])


def answer(body: Mapping[str, Any]) -> FakeReply | str:
    asked = is_question(body) or "You write the checkpoint" in json.dumps(body)
    return CHECKPOINT if asked else "Noted."


def marked(wire: Mapping[str, Any]) -> dict[str, Any]:
    """A message with a cache marker, as clients set it on the newest one."""
    content = wire["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {**wire, "content": [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}]}


def talked(url: str, dialect: str, *, marks: bool = True, **fields: Any) -> None:
    """A client that resends all it has, a little more each time."""
    messages = session(ROUNDS, result="This line of the file is in order. " * 220, dialect=dialect)
    with httpx.Client(headers=HEADERS, timeout=60) as client:
        for count in range(1, len(messages) + 1, 2):
            sent = [dict(wire) for wire in messages[:count]]
            if dialect == "anthropic" and marks:
                sent[-1] = marked(sent[-1])
            body = {"model": "some-model", "tools": TOOLS[dialect], **fields, LIST[dialect]: sent}
            if dialect == "anthropic":
                body["max_tokens"] = 300
            reply = client.post(url + PATHS[dialect], json=body)
            assert reply.status_code == 200, reply.text


def asked(
    dialect: str, home: Path, *, marks: bool = True, settings: Mapping[str, Any] | None = None, **fields: Any
) -> tuple[FakeProvider, list[dict[str, Any]], list[int]]:
    """The upstream, the bodies that it was sent, and which of them are questions."""
    fake = FakeProvider(answer, window_tokens=16_000, keep=200)
    upstream = Recording(fake)
    with proxied(upstream, home, summaries=True, policy="sliding", **(settings or {})) as proxy:
        talked(proxy.url, dialect, marks=marks, **fields)
    bodies = [json.loads(body) for body in upstream.bodies]
    return fake, bodies, [number for number, body in enumerate(bodies) if is_question(body)]


def bare(value: Any) -> Any:
    """JSON without cache markers, which move on with the newest message."""
    if isinstance(value, list):
        return [bare(one) for one in value]
    if isinstance(value, dict):
        return {name: bare(one) for name, one in value.items() if name != "cache_control"}
    return value


@dialects
def test_the_question_is_the_clients_last_request_with_one_message_more(dialect: str, tmp_path: Path) -> None:
    fields: dict[str, Any] = {"temperature": 0.2, "metadata": {"who": "a client"}}
    fake, bodies, questions = asked(dialect, tmp_path, **fields)
    assert questions
    taken = list(fake.requests)
    for number in questions:
        before, question = bodies[number - 1], bodies[number]
        given = bare(question[LIST[dialect]])
        assert [json.dumps(one) for one in given[:-1]] == [json.dumps(one) for one in bare(before[LIST[dialect]])]
        assert (bare(question["tools"]), question["temperature"]) == (TOOLS[dialect], 0.2)
        assert "metadata" not in question, "what a client notes of its own requests is not said of ours"
        assert taken[number].cached_tokens >= 0.9 * taken[number - 1].input_tokens
    assert CHECKPOINT in json.dumps(bodies[-1])


@pytest.mark.parametrize(
    ("dialect", "fields"),
    [
        ("openai-chat", {"tool_choice": "required"}),
        ("openai-chat", {"response_format": {"type": "json_object"}}),
        ("openai-responses", {"text": {"format": {"type": "json_schema", "name": "x", "schema": {}}}}),
        ("anthropic", {"tool_choice": {"type": "any"}}),
        ("anthropic", {"mcp_servers": [{"type": "url", "url": "https://x.example/mcp", "name": "x"}]}),
        ("openai-chat", {"web_search_options": {}}),
    ],
)
def test_a_client_that_wants_something_else_than_text_is_not_gone_on_from(
    dialect: str, fields: dict[str, Any], tmp_path: Path
) -> None:
    _, bodies, questions = asked(dialect, tmp_path, **fields)
    assert not questions
    assert CHECKPOINT in json.dumps(bodies[-1])
    prompts = [body for body in bodies if "You write the checkpoint" in json.dumps(body)]
    assert prompts and not any(fields.keys() & body.keys() for body in prompts)


def test_what_a_client_lets_nobody_cache_is_summed_up_by_a_prompt_of_its_own(tmp_path: Path) -> None:
    _, bodies, questions = asked("anthropic", tmp_path, marks=False)
    assert not questions
    assert CHECKPOINT in json.dumps(bodies[-1])


def test_another_model_is_asked_by_a_prompt_of_its_own(tmp_path: Path) -> None:
    _, bodies, questions = asked("openai-chat", tmp_path, settings={"summary_model": "cheap-model"})
    assert not questions
    assert "cheap-model" in {body["model"] for body in bodies}
