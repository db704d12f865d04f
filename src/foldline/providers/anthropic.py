"""Anthropic Messages over HTTP.

Source: Anthropic docs, "Streaming messages" (events, deltas, errors inside a stream) and API reference, Messages. By
those docs a server may send events of unknown types, which are skipped here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from foldline.catalog.models import lookup
from foldline.codecs.anthropic.codec import is_blank
from foldline.codecs.encoding import object_of
from foldline.engine.context import Request
from foldline.messages import Json, snapshot
from foldline.providers.base import (
    AssembledReply,
    CallStarted,
    HttpDialect,
    Piece,
    ReasoningDelta,
    TextDelta,
    finish_reason_of,
    new_call_id,
    object_in,
    reported,
)
from foldline.providers.bodies import Event, StreamedError
from foldline.providers.cache_points import anthropic_points
from foldline.providers.endpoint import Endpoint

__all__ = ["DIALECT", "AnthropicDialect"]


class AnthropicDialect:
    """The dialect "anthropic"."""

    path: Final = "/v1/messages"

    def body(self, endpoint: Endpoint, request: Request) -> dict[str, Json]:
        """Return a body with system text and tools in their own fields, and cache points in copies."""
        # Points go into copies: the messages of the session stay as they were recorded.
        system, tools, messages = anthropic_points(
            request.system or None,
            list(request.tools) if request.tools else None,
            list(request.messages),
            stable_until=request.stable_until,
            once=request.once,
            breaks_at=request.breaks_at,
            lasts_until=request.lasts_until,
            tokens=request.tokens,
            model=endpoint.model,
            # With a cache point for the whole request, the server places them itself.
            wanted="cache_control" not in endpoint.extra,
        )
        cap, wanted = request.max_output_tokens, endpoint.extra.get("max_tokens")
        body: dict[str, Json] = {
            "model": endpoint.model,
            "tools": tools,
            "system": system,
            "messages": messages,
            "stream": True,
            **endpoint.extra,
            "max_tokens": _cap(endpoint, request, min(cap, wanted) if isinstance(wanted, int) else cap),
        }
        return {name: value for name, value in body.items() if value is not None}

    def adapted(self, body: Mapping[str, Json], refusal: str) -> dict[str, Json] | None:
        """Return None: every field sent here is part of the dialect."""
        return None

    def assembler(self) -> _MessagesAssembler:
        """Return a new assembler."""
        return _MessagesAssembler()


DIALECT: Final[HttpDialect] = AnthropicDialect()
"""The dialect of this module, which `foldline.providers.http` finds by its name."""


def _cap(endpoint: Endpoint, request: Request, cap_tokens: int) -> int:
    """Return the output cap. A question that is sent once gets its thinking budget in addition.

    The cap must be above that budget, and within the model's output limit and the room in its window.
    """
    thinking = endpoint.extra.get("thinking") if request.once else None
    budget_tokens = thinking.get("budget_tokens") if isinstance(thinking, Mapping) else None
    if not isinstance(budget_tokens, int):
        return cap_tokens
    # Thinking counts as output here ("Extended thinking": max_tokens), and a cap at or below the budget is refused.
    cap_tokens += budget_tokens
    model = lookup(endpoint.model)
    for most_tokens in (model.max_output_tokens, model.window_tokens - request.tokens):
        if model.known and most_tokens is not None and most_tokens > budget_tokens:
            cap_tokens = min(cap_tokens, most_tokens)
    return cap_tokens


class _MessagesAssembler:
    def __init__(self) -> None:
        self.finished = False
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces: dict[tuple[int, str], list[str]] = {}  # of text fields, joined once
        self._newest = 0
        self._usage: dict[str, Json] = {}
        self._reason: Json = None

    def feed(self, event: Event) -> Iterator[Piece]:
        if event.data.strip() == "[DONE]":  # from gateways that speak both dialects
            return
        body = object_in(event)
        kind = body.get("type") or event.name
        # Gateways send errors of their own, without a type, in place of the dialect's.
        if kind == "error" or event.name == "error" or (body.get("error") and "type" not in body):
            raise StreamedError(body)
        if kind == "message_start":
            message = body.get("message")
            self._count(message.get("usage") if isinstance(message, Mapping) else None)
        elif kind == "content_block_start":
            yield from self._start(body)
        elif kind == "content_block_delta":
            yield from self._delta(self._index(body), body.get("delta"))
        elif kind == "message_delta":
            delta = body.get("delta")
            if isinstance(delta, Mapping) and delta.get("stop_reason"):
                self._reason = delta["stop_reason"]
            self._count(body.get("usage"))
        elif kind == "message_stop":
            self.finished = True  # the connection may stay open, so its end is not awaited
            self._reason = self._reason or "end_turn"

    def feed_body(self, body: Mapping[str, Json]) -> Iterator[Piece]:
        content = body.get("content")
        if body.get("type") == "error" or body.get("error") or not isinstance(content, list):
            raise StreamedError(dict(body))
        for index, block in enumerate(content):
            yield from self._start({"index": index, "content_block": block})
        self._count(body.get("usage"))
        self._reason, self.finished = body.get("stop_reason") or "end_turn", True

    def result(self) -> AssembledReply | None:
        if self._reason is None:
            return None
        # Anthropic refuses its own empty text blocks when they are sent back.
        blocks = [block for index in sorted(self._blocks) if not is_blank(block := self._block(index))]
        calls = any(block.get("type") == "tool_use" for block in blocks)
        messages = ({"role": "assistant", "content": blocks},) if blocks else ()
        reason = finish_reason_of(self._reason, calls=calls)
        return AssembledReply(messages, reason, reported(self._usage))

    def _index(self, body: Mapping[str, Json]) -> int:
        index = body.get("index")  # compatible servers leave it out and send block after block
        return index if isinstance(index, int) else self._newest

    def _start(self, body: Mapping[str, Json]) -> Iterator[Piece]:
        block = body.get("content_block")
        if not isinstance(block, Mapping):
            return
        given = body.get("index")
        self._newest = given if isinstance(given, int) else max(self._blocks, default=-1) + 1
        # A snapshot, because deltas extend the block and the event is not ours to change.
        self._blocks[self._newest] = snapshot(block)
        if block.get("type") == "tool_use" and isinstance(block.get("name"), str):
            yield CallStarted(block["name"])
        if block.get("type") == "text" and block.get("text"):
            yield TextDelta(block["text"])
        if block.get("type") == "thinking" and block.get("thinking"):
            yield ReasoningDelta(block["thinking"])

    def _delta(self, index: int, delta: Json) -> Iterator[Piece]:
        block = self._blocks.get(index)
        if block is None or not isinstance(delta, Mapping):
            return
        kind = delta.get("type")
        if kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta.get("citation")]
            return
        for name, value in delta.items():  # each kind of delta extends the field that it names
            if name == "type" or value is None:
                continue
            if isinstance(value, str):
                self._pieces.setdefault((index, name), []).append(value)
            else:
                block[name] = value
            if value and kind == "text_delta" and name == "text":
                yield TextDelta(value)
            if value and kind == "thinking_delta" and name == "thinking":
                yield ReasoningDelta(value)

    def _block(self, index: int) -> dict[str, Any]:
        """Return a block with its pieces joined. A call without an id gets one; truncated input stays text."""
        block = dict(self._blocks[index])
        for (at, name), pieces in self._pieces.items():
            if at != index:
                continue
            text = "".join(pieces)
            # Joined and parsed once at the end: the pieces are cut anywhere, even inside an escape.
            if name == "partial_json":
                block["input"] = object_of(text) if text else block.get("input", {})
            else:
                block[name] = (block.get(name) or "") + text
        if block.get("type") == "tool_use" and not block.get("id"):
            block["id"] = new_call_id("toolu_")
        if block.get("type") == "text" and not isinstance(block.get("text"), str):
            block["text"] = ""
        return block

    def _count(self, usage: Json) -> None:
        # Counts of a later event are totals ("cumulative" in the docs), and some servers send zeros first.
        for name, value in usage.items() if isinstance(usage, Mapping) else ():
            old = self._usage.get(name)
            if value is None and old is not None:
                continue
            larger = isinstance(value, int) and isinstance(old, int) and not isinstance(value, bool)
            self._usage[name] = max(value, old) if larger else value
