"""What the fake says: whole and in pieces, in each dialect, with its usage."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from tests.serving import serve
from tests.testing.fake_requests import DIALECTS, HEADERS, PATHS, ask, ask_for, body, events

from foldline.codecs import codec
from foldline.engine.context import Context
from foldline.engine.one_shot import check, fit
from foldline.messages import Reasoning, Text, ToolCall
from foldline.testing import FakeProvider, FakeReply, count_body, session
from foldline.view.usage import usage_of

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)

ARGUMENTS = {"path": "src/größe.py", "lines": [1, 2], "all": True, "note": "上下文 " * 9}
FULL = FakeReply(
    "Here is 上下文, in a few more words than one piece.",
    calls=[("read_file", ARGUMENTS), ("ls", {})],
    reasoning="First I think about it, then I call.",
)


def said(dialect: str, whole: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages that a client records."""
    if dialect == "openai-chat":
        return [whole["choices"][0]["message"]]
    if dialect == "openai-responses":
        return list(whole["output"])
    return [{"role": whole["role"], "content": whole["content"]}]


def joined_chat(found: list[Any]) -> dict[str, Any]:
    """What the chunks of a stream add up to."""
    message: dict[str, Any] = {"role": "", "content": "", "reasoning_content": "", "tool_calls": []}
    whole: dict[str, Any] = {"finish": None, "usage": None}
    assert found[-1] == "[DONE]"
    for chunk in found[:-1]:
        whole["usage"] = chunk.get("usage") or whole["usage"]
        for choice in chunk["choices"]:
            delta = choice["delta"]
            whole["finish"] = choice["finish_reason"] or whole["finish"]
            for name in ("role", "content", "reasoning_content"):
                message[name] += delta.get(name) or ""
            for call in delta.get("tool_calls", ()):
                if "id" in call:
                    assert call["index"] == len(message["tool_calls"])
                    message["tool_calls"].append(
                        {"id": call["id"], "type": call["type"], "function": {"arguments": ""}}
                    )
                    message["tool_calls"][-1]["function"]["name"] = call["function"]["name"]
                message["tool_calls"][call["index"]]["function"]["arguments"] += call["function"]["arguments"]
    return whole | {"message": message}


def parts_of(dialect: str, messages: list[dict[str, Any]]) -> list[Any]:
    """Texts, reasoning and calls as the package reads them, without what is the dialect's own."""
    found: list[Any] = []
    for wire in messages:
        for part in codec(dialect).read(wire).parts:
            match part:
                case Text(text):
                    found.append(text)
                case Reasoning(text):
                    found.append(("thinks", text))
                case ToolCall(_, name, arguments):
                    found.append((name, arguments.replace(" ", "")))
    return found


@every_dialect
def test_a_reply_has_its_reasoning_text_and_calls(dialect: str) -> None:
    whole = ask_for(FakeProvider(FULL), dialect).json()
    found = parts_of(dialect, said(dialect, whole))
    assert FULL.text in found
    assert ("thinks", FULL.reasoning) in found
    assert [part for part in found if isinstance(part, tuple) and part[0] == "ls"] == [("ls", "{}")]
    assert whole["model"] == "m"


@every_dialect
def test_a_reply_can_be_answered(dialect: str) -> None:
    """What it says goes back into the next request, with its results: ids, signatures and shapes hold."""
    app = FakeProvider([FULL, FULL, "done"])
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Go."}]
    for _ in range(2):
        messages += said(dialect, ask_for(app, dialect, messages).json())
        newest = messages[-2:] if dialect == "openai-responses" else messages[-1:]
        calls = [call for wire in newest for call in codec(dialect).read(wire).calls]
        answers = [codec(dialect).answer(call, "fine") for call in calls]
        merged = codec(dialect).merge(answers)
        messages += [dict(codec(dialect).write(answer)) for answer in ([merged] if merged else answers)]
        assert len(calls) == 2
        assert check(messages, dialect=dialect) == []
    assert ask_for(app, dialect, messages).status_code == 200
    assert (app.served, list(app.refused)) == (3, [])


