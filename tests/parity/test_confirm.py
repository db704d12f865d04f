"""The system with token display, consent and guards, row by row: figures and texts to the letter."""

from __future__ import annotations

from typing import Any

import pytest

from foldline import POLICIES, Context, InvalidInput, SummaryError, check, fit
from foldline.display import (
    Room,
    RunNotice,
    colour,
    compact_question,
    compacted,
    file_refusal,
    file_view,
    preview,
    summary_of,
    telegram_compacted,
    telegram_footer,
    telegram_warning,
    threshold_question,
    token_line,
)
from foldline.engine.events import ContextEvent, ThresholdReached
from foldline.engine.presets import confirm
from foldline.engine.settings import compact_threshold
from foldline.engine.window_usage import WindowUsage
from foldline.messages import Wire
from foldline.reducers.result_share import TurnShare, cut_share, share_tokens
from foldline.reducers.summarize import ACKNOWLEDGEMENT, SUMMARY_PREFIX
from foldline.testing import ScriptedModel, session
from foldline.view.budget import TokenLimits, consent_tokens

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
    """A session that folds with consent, in a window of 128,000 tokens."""
    given: dict[str, Any] = {"policy": "confirm", "window": 128_000, "max_output_tokens": 0, "counter": QUARTERS}
    return Context(**(given | settings))


def said(dialect: str, role: str, words: str) -> Wire:
    """A message that only says something."""
    if dialect == "openai-responses":
        kind = "output_text" if role == "assistant" else "input_text"
        return {"type": "message", "role": role, "content": [{"type": kind, "text": words}]}
    return {"role": role, "content": words}


def text(message: Wire) -> str:
    """The text of a message or block that only says something, or of a tool result."""
    content = message.get("content", message.get("output", message.get("text")))
    return content if isinstance(content, str) else "\n".join(map(text, content or ()))


def talk(dialect: str = "openai-chat", turns: int = 6, *, words: int = 200) -> list[Wire]:
    """A conversation that ends with an answer."""
    out: list[Wire] = []
    for number in range(turns):
        out.append(said(dialect, "user", f"question {number} ".ljust(4 * words, "q")))
        out.append(said(dialect, "assistant", f"answer {number} ".ljust(4 * words, "a")))
    return out


def figures(used: int, most: int = 128_000, response: int = 850) -> WindowUsage:
    """Figures after a reply."""
    return WindowUsage(max_context_tokens=most, last_prompt_tokens=used, last_completion_tokens=response)


# --- S4.01 ------------------------------------------------------------------------------------------------------------


def test_s4_01_usage_of_each_reply_last_and_total() -> None:
    ctx = context()
    ctx.extend(talk())
    ctx.prepare()
    assert ctx.figures.last_prompt_tokens == ctx.figures.total_completion_tokens == 0
    ctx.observe({"prompt_tokens": 2_000, "completion_tokens": 50})
    ctx.append(said("openai-chat", "user", "more"))
    ctx.prepare()
    ctx.observe({"prompt_tokens": 12_450, "completion_tokens": 850, "total_tokens": 13_300})
    now = ctx.figures
    assert (now.last_prompt_tokens, now.last_completion_tokens) == (12_450, 850)
    assert (now.total_prompt_tokens, now.total_completion_tokens) == (14_450, 900)
    assert now.max_context_tokens == 128_000
    assert now.utilization == 12_450 / 128_000


def test_s4_01_cached_tokens_are_part_of_the_prompt() -> None:
    ctx = context(dialect="anthropic")
    ctx.extend(talk("anthropic"))
    ctx.prepare()
    ctx.observe({"input_tokens": 10, "cache_read_input_tokens": 2_000, "cache_creation_input_tokens": 400})
    assert ctx.figures.last_prompt_tokens == 2_410


def test_s4_01_without_a_report_the_request_itself_is_measured() -> None:
    ctx = context()
    ctx.extend(talk())
    request = ctx.prepare()
    assert ctx.figures.used_tokens == request.tokens == ctx.figures.current_context_tokens
    assert ctx.figures.utilization == request.tokens / 128_000
    assert WindowUsage(max_context_tokens=0).utilization == 0.0


