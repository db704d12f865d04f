"""The checkpoint system, row by row: figures and texts to the letter."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.joints import unjoined

from foldline import Completion, Context, DoesNotFit, Fold, InvalidInput, SummaryError, check, classify, fit
from foldline.codecs import codec
from foldline.engine.events import ContextEvent, FoldFailed, FoldFinished, FoldStarted
from foldline.engine.presets import checkpoint
from foldline.engine.settings import CheckpointSettings
from foldline.messages import Wire
from foldline.reducers.archive_results import DIGEST_PREFIX, TOOL_PREFIX, ArchiveResults
from foldline.reducers.spill import Spill, spill_notice
from foldline.reducers.summarize import SUMMARY_PREFIX
from foldline.reducers.truncate import OutputLimits, cut_output
from foldline.store import FileArchive
from foldline.testing import ScriptedModel, session
from foldline.tokens import CharsPerFour, message_tokens
from foldline.view.budget import Reserve, TokenLimits, Trigger
from foldline.view.tiles import VisibleMessage

DIALECTS = ("openai-chat", "openai-responses", "anthropic")
dialects = pytest.mark.parametrize("dialect", DIALECTS)

TOO_LONG = classify(400, {"error": {"code": "context_length_exceeded", "message": "too long"}})
FOUND = "found it among other things, as was to be expected " * 8


def user(text: str) -> Wire:
    return {"role": "user", "content": text}


def says(text: str) -> Wire:
    return {"role": "assistant", "content": text}


def opened(wires: Sequence[Wire] = (), settings: CheckpointSettings | None = None, **given: Any) -> Context:
    """A checkpoint session; its window is wide unless it is said."""
    wide: dict[str, Any] = {"window": 128_000, "max_output_tokens": 0, "counter": CharsPerFour()}
    context = Context(**({"policy": checkpoint(settings)} | wide | given))
    context.extend(wires)
    return context


def talk(turns: int, chars: int = 400) -> list[Wire]:
    """Questions and answers of `chars` characters each."""
    out: list[Wire] = []
    for turn in range(turns):
        out += [user(f"Question {turn:03}: ".ljust(chars, "q")), says(f"Answer {turn:03}: ".ljust(chars, "a"))]
    return out


def text_of(message: Wire) -> str:
    """All text of a message, in any dialect."""
    content = message.get("content", message.get("output", "")) or ""
    if isinstance(content, str):
        return content
    return "\n".join(text_of({"content": block.get("text", block.get("content", ""))}) for block in content)


def results(context: Context) -> list[str]:
    """The text of each tool result that is sent, in order."""
    read = codec(context.dialect).read
    return [result.text for wire in context.prepare().messages for result in read(wire).results]


def with_kind(context: Context, kind: str) -> list[VisibleMessage]:
    return [seen for seen in context.view.history() if seen.kind == kind]


# --- S2.01 ------------------------------------------------------------------------------------------------------------


def test_s2_01_settings_have_the_documents_defaults() -> None:
    assert dataclasses.asdict(CheckpointSettings()) == {
        "max_messages": 50,
        "max_tokens": 8_000,
        "keep_recent": 5,
        "keep_recent_tokens": 20_000,
        "reserve_tokens": 16_384,
        "tool_call_cutoff": 10,
        "tool_summary_strategy": "llm",
        "auto_compact": True,
    }


def test_s2_01_the_preset_is_the_policy_of_the_defaults() -> None:
    preset = Context(policy="checkpoint", window=1_000).policy
    assert preset == checkpoint() == checkpoint(CheckpointSettings())
    assert preset.trigger.reserve == Reserve(max_tokens=8_000, reserve_tokens=16_384, max_messages=50)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_messages", 0),
        ("max_messages", "50"),
        ("max_tokens", -1),
        ("keep_recent", -1),
        ("keep_recent_tokens", 1.5),
        ("reserve_tokens", None),
        ("tool_call_cutoff", True),
        ("tool_summary_strategy", "model"),
        ("auto_compact", "yes"),
    ],
)
def test_s2_01_a_bad_value_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=f"^{field}: must be"):
        CheckpointSettings(**{field: value})


# --- S2.02 ------------------------------------------------------------------------------------------------------------


def test_s2_02_off_means_never() -> None:
    context = opened(talk(570), CheckpointSettings(auto_compact=False))
    assert context.view.tokens > 111_616, "a limit is reached, and the messages are over 50"
    assert context.prepare().messages == talk(570)
    over = opened(talk(700), CheckpointSettings(auto_compact=False))
    with pytest.raises(DoesNotFit, match="folds only when asked"):
        over.prepare()
    with pytest.raises(DoesNotFit, match="folding is switched off"):
        context.recover(TOO_LONG)


def test_s2_02_off_still_limits_outputs_and_results_and_compacts_when_asked() -> None:
    settings = CheckpointSettings(auto_compact=False, tool_summary_strategy="heuristic")
    context = opened(session(20, result="line\n" * 3_000), settings)
    assert len(results(context)) == 10
    assert all("lines omitted" in result for result in results(context))
    made = context.compact(summarize=ScriptedModel(["what was done"]))
    assert [fold.reducer for fold in made] == ["summarize"]


def test_s2_02_with_a_token_limit_the_tokens_decide() -> None:
    settings = CheckpointSettings(reserve_tokens=120_000, max_messages=4, keep_recent_tokens=1_000)
    context = opened(settings=settings)
    for number in range(79):
        context.append(user("x" * 400))
        assert context.prepare().folds == (), f"{context.view.tokens} tokens are below 8,000, whatever the messages"
        assert context.view.tokens == 100 * (number + 1)
    context.append(user("x" * 400))
    assert context.view.tokens == 8_000
    assert context.prepare(summarize=ScriptedModel(["so far"])).folds != (), "reached, not passed"


def test_s2_02_without_a_token_limit_the_messages_decide() -> None:
    settings = CheckpointSettings(max_tokens=0, max_messages=12, keep_recent_tokens=0)
    context = opened(settings=settings, window=16_384)
    for wire in talk(6)[:11]:
        context.append(wire)
        assert context.prepare().folds == ()
    context.append(talk(6)[11])
    request = context.prepare(summarize=ScriptedModel(["so far"]))
    assert text_of(request.messages[0]) == f"{SUMMARY_PREFIX}\nso far"
    assert request.messages[1:] == talk(6)[7:], "the last five stay"


def test_s2_02_the_order_on_the_trigger_itself() -> None:
    view = opened(talk(30)).view
    counted = Trigger(reserve=Reserve(max_tokens=0, reserve_tokens=10**9, max_messages=60))
    assert counted.due(view, 0, TokenLimits(1_000, 0))
    assert not Trigger(reserve=Reserve(max_messages=60)).due(view, 7_999, TokenLimits(1_000, 0))
    assert Trigger(reserve=Reserve(max_messages=60)).due(view, 8_000, TokenLimits(1_000, 0))
    assert not Trigger().due(view, 10**9, TokenLimits(1_000, 0))


# --- S2.03 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "max_tokens", "effective"),
    [
        (128_000, 8_000, 111_616),
        (16_385, 8_000, 1),
        (16_384, 8_000, 8_000),
        (8_192, 8_000, 8_000),
        (0, 8_000, 8_000),
        (None, 8_000, 8_000),
        (None, 0, None),
        (16_384, 0, None),
        (128_000, 0, 111_616),
    ],
)
def test_s2_03_the_effective_limit(window: int | None, max_tokens: int, effective: int | None) -> None:
    assert Reserve(max_tokens=max_tokens).effective_tokens(window) == effective


@pytest.mark.parametrize(
    ("window", "max_tokens", "keep", "recent"),
    [
        (128_000, 8_000, 20_000, 20_000),
        (56_384, 8_000, 20_000, 20_000),
        (46_384, 8_000, 20_000, 15_000),
        (None, 8_000, 20_000, 4_000),
        (None, 8_000, 1_000, 1_000),
        (None, 0, 20_000, 20_000),
    ],
)
def test_s2_03_what_stays_recent_is_at_most_half_of_it(
    window: int | None, max_tokens: int, keep: int, recent: int
) -> None:
    assert Reserve(max_tokens=max_tokens).recent_tokens(keep, window) == recent


@pytest.mark.parametrize(("window", "limit"), [(26_384, 10_000), (36_384, 20_000)])
def test_s2_03_a_session_compacts_at_it_and_keeps_at_most_half(window: int, limit: int) -> None:
    context = opened(window=window)
    wires = talk(limit // 200)
    context.extend(wires[:-1])
    assert context.prepare().folds == ()
    context.append(wires[-1])
    assert context.view.tokens == limit
    request = context.prepare(summarize=ScriptedModel(["so far"]))
    kept = limit // 2 // 100
    assert text_of(request.messages[0]) == f"{SUMMARY_PREFIX}\nso far"
    assert unjoined(request.messages)[1:] == wires[-kept:]


# --- S2.04 ------------------------------------------------------------------------------------------------------------


def test_s2_04_everything_is_visible_unless_it_is_said() -> None:
    context = opened([user("hello")])
    (seen,) = context.view.history()
    assert (seen.agent_visible, seen.user_visible, seen.kind) == (True, True, "")


@dialects
def test_s2_04_what_the_agent_does_not_see_is_neither_sent_nor_counted(dialect: str) -> None:
    wires = session(3, dialect=dialect)
    shown = opened(wires, dialect=dialect)
    context = opened(wires[:1], dialect=dialect)
    hidden = context.append({**wires[0], "content": "for the user only"}, agent_visible=False)
    context.extend(wires[1:])
    assert context.prepare().messages == shown.prepare().messages == wires
    assert context.view.tokens == shown.view.tokens
    assert context.view.message_count == len(wires)
    assert context.view.content_bytes == shown.view.content_bytes
    assert context.view.turn_count == 1
    seen = next(seen for seen in context.view.history() if seen.entry == hidden)
    assert (seen.agent_visible, seen.user_visible) == (False, True)


def test_s2_04_what_the_agent_does_not_see_is_in_no_summary() -> None:
    model = ScriptedModel(["so far"])
    context = opened(talk(20), CheckpointSettings(keep_recent_tokens=500))
    context.append(user("SECRET of the user"), agent_visible=False)
    context.extend(talk(20))
    context.compact(summarize=model)
    assert "SECRET" not in model.calls[0].text
    assert "SECRET" not in json.dumps(context.prepare().messages)


def test_s2_04_what_the_user_does_not_see_is_sent() -> None:
    context = opened([user("hello")])
    context.append(user("a reminder from the loop"), user_visible=False, kind="reminder")
    assert text_of(context.prepare().messages[1]) == "a reminder from the loop"
    seen = list(context.view.history())[1]
    assert (seen.agent_visible, seen.user_visible, seen.kind) == (True, False, "reminder")


@dialects
def test_s2_04_archived_results_are_reported_with_their_kind(dialect: str) -> None:
    context = opened(session(14, result=FOUND, dialect=dialect), dialect=dialect)
    context.prepare()
    archived, whole, digests = (
        with_kind(context, kind) for kind in ("tool_result_archived", "tool_result", "tool_summary")
    )
    assert [seen.entry is not None and seen.message.results[0].call_id for seen in archived] == [
        f"call_{n}" for n in range(4)
    ]
    assert {(seen.agent_visible, seen.user_visible) for seen in archived} == {(False, True)}
    assert {(seen.agent_visible, seen.user_visible) for seen in whole} == {(True, True)}
    assert len(whole) == 10
    (digest,) = digests
    assert digest.entry is None
    assert (digest.message.role, digest.agent_visible, digest.user_visible) == ("user", True, False)


def test_s2_04_flags_outlive_archiving_and_compaction() -> None:
    wires = session(14, result=FOUND)
    context = opened()
    for wire in wires:
        context.append(wire, user_visible=wire["role"] != "tool")
    context.prepare()
    assert {seen.user_visible for seen in with_kind(context, "tool_result_archived")} == {False}
    after = [*talk(200), user("Thank you.")]
    context.extend(after)
    context.compact(summarize=ScriptedModel(["so far"], repeat=True))
    archived = with_kind(context, "tool_result_archived")
    assert len(archived) == 4
    assert {(seen.agent_visible, seen.user_visible) for seen in archived} == {(False, False)}
    entries = [seen.entry for seen in context.view.history() if seen.entry is not None]
    assert [entry.recorded for entry in entries] == [*wires, *after], "the user goes on seeing all of it"
    assert [seen.agent_visible for seen in with_kind(context, "summary")] == [True]
    assert [seen.agent_visible for seen in with_kind(context, "tool_summary")] == [False], "it was summarised too"


def test_s2_04_undo_makes_them_plain_results_again() -> None:
    context = opened(session(14, result=FOUND))
    context.prepare()
    context.undo()
    assert len(with_kind(context, "tool_result")) == 14
    assert with_kind(context, "tool_result_archived") == with_kind(context, "tool_summary") == []


# --- S2.05 ------------------------------------------------------------------------------------------------------------


def test_s2_05_limits_have_the_documents_defaults() -> None:
    limits = OutputLimits()
    assert (limits.max_lines, limits.max_bytes, limits.max_chars) == (2_000, 51_200, 204_800)
    assert limits.mode == "head_tail"
    assert Spill().threshold_chars == 204_800
    assert checkpoint().guard == (Spill(), OutputLimits())


def test_s2_05_lines_are_cut_with_a_marker_between_both_ends() -> None:
    lines = [f"line {n}" for n in range(3_000)]
    cut = cut_output("\n".join(lines), OutputLimits()).split("\n")
    assert cut[:1_000] == lines[:1_000]
    assert cut[1_000] == "... [1001 lines omitted] ..."
    assert cut[1_001:2_000] == lines[-999:]
    text, shown = "\n".join(lines), "\n".join(cut[:-1])
    figures = f"2000 of 3000 lines, {len(shown)} of {len(text)} characters, {len(shown)} of {len(text)} bytes"
    assert cut[2_000:] == [f"[output truncated: {figures}]"]


@pytest.mark.parametrize(("limit", "marked"), [(1, False), (3, False), (4, True), (5, True)])
def test_s2_05_below_four_lines_there_is_no_room_for_a_marker(limit: int, marked: bool) -> None:
    text = "\n".join(f"line {n}" for n in range(10))
    *shown, notice = cut_output(text, OutputLimits(max_lines=limit)).split("\n")
    assert len(shown) == limit
    assert any("lines omitted" in line for line in shown) is marked
    assert notice.startswith(f"[output truncated: {limit} of 10 lines, ")
    assert marked or shown == text.split("\n")[:limit]


def test_s2_05_mode_head_keeps_the_beginning() -> None:
    text = "\n".join(f"line {n}" for n in range(10))
    assert cut_output(text, OutputLimits(max_lines=5, mode="head")) == (
        "\n".join(f"line {n}" for n in range(5))
        + "\n[output truncated: 5 of 10 lines, 34 of 69 characters, 34 of 69 bytes]"
    )
    assert cut_output("x" * 100, OutputLimits(max_chars=40, mode="head")).split("\n")[0] == "x" * 40
    assert cut_output("é" * 100, OutputLimits(max_bytes=41, mode="head")).split("\n")[0] == "é" * 20


def test_s2_05_characters_come_after_lines_and_bytes_last() -> None:
    text = "\n".join("é" * 100 for _ in range(20))
    limits = OutputLimits(max_lines=10, max_chars=500, max_bytes=300)
    shown, _, notice = cut_output(text, limits).rpartition("\n")
    assert len(shown.encode()) <= 300
    assert len(shown) <= 500
    assert len(shown.split("\n")) <= 10
    assert notice == (
        f"[output truncated: {len(shown.splitlines())} of 20 lines, {len(shown)} of {len(text)} characters, "
        f"{len(shown.encode())} of {len(text.encode())} bytes]"
    )


@pytest.mark.parametrize("mode", ["head", "head_tail"])
@pytest.mark.parametrize("limit", [0, 1, 30, 60, 1_000])
def test_s2_05_no_limit_is_overrun_and_no_character_broken(limit: int, mode: Any) -> None:
    text = "🙂é x" * 1_000
    for limits in (OutputLimits(max_chars=limit, mode=mode), OutputLimits(max_bytes=limit, mode=mode)):
        shown = cut_output(text, limits).rpartition("\n")[0]
        assert len(shown) <= limits.max_chars
        assert len(shown.encode()) <= limits.max_bytes


def test_s2_05_what_is_within_all_limits_stays() -> None:
    text = "\n".join("x" * 24 for _ in range(2_000))
    assert len(text) < 51_200
    assert cut_output(text, OutputLimits()) == text


@dialects
def test_s2_05_the_preset_cuts_results_and_errors_as_they_come_in(dialect: str) -> None:
    output = "\n".join(f"line {n}" for n in range(3_000))
    wires = [dict(wire) for wire in session(2, result=output, dialect=dialect)]
    if dialect == "anthropic":
        wires[2]["content"][0]["is_error"] = True
    context = opened(wires, dialect=dialect)
    assert results(context) == [cut_output(output, OutputLimits())] * 2
    messages = context.prepare().messages
    assert dialect != "anthropic" or messages[2]["content"][0]["is_error"] is True
    assert check(messages, dialect=dialect) == []


@dialects
def test_s2_05_over_the_threshold_the_output_is_saved_and_a_notice_says_where(dialect: str, tmp_path: Path) -> None:
    output = "data: größe\n" * 20_000
    assert len(output) > 204_800
    context = opened(
        session(1, result=output, dialect=dialect), dialect=dialect, archive=FileArchive(tmp_path / "kept")
    )
    (shown,) = results(context)
    digest = hashlib.sha256(output.encode()).hexdigest()
    (path,) = [path for path in (tmp_path / "kept").rglob("*") if path.name == digest]
    assert path.read_text("utf-8") == output
    assert path.stat().st_mode & 0o777 == 0o600
    assert shown == spill_notice(output, str(path))
    assert str(path) in shown
    assert f"SHA-256 {digest}" in shown
    assert shown.startswith("data: größe\n")
    assert len(shown.encode()) < 51_200


@pytest.mark.parametrize(("chars", "spilled"), [(204_800, False), (204_801, True)])
def test_s2_05_the_threshold_is_in_characters_and_must_be_passed(chars: int, spilled: bool) -> None:
    (shown,) = results(opened(session(1, result="é" * chars)))
    assert ("SHA-256" in shown) is spilled
    assert ("output truncated" in shown) is not spilled


def test_s2_05_limits_of_ones_own() -> None:
    limits = OutputLimits(max_lines=4, mode="head")
    policy = checkpoint(outputs=limits, large_output_chars=3_000)
    (cut,) = results(opened(session(1, result="line of an output\n" * 100), policy=policy))
    assert cut == cut_output("line of an output\n" * 100, limits)
    (spilled,) = results(opened(session(1, result="line of an output\n" * 200), policy=policy))
    assert "3,600 characters saved to archive:" in spilled, "the notice is not cut in its turn"


def test_s2_05_of_several_results_in_one_message_each_is_limited() -> None:
    wires = [dict(wire) for wire in session(1, dialect="anthropic")]
    calls = [{"type": "tool_use", "id": f"c{n}", "name": "run", "input": {}} for n in range(2)]
    outputs = ["x" * 300_000, "line\n" * 3_000]
    blocks = [{"type": "tool_result", "tool_use_id": f"c{n}", "content": text} for n, text in enumerate(outputs)]
    wires[1:] = [{"role": "assistant", "content": calls}, {"role": "user", "content": blocks}]
    spilled, cut = results(opened(wires, dialect="anthropic"))
    assert "300,000 characters saved to" in spilled
    assert cut == cut_output("line\n" * 3_000, OutputLimits())


# --- S2.06 ------------------------------------------------------------------------------------------------------------


@dialects
@pytest.mark.parametrize("count", [9, 10, 11, 15, 30])
def test_s2_06_over_the_cutoff_the_oldest_are_archived(count: int, dialect: str) -> None:
    context = opened(session(count, result=FOUND, dialect=dialect), dialect=dialect)
    messages = context.prepare().messages
    assert len(results(context)) == min(count, 10)
    assert check(messages, dialect=dialect) == []
    digests = [text_of(message) for message in messages if text_of(message).startswith(TOOL_PREFIX)]
    assert len(digests) == (1 if count > 10 else 0), "one message stands for all of them"
    assert len(with_kind(context, "tool_result_archived")) == max(0, count - 10)


def test_s2_06_as_a_session_goes_on_one_digest_takes_up_one_after_the_other() -> None:
    context = opened(settings=CheckpointSettings(tool_summary_strategy="heuristic"))
    archived = []
    for wire in session(20, result=FOUND):
        context.append(wire)
        if wire["role"] == "tool":
            messages = context.prepare().messages
            archived.append(len(with_kind(context, "tool_result_archived")))
            assert sum(text_of(message).startswith(TOOL_PREFIX) for message in messages) <= 1
    assert archived == [0] * 10 + list(range(1, 11)), "one by one"


def test_s2_06_a_model_writes_the_digest_within_its_limits() -> None:
    model = ScriptedModel(["It was found. " * 200])
    context = opened(session(15, result="a long result of a call " * 400))
    messages = context.prepare(summarize=model).messages
    (digest,) = [text_of(message) for message in messages if text_of(message).startswith(TOOL_PREFIX)]
    assert digest == f"{TOOL_PREFIX}\n" + ("It was found. " * 200).strip()[:1_200]
    (call,) = model.calls
    body = call.messages[1]["content"].removeprefix("<<<results\n").removesuffix("\nresults>>>")
    assert 8_000 < len(body) <= 12_000
    assert "src/0.py" in body
    (seen,) = with_kind(context, "tool_summary")
    assert (seen.message.role, seen.agent_visible, seen.user_visible) == ("user", True, False)


def test_s2_06_a_model_is_asked_for_several_at_once_not_at_every_call() -> None:
    model = ScriptedModel(["It was found."], repeat=True)
    context = opened()
    for wire in session(40, result=FOUND):
        context.append(wire)
        context.prepare(summarize=model)
    assert len(model.calls) <= 30 // 5
    assert len(results(context)) <= 10


@pytest.mark.parametrize(
    "reply", [RuntimeError("down"), "", "I'm sorry, I cannot do that.", Completion("half", "length"), None]
)
def test_s2_06_a_failing_model_falls_back_to_the_heuristic(reply: str | Completion | Exception | None) -> None:
    heard: list[ContextEvent] = []
    wires = session(15, result=FOUND)
    plain = opened(wires, CheckpointSettings(tool_summary_strategy="heuristic"))
    context = opened(wires, on_event=heard.append)
    model = None if reply is None else ScriptedModel([reply])
    assert context.prepare(summarize=model).messages == plain.prepare().messages
    assert [event.name for event in heard] == ([] if reply is None else ["fold_failed"])


def test_s2_06_the_heuristic_takes_heads_and_tails_within_800_characters() -> None:
    result = "the beginning of it " + "and so on " * 200 + "the end of it"
    context = opened(session(30, result=result), CheckpointSettings(tool_summary_strategy="heuristic"))
    messages = context.prepare().messages
    (digest,) = [text_of(message) for message in messages if text_of(message).startswith(TOOL_PREFIX)]
    body = digest.removeprefix(f"{TOOL_PREFIX}\n")
    assert 400 < len(body) <= 800
    small = opened(session(11, result=result), CheckpointSettings(tool_summary_strategy="heuristic"))
    (one,) = [text_of(m) for m in small.prepare().messages if text_of(m).startswith(TOOL_PREFIX)]
    assert "the beginning of it" in one
    assert "the end of it" in one
    assert "read_file" in one
    assert "src/0.py" in one


def test_s2_06_off_archives_nothing() -> None:
    wires = session(30, result=FOUND)
    context = opened(wires, CheckpointSettings(tool_summary_strategy="off"))
    assert context.prepare(summarize=ScriptedModel([])).messages == wires


def test_s2_06_own_cutoff() -> None:
    context = opened(
        session(12, result=FOUND), CheckpointSettings(tool_call_cutoff=3, tool_summary_strategy="heuristic")
    )
    assert len(results(context)) == 3


def test_s2_06_small_results_take_a_small_digest() -> None:
    wires = session(30, result="ok")
    context = opened(wires, CheckpointSettings(tool_summary_strategy="heuristic"))
    before = context.view.tokens
    assert context.prepare().tokens < before
    assert len(results(context)) == 10


def test_s2_06_hidden_results_are_not_counted() -> None:
    context = opened(settings=CheckpointSettings(tool_summary_strategy="heuristic"))
    for number, wire in enumerate(session(16, result=FOUND)):
        context.append(wire, agent_visible=not 1 <= number <= 12)
    assert len(results(context)) == 10
    assert with_kind(context, "tool_summary") == []


def test_s2_06_parallel_results_are_archived_with_their_call() -> None:
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "read", "arguments": json.dumps({"n": n})}}
        for n in range(4)
    ]
    wires: list[Wire] = [user("go")]
    for round_number in range(4):
        named = [call | {"id": f"{call['id']}-{round_number}"} for call in calls]
        wires.append({"role": "assistant", "content": None, "tool_calls": named})
        wires += [{"role": "tool", "tool_call_id": call["id"], "content": FOUND} for call in named]
    context = opened(wires, CheckpointSettings(tool_summary_strategy="heuristic"))
    assert len(results(context)) == 8
    assert check(context.prepare().messages) == []


# --- S2.07 ------------------------------------------------------------------------------------------------------------


@dialects
def test_s2_07_old_messages_become_one_user_message_before_the_recent_ones(dialect: str) -> None:
    model = ScriptedModel(["Goal: keep going."])
    wires = (
        talk(200)
        if dialect != "openai-responses"
        else [{"type": "message", "role": w["role"], "content": w["content"]} for w in talk(200)]
    )
    context = opened(wires, CheckpointSettings(keep_recent_tokens=2_000), dialect=dialect)
    context.compact(summarize=model)
    messages = context.prepare().messages
    assert messages[0]["role"] == "user"
    assert text_of(messages[0]) == f"{SUMMARY_PREFIX}\nGoal: keep going."
    assert unjoined(messages)[1:] == wires[-20:], "2,000 tokens are twenty messages"
    assert check(messages, dialect=dialect) == []


def test_s2_07_without_recent_tokens_a_number_of_messages_stays() -> None:
    context = opened(talk(50), CheckpointSettings(keep_recent_tokens=0, keep_recent=6))
    context.compact(summarize=ScriptedModel(["so far"]))
    messages = context.prepare().messages
    assert text_of(messages[0]) == f"{SUMMARY_PREFIX}\nso far"
    assert unjoined(messages)[1:] == talk(50)[-6:]


def test_s2_07_the_summary_is_asked_for_as_a_structured_checkpoint() -> None:
    model = ScriptedModel(["so far"])
    opened(talk(50), CheckpointSettings(keep_recent_tokens=500)).compact(summarize=model)
    asked = model.calls[0].messages[0]["content"]
    for heading in ("Goal", "Done", "Decisions", "Facts", "Files", "Open"):
        assert f"- {heading}" in asked


def test_s2_07_a_tool_result_enters_the_summary_with_at_most_1800_characters() -> None:
    model = ScriptedModel(["so far"])
    settings = CheckpointSettings(keep_recent_tokens=100, tool_summary_strategy="off")
    wires = [*session(3, result="R" * 2_500), says("done"), user("and now?")]
    context = opened(wires, settings)
    context.compact(summarize=model)
    text = model.calls[0].text
    assert 3 * 1_700 < text.count("R") <= 3 * 1_800
    assert "R" * 1_801 not in text


def test_s2_07_excess_results_among_the_recent_are_archived_into_one_digest() -> None:
    settings = CheckpointSettings(keep_recent_tokens=3_000, tool_summary_strategy="off")
    context = opened(session(60, result=FOUND), settings)
    made = context.compact(summarize=ScriptedModel(["so far"]))
    assert [fold.reducer for fold in made] == ["summarize", "archive_results"]
    messages = unjoined(context.prepare().messages)
    assert text_of(messages[1]) == f"{SUMMARY_PREFIX}\nso far"
    digests = [message for message in messages if text_of(message).startswith(DIGEST_PREFIX)]
    assert DIGEST_PREFIX == "[Compaction tool digest]"
    assert [message["role"] for message in digests] == ["user"]
    assert len(results(context)) == 10
    (seen,) = with_kind(context, "tool_summary")
    assert (seen.message.role, seen.agent_visible, seen.user_visible) == ("user", True, False)
    assert check(messages) == []


def test_s2_07_automatic_compaction_archives_among_the_recent_too() -> None:
    settings = CheckpointSettings(keep_recent_tokens=3_000, tool_summary_strategy="off")
    context = opened(session(90, result=FOUND), settings, window=24_384)
    request = context.prepare(summarize=ScriptedModel(["so far"]))
    assert [fold.reducer for fold in request.folds if isinstance(fold, Fold)] == ["summarize", "archive_results"]
    assert len(results(context)) == 10


def test_s2_07_the_earlier_summary_is_updated() -> None:
    model = ScriptedModel(["first part", "both parts"])
    context = opened(talk(50), CheckpointSettings(keep_recent_tokens=500))
    context.compact(summarize=model)
    context.extend(talk(50))
    context.compact(summarize=model)
    texts = [text_of(message) for message in context.prepare().messages]
    assert [text for text in texts if text.startswith(SUMMARY_PREFIX)] == [f"{SUMMARY_PREFIX}\nboth parts"]
    assert "<<<checkpoint\nfirst part\ncheckpoint>>>" in model.calls[1].text


def test_s2_07_nothing_old_is_nothing_to_compact() -> None:
    context = opened(talk(5))
    with pytest.raises(SummaryError, match="nothing to fold"):
        context.compact(summarize=ScriptedModel([]))


# --- S2.08 ------------------------------------------------------------------------------------------------------------


def told(heard: list[ContextEvent]) -> list[tuple[str, int, int]]:
    """Name, messages and tokens of the beginnings and ends."""
    return [(e.name, e.messages, e.tokens) for e in heard if isinstance(e, FoldStarted | FoldFinished)]


def test_s2_08_automatic_compaction_tells_its_start_and_end_with_counts() -> None:
    heard: list[ContextEvent] = []
    context = opened(talk(140), window=44_384, on_event=heard.append)
    before = context.view.tokens
    request = context.prepare(summarize=ScriptedModel(["so far"]))
    assert told(heard) == [
        ("fold_started", 280, before),
        ("fold_finished", len(unjoined(request.messages)), request.tokens),
    ]
    finished = heard[-1]
    assert isinstance(finished, FoldFinished)
    assert (finished.messages_before, finished.tokens_before) == (280, before)
    assert [fold.reducer for fold in finished.folds] == ["summarize"]
    assert finished.error is None


def test_s2_08_the_error_is_in_the_end_event_and_compaction_goes_on_without_a_model() -> None:
    heard: list[ContextEvent] = []
    context = opened(talk(140), window=44_384, on_event=heard.append)
    request = context.prepare(summarize=ScriptedModel([RuntimeError("model is down")]))
    finished = heard[-1]
    assert isinstance(finished, FoldFinished)
    assert finished.error == "the summariser failed: RuntimeError: model is down"
    assert [fold.reducer for fold in finished.folds] == ["digest"]
    assert request.tokens < 28_000


@pytest.mark.parametrize("asking", [True, False])
def test_s2_08_recovery_compacts_and_tells_it_and_the_retry_is_smaller(asking: bool) -> None:
    heard: list[ContextEvent] = []
    context = opened(talk(200), on_event=heard.append)
    refused = context.prepare()
    model = ScriptedModel(["so far"], repeat=True)
    outcome = context.recover(TOO_LONG, summarize=model if asking else None)
    again = context.prepare()
    assert outcome.retry
    assert again.tokens == outcome.tokens_after < refused.tokens == outcome.tokens_before
    assert told(heard) == [
        ("fold_started", 400, refused.tokens),
        ("fold_finished", len(unjoined(again.messages)), again.tokens),
    ]
    assert text_of(again.messages[0]).startswith(SUMMARY_PREFIX) is asking
    assert len(model.calls) == (1 if asking else 0)


def test_s2_08_a_failing_model_does_not_fail_the_recovery() -> None:
    heard: list[ContextEvent] = []
    context = opened(talk(200), on_event=heard.append)
    refused = context.prepare()
    context.recover(TOO_LONG, summarize=ScriptedModel([RuntimeError("down")]))
    assert context.prepare().tokens < refused.tokens
    assert [event.name for event in heard] == ["fold_started", "fold_failed", "fold_finished"]
    finished = heard[-1]
    assert isinstance(finished, FoldFinished)
    assert finished.error == "the summariser failed: RuntimeError: down"


def test_s2_08_recovery_has_an_async_twin() -> None:
    context = opened(talk(200))
    context.prepare()
    model = ScriptedModel(["so far"])
    outcome = asyncio.run(context.recover_async(TOO_LONG, summarize=model.acall))
    assert outcome.retry
    assert text_of(context.prepare().messages[0]) == f"{SUMMARY_PREFIX}\nso far"


def test_s2_08_when_nothing_can_be_reduced_the_end_event_says_so() -> None:
    heard: list[ContextEvent] = []
    context = opened([user("just this")], on_event=heard.append)
    context.prepare()
    with pytest.raises(DoesNotFit):
        context.recover(TOO_LONG)
    assert [event.name for event in heard] == ["fold_started", "fold_finished"]
    finished = heard[-1]
    assert isinstance(finished, FoldFinished)
    assert finished.error is not None
    assert "nothing more can be reduced" in finished.error


def test_s2_08_an_asked_for_compaction_tells_its_end_and_error_too() -> None:
    heard: list[ContextEvent] = []
    context = opened(talk(200), CheckpointSettings(keep_recent_tokens=1_000), on_event=heard.append)
    shown = context.prepare().messages
    with pytest.raises(SummaryError):
        context.compact(summarize=ScriptedModel([""]))
    assert context.prepare().messages == shown
    assert [event.name for event in heard] == ["fold_started", "fold_failed", "fold_finished"]
    failed, finished = heard[1:]
    assert isinstance(failed, FoldFailed)
    assert isinstance(finished, FoldFinished)
    assert (finished.error, finished.folds, finished.messages) == (failed.reason, (), 400)


# --- S2.09 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("größer", 2), ("🙂" * 8, 2)]
)
def test_s2_09_characters_by_four_rounded_up(text: str, tokens: int) -> None:
    assert CharsPerFour().text(text) == tokens


def test_s2_09_text_thinking_and_arguments_are_counted_and_an_image_is_1200() -> None:
    count = CharsPerFour()
    read = codec("anthropic").read
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    call = {"type": "tool_use", "id": "a-long-id-that-is-not-counted", "name": "nor_the_name", "input": {"a": 1}}
    thinking = {"type": "thinking", "thinking": "t" * 9, "signature": "s" * 900}
    assert message_tokens(read(user("x" * 10)), count) == 3
    assert message_tokens(read({"role": "user", "content": [image]}), count) == 1_200
    assert message_tokens(read({"role": "user", "content": [image, image]}), count) == 2_400
    assert message_tokens(read({"role": "assistant", "content": [thinking]}), count) == 3
    arguments = read({"role": "assistant", "content": [call]}).calls[0].arguments
    assert message_tokens(read({"role": "assistant", "content": [call]}), count) == -(-len(arguments) // 4)
    both = read({"role": "assistant", "content": [thinking, {"type": "text", "text": "y" * 2}]})
    assert message_tokens(both, count) == 3, "rounded once for the message"
    result = {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "z" * 7}, image]}
    assert message_tokens(read({"role": "user", "content": [result]}), count) == 1_202


def test_s2_09_without_usage_all_is_estimated() -> None:
    context = opened([user("x" * 10), says("y" * 9), user("z" * 8)])
    assert context.view.tokens == 3 + 3 + 2
    assert context.prepare().tokens == 8


@pytest.mark.parametrize("reported_first", [True, False])
def test_s2_09_with_usage_only_what_follows_is_estimated(reported_first: bool) -> None:
    context = opened([user("x" * 4_000)])
    context.prepare()
    usage = {"prompt_tokens": 1_234, "completion_tokens": 56}
    if reported_first:
        context.observe(usage)
        assert context.view.tokens == 1_234
    context.append(says("y" * 400))
    if not reported_first:
        context.observe(usage)
    assert context.view.tokens == 1_234 + 56
    context.append(user("z" * 41))
    assert context.view.tokens == 1_234 + 56 + 11
    context.append(says("a second reply nobody has reported yet"))
    assert context.view.tokens == 1_234 + 56 + 11 + 10


def test_s2_09_hidden_messages_are_skipped() -> None:
    context = opened([user("x" * 40)])
    context.append(user("y" * 4_000), agent_visible=False)
    assert context.view.tokens == 10


def test_s2_09_usage_from_before_a_compaction_is_not_believed_after_it() -> None:
    context = opened(talk(200), CheckpointSettings(keep_recent_tokens=1_000))
    context.prepare()
    context.observe({"prompt_tokens": 55_000, "completion_tokens": 10})
    assert context.view.tokens == 55_000
    context.compact(summarize=ScriptedModel(["so far"]))
    expected = sum(
        message_tokens(codec("openai-chat").read(wire), CharsPerFour()) for wire in context.prepare().messages
    )
    assert context.view.tokens == expected


def test_s2_09_reported_usage_triggers_compaction() -> None:
    context = opened(talk(40), window=26_384)
    assert context.prepare().folds == ()
    context.observe({"prompt_tokens": 9_950, "completion_tokens": 50})
    context.append(says("y" * 40))
    context.append(user("and?"))
    assert context.view.tokens == 10_001
    assert context.prepare(summarize=ScriptedModel(["so far"])).folds != ()


def test_s2_09_a_one_shot_fit_may_count_that_way() -> None:
    fitted = fit(talk(100), max_tokens=5_000, policy="checkpoint", counter=CharsPerFour())
    assert fitted.tokens == sum(-(-len(text_of(message)) // 4) for message in fitted.messages) <= 5_000


def test_s2_09_the_archives_digest_is_the_same_by_any_counter() -> None:
    policy = checkpoint(CheckpointSettings(tool_summary_strategy="heuristic"))
    assert ArchiveResults(10, strategy="heuristic") in policy.always
    plain = Context(policy=policy, window=128_000)
    plain.extend(session(15, result=FOUND))
    assert plain.prepare().messages == opened(session(15, result=FOUND), policy=policy).prepare().messages
