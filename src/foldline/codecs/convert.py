"""From one dialect into another, as well as it can be done, with what is lost named.

One message may become several: Chat wants each tool result alone, Responses each call too. What only its own provider
can read (signed reasoning, server tools, uploaded files) is left out, or named in a text where something must stand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from foldline.codecs.base import Codec
from foldline.codecs.blocks import Source, carry, source_of
from foldline.codecs.encoding import EMPTY, json_text
from foldline.messages import Document, Image, Message, Opaque, Part, Reasoning, Role, Text, ToolCall, ToolResult

__all__ = ["Converted", "convert", "convert_all"]


@dataclass(frozen=True, slots=True)
class Converted:
    """What became of a message: the messages of the other dialect (none when nothing is left), and what was lost."""

    messages: tuple[Message, ...]
    lost: tuple[str, ...] = ()


# --- images and files -----------------------------------------------------------------------------------------------

_Block = dict[str, Any]


def _data_url(source: Source) -> str:
    return f"data:{source.media_type or 'application/octet-stream'};base64,{source.data}" if source.data else source.url


def _chat_image(source: Source, detail: str) -> _Block | None:
    url = _data_url(source)
    return {"type": "image_url", "image_url": {"url": url, **({"detail": detail} if detail else {})}} if url else None


def _responses_image(source: Source, detail: str) -> _Block | None:
    url = _data_url(source)
    return {"type": "input_image", "image_url": url, "detail": detail or "auto"} if url else None


def _anthropic_source(source: Source) -> _Block | None:
    if source.data:
        return {"type": "base64", "media_type": source.media_type, "data": source.data}
    return {"type": "url", "url": source.url} if source.url else None


def _anthropic_image(source: Source, _detail: str) -> _Block | None:
    inner = _anthropic_source(source)
    return {"type": "image", "source": inner} if inner else None


def _chat_document(source: Source) -> _Block | None:
    if source.media_type.startswith("audio/"):
        return {"type": "input_audio", "input_audio": {"data": source.data, "format": source.media_type[6:]}}
    if not source.data:
        return None
    return {"type": "file", "file": {"filename": source.name or "file", "file_data": _data_url(source)}}


def _responses_document(source: Source) -> _Block | None:
    if source.data and not source.media_type.startswith("audio/"):
        return {"type": "input_file", "filename": source.name or "file", "file_data": _data_url(source)}
    return {"type": "input_file", "file_url": source.url} if source.url else None


def _anthropic_document(source: Source) -> _Block | None:
    # The Messages API takes base64 of PDF files only; text goes as text.
    inner = _anthropic_source(source) if source.url or source.media_type == "application/pdf" else None
    return {"type": "document", "source": inner, **({"title": source.name} if source.name else {})} if inner else None


@dataclass(frozen=True, slots=True)
class _Shapes:
    """How a dialect writes images and files."""

    image: Callable[[Source, str], _Block | None]
    document: Callable[[Source], _Block | None]


_SHAPES: Final = {
    "openai-chat": _Shapes(_chat_image, _chat_document),
    "openai-responses": _Shapes(_responses_image, _responses_document),
    "anthropic": _Shapes(_anthropic_image, _anthropic_document),
}


# --- parts ----------------------------------------------------------------------------------------------------------

_CARRIES_NOTHING = frozenset({"type", "text", "annotations", "logprobs", "refusal"})


def _text(part: Text, lost: list[str]) -> Text:
    raw = part.raw if isinstance(part.raw, Mapping) else {}
    gone = [key for key, value in raw.items() if value and (key not in _CARRIES_NOTHING or key == "annotations")]
    if gone:
        lost.append(f"of a text: {', '.join(gone)}")
    return Text(part.text)


def _image(part: Image, shapes: _Shapes, lost: list[str]) -> Part:
    raw = shapes.image(source_of(part.raw), part.detail)
    if raw is not None:
        return replace(part, raw=raw)
    lost.append("an image that only its own provider can reach")
    return Text("[image that could not be carried over]")


def _document(part: Document, shapes: _Shapes, lost: list[str]) -> Part:
    if part.text:
        return Text(part.text)
    source = source_of(part.raw)
    raw = shapes.document(source)
    if raw is not None:
        return replace(part, raw=raw)
    lost.append("a file that the other dialect cannot carry")
    return Text(f"[file {source.name} that could not be carried over]" if source.name else "[file that was lost here]")


def _call(part: ToolCall, target: Codec, lost: list[str]) -> ToolCall:
    if part.custom and target.dialect == "anthropic":
        lost.append("that the input of a call is free text, not JSON")
        return replace(part, custom=False, arguments=json_text({"input": part.arguments}), raw=None)
    return replace(part, raw=None)


def _result(part: ToolResult, target: Codec, lost: list[str]) -> ToolResult:
    if part.is_error and target.dialect != "anthropic":
        lost.append("that a result is an error")
    return replace(part, parts=tuple(_parts(part.parts, target, lost)), raw=None)


def _parts(parts: Iterable[Part], target: Codec, lost: list[str]) -> list[Part]:
    shapes = _SHAPES[target.dialect]
    out: list[Part] = []
    for part in parts:
        match part:
            case Text():
                out.append(_text(part, lost))
            case Image():
                out.append(_image(part, shapes, lost))
            case Document():
                out.append(_document(part, shapes, lost))
            case ToolCall():
                out.append(_call(part, target, lost))
            case ToolResult():
                out.append(_result(part, target, lost))
            case Reasoning():
                lost.append("reasoning")
            case Opaque():
                lost.append(f"a block of type {part.type!r}")
    return out


# --- messages -------------------------------------------------------------------------------------------------------


def _same_in_all(message: Message) -> bool:
    """Whether this is a role with plain text, which all dialects write alike."""
    wire = message.wire
    return (
        wire is not None
        and set(wire) == {"role", "content"}
        and wire["role"] in {"system", "user", "assistant"}
        and isinstance(wire["content"], str)
        and bool(wire["content"].strip())
    )


def _groups(parts: Sequence[Part], role: Role, dialect: str) -> list[tuple[Role, tuple[Part, ...]]]:
    """The parts by the message they go into, in the order the dialect wants."""
    results = tuple(part for part in parts if isinstance(part, ToolResult))
    rest = tuple(part for part in parts if not isinstance(part, ToolResult))
    if dialect == "anthropic":
        return [("user" if role == "tool" else role, results + rest)] if parts else []
    rest_role: Role = "user" if role == "tool" else role
    out: list[tuple[Role, tuple[Part, ...]]] = [("tool", (result,)) for result in results]
    calls = tuple(part for part in rest if isinstance(part, ToolCall))
    if dialect == "openai-responses" and calls:
        said = tuple(part for part in rest if not isinstance(part, ToolCall))
        out += [(rest_role, said)] if said else []
        return out + [(rest_role, (call,)) for call in calls]
    return [*out, (rest_role, rest)] if rest else out


def convert(message: Message, target: Codec) -> Converted:
    """The message in another dialect; what the session knows of it (kind, pinned, who sees it) goes along. O(size).

    System text keeps its role: where it may not stand among messages, the session moves it out.
    """
    if _same_in_all(message):
        return Converted((message,))
    lost: list[str] = []
    parts = _parts(message.parts, target, lost)
    out: list[Message] = []
    for role, group in _groups(parts, message.role, target.dialect):
        fresh = target.read(target.write(replace(message, role=role, parts=group, wire=None)))
        sent = fresh if role == "system" and not target.system_inside else target.sanitize(fresh).message
        if sent is not None:
            out.append(carry(message, sent))
    if not out and message.role == "user" and message.parts:
        out.append(replace(target.note(EMPTY, kind=message.kind), pinned=message.pinned))
    return Converted(tuple(out), tuple(dict.fromkeys(lost)))


def _join(earlier: Message, later: Message, target: Codec) -> Message | None:
    """One message out of two neighbours that the dialect wants as one turn; None where they may stay apart."""
    if earlier.role == later.role == "assistant" and (earlier.calls or later.calls) and not target.itemised:
        return target.revise(earlier, (*earlier.parts, *later.parts))
    return target.merge((earlier, later)) if earlier.results and later.results else None


def convert_all(messages: Iterable[Message], target: Codec) -> Converted:
    """A whole history in another dialect, with the calls of a turn in one message where it wants that."""
    out: list[Message] = []
    lost: list[str] = []
    for message in messages:
        converted = convert(message, target)
        lost += converted.lost
        for each in converted.messages:
            joined = _join(out[-1], each, target) if out else None
            if joined is None:
                out.append(each)
            else:
                out[-1] = joined
    return Converted(tuple(out), tuple(dict.fromkeys(lost)))