def test_s4_01_figures_are_the_same_after_a_replay() -> None:
    settings: dict[str, Any] = {"policy": "confirm", "window": 128_000, "max_output_tokens": 0, "counter": QUARTERS}
    ctx = Context(**settings)
    ctx.extend(talk())
    ctx.prepare()
    ctx.observe({"prompt_tokens": 3_000, "completion_tokens": 50})
    ctx.compact(summarize=ScriptedModel(["Goal: go on."]))
    ctx.append(said("openai-chat", "user", "more"))
    ctx.prepare()
    ctx.observe({"prompt_tokens": 100, "completion_tokens": 5})
    again = Context.replay(ctx.events, **settings).figures
    assert (again.last_prompt_tokens, again.total_prompt_tokens) == (100, 100)
    assert again.total_completion_tokens == ctx.figures.total_completion_tokens == 5


# --- S4.02 ------------------------------------------------------------------------------------------------------------


def test_s4_02_the_line_after_a_reply() -> None:
    assert token_line(figures(12_450)) == "[tokens: 12,450 / 128,000 (9.7%) | response: 850 tokens]"
    assert token_line(figures(1_234_567, 2_000_000, 1_000)) == (
        "[tokens: 1,234,567 / 2,000,000 (61.7%) | response: 1,000 tokens]"
    )


def test_s4_02_the_footer_on_telegram() -> None:
    assert telegram_footer(figures(12_450)) == "📊 Context: 12,450/128,000 (9.7%)"


@pytest.mark.parametrize(
    ("share", "name"),
    [
        (0.0, "green"),
        (0.6999, "green"),
        (0.70, "yellow"),
        (0.8999, "yellow"),
        (0.90, "red"),
        (1.2, "red"),
    ],
)
def test_s4_02_green_yellow_red(share: float, name: str) -> None:
    assert colour(share) == name


def test_s4_02_a_session_shows_its_own_figures() -> None:
    ctx = context()
    ctx.extend(talk())
    ctx.prepare()
    ctx.observe({"prompt_tokens": 12_450, "completion_tokens": 850})
    assert token_line(ctx.figures) == "[tokens: 12,450 / 128,000 (9.7%) | response: 850 tokens]"


# --- S4.03 ------------------------------------------------------------------------------------------------------------


def test_s4_03_the_threshold_is_per_agent_and_global() -> None:
    assert compact_threshold() == 0.9
    assert compact_threshold(None, 0.8) == 0.8
    assert compact_threshold(0.5, 0.8) == 0.5
    for bad in (0, -1, 1.5, True, "0.9"):
        with pytest.raises(InvalidInput, match="compact_threshold: must be above 0 and at most 1"):
            compact_threshold(bad)  # type: ignore[arg-type]
    assert confirm().consent_at == POLICIES["confirm"].consent_at == 0.9
    assert confirm(0.5).consent_at == 0.5


def filled(share: float, events: list[ContextEvent], **settings: Any) -> Context:
    """A session of 100,000 tokens of window, filled up to `share`, none of it folded."""
    ctx = context(window=100_000, on_event=events.append, **settings)
    ctx.append(said("openai-chat", "user", "x" * (4 * int(share * 100_000) - 200)))
    ctx.append(said("openai-chat", "assistant", "I see."))
    ctx.append(said("openai-chat", "user", "go on"))
    return ctx


def reached(events: list[ContextEvent]) -> list[ThresholdReached]:
    """The threshold events among all."""
    return [event for event in events if isinstance(event, ThresholdReached)]


def test_s4_03_the_event_has_the_figures_and_nothing_is_folded() -> None:
    events: list[ContextEvent] = []
    ctx = filled(0.60, events, policy=confirm(0.6))
    wires = [entry.recorded for entry in ctx.view.entries.values()]
    ctx.append(said("openai-chat", "user", "x" * 4_000))
    request = ctx.prepare()
    assert request.messages[:3] == wires
    assert not request.folds
    (event,) = reached(events)
    assert event.used_tokens == request.tokens >= 60_000
    assert (event.window_tokens, event.utilization) == (100_000, request.tokens / 100_000)
    assert events == [event], "nothing else happened"


def test_s4_03_below_the_threshold_nobody_is_asked() -> None:
    events: list[ContextEvent] = []
    ctx = filled(0.55, events, policy=confirm(0.6))
    ctx.prepare()
    assert not events
    assert not ctx.figures.asks


