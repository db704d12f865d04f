"""A provider as the summariser of a context."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest
from tests.providers.serving import Answer, Pauses, as_json, chat, endpoint, events, serving

from foldline.engine.context import Completion, Context
from foldline.errors import ProviderError, SummaryError
from foldline.providers.base import Reply
from foldline.providers.http import provider_for
from foldline.providers.summariser import is_text_only, summariser, text_only
from foldline.providers.tool_emulation import SchemaTools

PROMPT = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Sum this up."}]


def anthropic(text: str) -> Answer:
    return Answer(
        [
            events(
                {"type": "message_start", "message": {}},
                {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": text}},
                {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
                {"type": "message_stop"},
            )
        ]
    )


def responses(text: str) -> Answer:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    return Answer([events({"type": "response.completed", "response": {"status": "completed", "output": [message]}})])


@pytest.mark.parametrize(
    ("dialect", "answer", "expected"),
    [
        ("openai-chat", chat({"content": "short"}), {"messages": PROMPT, "max_tokens": 50}),
        (
            "openai-responses",
            responses("short"),
            {"instructions": "Be short.", "input": PROMPT[1:], "max_output_tokens": 50},
        ),
        ("anthropic", anthropic("short"), {"system": "Be short.", "messages": PROMPT[1:], "max_tokens": 50}),
    ],
)
def test_plain_texts_become_a_request_of_the_dialect(dialect: str, answer: Answer, expected: dict[str, Any]) -> None:
    async def work() -> None:
        replies: list[Reply] = []
        async with serving(answer) as server:
            provider = provider_for(endpoint(server.url, dialect))
            asked = summariser(provider, on_reply=replies.append)(PROMPT, 50)
            assert inspect.isawaitable(asked)
            summary = await asked
            await provider.aclose()
            body = server.asked[0].body
        assert summary == Completion("short", "stop")
        assert {name: body[name] for name in expected} == expected
        assert [reply.text for reply in replies] == ["short"]

    asyncio.run(work())


def context() -> Context:
    session = Context(model="gpt-4", window=8_000, max_output_tokens=500)
    for number in range(12):
        session.append({"role": "user" if number % 2 == 0 else "assistant", "content": f"word {number} " * 60})
    return session


def compacted(answer: Answer) -> Context:
    async def work() -> Context:
        session = context()
        async with serving(answer) as server:
            provider = provider_for(endpoint(server.url), sleep=Pauses())
            try:
                await session.compact_async(summarize=summariser(provider))
            finally:
                await provider.aclose()
        return session

    return asyncio.run(work())


def test_a_context_is_compacted_with_it() -> None:
    session = compacted(chat({"content": "Twelve messages of words were exchanged; nothing is open."}))
    assert any("Twelve messages of words" in str(wire) for wire in session.prepare().messages)


def test_a_key_that_was_pasted_does_not_live_on_in_the_summary() -> None:
    key = "sk-" + "ant-api03-" + "Ab1" * 20
    session = compacted(chat({"content": f"The user gave the key {key} for the tests; nothing is open."}))
    sent = str(session.prepare().messages)
    assert key not in sent
    assert "for the tests" in sent


def test_a_summary_that_was_cut_off_is_rejected() -> None:
    with pytest.raises(SummaryError, match="cut off"):
        compacted(chat({"content": "Twelve mess"}, reason="length"))


def test_a_provider_that_fails_is_a_failed_summary() -> None:
    with pytest.raises(SummaryError, match="Incorrect API key") as caught:
        compacted(as_json({"error": {"message": "Incorrect API key provided"}}, 401))
    assert isinstance(caught.value.__cause__, ProviderError)


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
