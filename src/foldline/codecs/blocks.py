"""Content blocks of all dialects, and the sources of images and files.

The block types of the dialects do not collide, so one reader serves all of them. An unknown block becomes `Opaque` and
is passed on unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import is_
from typing import Any

from foldline.codecs.encoding import json_text
from foldline.errors import InvalidInput
from foldline.messages import Document, Image, Json, Message, Opaque, Part, Reasoning, Text, Wire
from foldline.tokens import image_size_of_base64, pdf_pages_of_base64

__all__ = [
    "TEXT_TYPES",
    "Source",
    "block_fault",
    "data_url",
    "field_in",
    "mend_content",
    "read_block",
    "read_content",
    "role_of",
    "same_items",
    "settle_block",
    "settle_content",
    "source_of",
    "with_session_fields",
]

TEXT_TYPES = frozenset({"text", "input_text", "output_text"})


# --- reading --------------------------------------------------------------------------------------------------------


def role_of(wire: Wire) -> str:
    """Return the role of a message. Raises InvalidInput for anything but an object with a role."""
    # Any mapping is accepted: SDKs hand over objects of their own that behave like one.
    if type(wire) is not dict and not isinstance(wire, Mapping):  # asking an abstract class takes longer
        raise InvalidInput(f"a message must be a JSON object, not {type(wire).__name__}")
    role = wire.get("role")
    if not isinstance(role, str) or not role:
        raise InvalidInput("a message must have a role, as text", place="role")
    return role


@dataclass(frozen=True, slots=True)
class Source:
    """The source of an image or file: base64 `data` in the request, a `url`, or a `file_id` of its provider."""

    media_type: str = ""
    data: str = ""
    url: str = ""
    file_id: str = ""
    name: str = ""
    text: str = ""


def data_url(source: Source) -> str:
    """Return the data of a source as a data URL, or else its URL."""
    return f"data:{source.media_type or 'application/octet-stream'};base64,{source.data}" if source.data else source.url


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _mapping(value: Json) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _from_url(url: Json, name: str = "", file_id: Json = None) -> Source:
    """Split a data URL; other URLs stay whole."""
    url = _text(url)
    if not url.startswith("data:"):
        return Source(url=url, name=name, file_id=_text(file_id))
    header, _, payload = url.partition(",")
    return Source(header[5:].partition(";")[0], payload, name=name)


def _from_anthropic(source: Mapping[str, Any], name: str) -> Source:
    kind = source.get("type")
    media_type = _text(source.get("media_type"))
    if kind == "base64":
        return Source(media_type, _text(source.get("data")), name=name)
    if kind == "text":
        return Source(media_type or "text/plain", text=_text(source.get("data")), name=name)
    if kind == "content":
        parts = read_content(source.get("content"))
        return Source("text/plain", text="\n".join(part.text for part in parts if isinstance(part, Text)), name=name)
    return Source(media_type, url=_text(source.get("url")), file_id=_text(source.get("file_id")), name=name)


# Compiled once: this runs for each field of each part.
_CAPITAL = re.compile(r"(?=[A-Z])")


def field_in(block: Mapping[str, Any], name: str) -> Json:
    """Return a field of a Gemini block in either spelling of protocol buffers: `inlineData`, `inline_data`."""
    return block[name] if name in block else block.get(_CAPITAL.sub("_", name).lower())


def _from_gemini(block: Mapping[str, Any]) -> Source | None:
    """Return the source of a part of Gemini, or None."""
    inner = field_in(block, "inlineData")
    if isinstance(inner, Mapping):
        name = _text(field_in(inner, "displayName"))
        return Source(_text(field_in(inner, "mimeType")), _text(inner.get("data")), name=name)
    inner = field_in(block, "fileData")
    if not isinstance(inner, Mapping):
        return None
    media_type, uri = _text(field_in(inner, "mimeType")), _text(field_in(inner, "fileUri"))
    # A file of Gemini's own store has an address that nobody else can read: it is an id, not a URL.
    if uri.startswith(("http://", "https://")) and "generativelanguage.googleapis.com" not in uri:
        return Source(media_type, url=uri)
    return Source(media_type, file_id=uri)


def source_of(block: Json) -> Source:
    """Return the source of an image, document, file or audio block of any dialect."""
    block = _mapping(block)
    kind = _text(block.get("type"))
    if not kind and (found := _from_gemini(block)) is not None:
        return found
    if kind == "image_url":
        inner = block.get("image_url")
        return _from_url(inner.get("url") if isinstance(inner, Mapping) else inner)
    if kind in {"input_image", "computer_screenshot"}:
        return _from_url(block.get("image_url"), file_id=block.get("file_id"))
    if kind in {"image", "document"}:
        return _from_anthropic(_mapping(block.get("source")), _text(block.get("title")))
    if kind == "input_audio":
        inner = _mapping(block.get("input_audio"))
        return Source(f"audio/{_text(inner.get('format')) or 'wav'}", _text(inner.get("data")))
    inner = _mapping(block.get("file")) if kind == "file" else block
    name = _text(inner.get("filename"))
    # The reference of OpenAI shows a data URL, and some clients send the bare base64.
    data = _text(inner.get("file_data"))
    if data and not data.startswith("data:"):
        return Source(data=data, name=name)
    return _from_url(data or inner.get("file_url"), name, inner.get("file_id"))


_PDF_BEGINS = "JVBERi"  # "%PDF-" in base64: some clients send a file without its type


def _read_image(block: Mapping[str, Any]) -> Image:
    source = source_of(block)
    width, height = image_size_of_base64(source.data) if source.data else (0, 0)
    detail = block.get("detail") or _mapping(block.get("image_url")).get("detail")
    return Image(width, height, len(source.data), _text(detail), raw=block)


def _read_document(block: Mapping[str, Any]) -> Document:
    source = source_of(block)
    pdf = "pdf" in source.media_type or source.data.startswith(_PDF_BEGINS)
    # Counted once, when the message is read: limits on pages are then sums of numbers.
    pages = pdf_pages_of_base64(source.data) if pdf and source.data else 0
    return Document(source.media_type, len(source.data), source.text, raw=block, pages=pages)


def _read_text(block: Mapping[str, Any]) -> Text:
    return Text(_text(block.get("text")), raw=block)


def _read_thinking(block: Mapping[str, Any]) -> Reasoning:
    thought = block.get("thinking")
    if isinstance(thought, list):  # Mistral sends its thinking as a list of text blocks
        thought = "\n".join(part.text for part in read_content(thought) if isinstance(part, Text))
    return Reasoning(_text(thought), bool(block.get("signature")), raw=block)


# One table for all dialects, since their types do not collide: a gateway may pass on blocks of another one.
_READERS: dict[str, Callable[[Mapping[str, Any]], Part]] = {
    **dict.fromkeys(TEXT_TYPES, _read_text),
    **dict.fromkeys(("summary_text", "reasoning_text"), _read_text),
    "refusal": lambda block: Text(_text(block.get("refusal")), raw=block),
    **dict.fromkeys(("image_url", "input_image", "image", "computer_screenshot"), _read_image),
    **dict.fromkeys(("file", "input_file", "document", "input_audio"), _read_document),
    "thinking": _read_thinking,
    "redacted_thinking": lambda block: Reasoning("", True, raw=block),
}


def read_block(block: Json) -> Part:
    """Read one content block of any dialect; calls and results are read by the codec."""
    if isinstance(block, str):
        return Text(block, raw=block)
    kind = _text(_mapping(block).get("type"))
    reader = _READERS.get(kind)
    if reader is None and not kind and isinstance(block, Mapping) and (source := _from_gemini(block)) is not None:
        reader = _read_image if source.media_type.startswith("image/") else _read_document
    return reader(block) if reader else Opaque(kind or "unknown", raw=block)


def read_content(content: Json, block: Callable[[Json], Part] = read_block) -> tuple[Part, ...]:
    """Read a `content` or `output` field: text, a list of blocks, or nothing. Bare text gets no `raw`."""
    if isinstance(content, str):
        return (Text(content),) if content else ()
    if content is None:
        return ()
    if isinstance(content, list | tuple):
        return tuple(map(block, content))
    # A single block without its list, or any other JSON, which is kept as text and mended before it is sent.
    return (block(content),) if isinstance(content, Mapping) else (Text(json_text(content)),)


def with_session_fields(message: Message, fresh: Message) -> Message:
    """Return `fresh` with the fields of `message` that only the session knows: kind, pinned, visibility."""
    return replace(
        fresh,
        pinned=message.pinned,
        agent_visible=message.agent_visible,
        user_visible=message.user_visible,
        kind=message.kind,
    )


# --- writing --------------------------------------------------------------------------------------------------------


def same_items(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether both have the same objects in the same order."""
    # By identity: that is what lets unchanged messages keep their bytes, and comparing values would cost O(size).
    return len(one) == len(other) and all(map(is_, one, other))


