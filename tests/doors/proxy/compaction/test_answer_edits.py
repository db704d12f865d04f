"""Answers are changed as they come: in any pieces, plain or compressed, and anything unknown passes."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import pytest

from foldline.doors.proxy.compaction.answer_edits import AnswerEdit, CountEdit, EditingSend, MessageEdit, ResponseEdit
from foldline.doors.proxy.upstream import UpstreamFault
from foldline.view.transcript import Usage

BLOCK = {"type": "compaction", "content": "Done.", "encrypted_content": "foldline-1.x"}
ITEM = {"type": "compaction", "id": "cmp_1", "encrypted_content": "foldline-1.x"}
STREAM = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","usage":{"input_tokens":7}}}\n\n'
    b'event: ping\r\ndata: {"type":"ping"}\r\n\r\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"text"}}\n\n'
    b": a comment\n\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"message_ \xc3\xa4"}}\n\n'
    b'event: message_delta\ndata: {"type":"message_delta","delta":{},"usage":{"output_tokens":3}}\n\n'
    b"data: [DONE]\n\n"
)


def passed(
    edit: AnswerEdit | None, pieces: list[bytes], *headers: tuple[bytes, bytes], **more: Any
) -> tuple[Any, bytes]:
    """The head and the body that a client receives."""
    out: list[Any] = []
    status = more.pop("status", 200)

    async def send(message: Any) -> None:
        out.append(message)

    async def run() -> None:
        editing = EditingSend(send, [(b"x-foldline-compaction", b"foldline")], edit, **more)
        await editing({"type": "http.response.start", "status": status, "headers": list(headers)})
        for piece in pieces:
            await editing({"type": "http.response.body", "body": piece, "more_body": True})
        await editing({"type": "http.response.body", "body": b"", "more_body": False})

    asyncio.run(run())
    assert out[-1]["more_body"] is False
    return out[0], b"".join(message["body"] for message in out[1:])


def edit() -> MessageEdit:
    return MessageEdit([], BLOCK, [Usage(input_tokens=90, output_tokens=9, cached_tokens=40)], iterations=True)


def events(body: bytes) -> list[Any]:
    return [json.loads(line[5:]) for line in body.decode().splitlines() if line.startswith("data: {")]


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
@pytest.mark.parametrize("compressed", [False, True])
def test_a_stream_in_any_pieces_gets_the_block_once(size: int, compressed: bool) -> None:
    data = gzip.compress(STREAM) if compressed else STREAM
    coding = [(b"content-encoding", b"gzip")] if compressed else []
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    head, body = passed(edit(), pieces, (b"content-type", b"text/event-stream"), *coding)
    found = events(body)
    assert [event["type"] for event in found] == [
        *("message_start", "content_block_start", "content_block_delta", "content_block_stop"),
        *("ping", "content_block_start", "content_block_delta", "message_delta"),
    ]
    assert [event["index"] for event in found if "index" in event] == [0, 0, 0, 1, 1]
    assert found[6]["delta"]["text"] == "message_ ä"
    iterations = found[-1]["usage"]["iterations"]
    assert iterations[0]["input_tokens"] == 50
    assert iterations[0]["cache_read_input_tokens"] == 40
    assert iterations[1]["input_tokens"] == 7
    assert iterations[1]["output_tokens"] == 3
    assert body.endswith(b"data: [DONE]\n\n")
    assert b": a comment\n\n" in body
    assert not any(name == b"content-encoding" for name, _ in head["headers"])


def test_a_stream_that_breaks_off_keeps_what_came() -> None:
    cut = STREAM[:-40]
    _, body = passed(edit(), [cut], (b"content-type", b"text/event-stream"))
    assert body.endswith(cut.rpartition(b"\n\n")[2])


def test_a_whole_message_is_changed_and_its_length_told() -> None:
    answer = {"content": [{"type": "text", "text": "Hi."}], "usage": {"input_tokens": 7, "output_tokens": 3}}
    data = json.dumps(answer).encode()
    length = (b"content-length", str(len(data)).encode())
    head, body = passed(edit(), [data[:9], data[9:]], (b"content-type", b"application/json"), length)
    assert dict(head["headers"])[b"content-length"] == str(len(body)).encode()
    assert json.loads(body)["content"][0] == BLOCK
    assert [entry["type"] for entry in json.loads(body)["usage"]["iterations"]] == ["compaction", "message"]


@pytest.mark.parametrize(
    ("data", "status"),
    [(b"<html>", 200), (b'{"error": {"message": "x"}}', 200), (b'{"type": "error"}', 200), (b'{"content": []}', 400)],
)
def test_what_is_no_answer_passes_as_it_is(data: bytes, status: int) -> None:
    head, body = passed(edit(), [data], (b"content-type", b"application/json"), status=status)
    assert body == data
    assert dict(head["headers"])[b"x-foldline-compaction"] == b"foldline"


def test_a_coding_that_cannot_be_undone_passes_as_it_is() -> None:
    head, body = passed(edit(), [b"\x00br"], (b"content-type", b"application/json"), (b"content-encoding", b"br"))
    assert body == b"\x00br"
    assert dict(head["headers"])[b"content-encoding"] == b"br"


def test_a_stream_without_its_media_type_is_known_by_what_was_asked_for() -> None:
    _, body = passed(edit(), [STREAM], wanted=True)
    assert events(body)[1]["content_block"]["type"] == "compaction"


def test_a_warning_stands_beside_the_one_that_is_there() -> None:
    head, _ = passed(None, [], (b"x-foldline-warning", b"first"), warning="second\nligne é")
    assert dict(head["headers"])[b"x-foldline-warning"] == b"first; second ligne ?"


def test_figures_of_edits_are_told_as_the_upstream_counts() -> None:
    applied = [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 2, "cleared_input_tokens": 1_000}]
    answer = {"usage": {"input_tokens": 600, "cache_read_input_tokens": 200, "output_tokens": 1}}
    told = MessageEdit(applied, sent_tokens=1_000).whole(answer)["context_management"]["applied_edits"]
    assert told == [{**applied[0], "cleared_input_tokens": 800}]
    # A report that must be about another text says nothing of the count.
    answer = {"usage": {"input_tokens": 9, "output_tokens": 1}}
    told = MessageEdit(applied, sent_tokens=1_000).whole(answer)["context_management"]["applied_edits"]
    assert told == applied
    assert CountEdit(1_000, 500).whole({"input_tokens": 400}) == {
        "input_tokens": 400,
        "context_management": {"original_input_tokens": 1_200},
    }


def test_a_response_that_failed_has_no_item() -> None:
    edit = ResponseEdit(ITEM)
    created = {"type": "response.created", "response": {"output": []}, "sequence_number": 0}
    failed = {"type": "response.failed", "response": {"output": [], "status": "failed"}, "sequence_number": 1}
    assert [*edit.event(dict(created)), *edit.event(dict(failed))] == [created, failed]
    assert ResponseEdit(ITEM).whole({"status": "failed", "output": []}) == {"status": "failed", "output": []}


def test_a_response_without_any_item_gets_ours_before_its_end() -> None:
    edit = ResponseEdit(ITEM)
    end = {"type": "response.completed", "response": {"output": [], "status": "completed"}}
    found = edit.event(dict(end))
    assert [event["type"] for event in found][-1] == "response.completed"
    assert len(found) == 4
    assert found[-1]["response"] == {"output": [ITEM], "status": "completed"}
    assert not any("sequence_number" in event for event in found)  # servers that do not number have none


@pytest.mark.parametrize("odd", ["x", None, [1], {}, 1.5])
def test_odd_figures_of_an_upstream_cost_no_client_its_answer(odd: Any) -> None:
    told = [{"type": "clear_tool_uses_20250919", "cleared_input_tokens": 5}]
    plain = {"content": [{"type": "text", "text": "On."}], "usage": {"input_tokens": odd}}
    _, body = passed(
        MessageEdit(list(told), BLOCK, sent_tokens=10, iterations=True),
        [json.dumps(plain).encode()],
        (b"content-type", b"application/json"),
    )
    assert json.loads(body)["content"] == [BLOCK, *plain["content"]]
    events = [
        {"type": "content_block_start", "index": odd, "content_block": {"type": "text", "text": "On."}},
        {"type": "message_delta", "delta": {}, "usage": {"input_tokens": odd}},
    ]
    frames = [f"data: {json.dumps(event)}\n\n".encode() for event in events]
    streamed = MessageEdit(list(told), BLOCK, sent_tokens=10, iterations=True)
    _, body = passed(streamed, frames, (b"content-type", b"text/event-stream"))
    assert b'"index":1' in body
    assert b'"cleared_input_tokens":5' in body


@pytest.mark.parametrize("media", [b"application/json", b"text/event-stream"])
def test_an_answer_in_a_broken_coding_breaks_off(media: bytes) -> None:
    """What is left of it is no text, and would be passed on as one."""
    data = bytearray(gzip.compress(STREAM * 20))
    data[60:64] = b"\0\xff\0\xff"
    with pytest.raises(UpstreamFault):
        passed(edit(), [bytes(data[:50]), bytes(data[50:])], (b"content-type", media), (b"content-encoding", b"gzip"))
