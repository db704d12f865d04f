"""The provider behind a proxy under test: a `FakeProvider` on a loopback port, by the standard library alone."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from foldline.errors import InvalidInput
from foldline.testing.provider import FakeProvider
from foldline.testing.script import Body, FakeReply
from foldline.testing.token_counts import count_body

__all__ = ["MODELS", "FakeUpstream"]

MODELS: Final = ("conformance", "conformance-recovers", "conformance-ends")
"""The models that it serves: what a proxy learns of one must not reach the trials of another."""

_KEPT: Final = 64
_NUMBER: Final = re.compile(r"This is reply (\d+) of the provider")


@dataclass(frozen=True, slots=True)
class AnsweredBody:
    """A request that was answered, and its size as the provider counts it."""

    body: Body
    tokens: int


class FakeUpstream:
    """It answers with numbered replies, so that what a client got leads to the request that it was the answer to.

    `weight` multiplies the size of every request: the provider that it plays counts so much more than the proxy was
    told. `asked` counts requests of models, refused ones too.
    """

    def __init__(self, window_tokens: int, port: int = 0) -> None:
        self.weight = 1.0
        self._answered: dict[int, AnsweredBody] = {}
        self._order: deque[int] = deque()
        self._number = 0
        self._provider = FakeProvider(self._reply, window_tokens=window_tokens, count=self._size, models=MODELS)
        provider = self._provider

        class Handler(_Handler):
            application = provider

        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        except OSError as error:
            raise InvalidInput(f"port {port}: {error.strerror or error}", place="--upstream-port") from None
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def asked(self) -> int:
        """How many requests to a model came, those refused included."""
        return self._number + sum(self._provider.refusals.values())

    @property
    def refusals(self) -> Mapping[str, int]:
        """How many were refused, by kind."""
        return dict(self._provider.refusals)

    def refusal_since(self, before: Mapping[str, int]) -> str:
        """What the newest refusal for a broken rule said, if any came since `before`."""
        kinds = [kind for kind, number in self.refusals.items() if number > before.get(kind, 0)]
        broken = [kind for kind in kinds if kind not in {"overflow", "route", "method", "key", "auth", "header"}]
        if not broken:
            return ""
        return next(f"{one.kind}: {one.message}" for one in reversed(self._provider.refused) if one.kind in broken)

    def answered_by(self, text: str) -> AnsweredBody | None:
        """The request that an answer belongs to; None where no reply of this provider is in it."""
        found = _NUMBER.search(text)
        return self._answered.get(int(found[1])) if found else None

    def close(self) -> None:
        """Stop it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _size(self, body: Body) -> int:
        return int(count_body(body) * self.weight)

    def _reply(self, body: Body) -> FakeReply:
        self._number += 1
        self._answered[self._number] = AnsweredBody(body, self._size(body))
        self._order.append(self._number)
        if len(self._order) > _KEPT:
            del self._answered[self._order.popleft()]
        return FakeReply(f"This is reply {self._number} of the provider, whole to its end: ✓", piece_chars=7)


class _Handler(BaseHTTPRequestHandler):
    """Passes a request on to an ASGI application, and its answer back as it comes."""

    application: FakeProvider
    protocol_version = "HTTP/1.1"
    # Small pieces would wait 40 ms each for one another; flushed where one is whole.
    disable_nagle_algorithm = True
    wbufsize = 65_536

    def do_GET(self) -> None:
        """Serve it."""
        self._serve()

    do_POST = do_GET  # noqa: N815 - as above

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the interface
        """Print nothing."""

    def _serve(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length") or 0))
        where = urlsplit(self.path)
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": self.command,
            "path": unquote(where.path),
            "raw_path": where.path.encode(),
            "query_string": where.query.encode(),
            "headers": [
                (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in self.headers.items()
            ],
        }
        try:
            asyncio.run(self._answer(scope, data))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the client has left

    async def _answer(self, scope: dict[str, Any], data: bytes) -> None:
        given = False

        async def receive() -> dict[str, Any]:
            nonlocal given
            if given:
                await asyncio.Event().wait()
            given = True
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.send_response(message["status"])
                for name, value in message.get("headers", ()):
                    if name.lower() not in {b"content-length", b"transfer-encoding"}:
                        self.send_header(name.decode("latin-1"), value.decode("latin-1"))
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                return
            piece = message.get("body", b"")
            if piece:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            if not message.get("more_body", False):
                self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()

        await self.application(scope, receive, send)
