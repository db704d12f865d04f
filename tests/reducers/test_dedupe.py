"""Results that came again: only the newest stays whole, and nothing else of a message changes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.reducers.views import (
    applied,
    call,
    context_of,
    folds_of,
    gave,
    picture,
    result,
    sent,
    text,
    use,
    user,
    view_of,
)

from foldline.engine.context import Context
from foldline.engine.policy import Policy
from foldline.messages import Wire
from foldline.reducers.dedupe import SAME, Dedupe
from foldline.reducers.mask import Mask, ShortenOld
from foldline.view.budget import Need, Pressure

WHOLE = "a line of the file\n" * 40


def chat_round(number: int, result: str, arguments: str = '{"path": "a"}', tool: str = "read") -> list[Wire]:
    """One call and its result."""
    call = {"id": f"c{number}", "type": "function", "function": {"name": tool, "arguments": arguments}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": result},
    ]


def shown(wires: list[Wire]) -> list[str]:
    """The results of a session after deduplication."""
    ctx = Context(policy=Policy(name="own", always=(Dedupe(),)), window=100_000)
    ctx.extend([{"role": "user", "content": "go"}, *wires])
    return [str(m["content"]) for m in ctx.prepare().messages if m["role"] == "tool"]


def test_the_same_result_is_shown_once_where_it_came_last() -> None:
    wires = [*chat_round(0, WHOLE, '{"n": 0}'), *chat_round(1, "other " * 40), *chat_round(2, WHOLE, '{"n": 2}')]
    assert shown(wires) == [SAME, "other " * 40, WHOLE]


def test_a_call_made_again_puts_the_older_result_out_of_date() -> None:
    wires = [*chat_round(0, WHOLE, '{"path": "a"}'), *chat_round(1, WHOLE + "new", '{"path": "a"}')]
    assert shown(wires) == ["[out of date: read was called again later with the same arguments]", WHOLE + "new"]


def test_other_arguments_or_another_tool_are_another_question() -> None:
    wires = [
        *chat_round(0, WHOLE + "0", '{"path": "a"}'),
        *chat_round(1, WHOLE + "1", '{"path": "b"}'),
        *chat_round(2, WHOLE + "2", '{"path": "a"}', "stat"),
    ]
    assert shown(wires) == [WHOLE + "0", WHOLE + "1", WHOLE + "2"]


def test_small_results_are_left_alone() -> None:
    assert shown([*chat_round(0, "ok", "{}"), *chat_round(1, "ok", "{}")]) == ["ok", "ok"]


def anthropic(results: list[list[Wire]]) -> list[Wire]:
    """Turns of calls; each result is given without its id."""
    out: list[Wire] = [{"role": "user", "content": "go"}]
    for turn, blocks in enumerate(results):
        ids = [f"t{turn}_{i}" for i in range(len(blocks))]
        out.append(
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": one, "name": "read", "input": {"n": one}} for one in ids],
            }
        )
        answered = [
            {"type": "tool_result", "tool_use_id": one, **block} for one, block in zip(ids, blocks, strict=True)
        ]
        out.append({"role": "user", "content": answered})
    return out


def test_a_later_failure_does_not_put_a_result_out_of_date() -> None:
    call = {"type": "tool_use", "name": "read", "input": {"path": "a"}}
    failed = {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": "gone"}
    wires: list[Wire] = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [call | {"id": "t0"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t0", "content": WHOLE}]},
        {"role": "assistant", "content": [call | {"id": "t1"}]},
        {"role": "user", "content": [failed]},
    ]
    ctx = Context(dialect="anthropic", policy=Policy(name="own", always=(Dedupe(),)), window=100_000)
    ctx.extend(wires)
    assert ctx.prepare().messages == wires


def test_two_different_images_are_not_the_same_result() -> None:
    images: list[Wire] = [
        {"content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}]}
        for data in ("AAAA", "BBBB")
    ]
    ctx = Context(dialect="anthropic", policy=Policy(name="own", always=(Dedupe(),)), window=100_000)
    wires = anthropic([[images[0]], [images[1]]])
    ctx.extend(wires)
    assert ctx.prepare().messages == wires
    ctx.extend(anthropic([[], [], [images[0]]])[-2:])
    first = ctx.prepare().messages[2]["content"][0]["content"]
    assert SAME in str(first)


def test_what_a_mask_has_hidden_in_the_same_message_stays_hidden() -> None:
    wires = anthropic(
        [[{"content": "first\n" * 100}, {"content": WHOLE}], [{"content": WHOLE}], [{"content": "last\n" * 100}]]
    )
    policy = Policy(name="own", always=(Mask(keep_first=0, keep_last=3), Dedupe()))
    ctx = Context(dialect="anthropic", policy=policy, window=100_000)
    ctx.extend(wires)
    blocks = ctx.prepare().messages[2]["content"]
    assert "[result masked" in str(blocks[0]["content"])
    assert SAME in str(blocks[1]["content"])


def test_a_duplicate_stays_hidden_when_another_result_of_its_message_is_shortened() -> None:
    """What shortens old results works from the originals, and leaves one line in brackets alone, whoever made it."""
    long = "".join(f"line {number} of the log\n" for number in range(400))
    wires = anthropic([[{"content": long}, {"content": WHOLE}], [{"content": WHOLE}], [{"content": "last\n" * 100}]])
    policy = Policy(name="own", always=(Dedupe(), ShortenOld(keep=0.0)))
    ctx = Context(dialect="anthropic", policy=policy, window=100_000)
    ctx.extend(wires)
    blocks = ctx.prepare().messages[2]["content"]
    assert "[shortened:" in str(blocks[0]["content"])
    assert SAME in str(blocks[1]["content"])


def test_results_of_one_turn_do_not_replace_each_other_backwards() -> None:
    wires = [user("go"), call("a", "b"), result("a", WHOLE), result("b", WHOLE)]
    shown = applied(Dedupe(), view_of(wires))
    assert [message["content"] for message in shown[2:]] == [SAME, WHOLE]


def test_deduping_again_changes_nothing() -> None:
    wires = [user("go"), call("a"), result("a", WHOLE), call("b"), result("b", WHOLE)]
    view = view_of(wires)
    applied(Dedupe(), view)
    assert folds_of(Dedupe(), view) == []


def test_a_third_view_replaces_the_second_and_leaves_the_first() -> None:
    wires = [user("go"), call("a"), result("a", WHOLE), call("b"), result("b", WHOLE)]
    context = context_of(wires)
    applied(Dedupe(), context.view)
    context.extend([call("c"), result("c", WHOLE)])
    assert [fold.start for fold in folds_of(Dedupe(), context.view)] == [4]


def test_pinned_results_stay() -> None:
    context = context_of([user("go"), call("a"), result("a", WHOLE), call("b"), result("b", WHOLE)])
    context.pin(2)
    assert folds_of(Dedupe(), context.view) == []


def test_equal_captions_do_not_make_pictures_equal() -> None:
    wires = [user("watch")]
    for n, letter in enumerate("ABC"):
        wires += [use(f"c{n}", "click", n=n), gave(f"c{n}", [text("Screenshot taken."), picture(letter)])]
    assert folds_of(Dedupe(), view_of(wires, "anthropic")) == []


@pytest.mark.parametrize("repeats", [2, 5])
def test_the_calls_stay_visible(repeats: int) -> None:
    wires = [user("go")]
    for n in range(repeats):
        wires += [call(f"c{n}", arguments='{"path": "src/a.py"}'), result(f"c{n}", WHOLE)]
    view = view_of(wires)
    applied(Dedupe(), view)
    assert sent(view).count("src/a.py") == repeats


def test_a_call_without_arguments_puts_no_earlier_one_out_of_date() -> None:
    page = [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "p", "type": "function", "function": {"name": "next_page", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "p", "content": ""},
    ]
    wires: list[Any] = [{"role": "user", "content": "read on"}]
    for number in range(2):
        call, result = json.loads(json.dumps(page))
        call["tool_calls"][0]["id"] = result["tool_call_id"] = f"p{number}"
        result["content"] = f"page {number}: " + "words of the page " * 40
        wires += [call, result]
    context = Context(window=100_000, max_output_tokens=0)
    context.extend(wires)
    need = Need(Pressure.HARD, context.view.estimated_tokens, 1)
    assert list(Dedupe().propose(context.view, need)) == []


def test_a_second_result_of_a_call_replaces_nothing_as_no_request_shows_it() -> None:
    """It is repaired away: the first one would point to what is not there."""
    told = {"type": "tool_result", "tool_use_id": "a", "content": WHOLE}
    context = Context(dialect="anthropic", window=100_000)
    context.extend(
        [
            {"role": "user", "content": "Read the file."},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "read", "input": {"path": "a"}}]},
            {"role": "user", "content": [told]},
            {"role": "user", "content": [told]},
            {"role": "user", "content": "And?"},
        ]
    )
    assert list(Dedupe().propose(context.view, Need(Pressure.HARD, context.view.estimated_tokens, 1))) == []
