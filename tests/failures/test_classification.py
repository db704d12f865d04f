"""What a failure is called: the field's wordings, the order of the vetoes, and what may never raise."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import costly

from foldline.failures.classification import classify
from foldline.failures.failure import Failure, Kind, silent_truncation

PROMPT: Kind = "prompt_overflow"
OUTPUT: Kind = "output_overflow"
BYTES: Kind = "bytes_overflow"
TOO_LARGE: Kind = "request_too_large_for_rate"

# Words about context, tokens and length in failures that are about something else.
UNRELATED = [
    "Unknown parameter: context_management",
    "context_management: Extra inputs are not permitted",
    "Invalid value: context window size option",
    "model_context_length must be an integer",
    "`max_tokens` must be greater than `thinking.budget_tokens`.",
    "Could not finish the message because max_tokens or model output limit was reached.",
    "The long context beta is not yet available for this subscription.",
    "prompt_cache_key is too long",
    "Invalid value for temperature",
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    "The tool name must be shorter than 64 characters",
    "This model does not support the context caching feature",
]

OVERFLOW_WORDS = [
    "prompt is too long: 9001 tokens > 8192 maximum",
    "This model's maximum context length is 8192 tokens",
    "context_length_exceeded",
    "Request exceeds the maximum size",
    "input length and `max_tokens` exceed context limit: 8000 + 1001 > 8192",
]
VETO_WORDS = ["Rate limit reached, try again in 6s", "too many tokens per day", "tokens per minute", "quota exceeded"]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["error", "message", "code", "metadata", "raw", "status", "n_ctx", "x"]), inner
        )
    ),
    max_leaves=20,
)


def openai(message: str, code: str | None = None) -> dict[str, object]:
    return {"error": {"message": message, "code": code}}


@pytest.mark.parametrize("words", UNRELATED)
@pytest.mark.parametrize("status", [400, 422, None])
def test_words_that_merely_mention_context_are_other(words: str, status: int | None) -> None:
    assert classify(status, openai(words, "invalid_request_error"), estimate=99_000, window=100_000).kind == "other"


@pytest.mark.parametrize("status", [400, 413, 429, 500, None])
@given(overflow=st.sampled_from(OVERFLOW_WORDS), veto=st.sampled_from(VETO_WORDS), first=st.booleans())
def test_a_veto_wins_over_words_of_overflow(status: int | None, overflow: str, veto: str, first: bool) -> None:
    words = f"{veto}. {overflow}" if first else f"{overflow}. {veto}"
    assert classify(status, openai(words, "context_length_exceeded")).kind in {"rate", "quota"}


@costly
@given(
    status=st.none() | st.integers(), body=JSON, estimate=st.none() | st.integers(), window=st.none() | st.integers()
)
def test_no_json_makes_it_raise(status: int | None, body: object, estimate: int | None, window: int | None) -> None:
    failure = classify(status, body, estimate=estimate, window=window)
    assert failure.kind in get_args(Kind)
    assert len(failure.message) <= 500
    assert classify(status, json.dumps(body), estimate=estimate, window=window).kind in get_args(Kind)


@given(body=st.binary() | st.text() | st.binary().map(bytearray))
def test_no_bytes_and_no_text_make_it_raise(body: object) -> None:
    assert classify(400, body).kind in get_args(Kind)


@pytest.mark.parametrize(
    "body",
    [object(), float("nan"), {1: {2: 3}}, [[[]]], "[" * 100_000, '{"error":' * 50_000, {"code": 10**5000}],
    ids=["object", "nan", "numbers", "lists", "deep list", "deep object", "huge number"],
)
def test_no_junk_makes_it_raise(body: object) -> None:
    assert classify(400, body).kind in {"ambiguous", "other"}


def test_a_body_of_a_megabyte_is_judged_by_its_ends() -> None:
    echo = "the prompt is too long, says the user. " * 30_000
    assert classify(400, f"prompt is too long: 9001 tokens > 8192 maximum. You sent: {'x' * 1_000_000}").limit == 8192
    assert classify(400, {"error": {"message": "Invalid value for temperature", "input": echo}}).kind == "other"


def test_a_request_larger_than_the_whole_rate_is_no_rate_failure() -> None:
    words = "Rate limit reached for m on tokens per min (TPM): Limit 30000, Used 0, Requested 45000."
    assert classify(429, openai(words)).kind == TOO_LARGE
    assert classify(429, openai(words.replace("45000", "9000"))).kind == "rate"
    words = "This request would exceed the rate limit for your organization of 20,000 input tokens per minute."
    assert classify(429, openai(words), estimate=30_000).kind == TOO_LARGE
    assert classify(429, openai(words), estimate=3_000).kind == "rate"


def test_a_limit_on_requests_is_none_on_tokens() -> None:
    failure = classify(429, openai("Rate limit reached on requests per min (RPM): Limit 3, Used 3, Requested 4."))
    assert (failure.kind, failure.limit, failure.limit_of) == ("rate", None, None)


@pytest.mark.parametrize(
    ("words", "kind", "limit", "given_tokens", "output_tokens"),
    [  # the limit, and what of the request is input and what output
        (
            "maximum context length is 131072, requested 131509 (99509 in the messages, 32000 in the completion)",
            OUTPUT,
            131_072,
            99_509,
            32_000,
        ),
        (
            "maximum context length is 4097 tokens, you requested 5000 (4500 in the messages, 500 in the completion)",
            PROMPT,
            4_097,
            4_500,
            500,
        ),
        (
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
            OUTPUT,
            200_000,
            190_000,
            20_000,
        ),
        (
            "input length and `max_tokens` exceed context limit: 230000 + 20000 > 200000",
            PROMPT,
            200_000,
            230_000,
            20_000,
        ),
        (
            "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and 1000 `max_new_tokens`",
            OUTPUT,
            4_096,
            4_000,
            1_000,
        ),
    ],
)
def test_the_output_is_at_fault_where_the_input_alone_would_fit(
    words: str, kind: Kind, limit: int, given_tokens: int, output_tokens: int
) -> None:
    failure = classify(400, openai(words))
    assert (failure.kind, failure.limit, failure.limit_of) == (kind, limit, "window")
    assert (failure.input_tokens, failure.output_tokens) == (given_tokens, output_tokens)
    assert failure.requested == given_tokens + output_tokens


def test_at_least_is_a_lower_bound_and_the_estimate_decides() -> None:
    words = (
        "This model's maximum context length is 262144 tokens. However, you requested 128000 output tokens and your "
        "prompt contains at least 134145 input tokens, for a total of at least 262145 tokens."
    )
    failure = classify(400, openai(words))
    assert (failure.kind, failure.limit, failure.requested, failure.lower_bound) == (OUTPUT, 262_144, 262_145, True)
    assert classify(400, openai(words), estimate=300_000).kind == PROMPT
    assert not classify(400, openai("prompt is too long: 9001 tokens > 8192 maximum")).lower_bound


def test_a_split_without_a_limit_is_judged_by_the_window_we_know() -> None:
    words = "you requested 9001 tokens (8000 in the messages, 1001 in the completion)"
    assert classify(400, openai(words)).kind == PROMPT
    assert classify(400, openai(words), window=8_192).kind == OUTPUT


@pytest.mark.parametrize("body", ["", None, b"", {}, {"error": {}}, "400 status code (no body)", "Bad Request"])
def test_a_refusal_without_words_is_an_overflow_only_near_the_window(body: object) -> None:
    assert classify(400, body).kind == "ambiguous"
    assert classify(400, body, estimate=200, window=100_000).kind == "ambiguous"
    near = classify(400, body, estimate=80_000, window=100_000)
    assert near.kind == PROMPT
    assert near.pattern is not None
    assert near.pattern.endswith("+near_window")


def test_a_wordless_413_far_from_the_window_is_about_bytes() -> None:
    assert classify(413, "").kind == "ambiguous"
    assert classify(413, "", estimate=5_000, window=100_000).kind == BYTES
    assert classify(413, "", estimate=95_000, window=100_000).kind == PROMPT
    assert classify(413, "prompt is too long: 9001 tokens > 8192 maximum").kind == PROMPT


@pytest.mark.parametrize("status", [401, 403, 404, 429])
def test_a_status_that_is_not_about_size_is_believed(status: int) -> None:
    assert classify(status, openai("prompt is too long: 9001 tokens > 8192 maximum")).kind in {"auth", "rate", "other"}


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, "auth"), (402, "quota"), (403, "auth"), (429, "rate"), (529, "rate"), (500, "other"), (404, "other")],
)
def test_without_a_known_word_the_status_speaks(status: int, kind: Kind) -> None:
    assert classify(status, openai("something nobody has seen")).kind == kind


def test_a_failure_cannot_be_changed() -> None:
    failure = Failure("rate")
    with pytest.raises(FrozenInstanceError):
        failure.kind = "other"  # type: ignore[misc]


def judged(**changes: object) -> str | None:
    values: dict[str, object] = {
        "estimate_tokens": 10_000,
        "reported_tokens": 9_500,
        "window": 100_000,
        "stop_reason": "stop",
        "output_tokens": 50,
    }
    return silent_truncation(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"stop_reason": "model_context_window_exceeded"}, "context window is full"),  # Anthropic
        ({"reported_tokens": 100_001}, "more than the window of 100,000"),  # z.ai; LM Studio shows 12526/4096
        (
            {"estimate_tokens": 9_000, "reported_tokens": 4_098, "window": None},
            "the prompt was cut",
        ),  # Ollama at num_ctx 8192
        ({"estimate_tokens": 50_000, "reported_tokens": 16_000}, "the prompt was cut"),  # little-coder#128
        ({"stop_reason": "length", "output_tokens": 0}, "nothing generated"),  # Xiaomi MiMo
        (
            {"estimate_tokens": 36_000, "window": 32_768, "reported_tokens": None, "output_tokens": 0},
            "nothing was generated",
        ),
    ],
)
def test_a_reply_to_a_cut_request_is_told_from_its_figures(changes: dict[str, object], says: str) -> None:
    assert says in (judged(**changes) or "")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"reported_tokens": None},
        {"reported_tokens": 0},  # not reported, as after a failure
        {"reported_tokens": 5_500},  # an estimate that is nearly twice too high
        {"estimate_tokens": 1_900, "reported_tokens": 100},  # too small to have been cut
        {"stop_reason": "length", "output_tokens": None},
        {"stop_reason": "length", "output_tokens": 4_096},
        {"window": None, "reported_tokens": 500_000},
        {"stop_reason": None, "output_tokens": 0},
    ],
)
def test_noise_and_small_prompts_are_no_truncation(changes: dict[str, object]) -> None:
    assert judged(**changes) is None