def test_s4_03_it_is_asked_again_after_the_next_reply() -> None:
    events: list[ContextEvent] = []
    ctx = filled(0.65, events, policy=confirm(0.6))
    for number in range(1, 4):
        ctx.prepare()
        events.clear()
        ctx.observe({"prompt_tokens": 65_000 + number, "completion_tokens": 20})
        (event,) = reached(events)
        assert (event.used_tokens, event.utilization) == (65_000 + number, (65_000 + number) / 100_000)
        assert ctx.figures.asks
        ctx.append(said("openai-chat", "assistant", f"reply {number}"))
        ctx.append(said("openai-chat", "user", f"question {number}"))
    assert not [event for event in ctx.events if type(event).__name__ == "Fold"]


def test_s4_03_a_reply_below_the_threshold_asks_nothing() -> None:
    events: list[ContextEvent] = []
    ctx = context(on_event=events.append)
    ctx.extend(talk())
    ctx.prepare()
    ctx.observe({"prompt_tokens": 100_000, "completion_tokens": 20})
    assert not reached(events)
    ctx.observe({"prompt_tokens": 117_760, "completion_tokens": 20})
    assert [event.utilization for event in reached(events)] == [0.92]


def test_s4_03_the_question_comes_before_a_fold_is_forced() -> None:
    """Where 90 % of the window can never be sent, it is asked shortly before what can be is full."""
    assert consent_tokens(0.9, TokenLimits(128_000, 0)) == 109_440
    assert consent_tokens(0.5, TokenLimits(128_000, 0)) == 64_000
    assert consent_tokens(0.9, TokenLimits(100_000, 20_000)) < TokenLimits(100_000, 20_000).input_tokens
    events: list[ContextEvent] = []
    ctx = context(window=20_000, max_output_tokens=2_000, on_event=events.append)
    for number in range(200):
        ctx.append(said("openai-chat", "user", f"{number}".ljust(800, "x")))
        ctx.append(said("openai-chat", "assistant", f"{number}".ljust(800, "y")))
        request = ctx.prepare()
        if request.folds:
            break
    names = [event.name for event in events]
    assert names[0] == "threshold_reached"
    assert names.index("fold_started") > 0


def test_s4_03_the_words_of_the_question() -> None:
    now = figures(117_760)
    assert threshold_question(now) == "⚠ Context usage at 92% (117,760/128,000 tokens). Compact conversation? [y/N]"
    assert telegram_warning(now) == (
        "⚠ Context usage at 92%. Reply /compact to summarize and continue, or keep chatting."
    )


# --- S4.04 ------------------------------------------------------------------------------------------------------------


@dialects
def test_s4_04_system_text_summary_and_acknowledgement_are_left(dialect: str) -> None:
    ctx = context(dialect=dialect, system="Be kind.")
    ctx.extend(talk(dialect))
    before = ctx.prepare()
    ctx.observe({"prompt_tokens": 5_000, "completion_tokens": 100})
    model = ScriptedModel(["Decided: ship on Friday. Open: write the notes for src/app.py."])
    (fold,) = ctx.compact(summarize=model)
    after = ctx.prepare()
    assert [(m["role"], text(m)) for m in after.messages] == [
        ("user", f"{SUMMARY_PREFIX}\nDecided: ship on Friday. Open: write the notes for src/app.py."),
        ("assistant", ACKNOWLEDGEMENT),
    ]
    assert after.system == "Be kind."
    assert check(after.messages, dialect=dialect) == []
    assert after.tokens < before.tokens
    assert (fold.start, fold.stop) == (0, 12)
    now = ctx.figures
    assert (now.last_prompt_tokens, now.last_completion_tokens) == (0, 0)
    assert (now.total_prompt_tokens, now.total_completion_tokens) == (0, 0)
    assert now.used_tokens == after.tokens, "the new figures are those of what is left"
    assert len(model.calls) == 1, "one separate call"
    ctx.append(said(dialect, "user", "go on"))
    assert check(ctx.prepare().messages, dialect=dialect) == []


def test_s4_04_system_messages_stay_where_they_are() -> None:
    ctx = context()
    ctx.extend([said("openai-chat", "system", "Be kind."), *talk()])
    ctx.compact(summarize=ScriptedModel(["Goal: go on."]))
    assert [m["role"] for m in ctx.prepare().messages] == ["system", "user", "assistant"]


