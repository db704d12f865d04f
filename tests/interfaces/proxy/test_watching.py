"""An answer is looked at in passing: the same is seen however it is cut into pieces."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.serving import serve

from foldline import classify
from foldline.interfaces.proxy.watching import Watch, decoded
from foldline.testing import FakeProvider, FakeReply

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


def watched(dialect: str, pieces: Sequence[bytes], *, streamed: bool, encoding: str = "") -> Watch:
    watch = Watch(dialect, streamed=streamed, encoding=encoding)
    for piece in pieces:
        watch.feed(piece)
    watch.finish()
    return watch


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[start:stop] for start, stop in pairwise(ends)]


def seen(watch: Watch) -> tuple[object, ...]:
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


@dialects
@pytest.mark.parametrize("name", list(REPLIES))
@given(places=st.lists(st.integers(0, 100_000), max_size=12), form=st.sampled_from(["lf", "crlf", "gzip"]))
def test_the_same_is_seen_however_a_stream_is_cut(
    answers: Answers, dialect: str, name: str, places: list[int], form: str
) -> None:
    whole = answers[dialect, name, True]
    expected = seen(watched(dialect, [whole], streamed=True))
    sent = whole.replace(b"\n", b"\r\n") if form == "crlf" else whole
    sent, encoding = (gzip.compress(sent, mtime=0), "gzip") if form == "gzip" else (sent, "")
    assert seen(watched(dialect, cut(sent, places), streamed=True, encoding=encoding)) == expected


@dialects
def test_nothing_has_begun_before_there_is_something_to_show(answers: Answers, dialect: str) -> None:
    """Piece by piece: as soon as it has begun, what came so far holds the first words."""
    whole = answers[dialect, "text", True]
    watch = Watch(dialect, streamed=True)
    for at in range(len(whole)):
        watch.feed(whole[at : at + 1])
        if watch.begun:
            break
    assert (
        b"Let" in whole[: at + 1]
        or b"Gr" in whole[: at + 1]
        or b"content_block" in whole[: at + 1]
        or (b"output_item.added" in whole[: at + 1])
    )


@pytest.mark.parametrize(
    ("event", "begun"),
    [
        (b": OPENROUTER PROCESSING\n\n", False),
        (b'data: {"choices":[],"prompt_filter_results":[]}\n\n', False),
        (b'data: {"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n', False),
        (b'data: {"choices":[{"delta":{"reasoning_content":"so"}}]}\n\n', True),
        (b'data: {"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}\n\n', True),
        (b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n', True),
        (b"data: no json\n\n", True),
        (b'data: {"object":"of another kind"}\n\n', True),
    ],
)
def test_openings_of_chat_servers_are_told_from_content(event: bytes, begun: bool) -> None:
    assert watched("openai-chat", [event], streamed=True).begun is begun


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"error":{"code":400,"message":"maximum context length is 8192 tokens"}}\n\n',
        b'data: {"error":{"message":"too long"},"choices":[{"delta":{"content":""},"finish_reason":"error"}]}\n\n',
        b'event: error\ndata: {"message":"the request exceeds the available context size"}\n\n',
        b'error: {"code":400,"message":"the request exceeds the available context size"}\n\n',
    ],
)
def test_errors_of_chat_servers_inside_a_stream_are_seen(event: bytes) -> None:
    watch = watched("openai-chat", [b'data: {"choices":[{"delta":{"role":"assistant"}}]}\n\n', event], streamed=True)
    assert watch.error is not None
    assert not watch.begun


def test_anthropic_reports_input_at_the_beginning_and_output_at_the_end() -> None:
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 7, "cache_read_input_tokens": 90}}}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}}
    events = [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in (start, end)]
    usage = watched("anthropic", events, streamed=True).usage
    assert usage is not None
    assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens) == (97, 90, 5)


@given(
    st.sampled_from(list(PATHS)),
    st.booleans(),
    st.sampled_from(["", "gzip", "deflate", "br", "zstd"]),
    st.lists(st.binary(max_size=60) | st.sampled_from([b"data: ", b"\n\n", b'{"error":', b'"usage"', b"[DONE]"])),
)
def test_nonsense_raises_nothing(dialect: str, streamed: bool, encoding: str, pieces: list[bytes]) -> None:
    watch = watched(dialect, pieces, streamed=streamed, encoding=encoding)
    decoded(b"".join(pieces), encoding)
    assert watch.usage is None or watch.usage.input_tokens >= 0


def test_what_cannot_be_read_counts_as_begun() -> None:
    assert watched("openai-chat", [b"\x28\xb5"], streamed=True, encoding="zstd").begun


def test_an_endless_event_is_not_held() -> None:
    watch = Watch("openai-chat", streamed=True)
    for _ in range(40):
        watch.feed(b"x" * 2**20)
    watch.feed(b'\n\ndata: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\n')
    assert watch.usage is not None
    assert watch.usage.input_tokens == 3


@pytest.mark.parametrize(
    "coded", [gzip.compress(b'{"a":1}'), zlib.compress(b'{"a":1}'), zlib.compress(b'{"a":1}')[2:-4]]
)
def test_whole_bodies_are_decoded(coded: bytes) -> None:
    encoding = "gzip" if coded[:2] == b"\x1f\x8b" else "deflate"
    assert decoded(coded, encoding) == b'{"a":1}'
