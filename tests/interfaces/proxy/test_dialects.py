"""Which paths are looked into: what ends like one of a dialect and is none passes."""

from __future__ import annotations

import pytest

from foldline.interfaces.proxy.dialects import dialect_of


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
