"""One oversized result or argument: cut, with a line that says what is missing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import costly
from tests.property.sessions import BUILDERS, DIALECTS
from tests.reducers.views import (
    LINE,
    applied,
    call,
    context_of,
    folds_of,
    gave,
    need_of,
    picture,
    result,
    sent,
    text,
    use,
    user,
    view_of,
)

import foldline
from foldline.errors import InvalidInput
from foldline.messages import ToolCall
from foldline.reducers.arrival import ShortenNew
from foldline.reducers.base import Reducer
from foldline.reducers.result_share import ResultShare
from foldline.reducers.truncate import (
    CharLimit,
    FileViewLimit,
    OutputLimits,
    ResultLimit,
    ShortForm,
    cut_chars,
    cut_file_view,
    cut_output,
    cut_result,
    shorten,
    shorten_arguments,
    tool_names,
)
from foldline.testing import session
from foldline.text.shorten import Mode
from foldline.tokens import ESTIMATE

texts = st.text(alphabet=st.sampled_from("ab \n.,{}é上👩"), max_size=600)
modes: st.SearchStrategy[Mode] = st.sampled_from(("head", "tail", "both"))
FRESH: list[Reducer] = [
    FileViewLimit(),
    OutputLimits(max_lines=50),
    ResultLimit(limit_tokens=200),
    ShortenNew(least_tokens=50, share=0.001, of_result=0.0),
]


# --- texts ------------------------------------------------------------------------------------------------------------


@given(texts, st.integers(0, 300))
def test_a_file_view_is_cut_on_a_character_boundary(words: str, limit: int) -> None:
    out = cut_file_view(words, limit)
    if len(words.encode()) <= limit:
        assert out == words
    else:
        head, notice = out.rsplit("...\n[truncated, showing first ", 1)
        assert words.startswith(head)
        assert notice == f"{len(head.encode())} bytes of {len(words.encode())} total]"
        assert limit - 4 < len(head.encode()) <= limit


@given(texts, st.integers(0, 300))
def test_characters_are_cut_to_their_number(words: str, limit: int) -> None:
    out = cut_chars(words, limit)
    assert len(out) <= limit or out == words
    assert (out == words) == (len(words) <= limit)


@given(texts, st.integers(1, 200), modes)
def test_a_cut_result_is_never_longer_than_the_whole(words: str, limit: int, mode: Mode) -> None:
    out = cut_result(words, limit, mode, ESTIMATE)
    assert ESTIMATE.text(out) <= ESTIMATE.text(words)
    if ESTIMATE.text(words) <= limit:
        assert out == words
    assert out.encode("utf-8").decode() == out


def test_head_tail_and_both_say_so() -> None:
    words = "\n".join(f"line {n}" for n in range(500))
    head, tail, both = (cut_result(words, 60, mode, ESTIMATE) for mode in ("head", "tail", "both"))
    assert head.startswith("line 0\n")
    assert head.endswith("tokens (head)]")
    assert tail.startswith("[truncated: kept last ~60 of ~")
    assert tail.endswith("line 499")
    assert both.startswith("line 0\n")
    assert both.endswith("line 499")


@given(texts, st.integers(1, 30), st.integers(10, 400), st.integers(10, 400), st.sampled_from(("head", "head_tail")))
def test_an_output_within_all_limits_stays_and_another_says_how_much_it_was(
    words: str, lines: int, most_bytes: int, chars: int, mode: Any
) -> None:
    limits = OutputLimits(max_lines=lines, max_bytes=most_bytes, max_chars=chars, mode=mode)
    out = cut_output(words, limits)
    fits = len(words.splitlines()) <= lines and len(words) <= chars and len(words.encode()) <= most_bytes
    if fits:
        assert out == words
    else:
        body, notice = out.rsplit("\n[output truncated: ", 1)
        assert f"{len(words.encode())} bytes]" in notice
        assert len(body) <= chars
        assert len(body.encode()) <= most_bytes


def test_the_end_of_an_output_is_shown_too() -> None:
    # openai/codex#6415: a few very long lines, the failure on the last; the byte cut dropped it.
    words = "\n".join(["x" * 40_000, "y" * 40_000, "FAILED: 1 test"])
    assert cut_output(words, OutputLimits()).rsplit("\n[output", 1)[0].endswith("FAILED: 1 test")


# --- what has just come in --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reducer", FRESH, ids=lambda reducer: type(reducer).__name__)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_large_result_is_cut_as_it_comes_and_only_once(reducer: Reducer, dialect: str) -> None:
    build = BUILDERS[dialect]
    wires = [*build.user("go", False), *build.turn(["a"], [LINE * 400], "w" * 6, None)]
    view = view_of(wires, dialect)
    before = view.estimated_tokens
    applied(reducer, view)
    assert view.estimated_tokens < 0.6 * before
    assert folds_of(reducer, view) == []


@pytest.mark.parametrize("reducer", FRESH, ids=lambda reducer: type(reducer).__name__)
def test_what_was_sent_before_is_left_alone(reducer: Reducer) -> None:
    context = context_of(session(2, result=LINE * 400))
    context.extend(session(4, result=LINE * 400)[5:7])
    assert [fold.start for fold in folds_of(reducer, context.view, need_of(context.view, fresh=5))] == [6]


@pytest.mark.parametrize("reducer", FRESH, ids=lambda reducer: type(reducer).__name__)
def test_small_results_are_left_alone(reducer: Reducer) -> None:
    assert folds_of(reducer, view_of(session(5, result="ok"))) == []
    assert folds_of(reducer, view_of([])) == []


@pytest.mark.parametrize("reducer", FRESH, ids=lambda reducer: type(reducer).__name__)
def test_pinned_results_stay(reducer: Reducer) -> None:
    context = context_of(session(1, result=LINE * 400))
    context.pin(1)
    assert folds_of(reducer, context.view) == []


@pytest.mark.parametrize("reducer", FRESH, ids=lambda reducer: type(reducer).__name__)
def test_a_picture_beside_the_text_stays(reducer: Reducer) -> None:
    wires = [user("go"), use("a"), gave("a", [text(LINE * 400), picture()])]
    shown = applied(reducer, view_of(wires, "anthropic"))
    assert [block["type"] for block in shown[2]["content"][0]["content"]] == ["text", "image"]


def test_the_users_words_beside_a_result_stay() -> None:
    wires = [user("go"), use("a"), gave("a", LINE * 400, text("and mind this"))]
    shown = applied(ResultLimit(limit_tokens=100), view_of(wires, "anthropic"))
    assert shown[2]["content"][1] is wires[2]["content"][1]


def test_failed_results_are_cut_too() -> None:
    wires = [user("go"), use("a"), gave("a", LINE * 400, is_error=True)]
    shown = applied(ResultLimit(limit_tokens=100), view_of(wires, "anthropic"))
    assert shown[2]["content"][0]["is_error"] is True
    assert len(json.dumps(shown[2])) < 1_500


def test_other_fields_of_a_message_pass_through() -> None:
    wires = [user("go"), call("a"), {**result("a", LINE * 400), "x-trace": {"id": 7}}]
    assert applied(ResultLimit(limit_tokens=100), view_of(wires))[2]["x-trace"] == {"id": 7}


def test_a_tool_may_have_a_limit_of_its_own() -> None:
    wires = [user("go"), call("a"), result("a", LINE * 40), call("b", name="log"), result("b", LINE * 40)]
    reducer = ResultLimit(limit_tokens=10_000, per_tool={"log": 50})
    assert [fold.start for fold in folds_of(reducer, view_of(wires))] == [4]


@pytest.mark.parametrize("limits", [{"limit_tokens": 0}, {"limit_tokens": -1}, {"per_tool": {"log": 0}}])
def test_a_limit_that_would_show_nothing_is_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="must be greater than 0"):
        ResultLimit(**limits)


def test_shortening_keeps_what_was_asked_for_and_says_how_much_is_gone() -> None:
    view = view_of([user("what about src/mod_211/file_211.py?")])
    words = "\n".join(f"src/mod_{n}/file_{n}.py: fine" for n in range(400))
    out = shorten(words, 100, view)
    assert "src/mod_211/file_211.py" in out
    assert out.endswith(f"of ~{ESTIMATE.text(words)} tokens]")
    assert ESTIMATE.text(out) <= 110


def test_names_of_tools_are_known_by_call() -> None:
    view = view_of([user("go"), call("a", "b", name="log"), result("a", "x"), result("b", "y")])
    assert tool_names(view, 1, 3) == {"a": "log", "b": "log"}


# --- everything large -------------------------------------------------------------------------------------------------


def test_the_largest_is_cut_first_and_the_small_ones_stay() -> None:
    # strands-agents/harness-sdk#4341: the oldest was tried, the huge newer one stayed.
    wires = [user("go"), call("a"), result("a", LINE * 10), call("b"), result("b", LINE * 2_000)]
    view = view_of(wires)
    folds = folds_of(ResultShare(), view, need_of(view, view.estimated_tokens // 2))
    assert [fold.start for fold in folds] == [4]


@pytest.mark.parametrize("target", [400, 1_000, 2_000, 4_000])
def test_together_they_free_what_is_needed(target: int) -> None:
    wires = [user("go")]
    for n, size in enumerate((5, 40, 80, 300)):
        wires += [call(f"c{n}"), result(f"c{n}", LINE * size)]
    view = view_of(wires)
    applied(ResultShare(), view, need_of(view, target))
    assert view.estimated_tokens <= target


def test_call_arguments_stay_json_of_the_same_shape() -> None:
    # NousResearch/hermes-agent#13574: arguments cut as text were invalid JSON for ever.
    given = {"path": "src/a.py", "content": "a long text " * 400, "flags": [1, True, None], "deep": {"x": "y " * 400}}
    wires = [user("go"), call("a", arguments=json.dumps(given)), result("a", "ok"), user("next")]
    shown = applied(ResultShare(), view_of(wires), need_of(view_of(wires), 200))
    arguments = json.loads(shown[1]["tool_calls"][0]["function"]["arguments"])
    assert arguments.keys() == given.keys()
    assert (arguments["path"], arguments["flags"]) == ("src/a.py", [1, True, None])
    assert "characters cut" in arguments["content"]


def test_the_input_of_a_call_stays_an_object() -> None:
    wires = [user("go"), use("a", content="a long text " * 400), gave("a", "ok"), user("next")]
    view = view_of(wires, "anthropic")
    shown = applied(ResultShare(), view, need_of(view, 100))
    assert shown[1]["content"][0]["input"].keys() == {"content"}


def test_a_call_that_waits_is_left_alone() -> None:
    view = view_of([user("go"), call("a", arguments=json.dumps({"x": "long " * 400}))])
    for fold in folds_of(ResultShare(), view, need_of(view, 50)):
        with pytest.raises(Exception, match="waits for its result"):
            view.commit(fold)


def test_old_results_and_new_are_cut_to_their_characters() -> None:
    context = context_of(session(3, result="x" * 3_000))
    shown = applied(CharLimit(500), context.view, need_of(context.view, fresh=5))
    assert [len(message["content"]) <= 500 for message in shown[2::2]] == [True] * 3
    assert sent(context.view).count("characters of 3000 total") == 3
    assert folds_of(CharLimit(500), context.view) == []


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3_000),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def shape(value: Any) -> Any:
    """The value without its texts."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    return "" if isinstance(value, str) else value


