"""Which fields leave an answer a plain text, and nothing to act on what the prompt holds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.providers.serving import chat, endpoint, serving
from tests.providers.test_summarise import PROMPT, anthropic, responses

from foldline.providers.emulated_tools.provider import SchemaTools
from foldline.providers.http import provider_for
from foldline.providers.summarise import summariser
from foldline.providers.text_only import is_text_only, text_only

ACTS: list[dict[str, Any]] = [
    {"mcp_servers": [{"type": "url", "url": "https://tracker.example/mcp", "name": "x", "authorization_token": "T"}]},
    {"container": {"skills": []}},
    {"web_search_options": {}},
    {"plugins": [{"id": "web"}]},
    {"search_parameters": {"mode": "on"}},
    {"enable_search": True},
    {"prompt": {"id": "pmpt_1"}},
    {"integrations": ["mcp/tracker"]},
    {"a_field_of_next_year": "x"},
]
FORMS: list[dict[str, Any]] = [
    {"tool_choice": "required"},
    {"tool_choice": {"type": "any"}},
    {"tool_choice": {"type": "function", "function": {"name": "f"}}},
    {"function_call": {"name": "f"}, "functions": [{"name": "f"}]},
    {"response_format": {"type": "json_object"}},
    {"text": {"format": {"type": "json_schema", "name": "x", "schema": {}}}},
    {"text": {"unknown": 1}},
    {"output_config": {"format": {"type": "json_schema", "schema": {}}}},
    {"output_format": {"type": "json_schema", "schema": {}}},
    {"guided_json": {"type": "object"}},
    {"grammar": "root ::= [a-z]"},
    {"modalities": ["text", "audio"], "audio": {"voice": "x", "format": "mp3"}},
]
HARMLESS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.2, "top_p": 1, "reasoning_effort": "high", "service_tier": "flex", "user": "u"},
    {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}, "thinking": {"type": "adaptive"}},
    {"tool_choice": "none", "response_format": {"type": "text"}, "modalities": ["text"], "verbosity": "low"},
    {"text": {"format": {"type": "text"}, "verbosity": "low"}, "include": ["reasoning.encrypted_content"]},
    {"output_config": {"effort": "high"}, "context_management": {"edits": []}},
    {"mcp_servers": [], "enable_search": False, "container": None},
]


@pytest.mark.parametrize("fields", [*ACTS, *FORMS], ids=str)
def test_what_acts_or_forms_and_what_nobody_knows_is_no_plain_text(fields: dict[str, Any]) -> None:
    assert not is_text_only(fields)
    assert not text_only(fields)
    assert text_only({"temperature": 0.2, **fields}) == {"temperature": 0.2}


@pytest.mark.parametrize("fields", HARMLESS, ids=str)
def test_how_a_text_is_written_does_no_harm(fields: dict[str, Any]) -> None:
    assert is_text_only(fields)
    assert text_only(fields) == fields


@pytest.mark.parametrize(
    ("dialect", "answer"),
    [
        ("openai-chat", chat({"content": "short"})),
        ("openai-responses", responses("short")),
        ("anthropic", anthropic("short")),
    ],
)
@pytest.mark.parametrize("fields", [ACTS[0], ACTS[2], FORMS[9]], ids=str)
def test_a_prompt_for_a_summary_is_sent_without_them(dialect: str, answer: Any, fields: dict[str, Any]) -> None:
    extra = {"temperature": 0.2, **fields}

    async def work() -> None:
        async with serving(answer, answer) as server:
            provider = provider_for(endpoint(server.url, dialect, extra=extra))
            await summariser(provider)(PROMPT, 50)
            await provider.aclose()
            body = server.asked[0].body
        assert body["temperature"] == 0.2
        assert not fields.keys() & body.keys()

    asyncio.run(work())


def test_so_it_is_where_system_text_stands_among_the_messages() -> None:
    answer = chat({"content": "short"})

    async def work() -> None:
        async with serving(answer) as server:
            provider = SchemaTools(lambda more: provider_for(endpoint(server.url, extra={**ACTS[3], **more})))
            await summariser(provider)(PROMPT, 50)
            await provider.aclose()
            assert "plugins" not in server.asked[0].body

    asyncio.run(work())
