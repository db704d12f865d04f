"""Paths of the dialects; a path that only ends like one passes through."""

from __future__ import annotations

import pytest

from foldline.doors.proxy.request_head import dialect_of, model_at


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/chat/completions", ("openai-chat", False)),
        ("/openai/deployments/x/chat/completions/", ("openai-chat", False)),
        ("/v1/responses", ("openai-responses", False)),
        ("/v1/messages", ("anthropic", False)),
        ("/anthropic/v1/messages/count_tokens", ("anthropic", True)),
        ("/v1/threads/messages", ("anthropic", False)),  # a base URL may be called anything
        ("/v1/threads/thread_1/messages", ("", False)),  # OpenAI's Assistants
        ("/threads/thread_1/messages/", ("", False)),
        ("/v1/messages/batches", ("", False)),  # Anthropic's: many requests in one, answered within a day
        ("/v1/messages/batches/batch_1/cancel", ("", False)),
        ("/v1/responses/resp_1/cancel", ("", False)),
        ("/v1/completions", ("", False)),
    ],
)
def test_a_dialect_is_known_by_the_end_of_the_path(path: str, expected: tuple[str, bool]) -> None:
    assert dialect_of("POST", path) == expected
    assert dialect_of("GET", path) == ("", False)


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("/openai/deployments/gpt-of-ours/chat/completions", "gpt-of-ours"),
        ("/openai/deployments/a%2Fb/responses/", "a/b"),
        ("/openai/v1/chat/completions", ""),
        ("/model/anthropic.claude-sonnet-4-5-v1%3A0/invoke", "anthropic.claude-sonnet-4-5-v1:0"),
        ("/model/eu.amazon.nova-lite-v1:0/converse-stream", "eu.amazon.nova-lite-v1:0"),
        ("/v1beta/models/gemini-3-pro:streamGenerateContent", "gemini-3-pro"),
        ("/v1/projects/p/locations/l/publishers/anthropic/models/claude-opus-4@2026:rawPredict", "claude-opus-4@2026"),
        ("/models/meta-llama/Llama-3.1-8B/v1/chat/completions", "meta-llama/Llama-3.1-8B"),
        ("/v1/models", ""),
        ("/v1/models/gpt-5.4", ""),
        ("/v1/messages", ""),
        (f"/deployments/{'x' * 501}/chat/completions", ""),
    ],
)
def test_a_path_may_name_the_model(path: str, model: str) -> None:
    assert model_at(path) == model
