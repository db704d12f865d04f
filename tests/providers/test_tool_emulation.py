"""Tools by schema, over a server that knows none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import costly
from tests.providers.serving import Answer, Server, as_json, chat, endpoint, pieces_of, reply_of, request, serving
from tests.providers.test_tool_emulation_prompt import TOOLS

from foldline.engine.context import Request
from foldline.errors import InvalidInput, ProviderError
from foldline.providers.base import CallStarted, Piece, Provider, Reply, TextDelta
from foldline.providers.http import provider_for
from foldline.providers.tool_emulation import SchemaTools

CALL = '{\n  "tool": "read_file",\n "arguments": {"path": "a.py", "start_line": 3}}'


def over(server: Server) -> SchemaTools:
    def with_fields(fields: Mapping[str, Any]) -> Provider:
        return provider_for(replace(endpoint(server.url), extra=fields))

    return SchemaTools(with_fields)


def written(*texts: str, reason: str = "stop") -> Answer:
    return chat(
        *({"content": text} for text in texts), reason=reason, usage={"prompt_tokens": 9, "completion_tokens": 1}
    )


def asked(answer: Answer, sent: Request | None = None) -> tuple[list[Piece], Server]:
    async def run() -> tuple[list[Piece], Server]:
        async with serving(answer) as server:
            return await pieces_of(over(server), sent or request(tools=TOOLS)), server

    return asyncio.run(run())


def text_of(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, TextDelta))


def test_a_call_comes_back_as_an_ordinary_one() -> None:
    pieces, server = asked(written(CALL[:20], CALL[20:]))
    reply = reply_of(pieces)
    (message,) = reply.messages
    (made,) = message["tool_calls"]
    assert pieces[0] == CallStarted("read_file")
    assert made["function"] == {"name": "read_file", "arguments": '{"path":"a.py","start_line":3}'}
    assert (reply.finish_reason, reply.text, reply.calls[0].id) == ("tool_calls", "", made["id"])
    assert reply.usage == {"prompt_tokens": 9, "completion_tokens": 1}
    body = server.asked[0].body
    assert "tools" not in body
    assert body["response_format"]["json_schema"]["schema"]["anyOf"]
    assert [message["role"] for message in body["messages"]] == ["system", "user"]


def test_the_id_of_a_call_follows_from_the_request() -> None:
    ids = [reply_of(asked(written(CALL), sent)[0]).calls[0].id for sent in (request(tools=TOOLS),) * 2]
    other = request({"role": "user", "content": "again"}, tools=TOOLS)
    assert ids[0] == ids[1] != reply_of(asked(written(CALL), other)[0]).calls[0].id


@costly
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30), st.booleans(), st.randoms())
def test_an_answer_is_told_as_it_comes_however_it_is_cut(text: str, escaped: bool, chance: Any) -> None:
    whole = json.dumps({"answer": text}, ensure_ascii=escaped)
    cuts = sorted({0, len(whole), *(chance.randrange(len(whole)) for _ in range(6))})
    parts = [whole[start:stop] for start, stop in pairwise(cuts)]
    scripted = Scripted(parts)
    pieces = asyncio.run(pieces_of(SchemaTools(lambda _: scripted), request(tools=TOOLS)))
    reply = reply_of(pieces)
    assert text_of(pieces) == reply.text == text
    assert (reply.messages, reply.calls) == (({"role": "assistant", "content": text},), ())


class Scripted:
    """A provider of the Chat dialect that says the same each time."""

    name, dialect, model, endpoint = "scripted", "openai-chat", "m", "nowhere"

    def __init__(self, parts: list[str]) -> None:
        self._parts = parts

    async def stream(self, sent: Request) -> Any:
        del sent
        for part in self._parts:
            yield TextDelta(part)
        text = "".join(self._parts)
        yield reply_template(text)

    async def window_tokens(self) -> int | None:
        return None

    async def aclose(self) -> None:
        pass


def reply_template(text: str) -> Reply:
    message = {"role": "assistant", "content": text}
    return Reply(
        messages=(message,), text=text, calls=(), finish_reason="stop", usage=None, request_body={}, seconds=0.0
    )


def test_an_answer_that_was_cut_off_is_the_text_so_far() -> None:
    pieces, _ = asked(written('{"answer": "one\\ntw', reason="length"))
    reply = reply_of(pieces)
    assert (reply.finish_reason, reply.text, text_of(pieces)) == ("length", "one\ntw", "one\ntw")


def test_a_call_that_was_cut_off_is_text_and_never_a_call() -> None:
    cut = CALL[:-9]
    pieces, _ = asked(written(cut, reason="length"))
    reply = reply_of(pieces)
    assert (reply.finish_reason, reply.text, reply.calls) == ("length", cut, ())
    assert reply.messages == ({"role": "assistant", "content": cut},)
    assert text_of(pieces) == cut


@pytest.mark.parametrize("text", ["I read it.", "{ no object", '["a"]', '{"tool": 3, "arguments": {}}'])
def test_what_is_no_turn_is_text(text: str) -> None:
    pieces, _ = asked(written(text))
    assert text_of(pieces) == reply_of(pieces).text == text


def test_nothing_is_nothing() -> None:
    pieces, _ = asked(written())
    assert reply_of(pieces).text == ""
    assert reply_of(pieces).calls == ()


def test_without_tools_the_model_is_held_to_nothing() -> None:
    pieces, server = asked(written("hello"), request(system="s"))
    assert text_of(pieces) == reply_of(pieces).text == "hello"
    assert "response_format" not in server.asked[0].body


def test_a_refusal_passes() -> None:
    refusal = as_json({"error": {"message": "no", "type": "invalid_request_error"}}, 400)
    with pytest.raises(ProviderError):
        asked(refusal)


def test_only_the_chat_dialect_has_them() -> None:
    def with_fields(fields: Mapping[str, Any]) -> Provider:
        return provider_for(endpoint(dialect="anthropic", extra=fields))

    with pytest.raises(InvalidInput, match="openai-chat"):
        SchemaTools(with_fields)
