"""A proxy is judged by what its upstream gets and by what its client gets."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from foldline.errors import InvalidInput
from foldline_bench.promises.suite import ConformancePlan, PromiseRow, conformance
from foldline_bench.promises.targets.proxies import ProxyTarget, free_port

CHAT = ("openai-chat",)


class Forwarding(BaseHTTPRequestHandler):
    """A proxy that folds nothing."""

    upstream_port: int
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        connection = http.client.HTTPConnection("127.0.0.1", self.upstream_port, timeout=30)
        headers = {
            name: value for name, value in self.headers.items() if name.lower() not in {"host", "content-length"}
        }
        connection.request("POST", self.path, json.dumps(self.changed(body)).encode(), headers)
        response = connection.getresponse()
        data = self.answered(response.read(), streamed="stream" in body)
        connection.close()
        self.send_response(response.status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the interface
        """Nothing."""

    def changed(self, body: dict[str, Any]) -> dict[str, Any]:
        """The request with a fault."""
        return body

    def answered(self, data: bytes, *, streamed: bool) -> bytes:
        """The answer with a fault."""
        del streamed
        return data


class CuttingStreams(Forwarding):
    def answered(self, data: bytes, *, streamed: bool) -> bytes:
        return data[: len(data) // 2].rpartition(b"\n\n")[0] + b"\n\n" if streamed else data


class EndlessStreams(Forwarding):
    def answered(self, data: bytes, *, streamed: bool) -> bytes:
        return data.replace(b"data: [DONE]\n\n", b"") if streamed else data


class OtherStreams(Forwarding):
    def changed(self, body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "messages": body["messages"][1:]} if body.get("stream") else body


class Stubborn(Forwarding):
    """Sends a refused request again and again."""

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        data = self.rfile.read(length)
        for attempt in range(40):
            connection = http.client.HTTPConnection("127.0.0.1", self.upstream_port, timeout=30)
            connection.request("POST", self.path, data, {"content-type": "application/json"})
            response = connection.getresponse()
            answer, status = response.read(), response.status
            connection.close()
            if status < 400 or attempt == 39:
                break
        self.send_response(status)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


class Answering(Forwarding):
    """Asks nobody."""

    def do_POST(self) -> None:
        answer = json.dumps({"choices": [{"message": {"role": "assistant", "content": "hello"}}]}).encode()
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


@contextmanager
def proxied(kind: type[Forwarding]) -> Iterator[ProxyTarget]:
    port = free_port()
    handler = type("Handler", (kind,), {"upstream_port": port})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        target = ProxyTarget(url, window_tokens=4_000, upstream_port=port, dialects=CHAT)
        try:
            yield target
        finally:
            target.close()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def row_of(kind: type[Forwarding], promise: str, *cases: str) -> PromiseRow:
    with proxied(kind) as target:
        report = conformance(target, ConformancePlan(windows=(4_000,), only=(promise,), cases=cases))
    return report.rows[0]


@pytest.mark.parametrize(
    ("kind", "promise", "case", "words"),
    [
        (Forwarding, "fits", "tools/openai-chat/4000", "none was made, though it can be: HTTP 400"),
        (Forwarding, "empty", "empty/openai-chat/4000", "says-nothing"),
        (Forwarding, "recovers", "recovers/openai-chat/4000", "the client got the refusal"),
        (Stubborn, "ends", "ends/openai-chat/4000", "40 attempts at what is always refused"),
        (CuttingStreams, "streams", "streams/openai-chat/4000", "request 1, streamed: "),
        (EndlessStreams, "streams", "streams/openai-chat/4000", "the closing event did not come"),
        (OtherStreams, "streams", "streams/openai-chat/4000", "another request goes out where the answer is streamed"),
    ],
)
def test_a_fault_of_a_proxy_breaks_its_promise(kind: type[Forwarding], promise: str, case: str, words: str) -> None:
    row = row_of(kind, promise, case)
    assert row.status == "failed"
    assert words in row.first_fault


def test_what_fits_comes_through_as_it_is() -> None:
    for promise in ("fits", "valid", "words", "system", "prefix"):
        assert row_of(Forwarding, promise, "small/openai-chat/4000").status == "passed"


def test_a_proxy_with_another_upstream_is_a_bad_target() -> None:
    words = r"did not come through to the upstream .*: it answered by itself"
    with pytest.raises(InvalidInput, match=words), proxied(Answering):
        pass
