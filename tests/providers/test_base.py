"""Endings in one vocabulary, so that none that is no success passes for one."""

from __future__ import annotations

import pytest

from foldline.providers.base import finish_reason_of


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("end_turn", "stop"),
        ("COMPLETE", "stop"),
        ("FINISH_REASON_STOP", "stop"),
        (None, "stop"),
        ("MAX_TOKENS", "length"),
        ("content_filter", "refusal"),
        ("sensitive", "refusal"),
        ("RECITATION", "refusal"),
        ("FINISH_REASON_SAFETY", "refusal"),
        ("guardrail_intervened", "refusal"),
        ("pause_turn", "pause"),
        ("MALFORMED_FUNCTION_CALL", "malformed_call"),
        ("UNEXPECTED_TOOL_CALL", "malformed_call"),
        ("malformed_model_output", "malformed_call"),
        ("model_context_window_exceeded", "context_window"),
        ("ERROR_LIMIT", "context_window"),
        ("network_error", "failed"),
        ("insufficient_system_resource", "failed"),
        ("abort", "failed"),
        ("repetition_truncation", "failed"),
        ("OTHER", "failed"),
        ("something_new", "something_new"),
    ],
)
def test_what_servers_call_an_ending_is_one_of_our_words(said: str | None, reason: str) -> None:
    assert finish_reason_of(said, calls=False) == reason
    assert finish_reason_of(said, calls=True) == ("tool_calls" if reason == "stop" else reason)
