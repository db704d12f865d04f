"""OpenAI Chat Completions over HTTP: requests that most servers accept, and streamed replies from all of them.

Sources: OpenAI API reference, Chat Completions, "The chat completion chunk object"; OpenRouter docs, "Reasoning tokens"
(`reasoning`, `reasoning_details`), DeepSeek and vLLM (`reasoning_content`), Mistral (content in blocks).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from foldline.codecs.encoding import json_text
from foldline.codecs.openai_chat.codec import says_nothing
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
from foldline.providers.cache_points import chat_points, wants_chat_points
from foldline.providers.endpoint import Endpoint

__all__ = ["DIALECT", "ChatAssembler", "ChatDialect", "is_openai", "output_field"]

_OUTPUT_FIELDS: Final = ("max_completion_tokens", "max_tokens")
_UNKNOWN_FIELD: Final = re.compile(
    r"(?i)unsupported|not supported|unknown|unrecogni[sz]ed|unexpected|not permitted|forbidden|"
    r"extra (?:inputs?|fields?)"
)
# Fields that a server can do without: usage at the end of a stream, and the routing to a warm cache.
_OPTIONAL: Final = ("stream_options", "prompt_cache_key")


def is_openai(endpoint: Endpoint) -> bool:
    """Whether the server is OpenAI's own or Azure's, which accept fields that others refuse."""
    return endpoint.host == "api.openai.com" or endpoint.host.endswith(".openai.azure.com")


def output_field(endpoint: Endpoint) -> str:
    """Return the field of the output cap: OpenAI's reasoning models refuse `max_tokens`, many servers know no other."""
    configured = next((name for name in _OUTPUT_FIELDS if endpoint.extra.get(name) is not None), None)
    return configured or _OUTPUT_FIELDS[0 if is_openai(endpoint) else 1]


class ChatDialect:
    """The dialect "openai-chat"."""

    path: Final = "/chat/completions"

    def body(self, endpoint: Endpoint, request: Request) -> dict[str, Json]:
        """Return a body with the system text as the first message, then the unchanged messages."""
        messages: list[Wire] = [*_system_message(request), *request.messages]
        if wants_chat_points(endpoint):
            lead = len(messages) - len(request.messages)
            stable = request.stable_until + lead if request.stable_until else 0
            messages = chat_points(
                messages,
                stable_until=stable,
                tokens=request.tokens,
                model=endpoint.model,
                once=request.once,
                breaks_at=[end + lead for end in request.breaks_at],
                lasts_until=None if request.lasts_until is None else request.lasts_until + lead,
            )
        field = output_field(endpoint)
        cap = request.max_output_tokens
        wanted = endpoint.extra.get(field)
        body: dict[str, Json] = {
            "model": endpoint.model,
            "messages": messages,
            **({"tools": list(request.tools)} if request.tools else {}),
            "stream": True,
            # Without this a stream of OpenAI reports no usage, and the estimate could not be corrected.
            "stream_options": {"include_usage": True},
            **({"prompt_cache_key": endpoint.session_id} if endpoint.session_id and is_openai(endpoint) else {}),
            **endpoint.extra,
            # A learned cap is a limit of the server, so a setting can only be lower.
            field: min(cap, wanted) if isinstance(wanted, int) else cap,
        }
        return {name: value for name, value in body.items() if value is not None}

    def adapted(self, body: Mapping[str, Json], refusal: str) -> dict[str, Json] | None:
        """Return the body without an optional field named as unknown, or with the cap's other name."""
        if not _UNKNOWN_FIELD.search(refusal):
            return None
        # Servers word this refusal in many ways, but name the field as it was sent.
        for name in _OPTIONAL:
            if name in body and name in refusal:
                return {key: value for key, value in body.items() if key != name}
        new, old = _OUTPUT_FIELDS
        # A refusal may name the right field as well, so look for the one that was sent.
        sent = new if new in body else old
        other = old if sent == new else new
        if sent in body and re.search(rf"\b{sent}\b", refusal):
            return {other if key == sent else key: value for key, value in body.items()}
        return None

    def assembler(self) -> ChatAssembler:
        """Return a new assembler."""
        return ChatAssembler()


DIALECT: Final[HttpDialect] = ChatDialect()
"""The dialect of this module, which `foldline.providers.http` finds by its name."""


def _system_message(request: Request) -> list[Wire]:
    system = request.system
    if not system:
        return []
    if isinstance(system, str):
        return [{"role": "system", "content": system}]
    if all(block.keys() <= {"type", "text"} for block in system):
        # The templates of many servers accept text only.
        return [{"role": "system", "content": "\n\n".join(str(block.get("text", "")) for block in system)}]
    return [{"role": "system", "content": list(system)}]


# Fields of streamed blocks whose pieces are joined. Of any other field the last value is used.
_JOINED: Final = frozenset({"text", "thinking", "summary", "signature", "data", "transcript", "arguments"})


