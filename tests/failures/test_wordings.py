"""The table of wordings: each row by what providers say, and no row that nothing reaches."""

from __future__ import annotations

import re

import pytest

from foldline.failures.classification import classify
from foldline.failures.failure import Kind
from foldline.failures.wordings import WORDINGS

PROMPT: Kind = "prompt_overflow"
OUTPUT: Kind = "output_overflow"
BYTES: Kind = "bytes_overflow"
TOO_LARGE: Kind = "request_too_large_for_rate"

# Wordings collected from public reports, clients and servers: status, code, wording (9001 over 8192 throughout), kind.
FIELD: list[tuple[int, str | None, str, Kind]] = [
    # openai
    (400, "context_length_exceeded", "This model's maximum context length is 9001 tokens", PROMPT),
    (400, "context_length_exceeded", "Input tokens exceed the configured limit of 9001 tokens", PROMPT),
    (400, "context_length_exceeded", "Please reduce the length of the messages or completion", PROMPT),
    # openai-responses
    (400, "context_length_exceeded", "Your input exceeds the context window of this model", PROMPT),
    # openai
    (400, "string_above_max_length", "string too long. expected a string with maximum length", BYTES),
    (429, "rate_limit_exceeded", "Request too large for MODEL on tokens per min (TPM)", TOO_LARGE),
    # openai-legacy
    (
        400,
        "context_length_exceeded",
        "you requested 9001 tokens (8000 in the messages, 1001 in the completion)",
        PROMPT,
    ),
    # azure-openai
    (400, "context_length_exceeded", "Input tokens exceed the configured limit of 9001 tokens", PROMPT),
    (400, "context_length_exceeded", "This model's maximum context length is 9001 tokens", PROMPT),
    # anthropic
    (400, "invalid_request_error", "prompt is too long: 9001 tokens > 8192 maximum", PROMPT),
    (400, "invalid_request_error", "input length and `max_tokens` exceed context limit: 8000 + 1001 > 8192", OUTPUT),
    (400, "invalid_request_error", "prompt: length", PROMPT),
    (413, "request_too_large", "Request exceeds the maximum size", BYTES),
    (400, "invalid_request_error", "input length exceeds context window", PROMPT),
    # gemini
    (400, "INVALID_ARGUMENT", "input token count (9001) exceeds the maximum number of tokens allowed", PROMPT),
    (400, "INVALID_ARGUMENT", "number of tokens allowed", PROMPT),
    # vertex
    (400, "INVALID_ARGUMENT", "exceeds the maximum number of tokens allowed", PROMPT),
    (400, None, "400 Request payload size exceeds", BYTES),
    # gemini-aistudio-proxy
    (400, "INVALID_ARGUMENT", "Cannot truncate to 9001, required 8192", PROMPT),
    # bedrock
    (400, "ValidationException", "Input is too long for requested model", PROMPT),
    (400, "ValidationException", "input length and `max_tokens` exceed context limit", OUTPUT),
    (400, "ValidationException", "too many total text bytes", BYTES),
    (400, "ValidationException", "prompt is too long", PROMPT),
    (400, "ValidationException", "input tokens exceeded", PROMPT),
    (400, "ValidationException", "expected maxLength:", PROMPT),
    (400, "ValidationException", "Too many input tokens", PROMPT),
    (400, "ValidationException", "This model's maximum context length is", PROMPT),
    # bedrock-mantle
    (400, None, "exceed model maximum", PROMPT),
    # bedrock
    (429, "ThrottlingException", "Too many tokens, please wait before trying again", "rate"),
    # mistral
    (400, "3051", "too large for model with 9001 maximum context length", PROMPT),
    (
        400,
        "invalid_request_message_error",
        "Prompt contains 9001 tokens and 0 draft tokens, too large for model",
        PROMPT,
    ),
    # groq
    (400, "context_length_exceeded", "Please reduce the length of the messages or completion", PROMPT),
    (413, "rate_limit_exceeded", "Request too large for model on tokens per minute (TPM)", TOO_LARGE),
    # together
    (422, None, "`inputs` tokens + `max_new_tokens` must be <= 9001", PROMPT),
    (400, None, "input (9001 tokens) is longer than the model's context length", PROMPT),
    # ollama
    (400, None, "The prompt is too long: 9001, model maximum context length: 8192", PROMPT),
    # fireworks
    (400, "invalid_request_error", "The prompt is longer than the model's maximum context length of 8192", PROMPT),
    # openrouter
    (400, "400", "This endpoint's maximum context length is 9001 tokens", PROMPT),
    (400, "400", "requested about 9001 tokens (8000 of text input, 1001 in the output)", OUTPUT),
    (400, None, "Input length 9001 exceeds the maximum allowed input length of 8192", PROMPT),
    # deepseek
    (
        400,
        "invalid_request_error",
        "This model's maximum context length is 9001 tokens. However, you requested",
        PROMPT,
    ),
    # deepseek-ds4
    (400, None, "Prompt has 9001 tokens, but the configured context size is 8192", PROMPT),
    # dashscope
    (400, "invalid_parameter_error", "Range of input length should be [1, 9001]", PROMPT),
    # zhipu-glm
    (400, "1261", "Prompt too long", PROMPT),
    # moonshot-kimi
    (400, "invalid_request_error", "Your request exceeded model token limit: 9001 (requested: 8192)", PROMPT),
    # minimax
    (400, "2013", "invalid params, context window exceeds limit", PROMPT),
    # xai
    (400, None, "maximum prompt length is 9001 but the request contains 8192 tokens", PROMPT),
    # cohere
    (400, None, "too many tokens: size limit exceeded by 9001 tokens", PROMPT),
    # cerebras
    (400, None, "Current length is 9001 while limit is 8192", PROMPT),
    (413, None, "status code (no body)", "ambiguous"),
    # perplexity
    (400, None, "length of all messages is too long", PROMPT),
    # github-copilot
    (400, "model_max_prompt_tokens_exceeded", "prompt token count of 9001 exceeds the limit of 8192", PROMPT),
    # ai21
    (422, None, "Prompt has too many tokens", PROMPT),
    # replicate
    (422, None, "input is too long", PROMPT),
    # huggingface-tgi
    (422, "validation", "`inputs` must have less than 9001 tokens. Given: 8192", PROMPT),
    # huggingface
    (400, None, "length limit exceeded", PROMPT),
    # sagemaker
    (424, None, "`inputs` tokens + `max_new_tokens` must be <=", PROMPT),
    # llama-api
    (400, None, "exceed context limit", PROMPT),
    # vllm
    (400, "BadRequestError", "maximum context length is 9001 tokens. However, your request has 8192 input", PROMPT),
    (400, "BadRequestError", "prompt contains at least 8192 input tokens, for a total of", PROMPT),
    (400, "BadRequestError", "'max_tokens' or 'max_completion_tokens' is too large: 9001", OUTPUT),
    (400, "BadRequestError", "longer than the maximum model length of 9001", PROMPT),
    (400, "BadRequestError", "is too long and exceeds limit of 9001", PROMPT),
    (400, None, "exceeds the max_model_len", PROMPT),
    # sglang
    (400, "BadRequestError", "input (9001 tokens) is longer than the model's context length", PROMPT),
    (400, "BadRequestError", "Requested token count exceeds the model's maximum context length of 9001", PROMPT),
    (400, None, "Requested input length 9001 exceeds maximum input length 8192", PROMPT),
    # llama.cpp
    (
        400,
        "exceed_context_size_error",
        "request (9001 tokens) exceeds the available context size (8192 tokens)",
        PROMPT,
    ),
    (500, None, "input is too large to process. increase the physical batch size", "ambiguous"),
    (500, "server_error", "Context size has been exceeded", PROMPT),
    # lmstudio
    (400, None, "Context size has been exceeded", PROMPT),
    # ollama
    (400, None, "the input length exceeds the context length", PROMPT),
    (400, None, "prompt too long; exceeded max context length by 9001 tokens", PROMPT),
    (400, None, "exceeds the available context size", PROMPT),
    # lmstudio
    (400, None, "tokens to keep from the initial prompt is greater than the context", PROMPT),
    (400, None, "Trying to keep the first 9001 tokens when context the overflows", PROMPT),
    (400, None, "Reached context length of 9001 tokens with model", PROMPT),
    # litellm-proxy
    (400, "400", "litellm.ContextWindowExceededError:", PROMPT),
    # litellm-lemonade
    (400, None, "exceeds the available context size", PROMPT),
    # any-gateway
    (400, None, "超长", PROMPT),
    (400, None, "tokens in request more than max tokens allowed", PROMPT),
    (400, None, "token limit exceeded", "ambiguous"),
    # any
    (429, None, "rate limit", "rate"),
    (429, None, "too many requests", "rate"),
    # bedrock
    (503, None, "Service unavailable:", "other"),
]

