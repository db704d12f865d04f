"""Overflows in words that no row has: a size and a limit in one sentence, and no other limit taken for it."""

from __future__ import annotations

import json
from itertools import product

import pytest

from foldline.failures.classification import classify
from foldline.failures.failure import Kind
from foldline.failures.overflow_sentences import overflow_in

PROMPT: Kind = "prompt_overflow"
OUTPUT: Kind = "output_overflow"
SIZES = {"prompt_overflow", "output_overflow", "bytes_overflow", "ambiguous"}

SUBJECTS = (
    "The prompt",
    "Your input",
    "This conversation",
    "The message history",
    "Input of {n} tokens",
    "Prompt ({n} tokens)",
    "The request has {n} input tokens, which",
    "Your messages came to {n} tokens: this",
    "total prompt length {n}",
)
VERBS = ("exceeds", "is longer than", "is larger than", "overflows", "does not fit", "surpasses", "is too long for")
LIMITS = (
    "the context window",
    "the context length of {m} tokens",
    "the context size ({m})",
    "this model's limit of {m} tokens",
    "max_model_len={m}",
    "the maximum of {m} input tokens",
    "the {k}k context window of this model",
)
NUMBERS = ("{:d}", "{:,d}", "{:_d}")
REQUESTED, LIMIT = 201_234, 128_000

# Words of sizes, limits and excess that are about something else.
OTHER_THINGS = (
    "The uploaded file",
    "Image 3",
    "The image in messages.4",
    "The URL of the image",
    "The tool name",
    "Function 'x': its description",
    "The header section",
    "metadata.user_id",
    "The number of tools",
    "Your requests per minute",
    "The monthly token quota",
    "The token usage of your organization per day",
    "Your credit balance",
    "The PDF with 300 pages",
    "Stop sequences",
    "The request rate",
    "The session token",
    "The access token",
    "A query string",
    "The number of messages in this batch",
    "The audio clip",
    "The cache key",
)
OTHER_VERBS = (
    "exceeds the limit of 2048",
    "is longer than 1000 characters",
    "exceeds the maximum length",
    "is too long",
)

ELSEWHERE = [
    "Unknown parameter: context_management",
    "context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
    "Maximum call stack size exceeded",
    "max_tokens: Field required",
    "max_tokens must be a positive integer",
    "`max_tokens` must be greater than `thinking.budget_tokens`.",
    "Input should be less than or equal to 2",
    "context window too small, minimum is 1000",
    "System prompt caching requires at least 1024 tokens",
    "Too many requests: 4096 requests in your window of 60 seconds",
    "n must be at most 8",
    "Extra inputs are not permitted, field: 'promptCacheKey', value: 'ses_0d8928679ffemGuTWEPPI0mr52'",
    "You've hit your session limit, resets 9pm",
    "The messages parameter is illegal. Please check the documentation.",
    "temperature: Input should be less than or equal to 1",
    "The model `x-128000` does not exist or you do not have access to it.",
    "Request timed out after 600 seconds",
    "upstream connect error or disconnect/reset before headers",
    "Invalid 'messages': array too long. Expected an array with maximum length 2048, but got 3000 items.",
]

LITELLM = (
    "503 litellm.ServiceUnavailableError: litellm.MidStreamFallbackError: APIConnectionError: OpenAIException - "
    "Requested token count exceeds the model's maximum context length of 131072 tokens."
)
VLLM = (
    "You passed 202753 input tokens and requested 0 output tokens. However, the model's context length is only "
    "202752 tokens, resulting in a maximum input length of 202752 tokens."
)
GEMINI = (
    "Request exceeds the maximum context length of 1048576 tokens. You requested 1100000 tokens (1000000 in the "
    "input, 100000 in the output)."
)

LESS = "Input should be less than or equal to 8192"