def test_chunks_of_a_chat_add_up_to_the_reply() -> None:
    app = FakeProvider(FULL)
    whole = ask_for(app, "openai-chat").json()
    sent = ask_for(app, "openai-chat", stream=True, stream_options={"include_usage": True})
    found = events(sent.text)
    joined = joined_chat(found)
    assert sent.headers["content-type"].startswith("text/event-stream")
    assert found[0]["choices"][0]["delta"]["role"] == "assistant"
    assert parts_of("openai-chat", [joined["message"]]) == parts_of("openai-chat", said("openai-chat", whole))
    assert joined["finish"] == whole["choices"][0]["finish_reason"] == "tool_calls"
    assert (found[-2]["choices"], found[-2]["usage"]["prompt_tokens"]) == ([], whole["usage"]["prompt_tokens"])
    assert all(chunk["usage"] is None for chunk in found[:-2])


def test_a_chat_stream_tells_its_usage_only_when_asked() -> None:
    found = events(ask_for(FakeProvider(FULL), "openai-chat", stream=True).text)
    assert all("usage" not in chunk for chunk in found[:-1])
    assert found[-2]["choices"][0]["finish_reason"] == "tool_calls"


def test_the_events_of_responses_add_up_to_the_reply() -> None:
    found = events(ask_for(FakeProvider(FULL), "openai-responses", stream=True).text)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    assert [found[0]["type"], found[1]["type"]] == ["response.created", "response.in_progress"]
    done = found[-1]["response"]
    assert (found[-1]["type"], done["status"]) == ("response.completed", "completed")
    assert [event["item"] for event in found if event["type"] == "response.output_item.done"] == done["output"]
    added = [event["item"] for event in found if event["type"] == "response.output_item.added"]
    assert [item["id"] for item in added] == [item["id"] for item in done["output"]]
    for item in done["output"]:
        deltas = "".join(event["delta"] for event in found if event.get("item_id") == item["id"] and "delta" in event)
        inner = item.get("content") or item.get("summary")
        assert deltas == (inner[0]["text"] if inner else item["arguments"])
    assert done["usage"]["output_tokens_details"]["reasoning_tokens"] > 0


def test_the_blocks_of_a_message_add_up_to_the_reply() -> None:
    app = FakeProvider(FULL)
    whole = ask_for(app, "anthropic").json()
    found = events(ask_for(app, "anthropic", stream=True).text)
    assert (found[0]["type"], found[-1]) == ("message_start", {"type": "message_stop"})
    assert "ping" in [event["type"] for event in found]
    blocks: list[dict[str, Any]] = []
    for event in found:
        if event["type"] == "content_block_start":
            assert event["index"] == len(blocks)
            blocks.append({**event["content_block"], "deltas": []})
        elif event["type"] == "content_block_delta":
            blocks[event["index"]]["deltas"].append(event["delta"])
    for block, original in zip(blocks, whole["content"], strict=True):
        assert block["type"] == original["type"]
        kinds = {delta["type"] for delta in block["deltas"]}
        if block["type"] == "tool_use":
            text = "".join(delta["partial_json"] for delta in block["deltas"])
            assert (kinds, block["input"]) == ({"input_json_delta"}, {})
            assert codec("anthropic").read({"role": "assistant", "content": [original]}).calls[0].arguments.replace(
                " ", ""
            ) == text.replace(" ", "")
        elif block["type"] == "thinking":
            assert block["deltas"][-1]["type"] == "signature_delta"
            assert "".join(delta.get("thinking", "") for delta in block["deltas"]) == original["thinking"]
        else:
            assert "".join(delta["text"] for delta in block["deltas"]) == original["text"]
    ending = found[-2]
    assert (ending["type"], ending["delta"]["stop_reason"]) == ("message_delta", "tool_use")
    assert ending["usage"]["output_tokens"] == whole["usage"]["output_tokens"]
    assert found[0]["message"]["usage"]["input_tokens"] == whole["usage"]["input_tokens"]


