"""Large request bodies are parsed in a thread."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from starlette.requests import Request
from starlette.types import Message

from foldline.doors.http.requests import BodyLimits, RequestField, RequestFields, read_request
from foldline.doors.http.responses import Problem
from foldline.messages import Json

THREADS: list[threading.Thread] = []


class ThreadRecorder(RequestField):
    """A field that notes in which thread its value is checked."""

    def check(self, value: Json) -> Json:
        THREADS.append(threading.current_thread())
        return super().check(value)


def read(body: bytes, most_chars: int = 10**7) -> Json:
    """The text in a body."""
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers, "path_params": {}}

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    fields = RequestFields(body=[ThreadRecorder(name="text", about="what is said", required=True, most=most_chars)])
    request = asyncio.run(read_request(Request(scope, receive), fields, BodyLimits(max_bytes=10**7)))
    return request["text"]


@pytest.mark.parametrize(("chars", "inline"), [(10, True), (2_000_000, False)])
def test_a_body_of_megabytes_is_read_and_checked_in_a_thread(chars: int, inline: bool) -> None:
    THREADS.clear()
    assert read(json.dumps({"text": "a" * chars}).encode()) == "a" * chars
    assert [thread is threading.main_thread() for thread in THREADS] == [inline]


def test_what_is_wrong_in_a_large_body_is_said_as_in_a_small_one() -> None:
    with pytest.raises(Problem) as received:
        read(json.dumps({"text": "a" * 200_000}).encode(), most_chars=100_000)
    assert received.value.field == "text"
    with pytest.raises(Problem) as received:
        read(b'{"text": "' + b"a" * 200_000)
    assert received.value.field == "body"