# Seen in public reports of 2025 and 2026, with the report: wording, kind, limit.
SEEN: list[tuple[object, Kind, int | None]] = [
    ("Request input tokens exceed model token limit. Reduce the input size.", PROMPT, None),  # Einstein-GPT#228
    ("Exceeded model context window size", PROMPT, None),  # anomalyco/opencode#6775
    ("token count 203783 exceeds model max context 202752", PROMPT, 202_752),  # tinyhumansai/openhuman#2074
    ("Too many tokens in batch. Max is 16384 got 17555", PROMPT, 16_384),  # aurelio-labs/semantic-router#297
    ("input too large (140000 tokens) for model context window (128000 tokens)", PROMPT, 128_000),
    ("This request exceeds maximum context length (128000).", PROMPT, 128_000),
    ("request size exceeds model context window", PROMPT, None),  # openclaw overflow-detection
    ("ollama: context length exceeded for llama3", PROMPT, None),  # openclaw/openclaw#58839
    ("Prompt exceeds max length", PROMPT, None),  # mangowhoiscloud/geode#668
    ("Prompt exceeds maximum context length", PROMPT, None),  # ddalcu/mlx-serve#66
    ("Prompt length (5056) exceeds maximum sequence length (2048)", PROMPT, 2_048),  # tensorrtllm_backend#141
    ("Total prompt tokens (11573) exceeds safe limit (2048) for 1 requests. Reduce prompt length", PROMPT, 2_048),
    ("request (53192 tokens) exceeds context size (50176 tokens)", PROMPT, 50_176),  # llmmllab-api#56
    ("request is too large for model with 8192 maximum context length", PROMPT, 8_192),
    ("Request body too large for gpt-4o model. Max size: 8000 tokens.", PROMPT, 8_000),  # evalstate/fast-agent#346
    ("prompt is too long: 209840 tokens › 200000 maximum", PROMPT, 200_000),  # anomalyco/opencode#500
    ("The input token count exceeds the maximum number of tokens allowed 1048576., Status: X", PROMPT, 1_048_576),
    (LITELLM, PROMPT, 131_072),  # earendil-works/pi#4563
    (VLLM, PROMPT, 202_752),  # proxysoul/Empryo#52
    (GEMINI, OUTPUT, 1_048_576),
    ("max_completion_tokens is too large: 1298829. This model supports at most 1048576", OUTPUT, 1_048_576),
    ("max_tokens: 680000 exceeds maximum output token limit: 128000", OUTPUT, 128_000),  # openclaw/openclaw#61852
    ("rpc error: code = InvalidArgument desc = max_tokens (10000) cannot exceed 8192.", OUTPUT, 8_192),
    ("total message size 2100954 exceeds limit 2097152", "bytes_overflow", None),  # MoonshotAI/kimi-code#1862
    ("Throttling Error: too many tokens", "rate", None),
    ({"error": {"code": "contextWindowExceeded", "message": "no"}}, PROMPT, None),  # Codex
    ({"error": {"code": "CONTEXT_WINDOW_EXCEEDED", "message": "no"}}, PROMPT, None),  # callstackincubator/ai#212
    ({"error": {"code": "context_overflow", "message": "failed"}}, PROMPT, None),  # openclaw/openclaw#3188
    ("prompt_too_long", PROMPT, None),
    ("model_context_window_exceeded", PROMPT, None),
    ("exceededContextWindowSize", PROMPT, None),  # Apple, TN3193
    ({"error": {"message": "vision tokens exceed processor budget", "code": "media_budget_exceeded"}}, "image", None),
    ("Number of tokens (768) exceeded maximum context length (512).", PROMPT, 512),  # marella/ctransformers#153
    ("Requested 48000 tokens but the server was started with --ctx-size 32768", PROMPT, 32_768),
    ("Please shorten your prompt: 150000 > 131072", PROMPT, 131_072),
    ("prompt tokens (150000) + max_tokens (8192) > context (131072)", PROMPT, 131_072),
    ("Cannot fit 150000 prompt tokens into a window of 131072", PROMPT, 131_072),
    ("llama_decode: failed to find KV slot, context full", PROMPT, None),
    ("Total tokens of image and text exceed max message tokens", PROMPT, None),
    ({"error": {"code": "OperationDenied.ContextLengthExceeded", "message": "no"}}, PROMPT, None),
    ({"detail": [{"type": "less_than_equal", "loc": ["body", "max_tokens"], "msg": LESS, "input": 9}]}, OUTPUT, 8_192),
    ("Die Anfrage ist zu lang: 150.000 Tokens, erlaubt sind 131.072", PROMPT, 131_072),
    ("La solicitud supera el contexto máximo de 131072 tokens", PROMPT, 131_072),
    ("The service tier's tokens-per-minute of 131072 exceeded", "rate", None),
    ("You have exceeded the 5-hour usage limit of 1000000 tokens", "quota", None),
    ("Batch of 2,048 inputs exceeds the limit of 2,000 inputs per request", "other", None),
    ({"error": {"code": "string_above_max_length", "param": "metadata.user_id", "message": "too long"}}, "other", None),
    ("Ihre Eingabe überschreitet die maximale Länge von 128.000 Token", PROMPT, 128_000),
    ("输入长度超过模型最大上下文限制 202752 tokens", PROMPT, 202_752),
]


def envelopes(words: str) -> list[object]:
    inner = {"error": {"message": words, "type": "invalid_request_error", "code": None}}
    violation = {"fieldViolations": [{"field": "contents", "description": words}]}
    adapter = {"title": "Server Error", "detail": f"adapter status=400 body={json.dumps(inner)}"}
    return [
        inner,
        words,
        [inner],
        json.dumps(inner),
        f"Error code: 400 - {inner}",
        {"message": "Provider returned error", "metadata": {"raw": json.dumps(inner)}},
        {"detail": f"BadRequestError: Hosted_vllmException - {json.dumps(inner['error'])}"},
        {"error_code": "BAD_REQUEST", "message": json.dumps({"external_model_error": inner})},
        {"error": {"code": 3, "status": "INVALID_ARGUMENT", "details": [violation]}},
        {"error": "ERROR_PROVIDER_ERROR", "details": adapter},
        f"event: error\ndata: {json.dumps({'type': 'error', 'error': inner['error']})}\n\n",
        f"<html><head><title>400</title></head><body><pre>{words}</pre></body></html>",
        {"base_resp": {"status_code": 2013, "status_msg": words}},
        {"__type": "ValidationException", "message": f"The model returned the following errors: {words}"},
    ]  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_a_size_and_an_excess_in_one_sentence_are_an_overflow_in_any_words(verb: str) -> None:
    for subject, limit in product(SUBJECTS, LIMITS):
        for number in NUMBERS:
            words = f"{subject} {verb} {limit}".format(
                n=number.format(REQUESTED), m=number.format(LIMIT), k=LIMIT // 1_000
            )
            failure = classify(400, {"error": {"message": words}})
            assert failure.kind == PROMPT, words
            if "{m}" in limit or "{k}" in limit:
                assert failure.limit == LIMIT, words
            else:
                assert failure.limit is None, words


