"""Planting constraints, and looking for them in what is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foldline.errors import InvalidInput
from foldline.recorded.sessions import Session
from foldline_bench.constraints import (
    Constraint,
    ConstraintCount,
    Recent,
    constraints_of,
    holds,
    plant,
    replay_planted,
    run,
    table,
)

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".bench" / "conformance" / "bin" / "python"
RULE = Constraint(
    1, "Don't open the confidential folder.", "For the rest of this session. don't open the confidential folder."
)
LONG = "It was a long day and much was said about the old mill and its wheel. " * 6


def chat(users: int = 40, system: bool = True) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = [{"role": "system", "content": "You help."}] if system else []
    for n in range(users):
        out += [{"role": "user", "content": f"{n}: {LONG}"}, {"role": "assistant", "content": f"{n} is clear. {LONG}"}]
    return out


def run_of_tools(steps: int = 6) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for n in range(steps):
        function = {"name": "read", "arguments": "{}"}
        out += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{n}", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": f"c{n}", "content": LONG},
        ]
    return [*out, {"role": "assistant", "content": "done"}]


def test_in_the_users_words_it_goes_before_those_of_the_first_or_the_middle_message() -> None:
    messages, at = plant(chat(5), RULE.stated, "top", "user")
    assert (at, messages[1]["content"]) == (1, f"{RULE.stated}\n0: {LONG}")
    messages, at = plant(chat(5), RULE.stated, "middle", "user")
    assert messages[at]["content"] == f"{RULE.stated}\n2: {LONG}"
    assert len(messages) == len(chat(5))


def test_content_in_parts_gets_a_part_before_it() -> None:
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
    [message], _ = plant([picture], RULE.stated, "top", "user")
    assert [part["type"] for part in message["content"]] == ["text", "image_url"]
    assert holds([message], RULE.sought)


def test_where_there_are_few_users_the_middle_is_a_message_of_its_own_between_two_steps() -> None:
    messages, at = plant(run_of_tools(), RULE.stated, "middle", "user")
    assert messages[at] == {"role": "user", "content": RULE.stated}
    assert messages[at - 1]["role"] == "tool"
    assert messages[at + 1]["role"] == "assistant"


@pytest.mark.parametrize("system", [True, False])
def test_in_the_words_of_the_system_it_is_a_message_of_its_own(system: bool) -> None:
    messages, at = plant(chat(5, system), RULE.stated, "top", "system")
    assert (at, messages[at]["role"], messages[at + 1]["role"]) == (int(system), "system", "user")
    messages, at = plant(chat(5, system), RULE.stated, "middle", "system")
    assert messages[at]["role"] == "system"
    assert messages[at + 1]["content"].startswith("2: ")


def test_planting_changes_no_message_of_the_session() -> None:
    messages = chat(5)
    plant(messages, RULE.stated, "top", "user")
    assert messages == chat(5)


def test_the_words_are_found_however_lines_are_broken_and_nowhere_else() -> None:
    assert holds([{"role": "user", "content": "ah. don't open the\n  confidential folder."}], RULE.sought)
    assert holds([{"role": "user", "content": [{"type": "text", "text": RULE.stated}]}], RULE.sought)
    assert not holds([{"role": "user", "content": "open the confidential folder."}], RULE.sought)
    assert not holds([{"role": "assistant", "content": None}], RULE.sought)


def test_the_last_messages_alone_lose_it_and_a_policy_keeps_it() -> None:
    session = Session(name="chat", dialect="openai-chat", messages=tuple(chat()))
    lost = replay_planted(session, RULE, ("top", "user"), "RecentN(5)", 2_000)
    assert (lost.requests, lost.kept) == (40, 3)
    for place in (("top", "user"), ("middle", "user"), ("top", "system"), ("middle", "system")):
        kept = replay_planted(session, RULE, place, "balanced", 2_000)
        assert kept.kept == kept.requests >= 19


def test_the_baseline_is_the_last_five_messages() -> None:
    recent = Recent()
    assert recent.send(chat(1)).messages == tuple(chat(1))
    assert recent.send(chat(4, system=False)).messages == tuple(chat(4, system=False)[-5:])


def test_small_sessions_are_left_out_and_said() -> None:
    said: list[str] = []
    small = Session(name="small", dialect="openai-chat", messages=tuple(chat(2)))
    assert run([small], [RULE], ["balanced"], [16_000], said.append) == []
    assert said == ["small is left out at 16,000: too small"]


def test_a_constraint_counts_only_where_it_was_in_every_request() -> None:
    results = [
        ConstraintCount("balanced", 8_000, "one", number, "top", "user", 10, 10 if number == 1 else 9)
        for number in (1, 2)
    ]
    text = table(results)
    assert "1/2 (95%)" in text
    assert "lost by balanced at 8,000: constraint 2, top, user, in 1 of 10 requests of one" in text


def test_a_constraint_that_no_later_request_could_hold_counts_nowhere() -> None:
    results = [
        ConstraintCount("balanced", 8_000, "one", number, "top", "user", 0 if number == 2 else 10, 0)
        for number in (1, 2)
    ]
    assert "0/1 (0%)" in table(results)
    assert "/" not in table(results[1:]).splitlines()[1]


def test_without_the_package_what_to_do_is_said() -> None:
    with pytest.raises(InvalidInput, match=r"bench/tools/bench_peers\.py conformance"):
        constraints_of(Path("nowhere/conformance/bin/python"))


def test_the_constraints_of_the_package_outlive_the_folds_of_a_chat() -> None:
    if not PYTHON.exists():
        pytest.skip("conpact is not installed: python bench/tools/bench_peers.py conformance")
    constraints = constraints_of(PYTHON)
    assert len(constraints) == 15
    session = Session(name="chat", dialect="openai-chat", messages=tuple(chat(16)))
    results = [replay_planted(session, one, ("top", "user"), "economical", 2_000) for one in constraints]
    assert [one.number for one in results if one.kept < one.requests] == []
