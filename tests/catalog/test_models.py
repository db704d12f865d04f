from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.catalog.models import CACHE_RULES, CacheRule, Model, _vendor, default_window, lookup, models
from foldline.errors import InvalidInput


def faults(model: Model) -> list[str]:
    """What is not as it must be in an entry."""
    caps = [cap for cap in (model.max_input_tokens, model.max_output_tokens) if cap is not None]
    prices = (model.input_usd_per_million, model.output_usd_per_million)
    holds = {
        "date": date(2025, 1, 1) <= model.read_on,
        "source": len(model.source) > 10,
        "vendor": bool(model.vendor),
        "window": 1_024 <= model.window_tokens <= 20_000_000,
        "caps": all(1_000 <= cap <= model.window_tokens for cap in caps),
        "prices": prices[0] is None or prices[1] is None or 0 < prices[0] <= prices[1] <= 1_000,
        "summaries": model.summaries in {"on", "off"},
        "known": model.known and model.warning is None,
    }
    return [name for name, held in holds.items() if not held]


def test_every_entry_has_a_date_a_source_and_plausible_figures() -> None:
    assert {model.name: faults(model) for model in models() if faults(model)} == {}


def test_every_model_is_found_by_its_own_name() -> None:
    for model in models():
        for name in (model.name, f"some-gateway/{model.name}", model.name.upper()):
            assert lookup(name) is model, name


def test_ids_are_unique_and_many() -> None:
    names = [model.name.lower() for model in models()]
    assert len(names) == len(set(names)) >= 80
    assert {model.vendor for model in models()} >= {"anthropic", "openai", "google", "deepseek", "xai", "mistral"}


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("anthropic/claude-sonnet-4.5", "claude-sonnet-4-5"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("vertex_ai/claude-sonnet-4-5@20250929", "claude-sonnet-4-5"),
        ("us.anthropic.claude-sonnet-4-20250514-v1:0", "claude-sonnet-4"),
        ("bedrock/us.anthropic.claude-opus-4-8-v1:0", "claude-opus-4-8"),
        ("openrouter/anthropic/claude-opus-4.7:beta", "claude-opus-4-7"),
        ("gpt-5-2025-08-07", "gpt-5"),
        ("gpt-5-mini-2025-08-07", "gpt-5-mini"),
        ("gpt-4-0613", "gpt-4"),
        ("gpt-5-chat-latest", "gpt-5-chat"),
        ("ft:gpt-4o-mini-2024-07-18:org::id", "gpt-4o-mini"),
        ("gpt-oss:20b", "gpt-oss-20b"),
        ("models/gemini-2.5-flash-preview-05-20", "gemini-2.5-flash"),
        ("gemini/gemini-2.5-flash-lite", "gemini-2.5-flash-lite"),
        ("mistral-large", "mistral-large-latest"),
        ("minimaxai/minimax-m2", "MiniMax-M2"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct-Q4_1.gguf", "smollm2-135m"),
        ("amazon.nova-pro-v1:0", "nova-pro"),
    ],
)
def test_names_of_gateways_dates_and_tags_lead_to_the_model(name: str, found: str) -> None:
    assert lookup(name).name == found
    assert lookup(name).known


@pytest.mark.parametrize("name", ["gpt-4.9", "gpt-5.99", "gpt-4-32k", "claude-next", "o9", "my-own-model", ""])
def test_a_neighbouring_name_is_no_known_model(name: str) -> None:
    model = lookup(name)
    assert not model.known
    assert model.window_tokens == default_window(name)
    assert model.warning is not None
    assert f"{model.window_tokens:,}" in model.warning
    assert "\n" not in model.warning


def test_an_unknown_model_gets_128000_hosted_and_8192_local_with_a_warning() -> None:
    for name in ("my-own-model", None):
        assert lookup(name).window_tokens == 128_000
        assert lookup(name, local=True).window_tokens == 8_192
        assert lookup(name).warning
        assert lookup(name, local=True).warning
    assert lookup("qwen3-my-tune", local=True).window_tokens == 8_192
    assert lookup("SmolLM2-135M-Instruct", local=True).known


def test_the_smallest_models_write_no_summaries() -> None:
    model = lookup("SmolLM2-135M-Instruct")
    assert (model.window_tokens, model.summaries) == (8_192, "off")
    assert lookup("claude-sonnet-4-5").summaries == "on"


def test_an_input_limit_apart_from_the_window_is_told() -> None:
    model = lookup("gpt-5")
    assert (model.window_tokens, model.max_input_tokens, model.max_output_tokens) == (400_000, 272_000, 128_000)


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("claude-sonnet-4-20250514", 200_000),
        ("openai/GPT-5-mini", 400_000),
        ("gpt-4.1-nano", 1_000_000),
        ("gpt-4o-mini", 128_000),
        ("gpt-4-turbo", 128_000),
        ("gpt-4", 128_000),
        ("gemini-2.5-pro", 1_000_000),
        ("grok-4-fast", 2_000_000),
        ("grok-3", 131_072),
        ("deepseek-v3.2", 163_840),
        ("deepseek-chat-v3-0324", 163_840),
        ("deepseek-r1", 128_000),
        ("qwen3-coder", 131_072),
        ("qwen2.5-72b", 128_000),
        ("meta-llama/llama-4-scout", 327_680),
        ("llama-3.3-70b", 128_000),
        ("mistral-large-2512", 262_144),
        ("mistral-small", 128_000),
        ("mixtral-8x7b", 128_000),
        ("anything else", 128_000),
    ],
)
def test_s3_01_the_default_window_follows_the_family_most_specific_first(name: str, window: int) -> None:
    assert default_window(name) == window