@costly
@given(st.dictionaries(st.text(max_size=8), values, max_size=4), st.integers(1, 400))
def test_only_texts_get_shorter(value: dict[str, Any], limit: int) -> None:
    arguments = json.dumps(value, ensure_ascii=False)
    short = shorten_arguments(ToolCall("c", "edit", arguments), limit, ESTIMATE)
    assert shape(json.loads(short)) == shape(value)
    assert len(short) <= len(arguments)


def test_what_is_within_the_limit_stays_to_the_byte() -> None:
    arguments = '{ "path" :"a.py",  "n": 1.0 }'
    assert shorten_arguments(ToolCall("c", "edit", arguments), 100, ESTIMATE) == arguments


def test_short_values_stay_while_long_ones_shrink() -> None:
    arguments = json.dumps({"path": "src/app.py", "content": "x = 1\n" * 900})
    short = json.loads(shorten_arguments(ToolCall("c", "write", arguments), 100, ESTIMATE))
    assert short["path"] == "src/app.py"
    assert short["content"].startswith("x = 1\n")
    assert "characters cut" in short["content"]
    assert ESTIMATE.text(json.dumps(short)) <= 100


def test_free_text_of_a_custom_call_keeps_both_ends() -> None:
    text = "first line\n" + "middle\n" * 900 + "last line"
    short = shorten_arguments(ToolCall("c", "apply", text, custom=True), 60, ESTIMATE)
    assert short.startswith("first line\n")
    assert short.endswith("last line")
    assert len(short) < len(text) // 4


