"""Usage as providers report it, in one form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.errors import InvalidInput
from foldline.view.calibration import Meter
from foldline.view.transcript import Usage
from foldline.view.usage import UsageReports, usage_of

REPORTS: list[tuple[str, dict[str, Any], Usage]] = [
    (
        "OpenAI Chat Completions: cached tokens inside",
        {"prompt_tokens": 2_006, "completion_tokens": 300, "prompt_tokens_details": {"cached_tokens": 1_920}},
        Usage(input_tokens=2_006, output_tokens=300, cached_tokens=1_920),
    ),
    (
        "OpenAI Responses",
        {"input_tokens": 75, "output_tokens": 1_186, "input_tokens_details": {"cached_tokens": 64}},
        Usage(input_tokens=75, output_tokens=1_186, cached_tokens=64),
    ),
    (
        "OpenAI Chat Completions from GPT-5.6 on, and OpenRouter: written tokens inside too",
        {
            "prompt_tokens": 10_339,
            "completion_tokens": 60,
            "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 10_318},
        },
        Usage(input_tokens=10_339, output_tokens=60, written_tokens=10_318),
    ),
    (
        "OpenAI Responses from GPT-5.6 on",
        {
            "input_tokens": 2_300,
            "output_tokens": 120,
            "input_tokens_details": {"cached_tokens": 1_920, "cache_write_tokens": 256},
        },
        Usage(input_tokens=2_300, output_tokens=120, cached_tokens=1_920, written_tokens=256),
    ),
    (
        "OpenAI's SDK where the server tells of none written",
        {"prompt_tokens": 90, "prompt_tokens_details": {"cached_tokens": None, "cache_write_tokens": None}},
        Usage(input_tokens=90),
    ),
    (
        "Anthropic: cached tokens beside",
        {
            "input_tokens": 50,
            "cache_read_input_tokens": 100_000,
            "cache_creation_input_tokens": 248,
            "output_tokens": 503,
        },
        Usage(input_tokens=100_298, output_tokens=503, cached_tokens=100_000, written_tokens=248),
    ),
    (
        "Anthropic without a cache",
        {"input_tokens": 50, "cache_read_input_tokens": None, "cache_creation_input_tokens": None, "output_tokens": 5},
        Usage(input_tokens=50, output_tokens=5),
    ),
    (
        "Gemini",
        {"promptTokenCount": 900, "candidatesTokenCount": 12, "cachedContentTokenCount": 800},
        Usage(input_tokens=900, output_tokens=12, cached_tokens=800),
    ),
    (
        "Gemini's SDK",
        {"prompt_token_count": 900, "candidates_token_count": 12, "cached_content_token_count": 800},
        Usage(input_tokens=900, output_tokens=12, cached_tokens=800),
    ),
    (
        "Gemini's SDK, with details by kind of content",
        {
            "prompt_token_count": 900,
            "candidates_token_count": 12,
            "cached_content_token_count": 800,
            "prompt_tokens_details": [{"modality": "TEXT", "token_count": 900}],
        },
        Usage(input_tokens=900, output_tokens=12, cached_tokens=800),
    ),
    (
        "DeepSeek: hit and miss add up to the prompt",
        {
            "prompt_tokens": 1_000,
            "completion_tokens": 20,
            "prompt_cache_hit_tokens": 640,
            "prompt_cache_miss_tokens": 360,
        },
        Usage(input_tokens=1_000, output_tokens=20, cached_tokens=640),
    ),
    ("Ollama", {"prompt_eval_count": 26, "eval_count": 298}, Usage(input_tokens=26, output_tokens=298)),
    ("a stream's first chunk", {"prompt_tokens": 10}, Usage(input_tokens=10)),
    ("numbers as floats", {"prompt_tokens": 10.0, "completion_tokens": 2.0}, Usage(input_tokens=10, output_tokens=2)),
]


@pytest.mark.parametrize(("reported", "usage"), [row[1:] for row in REPORTS], ids=[row[0] for row in REPORTS])
def test_reads_what_providers_report(reported: dict[str, Any], usage: Usage) -> None:
    assert usage_of(reported) == usage


def test_cached_tokens_are_not_added_to_a_total_that_includes_them() -> None:
    # open-webui/open-webui#28590: prompt 38k of which cached 38k was taken for 76k.
    reported = {"prompt_tokens": 38_000, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 38_000}}
    assert usage_of(reported).input_tokens == 38_000


def test_a_gateway_that_names_both_forms_is_not_counted_twice() -> None:
    """LiteLLM adds Anthropic's cache fields to an OpenAI usage whose prompt_tokens include them."""
    reported = {
        "prompt_tokens": 38_000,
        "completion_tokens": 1,
        "cache_read_input_tokens": 36_000,
        "cache_creation_input_tokens": 1_000,
    }
    assert usage_of(reported) == Usage(input_tokens=38_000, output_tokens=1, cached_tokens=36_000, written_tokens=1_000)


def test_the_number_of_the_request_is_kept() -> None:
    assert usage_of({"prompt_tokens": 1}, 7).request == 7


def test_a_usage_is_returned_as_it_is() -> None:
    usage = Usage(input_tokens=5)
    assert usage_of(usage) is usage
    assert usage_of(usage, 7) == replace(usage, request=7)


def test_an_object_with_the_same_names_will_do() -> None:
    @dataclass
    class Details:
        cached_tokens: int = 4

    class Reported:
        def __init__(self) -> None:
            self.prompt_tokens = 9
            self.completion_tokens = 1
            self.prompt_tokens_details = Details()

    assert usage_of(Reported()) == Usage(input_tokens=9, output_tokens=1, cached_tokens=4)