# One example for each row of the table that the list above does not reach.
EXAMPLES: list[tuple[int, object, str]] = [
    (429, "You have used all tokens per day", "quota.per_day"),
    (
        429,
        {"error": {"details": [{"violations": [{"quotaId": "GenerateRequestsPerMinutePerProject"}]}]}},
        "rate.per_minute_quota",
    ),
    (429, {"error": {"code": "insufficient_quota", "message": "no"}}, "quota.code"),
    (429, "You exceeded your current quota, please check your plan and billing details.", "quota.exceeded"),
    (400, "Your credit balance is too low to access the API.", "quota.money"),
    (429, "Extra usage is required for long context requests.", "quota.extra_usage"),
    (429, {"error": {"type": "rate_limit_error", "message": "slow down"}}, "rate.code"),
    (413, "<html><h1>413 Request Entity Too Large</h1></html>", "bytes.body"),
    (413, "Request Too Large", "bytes.request_too_large"),
    (400, "messages.2.content.0.image.source.base64: image exceeds 5 MB maximum: 8 bytes > 5 bytes", "image.size"),
    (400, "Exceeded maximum number of images (50) allowed in the request.", "image.count"),
    (400, "Could not process image", "image.unreadable"),
    (400, "Invalid content type. image_url is only supported by certain models.", "image.unsupported"),
    (400, {"error": {"code": "invalid_image_format", "message": "try another file"}}, "image.code"),
    (
        400,
        "Images are supported in user messages only: images in 'tool' messages return a 400 error.",
        "image.in_result",
    ),
    (400, "A maximum of 100 PDF pages may be provided.", "document.pages"),
    (400, "messages.0.content.1.pdf.source.base64.data: The PDF specified was not valid.", "document.unreadable"),
    (400, {"error": {"code": "invalid_file", "message": "try another"}}, "document.code"),
    (400, "Invalid 'messages[3].tool_calls[0].function.name': string too long. Expected 64.", "string.name"),
    (400, "Item with id 'rs_0a1b2c3d' not found.", "malformed.item"),
    (400, "messages.1.content.0.tool_use.name: String should have at most 200 characters", "malformed.name"),
    (400, "messages.3.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'", "malformed.call_id"),
    (400, {"error": {"code": "invalid_encrypted_content", "message": "no"}}, "malformed.encrypted"),
    (
        400,
        "Invalid 'messages[36].tool_calls[0].id': string too long. Expected a string with maximum length 40",
        "string.id",
    ),
    (
        400,
        "Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 1024",
        "string.short_field",
    ),
    (
        400,
        "max_tokens: 128001 > 64000, which is the maximum allowed number of output tokens for this model",
        "output.anthropic_cap",
    ),
    (400, "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", "output.range"),
    (
        400,
        "it has a maxOutputTokens value of 65536 but the supported range is from 1 (inclusive) to 8193 (exclusive)",
        "output.gemini",
    ),
    (400, "The maximum tokens you requested exceeds the model limit of 4096.", "output.bedrock"),
    (400, "`max_tokens` must be less than or equal to `40960`", "output.groq"),
    (400, "The parameter `max_tokens` is not valid: integer above maximum value", "output.above_maximum"),
    (400, "length of prompt_tokens (57535) must be less than max_seq_len (32768)", "prompt.max_seq_len"),
    (400, "Input exceeds the max input token limit", "prompt.max_input"),
    (400, "max_completion_tokens of 9000 is greater than the maximum of 8192", "output.generic"),
    (400, "max_tokens must be at least 1, got -512.", "prompt.vllm_negative"),
    (400, {"error": {"code": "context_length_exceeded", "message": "no"}}, "prompt.code"),
    (400, "the context window was exceeded", "prompt.context_exceeded"),
    (413, {"error": {"type": "request_too_large", "message": "no"}}, "bytes.code"),
    (400, "An assistant message with 'tool_calls' must be followed by tool messages.", "malformed.openai_tools"),
    (400, "No tool output found for function call call_1.", "malformed.openai_items"),
    (400, "messages.3: `tool_use` ids were found without `tool_result` blocks", "malformed.anthropic_tools"),
    (400, "`thinking` blocks in the latest assistant message cannot be modified.", "malformed.reasoning"),
    (400, "Please ensure that function call turn comes immediately after a user turn", "malformed.gemini_turns"),
    (400, "After the optional system message, conversation roles must alternate", "malformed.roles"),
    (400, "messages: text content blocks must be non-empty", "malformed.empty"),
    (500, "Jinja Exception: System role not supported", "malformed.system"),
    (400, {"message": "no", "type": "invalid_request_message_order", "code": "3230"}, "malformed.code"),
    (400, "API key not valid. Please pass a valid API key.", "auth.words"),
    (400, {"error": {"type": "authentication_error", "message": "no"}}, "auth.code"),
    (400, "input too large", "ambiguous.too_large"),
]


