"""What servers call the end of a reply, in one vocabulary: words that each ask for something else to be done.

stop, tool_calls      it is whole
length                cut off at the cap of the output
refusal               the model, or a filter behind it, does not answer
pause                 the server stops in between and goes on when the reply is sent back as it is
malformed_call        the model wrote a call that the server could not read
context_window        cut off because the window is full
failed                the server broke off, or threw the reply away
"""

from __future__ import annotations

import re
from typing import Final

from foldline.messages import Json

__all__ = ["finish_reason_of"]

_WORDS: Final = {
    "stop": "end_turn end_of_turn stop_sequence eos eos_token complete completed done finished end normal",
    "tool_calls": "tool_use tool_call function_call function_calls",
    "length": "max_tokens max_output_tokens max_new_tokens max_completion_tokens max_length model_length token_limit",
    "refusal": (
        "content_filter content_filtered safety sensitive recitation blocklist prohibited_content spii image_safety "
        "image_prohibited_content image_recitation guardrail_intervened moderation blocked error_toxic language"
    ),
    "pause": "pause_turn paused",
    "malformed_call": (
        "malformed_function_call malformed_tool_call malformed_tool_use malformed_model_output malformed_response "
        "unexpected_tool_call invalid_tool_call tool_call_error too_many_tool_calls missing_thought_signature"
    ),
    "context_window": (
        "model_context_window_exceeded context_window_exceeded context_length_exceeded context_length context_limit "
        "context_overflow max_context_length error_limit"
    ),
    "failed": (
        "network_error insufficient_system_resource abort aborted cancel cancelled canceled error server_error "
        "internal_error engine_error engine_overloaded timeout time_limit incomplete repetition repetition_truncation "
        "repetition_detected repeat other unknown unspecified in_progress queued"
    ),
}
"""Anthropic, stop reasons; OpenAI, Chat and Responses; Gemini and Vertex, FinishReason; Bedrock, StopReason; Cohere,
finish reasons; DeepSeek (insufficient_system_resource); Z.ai and GLM (sensitive, network_error,
model_context_window_exceeded); Mistral (model_length, error); vLLM and SGLang (abort); Hugging Face (eos_token)."""

_REASONS: Final = {said: reason for reason, words in _WORDS.items() for said in (reason, *words.split())}


def finish_reason_of(said: Json, *, calls: bool, refused: bool = False) -> str:
    """The reason in one vocabulary; what is unknown stays as the server said it.

    A turn with calls that "stops" (Ollama, some gateways) ended with its calls.
    """
    reason = said.lower() if isinstance(said, str) and said else "stop"
    reason = re.sub(r"[ -]", "_", reason).removeprefix("finish_reason_")
    reason = _REASONS.get(reason, reason)
    if reason == "stop":
        return "tool_calls" if calls else "refusal" if refused else "stop"
    return reason