def settle_block(part: Part, text_type: str) -> Part:
    """Return the part with `raw` as it is sent; the same object if it agrees with its `raw`, whose other fields stay.

    Raises InvalidInput for a part without JSON in this dialect.
    """
    raw = part.raw
    if isinstance(part, Text):
        return _settle_text(part, text_type)
    if isinstance(part, Document) and part.text:
        if raw is None:
            # Only Anthropic has text documents. Elsewhere their text is sent as text.
            return Text(part.text, raw=_text_block(part.text, text_type))
        if source_of(raw).text != part.text:
            return replace(part, raw={**raw, "source": {"type": "text", "media_type": "text/plain", "data": part.text}})
    if isinstance(part, Reasoning) and raw is not None and part != read_block(raw):
        if part.signed:  # the signature covers the text: edited, it would be refused
            raise InvalidInput("signed reasoning is sent as it came or not at all")
        return replace(part, raw={**raw, "thinking": part.text})
    if raw is None:
        raise InvalidInput(f"{type(part).__name__} without its JSON cannot be written here")
    return part


def _text_block(text: str, text_type: str) -> dict[str, Any]:
    # The reference of the Responses API lists `annotations` of output_text as required.
    return {"type": text_type, "text": text, **({"annotations": []} if text_type == "output_text" else {})}