def test_s4_04_the_prompt_asks_for_what_must_be_kept() -> None:
    ctx = context()
    ctx.extend(talk())
    model = ScriptedModel(["Goal: go on."])
    ctx.compact(summarize=model)
    system = model.calls[0].messages[0]
    assert system["role"] == "system"
    for word in ("decided", "Facts", "numbers", "Open", "paths", "code", "Goal", "preferences"):
        assert word in system["content"]
    for number in range(6):
        assert f"question {number} " in model.calls[0].text
        assert f"answer {number} " in model.calls[0].text


def test_s4_04_instructions_are_passed_on() -> None:
    ctx = context()
    ctx.extend(talk())
    model = ScriptedModel(["Goal: go on."])
    ctx.compact("keep the port numbers", summarize=model)
    assert "keep the port numbers" in model.calls[0].text


def test_s4_04_a_history_too_long_for_one_call_goes_in_pieces() -> None:
    """Each piece fits the window of the model that is asked, and brings what came of those before it along."""
    window = 4_000
    ctx = context(window=window, auto=False)
    for number in range(40):
        ctx.append(said("openai-chat", "user", f"fact {number:02d} ".ljust(2_000, "q")))
        ctx.append(said("openai-chat", "assistant", f"noted {number:02d} ".ljust(2_000, "a")))
    model = ScriptedModel([lambda messages, most: f"checkpoint of call {len(model.calls)}"], repeat=True)
    ctx.compact("keep the port numbers", summarize=model)
    assert len(model.calls) > 10
    for number, call in enumerate(model.calls):
        assert sum(QUARTERS.text(m["content"]) for m in call.messages) + call.max_output_tokens <= window
        assert "keep the port numbers" in call.text
        assert number == 0 or f"checkpoint of call {number}" in call.text
    record = "\n".join(call.text for call in model.calls)
    assert all(f"fact {number:02d} " in record and f"noted {number:02d} " in record for number in range(40))
    last = f"checkpoint of call {len(model.calls)}"
    assert [text(m) for m in ctx.prepare().messages] == [f"{SUMMARY_PREFIX}\n{last}", ACKNOWLEDGEMENT]


@dialects
def test_s4_04_a_question_without_an_answer_stays(dialect: str) -> None:
    ctx = context(dialect=dialect)
    ctx.extend([*talk(dialect), said(dialect, "user", "And what about port 8443?")])
    ctx.compact(summarize=ScriptedModel(["Goal: go on."]))
    messages = ctx.prepare().messages
    assert [m["role"] for m in messages] == ["user", "assistant", "user"]
    assert text(messages[2]) == "And what about port 8443?"


@dialects
def test_s4_04_a_tool_loop_is_compacted_too(dialect: str) -> None:
    ctx = context(dialect=dialect)
    ctx.extend([*session(8, dialect=dialect, result="r" * 400), said(dialect, "assistant", "All read.")])
    ctx.compact(summarize=ScriptedModel(["Done: read eight files."]))
    messages = ctx.prepare().messages
    assert [text(m) for m in messages] == [f"{SUMMARY_PREFIX}\nDone: read eight files.", ACKNOWLEDGEMENT]
    assert check(messages, dialect=dialect) == []


def test_s4_04_a_second_compaction_updates_the_first() -> None:
    ctx = context()
    ctx.extend(talk())
    ctx.compact(summarize=ScriptedModel(["Goal: first."]))
    ctx.extend(talk())
    model = ScriptedModel(["Goal: second."])
    ctx.compact(summarize=model)
    assert "Goal: first." in model.calls[0].text
    assert [text(m) for m in ctx.prepare().messages] == [f"{SUMMARY_PREFIX}\nGoal: second.", ACKNOWLEDGEMENT]


def test_s4_04_a_failure_leaves_everything_as_it_was() -> None:
    ctx = context()
    ctx.extend(talk())
    before = ctx.prepare().messages
    ctx.observe({"prompt_tokens": 5_000, "completion_tokens": 100})
    with pytest.raises(SummaryError):
        ctx.compact(summarize=ScriptedModel([RuntimeError("model down")]))
    assert ctx.prepare().messages == before
    assert ctx.figures.last_prompt_tokens == 5_000


# --- S4.05 ------------------------------------------------------------------------------------------------------------


def test_s4_05_the_question_before_a_compaction_that_was_typed() -> None:
    assert compact_question(figures(45_000)) == "Context: 45,000/128,000 (35%). Compact conversation? [y/N]"


