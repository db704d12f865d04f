"""Cache points stand where the next request finds them, and nothing else is touched."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from tests.providers.serving import endpoint

from foldline.engine.context import Context
from foldline.engine.policy import Policy
from foldline.engine.presets import POLICIES
from foldline.providers.anthropic import DIALECT
from foldline.providers.cache_points import MAX_POINTS, anthropic_points, chat_points, wants_chat_points
from foldline.providers.endpoint import Endpoint
from foldline.reducers.mask import Mask
from foldline.testing.scripted_model import session
from foldline.testing.token_counts import PromptCache, breakpoints, count_body

POINT = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
TOOLS = [{"name": "a"}, {"name": "b"}]
CLAUDE = "claude-sonnet-4-5"


def text(words: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **fields}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def said(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def placed(
    messages: list[Any], system: Any = "sys", tools: Any = TOOLS, stable_until: int = 0, tokens: int = 9_000
) -> Any:
    return anthropic_points(system, tools, messages, stable_until=stable_until, tokens=tokens, model=CLAUDE)


def points(value: Any) -> int:
    if isinstance(value, dict):
        return ("cache_control" in value) + sum(points(inner) for inner in value.values())
    return sum(map(points, value)) if isinstance(value, list | tuple) else 0


def test_the_four_places_are_tools_system_the_request_before_and_the_newest_message() -> None:
    messages = [user("one"), said([text("two")]), user([text("three")])]
    system, tools, out = placed(messages, stable_until=1)
    assert tools == [TOOLS[0], {**TOOLS[1], "cache_control": POINT}]
    assert system == [text("sys", cache_control=POINT)]
    assert out == [user([text("one", cache_control=POINT)]), messages[1], user([text("three", cache_control=POINT)])]
    assert out[1] is messages[1]


def test_what_was_given_is_not_changed() -> None:
    messages, system, tools = [user("one"), user([text("two")])], [text("sys")], copy.deepcopy(TOOLS)
    before = copy.deepcopy((messages, system, tools))
    placed(messages, system, tools, stable_until=1)
    assert (messages, system, tools) == before


def test_a_prefix_below_the_models_smallest_is_left_alone() -> None:
    messages = [user("one")]
    system, tools, out = placed(messages, tokens=1_023)
    assert (system, tools) == ("sys", TOOLS)
    assert out[0] is messages[0]


def test_the_end_of_one_request_has_its_point_in_the_next_one_too() -> None:
    first = [user("one"), said([text("a")]), user("two")]
    _, _, sent = placed(first)
    _, _, then = placed([*first, said([text("b")]), user("three")], stable_until=3)
    assert then[2] == sent[2]
    assert points(then[2]) == 1


@pytest.mark.parametrize(
    "block",
    [
        {"type": "thinking", "thinking": "h", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        text(""),
        text("\n"),
    ],
)
def test_thinking_and_empty_text_carry_none(block: dict[str, Any]) -> None:
    _, _, out = placed([user("one"), said([text("two"), block])])
    assert out[-1] == said([text("two", cache_control=POINT), block])
    _, _, out = placed([user("one"), said([block])])
    assert out == [user([text("one", cache_control=POINT)]), said([block])]


def test_results_and_calls_can_carry_one() -> None:
    result = {"type": "tool_result", "tool_use_id": "1", "content": "x"}
    _, _, out = placed([user([result])])
    assert out == [user([{**result, "cache_control": POINT}])]


@pytest.mark.parametrize(("system", "tools"), [(None, None), ("", []), ("  ", None), ([], None)])
def test_where_nothing_stands_nothing_is_set(system: Any, tools: Any) -> None:
    assert placed([user("one")], system, tools)[:2] == (system, tools)


def test_points_of_the_caller_stay_and_count() -> None:
    system = [text("a", cache_control=HOUR), text("b")]
    tools = [{"name": "a", "cache_control": HOUR}]
    messages = [user([text("m", cache_control=HOUR)]), user([text("n", cache_control=POINT)]), user("o"), user("p")]
    found = placed(messages, system, tools, stable_until=3)
    assert found == (system, tools, messages)
    assert points(found) == MAX_POINTS


def test_no_point_is_set_before_one_of_the_caller() -> None:
    messages = [user("l"), user([text("m", cache_control=HOUR)]), user("n"), user("o")]
    system, tools, out = placed(messages, stable_until=1)
    assert (system, tools, out[:3]) == ("sys", TOOLS, messages[:3])
    assert out[3] == user([text("o", cache_control=POINT)])


def test_the_most_is_never_passed() -> None:
    for given in range(MAX_POINTS + 1):
        system = [text(str(at), cache_control=POINT) if at < given else text(str(at)) for at in range(5)]
        messages = [user(str(at)) for at in range(6)]
        assert points(placed(messages, system, stable_until=4)) <= MAX_POINTS


def router(model: str, url: str = "https://openrouter.ai/api/v1") -> Endpoint:
    return endpoint(url, model=model)


def test_chat_points_are_for_claude_at_openrouter_only() -> None:
    assert wants_chat_points(router("anthropic/claude-sonnet-4.5"))
    assert not wants_chat_points(router("openai/gpt-5"))
    assert not wants_chat_points(router("claude-sonnet-4-5", "https://api.example.com/v1"))


def test_chat_points_stand_in_text_parts() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    result = {"role": "tool", "tool_call_id": "1", "content": "found"}
    image = {"type": "image_url", "image_url": {"url": "x"}}
    messages = [{"role": "system", "content": "sys"}, user([text("one"), image]), call, result]
    out = chat_points(messages, stable_until=2, tokens=9_000, model=CLAUDE)
    assert out == [
        {"role": "system", "content": [text("sys", cache_control=POINT)]},
        user([text("one", cache_control=POINT), image]),
        call,
        {**result, "content": [text("found", cache_control=POINT)]},
    ]
    assert messages[0] == {"role": "system", "content": "sys"}


def test_chat_messages_with_points_of_the_caller_or_too_few_tokens_are_left_alone() -> None:
    marked = [user([text("one", cache_control=POINT)]), user("two")]
    assert chat_points(marked, stable_until=0, tokens=9_000, model=CLAUDE) == marked
    assert chat_points([user("one")], stable_until=0, tokens=10, model=CLAUDE) == [user("one")]


def test_nothing_is_written_behind_what_is_sent_this_one_time() -> None:
    messages = [user("one"), said([text("two")]), user([text("three")]), user("the question")]
    before = placed(messages[:3], stable_until=1)
    system, tools, out = anthropic_points("sys", TOOLS, messages, stable_until=1, tokens=9_000, model=CLAUDE, once=1)
    assert (system, tools, out[:3]) == before
    assert out[3] is messages[3]


def test_a_request_that_is_sent_once_as_a_whole_writes_nothing() -> None:
    messages = [user("one"), said([text("two")])]
    found = anthropic_points("sys", TOOLS, messages, stable_until=0, tokens=9_000, model=CLAUDE, once=2)
    assert found == ("sys", TOOLS, messages)
    chat = [{"role": "system", "content": "sys"}, user("one")]
    assert chat_points(chat, stable_until=0, tokens=9_000, model=CLAUDE, once=1) == chat


def test_a_question_in_chat_leaves_the_points_of_the_request_before() -> None:
    chat = [{"role": "system", "content": "sys"}, user("one"), said("two"), user("three")]
    question = user("the question")
    before = chat_points(chat, stable_until=2, tokens=9_000, model=CLAUDE)
    after = chat_points([*chat, question], stable_until=2, tokens=9_000, model=CLAUDE, once=1)
    assert after == [*before, question]


def test_the_place_of_the_next_break_has_a_point_in_front_of_the_tools() -> None:
    messages = [user("one"), said("two"), user("three"), said("four"), user("five")]
    system, tools, out = anthropic_points(
        "sys", TOOLS, messages, stable_until=3, breaks_at=(2, 1), tokens=9_000, model=CLAUDE
    )
    assert [points(wire) for wire in out] == [0, 1, 1, 0, 1]
    assert points(system) == 1
    assert tools == TOOLS


def test_a_break_that_has_a_point_already_leaves_room_for_the_next_one() -> None:
    messages = [user("one"), said("two"), user("three"), said("four"), user("five")]
    _, _, out = anthropic_points("sys", TOOLS, messages, stable_until=3, breaks_at=(3, 1), tokens=9_000, model=CLAUDE)
    assert [points(wire) for wire in out] == [1, 0, 1, 0, 1]


def test_nothing_is_written_behind_what_will_hardly_come_again() -> None:
    messages = [user("one"), said("two"), user("three"), said("four"), user("five")]
    given: dict[str, Any] = {"stable_until": 1, "tokens": 9_000, "model": CLAUDE}
    _, _, out = anthropic_points("sys", TOOLS, messages, breaks_at=(3, 4), lasts_until=3, **given)
    assert [points(wire) for wire in out] == [1, 0, 1, 0, 0]
    system, tools, out = anthropic_points("sys", TOOLS, messages, lasts_until=0, **{**given, "stable_until": 0})
    assert out == messages
    assert points((system, tools)) == 2


def test_chat_points_keep_to_the_same_places_and_number() -> None:
    chat = [{"role": "system", "content": "sys"}, *(user(str(at)) for at in range(8))]
    out = chat_points(chat, stable_until=6, breaks_at=(3, 5), tokens=9_000, model=CLAUDE)
    assert [points(wire) for wire in out] == [1, 0, 1, 0, 0, 1, 0, 0, 1]
    out = chat_points(chat, stable_until=6, breaks_at=(3, 7), lasts_until=7, tokens=9_000, model=CLAUDE)
    assert [points(wire) for wire in out] == [1, 0, 1, 0, 0, 1, 1, 0, 0]


# --- the bill ---------------------------------------------------------------------------------------------------------


def bill(policy: Policy, *, forecast: bool, rounds: int = 60) -> float:
    """The input of a session at Anthropic's prices; its points stand as told by each request's forecast, or without."""
    context = Context(dialect="anthropic", model=CLAUDE, policy=policy, window=8_000, max_output_tokens=0, system="Go.")
    cache, paid = PromptCache(), 0.0
    for wire in session(rounds, result="This line is in order. " * 60, dialect="anthropic"):
        if wire["role"] == "assistant":
            request = context.prepare()
            if not forecast:
                request = replace(request, breaks_at=(), lasts_until=None)
            body = DIALECT.body(endpoint(dialect="anthropic", model=CLAUDE), request)
            assert breakpoints(body) <= MAX_POINTS
            tokens = count_body({"system": request.system, "messages": request.messages})
            found = cache.by_breakpoint(body, tokens)
            paid += tokens - 0.9 * found.read_tokens + 0.25 * found.written_tokens
        context.append(wire)
    return paid


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_forecast_makes_no_bill_higher(name: str) -> None:
    assert bill(POLICIES[name], forecast=True) <= bill(POLICIES[name], forecast=False)


def test_a_policy_whose_prefix_moves_at_each_request_pays_a_tenth_less() -> None:
    moving = replace(POLICIES["balanced"], guard=(), always=(Mask(keep_first=1, keep_last=4),))
    assert bill(moving, forecast=True) < 0.9 * bill(moving, forecast=False)