@pytest.mark.parametrize(
    ("finish", "chat", "status", "stop"),
    [
        (None, "stop", "response.completed", "end_turn"),
        ("length", "length", "response.incomplete", "max_tokens"),
        ("refusal", "content_filter", "response.incomplete", "refusal"),
        ("model_context_window_exceeded",) * 2 + ("response.incomplete", "model_context_window_exceeded"),
    ],
)
def test_why_it_ended_is_told_in_the_word_of_the_dialect(finish: str | None, chat: str, status: str, stop: str) -> None:
    app = FakeProvider(FakeReply("Hi", finish_reason=finish))
    assert ask_for(app, "openai-chat").json()["choices"][0]["finish_reason"] == chat
    assert events(ask_for(app, "openai-responses", stream=True).text)[-1]["type"] == status
    assert ask_for(app, "anthropic").json()["stop_reason"] == stop


@every_dialect
def test_a_reply_of_nothing_is_a_reply(dialect: str) -> None:
    app = FakeProvider(FakeReply())
    assert ask_for(app, dialect).status_code == ask_for(app, dialect, stream=True).status_code == 200


@every_dialect
def test_usage_is_what_the_fake_counts(dialect: str) -> None:
    app = FakeProvider(FULL, count=lambda given: 1_234)
    usage = usage_of(ask_for(app, dialect).json()["usage"])
    assert (usage.input_tokens, usage.output_tokens) == (1_234, app.output_tokens)
    assert (app.input_tokens, app.largest_tokens, app.requests[0].input_tokens) == (1_234,) * 3


@every_dialect
def test_a_script_may_report_other_figures(dialect: str) -> None:
    app = FakeProvider(FakeReply("cut", input_tokens=17, output_tokens=0))
    usage = usage_of(ask_for(app, dialect).json()["usage"])
    assert (usage.input_tokens, usage.output_tokens) == (17, 0)


@every_dialect
def test_a_server_may_report_no_usage(dialect: str) -> None:
    app = FakeProvider(usage=False)
    assert ask_for(app, dialect).json().get("usage") is None
    found = events(ask_for(app, dialect, stream=True, stream_options={"include_usage": True}).text)
    assert "input_tokens" not in str(found)
    assert "prompt_tokens" not in str(found)


def test_tokens_are_counted_without_a_reply() -> None:
    app = FakeProvider(window_tokens=10)
    given = body("anthropic", "x" * 400, max_tokens=...)
    sent = ask(app, "/v1/messages/count_tokens", given)
    assert sent.json() == {"input_tokens": count_body(given)}
    assert (app.counted, app.served) == (1, 0)
    assert ask(app, "/v1/messages/count_tokens", body("anthropic", [])).status_code == 400


def test_the_models_and_the_window_are_told() -> None:
    app = FakeProvider(models=["a", "b"], window_tokens=4_096)
    chat, house = ask(app, "/v1/models", method="GET", headers={}), ask(app, "/v1/models", method="GET")
    assert [card["id"] for card in chat.json()["data"]] == [card["id"] for card in house.json()["data"]] == ["a", "b"]
    assert chat.json()["data"][0]["max_model_len"] == house.json()["data"][0]["max_input_tokens"] == 4_096
    assert ask(app, "/v1/models/b", method="GET", headers={}).json()["id"] == "b"
    assert ask(app, "/v1/models/c", method="GET", headers={}).status_code == 404
    assert ask(app, "/props", method="GET").json()["default_generation_settings"]["n_ctx"] == 4_096


def test_a_hosted_server_does_not_tell_its_window() -> None:
    app = FakeProvider(tells_window=False, api_key="k")
    assert ask(app, "/props", method="GET").status_code == 404
    assert ask(app, "/v1/models", method="GET", headers={}).status_code == 401
    sent = ask(app, "/v1/models", method="GET", headers={"authorization": "Bearer k"})
    assert set(sent.json()["data"][0]) == {"id", "object", "created", "owned_by"}