def test_a_model_that_can_be_dumped_will_do() -> None:
    class Dumped:
        __slots__ = ()

        def model_dump(self) -> dict[str, int]:
            return {"input_tokens": 3, "output_tokens": 2}

    assert usage_of(Dumped()) == Usage(input_tokens=3, output_tokens=2)


def test_zero_tokens_are_a_report() -> None:
    assert usage_of({"prompt_tokens": 0}) == Usage(input_tokens=0)


@pytest.mark.parametrize(
    "reported",
    [
        None,
        12,
        "12",
        {},
        {"tokens": 5},
        {"prompt_tokens": None},
        {"prompt_tokens": -1},
        {"prompt_tokens": True},
        {"prompt_tokens": "12"},
        {"prompt_tokens": [1]},
        {"prompt_tokens": float("nan")},
        {"prompt_tokens": float("inf")},
        {"prompt_tokens": 5, "completion_tokens": -1},
        {"prompt_tokens": 5, "prompt_tokens_details": 7},
        {"input_tokens": 5, "cache_read_input_tokens": "many"},
    ],
)
def test_refuses_what_is_no_usage(reported: object) -> None:
    with pytest.raises(InvalidInput):
        usage_of(reported)


def test_the_field_at_fault_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"usage\.prompt_tokens"):
        usage_of({"prompt_tokens": -1})


def test_tokens_that_are_written_for_an_hour_are_told_apart() -> None:
    report = {
        "input_tokens": 10,
        "cache_creation_input_tokens": 100_000,
        "cache_creation": {"ephemeral_5m_input_tokens": 40_000, "ephemeral_1h_input_tokens": 60_000},
        "output_tokens": 1,
    }
    usage = usage_of(report)
    assert (usage.input_tokens, usage.written_tokens, usage.written_long_tokens) == (100_010, 100_000, 60_000)
    assert usage_of({**report, "cache_creation": None}).written_long_tokens == 0


def test_the_sum_of_a_report_says_where_its_cached_tokens_stand() -> None:
    """A total that counts them once more has them beside the input; one of input and output alone has them inside."""
    inside = {"prompt_tokens": 900, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 800}}
    assert usage_of({**inside, "total_tokens": 910}).input_tokens == 900
    assert usage_of({**inside, "total_tokens": 1_710}).input_tokens == 1_700
    beside = {"input_tokens": 100, "output_tokens": 10, "cache_read_input_tokens": 800}
    assert usage_of(beside).input_tokens == 900
    assert usage_of({**beside, "input_tokens": 900, "total_tokens": 910}).input_tokens == 900
    gemini = {"promptTokenCount": 900, "candidatesTokenCount": 7, "thoughtsTokenCount": 3, "totalTokenCount": 910}
    assert usage_of({**gemini, "cachedContentTokenCount": 800}).input_tokens == 900


def checked(meter: Meter, estimated: int, reported: int, cached: int) -> Usage:
    """A report as it is read for a request of so many tokens by our count, after the reports so far."""
    reports = UsageReports()
    reports.record(estimated, 0)
    found = reports.check(Usage(input_tokens=reported, cached_tokens=cached, request=1), meter, 1_000_000).usage
    meter.observe(estimated, found.input_tokens, sure=not cached)
    return found


def test_a_count_that_is_half_too_high_leaves_cached_tokens_where_the_documents_say() -> None:
    assert checked(Meter(), 10_137, 6_701, 3_400).input_tokens == 6_701


@given(
    tokenizer=st.floats(0.5, 2.0),
    estimated=st.lists(st.integers(2_500, 200_000), min_size=1, max_size=3),
    share=st.floats(0.0, 1.0),
)
def test_no_three_reports_of_one_tokenizer_are_read_against_the_documents(
    tokenizer: float, estimated: list[int], share: float
) -> None:
    """Whatever the tokenizer and the share that was cached: inside the input is inside."""
    meter = Meter()
    for tokens in estimated:
        reported = round(tokenizer * tokens)
        assert checked(meter, tokens, reported, int(share * reported)).input_tokens == reported


@given(
    tokenizer=st.floats(0.55, 1.9),
    turns=st.lists(st.tuples(st.integers(200, 4_000), st.floats(0.95, 1.05)), min_size=2, max_size=30),
    warm=st.booleans(),
)
def test_a_session_whose_cache_grows_with_it_is_never_read_against_the_documents(
    tokenizer: float, turns: list[tuple[int, float]], *, warm: bool
) -> None:
    """Each request is cached whole at the next; `warm`: the first finds its beginning in the cache already."""
    meter, tokens, before = Meter(), 3_000, 1_500 if warm else 0
    for new, near in turns:
        tokens += new
        reported = round(tokenizer * near * tokens)
        assert checked(meter, tokens, reported, min(reported, before)).input_tokens == reported
        before = reported


@given(
    turns=st.lists(st.integers(300, 3_000), min_size=8, max_size=30),
    near=st.floats(0.95, 1.05),
    warm=st.booleans(),
)
def test_a_server_that_has_cached_tokens_beside_against_its_documents_is_found_out(
    turns: list[int], near: float, *, warm: bool
) -> None:
    """By what it read from the cache beside less than that, or by several reports: from the sixth on all are whole."""
    meter, tokens, before = Meter(), 6_000, 5_000 if warm else 0
    wrong = 0
    for new in turns:
        tokens += new
        reported = round(near * tokens)
        found = checked(meter, tokens, reported - before, before)
        wrong += found.input_tokens != reported
        before = reported
    assert wrong <= 1