def openai(message: str, code: str | None = None) -> dict[str, object]:
    return {"error": {"message": message, "code": code}}


@pytest.mark.parametrize(("status", "code", "words", "kind"), FIELD)
def test_each_wording_of_the_field_has_its_kind(status: int, code: str | None, words: str, kind: Kind) -> None:
    assert classify(status, openai(words, code)).kind == kind


@pytest.mark.parametrize(("status", "body", "pattern"), EXAMPLES)
def test_each_example_is_matched_by_its_row(status: int, body: object, pattern: str) -> None:
    failure = classify(status, body)
    assert failure.pattern == pattern
    assert failure.kind == next(row.kind for row in WORDINGS if row.id == pattern)


def test_no_row_of_the_table_is_without_an_example() -> None:
    reached = {classify(status, openai(words, code)).pattern for status, code, words, _ in FIELD}
    assert {row.id for row in WORDINGS} - reached - {pattern for _, _, pattern in EXAMPLES} == set()


def test_each_row_has_an_id_of_its_own_and_names_its_source() -> None:
    assert len({row.id for row in WORDINGS}) == len(WORDINGS)
    assert all(row.source and row.provider for row in WORDINGS)


def test_no_pattern_has_a_gap_without_a_bound() -> None:
    assert [row.id for row in WORDINGS if re.search(r"(?<!\\)\.[*+]|\w[*+]|\)[*+]", row.pattern)] == []
