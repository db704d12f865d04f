"""OpenAI Responses over HTTP, without storage at the provider.

Source: OpenAI API reference, Responses, "Streaming events"; guide "Reasoning models", "Encrypted reasoning items": with
`store: false` a reasoning item can be sent back only with its encrypted content. That must be requested, and a model
that does not reason refuses the request for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from foldline.codecs.encoding import call_id_of
from foldline.codecs.openai_responses.codec import CALL_FIELDS
from foldline.engine.context import Request
from foldline.messages import Json, Wire
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
from foldline.providers.endpoint import Endpoint
from foldline.providers.openai_chat import is_openai

__all__ = ["DIALECT", "ResponsesDialect", "reasons"]

_REASONING: Final = re.compile(r"(?:^|[/:])(?:o[1-9]|gpt-(?:[5-9]|oss)|codex)(?!.*-chat\b)")
_TEXT_DELTAS: Final = frozenset({"response.output_text.delta", "response.refusal.delta"})
_THOUGHT_DELTAS: Final = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})
_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.done"})
_ENCRYPTED: Final = "reasoning.encrypted_content"


def reasons(model: str) -> bool:
    """Whether an OpenAI model reasons, by its name: o-series, GPT-5 and later without "-chat", gpt-oss, codex."""
    return bool(_REASONING.search(model.lower()))


class ResponsesDialect:
    """The dialect "openai-responses"."""

    path: Final = "/responses"

    def body(self, endpoint: Endpoint, request: Request) -> dict[str, Json]:
        """Return a body with the system text as instructions, and the unchanged items."""
        system = request.system
        if system and not isinstance(system, str):  # `instructions` is a string
            system = "\n\n".join(str(block.get("text", "")) for block in system)
        cap, wanted = request.max_output_tokens, endpoint.extra.get("max_output_tokens")
        body: dict[str, Json] = {
            "model": endpoint.model,
            "instructions": system or None,
            "tools": list(request.tools) if request.tools else None,
            "input": list(request.messages),
            "stream": True,
            # Nothing is left on the server: a fold would not reach what it has stored. Reasoning must then come along
            # encrypted, and only models that reason accept this field ("Reasoning models").
            "store": False,
            "include": [_ENCRYPTED] if reasons(endpoint.model) else None,
            "prompt_cache_key": endpoint.session_id if is_openai(endpoint) else None,
            **endpoint.extra,
            "max_output_tokens": min(cap, wanted) if isinstance(wanted, int) else cap,
        }
        return {name: value for name, value in body.items() if value is not None}

    def adapted(self, body: Mapping[str, Json], refusal: str) -> dict[str, Json] | None:
        """Return the body without encrypted reasoning if a model has none."""
        if "include" in body and re.search(r"(?i)encrypted content is not supported", refusal):
            return {**body, "include": [name for name in body["include"] if name != _ENCRYPTED]}
        return None

    def assembler(self) -> _ResponsesAssembler:
        """Return a new assembler."""
        return _ResponsesAssembler()


DIALECT: Final[HttpDialect] = ResponsesDialect()
"""The dialect of this module, which `foldline.providers.http` finds by its name."""


class _ResponsesAssembler:
    def __init__(self) -> None:
        self.finished = False
        self._items: dict[int, dict[str, Any]] = {}
        self._response: Mapping[str, Json] | None = None

    def feed(self, event: Event) -> Iterator[Piece]:
        if event.data.strip() == "[DONE]":
            return
        body = object_in(event)
        kind = body.get("type") or event.name
        # Gateways send errors of their own, without a type, in place of the dialect's.
        if kind in ("error", "response.failed", "response.error") or (body.get("error") and "type" not in body):
            raise StreamedError(_error_in(body))
        if kind in _TEXT_DELTAS and isinstance(body.get("delta"), str):
            yield TextDelta(body["delta"])
        elif kind in _THOUGHT_DELTAS and isinstance(body.get("delta"), str):
            yield ReasoningDelta(body["delta"])
        elif kind == "response.reasoning_summary_part.added" and body.get("summary_index"):
            yield ReasoningDelta("\n\n")  # the parts are paragraphs without line ends of their own
        elif kind == "response.output_item.added":
            yield from _started(body.get("item"))
        # Deltas are for people only. Items are taken whole, so that nothing of them depends on how they were cut.
        elif kind == "response.output_item.done" and isinstance(body.get("item"), dict):
            index = body.get("output_index")
            self._items[index if isinstance(index, int) else len(self._items)] = body["item"]
        elif kind in _ENDS:
            response = body.get("response")
            self._response = response if isinstance(response, Mapping) else {}
            self.finished = True
            if self._response.get("status") == "failed" or self._response.get("error"):
                raise StreamedError(_error_in(body))

    def feed_body(self, body: Mapping[str, Json]) -> Iterator[Piece]:
        if body.get("error") or body.get("status") == "failed" or not isinstance(body.get("output"), list):
            raise StreamedError(_error_in(body))
        self._response, self.finished = body, True
        for item in body["output"]:
            yield from _started(item)
            content = item.get("content") if isinstance(item, Mapping) else None
            for part in content if isinstance(content, list) and item.get("type") == "message" else ():
                text = part.get("text") or part.get("refusal") if isinstance(part, Mapping) else None
                if isinstance(text, str):
                    yield TextDelta(text)

    def result(self) -> AssembledReply | None:
        response = self._response
        if response is None:
            return None
        output = response.get("output")
        items = [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []
        if len(items) < len(self._items):  # some gateways end with an empty response
            items = [self._items[index] for index in sorted(self._items)]
        # The final response and not the pieces: its items are those that the API accepts back.
        messages = tuple(map(_named, items))
        why = response.get("incomplete_details")
        cause = why.get("reason") if isinstance(why, Mapping) else None
        refused = any(part.get("type") == "refusal" for item in items for part in _parts(item))
        calls = any(item.get("type") in CALL_FIELDS for item in items)
        status = response.get("status")
        # The status alone says "incomplete"; the cause tells the output cap from a content filter.
        ended = cause or ("length" if status == "incomplete" else status)
        reason = finish_reason_of(ended, calls=calls, refused=refused)
        return AssembledReply(messages, reason, reported(response.get("usage")))


def _error_in(body: Mapping[str, Json]) -> Json:
    response = body.get("response")
    found = response.get("error") if isinstance(response, Mapping) else None
    return found or dict(body)


def _started(item: Json) -> Iterator[Piece]:
    if isinstance(item, Mapping) and item.get("type") in CALL_FIELDS:
        yield CallStarted(str(item.get("name") or str(item["type"]).removesuffix("_call")))


def _parts(item: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    content = item.get("content") if item.get("type") == "message" else None
    return [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []


def _named(item: Wire) -> Wire:
    """Return the unchanged item; a call without an id gets one."""
    if item.get("type") not in CALL_FIELDS or call_id_of(item.get("call_id")):
        return item
    return {**item, "call_id": item.get("id") or new_call_id()}
