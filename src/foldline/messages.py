"""What a message is made of, in any dialect.

A `Message` is a pure value: no identity, no place in a session. Each part keeps in `raw` the JSON block it was read
from, and the message keeps in `wire` the whole JSON object, so that what nobody changed is sent as it came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Literal, TypeAlias

from foldline.codecs.provided import Saying, aside, saying

__all__ = [
    "Document",
    "Image",
    "Json",
    "Message",
    "Opaque",
    "Part",
    "Reasoning",
    "Role",
    "Text",
    "ToolCall",
    "ToolResult",
    "Wire",
    "same_until",
    "snapshot",
]

Json: TypeAlias = Any
Wire: TypeAlias = Mapping[str, Any]
Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


def snapshot(value: Json) -> Json:
    """A copy of a JSON value that nobody else can change. Strings are shared. O(blocks)."""
    if isinstance(value, Mapping):
        return {key: snapshot(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [snapshot(inner) for inner in value]
    return value


def same_until(old: Sequence[Wire], new: Sequence[Wire]) -> int:
    """How many leading messages of two lists are equal. O(their size)."""
    if old == list(new[: len(old)]):
        return len(old)
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(old), len(new)))


@dataclass(frozen=True, slots=True)
class Text:
    """Text that the model reads or wrote (a refusal too: its words are in `text`)."""

    text: str
    raw: Json = None


@dataclass(frozen=True, slots=True)
class Image:
    """An image; `size_bytes` is its encoded payload in the request (0 for a URL), width and height 0 when unknown."""

    width: int = 0
    height: int = 0
    size_bytes: int = 0
    detail: str = ""
    raw: Json = None


@dataclass(frozen=True, slots=True)
class Document:
    """A file, PDF or audio clip; `text` holds its content where the dialect sends it as text.

    `pages` are those of a PDF, 0 when unknown.
    """

    media_type: str = ""
    size_bytes: int = 0
    text: str = ""
    raw: Json = None
    pages: int = field(default=0, kw_only=True)


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Thinking of the model; `signed` when the provider verifies it, so that it is sent whole or not at all."""

    text: str = ""
    signed: bool = False
    raw: Json = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that waits for a result; `arguments` is JSON text, or free text when `custom`.

    `caller` is the id of the provider-run call that made it (code that the provider runs), "" where the model did.
    """

    id: str
    name: str
    arguments: str
    custom: bool = False
    raw: Json = None
    caller: str = field(default="", kw_only=True)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of the call `call_id`."""

    call_id: str
    parts: tuple[Part, ...] = ()
    is_error: bool = False
    raw: Json = None

    @property
    def text(self) -> str:
        """All text of the result, blocks joined by newlines. O(size)."""
        texts = (part.text for part in self.parts if isinstance(part, Text | Document | Opaque))
        return "\n".join(text for text in texts if text)


@dataclass(frozen=True, slots=True)
class Opaque:
    """A block this package does not interpret (server tools, what is yet to come): passed on, counted by size.

    `opens` is the id of the pair that it opens (a call that the provider runs, an approval that it asks for), `answers`
    the id of the pair that it closes; both halves are sent or none. `caller` is the id of the pair it came out of.
    """

    type: str
    raw: Json = None
    opens: str = field(default="", kw_only=True)
    answers: str = field(default="", kw_only=True)
    caller: str = field(default="", kw_only=True)

    @property
    def saying(self) -> Saying:
        """What it says: a call that the provider ran, and what came of it. O(size of the block)."""
        return saying(self.type, self.raw)

    @property
    def text(self) -> str:
        """All its words, without ids and what is encrypted or encoded; "" for none. O(size of the block)."""
        return self.saying.text


Part: TypeAlias = Text | Image | Document | Reasoning | ToolCall | ToolResult | Opaque


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a session.

    `wire` is the JSON it came in as (or is sent as), never changed. `kind` tells apart what looks alike on the wire:
    "tool_result", "tool_result_archived", "tool_summary", "summary", "digest", "notice", "" for an ordinary message.
    A message with `agent_visible=False` is recorded, but neither sent nor counted.
    """

    role: Role
    parts: tuple[Part, ...]
    _: KW_ONLY
    wire: Wire | None = None
    pinned: bool = False
    agent_visible: bool = True
    user_visible: bool = True
    kind: str = ""
    calls: tuple[ToolCall, ...] = field(init=False, compare=False, repr=False)
    """The tool calls in it, in order."""
    results: tuple[ToolResult, ...] = field(init=False, compare=False, repr=False)
    """The tool results in it, in order."""

    def __post_init__(self) -> None:
        # Asked for some twenty times while a message is taken up, and again by each reducer.
        object.__setattr__(self, "calls", tuple([part for part in self.parts if isinstance(part, ToolCall)]))
        object.__setattr__(self, "results", tuple([part for part in self.parts if isinstance(part, ToolResult)]))

    @property
    def text(self) -> str:
        """All plain text of the message outside tool results, joined by newlines. O(size)."""
        return "\n".join(part.text for part in self.parts if isinstance(part, Text) and part.text)

    @property
    def cited(self) -> str:
        """The sources that its texts cite, by their titles, addresses and words; "" for none. O(size)."""
        raws = [part.raw for part in self.parts if isinstance(part, Text)]
        return "\n".join(found for raw in (*raws, self.wire) if (found := aside(raw)))

    def with_kind(self, kind: str) -> Message:
        """The same message, of another kind."""
        return replace(self, kind=kind)
