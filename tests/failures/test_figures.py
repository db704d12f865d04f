"""Figures are read from wordings as providers print them, and only where they mean tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import costly

from foldline.failures.figures import TokenFigures, rate_figures, retry_after_seconds, size_figures

TOKENS = st.integers(min_value=1, max_value=10**11)

# Text -> limit, whose limit, request, input, output.
SIZES: dict[str, tuple[int | None, str | None, int | None, int | None, int | None]] = {
    "context length is 8,192 tokens, your messages resulted in 9,001 tokens": (8192, "window", 9001, 9001, None),
    "maximum context length is 8_192 tokens": (8192, "window", None, None, None),
    "maximum context length is 1 048 576 tokens": (1_048_576, "window", None, None, None),
    "prompt is too long: 208310 tokens > 200000 maximum": (200_000, "window", 208_310, None, None),
    "exceed context limit: 190000 + 20000 > 200000, decrease": (200_000, "window", 210_000, 190_000, 20_000),
    "max_tokens: 128001 > 64000, which is the maximum": (64_000, "output", None, None, 128_001),
    "is too large: 8192. This model supports at most 4096 completion tokens": (4096, "output", None, None, 8192),
    "is too large: 64000. This model's maximum context length is 64001 tokens and your request has 24235 input tokens "
    "(64000 > 64001 - 24235)": (64_001, "window", 88_235, 24_235, 64_000),
    "maxOutputTokens value of 65536 but the supported range is from 1 (inclusive) to 8193 (exclusive)": (
        8192, "output", None, None, 65_536),
    "valid range of max_tokens is [1, 8192]": (8192, "output", None, None, None),
    "requested 20000 tokens (15000 in the messages, 1000 in the functions, and 4000 in the completion)": (
        None, None, 20_000, 16_000, 4_000),
    "you requested 4430 tokens (3430 in your prompt; 1000 for the completion)": (None, None, 4430, 3430, 1000),
    "requested about 138956 tokens (7884 of text input, 131072 in the output)": (None, None, 138_956, 7884, 131_072),
    "You requested a total of 9001 tokens: 8000 tokens from the input messages and 1001 tokens for the completion": (
        None, None, 9001, 8000, 1001),
    "prompt_tokens (57535) must be less than max_seq_len (32768)": (32_768, "window", 57_535, 57_535, None),
    "max_total_tokens (33802) must be less than or equal to max_seq_len (9)": (9, "window", 33_802, None, None),
    "total number of tokens (prompt and prediction) cannot exceed 2048 - received 6354": (
        2048, "window", 6354, None, None),
    "integer above maximum value, expected a value <= 4096, but got 8192 instead": (4096, "output", None, None, 8192),
    "max_tokens for `llama-3.1-8b-instant` must be less than or equal to 8000": (8000, "output", None, None, None),
    "Range of input length should be [1, 30720]": (30_720, "window", None, None, None),
    "exceeded model token limit: 131072 (requested: 140000)": (131_072, "window", 140_000, None, None),
    "`inputs` must have less than 4096 tokens. Given: 5000": (4096, "window", 5000, 5000, None),
    "Cannot truncate to 9001, required 9500": (9001, "window", 9500, None, None),
    "n_keep (15028) >= n_ctx (7424)": (7424, "window", 15_028, 15_028, None),
    "Requested tokens (2285) exceed context window of 2048": (2048, "window", 2285, None, None),
    "exceeded max context length by 512 tokens": (None, None, None, None, None),
    "size limit exceeded by 512 tokens": (None, None, None, None, None),
    "expected maxLength: 20000, actual: 30000": (None, None, None, None, None),  # characters
    "nothing to read": (None, None, None, None, None),
}  # fmt: skip


@pytest.mark.parametrize("text", SIZES)
def test_sizes_are_read_as_printed(text: str) -> None:
    figures = size_figures(text, {})
    assert (
        figures.limit, figures.limit_of, figures.requested, figures.input_tokens, figures.output_tokens
    ) == SIZES[text]  # fmt: skip


@given(limit=TOKENS, excess=TOKENS, separator=st.sampled_from(["", ",", "_", " "]))
def test_any_separator_of_thousands_is_read(limit: int, excess: int, separator: str) -> None:
    shown, sent = (f"{value:,}".replace(",", separator) for value in (limit, limit + excess))
    figures = size_figures(f"prompt is too long: {sent} tokens > {shown} maximum", {})
    assert (figures.limit, figures.requested) == (limit, limit + excess)


@given(window=TOKENS, prompt=TOKENS, output=TOKENS)
def test_a_sum_over_a_limit_gives_all_of_its_parts(window: int, prompt: int, output: int) -> None:
    figures = size_figures(f"exceed context limit: {prompt} + {output} > {window}", {})
    assert figures == TokenFigures(window, "window", prompt + output, prompt, output)


def test_numbers_beside_the_message_are_believed_first() -> None:
    figures = size_figures("request (1 tokens) exceeds", {"n_prompt_tokens": 9000, "n_ctx": 8192})
    assert (figures.limit, figures.requested, figures.input_tokens) == (8192, 9000, 9000)
    assert size_figures("", {"n_ctx": -1, "n_tokens": 10**30}) == TokenFigures()


def test_a_number_too_large_to_be_a_count_is_none() -> None:
    assert size_figures("maximum context length is 999999999999999999 tokens", {}).limit is None


@pytest.mark.parametrize("words", ["has at least 9001 tokens", "for a total of at least 9001 tokens"])
def test_at_least_makes_a_lower_bound(words: str) -> None:
    figures = size_figures(f"maximum context length is 8192 tokens, but the request {words}", {})
    assert (figures.limit, figures.requested, figures.lower_bound) == (8192, 9001, True)


def test_at_least_elsewhere_makes_none() -> None:
    assert not size_figures("at least one message is required; maximum context length is 8192 tokens", {}).lower_bound


@pytest.mark.parametrize(
    ("text", "limit", "requested"),
    [
        ("on tokens per min (TPM): Limit 30000, Requested 45000.", 30_000, 45_000),
        ("on tokens per minute (TPM): Limit 6,000, Used 5,034, Requested 1,443.", 6_000, 1_443),
        ("the rate limit for your organization (0dcc-af) of 20,000 input tokens per minute", 20_000, None),
        ("on requests per min (RPM): Limit 3, Used 3, Requested 1.", None, None),
        ("too many tokens per minute", None, None),
    ],
)
def test_a_rate_is_read_where_it_counts_tokens(text: str, limit: int | None, requested: int | None) -> None:
    figures = rate_figures(text)
    assert (figures.limit, figures.requested) == (limit, requested)
    assert figures.limit_of == ("rate" if limit else None)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Please try again in 6s.", 6.0),
        ("Please try again in 4.77s. Need more tokens?", 4.77),
        ("Please try again in 120ms", 0.12),
        ("try again in 7m12s", 432.0),
        ("try again in 1h2m3.5s", 3723.5),
        ("Please retry after 30 seconds.", 30.0),
        ("retryDelay: 34s", 34.0),
        ("'retryDelay': '34.5s'", 34.5),
        ("Retry-After: 20", 20.0),
        ("please wait 2 minutes", 120.0),
        ("try again in 2 days", 172_800.0),
        ("try again later", None),
        ("waited 30 seconds", None),
        ("", None),
    ],
)
def test_the_time_to_wait_is_read(text: str, seconds: float | None) -> None:
    assert retry_after_seconds(text) == (None if seconds is None else pytest.approx(seconds))


@costly
@given(text=st.text() | st.from_regex(r"(try again in|retry after|limit:?|at least|n_ctx|[0-9_,. ]){0,12}"))
def test_no_text_makes_it_raise(text: str) -> None:
    assert size_figures(text, {}).limit != 0 or "0" in text
    assert rate_figures(text).limit_of in {"rate", None}
    assert (retry_after_seconds(text) or 0.0) >= 0.0