def _settle_text(part: Text, text_type: str) -> Text:
    raw = part.raw
    if not isinstance(raw, Mapping):
        return part if raw is not None and raw == part.text else replace(part, raw=_text_block(part.text, text_type))
    field = "text" if "text" in raw or "refusal" not in raw else "refusal"
    return part if raw.get(field) == part.text else replace(part, raw={**raw, field: part.text})


def settle_content(base: Json, parts: Sequence[Part], settle: Callable[[Part], Part]) -> tuple[Json, tuple[Part, ...]]:
    """Return a `content` made of parts, and the parts with `raw` as sent."""
    # Bare text stays bare text if all parts are: as blocks it would change the bytes of a cached prefix.
    plain = not isinstance(base, list | tuple | Mapping)
    if plain and all(isinstance(part, Text) and part.raw is None for part in parts):
        return "\n".join(part.text for part in parts if isinstance(part, Text)), tuple(parts)
    settled = tuple(map(settle, parts))
    return [part.raw for part in settled], settled


# --- mending --------------------------------------------------------------------------------------------------------


def block_fault(block: Json) -> str | None:
    """Return what is wrong with a content block in every dialect, or None."""
    if not isinstance(block, Mapping):
        return "a content block is not an object"
    kind = block.get("type")
    if not isinstance(kind, str) or not kind:
        return "a content block has no type"
    if kind in TEXT_TYPES and not isinstance(block.get("text"), str):
        return "a text block has no text"
    return None


def _mend_block(block: Json, text_type: str) -> Json:
    if isinstance(block, str):
        return {"type": text_type, "text": block}
    if not isinstance(block, Mapping):
        return {"type": text_type, "text": "" if block is None else json_text(block)}
    text = block.get("text")
    if isinstance(text, str):
        return {**block, "type": text_type}
    if _text(block.get("type")) in TEXT_TYPES:
        return {**block, "text": "" if text is None else json_text(text)}
    # Kept as text, so that the model can read what a broken block was meant to say.
    return {"type": text_type, "text": json_text(block)}


def mend_content(content: Json, text_type: str, faults: list[str]) -> Json:
    """Return a `content` with blocks that every provider accepts; the same object if nothing needs mending."""
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list | tuple):
        found = [fault for fault in map(block_fault, content) if fault]
        if not found:
            return content
        faults.extend(f"{fault}; it was made one" for fault in dict.fromkeys(found))
        return [_mend_block(block, text_type) if block_fault(block) else block for block in content]
    faults.append("content is neither text nor a list of blocks; it was made one")
    if isinstance(content, Mapping):
        return [_mend_block(content, text_type) if block_fault(content) else content]
    return json_text(content)
