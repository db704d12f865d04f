"""The autopilot system, row by row: figures and texts to the letter."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from foldline import POLICIES, Completion, Context, check, classify, fit
from foldline.engine.events import ContextEvent, FoldFinished, FoldStarted, call_line, log_line
from foldline.engine.policy import Policy
from foldline.engine.presets import VARIANTS, autopilot
from foldline.engine.recovery import NOTICE
from foldline.messages import Wire
from foldline.reducers.mask import Mask, viewed
from foldline.reducers.plain_messages import compact_old_context, estimate_context_size, truncate_tool_results
from foldline.reducers.truncate import CharLimit, FileViewLimit, cut_chars, cut_file_view
from foldline.testing import ScriptedModel, session
from foldline.tokens import CharsPerFour

DIALECTS = ("openai-chat", "openai-responses", "anthropic")
dialects = pytest.mark.parametrize("dialect", DIALECTS)

TOO_LONG = classify(400, {"error": {"code": "context_length_exceeded", "message": "too long"}})


def view_of_file(name: str, size: int) -> str:
    """A file view as the document has it: the name first, then `size` bytes in all."""
    head = f"File: {name}\n"
    return head + ("let x = 1;\n" * size)[: size - len(head)]


def viewing(views: Sequence[str], dialect: str = "openai-chat") -> list[Wire]:
    """A task, then one call and one file view for each text."""
    wires = [dict(wire) for wire in session(len(views), dialect=dialect)]
    holders = [slot for wire in wires if (slot := slot_of(wire)) is not None]
    for (holder, field), view in zip(holders, views, strict=True):
        holder[field] = view
    return list(wires)


def slot_of(wire: dict[str, Any]) -> tuple[dict[str, Any], str] | None:
    """Where the text of the result of a message stands."""
    if wire.get("role") == "tool":
        return wire, "content"
    if wire.get("type") == "function_call_output":
        return wire, "output"
    blocks = wire.get("content")
    if isinstance(blocks, list) and blocks and blocks[0].get("type") == "tool_result":
        return blocks[0], "content"
    return None


def results(wires: Sequence[Wire]) -> list[str]:
    """The text of each result, in order."""
    found = [slot for wire in wires if (slot := slot_of(dict(wire))) is not None]
    return [json_text(holder[field]) for holder, field in found]


def json_text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(block["text"] for block in content)


def project(files: int, size: int = 3_900) -> list[str]:
    return [view_of_file(f"src/part_{n}.rs", size) for n in range(files)]


# --- S0.01 ------------------------------------------------------------------------------------------------------------


def test_s0_01_a_file_view_is_cut_at_4000_bytes_with_the_notice() -> None:
    text = "x" * 10_000
    assert cut_file_view(text) == "x" * 4_000 + "...\n[truncated, showing first 4000 bytes of 10000 total]"
    assert cut_file_view("x" * 4_000) == "x" * 4_000


def test_s0_01_the_cut_is_at_a_character_boundary_and_the_figure_says_where() -> None:
    text = "x" + "é" * 4_000
    assert cut_file_view(text) == "x" + "é" * 1_999 + "...\n[truncated, showing first 3999 bytes of 8001 total]"
    faces = "🙂" * 3_000
    assert cut_file_view(faces, 4_002) == "🙂" * 1_000 + "...\n[truncated, showing first 4000 bytes of 12000 total]"


@dialects
def test_s0_01_the_preset_cuts_what_comes_in_before_it_is_sent(dialect: str) -> None:
    context = Context(policy="autopilot", dialect=dialect, window=128_000)
    context.extend(viewing(["short", "x" * 9_000], dialect))
    messages = context.prepare().messages
    assert results(messages) == ["short", cut_file_view("x" * 9_000)]
    assert check(messages, dialect=dialect) == []


def test_s0_01_the_tools_that_view_files_can_be_named() -> None:
    wires = viewing(["x" * 9_000])
    for tools, cut in ((frozenset({"read_file"}), True), (frozenset({"view_file"}), False)):
        policy = Policy(name="own", guard=(FileViewLimit(tools=tools),))
        context = Context(policy=policy, window=128_000)
        context.extend(wires)
        assert (results(context.prepare().messages) == [cut_file_view("x" * 9_000)]) is cut


def test_s0_01_a_notice_that_would_lengthen_the_view_is_not_written() -> None:
    context = Context(policy="autopilot", window=128_000)
    context.extend(viewing(["it " * 1_334]))  # 4,002 bytes: two to save, sixty to write
    request = context.prepare()
    assert results(request.messages) == ["it " * 1_334]
    assert request.folds == ()


# --- S0.02 ------------------------------------------------------------------------------------------------------------


def test_s0_02_results_older_than_the_last_six_become_their_first_line() -> None:
    wires = viewing(project(15))
    assert estimate_context_size(wires) > 50_000
    compacted = compact_old_context(wires)
    assert results(compacted)[:9] == [f"[Previously viewed: File: src/part_{n}.rs]" for n in range(9)]
    assert results(compacted)[9:] == project(15)[9:]
    assert [new is old for new, old in zip(compacted, wires, strict=True)].count(False) == 9


def test_s0_02_under_the_threshold_nothing_changes() -> None:
    wires = viewing(project(12))
    size = estimate_context_size(wires)
    assert size < 50_000
    assert all(new is old for new, old in zip(compact_old_context(wires), wires, strict=True))
    exact = compact_old_context(wires, 6, size)
    assert all(new is old for new, old in zip(exact, wires, strict=True)), "at the threshold it is not over it"
    assert results(compact_old_context(wires, 6, size - 1)) != results(wires)


@pytest.mark.parametrize(("keep", "masked"), [(0, 15), (1, 14), (14, 1), (15, 0), (100, 0)])
def test_s0_02_keep_recent_is_counted_in_results(keep: int, masked: int) -> None:
    shown = results(compact_old_context(viewing(project(15)), keep))
    assert [text.startswith("[Previously viewed: ") for text in shown] == [True] * masked + [False] * (15 - masked)


@dialects
def test_s0_02_the_preset_does_the_same_in_every_dialect(dialect: str) -> None:
    wires = viewing(project(15), dialect)
    context = Context(policy="autopilot", dialect=dialect, window=128_000)
    context.extend(wires)
    messages = context.prepare().messages
    assert results(messages) == results(compact_old_context(wires, dialect=dialect))
    assert results(messages)[0] == "[Previously viewed: File: src/part_0.rs]"
    assert check(messages, dialect=dialect) == []


@dialects
def test_s0_02_the_preset_leaves_a_small_context_alone(dialect: str) -> None:
    wires = viewing(project(11), dialect)
    context = Context(policy="autopilot", dialect=dialect, window=128_000)
    context.extend(wires)
    assert context.prepare().messages == wires


def test_s0_02_a_one_shot_fit_masks_the_same_results() -> None:
    wires = viewing(project(30))
    fitted = fit(wires, max_tokens=12_000, policy="autopilot", counter=CharsPerFour())
    masked = [text.startswith("[Previously viewed: File: ") for text in results(fitted.messages)]
    assert masked == [True] * 24 + [False] * 6
    assert {fold.reducer for fold in fitted.folds} == {"mask"}


def test_s0_02_a_result_that_is_shorter_than_its_placeholder_stays() -> None:
    wires = viewing(["ok", "done"] * 4 + project(14))
    shown = results(compact_old_context(wires))
    assert shown[:8] == ["ok", "done"] * 4
    context = Context(policy="autopilot", window=128_000)
    context.extend(wires)
    assert results(context.prepare().messages) == shown


def test_s0_02_parallel_results_are_counted_one_by_one() -> None:
    ids = [f"c{n}" for n in range(15)]
    calls = [
        {"id": i, "type": "function", "function": {"name": "read_file", "arguments": json.dumps({"path": f"{i}.rs"})}}
        for i in ids
    ]
    wires: list[Wire] = [{"role": "user", "content": "go"}, {"role": "assistant", "content": None, "tool_calls": calls}]
    wires += [{"role": "tool", "tool_call_id": i, "content": v} for i, v in zip(ids, project(15), strict=True)]
    context = Context(policy="autopilot", window=128_000)
    context.extend(wires)
    messages = context.prepare().messages
    assert results(messages) == results(compact_old_context(wires))
    assert [text.startswith("[Previously") for text in results(messages)].count(True) == 9
    assert check(messages) == []


@pytest.mark.parametrize(
    ("result", "placeholder"),
    [
        ("File: src/main.rs\nfn main() {}", "[Previously viewed: File: src/main.rs]"),
        ("\n\n  indented\nmore", "[Previously viewed: indented]"),
        ("one line", "[Previously viewed: one line]"),
        ("x" * 500, f"[Previously viewed: {'x' * 199}…]"),
        ("x" * 200, f"[Previously viewed: {'x' * 200}]"),
    ],
)
def test_s0_02_the_placeholder_is_the_first_line(result: str, placeholder: str) -> None:
    assert viewed(result) == placeholder


# --- S0.03 ------------------------------------------------------------------------------------------------------------


def test_s0_03_the_size_is_bytes_of_contents_and_calls() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "é"}'}}
    wires: list[Wire] = [
        {"role": "system", "content": "abc"},
        {"role": "user", "content": [{"type": "text", "text": "größe"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "🙂"},
        {"role": "assistant", "content": "done"},
    ]
    assert estimate_context_size(wires) == 3 + 7 + (4 + 14) + 4 + 4
    assert estimate_context_size([]) == 0


@dialects
def test_s0_03_a_context_keeps_the_very_figure(dialect: str) -> None:
    context = Context(policy="autopilot", dialect=dialect, window=128_000)
    for wire in viewing(project(15), dialect):
        context.append(wire)
        if slot_of(dict(wire)) is not None:
            messages = context.prepare().messages
            assert context.view.content_bytes == estimate_context_size(messages, dialect=dialect)


def test_s0_03_what_the_model_does_not_see_is_not_counted() -> None:
    context = Context(window=128_000)
    context.append({"role": "user", "content": "seen"})
    context.append({"role": "user", "content": "hidden"}, agent_visible=False)
    assert context.view.content_bytes == 4


# --- S0.04 ------------------------------------------------------------------------------------------------------------


def test_s0_04_the_line_of_a_call() -> None:
    assert call_line(15, 35_000) == "Calling AI with 15 messages (~35000 bytes, ~8750 tokens)"


def test_s0_04_the_lines_of_a_compaction() -> None:
    start = FoldStarted("policy autopilot", 15_000, 30, 60_000, None, 50_000)
    assert log_line(start) == "Context size 60000 bytes exceeds limit 50000, compacting old tool results..."
    end = FoldFinished((), 8_000, 30, 32_000, 15_000, 30, 60_000, True)
    assert log_line(end) == "Context compacted: 60000 bytes -> 32000 bytes (saved 28000 bytes)"


def test_s0_04_a_session_tells_all_it_takes_for_the_log() -> None:
    heard: list[ContextEvent] = []
    context = Context(policy="autopilot", window=128_000, on_event=heard.append)
    wires = viewing(project(15))
    context.extend(wires)
    before = estimate_context_size(wires)
    messages = context.prepare().messages
    after = estimate_context_size(messages)
    assert [line for event in heard if (line := log_line(event))] == [
        f"Context size {before} bytes exceeds limit 50000, compacting old tool results...",
        f"Context compacted: {before} bytes -> {after} bytes (saved {before - after} bytes)",
    ]
    size = context.view.content_bytes
    assert call_line(len(messages), size) == f"Calling AI with 31 messages (~{after} bytes, ~{after // 4} tokens)"


def test_s0_04_other_policies_say_it_in_tokens() -> None:
    heard: list[ContextEvent] = []
    context = Context(policy="sliding", window=8_000, max_output_tokens=0, on_event=heard.append)
    context.extend(session(60, result="some words of a result. " * 20))
    context.prepare()
    start, end = [line for event in heard if (line := log_line(event))]
    assert start.startswith("Context size ")
    assert start.endswith(" tokens (limit 7200), compacting: policy sliding...")
    assert end.startswith("Context compacted: ")
    assert end.endswith(" tokens)")


# --- S0.05 ------------------------------------------------------------------------------------------------------------


def test_s0_05_truncating_leaves_at_most_that_many_characters() -> None:
    wires = viewing(["x" * 1_000, "y" * 1_001, "é" * 5_000])
    cut = truncate_tool_results(wires, 1_000)
    assert [new is old for new, old in zip(cut, wires, strict=True)] == [True, True, True, True, False, True, False]
    assert [len(text) for text in results(cut)] == [1_000, 999, 999]
    assert results(cut)[2] == "é" * 940 + "...\n[truncated, showing first 940 characters of 5000 total]"


@pytest.mark.parametrize("limit", [0, 1, 10, 50, 60, 61, 100])
def test_s0_05_a_limit_without_room_for_the_notice_cuts_all_the_same(limit: int) -> None:
    assert len(cut_chars("x" * 5_000, limit)) <= limit
    assert cut_chars("x" * limit, limit) == "x" * limit


@dialects
def test_s0_05_recovery_compacts_with_3_and_30000_then_truncates_to_1000(dialect: str) -> None:
    heard: list[ContextEvent] = []
    context = Context(policy="autopilot", dialect=dialect, window=128_000, on_event=heard.append)
    wires = viewing(project(12), dialect)
    context.extend(wires)
    refused = context.prepare()
    assert refused.folds == ()
    assert 30_000 < context.view.content_bytes <= 50_000

    outcome = context.recover(TOO_LONG)
    again = context.prepare()
    expected = truncate_tool_results(
        compact_old_context(refused.messages, 3, 30_000, dialect=dialect), 1_000, dialect=dialect
    )
    assert results(again.messages) == results(expected)
    assert outcome.retry
    assert again.tokens < refused.tokens
    assert check(again.messages, dialect=dialect) == []

    assert outcome.notice == NOTICE == "Context was compacted and truncated to fit token limits."
    names = [event.name for event in heard]
    assert names == ["fold_started", "fold_finished"]


def test_s0_05_results_are_truncated_when_the_context_is_under_30000_bytes_too() -> None:
    context = Context(policy="autopilot", window=128_000)
    wires = viewing(project(7))
    context.extend(wires)
    assert context.view.content_bytes < 30_000
    context.recover(TOO_LONG)
    assert results(context.prepare().messages) == results(truncate_tool_results(wires, 1_000))


def test_s0_05_the_general_ladder_follows_where_that_is_not_enough() -> None:
    context = Context(policy="autopilot", window=128_000)
    for turn in range(40):
        context.append({"role": "user", "content": f"Question {turn}: " + "why is that so? " * 40})
        context.append({"role": "assistant", "content": f"Answer {turn}: " + "because of this. " * 40})
    refused = context.prepare()
    outcome = context.recover(TOO_LONG)
    again = context.prepare()
    assert outcome.retry
    assert again.tokens <= 0.75 * refused.tokens
    assert check(again.messages) == []


def test_s0_05_a_policy_may_have_steps_of_its_own() -> None:
    wires = viewing(project(4))
    context = Context(policy=Policy(name="own", overflow=(CharLimit(50),)), window=128_000)
    context.extend(wires)
    context.recover(TOO_LONG)
    assert results(context.prepare().messages) == results(truncate_tool_results(wires, 50))


# --- S0.06 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "keep", "size"),
    [("autopilot-cost", 4, 30_000), ("autopilot", 6, 50_000), ("autopilot-quality", 10, 80_000)],
)
def test_s0_06_presets(name: str, keep: int, size: int) -> None:
    wires = viewing(project(25))
    context = Context(policy=name, window=128_000)
    context.extend(wires)
    assert context.policy.trigger.bytes == size
    shown = results(context.prepare().messages)
    assert [text.startswith("[Previously viewed: ") for text in shown] == [True] * (25 - keep) + [False] * keep
    under = Context(policy=name, window=128_000)
    under.extend(viewing(project(size // 4_100)))
    assert under.prepare().folds == ()


def test_s0_06_own_figures() -> None:
    context = Context(policy=autopilot(2, 10_000), window=128_000)
    context.extend(viewing(project(4)))
    assert [text.startswith("[Previously") for text in results(context.prepare().messages)] == [
        True,
        True,
        False,
        False,
    ]


def test_s0_06_the_presets_are_known_by_name() -> None:
    assert list(POLICIES)[:5] == ["autopilot", "sliding", "checkpoint", "layered", "confirm"]
    assert list(VARIANTS) == ["autopilot-cost", "autopilot-quality"]


# --- S0.09 ------------------------------------------------------------------------------------------------------------


def test_s0_09_a_smaller_model_says_what_old_results_brought() -> None:
    model = ScriptedModel([lambda messages, _: f"It holds part {messages[1]['content'][27:60]!r}"], repeat=True)
    context = Context(policy=autopilot(describe=True), window=128_000)
    wires = viewing(project(15))
    context.extend(wires)
    messages = context.prepare(summarize=model).messages
    shown = results(messages)
    assert len(model.calls) == 9
    assert all(text.startswith("[Previously viewed: It holds part ") for text in shown[:9])
    assert shown[9:] == project(15)[9:]
    assert "File: src/part_0.rs" in model.calls[0].text
    assert check(messages) == []


@pytest.mark.parametrize(
    "reply", [RuntimeError("no model today"), "", "I'm sorry, I can't.", "x " * 9_000, Completion("cut", "length")]
)
def test_s0_09_where_the_model_fails_the_first_line_stands(reply: str | Completion | Exception) -> None:
    heard: list[ContextEvent] = []
    model = ScriptedModel([reply], repeat=True)
    context = Context(policy=autopilot(describe=True), window=128_000, on_event=heard.append)
    wires = viewing(project(15))
    context.extend(wires)
    assert results(context.prepare(summarize=model).messages) == results(compact_old_context(wires))
    assert len(model.calls) == 1, "a model that failed is not asked for each result"
    assert [event.name for event in heard] == ["fold_started", "fold_failed", "fold_finished"]


def test_s0_09_all_results_of_one_message_are_described_one_by_one() -> None:
    blocks = [{"type": "tool_use", "id": f"c{n}", "name": "read", "input": {"path": f"{n}.rs"}} for n in range(3)]
    given = [
        {"type": "tool_result", "tool_use_id": f"c{n}", "content": view_of_file(f"{n}.rs", 20_000)} for n in range(3)
    ]
    wires: list[Wire] = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": blocks},
        {"role": "user", "content": given},
    ]
    model = ScriptedModel(["first", "second"])
    context = Context(policy=autopilot(1, 10_000, describe=True), dialect="anthropic", window=128_000)
    context.extend(wires)
    shown = context.prepare(summarize=model).messages[2]["content"]
    assert [json_text(block["content"]) for block in shown[:2]] == [
        "[Previously viewed: first]",
        "[Previously viewed: second]",
    ]
    assert json_text(shown[2]["content"]) == cut_file_view(view_of_file("2.rs", 20_000))


@pytest.mark.parametrize("name", ["README.md", "docs/readme.txt", "pyproject.toml", "config/app.yaml", ".env.local"])
def test_s0_09_important_files_stay_twice_as_long(name: str) -> None:
    def shown(files: int) -> list[bool]:
        wires = viewing(project(files))
        call = json.loads(json.dumps(wires[1]))
        call["tool_calls"][0]["function"]["arguments"] = json.dumps({"path": name})
        context = Context(policy=autopilot(6, 5_000), window=128_000)
        context.extend([wires[0], call, *wires[2:]])
        return [text.startswith("[Previously viewed: ") for text in results(context.prepare().messages)]

    assert shown(12) == [False] + [True] * 5 + [False] * 6
    assert shown(13) == [True] * 7 + [False] * 6


def test_s0_09_a_name_that_only_looks_important_is_not() -> None:
    wires = viewing(project(12))
    context = Context(policy=autopilot(6, 5_000), window=128_000)
    arguments = json.dumps({"path": "src/environment.rs", "note": "not a tomlinson"})
    call = json.loads(json.dumps(wires[1]))
    call["tool_calls"][0]["function"]["arguments"] = arguments
    context.extend([wires[0], call, *wires[2:]])
    assert results(context.prepare().messages)[0].startswith("[Previously viewed: ")


def test_s0_09_a_mask_may_be_measured_with_a_real_tokenizer() -> None:
    class Words:
        """A vocabulary of whole words."""

        name = "words"

        def text(self, text: str, /) -> int:
            """One token for each word."""
            return len(text.split())

    policy = Policy(name="own", always=(Mask(keep_first=0, keep_last=1),))
    context = Context(policy=policy, window=128_000, counter=Words())
    context.extend(viewing(["one two three four five six seven eight nine ten", "last"]))
    assert results(context.prepare().messages)[0] == "[result masked — ~10 tokens removed]"