@pytest.mark.parametrize(
    "number", ["201234", "201,234", "201.234", "201 234", "201_234", "201'234", "201’234", "201\u202f234"]
)
def test_numbers_are_read_in_any_writing(number: str) -> None:
    words = f"Your conversation came to {number} tokens, the model takes at most {number.replace('201', '128')} tokens"
    failure = classify(400, {"error": {"message": words}})
    assert (failure.kind, failure.limit, failure.requested) == (PROMPT, 128_234, 201_234)


@pytest.mark.parametrize(
    ("said", "tokens"), [("128k", 128_000), ("1M", 1_000_000), ("1.5M", 1_500_000), ("256 K", 256_000)]
)
def test_a_limit_is_read_in_thousands_and_millions(said: str, tokens: int) -> None:
    words = f"Input of 2,000,000 tokens exceeds the {said} context window"
    assert classify(400, {"error": {"message": words}}).limit == tokens


@pytest.mark.parametrize(
    ("limit", "sent", "tokens", "requested"),
    [
        ("128K", "131k", 128_000, 131_000),
        ("1M", "1.2M", 1_000_000, 1_200_000),
        ("8 Ki", "9000", 8_192, 9_000),
        ("128.000", "140.000", 128_000, 140_000),
        ("4,096k", "5,000k", 4_096_000, 5_000_000),
        ("131072 (128Ki)", "140000", 131_072, 140_000),
    ],
)
def test_a_known_wording_is_read_in_thousands_and_millions_too(
    limit: str, sent: str, tokens: int, requested: int
) -> None:
    words = f"This model's maximum context length is {limit} tokens. However, you requested {sent} tokens."
    failure = classify(400, {"error": {"message": words}})
    assert (failure.kind, failure.limit, failure.requested) == (PROMPT, tokens, requested)


@pytest.mark.parametrize("code", ["context_length_error", "context_window_error", "ContextSizeError"])
def test_a_code_that_names_the_context_is_an_overflow_whatever_the_words(code: str) -> None:
    assert classify(400, {"error": {"type": code, "message": "That was a bit much."}}).kind == PROMPT


@pytest.mark.parametrize("shape", range(len(envelopes(""))))
def test_a_wording_is_found_in_every_envelope(shape: int) -> None:
    words = "Your chat of 201234 tokens outgrew the context window of 128000 tokens"
    failure = classify(400, envelopes(words)[shape])
    assert (failure.kind, failure.limit) == (PROMPT, 128_000)


@pytest.mark.parametrize("thing", OTHER_THINGS)
def test_limits_of_other_things_are_none_of_the_window(thing: str) -> None:
    for verb in OTHER_VERBS:
        failure = classify(400, {"error": {"message": f"{thing} {verb}"}}, estimate=99_000, window=100_000)
        assert failure.kind not in SIZES, (thing, verb, failure.kind)


@pytest.mark.parametrize("words", ELSEWHERE)
def test_words_of_a_size_elsewhere_are_no_overflow(words: str) -> None:
    assert classify(400, {"error": {"message": words}}).kind not in SIZES - {"ambiguous"}
    assert overflow_in(words) is None or classify(400, words).limit is None


@pytest.mark.parametrize(("body", "kind", "limit"), SEEN)
def test_what_servers_said_since_has_its_kind_and_limit(body: object, kind: Kind, limit: int | None) -> None:
    failure = classify(400, body if isinstance(body, dict) else {"error": {"message": body}})
    assert (failure.kind, failure.limit) == (kind, limit)


def test_a_plan_with_a_smaller_window_is_told_by_the_status_of_a_wrong_key() -> None:
    """Kimi Code answers 401 (farion1231/cc-switch#5865)."""
    words = "Your current plan supports only k3 up to 256K context. 1M context is available on higher-tier plans."
    assert classify(401, words).kind == "auth"
    near = classify(401, words, estimate=250_000, window=1_000_000)
    assert (near.kind, near.limit) == (PROMPT, 256_000)


def test_a_limit_alone_is_an_overflow_only_near_it() -> None:
    words = "The context length is only 2048 tokens"
    assert classify(400, words, estimate=100, window=128_000).kind == "ambiguous"
    near = classify(400, words, estimate=2_000, window=128_000)
    assert (near.kind, near.limit) == (PROMPT, 2_048)