def _merge(into: dict[str, Json], piece: Mapping[str, Json]) -> None:
    """Merge a piece into an object: text fields in `_JOINED` are joined, objects and lists merged."""
    for name, value in piece.items():
        old = into.get(name)
        if value is None and name in into:  # null repeats "unchanged" in the chunks of some servers
            continue
        if isinstance(value, str) and isinstance(old, str) and name in _JOINED:
            into[name] = old + value
        elif isinstance(value, Mapping) and isinstance(old, dict):
            _merge(old, value)
        elif isinstance(value, Mapping):
            # A copy, because later pieces are merged into it and the parsed chunk is not ours to change.
            into[name] = {}
            _merge(into[name], value)
        elif isinstance(value, list) and isinstance(old, list):
            _extend(old, value)
        else:
            into[name] = value


def _extend(blocks: list[Json], pieces: Sequence[Json]) -> None:
    """Append blocks to a list. A piece that continues the last block is merged into it."""
    for piece in pieces:
        last = blocks[-1] if blocks else None
        if not isinstance(piece, Mapping):
            blocks.append(piece)
        elif isinstance(last, dict) and _continues(last, piece):
            _merge(last, piece)
        else:
            fresh: dict[str, Json] = {}
            _merge(fresh, piece)
            blocks.append(fresh)


def _continues(last: Mapping[str, Json], piece: Mapping[str, Json]) -> bool:
    if last.get("type") != piece.get("type") or last.get("index") != piece.get("index"):
        return False
    if last.get("signature") and not piece.get("signature"):  # a signature closes its block
        return False
    if not _JOINED & piece.keys():  # nothing to join: a block that came whole
        return False
    # An encrypted block comes whole, so only an index says that a piece continues it.
    return "data" not in piece or piece.get("index") is not None


