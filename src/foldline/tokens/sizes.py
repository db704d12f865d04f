"""Tokens of messages, tool schemas and system text, as the sum of their parts, and their bytes on the wire."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from foldline.messages import Document, Image, Json, Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult, Wire
from foldline.tokens.estimate import ESTIMATE, Counter
from foldline.tokens.media import image_tokens

__all__ = ["content_bytes", "json_tokens", "lone_text", "message_tokens", "system_tokens", "tools_tokens", "wire_bytes"]

# A message is wrapped in three special tokens and its role (OpenAI cookbook, "How to count tokens with tiktoken": 3 per
# message, and the role; the harmony format of gpt-oss is the same). A call adds channel, recipient and format
# (harmony: `<|channel|>commentary to=functions.NAME <|constrain|>json`), a result its author and recipient.
_MESSAGE_OVERHEAD: Final = 4
_CALL_OVERHEAD: Final = 8
_RESULT_OVERHEAD: Final = 4


def message_tokens(message: Message, counter: Counter = ESTIMATE) -> int:
    """Count the tokens of one message: an overhead plus its parts, without call ids. O(size); never raises.

    Whether the message is sent at all (`agent_visible`) is up to the caller. A counter with a rule for whole messages
    (`MessageCounter`) replaces this rule.
    """
    # Thinking of earlier turns counts too, although Anthropic strips it (docs, "Extended thinking"): errs high.
    whole: Callable[[Message], int] | None = getattr(counter, "message", None)  # isinstance would cost more than this
    if whole is not None:
        return whole(message)
    total = _MESSAGE_OVERHEAD
    pending: list[Part] = list(message.parts)
    while pending:
        part = pending.pop()
        if isinstance(part, ToolResult):
            total += _RESULT_OVERHEAD
            pending.extend(part.parts)
        else:
            total += _part_tokens(part, counter)
    return total


def lone_text(message: Message, tokens: int, counter: Counter = ESTIMATE) -> tuple[str, int] | None:
    """Return the text of a message that is one result of one text, with its tokens, or None. O(1)."""
    # Long results make up most of a session. The count of the text follows from that of the message, without a second
    # pass over it.
    if len(message.parts) != 1 or getattr(counter, "message", None) is not None:
        return None
    result = message.parts[0]
    if not isinstance(result, ToolResult) or len(result.parts) != 1 or not isinstance(result.parts[0], Text):
        return None
    return result.parts[0].text, tokens - _MESSAGE_OVERHEAD - _RESULT_OVERHEAD


def _part_tokens(part: Part, counter: Counter) -> int:
    match part:
        case Text(text=text):
            return _text_tokens(text, counter)
        case ToolCall(name=name, arguments=arguments):
            return _CALL_OVERHEAD + _text_tokens(name, counter) + _text_tokens(arguments, counter)
        case Reasoning():
            return max(_text_tokens(part.text, counter), _sealed_tokens(_payload_length(part.raw)))
        case Image():
            return image_tokens(part)
        case Document():
            return _document_tokens(part, counter)
        case Opaque(raw=raw):
            return json_tokens(raw, counter)
        case _:
            return json_tokens(part, counter)


def _text_tokens(text: Json, counter: Counter) -> int:
    return counter.text(text) if isinstance(text, str) else json_tokens(text, counter)


# --- Payloads ---------------------------------------------------------------------------------------------------------

_SEALED_KEYS: Final = ("signature", "data", "encrypted_content", "thought_signature", "thoughtSignature")


def _payload_length(raw: Json) -> int:
    blocks = raw if isinstance(raw, list) else [raw]  # OpenRouter sends a list of reasoning details
    return sum(
        len(block[key])
        for block in blocks
        if isinstance(block, Mapping)
        for key in _SEALED_KEYS
        if isinstance(block.get(key), str)
    )


def _sealed_tokens(length: int) -> int:
    """Return the tokens of the text inside `length` characters of encrypted base64."""
    # openai/codex estimates 3/4 of the length less 650 bytes of envelope, and 4 bytes per token. A thinking signature
    # of Anthropic contains all of the thinking, of which the visible text may be a summary.
    return max(0, length * 3 // 4 - 650) // 4


# Documents without text, by pages or size. PDF: 1,500 to 3,000 tokens a page (Anthropic, "PDF support"; each page is
# sent as text and as an image, at OpenAI too: "PDF files"), at 20 bytes per token (a page of text is about 60 kB). With
# unreadable pages: by its bytes, up to 100 of the smallest pages (Anthropic's limit). Other files: at most 25,800
# (Gemini CLI's figure for any file). Audio: Gemini's 32 tokens a second, at 16 kB a second (128 kbit/s). Nothing known
# (a file id): 2,048, LlamaIndex's figure for a document.
_DOCUMENT_CAP: Final = 25_800
_UNKNOWN_DOCUMENT: Final = 2_048
_AUDIO_BYTES_PER_TOKEN: Final = 500
_FILE_BYTES_PER_TOKEN: Final = 20
_PAGE_TOKENS: Final = (1_500, 3_000)
_PDF_CAP: Final = 150_000


def _document_tokens(document: Document, counter: Counter) -> int:
    raw = document.raw if isinstance(document.raw, Mapping) else {}
    captions = sum(counter.text(text) for key in ("title", "context") if isinstance(text := raw.get(key), str))
    if document.text:
        return captions + _text_tokens(document.text, counter)
    if document.size_bytes <= 0:
        return captions + _UNKNOWN_DOCUMENT
    decoded = document.size_bytes * 3 // 4
    if document.media_type.startswith(("text/", "application/json")):
        return captions + decoded // 4
    if document.pages > 0:
        least, most = _PAGE_TOKENS
        return captions + max(least * document.pages, min(most * document.pages, decoded // _FILE_BYTES_PER_TOKEN))
    if document.media_type == "application/pdf":
        return captions + max(_PAGE_TOKENS[0], min(_PDF_CAP, decoded // _FILE_BYTES_PER_TOKEN))
    rate = _AUDIO_BYTES_PER_TOKEN if document.media_type.startswith("audio/") else _FILE_BYTES_PER_TOKEN
    return captions + min(_DOCUMENT_CAP, decoded // rate)


# --- JSON -------------------------------------------------------------------------------------------------------------

_BASE64: Final = "A-Za-z0-9+/=_-"
_SEALED: Final = re.compile(rf'"(?:encrypted_content|signature|thought_signature|thoughtSignature)":"([{_BASE64}]*)"')
# The look-behind and the possessive repeat keep the search linear: each run is tried once, from its start.
_BLOB: Final = re.compile(rf"(?<![{_BASE64}])[{_BASE64}]{{1000,}}+")
_BLOB_CAP: Final = 1_600  # a blob is at most what the largest image takes


def json_tokens(value: Json, counter: Counter = ESTIMATE) -> int:
    """Count the tokens of a JSON value by its compact text. Payloads (base64 of 1,000 characters or more) count little.

    A cache marker on a block or a tool counts nothing: the model does not see it, and it may be moved. Values that are
    not JSON are counted by their `str`. O(size); never raises.
    """
    if value is None:
        return 0
    if isinstance(value, Mapping) and "cache_control" in value:
        value = {name: inner for name, inner in value.items() if name != "cache_control"}
    text = _compact(value)
    sealed = sum(_sealed_tokens(len(found)) for found in _SEALED.findall(text))
    text = _SEALED.sub('""', text)
    blobs = sum(min(_BLOB_CAP, len(found) // 4) for found in _BLOB.findall(text))
    return counter.text(_BLOB.sub("", text) if blobs else text) + blobs + sealed


def tools_tokens(tools: Sequence[Mapping[str, Json]] | None, counter: Counter = ESTIMATE) -> int:
    """Count the tokens of tool schemas as JSON, an upper bound: providers render them shorter. O(size)."""
    return sum(json_tokens(tool, counter) for tool in tools or ())


def system_tokens(system: str | Sequence[Mapping[str, Json]] | None, counter: Counter = ESTIMATE) -> int:
    """Count the tokens of system text outside the messages: a string or a list of blocks. O(size); never raises."""
    if not system:
        return 0
    blocks: Iterable[Json] = [system] if isinstance(system, str | Mapping) else system
    return _MESSAGE_OVERHEAD + sum(_text_tokens(_block_text(block), counter) for block in blocks)


def _block_text(block: Json) -> Json:
    text = block.get("text") if isinstance(block, Mapping) else None
    return text if isinstance(text, str) else block


def wire_bytes(wire: Wire) -> int:
    """Count the bytes of a message as compact UTF-8 JSON, for limits on request size. O(size); never raises."""
    text = _compact(wire)
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def content_bytes(message: Message) -> int:
    """Count the UTF-8 bytes of a message's texts, thinking, results, payloads, and call names and arguments (S0.03).

    Without the JSON around them. O(size); never raises.
    """
    total = 0
    pending: list[Part] = list(message.parts)
    while pending:
        match pending.pop():
            case ToolResult(parts=parts):
                pending.extend(parts)
            case Text(text=text) | Reasoning(text=text):
                total += _utf8(text)
            case ToolCall(name=name, arguments=arguments):
                total += _utf8(name) + _utf8(arguments)
            case Document(text=text, size_bytes=size):
                total += _utf8(text) or size
            case Image(size_bytes=size):
                total += size
            case other:
                total += _utf8(other.raw)
    return total


def _utf8(value: Json) -> int:
    """Count the bytes of a text in UTF-8, or of another value as JSON."""
    text = value if isinstance(value, str) else "" if value is None else _compact(value)
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _compact(value: Json) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str, skipkeys=True)
    except (RecursionError, ValueError):  # nested beyond the interpreter's depth, or a value that contains itself
        return _flat(value)


def _flat(value: Json) -> str:
    """Return the keys and scalars of a value that cannot be serialised, each container once."""
    pieces: list[str] = []
    seen: set[int] = set()
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, Mapping | list | tuple):
            if id(one) not in seen:
                seen.add(id(one))
                pending.extend([*one, *one.values()] if isinstance(one, Mapping) else one)
        else:
            pieces.append(f'"{one}"')
    return ",".join(pieces)
