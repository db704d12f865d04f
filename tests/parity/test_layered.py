"""The three-layer system, row by row: figures and texts to the letter."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import pytest
from tests.joints import unjoined

from foldline import POLICIES, Context, DoesNotFit, InvalidInput, check, fit
from foldline.agent.settings.document import YamlDocument, check_document
from foldline.agent.settings.layers import validate_merged
from foldline.agent.settings.model import SessionSettings
from foldline.engine.presets import layered
from foldline.engine.settings import ContextSettings, effective_limit, memory_limit
from foldline.messages import Wire
from foldline.reducers.drop import HistoryBudget, history_budget, omitted, truncated
from foldline.reducers.mask import Mask
from foldline.reducers.summarize import SUMMARY_PREFIX
from foldline.reducers.truncate import ResultLimit, cut_result
from foldline.testing import ScriptedModel, session
from foldline.text.shorten import extract
from foldline.tokens import ESTIMATE, system_tokens, tools_tokens
from foldline.view.transcript import Fold

DIALECTS = ("openai-chat", "openai-responses", "anthropic")
dialects = pytest.mark.parametrize("dialect", DIALECTS)


class Quarters:
    """Counts as the document does: four bytes are a token."""

    name = "bytes / 4"

    def text(self, text: str, /) -> int:
        """A quarter of the bytes, rounded up."""
        return -(-len(text.encode("utf-8", "surrogatepass")) // 4)


QUARTERS = Quarters()


def context(**settings: Any) -> Context:
    """A layered session, counted as in the document."""
    given: dict[str, Any] = {"policy": "layered", "window": 128_000, "max_output_tokens": 8_192, "counter": QUARTERS}
    return Context(**(given | settings))


def text(message: Wire) -> str:
    """All text of a message, in any dialect."""
    content = message.get("content", message.get("output", "")) or ""
    if isinstance(content, str):
        return content
    return "\n".join(text({"content": block.get("text", block.get("content", ""))}) for block in content)


def results(messages: Sequence[Wire]) -> list[str]:
    """The text of each tool result, in order, in any dialect."""
    out: list[str] = []
    for message in messages:
        if message.get("role") == "tool":
            out.append(str(message["content"]))
        elif message.get("type") == "function_call_output":
            out.append(str(message["output"]))
        elif message.get("role") == "user" and not isinstance(message["content"], str):
            out += [
                text({"content": block["content"]}) for block in message["content"] if block["type"] == "tool_result"
            ]
    return out


def said(dialect: str, role: str, words: str) -> Wire:
    """A message that only says something."""
    if dialect == "openai-responses":
        kind = "output_text" if role == "assistant" else "input_text"
        return {"type": "message", "role": role, "content": [{"type": kind, "text": words}]}
    return {"role": role, "content": words}


def talk(dialect: str, turns: int, *, words: int = 100) -> list[Wire]:
    """A conversation without tools that ends with a new question; each message has about `words` tokens."""
    out: list[Wire] = []
    for number in range(turns):
        out.append(said(dialect, "user", f"question {number} ".ljust(4 * words, "q")))
        out.append(said(dialect, "assistant", f"answer {number} ".ljust(4 * words, "a")))
    return [*out, said(dialect, "user", "and now?")]


def chat_round(number: int, result: str, tool: str = "read_file") -> list[Wire]:
    """One call and its result."""
    call = {"id": f"c{number}", "type": "function", "function": {"name": tool, "arguments": f'{{"n": {number}}}'}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": result},
    ]


# --- S3.01 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("claude-sonnet-4-20250514", 200_000),
        ("gpt-5-mini", 400_000),
        ("gpt-4.1-nano", 1_000_000),
        ("gpt-4o-2024-08-06", 128_000),
        ("gpt-4-turbo", 128_000),
        ("gpt-4", 128_000),
        ("google/gemini-2.5-pro", 1_000_000),
        ("x-ai/grok-4-fast", 2_000_000),
        ("grok-3", 131_072),
        ("deepseek-v3.1", 163_840),
        ("deepseek/deepseek-chat-v3-0324", 163_840),
        ("deepseek-r1", 128_000),
        ("Qwen3-235B", 131_072),
        ("qwen-max", 128_000),
        ("meta-llama/llama-4-maverick", 327_680),
        ("llama-3.3-70b", 128_000),
        ("mistral-large-2411", 262_144),
        ("mixtral-8x22b", 128_000),
        ("mistral-small", 128_000),
        ("something else", 128_000),
        (None, 128_000),
    ],
)
def test_s3_01_the_window_by_the_models_name(model: str | None, window: int) -> None:
    assert effective_limit(None, model) == window


def test_s3_01_the_agents_own_setting_goes_first() -> None:
    assert effective_limit(150_000, "claude-sonnet-4-20250514") == 150_000
    with pytest.raises(InvalidInput, match="max_input_tokens: must be greater than 0, not 0"):
        effective_limit(0, "claude")


def test_s3_01_a_context_of_an_unknown_model_has_the_window_of_its_family() -> None:
    with pytest.warns(UserWarning, match="131,072"):
        unknown = Context(policy="layered", model="qwen3-not-in-the-catalogue")
    assert unknown.limits.window_tokens == 131_072
    with pytest.warns(UserWarning, match="128,000"):
        assert Context(policy="layered", model="nobody-knows").limits.window_tokens == 128_000
    assert Context(policy="layered", window=effective_limit(150_000, "claude")).limits.window_tokens == 150_000


# --- S3.02, the figure ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("max_input", "messages"),
    [(None, 1_000), (1, 100), (10_000, 100), (50_000, 500), (128_000, 1_280), (200_000, 2_000), (1_000_000, 2_000)],
)
def test_s3_02_messages_held_in_memory(max_input: int | None, messages: int) -> None:
    assert memory_limit(max_input) == messages


# --- S3.03 ------------------------------------------------------------------------------------------------------------


def test_s3_03_the_budget_is_what_is_left_capped() -> None:
    assert history_budget(200_000, 3_000, 2_000, 8_192, 0) == 200_000 - 3_000 - 2_000 - 8_192 - 20_000
    assert history_budget(200_000, 3_000, 2_000, 8_192, 20_000) == 20_000
    assert history_budget(16_000, 3_000, 2_000, 8_192, 20_000) == 16_000 - 3_000 - 2_000 - 8_192 - 1_600
    assert history_budget(8_000, 3_000, 2_000, 8_192, 20_000) == 0


def test_s3_03_the_notice_to_the_letter() -> None:
    assert truncated(47) == "[conversation truncated — 47 older messages omitted]"


@dialects
def test_s3_03_history_is_filled_newest_to_oldest(dialect: str) -> None:
    wires = talk(dialect, 200)
    ctx = context(dialect=dialect)
    ctx.extend(wires)
    request = ctx.prepare()
    notice, *kept = unjoined(request.messages)
    assert list(kept) == wires[len(wires) - len(kept) :]
    omitted_count = len(wires) - len(kept)
    assert text(notice) == f"[conversation truncated — {omitted_count} older messages omitted]"
    assert notice["role"] == ("user" if dialect == "anthropic" else "system")
    view = ctx.view
    history = view.estimated_tokens
    assert history <= 20_000
    one_more = ctx.view.entries[omitted_count - 1].tokens
    assert history + one_more > 20_000, "one more message would have fitted"
    assert check(request.messages, dialect=dialect) == []


@dialects
def test_s3_03_each_turn_has_one_notice_with_the_whole_number(dialect: str) -> None:
    ctx = context(dialect=dialect)
    ctx.extend(talk(dialect, 200))
    ctx.prepare()
    for number in range(3):
        ctx.append(said(dialect, "assistant", "b" * 8_000))
        ctx.append(said(dialect, "user", f"next {number}"))
        request = ctx.prepare()
        notices = [text(m) for m in request.messages if "conversation truncated" in text(m)]
        gone = 401 + 2 * (number + 1) - (len(unjoined(request.messages)) - 1)
        assert notices == [truncated(gone)]
        assert ctx.view.estimated_tokens <= 20_000


def test_s3_03_zero_is_no_cap_and_then_the_formula_decides() -> None:
    system = "You are terse. " * 40
    tools = [{"type": "function", "function": {"name": "f", "description": "d" * 400, "parameters": {}}}]
    wires = talk("openai-chat", 300)
    settings = ContextSettings(max_history_tokens=0)
    ctx = context(policy=layered(settings), window=40_000, max_output_tokens=4_000, system=system, tools=tools)
    ctx.extend(wires)
    request = ctx.prepare()
    budget = history_budget(40_000, system_tokens(system, QUARTERS), tools_tokens(tools, QUARTERS), 4_000, 0)
    history = ctx.view.estimated_tokens - ctx.view.base_tokens
    gone = len(wires) - (len(request.messages) - 1)
    assert history <= budget < history + ctx.view.entries[gone - 1].tokens
    assert text(request.messages[0]) == truncated(gone)


def test_s3_03_nothing_happens_within_the_budget() -> None:
    wires = talk("openai-chat", 80)
    ctx = context()
    ctx.extend(wires)
    assert ctx.prepare().messages == wires


def test_s3_03_the_system_message_stays_before_the_notice() -> None:
    wires = [{"role": "system", "content": "Be brief."}, *talk("openai-chat", 200)]
    ctx = context()
    ctx.extend(wires)
    request = ctx.prepare()
    assert request.messages[0] == wires[0]
    assert text(request.messages[1]) == truncated(len(wires) - (len(unjoined(request.messages)) - 1))
    assert [message["role"] for message in request.messages].count("system") == 1, "templates want one"


def test_s3_03_the_prefix_does_not_move_within_a_turn() -> None:
    ctx = context()
    ctx.extend(talk("openai-chat", 200))
    ctx.prepare()
    for number in range(6):
        ctx.extend(chat_round(number, "r" * 4_000))
        request = ctx.prepare()
        assert not request.folds
        assert request.stable_until == len(request.messages) - 2


def test_s3_03_a_newest_message_over_the_budget_is_sent_alone() -> None:
    ctx = context()
    ctx.extend([*talk("openai-chat", 20)[:-1], {"role": "user", "content": "x" * 90_000}])
    request = ctx.prepare()
    assert [text(m) for m in request.messages] == [truncated(40), "x" * 90_000]


def test_s3_03_fit_leaves_out_the_oldest_too() -> None:
    wires = talk("openai-chat", 300)
    out = fit(wires, max_tokens=40_000, policy="layered", counter=QUARTERS)
    gone = len(wires) - (len(out.messages) - 1)
    assert text(out.messages[0]) == truncated(gone)
    assert out.messages[1:] == wires[gone:]
    assert 19_800 < out.tokens <= 20_000


# --- S3.05 ------------------------------------------------------------------------------------------------------------


def test_s3_05_three_strategies_three_indicators() -> None:
    whole = "h" * 100_000 + "t" * 108_000
    assert cut_result(whole, 8_000, "head", QUARTERS) == (
        "h" * 32_000 + "\n[truncated: kept first ~8000 of ~52000 tokens (head)]"
    )
    assert cut_result(whole, 8_000, "tail", QUARTERS) == (
        "[truncated: kept last ~8000 of ~52000 tokens (tail)]\n" + "t" * 32_000
    )
    assert cut_result(whole, 8_000, "both", QUARTERS) == (
        "h" * 16_000 + "\n[truncated: kept first+last ~8000 of ~52000 tokens (both)]\n" + "t" * 16_000
    )
    assert cut_result("h" * 32_000, 8_000, "head", QUARTERS) == "h" * 32_000


def test_s3_05_a_cut_that_its_indicator_makes_longer_is_not_made() -> None:
    slightly_over = "h" * 32_008
    assert cut_result(slightly_over, 8_000, "head", QUARTERS) == slightly_over


@dialects
@pytest.mark.parametrize("mode", ["head", "tail", "both"])
def test_s3_05_results_are_cut_before_they_are_sent_once(dialect: str, mode: Any) -> None:
    ctx = context(dialect=dialect, policy=layered(ContextSettings(tool_result_truncation=mode)))
    ctx.extend(session(1, dialect=dialect, result="#" * 208_000))
    request = ctx.prepare()
    kept = {"head": "first", "tail": "last", "both": "first+last"}[mode]
    (shown,) = results(request.messages)
    assert f"[truncated: kept {kept} ~8000 of ~52000 tokens ({mode})]" in shown
    assert shown.count("#") == 32_000
    assert check(request.messages, dialect=dialect) == []
    assert ctx.prepare().messages == request.messages, "it is cut once"
    ctx.append(said(dialect, "user", "go on"))
    assert results(ctx.prepare().messages) == [shown]


def test_s3_05_failed_results_are_cut_too() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "bash", "input": {}}
    failed = {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": "E" * 208_000}
    ctx = context(dialect="anthropic")
    ctx.extend(
        [
            {"role": "user", "content": "run it"},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [failed]},
        ]
    )
    block = ctx.prepare().messages[2]["content"][0]
    assert block["is_error"] is True
    assert text(block).endswith("[truncated: kept first ~8000 of ~52000 tokens (head)]")


def test_s3_05_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidInput, match="max_tool_result_tokens: must be greater than 0, not 0"):
        ContextSettings(max_tool_result_tokens=0)
    with pytest.raises(InvalidInput, match="max_tool_result_tokens: must be greater than 0, not 0"):
        ResultLimit(0)


# --- S3.06 ------------------------------------------------------------------------------------------------------------


@dialects
def test_s3_06_the_first_two_and_the_last_five_stay(dialect: str) -> None:
    ctx = context(dialect=dialect)
    wires = session(12, dialect=dialect, result="r" * 4_000)
    ctx.extend(wires)
    request = ctx.prepare()
    shown = results(request.messages)
    whole, hidden = "r" * 4_000, "[result masked — ~1000 tokens removed]"
    assert shown == [whole] * 2 + [hidden] * 5 + [whole] * 5
    calls = [m for m in wires if "tool_calls" in m or m.get("type") == "function_call" or m.get("role") == "assistant"]
    assert [m for m in request.messages if m in calls] == calls, "calls and arguments stay as they are"
    assert check(request.messages, dialect=dialect) == []


@dialects
def test_s3_06_seven_results_are_all_shown(dialect: str) -> None:
    wires = session(7, dialect=dialect, result="r" * 4_000)
    ctx = context(dialect=dialect)
    ctx.extend(wires)
    assert ctx.prepare().messages == list(wires)


def test_s3_06_the_window_moves_by_one_result_at_a_time() -> None:
    ctx = context()
    ctx.append({"role": "user", "content": "go"})
    for number in range(14):
        ctx.extend(chat_round(number, f"{number:02d}".ljust(2_000, "r")))
        shown = results(ctx.prepare().messages)
        for place, result in enumerate(shown):
            masked = 2 <= place < number + 1 - 5
            assert result == ("[result masked — ~500 tokens removed]" if masked else f"{place:02d}".ljust(2_000, "r"))


@pytest.mark.parametrize(("first", "last"), [(0, 0), (0, 3), (3, 0), (1, 1), (50, 50)])
def test_s3_06_both_windows_are_settings(first: int, last: int) -> None:
    ctx = context(policy=layered(ContextSettings(tool_result_keep_first=first, tool_result_keep_last=last)))
    ctx.extend(session(10, result="r" * 2_000))
    hidden = ["masked" in shown for shown in results(ctx.prepare().messages)]
    expected = [first <= place < 10 - last for place in range(10)] if first or last else [False] * 10
    assert hidden == expected


def test_s3_06_a_placeholder_is_never_longer_than_what_it_hides() -> None:
    ctx = context()
    ctx.extend(session(12, result="ok"))
    assert results(ctx.prepare().messages) == ["ok"] * 12
    placeholder = "[result masked — ~1000 tokens removed]"
    small = context()
    small.extend(session(12, result="x" * len(placeholder.encode())))
    assert results(small.prepare().messages) == ["x" * len(placeholder.encode())] * 12


def test_s3_06_a_masked_result_is_not_masked_again_with_a_smaller_figure() -> None:
    ctx = context()
    ctx.extend(session(12, result="r" * 4_000))
    first = results(ctx.prepare().messages)
    assert results(ctx.prepare().messages) == first
    ctx.append({"role": "user", "content": "go on"})
    for number in range(20, 26):
        ctx.extend(chat_round(number, "s" * 4_000))
        shown = results(ctx.prepare().messages)
        assert shown[2:7] == ["[result masked — ~1000 tokens removed]"] * 5
    assert not any("~1 " in one or "~9 " in one or "~10 " in one for one in results(ctx.prepare().messages))


def test_s3_06_results_of_one_message_are_masked_one_by_one() -> None:
    """Anthropic puts all results of a turn into one message; the windows may run through the middle of it."""
    calls = [{"type": "tool_use", "id": f"t{i}", "name": "read", "input": {"n": i}} for i in range(6)]
    blocks = [{"type": "tool_result", "tool_use_id": f"t{i}", "content": f"{i}" * 4_000} for i in range(6)]
    ctx = context(dialect="anthropic")
    ctx.extend(
        [
            {"role": "user", "content": "read all"},
            {"role": "assistant", "content": calls},
            {"role": "user", "content": blocks},
        ]
    )
    hidden = "[result masked — ~1000 tokens removed]"
    assert results(ctx.prepare().messages) == [f"{i}" * 4_000 for i in range(6)]
    for number in range(3):
        more = {"type": "tool_use", "id": f"u{number}", "name": "read", "input": {}}
        answer = {"type": "tool_result", "tool_use_id": f"u{number}", "content": "u" * 4_000}
        ctx.extend([{"role": "assistant", "content": [more]}, {"role": "user", "content": [answer]}])
        shown = results(ctx.prepare().messages)
        whole = [*(f"{i}" * 4_000 for i in range(6)), *(["u" * 4_000] * (number + 1))]
        assert shown == [hidden if 2 <= place < number + 2 else one for place, one in enumerate(whole)]


def test_s3_06_the_figure_is_what_leaves_the_view() -> None:
    ctx = context()
    ctx.append({"role": "user", "content": "go"})
    for number in range(9):
        ctx.extend(chat_round(number, "r" * 208_000))
        ctx.prepare()
    shown = results(ctx.prepare().messages)
    indicator = "\n[truncated: kept first ~8000 of ~52000 tokens (head)]"
    cut = -(-(32_000 + len(indicator)) // 4)
    assert shown[2] == f"[result masked — ~{cut} tokens removed]" == "[result masked — ~8014 tokens removed]"


def test_s3_06_the_preset_has_the_documents_windows() -> None:
    assert Mask() == Mask(keep_first=2, keep_last=5)
    assert Mask() in POLICIES["layered"].always


def test_s3_06_a_result_shortened_under_pressure_is_masked_when_its_turn_comes() -> None:
    ctx = context(window=9_000, max_output_tokens=0)
    ctx.append({"role": "user", "content": "go"})
    ctx.extend(chat_round(0, "line of text\n" * 2_000))
    for number in range(1, 12):
        ctx.extend(chat_round(number, f"result {number}\n" * 200))
        ctx.prepare()
    shown = results(ctx.prepare().messages)
    assert all("masked" in one or len(one) < 200 for one in shown[2:-5]), shown


# --- S3.07 ------------------------------------------------------------------------------------------------------------


def test_s3_07_the_budget_of_the_loop() -> None:
    ctx = context(window=100_000, max_output_tokens=8_000)
    assert ctx.policy.trigger.limit_tokens(ctx.limits) == 100_000 - 8_000 - 10_000
    assert ctx.policy.trigger.limit_tokens(context(window=1_000, max_output_tokens=950).limits) > 0


@dialects
def test_s3_07_whole_groups_leave_oldest_first(dialect: str) -> None:
    """Masking switched off, so that only dropping helps."""
    plain = layered(ContextSettings(tool_result_keep_first=0, tool_result_keep_last=0))
    ctx = context(dialect=dialect, policy=plain, window=20_000, max_output_tokens=2_000)
    history = [said(dialect, "user", "Earlier question."), said(dialect, "assistant", "Earlier answer.")]
    loop = list(session(30, dialect=dialect, result="r" * 4_000))
    ctx.extend([*history, *loop])
    request = ctx.prepare()
    messages = unjoined(request.messages)
    assert messages[:3] == [*history, loop[0]], "conversation history stays"
    assert messages[-2:] == loop[-2:], "the newest group stays"
    rest = messages[4:]
    gone = len(loop) - 1 - len(rest)
    assert text(messages[3]) == omitted(gone)
    assert gone % 2 == 0, "pairs never break"
    assert rest == loop[1 + gone :], "the oldest left, nothing else changed"
    assert request.tokens <= 20_000 - 2_000 - 2_000
    assert {fold.reducer for fold in request.folds if isinstance(fold, Fold)} == {"drop_groups"}
    assert check(request.messages, dialect=dialect) == []


def test_s3_07_it_comes_after_masking() -> None:
    ctx = context(window=20_000, max_output_tokens=2_000)
    ctx.extend(session(30, result="r" * 4_000))
    request = ctx.prepare()
    assert {fold.reducer for fold in request.folds if isinstance(fold, Fold)} == {"mask"}


def test_s3_07_parallel_calls_leave_together() -> None:
    plain = layered(ContextSettings(tool_result_keep_first=0, tool_result_keep_last=0))
    wires: list[Wire] = [{"role": "user", "content": "go"}]
    for number in range(12):
        calls = [
            {"id": f"c{number}-{i}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in range(3)
        ]
        wires.append({"role": "assistant", "content": None, "tool_calls": calls})
        wires += [{"role": "tool", "tool_call_id": call["id"], "content": "r" * 2_000} for call in calls]
    ctx = context(policy=plain, window=12_000, max_output_tokens=1_000)
    ctx.extend(wires)
    request = ctx.prepare()
    kept = unjoined(request.messages)[2:]
    assert kept == wires[-len(kept) :]
    assert len(kept) % 4 == 0
    assert check(request.messages) == []


def test_s3_07_dropping_again_makes_one_notice_of_two() -> None:
    plain = layered(ContextSettings(tool_result_keep_first=0, tool_result_keep_last=0))
    ctx = context(policy=plain, window=10_000, max_output_tokens=1_000)
    ctx.append({"role": "user", "content": "go"})
    for number in range(40):
        ctx.extend(chat_round(number, "r" * 2_000))
        request = ctx.prepare()
        notices = [m for m in request.messages if "earlier messages omitted" in text(m)]
        assert len(notices) <= 1
        assert request.messages[0] == {"role": "user", "content": "go"}
        assert request.tokens <= 10_000 - 1_000 - 1_000
    gone = 80 - (len(unjoined(request.messages)) - 2)
    assert text(unjoined(request.messages)[1]) == omitted(gone)


# --- S3.08 ------------------------------------------------------------------------------------------------------------


def session_settings(block: Any, lines: dict[str, int] | None = None) -> SessionSettings:
    """The settings in a parsed `session` block of a file, with the lines of its fields."""
    file = check_document(YamlDocument({"session": block}, lines or {}), file="agent.yaml")
    if file.faults:
        raise file.faults[0]
    found = validate_merged(file.defaults).session
    assert found is not None
    return found


def test_s3_08_every_field_and_block_is_optional() -> None:
    defaults = SessionSettings()
    assert (defaults.on_disconnect, defaults.max_tool_iterations) == ("pause", 25)
    assert (
        defaults.context.max_history_tokens,
        defaults.context.max_tool_result_tokens,
        defaults.context.tool_result_truncation,
        defaults.context.tool_result_keep_first,
        defaults.context.tool_result_keep_last,
    ) == (20_000, 8_000, "head", 2, 5)
    blocks: tuple[Any, ...] = (None, {}, {"context": None}, {"context": {}}, {"on_disconnect": "pause"})
    for block in blocks:
        assert session_settings(block) == defaults
    assert session_settings({"context": {"tool_result_keep_last": 3}}) == SessionSettings(
        context=ContextSettings(tool_result_keep_last=3)
    )


def test_s3_08_all_fields_together() -> None:
    block = {
        "on_disconnect": "continue",
        "max_tool_iterations": 7,
        "context": {
            "max_history_tokens": 0,
            "max_tool_result_tokens": 500,
            "tool_result_truncation": "both",
            "tool_result_keep_first": 0,
            "tool_result_keep_last": 1,
            "tool_result_limits": {"bash": 100},
            "summarize_omitted": True,
        },
    }
    read = session_settings(block)
    assert (read.on_disconnect, read.max_tool_iterations) == ("continue", 7)
    assert read.context == ContextSettings(
        max_history_tokens=0,
        max_tool_result_tokens=500,
        tool_result_truncation="both",
        tool_result_keep_first=0,
        tool_result_keep_last=1,
        tool_result_limits={"bash": 100},
        summarize_omitted=True,
    )


@pytest.mark.parametrize(
    ("block", "place", "reason"),
    [
        ({"context": {"max_tool_result_tokens": 0}}, "session.context.max_tool_result_tokens", "greater than 0, not 0"),
        ({"context": {"max_tool_result_tokens": "8k"}}, "session.context.max_tool_result_tokens", "whole number"),
        ({"context": {"max_history_tokens": -1}}, "session.context.max_history_tokens", "0 or more, not -1"),
        ({"context": {"max_history_tokens": True}}, "session.context.max_history_tokens", "whole number, not True"),
        ({"context": {"max_history_tokens": None}}, "session.context.max_history_tokens", "whole number, not nothing"),
        ({"context": {"tool_result_keep_last": 2.5}}, "session.context.tool_result_keep_last", "whole number"),
        (
            {"context": {"tool_result_truncation": "middle"}},
            "session.context.tool_result_truncation",
            "head, tail, both",
        ),
        ({"context": {"tool_result_truncation": ["head"]}}, "session.context.tool_result_truncation", "one of"),
        ({"context": {"tool_result_limits": {"bash": 0}}}, "session.context.tool_result_limits.bash", "from 1 to"),
        ({"context": {"tool_result_limits": 3}}, "session.context.tool_result_limits", "a block of names"),
        ({"context": {"summarize_omitted": "maybe"}}, "session.context.summarize_omitted", "true or false"),
        ({"context": {"max_histroy_tokens": 1}}, "session.context.max_histroy_tokens", "is not a setting; nearest is"),
        ({"context": [1]}, "session.context", "a block of fields"),
        ({"max_tool_iterations": 0}, "session.max_tool_iterations", "greater than 0, not 0"),
        ({"on_disconnect": "explode"}, "session.on_disconnect", "one of pause, continue, not 'explode'"),
        ({"contxt": {}}, "session.contxt", "is not a setting; nearest is 'context'"),
        (["pause"], "session", "a block of fields"),
    ],
)
def test_s3_08_a_bad_value_names_file_line_and_field(block: Any, place: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        session_settings(block, {place: 12})
    assert caught.value.place == f"agent.yaml: line 12: {place}"
    assert str(caught.value).startswith(f"agent.yaml: line 12: {place}: ")
    assert reason in caught.value.reason


def test_s3_08_the_line_of_the_block_stands_in_where_a_field_has_none() -> None:
    with pytest.raises(InvalidInput) as caught:
        session_settings({"context": {"tool_result_keep_last": -1}}, {"session.context": 4})
    assert caught.value.place == "agent.yaml: line 4: session.context.tool_result_keep_last"
    with pytest.raises(InvalidInput) as caught:
        session_settings({"max_tool_iterations": "x"})
    assert caught.value.place == "agent.yaml: session.max_tool_iterations"


def test_s3_08_the_settings_make_the_policy() -> None:
    own = layered(ContextSettings(max_history_tokens=500, max_tool_result_tokens=90, tool_result_truncation="tail"))
    assert own.always == (HistoryBudget(500), Mask())
    assert own.guard == (ResultLimit(90, "tail"),)
    assert layered(ContextSettings()) == POLICIES["layered"]


# --- S3.09 ------------------------------------------------------------------------------------------------------------


@dialects
def test_s3_09_a_long_session_never_becomes_unusable(dialect: str) -> None:
    """Turns and loops with large results, thirty windows of them: every request is valid and within its budget."""
    ctx = context(dialect=dialect, window=16_000, max_output_tokens=1_000)
    for turn in range(36):
        ctx.append(said(dialect, "user", f"turn {turn}: " + "w" * 3_000))
        for step in range(turn % 7):
            ctx.extend(_renamed(session(1, dialect=dialect, result="r" * (500 + 9_000 * (step % 3))), turn, step))
            request = ctx.prepare()
            assert request.tokens <= ctx.limits.input_tokens
            assert check(request.messages, dialect=dialect) == []
        ctx.append(said(dialect, "assistant", f"done {turn}: " + "d" * 2_000))
        assert ctx.prepare().tokens <= ctx.limits.input_tokens
    assert len(ctx.view.entries) > 200


def _renamed(wires: Sequence[Wire], turn: int, step: int) -> list[Wire]:
    """One round without its task, with ids of its own."""
    ids = json.dumps(wires[1:]).replace("call_0", f"call_{turn}_{step}").replace("fc_0", f"fc_{turn}_{step}")
    return list(json.loads(ids))


@dialects
def test_s3_09_even_one_endless_turn_fits(dialect: str) -> None:
    ctx = context(dialect=dialect, window=8_000, max_output_tokens=500)
    ctx.append(said(dialect, "user", "w" * 12_000))
    for step in range(60):
        ctx.extend(_renamed(session(1, dialect=dialect, result="r" * 6_000), 0, step))
        request = ctx.prepare()
        assert request.tokens <= ctx.limits.input_tokens
        assert check(request.messages, dialect=dialect) == []


def test_s3_09_what_cannot_fit_is_named() -> None:
    ctx = context(window=2_000, max_output_tokens=100)
    ctx.append({"role": "user", "content": "x" * 20_000})
    with pytest.raises(DoesNotFit, match="newest user message"):
        ctx.prepare()


# --- S3.10 ------------------------------------------------------------------------------------------------------------


def test_s3_10_what_is_left_out_is_summed_up_first() -> None:
    model = ScriptedModel(["Goal: answer questions 0 to many.", "Goal: the same, updated."])
    ctx = context(policy=layered(ContextSettings(summarize_omitted=True)))
    wires = talk("openai-chat", 150)
    ctx.extend(wires)
    request = ctx.prepare(model)
    assert text(request.messages[0]) == f"{SUMMARY_PREFIX}\nGoal: answer questions 0 to many."
    assert "question 0 " in model.calls[0].text
    assert "answer 10 " in model.calls[0].text
    assert not any("conversation truncated" in text(m) for m in request.messages)
    assert ctx.view.estimated_tokens <= 20_000
    assert ctx.prepare(model).messages == request.messages
    assert len(model.calls) == 1
    ctx.extend([{"role": "assistant", "content": "b" * 30_000}, {"role": "user", "content": "and then?"}])
    request = ctx.prepare(model)
    assert text(request.messages[0]) == f"{SUMMARY_PREFIX}\nGoal: the same, updated."
    assert "Goal: answer questions 0 to many." in model.calls[1].text, "the earlier summary is updated"
    assert len([m for m in request.messages if text(m).startswith(SUMMARY_PREFIX)]) == 1


@pytest.mark.parametrize("failing", [None, RuntimeError("model down"), "", "I'm sorry, I can't do that."])
def test_s3_10_without_a_summary_it_leaves_as_before(failing: Any) -> None:
    ctx = context(policy=layered(ContextSettings(summarize_omitted=True)))
    wires = talk("openai-chat", 150)
    ctx.extend(wires)
    request = ctx.prepare(None if failing is None else ScriptedModel([failing], repeat=True))
    plain = context()
    plain.extend(wires)
    assert request.messages == plain.prepare().messages
    assert "conversation truncated" in text(request.messages[0])


def test_s3_10_a_summary_is_not_left_out_when_the_model_fails_later() -> None:
    model = ScriptedModel(["Goal: keep this.", RuntimeError("model down")], repeat=True)
    ctx = context(policy=layered(ContextSettings(summarize_omitted=True)))
    ctx.extend(talk("openai-chat", 150))
    ctx.prepare(model)
    ctx.extend([{"role": "assistant", "content": "b" * 30_000}, {"role": "user", "content": "and then?"}])
    request = ctx.prepare(model)
    assert text(request.messages[0]) == f"{SUMMARY_PREFIX}\nGoal: keep this."
    assert "conversation truncated" in text(unjoined(request.messages)[1])


def test_s3_10_dropped_groups_of_a_loop_are_summed_up_too() -> None:
    settings = ContextSettings(tool_result_keep_first=0, tool_result_keep_last=0, summarize_omitted=True)
    model = ScriptedModel(["Done: read many files."], repeat=True)
    ctx = context(policy=layered(settings), window=20_000, max_output_tokens=2_000)
    ctx.extend(session(30, result="r" * 4_000))
    request = ctx.prepare(model)
    assert text(unjoined(request.messages)[1]) == f"{SUMMARY_PREFIX}\nDone: read many files."
    assert len(model.calls) >= 1
    assert "call read_file" in model.calls[0].text
    assert check(request.messages) == []
    assert request.tokens <= 16_000


def test_s3_10_an_exact_counter_takes_the_place_of_the_estimate() -> None:
    class Words:
        """A tokenizer of its own: each word is a token."""

        name = "words"

        def text(self, text: str, /) -> int:
            return len(text.split())

    wires = [{"role": "user", "content": "one two three"}, *chat_round(0, "word " * 10_000)]
    ctx = context(counter=Words(), policy=layered(ContextSettings(max_tool_result_tokens=100)))
    ctx.extend(wires)
    (shown,) = results(ctx.prepare().messages)
    assert shown.endswith("[truncated: kept first ~100 of ~10000 tokens (head)]")
    assert shown.count("word ") in {99, 100}
    assert ctx.view.entries[0].tokens == 4 + 3


def test_s3_10_names_that_were_used_weigh_more() -> None:
    lines = [f"item_{number:04d} = load(value_{number:04d})" for number in range(400)]
    wanted = lines[217]
    plain = extract("\n".join(lines), 300, ESTIMATE)
    weighed = extract("\n".join(lines), 300, ESTIMATE, {"item_0217": 2})
    assert wanted not in plain
    assert wanted in weighed


def test_s3_10_a_line_the_user_named_survives_in_a_session() -> None:
    lines = [f"item_{number:04d} = load(value_{number:04d})" for number in range(2_000)]
    for question, survives in (("What is item_0917?", True), ("What is all this?", False)):
        ctx = Context(policy="balanced", window=8_000, max_output_tokens=500)
        ctx.extend([{"role": "user", "content": question}, *chat_round(0, "\n".join(lines))])
        (shown,) = results(ctx.prepare().messages)
        assert len(shown) < 20_000
        assert (lines[917] in shown) is survives


def test_s3_10_each_tool_may_have_a_limit_of_its_own() -> None:
    limits = MappingProxyType({"bash": 1_000, "web_search": 20_000})
    ctx = context(policy=layered(ContextSettings(tool_result_limits=limits)))
    ctx.append({"role": "user", "content": "go"})
    for number, tool in enumerate(("bash", "web_search", "read_file")):
        ctx.extend(chat_round(number, "r" * 60_000, tool))
    shown = results(ctx.prepare().messages)
    assert shown[0].endswith("[truncated: kept first ~1000 of ~15000 tokens (head)]")
    assert shown[1] == "r" * 60_000
    assert shown[2].endswith("[truncated: kept first ~8000 of ~15000 tokens (head)]")


def hidden_session(dialect: str = "openai-chat") -> Context:
    """A session in which the results in the middle are masked, and the oldest turns left out."""
    ctx = context(dialect=dialect, policy=layered(ContextSettings(max_history_tokens=500)))
    ctx.extend(talk(dialect, 20))
    body = "\n".join(f"line {n}: value_{n}" for n in range(1, 301))
    for step in range(9):
        ctx.extend(_renamed(session(1, dialect=dialect, result=f"result {step}\n{body}"), 1, step))
    ctx.prepare()
    return ctx


@dialects
def test_s3_10_a_hidden_result_can_be_looked_into_by_line(dialect: str) -> None:
    ctx = hidden_session(dialect)
    seq = next(s for s, e in ctx.view.entries.items() if any(r.text.startswith("result 3") for r in e.message.results))
    assert ctx.explain(seq), "it is masked"
    assert ctx.peek(seq, lines=2) == ("result 3\nline 1: value_1\n[lines 1-2 of 301; go on with start_line=3]")
    assert ctx.peek(seq, start_line=300) == "line 299: value_299\nline 300: value_300"
    assert ctx.peek(seq, call_id="call_1_3", lines=1).startswith("result 3\n")


def test_s3_10_a_left_out_message_can_be_looked_into() -> None:
    ctx = hidden_session()
    assert ctx.explain(0)
    assert ctx.peek(0).startswith("question 0 qqq")


def test_s3_10_a_call_can_be_looked_into_by_its_id() -> None:
    ctx = hidden_session()
    seq = next(s for s, e in ctx.view.entries.items() if any(c.id == "call_1_4" for c in e.message.calls))
    assert ctx.peek(seq, call_id="call_1_4") == 'read_file {"path": "src/0.py"}'


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ({"seq": 9_999}, "seq"),
        ({"seq": 0, "start_line": 0}, "start_line"),
        ({"seq": 0, "start_line": "2"}, "start_line"),
        ({"seq": 0, "start_line": 2}, "start_line"),
        ({"seq": 0, "lines": 0}, "lines"),
        ({"seq": 0, "lines": True}, "lines"),
        ({"seq": 0, "call_id": "nobody"}, "call_id"),
    ],
)
def test_s3_10_a_look_at_nothing_says_so(arguments: dict[str, Any], place: str) -> None:
    seq = arguments.pop("seq")
    with pytest.raises(InvalidInput) as caught:
        hidden_session().peek(seq, **arguments)
    assert caught.value.place == place


def test_s3_10_a_look_is_bounded() -> None:
    ctx = context()
    ctx.append({"role": "user", "content": "\n".join(["short"] * 5_000)})
    ctx.append({"role": "assistant", "content": "x" * 1_000_000})
    assert ctx.peek(0, lines=5_000).count("short") == 400
    assert ctx.peek(0, lines=5_000).endswith("[lines 1-400 of 5,000; go on with start_line=401]")
    long = ctx.peek(1)
    assert len(long) < 20_100
    assert long.endswith("… [980,000 more characters in this line]")


@dialects
def test_s3_10_hidden_and_shown_text_is_searched_alike(dialect: str) -> None:
    ctx = hidden_session(dialect)
    found = ctx.grep(r"value_29[0-3]$")
    assert len(found) == 9 * 4
    seqs = sorted({seq for seq, _, _ in found})
    assert len(seqs) == 9
    assert any(ctx.explain(seq) for seq in seqs)
    assert not all(ctx.explain(seq) for seq in seqs)
    assert found[0] == (seqs[0], 291, "line 290: value_290")
    assert ctx.peek(seqs[0], start_line=291, lines=1).startswith("line 290: value_290")
    assert ctx.grep(r"value_290$", seq=seqs[3]) == [(seqs[3], 291, "line 290: value_290")]
    assert [seq for seq, _, _ in ctx.grep("question 0 ")] == [0]
    assert ctx.grep("no such thing") == []


def test_s3_10_a_search_is_bounded() -> None:
    ctx = context()
    ctx.append({"role": "user", "content": "\n".join(["needle"] * 5_000)})
    ctx.append({"role": "assistant", "content": "x" * 100_000 + "NEEDLE" + "y" * 100_000})
    assert len(ctx.grep("needle")) == 200
    ((seq, number, line),) = ctx.grep("NEEDLE")
    assert (seq, number) == (1, 1)
    assert "NEEDLE" in line
    assert len(line) <= 402


@pytest.mark.parametrize(
    "pattern", ["(", "[a", "a**", "(?P<n>", "*a", r"(a)\1", "(?=a)b", "x" * 2_000, "((a{99}){99})"]
)
def test_s3_10_a_pattern_that_cannot_be_searched_for_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        hidden_session().grep(pattern)
    assert caught.value.place == "pattern"


def test_s3_10_no_pattern_can_hang_a_session() -> None:
    """Each of these keeps a backtracking matcher busy for longer than the universe is old."""
    ctx = context()
    ctx.append({"role": "user", "content": "a" * 20_000 + "!"})
    for pattern in (r"(a+)+$", r"(a|a)+$", r"(.*a){20}b", r"(a?){50}a{50}b", r"^(([a-z])+.)+[A-Z]([a-z])+$"):
        assert ctx.grep(pattern) == []