class ChatAssembler:
    """One reply of the dialect "openai-chat"; see `Assembler`."""

    def __init__(self) -> None:
        self.finished = False
        self._fields: dict[str, Json] = {}
        self._texts: dict[str, list[str]] = {}  # text fields, whose pieces are joined once
        self._blocks: list[Json] = []
        self._calls: list[dict[str, Json]] = []
        self._arguments: list[list[str]] = []
        self._usage: Mapping[str, Json] | None = None
        self._timings: Mapping[str, Json] = {}
        self._reason: str | None = None
        self._closed = False

    def feed(self, event: Event) -> Iterator[Piece]:
        """Take an event and yield its pieces. Raises StreamedError."""
        if event.data.strip() == "[DONE]":
            self.finished = self._closed = True
            return
        chunk = object_in(event)
        if event.name == "error":
            raise StreamedError(chunk)
        yield from self._chunk(chunk, "delta")

    def feed_body(self, body: Mapping[str, Json]) -> Iterator[Piece]:
        """Take a reply that is not streamed and yield its pieces. Raises StreamedError."""
        yield from self._chunk(body, "message")
        if not isinstance(body.get("choices"), list) or not body["choices"]:
            raise StreamedError(dict(body))
        self.finished = self._closed = True

    def result(self) -> AssembledReply | None:
        """Return the whole reply, or None if it broke off."""
        if not self._closed:
            return None
        # `content` may be null beside a refusal, so the refusal alone decides.
        message = self._message()
        refused = bool(message.get("refusal")) and not message.get("content")
        reason = finish_reason_of(self._reason, calls=bool(self._calls), refused=refused)
        thoughts = any(message.get(name) for name in ("reasoning_content", "reasoning", "reasoning_details"))
        kept = thoughts or not says_nothing(message)
        return AssembledReply((message,) if kept else (), reason, self._usage, self._timings)

    def _chunk(self, chunk: Mapping[str, Json], inner: str) -> Iterator[Piece]:
        if chunk.get("error"):
            raise StreamedError(dict(chunk))
        self._count(chunk)
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, Mapping) or choice.get("index") not in (None, 0):
                continue  # `n` above 1: a session goes on with one answer
            # OpenRouter puts an error of the provider behind it into the choice, with status 200.
            if choice.get("error") or choice.get("finish_reason") == "error":
                raise StreamedError(choice.get("error") or dict(choice))
            self._count(choice)
            delta = choice.get(inner)
            if isinstance(delta, Mapping):
                yield from self._delta(delta)
            if choice.get("finish_reason"):
                self._reason, self._closed = str(choice["finish_reason"]), True

    def _count(self, chunk: Mapping[str, Json]) -> None:
        # Usage comes last, or in each chunk (zeros while it is unknown), or in the server's own field (Groq).
        own = chunk.get("x_groq")
        usage = chunk.get("usage") or (own.get("usage") if isinstance(own, Mapping) else None)
        self._usage = reported(usage) or self._usage
        self._timings = reported(chunk.get("timings")) or self._timings

    def _delta(self, delta: Mapping[str, Json]) -> Iterator[Piece]:
        emitted = False  # some servers send one thought under two names
        for name, value in delta.items():
            if value is None or value in ("", []) or name == "role":
                continue
            if name == "content" and isinstance(value, list):
                yield from self._listed(value)
            elif name == "tool_calls":
                for piece in value if isinstance(value, list) else ():
                    yield from self._call(piece)
            elif isinstance(value, str) and name in ("content", "refusal", "reasoning_content", "reasoning"):
                thought = name.startswith("reasoning")
                self._texts.setdefault(name, []).append(value)
                if name == "content" and self._blocks:
                    _extend(self._blocks, [{"type": "text", "text": value}])
                if not (thought and emitted):
                    yield ReasoningDelta(value) if thought else TextDelta(value)
                emitted = emitted or thought
            else:
                if name == "reasoning_details" and not (delta.get("reasoning") or delta.get("reasoning_content")):
                    yield from map(ReasoningDelta, _thoughts(value))
                _merge(self._fields, {name: value})

    def _listed(self, blocks: Sequence[Json]) -> Iterator[Piece]:
        """Take content in blocks (Mistral's reasoning models). Earlier plain text becomes the first block."""
        if not self._blocks and (before := "".join(self._texts.get("content", ()))):
            self._blocks.append({"type": "text", "text": before})
        _extend(self._blocks, blocks)
        for block in blocks:
            if isinstance(block, Mapping) and isinstance(block.get("text"), str):
                yield TextDelta(block["text"])
            elif isinstance(block, Mapping):
                yield from map(ReasoningDelta, _thoughts(block.get("thinking")))

    def _call(self, piece: Json) -> Iterator[Piece]:
        if not isinstance(piece, Mapping):
            return
        number = self._place(piece)
        call = self._calls[number]
        body_name = "custom" if isinstance(piece.get("custom"), Mapping) else "function"
        text_name = "input" if body_name == "custom" else "arguments"
        fields = piece.get(body_name)
        fields = fields if isinstance(fields, Mapping) else {}
        body = call.setdefault(body_name, {})
        before, name = body.get("name"), fields.get("name")
        if isinstance(name, str) and name and name != before:
            # Only the first pieces of a call may go on with its name; a later one repeats it.
            body["name"] = f"{before}{name}" if before and not self._arguments[number] else before or name
        if not before and body.get("name"):
            yield CallStarted(body["name"])
        text = fields.get(text_name)
        if text is not None and text != "":
            self._arguments[number].append(text if isinstance(text, str) else json_text(text))
        _merge(body, {key: value for key, value in fields.items() if key not in ("name", text_name)})
        _merge(call, {key: value for key, value in piece.items() if key not in ("index", body_name)})

    def _place(self, piece: Mapping[str, Json]) -> int:
        """Return the number of the call that a piece belongs to, and begin a new call if there is none."""
        # By index where there is one. Some servers give every call the index 0, so another id begins another call;
        # some give no index, and then the id decides, or a name, which only the first piece of a call has.
        index, call_id = piece.get("index"), piece.get("id")
        for number in reversed(range(len(self._calls))):
            call = self._calls[number]
            if index is not None and call["index"] == index and (not call_id or call.get("id") in (None, "", call_id)):
                return number
            if index is None and call_id and call.get("id") == call_id:
                return number
        body = piece.get("function") or piece.get("custom")
        named = isinstance(body, Mapping) and bool(body.get("name"))
        if index is None and not call_id and not named and self._calls:
            return len(self._calls) - 1
        self._calls.append({"index": index})
        self._arguments.append([])
        return len(self._calls) - 1

    def _message(self) -> dict[str, Json]:
        texts = {name: "".join(pieces) for name, pieces in self._texts.items()}
        text = texts.pop("content", "")
        # Null beside calls, as the API itself sends it; "" otherwise, because many servers refuse null.
        content = self._blocks or text or (None if self._calls else "")
        message: dict[str, Json] = {"role": "assistant", "content": content, **texts, **self._fields}
        if self._calls:
            message["tool_calls"] = [_whole_call(*each) for each in zip(self._calls, self._arguments, strict=True)]
        return message


def _whole_call(call: Mapping[str, Json], pieces: Sequence[str]) -> dict[str, Any]:
    kind = "custom" if "custom" in call and not call.get("function") else "function"
    text = "".join(pieces)
    body = {**call[kind], "input": text} if kind == "custom" else {**call[kind], "arguments": text or "{}"}
    fields = {key: value for key, value in call.items() if key not in ("index", "function", "custom")}
    return {**fields, "id": call.get("id") or new_call_id(), "type": call.get("type") or kind, kind: body}


def _thoughts(value: Json) -> Iterator[str]:
    for block in value if isinstance(value, list) else ():
        if isinstance(block, Mapping):
            text = block.get("text") or block.get("summary") or block.get("thinking")
            if isinstance(text, str):
                yield text