def test_s4_05_after_it_the_summary_and_the_new_figures() -> None:
    assert compacted(figures(1_280), "Goal: go on.") == "Goal: go on.\n\nContext: 1,280/128,000 (1.0%)"


def test_s4_05_telegram_shows_figures_and_500_characters() -> None:
    told = telegram_compacted(figures(45_000), figures(1_280), "s" * 600)
    assert told.startswith("📊 Context before: 45,000/128,000 (35.2%)\n📊 Context after: 1,280/128,000 (1.0%)\n\n")
    shown = told.rpartition("\n\n")[2]
    assert shown == "s" * 499 + "…"
    assert preview("s" * 500) == "s" * 500
    assert preview("short") == "short"


def test_s4_05_figures_and_summary_come_from_the_session() -> None:
    ctx = context()
    ctx.extend(talk())
    ctx.prepare()
    ctx.observe({"prompt_tokens": 45_000, "completion_tokens": 100})
    before = ctx.figures
    folds = ctx.compact(summarize=ScriptedModel(["Goal: go on."]))
    told = telegram_compacted(before, ctx.figures, summary_of(folds))
    used = ctx.prepare().tokens
    assert told == (
        f"📊 Context before: 45,000/128,000 (35.2%)\n📊 Context after: {used}/128,000 ({used / 128_000:.1%})\n\n"
        "Goal: go on."
    )


# --- S4.06 ------------------------------------------------------------------------------------------------------------


def test_s4_06_the_refusal_to_the_letter() -> None:
    lines = [f"line {number}" for number in range(1, 15_001)]
    refusal = file_refusal(
        "big_report.md",
        size_bytes=2_516_582,
        tokens=620_000,
        total_lines=15_000,
        first_lines=lines[:50],
        room=Room(128_000, 32_000),
        counter=QUARTERS,
    )
    shown = "\n".join(lines[:50])
    assert refusal == (
        "⚠ FILE TOO LARGE FOR FULL READ\n"
        "\n"
        "File: big_report.md\n"
        "Size: 2.4 MB (~620,000 tokens)\n"
        "Total lines: 15,000\n"
        "Would occupy: 484.4% of context window\n"
        "Current context usage: 25.0%\n"
        "Budget for this read: ~32,000 tokens\n"
        "\n"
        "--- Preview (lines 1-50) ---\n"
        f"{shown}\n"
        "--- End of preview ---\n"
        "\n"
        "To read this file, use partial reads:\n"
        '  - read_file(path="big_report.md", start_line=1, end_line=500)\n'
        '  - read_file(path="big_report.md", start_line=501, end_line=1000)\n'
        "  - ...and so on in chunks of ~500 lines\n"
        "\n"
        "Or delegate to a sub-agent that can process the file in its own context window."
    )


def test_s4_06_a_file_within_its_budget_is_shown_whole() -> None:
    small = "a line\n" * 100
    assert file_view("a.txt", small, Room(10_000), counter=QUARTERS) == small
    exactly = "x" * 10_000
    assert file_view("a.txt", exactly, Room(10_000), counter=QUARTERS) == exactly
    assert "TOO LARGE" in file_view("a.txt", exactly + "xxxx", Room(10_000), counter=QUARTERS)


def test_s4_06_the_budget_shrinks_as_the_window_fills() -> None:
    whole = "x" * 20_000
    assert file_view("a.txt", whole, Room(100_000, 50_000), counter=QUARTERS) == whole
    refused = file_view("a.txt", whole, Room(100_000, 95_000), counter=QUARTERS)
    assert "Current context usage: 95.0%" in refused
    assert "Budget for this read: ~2,500 tokens" in refused


def test_s4_06_the_parts_named_fit_the_budget() -> None:
    whole = "\n".join("x" * 399 for _ in range(1_000))
    room = Room(20_000)
    refused = file_view("wide.txt", whole, room, counter=QUARTERS)
    assert 'read_file(path="wide.txt", start_line=1, end_line=45)' in refused
    assert "chunks of ~45 lines" in refused
    part = file_view("wide.txt", whole, room, start_line=1, end_line=45, counter=QUARTERS)
    assert part == "\n".join(["x" * 399] * 45)


