"""Conversion of messages from one dialect into another, with a list of what is lost.

One message may become several: Chat requires a message for each tool result, Responses also an item for each call.
Parts that only their own provider can read (signed reasoning, server tools, uploaded files) are left out, or replaced
by a text where something is required.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from foldline.codecs.base import Codec, MediaBlocks
from foldline.codecs.blocks import source_of, with_session_fields
from foldline.codecs.dialect import dialect_named
from foldline.codecs.encoding import EMPTY, json_text
from foldline.messages import Document, Image, Message, Opaque, Part, Reasoning, Role, Text, ToolCall, ToolResult

__all__ = ["Converted", "convert", "convert_all"]


@dataclass(frozen=True, slots=True)
class Converted:
    """The messages of the other dialect (none if nothing is left), and what was lost."""

    messages: tuple[Message, ...]
    lost: tuple[str, ...] = ()


# --- parts ----------------------------------------------------------------------------------------------------------

# Fields of a text block without content of their own: losing them loses nothing, except for citations.
_CARRIES_NOTHING = frozenset({"type", "text", "annotations", "logprobs", "refusal"})


def _text(part: Text, lost: list[str]) -> Text:
    raw = part.raw if isinstance(part.raw, Mapping) else {}
    gone = [key for key, value in raw.items() if value and (key not in _CARRIES_NOTHING or key == "annotations")]
    if gone:
        lost.append(f"of a text: {', '.join(gone)}")
    return Text(part.text)


def _image(part: Image, blocks: MediaBlocks, lost: list[str]) -> Part:
    raw = blocks.image(source_of(part.raw), part.detail)
    if raw is not None:
        return replace(part, raw=raw)
    lost.append("an image that only its own provider can reach")
    return Text("[image that could not be carried over]")


def _document(part: Document, blocks: MediaBlocks, lost: list[str]) -> Part:
    if part.text:
        return Text(part.text)
    source = source_of(part.raw)
    raw = blocks.document(source)
    if raw is not None:
        return replace(part, raw=raw)
    lost.append("a file that the other dialect cannot carry")
    return Text(f"[file {source.name} that could not be carried over]" if source.name else "[file that was lost here]")


def _call(part: ToolCall, target: Codec, lost: list[str]) -> ToolCall:
    if part.custom and not dialect_named(target.dialect).free_text_calls:
        lost.append("that the input of a call is free text, not JSON")
        return replace(part, custom=False, arguments=json_text({"input": part.arguments}), raw=None)
    # Gemini refuses an unsigned call of the current turn and has a placeholder for calls of other models.
    sign = dialect_named(target.dialect).sign_call
    return sign(part) if sign is not None else replace(part, raw=None)


def _result(part: ToolResult, target: Codec, lost: list[str]) -> ToolResult:
    if part.is_error and not dialect_named(target.dialect).failed_results:
        lost.append("that a result is an error")
    return replace(part, parts=tuple(_parts(part.parts, target, lost)), raw=None)


def _parts(parts: Iterable[Part], target: Codec, lost: list[str]) -> list[Part]:
    blocks = dialect_named(target.dialect).media
    out: list[Part] = []
    for part in parts:
        match part:
            case Text():
                out.append(_text(part, lost))
            case Image():
                out.append(_image(part, blocks, lost))
            case Document():
                out.append(_document(part, blocks, lost))
            case ToolCall():
                out.append(_call(part, target, lost))
            case ToolResult():
                out.append(_result(part, target, lost))
            case Reasoning():  # as text it would become an answer that the model never gave
                lost.append("reasoning")
            case Opaque():
                lost.append(f"a block of type {part.type!r}")
    return out


# --- messages -------------------------------------------------------------------------------------------------------


def _same_in_all(message: Message) -> bool:
    """Whether this is a role with plain text, which all dialects but Gemini write in the same way."""
    wire = message.wire
    return (
        wire is not None
        and set(wire) == {"role", "content"}
        and wire["role"] in {"system", "user", "assistant"}
        and isinstance(wire["content"], str)
        and bool(wire["content"].strip())
    )


def _groups(parts: Sequence[Part], role: Role, target: Codec) -> list[tuple[Role, tuple[Part, ...]]]:
    """Group the parts by the message they go into, in the order of the dialect."""
    # Results first: every dialect requires them directly behind their calls.
    results = tuple(part for part in parts if isinstance(part, ToolResult))
    rest = tuple(part for part in parts if not isinstance(part, ToolResult))
    if dialect_named(target.dialect).results_inside:
        return [("user" if role == "tool" else role, results + rest)] if parts else []
    rest_role: Role = "user" if role == "tool" else role
    out: list[tuple[Role, tuple[Part, ...]]] = [("tool", (result,)) for result in results]
    calls = tuple(part for part in rest if isinstance(part, ToolCall))
    if target.itemised and calls:
        texts = tuple(part for part in rest if not isinstance(part, ToolCall))
        out += [(rest_role, texts)] if texts else []
        return out + [(rest_role, (call,)) for call in calls]
    return [*out, (rest_role, rest)] if rest else out


def convert(message: Message, target: Codec) -> Converted:
    """Convert a message, with the fields that only the session knows (kind, pinned, visibility). O(size).

    System text keeps its role: the session moves it out where it may not stand among the messages.
    """
    if _same_in_all(message) and not dialect_named(target.dialect).parts_only:
        return Converted((message,))
    lost: list[str] = []
    parts = _parts(message.parts, target, lost)
    out: list[Message] = []
    for role, group in _groups(parts, message.role, target):
        fresh = target.read(target.write(replace(message, role=role, parts=group, wire=None)))
        # Sanitizing would turn system text into the user's, which the session could no longer tell apart.
        sent = fresh if role == "system" and not target.system_inside else target.sanitize(fresh).message
        if sent is not None:
            out.append(with_session_fields(message, sent))
    # A turn of the user that vanished would leave two turns of the model next to each other.
    if not out and message.role == "user" and message.parts:
        out.append(replace(target.note(EMPTY, kind=message.kind), pinned=message.pinned))
    return Converted(tuple(out), tuple(dict.fromkeys(lost)))


def _join(earlier: Message, later: Message, target: Codec) -> Message | None:
    """Join two neighbours that the dialect requires as one turn; None if they may stay apart."""
    if earlier.role == later.role == "assistant" and (earlier.calls or later.calls) and not target.itemised:
        return target.revise(earlier, (*earlier.parts, *later.parts))
    return target.merge((earlier, later)) if earlier.results and later.results else None


def convert_all(messages: Iterable[Message], target: Codec) -> Converted:
    """Convert a whole conversation, with the calls of a turn in one message where the dialect requires that."""
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
