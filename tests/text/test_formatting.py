from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.replay import NONE, Replay
from foldline.report.replay_page import limits
from foldline.text.formatting import compact, escaped, milliseconds, plural, share


@pytest.mark.parametrize(
    ("tokens", "shown"),
    [
        (0, "0"),
        (950, "950"),
        (999, "999"),
        (1_000, "1k"),
        (1_234, "1.2k"),
        (16_000, "16k"),
        (99_940, "99.9k"),
        (99_960, "100k"),
        (144_900, "145k"),
        (999_600, "1.00M"),
        (3_984_659, "3.98M"),
        (17_600_000, "17.6M"),
        (144_900_000, "145M"),
    ],
)
def test_counts_are_shown_short(tokens: int, shown: str) -> None:
    assert compact(tokens) == shown


@given(st.integers(0, 999_400_000))
def test_a_short_count_takes_at_most_five_characters(tokens: int) -> None:
    assert len(compact(tokens)) <= 5


@pytest.mark.parametrize(("value", "shown"), [(None, "–"), (0.0, "0.00"), (0.666, "0.67"), (12.0, "12.00")])
def test_shares_have_two_decimals(value: float | None, shown: str) -> None:
    assert share(value) == shown


@pytest.mark.parametrize(("seconds", "shown"), [(0, "0.00"), (0.0002, "0.20"), (0.01234, "12.3"), (1.5, "1500")])
def test_times_are_milliseconds(seconds: float, shown: str) -> None:
    assert milliseconds(seconds) == shown


def test_a_count_takes_its_noun() -> None:
    assert [plural(n, "fold") for n in (0, 1, 2_000)] == ["0 folds", "1 fold", "2,000 folds"]


def test_markup_controls_and_half_surrogates_are_made_safe() -> None:
    assert escaped("<b a=\"x\" b='y'>&") == "&lt;b a=&quot;x&quot; b=&#x27;y&#x27;&gt;&amp;"
    assert escaped("a\x00b\x1bc\n\td") == "a\ufffdb\ufffdc\n\td"
    assert escaped("\ud800x").encode() == b"?x"


def kept(policy: str, tokens: int | None) -> Replay:
    return Replay(
        session="s",
        policy=policy,
        dialect="openai-chat",
        window=8_000,
        limit_tokens=7_500,
        kept_tokens=tokens,
        counter="estimate",
        recorded_tokens=0,
        turns=(),
    )


def test_the_limit_that_policies_keep_to_is_told_beside_that_of_the_window() -> None:
    alone = "window 8,000 tokens, 7,500 of them for input"
    assert limits([kept(NONE, None)]) == alone
    assert limits([kept(NONE, None), kept("balanced", 6_750)]) == (
        f"{alone};\npolicies keep to 6,750: 10% is margin for errors of the count"
    )