@pytest.mark.parametrize("window", [100, 1_000, 8_000, 128_000])
@pytest.mark.parametrize("whole", ["x" * 3_000_000, "word " * 600_000, "line of text\n" * 200_000, "漢字" * 400_000])
def test_s4_06_the_refusal_is_small_itself(whole: str, window: int) -> None:
    room = Room(window, window // 2)
    refused = file_view("a.txt", whole, room, counter=QUARTERS)
    assert QUARTERS.text(refused) <= room.budget_tokens // 2 + 250


@pytest.mark.parametrize(
    ("bounds", "place", "reason"),
    [
        ({"start_line": "10"}, "start_line", "must be an integer, not '10'"),
        ({"end_line": 3.0}, "end_line", "must be an integer, not 3.0"),
        ({"start_line": True}, "start_line", "must be an integer, not True"),
        ({"end_line": [1]}, "end_line", "must be an integer, not [1]"),
        ({"start_line": 0}, "start_line", "must be from 1 to 100"),
        ({"start_line": 101}, "start_line", "must be from 1 to 100"),
        ({"start_line": 9, "end_line": 8}, "end_line", "must not be before start_line (9), not 8"),
    ],
)
def test_s4_06_bounds_are_integers_within_the_file(bounds: dict[str, Any], place: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        file_view("a.txt", "a line\n" * 100, Room(10_000), counter=QUARTERS, **bounds)
    assert caught.value.place == place
    assert reason in caught.value.reason


def test_s4_06_parts_are_shown_as_they_are() -> None:
    whole = "\n".join(f"line {number}" for number in range(1, 101)) + "\n"
    room = Room(10_000)
    assert file_view("a.txt", whole, room, start_line=99) == "line 99\nline 100"
    assert file_view("a.txt", whole, room, end_line=2) == "line 1\nline 2"
    assert file_view("a.txt", whole, room, start_line=100, end_line=9_999) == "line 100"


def test_s4_06_parts_over_the_budget_are_cut_and_say_where_to_go_on() -> None:
    whole = "\n".join("x" * 399 for _ in range(1_000))
    room = Room(4_000)
    part = file_view("a.txt", whole, room, start_line=11, end_line=600, counter=QUARTERS)
    body, _, warning = part.rpartition("\n")
    assert body == "\n".join(["x" * 399] * 10)
    assert warning == (
        "[⚠ cut: lines 11-20 of the lines 11-600 asked for; the budget for this read is ~1,000 tokens. "
        "Go on with start_line=21.]"
    )
    one = file_view("a.txt", "y" * 100_000, room, start_line=1, counter=QUARTERS)
    assert one.startswith("y" * 4_000 + "\n[⚠ cut: 4,000 of the 100,000 characters of line 1;")


# --- S4.07 ------------------------------------------------------------------------------------------------------------


def test_s4_07_tools_can_see_the_window_and_what_is_used() -> None:
    ctx = context(window=50_000)
    ctx.extend(session(3, result="r" * 4_000))
    request = ctx.prepare()
    assert (ctx.figures.max_context_tokens, ctx.figures.current_context_tokens) == (50_000, request.tokens)
    ctx.observe({"prompt_tokens": request.tokens + 200, "completion_tokens": 10})
    assert ctx.figures.current_context_tokens == request.tokens + 200
    ctx.append(said("openai-chat", "assistant", "x" * 400))
    assert 100 <= ctx.figures.current_context_tokens - request.tokens - 200 <= 120, "what came since counts"
    room = Room(ctx.figures.max_context_tokens, ctx.figures.current_context_tokens)
    assert room.budget_tokens == 12_500


# --- S4.08 ------------------------------------------------------------------------------------------------------------


def turn(dialect: str, outputs: dict[str, str]) -> list[Wire]:
    """One model turn that calls each tool once, and the results."""
    if dialect == "anthropic":
        calls = [{"type": "tool_use", "id": f"id-{name}", "name": name, "input": {}} for name in outputs]
        blocks = [
            {"type": "tool_result", "tool_use_id": f"id-{name}", "content": output} for name, output in outputs.items()
        ]
        return [{"role": "assistant", "content": calls}, {"role": "user", "content": blocks}]
    if dialect == "openai-responses":
        asked: list[Wire] = [
            {"type": "function_call", "id": f"fc_{name}", "call_id": f"id-{name}", "name": name, "arguments": "{}"}
            for name in outputs
        ]
        return asked + [
            {"type": "function_call_output", "call_id": f"id-{name}", "output": output}
            for name, output in outputs.items()
        ]
    functions = [
        {"id": f"id-{name}", "type": "function", "function": {"name": name, "arguments": "{}"}} for name in outputs
    ]
    out: list[Wire] = [{"role": "assistant", "content": None, "tool_calls": functions}]
    out += [{"role": "tool", "tool_call_id": f"id-{name}", "content": output} for name, output in outputs.items()]
    return out


def results(messages: list[Wire]) -> list[str]:
    """The text of each result."""
    out: list[str] = []
    for message in messages:
        if message.get("role") == "tool" or message.get("type") == "function_call_output":
            out.append(text(message))
        elif message.get("role") == "user" and not isinstance(message["content"], str):
            out += [text(block) for block in message["content"] if block["type"] == "tool_result"]
    return out


def test_s4_08_the_first_and_last_500_characters_with_an_explanation() -> None:
    whole = "h" * 500 + "m" * 120_000 + "t" * 500
    shown = cut_share(whole, 25_000, QUARTERS)
    first, note, last = shown.split("\n")
    assert (first, last) == ("h" * 500, "t" * 500)
    assert note == (
        "[result too large: ~30,250 tokens, the budget for it is ~25,000. Shown are the first 500 and the last 500 of "
        "121,000 characters. Ask for a smaller part to see more.]"
    )
    assert cut_share("x" * 100_000, 25_000, QUARTERS) == "x" * 100_000


def test_s4_08_a_cut_is_never_longer_than_what_it_cuts() -> None:
    for size in (1, 400, 1_000, 1_100, 1_200):
        whole = "x" * size
        shown = cut_share(whole, 0, QUARTERS)
        assert shown == whole or len(shown) < size
    assert cut_share("x" * 1_000, 0, QUARTERS) == "x" * 1_000


@dialects
def test_s4_08_a_result_over_a_quarter_of_the_window(dialect: str) -> None:
    ctx = context(dialect=dialect, window=100_000)
    whole = "h" * 500 + "m" * 120_000 + "t" * 500
    ctx.extend([said(dialect, "user", "go"), *turn(dialect, {"read": whole})])
    request = ctx.prepare()
    assert results(request.messages) == [cut_share(whole, 25_000, QUARTERS)]
    assert check(request.messages, dialect=dialect) == []
    assert ctx.prepare().messages == request.messages
    assert ctx.peek(len(ctx.view.entries) - 1, call_id="id-read")[:600] == whole[:600], "the whole can be looked into"


@dialects
def test_s4_08_the_budget_is_cumulative_within_one_turn(dialect: str) -> None:
    ctx = context(dialect=dialect, window=100_000)
    outputs = {"one": "1" * 40_000, "two": "2" * 40_000, "three": "3" * 40_000, "four": "4" * 16_000}
    ctx.extend([said(dialect, "user", "go"), *turn(dialect, outputs)])
    one, two, three, four = results(ctx.prepare().messages)
    assert (one, two) == ("1" * 40_000, "2" * 40_000), "10,000 tokens each of 25,000"
    assert three == cut_share("3" * 40_000, 5_000, QUARTERS)
    assert three.startswith("3" * 500 + "\n[result too large: ~10,000 tokens, the budget for it is ~5,000.")
    assert four == "4" * 16_000, "4,000 tokens are still left"


@dialects
def test_s4_08_each_turn_begins_anew(dialect: str) -> None:
    ctx = context(dialect=dialect, window=100_000)
    ctx.append(said(dialect, "user", "go"))
    for number in range(2):
        wires = turn(dialect, {f"t{number}a": "a" * 60_000, f"t{number}b": "b" * 60_000})
        ctx.extend(wires)
        shown = results(ctx.prepare().messages)[2 * number :]
        assert next(len(one) for one in shown) == 60_000
        assert "[result too large: ~15,000 tokens, the budget for it is ~10,000." in shown[1]


def test_s4_08_turns_that_come_together_have_a_budget_each() -> None:
    wires: list[Wire] = [said("openai-chat", "user", "go")]
    for number in range(3):
        wires += turn("openai-chat", {f"tool{number}": f"{number}" * 60_000})
    ctx = context(window=100_000)
    ctx.extend(wires)
    assert ctx.prepare().messages == wires
    over = [*wires, said("openai-chat", "user", "x" * 240_000)]
    out = fit(over, max_tokens=80_000, policy="confirm", counter=QUARTERS)
    assert out.tokens <= 80_000


def test_s4_08_failed_results_are_guarded_too() -> None:
    wires = turn("anthropic", {"bash": "E" * 120_000})
    wires[1]["content"][0]["is_error"] = True
    ctx = context(dialect="anthropic", window=100_000)
    ctx.extend([said("anthropic", "user", "go"), *wires])
    block = ctx.prepare().messages[2]["content"][0]
    assert block["is_error"] is True
    assert "[result too large" in text(block)


@dialects
def test_s4_08_results_of_sub_agents_pass_and_take_nothing(dialect: str) -> None:
    ctx = context(dialect=dialect, window=100_000)
    outputs = {"spawn_agent": "s" * 140_000, "read": "r" * 80_000, "grep": "g" * 80_000}
    ctx.extend([said(dialect, "user", "go"), *turn(dialect, outputs)])
    spawned, read, grepped = results(ctx.prepare().messages)
    assert spawned == "s" * 140_000
    assert read == "r" * 80_000
    assert grepped.startswith("g" * 500 + "\n[result too large: ~20,000 tokens")


# --- S4.09 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "used", "budget"),
    [
        (100_000, 0, 25_000),
        (100_000, 50_000, 25_000),
        (100_000, 90_000, 5_000),
        (100_000, 95_000, 2_500),
        (100_000, 100_000, 0),
        (100_000, 120_000, 0),
        (128_000, 12_450, 32_000),
    ],
)
def test_s4_09_the_smaller_of_a_quarter_of_all_and_half_of_the_rest(window: int, used: int, budget: int) -> None:
    assert share_tokens(window, used) == budget
    assert TurnShare().budget_tokens(window, used) == budget
    assert Room(window, used).budget_tokens == budget


def test_s4_09_in_a_window_that_is_nearly_full() -> None:
    ctx = context(window=100_000)
    ctx.append(said("openai-chat", "user", "x" * 320_000))
    ctx.extend(turn("openai-chat", {"read": "r" * 60_000}))
    (shown,) = results(ctx.prepare().messages)
    assert "[result too large: ~15,000 tokens, the budget for it is ~9,9" in shown


def test_s4_09_the_window_is_that_for_input_and_reply() -> None:
    ctx = context(window=100_000, max_output_tokens=20_000)
    ctx.extend([said("openai-chat", "user", "go"), *turn("openai-chat", {"read": "r" * 98_000})])
    assert results(ctx.prepare().messages) == ["r" * 98_000], "24,500 of 25,000 tokens"


# --- S4.11 ------------------------------------------------------------------------------------------------------------


def test_s4_11_one_notice_in_each_run_with_figures_and_tool() -> None:
    notice = RunNotice()
    assert notice.text(figures(100_000), continues=True) is None, "below the threshold"
    assert notice.text(figures(117_760), continues=False) is None, "the run ends"
    assert notice.text(figures(117_760), continues=True) == (
        "[Context notice: 92% of the window is used (117,760 of 128,000 tokens). Call the tool compact_context to sum "
        "up this conversation and go on, or finish soon.]"
    )
    assert notice.text(figures(120_000), continues=True) is None, "once in a run"
    assert RunNotice().text(figures(120_000), continues=True) is not None, "the next run has its own"


def test_s4_11_threshold_and_tool_are_settings() -> None:
    notice = RunNotice(threshold=0.5, tool="sum_up")
    assert notice.text(figures(63_999), continues=True) is None
    told = notice.text(figures(64_000), continues=True)
    assert told is not None
    assert "50% of the window is used (64,000 of 128,000 tokens)" in told
    assert "sum_up" in told


def test_s4_11_in_a_session_it_comes_before_a_fold_is_forced() -> None:
    ctx = context(window=20_000, max_output_tokens=2_000)
    notice = RunNotice()
    ctx.append(said("openai-chat", "user", "go"))
    told: list[int] = []
    for number in range(60):
        ctx.extend(turn("openai-chat", {f"read{number}": "r" * 2_000}))
        request = ctx.prepare()
        if request.folds:
            break
        ctx.observe({"prompt_tokens": request.tokens, "completion_tokens": 10})
        if notice.text(ctx.figures, continues=True):
            told.append(number)
    assert len(told) == 1