@given(st.text(alphabet=st.characters(codec=None, exclude_categories=())) | st.none(), st.booleans())
def test_any_name_gets_a_model(name: str | None, local: bool) -> None:
    assert lookup(name, local=local).window_tokens >= 1_024


def test_cache_rules_are_those_of_the_providers() -> None:
    assert CACHE_RULES["anthropic"] == CacheRule(0.10, 1.25, 1_024, 1, 300)
    assert CACHE_RULES["openai"] == CacheRule(0.10, 1.00, 1_024, 128, 300)
    assert CACHE_RULES["deepseek"] == CacheRule(0.10, 1.00, 64, 64, 3_600)
    assert CACHE_RULES["none"] == CACHE_RULES["nocache"]
    assert CACHE_RULES["none"].read_ratio == CACHE_RULES["none"].write_ratio == 1
    assert CACHE_RULES["none"].minimum_tokens > max(model.window_tokens for model in models())
    assert set(CACHE_RULES) == {"anthropic", "openai", "deepseek", "gemini", "none", "nocache"}
    assert len(CACHE_RULES) == 6


def test_a_model_keeps_its_own_cache_prices() -> None:
    assert lookup("claude-opus-4-5").cache == CacheRule(0.10, 1.25, 4_096, 1, 300)
    assert lookup("gpt-4o").cache.read_ratio == 0.5
    assert lookup("claude-unheard-of").cache == CACHE_RULES["anthropic"]
    assert (lookup("gemini-9").vendor, lookup("gemini-9").cache) == ("google", CACHE_RULES["gemini"])
    assert lookup("my-own-model", local=True).cache == CACHE_RULES["none"]


GOOD: dict[str, Any] = {"name": "a", "window_tokens": 8_192}
RULE = {"read_ratio": 0.1, "write_ratio": 1.0, "minimum_tokens": 1, "block_tokens": 1, "lifetime_seconds": 1}


def table(*entries: dict[str, Any], **changed: Any) -> dict[str, Any]:
    file = {"vendor": "v", "read": date(2026, 1, 1), "source": "somewhere", "cache": RULE, "models": list(entries)}
    return {key: value for key, value in (file | changed).items() if value is not None}


def test_a_good_entry_is_read() -> None:
    ((model, exact),) = _vendor(table(GOOD), "v.toml")
    assert (model.name, model.window_tokens, model.source, exact) == ("a", 8_192, "somewhere", False)


def test_other_caches_of_an_entry_go_before_those_of_the_file_and_build_on_its_rule() -> None:
    ((own, _), (file, _)) = _vendor(
        table(
            GOOD | {"cache": {"minimum_tokens": 7}, "caches": [{"lifetime_seconds": 9}]},
            GOOD | {"name": "b"},
            caches=[{"write_ratio": 2.0}],
        ),
        "v.toml",
    )
    assert [(rule.minimum_tokens, rule.lifetime_seconds, rule.write_ratio) for rule in own.caches] == [(7, 9, 1.0)]
    assert [(rule.minimum_tokens, rule.lifetime_seconds, rule.write_ratio) for rule in file.caches] == [(1, 1, 2.0)]


@pytest.mark.parametrize(
    "bad",
    [
        table(GOOD, read=None),
        table(GOOD, source=None),
        table(GOOD, source=""),
        table(GOOD | {"read": "yesterday"}),
        table(GOOD | {"window_tokens": 1_000}),
        table(GOOD | {"max_output_tokens": 10_000}),
        table(GOOD | {"max_input_tokens": 0}),
        table(GOOD | {"input_usd_per_million": 5_000.0}),
        table(GOOD | {"output_usd_per_million": -1.0}),
        table(GOOD | {"summaries": "maybe"}),
        table(GOOD | {"windo_tokens": 5}),
        table(GOOD | {"cache": {"read_ratio": 1.5}}),
        table(GOOD | {"cache": {"block_tokens": 0}}),
        table(GOOD | {"cache": {"steps": [{"above_tokens": 5, "input_ratio": 0.5, "output_ratio": 1.0}]}}),
        table(
            GOOD
            | {"cache": {"steps": [{"above_tokens": at, "input_ratio": 2.0, "output_ratio": 2.0} for at in (9, 9)]}}
        ),
        table(GOOD | {"caches": [{"write_ratio": 4.0}]}),
        table(GOOD, GOOD),
    ],
)
def test_an_entry_that_cannot_be_is_refused_with_its_place(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=r"v\.toml: a"):
        list(_vendor(bad, "v.toml"))
