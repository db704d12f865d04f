"""The count of the fake, and the part of it that it reports as cached."""

from __future__ import annotations

from typing import Any

import pytest
from tests.testing.fake_requests import DIALECTS, ask_for

from foldline.testing import FakeProvider, session
from foldline.testing.token_counts import IMAGE_TOKENS, count_body, count_text
from foldline.view.usage import usage_of

MARK = {"cache_control": {"type": "ephemeral"}}


def usage(app: FakeProvider, dialect: str, messages: Any, **more: Any) -> Any:
    return usage_of(ask_for(app, dialect, messages, **more).json()["usage"])


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses"])
def test_openai_knows_what_an_earlier_request_began_with(dialect: str) -> None:
    app = FakeProvider()
    wires = [dict(wire) for wire in session(20, dialect=dialect)]
    first = usage(app, dialect, wires[:21])
    second = usage(app, dialect, wires)
    assert first.cached_tokens == 0
    assert first.input_tokens - 2 <= second.cached_tokens <= first.input_tokens < second.input_tokens
    edited = [{**wires[0], "content": "Another task."}, *wires[1:]]
    assert usage(app, dialect, edited).cached_tokens < 20
    assert usage(app, dialect, wires, model="other").cached_tokens == 0
    assert app.cached_tokens == sum(request.cached_tokens for request in app.requests)


def test_openai_knows_nothing_when_the_tools_change() -> None:
    app = FakeProvider()
    tools = [{"type": "function", "function": {"name": "ls"}}]
    usage(app, "openai-chat", "Hello there " * 50, tools=tools)
    assert usage(app, "openai-chat", "Hello there " * 50).cached_tokens == 0
    again = usage(app, "openai-chat", "Hello there " * 50, tools=tools)
    assert again.cached_tokens == again.input_tokens


def test_the_newest_requests_are_remembered_only() -> None:
    app = FakeProvider()
    for number in range(12):
        usage(app, "openai-chat", f"{number} " * 99)
    assert usage(app, "openai-chat", "11 " * 99).cached_tokens > 70
    assert usage(app, "openai-chat", "0 " * 99).cached_tokens < 20


def marked(words: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": words, **MARK}]}


def said(words: str) -> dict[str, Any]:
    return {"role": "user", "content": words}


def test_anthropic_caches_nothing_without_a_breakpoint() -> None:
    app = FakeProvider()
    for _ in range(2):
        found = usage(app, "anthropic", "Hello there " * 50)
        assert (found.cached_tokens, found.written_tokens) == (0, 0)


def test_anthropic_writes_up_to_a_breakpoint_and_reads_it_again() -> None:
    app = FakeProvider()
    first = usage(app, "anthropic", [marked("a" * 400), said("b" * 400)])
    assert first.cached_tokens == 0
    assert 100 <= first.written_tokens < first.input_tokens - 90
    second = usage(app, "anthropic", [said("a" * 400), said("b" * 400), marked("c" * 400)])
    assert abs(second.cached_tokens - first.written_tokens) <= 12
    assert second.cached_tokens + second.written_tokens == second.input_tokens


def test_anthropic_counts_beside_what_is_cached() -> None:
    app = FakeProvider()
    ask_for(app, "anthropic", [marked("a" * 400), said("b" * 400)])
    raw = ask_for(app, "anthropic", [marked("a" * 400), said("b" * 400)]).json()["usage"]
    assert raw["cache_creation_input_tokens"] == 0
    assert raw["input_tokens"] + raw["cache_read_input_tokens"] == app.requests[-1].input_tokens
    assert raw["cache_read_input_tokens"] == app.requests[-1].cached_tokens > 90


def test_anthropic_reads_nothing_where_the_request_has_no_breakpoint() -> None:
    app = FakeProvider()
    usage(app, "anthropic", [marked("a" * 400)])
    assert usage(app, "anthropic", [said("a" * 400)]).cached_tokens == 0


@pytest.mark.parametrize(("between", "found"), [(19, True), (21, False)])
def test_anthropic_looks_back_twenty_blocks(between: int, found: bool) -> None:
    app = FakeProvider()
    usage(app, "anthropic", [marked("a" * 400)])
    later = [said("a" * 400), *[said(f"word {n}") for n in range(between)], marked("end")]
    assert (usage(app, "anthropic", later).cached_tokens > 0) is found


def test_system_text_and_tools_come_first() -> None:
    app = FakeProvider()
    tools = [{"name": "ls", "input_schema": {}, **MARK}]
    system = [{"type": "text", "text": "s" * 400, **MARK}]
    usage(app, "anthropic", "one", tools=tools, system=system)
    whole = usage(app, "anthropic", "two", tools=tools, system=system)
    other = usage(app, "anthropic", "two", tools=tools, system=[{"type": "text", "text": "t" * 400, **MARK}])
    assert 0 < other.cached_tokens < 20
    assert whole.cached_tokens > 90


def test_a_mark_on_the_whole_request_is_one_at_its_end() -> None:
    app = FakeProvider()
    messages = [said("a" * 400), said("b" * 400)]
    first = usage(app, "anthropic", messages, **MARK)
    second = usage(app, "anthropic", [*messages, said("c")], **MARK)
    assert first.written_tokens == first.input_tokens
    assert second.cached_tokens > 0.9 * first.input_tokens


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_request_that_was_refused_is_not_remembered(dialect: str) -> None:
    app = FakeProvider(window_tokens=300)
    words = "Hello there " * 200
    messages = [marked(words)] if dialect == "anthropic" else words
    assert ask_for(app, dialect, messages).status_code == 400
    short = [marked("Hello")] if dialect == "anthropic" else "Hello"
    assert usage(app, dialect, short).cached_tokens == 0


def test_a_mark_inside_a_result_is_one_too() -> None:
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "ls", "input": {}}]}

    def result(**mark: Any) -> dict[str, Any]:
        inner = {"type": "text", "text": "r" * 400, **mark}
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [inner]}]}

    app = FakeProvider()
    first = usage(app, "anthropic", [said("go"), call, result(**MARK)])
    second = usage(app, "anthropic", [said("go"), call, result(), marked("more")])
    assert first.written_tokens == first.input_tokens
    assert second.cached_tokens > 100


def test_a_text_is_a_quarter_of_its_bytes_rounded_up() -> None:
    assert [count_text(text) for text in ("", "a", "abcd", "abcde", "上下", "\ud800")] == [0, 1, 1, 2, 2, 1]


def test_what_the_model_reads_is_counted_and_the_rest_is_not() -> None:
    messages = [{"role": "user", "content": "x" * 400}]
    alone = count_body({"messages": messages})
    assert alone == -(-len('[{"role":"user","content":""}]' + "x" * 400) // 4)
    assert count_body({"messages": messages, "model": "m" * 400, "max_tokens": 7, "metadata": {"a": "b"}}) == alone
    for name in ("system", "tools", "instructions"):
        assert count_body({"messages": messages, name: [{"text": "y" * 400}]}) > alone + 100


def test_an_image_costs_the_same_whatever_its_size() -> None:
    def request(data: str) -> dict[str, object]:
        source = {"type": "base64", "media_type": "image/png", "data": data}
        url = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
        return {"messages": [{"role": "user", "content": [{"type": "image", "source": source}, url]}]}

    small, large = count_body(request("QUJD")), count_body(request("QUJD" * 50_000))
    assert small == large
    assert 2 * IMAGE_TOKENS < small < 2 * IMAGE_TOKENS + 60
