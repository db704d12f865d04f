"""The watch of a response sees the same however the response is cut into pieces."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.serving import serve

from foldline import classify
from foldline.doors.proxy.response_watch import ResponseWatch, decoded
from foldline.testing import FakeProvider, FakeReply
from foldline.view.usage import usage_of

PATHS = {
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic": "/v1/messages",
}
REPLIES = {
    "text": FakeReply("Grüße, 世界 and more words to come", reasoning="Let me think."),
    "call": FakeReply(calls=[("look", {"at": 'data: [DONE]\n\n"usage"'})]),
    "empty": FakeReply(""),
    "cut": FakeReply("half a", finish_reason="length"),
    "overflow": FakeReply("never seen", fails="overflow", after_events=0),
    "error": FakeReply("seen", fails="error"),
}
Answers = dict[tuple[str, str, bool], bytes]
dialects = pytest.mark.parametrize("dialect", list(PATHS))


def asked(dialect: str, *, stream: bool) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Hello"}]
    if dialect == "openai-responses":
        return {"model": "m", "input": messages, "stream": stream}
    more = {"stream_options": {"include_usage": True}} if dialect == "openai-chat" and stream else {}
    return {"model": "m", "messages": messages, "max_tokens": 100, "stream": stream, **more}


@pytest.fixture(scope="module")
def answers() -> Answers:
    """What the fake provider answers, byte for byte, by (dialect, reply, streamed)."""
    found: Answers = {}
    steps = [(d, name, stream) for d in PATHS for name in REPLIES for stream in (False, True)]
    with serve(FakeProvider([REPLIES[name] for _, name, _ in steps])) as served, httpx.Client() as client:
        for dialect, name, stream in steps:
            answer = client.post(
                served.url + PATHS[dialect],
                json=asked(dialect, stream=stream),
                headers={"x-api-key": "k", "anthropic-version": "2023-06-01"},
            )
            assert answer.status_code == 200, answer.text
            found[dialect, name, stream] = answer.content
    return found


def watched(dialect: str, pieces: Sequence[bytes], *, streamed: bool, encoding: str = "") -> ResponseWatch:
    watch = ResponseWatch(dialect, streamed=streamed, encoding=encoding)
    for piece in pieces:
        watch.feed(piece)
    watch.finish()
    return watch


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[start:stop] for start, stop in pairwise(ends)]


def coded(data: bytes, coding: str) -> bytes:
    """The data in a content coding; "raw deflate" is the one without a frame, which some servers send."""
    if coding == "gzip":  # two members, as a server that compresses piece by piece may send them
        half = len(data) // 2
        return gzip.compress(data[:half], mtime=0) + gzip.compress(data[half:], mtime=0)
    if not coding:
        return data
    return zlib.compress(data)[2:-4] if coding.startswith("raw") else zlib.compress(data)


def seen(watch: ResponseWatch) -> tuple[object, ...]:
    return watch.usage, watch.error, watch.begun, watch.ended, watch.stop_reason


@dialects
@pytest.mark.parametrize("streamed", [False, True])
def test_usage_and_end_of_a_good_answer_are_seen(answers: Answers, dialect: str, streamed: bool) -> None:
    watch = watched(dialect, [answers[dialect, "text", streamed]], streamed=streamed)
    assert watch.usage is not None
    assert watch.usage.input_tokens > 0
    assert watch.usage.output_tokens > 0
    assert (watch.error, watch.begun, watch.ended) == (None, True, True)


@dialects
@pytest.mark.parametrize("streamed", [False, True])
def test_an_overflow_in_an_answer_with_status_200_is_seen_before_anything_has_begun(
    answers: Answers, dialect: str, streamed: bool
) -> None:
    watch = watched(dialect, [answers[dialect, "overflow", streamed]], streamed=streamed)
    assert watch.error is not None
    assert not watch.begun
    assert classify(200, watch.error).kind == "prompt_overflow"


@dialects
def test_an_error_after_content_is_seen_and_has_begun(answers: Answers, dialect: str) -> None:
    watch = watched(dialect, [answers[dialect, "error", True]], streamed=True)
    assert watch.error is not None
    assert watch.begun


@given(
    dialect=st.sampled_from(list(PATHS)),
    name=st.sampled_from(list(REPLIES)),
    places=st.lists(st.integers(0, 100_000), max_size=12),
    form=st.tuples(
        st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\r\n"]), st.sampled_from(["", "gzip", "deflate", "raw deflate"])
    ),
)
def test_the_same_is_seen_however_a_stream_is_cut(
    answers: Answers, dialect: str, name: str, places: list[int], form: tuple[bytes, str]
) -> None:
    ends, coding = form
    whole = answers[dialect, name, True]
    expected = seen(watched(dialect, [whole], streamed=True))
    sent = whole.replace(b"\n\n", ends) if len(ends) == 3 else whole.replace(b"\n", ends)
    pieces = cut(coded(sent, coding), places)
    assert seen(watched(dialect, pieces, streamed=True, encoding=coding.removeprefix("raw "))) == expected


@dialects
@pytest.mark.parametrize("coding", ["", "gzip", "raw deflate"])
def test_the_same_is_seen_byte_by_byte(answers: Answers, dialect: str, coding: str) -> None:
    for name in REPLIES:
        whole = answers[dialect, name, True]
        sent = coded(whole, coding)
        pieces = [sent[at : at + 1] for at in range(len(sent))]
        found = watched(dialect, pieces, streamed=True, encoding=coding.removeprefix("raw "))
        assert seen(found) == seen(watched(dialect, [whole], streamed=True)), name


@dialects
def test_nothing_has_begun_before_there_is_something_to_show(answers: Answers, dialect: str) -> None:
    """Byte by byte: as it begins, the first words of the reasoning have just come whole."""
    whole = answers[dialect, "text", True]
    watch = ResponseWatch(dialect, streamed=True)
    came = 0
    while not watch.begun:
        watch.feed(whole[came : came + 1])
        came += 1
    events = whole[:came].split(b"\n\n")
    assert events[-1] == b""
    first = {"openai-chat": b"Let me", "anthropic": b'"thinking"', "openai-responses": b"item.added"}[dialect]
    assert first in events[-2]
    assert not any(first in event for event in events[:-2])


def chat(*choices: Any, **more: Any) -> dict[str, Any]:
    return {"object": "chat.completion.chunk", "choices": list(choices), **more}


def delta(reason: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"index": 0, "delta": fields, "finish_reason": reason}


ROLE = chat(delta(role="assistant", content=""))
SAID = chat(delta(content="Hello"))
STOP = chat(delta("stop"))
USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
TOO_LONG = "This model's maximum context length is 8192 tokens. However, your request has 9000 input tokens."


def frames(*events: Any) -> list[bytes]:
    """Events as servers write them: with their name where the dialect names them; bytes as they are."""
    out = []
    for event in events:
        name = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
        text = event if isinstance(event, str) else json.dumps(event, separators=(",", ":")) if name else None
        out.append(event if isinstance(event, bytes) else f"{name}data: {text or json.dumps(event)}\n\n".encode())
    return out


def flow(dialect: str, *events: Any) -> tuple[list[bool], ResponseWatch]:
    """Whether it has begun after each event; and what was seen in the end, however it was cut."""
    sent = frames(*events)
    watch, begun = ResponseWatch(dialect, streamed=True), []
    for frame in sent:
        watch.feed(frame)
        begun.append(watch.begun)
    watch.finish()
    whole = b"".join(sent)
    for size in (1, 7, len(whole)):
        pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
        assert seen(watched(dialect, pieces, streamed=True)) == seen(watch)
    return begun, watch


# Streams of servers in use, event by event: what they are, the events, the number of the first that begins.
CHAT_STREAMS: dict[str, tuple[list[Any], int | None]] = {
    "OpenAI": ([ROLE, SAID, STOP, chat(usage=USAGE), "[DONE]"], 1),
    "OpenAI, usage in every chunk as null": (
        [{**ROLE, "usage": None}, {**SAID, "usage": None}, {**STOP, "usage": None}, chat(usage=USAGE), "[DONE]"],
        1,
    ),
    "Azure": ([chat(prompt_filter_results=[{"prompt_index": 0}]), ROLE, SAID, STOP, chat(usage=USAGE), "[DONE]"], 2),
    "OpenRouter": ([b": OPENROUTER PROCESSING\n\n"] * 2 + [ROLE, SAID, {**STOP, "usage": USAGE}, "[DONE]"], 3),
    "llama-server": ([ROLE, SAID, {**STOP, "usage": USAGE, "timings": {"prompt_n": 9}}, "[DONE]"], 1),
    "vLLM, usage in every chunk": (
        [
            {**ROLE, "usage": {**USAGE, "completion_tokens": 0}},
            {**SAID, "usage": {**USAGE, "completion_tokens": 1}},
            {**STOP, "usage": USAGE},
            chat(usage=USAGE),
            "[DONE]",
        ],
        1,
    ),
    "vLLM, reasoning first": (
        [ROLE, chat(delta(reasoning_content="Hm")), SAID, STOP, chat(usage=USAGE), "[DONE]"],
        1,
    ),
    "Ollama, a call at once": (
        [chat(delta(role="assistant", tool_calls=[{"index": 0, "function": {"name": "f"}}])), STOP, chat(usage=USAGE)],
        0,
    ),
    "Groq": ([{**ROLE, "x_groq": {"id": "req"}}, SAID, {**STOP, "x_groq": {"usage": USAGE}}, "[DONE]"], 1),
    "Kimi": ([ROLE, SAID, chat({**delta("stop"), "usage": USAGE}), "[DONE]"], 1),
    "without a word": ([ROLE, STOP, chat(usage=USAGE), "[DONE]"], 1),
    "without [DONE]": ([ROLE, SAID, STOP, chat(usage=USAGE)], 1),
    "usage and nothing else": ([ROLE, chat(usage=USAGE), "[DONE]"], 1),
    "keep-alives": ([b":\n\n", b"data:\n\n", b"retry: 500\n\n", ROLE, SAID, STOP, chat(usage=USAGE), "[DONE]"], 4),
    "pretty JSON over several lines": (
        [b'data: {"choices":\ndata:  [{"delta": {"content": "a"}, "finish_reason": "stop"}]}\n\n', chat(usage=USAGE)],
        0,
    ),
}


@pytest.mark.parametrize("name", list(CHAT_STREAMS))
def test_streams_of_chat_servers_begin_and_end_where_they_do(name: str) -> None:
    events, first = CHAT_STREAMS[name]
    begun, watch = flow("openai-chat", *events)
    assert begun == [at >= first for at in range(len(events))] if first is not None else not any(begun)
    assert (watch.error, watch.ended, watch.usage) == (None, True, usage_of(USAGE))
    assert watch.stop_reason == ("" if "nothing else" in name else "stop")


ERRORS: dict[str, list[Any]] = {
    "OpenAI, llama-server": [ROLE, {"error": {"message": TOO_LONG, "code": "context_length_exceeded"}}],
    "vLLM": [ROLE, {"error": {"object": "error", "message": TOO_LONG, "code": 400}}, "[DONE]"],
    "vLLM, older": [ROLE, {"object": "error", "message": TOO_LONG, "type": "BadRequestError", "code": 400}, "[DONE]"],
    "OpenRouter": [
        b": OPENROUTER PROCESSING\n\n",
        ROLE,
        chat(delta("error", content=""), error={"code": 400, "message": TOO_LONG}),
        chat(usage=USAGE),
        "[DONE]",
    ],
    "OpenRouter, in the choice": [chat({**delta("error", content=""), "error": {"code": 400, "message": TOO_LONG}})],
    "Ollama": [{"error": TOO_LONG}],
    "llama-server, older": [ROLE, b"error: " + json.dumps({"code": 400, "message": TOO_LONG}).encode() + b"\n\n"],
    "by the name of the event": [b"event: error\ndata: " + json.dumps({"message": TOO_LONG}).encode() + b"\n\n"],
    "in plain words": [f"event: error\ndata: {TOO_LONG}\n\n".encode()],
}


@pytest.mark.parametrize("name", list(ERRORS))
def test_a_refusal_in_a_stream_of_a_chat_server_has_not_begun(name: str) -> None:
    begun, watch = flow("openai-chat", *ERRORS[name])
    assert not any(begun)
    assert watch.error is not None
    assert classify(200, watch.error).kind == "prompt_overflow"
    begun, watch = flow("openai-chat", SAID, *ERRORS[name])
    assert all(begun)
    assert watch.error is not None


def test_an_error_without_a_word_is_one() -> None:
    begun, watch = flow("openai-chat", ROLE, chat(delta("error")))
    assert not any(begun)
    assert watch.error is not None


def response(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "response": {"status": kind, "error": None, "usage": None, **fields}}


CREATED, WORKING = response("created"), response("in_progress")
ITEM = {"type": "response.output_item.added", "item": {"type": "message", "content": []}}
PART = {"type": "response.content_part.added", "part": {"type": "output_text", "text": ""}}
WORDS = {"type": "response.output_text.delta", "delta": "Hello"}
COUNTED = {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 4}
FAILED = response("failed", error={"code": "context_length_exceeded", "message": TOO_LONG})

RESPONSES_STREAMS: dict[str, tuple[list[Any], int, str]] = {
    "OpenAI": ([CREATED, WORKING, ITEM, PART, WORDS, response("completed", usage=COUNTED)], 4, "completed"),
    "in the background": ([response("queued"), WORKING, WORDS, response("completed", usage=COUNTED)], 2, "completed"),
    "ChatGPT": (
        [{"type": "codex.rate_limits"}, CREATED, {"type": "keepalive"}, WORDS, response("completed", usage=COUNTED)],
        3,
        "completed",
    ),
    "cut off": (
        [CREATED, WORDS, response("incomplete", incomplete_details={"reason": "max_output_tokens"}, usage=COUNTED)],
        1,
        "max_output_tokens",
    ),
    "reasoning": (
        [CREATED, {**ITEM, "item": {"type": "reasoning", "summary": []}}, response("completed", usage=COUNTED)],
        1,
        "completed",
    ),
    "a call": (
        [CREATED, {**ITEM, "item": {"type": "function_call", "name": "f"}}, response("completed", usage=COUNTED)],
        1,
        "completed",
    ),
}


@pytest.mark.parametrize("name", list(RESPONSES_STREAMS))
def test_streams_of_responses_begin_and_end_where_they_do(name: str) -> None:
    events, first, reason = RESPONSES_STREAMS[name]
    begun, watch = flow("openai-responses", *events)
    assert begun == [at >= first for at in range(len(events))]
    assert (watch.error, watch.ended, watch.stop_reason) == (None, True, reason)
    assert watch.usage == usage_of(COUNTED)


@pytest.mark.parametrize(
    "events",
    [
        [CREATED, WORKING, FAILED],
        [CREATED, WORKING, ITEM, PART, FAILED],
        [CREATED, {"type": "error", "code": "context_length_exceeded", "message": TOO_LONG}],
        [CREATED, {"type": "error", "error": {"code": "context_length_exceeded", "message": TOO_LONG}}, FAILED],
        [CREATED, {**FAILED, "type": "response.completed"}],
        [{"error": {"message": TOO_LONG}}, "[DONE]"],
    ],
    ids=["failed", "failed after an empty text", "error", "error and failed", "completed as failed", "of a gateway"],
)
def test_a_refusal_in_a_stream_of_responses_has_not_begun(events: list[Any]) -> None:
    begun, watch = flow("openai-responses", *events)
    assert not any(begun)
    assert watch.error is not None
    assert classify(200, watch.error).kind == "prompt_overflow"


START = {"type": "message_start", "message": {"content": [], "usage": {"input_tokens": 9, "output_tokens": 1}}}
PING = {"type": "ping"}
BLOCK = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
TEXT = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}}
DELTA = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}}
CLOSE = {"type": "message_stop"}
THINKING = {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}}


@pytest.mark.parametrize(
    ("events", "first"),
    [
        ([START, PING, BLOCK, TEXT, DELTA, CLOSE], 3),
        ([START, BLOCK, PING, TEXT, DELTA, CLOSE], 3),
        ([START, THINKING, TEXT, DELTA, CLOSE], 1),
        ([START, {**BLOCK, "content_block": {"type": "of tomorrow"}}, DELTA, CLOSE], 1),
        ([START, DELTA, CLOSE], 1),
        ([START, {**DELTA, "usage": {"input_tokens": 0, "output_tokens": 4}}, CLOSE, "[DONE]"], 1),
    ],
)
def test_streams_of_anthropic_begin_and_end_where_they_do(events: list[Any], first: int) -> None:
    begun, watch = flow("anthropic", *events)
    assert begun == [at >= first for at in range(len(events))]
    assert (watch.error, watch.ended, watch.stop_reason) == (None, True, "end_turn")
    assert watch.usage == usage_of({"input_tokens": 9, "output_tokens": 4})


@pytest.mark.parametrize("before", [[], [START], [START, PING], [START, PING, BLOCK]])
@pytest.mark.parametrize("typed", [True, False])
def test_a_refusal_in_a_stream_of_anthropic_has_not_begun(before: list[Any], typed: bool) -> None:
    error = {"error": {"type": "invalid_request_error", "message": "prompt is too long: 9000 tokens > 8192 maximum"}}
    begun, watch = flow("anthropic", *before, {"type": "error", **error} if typed else error)
    assert not any(begun)
    assert watch.error is not None
    assert classify(200, watch.error).kind == "prompt_overflow"


@pytest.mark.parametrize(
    "event",
    [b"data: no json\n\n", b'data: {"of":"another kind"}\n\n', b"data: [1]\n\n"],
)
@dialects
def test_what_cannot_be_understood_counts_as_begun(dialect: str, event: bytes) -> None:
    assert watched(dialect, [event], streamed=True).begun


@dialects
def test_json_in_place_of_a_stream_is_read_as_a_whole(answers: Answers, dialect: str) -> None:
    for name in ("text", "overflow"):
        whole = answers[dialect, name, False]
        assert seen(watched(dialect, [b" \r\n", whole[:9], whole[9:]], streamed=True)) == seen(
            watched(dialect, [whole], streamed=False)
        )


@pytest.mark.parametrize(
    ("dialect", "body", "reason"),
    [
        ("openai-chat", {"choices": [{"message": {"content": "a"}, "finish_reason": "length"}]}, "length"),
        ("anthropic", {"content": [{"type": "text", "text": "a"}], "stop_reason": "max_tokens"}, "max_tokens"),
        ("openai-responses", {"output": [{}], "status": "completed", "error": None}, "completed"),
        (
            "openai-responses",
            {"output": [], "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
            "max_output_tokens",
        ),
        ("anthropic", {"input_tokens": 9}, ""),
    ],
)
def test_the_reason_why_a_whole_answer_ended_is_seen(dialect: str, body: Any, reason: str) -> None:
    watch = watched(dialect, [json.dumps(body).encode()], streamed=False)
    assert (watch.stop_reason, watch.begun, watch.ended, watch.error) == (reason, True, True, None)


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("openai-chat", {"error": {"message": TOO_LONG}}),
        ("openai-chat", {"object": "error", "message": TOO_LONG, "code": 400}),
        ("openai-chat", {"choices": [{"message": {"content": ""}, "error": {"message": TOO_LONG}}]}),
        ("openai-responses", {"output": [], "status": "failed", "error": {"message": TOO_LONG}}),
        ("anthropic", {"type": "error", "error": {"message": TOO_LONG}}),
    ],
)
def test_a_refusal_as_a_whole_answer_has_not_begun(dialect: str, body: Any) -> None:
    watch = watched(dialect, [json.dumps(body).encode()], streamed=False)
    assert not watch.begun
    assert watch.error is not None
    assert classify(200, watch.error).kind == "prompt_overflow"


def test_text_about_errors_and_usage_is_no_report() -> None:
    said = 'an error: {"error": {"message": "maximum context length"}, "usage": {"prompt_tokens": 1}} [DONE]'
    begun, watch = flow(
        "openai-chat", ROLE, SAID, chat(delta(content=said)), chat(delta(content='"finish_reason":"x"'))
    )
    assert begun[-1]
    assert (watch.error, watch.usage, watch.ended, watch.stop_reason) == (None, None, False, "")


LARGE = {"tools": [{"name": f"tool {at}", "parameters": {"usage": {"type": "string"}}} for at in range(1_000)]}


def test_a_long_event_of_responses_is_seen_as_a_short_one_is() -> None:
    end = {**response("completed", **LARGE, usage=COUNTED, metadata={})}
    begun, watch = flow("openai-responses", response("created", **LARGE), WORDS, end)
    assert begun == [False, True, True]
    assert (watch.usage, watch.ended, watch.stop_reason) == (usage_of(COUNTED), True, "completed")
    _, other = flow("openai-responses", WORDS, response("completed", usage=COUNTED, **LARGE))
    assert other.usage == usage_of(COUNTED)  # not at its end, so it is parsed
    begun, watch = flow("openai-responses", response("created", **LARGE), response("failed", **LARGE, error=FAILED))
    assert not any(begun)
    assert watch.error is not None


def peak_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@dialects
def test_of_an_endless_event_only_its_ends_are_kept(dialect: str) -> None:
    watch = ResponseWatch(dialect, streamed=True)
    piece = b"x" * 2**16

    def work() -> None:
        watch.feed(b'data: {"type":"response.completed","text":"')
        for _ in range(1_000):
            watch.feed(piece)

    assert peak_bytes(work) < 8 * 2**20
    watch.feed(b'","usage":{"input_tokens":9,"output_tokens":4}}\n\n')
    watch.feed(frames(chat(usage=USAGE))[0])
    assert watch.begun
    expected = {"openai-responses": 9, "openai-chat": 9, "anthropic": 9}[dialect]
    assert watch.usage is not None
    assert watch.usage.input_tokens == expected


@pytest.mark.parametrize("streamed", [False, True])
def test_little_that_becomes_much_when_it_is_unpacked_takes_little_memory(streamed: bool) -> None:
    packed = gzip.compress(b"data: " + b"x" * (2**26 + 2**20))
    watch = ResponseWatch("openai-chat", streamed=streamed, encoding="gzip")
    assert peak_bytes(lambda: watch.feed(packed)) < 40 * 2**20
    assert watch.begun


def test_a_report_of_endless_names_is_not_kept() -> None:
    watch = ResponseWatch("openai-chat", streamed=True)
    piece = [frames(chat(usage={f"name {at} {n}": 1 for n in range(100)}))[0] for at in range(200)]

    def work() -> None:
        for frame in piece:
            watch.feed(frame)

    assert peak_bytes(work) < 2**20


def test_anthropic_reports_input_at_the_beginning_and_output_at_the_end() -> None:
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 7, "cache_read_input_tokens": 90}}}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}}
    events = [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in (start, end)]
    usage = watched("anthropic", events, streamed=True).usage
    assert usage is not None
    assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens) == (97, 90, 5)


SCRAPS = (
    b"data: ", b"event: error\n", b"\n\n", b"\r", b'{"error":', b'"usage":{', b"[DONE]", b"}", b"[" * 5_000,
    b'data: {"choices":[{"delta":[],"finish_reason":{}}],"usage":{"prompt_tokens":-1,"x":"y"}}\n\n',
    b'data: {"type":["error"],"response":7,"message":[],"delta":"","item":0,"part":1,"usage":[]}\n\n',
    b'data: {"type":"response.completed","response":{"usage":{"input_tokens":1e400,"output_tokens":NaN}}}\n\n',
    b'data: {"type":"message_start","message":{"usage":{"input_tokens":[[]],"output_tokens":5}}}\n\n',
    b'{"choices":7,"output":{},"content":"","incomplete_details":[],"status":{}}',
)  # fmt: skip


@given(
    st.sampled_from(list(PATHS)),
    st.booleans(),
    st.sampled_from(["", "gzip", "deflate", "br", "zstd"]),
    st.lists(st.binary(max_size=60) | st.sampled_from(SCRAPS)),
)
def test_nonsense_raises_nothing(dialect: str, streamed: bool, encoding: str, pieces: list[bytes]) -> None:
    watch = watched(dialect, pieces, streamed=streamed, encoding=encoding)
    decoded(b"".join(pieces), encoding)
    assert watch.usage is None or watch.usage.input_tokens >= 0


def test_what_cannot_be_read_counts_as_begun() -> None:
    assert watched("openai-chat", [b"\x28\xb5"], streamed=True, encoding="zstd").begun


@pytest.mark.parametrize(
    "sent", [gzip.compress(b'{"a":1}', mtime=0), zlib.compress(b'{"a":1}'), zlib.compress(b'{"a":1}')[2:-4]]
)
def test_whole_bodies_are_decoded(sent: bytes) -> None:
    encoding = "gzip" if sent[:2] == b"\x1f\x8b" else "deflate"
    assert decoded(sent, encoding) == b'{"a":1}'