def test_arguments_that_are_no_json_are_left_alone() -> None:
    broken = '{"path": ' * 200
    assert shorten_arguments(ToolCall("c", "edit", broken), 10, ESTIMATE) == broken


@pytest.mark.parametrize("depth", [700, 5_000])
def test_arguments_nested_deeper_than_the_stack_stay_whole(depth: int) -> None:
    nested = "[" * depth + json.dumps("word " * 2_000) + "]" * depth
    assert shorten_arguments(ToolCall("c", "edit", nested), 10, ESTIMATE) == nested


def test_a_call_with_arguments_nested_deeper_than_the_stack_is_folded() -> None:
    nested = "[" * 700 + json.dumps("word " * 4_000) + "]" * 700
    call = {"id": "c", "type": "function", "function": {"name": "edit", "arguments": nested}}
    wires: list[dict[str, object]] = [
        {"role": "user", "content": "go on"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
        {"role": "assistant", "content": "It is done."},
    ]
    assert foldline.fit(wires, max_tokens=2_000).tokens <= 2_000


# --- the size of a short form -----------------------------------------------------------------------------------------


def test_a_short_form_is_a_share_between_a_least_and_a_most() -> None:
    short = ShortForm(share=0.25, least_tokens=50, most_tokens=400, most_share=0.03)
    sizes = [short.limit_tokens(tokens, 10_000) for tokens in (40, 200, 1_000, 1_600, 9_000)]
    assert sizes == [50, 50, 250, 400, 400]


def test_short_forms_grow_with_the_room_and_with_what_a_result_matters() -> None:
    short = ShortForm(share=0.25, least_tokens=50, most_tokens=400, most_share=0.03)
    assert short.limit_tokens(9_000, 100_000) == 2_250
    assert short.limit_tokens(90_000, 100_000) == 3_000
    assert short.limit_tokens(1_000, 10_000, 1.5) == 375
    assert short.limit_tokens(400, 10_000, 9.0) == 320, "never so much that the fold would not pay for its notice"