def test_a_script_is_taken_step_by_step() -> None:
    app = FakeProvider(["one", FakeReply("two"), lambda given: f"{len(given['messages'])} messages"])
    texts = [ask_for(app, "openai-chat").json()["choices"][0]["message"]["content"] for _ in range(3)]
    assert texts == ["one", "two", "1 messages"]
    sent = ask_for(app, "openai-chat")
    assert (sent.status_code, dict(app.refusals)) == (400, {"script-exhausted": 1})
    assert "asked 4 times, its script has 3" in sent.text


def test_one_reply_answers_everything_and_so_does_the_last_with_repeat() -> None:
    for app in (FakeProvider("same"), FakeProvider(["same"], repeat=True), FakeProvider(lambda given: "same")):
        assert ["same" in ask_for(app, "anthropic").text for _ in range(3)] == [True] * 3
    assert ask_for(FakeProvider([], repeat=True), "anthropic").status_code == 400


def test_only_the_newest_requests_and_refusals_are_kept() -> None:
    app = FakeProvider(keep=3, models=["m"])
    for number in range(5):
        ask_for(app, "openai-chat", f"Hello {number}")
        ask_for(app, "openai-chat", model=f"other {number}")
    assert [request.body["messages"][0]["content"] for request in app.requests] == ["Hello 2", "Hello 3", "Hello 4"]
    assert len(app.refused) == 3
    assert (app.served, dict(app.refusals)) == (5, {"model": 5})


@every_dialect
def test_a_fitted_session_is_taken(dialect: str) -> None:
    wires = session(60, dialect=dialect, result="line of output 42\n" * 60)
    fitted = fit(wires, max_tokens=6_000, dialect=dialect)
    app = FakeProvider(window_tokens=7_000)
    assert ask_for(app, dialect, [dict(wire) for wire in wires]).status_code == 400
    assert ask_for(app, dialect, [dict(wire) for wire in fitted.messages]).status_code == 200
    assert dict(app.refusals) == {"overflow": 1}


@every_dialect
def test_a_growing_session_is_never_refused(dialect: str) -> None:
    """A small run of what the long ones do: the window is filled many times over."""
    context = Context(dialect=dialect, window=2_500, max_output_tokens=200)
    app = FakeProvider(window_tokens=2_500)
    for number, wire in enumerate(session(40, dialect=dialect, result="line of output 42\n" * 30)):
        context.append(wire)
        if number % 2:  # a call, its result comes next
            continue
        request = context.prepare()
        output = {"max_output_tokens" if dialect == "openai-responses" else "max_tokens": request.max_output_tokens}
        sent = ask_for(app, dialect, [dict(message) for message in request.messages], **output)
        assert sent.status_code == 200, sent.text
        context.observe(sent.json()["usage"])
    assert app.refusals == {}
    assert app.input_tokens > 10 * 2_500
    assert app.largest_tokens <= 2_500


def test_it_is_the_same_over_a_real_connection() -> None:
    cases = [(dialect, streamed) for dialect in DIALECTS for streamed in (False, True)]
    here, there = FakeProvider(FULL), FakeProvider(FULL)
    with serve(there) as served, httpx.Client(base_url=served.url, headers=HEADERS) as client:
        for dialect, streamed in cases:
            near = ask(here, PATHS[dialect], body(dialect, stream=streamed))
            far = client.post(PATHS[dialect], json=body(dialect, stream=streamed))
            assert far.text == near.text
            assert far.headers["content-type"] == near.headers["content-type"]
            assert ("content-length" in far.headers) is not streamed
    assert there.served == here.served == len(cases)


def test_start_and_end_of_the_server_are_answered() -> None:
    async def run() -> list[str]:
        told, asked = [], iter(["lifespan.startup", "lifespan.shutdown"])

        async def receive() -> dict[str, Any]:
            return {"type": next(asked)}

        async def send(message: Any) -> None:
            told.append(message["type"])

        await FakeProvider()({"type": "lifespan"}, receive, send)
        return told

    assert asyncio.run(run()) == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
