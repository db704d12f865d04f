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
from foldline.providers.summarise import summariser

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
