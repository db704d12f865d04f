"""What a dialect consists of: a codec, and a row with everything else that differs between dialects."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from foldline.codecs.blocks import Source, same_items, with_session_fields
from foldline.codecs.limits import Limits
from foldline.codecs.rulebook import Findings, Rule
from foldline.errors import InvalidInput
from foldline.messages import Json, Message, Opaque, Part, ToolCall, ToolResult, Wire

__all__ = [
    "ApiCompaction",
    "BodyForm",
    "Codec",
    "Dialect",
    "ErrorBodies",
    "MediaBlocks",
    "MessageCodec",
    "Path",
    "Sanitized",
    "StreamWords",
]


@dataclass(frozen=True, slots=True)
class Sanitized:
    """A message as its provider accepts it, seen alone; None if nothing of it can be sent.

    `faults` names each repair in a short sentence; without any, the message is the very object that was given.
    """

    message: Message | None
    faults: tuple[str, ...] = ()


class Codec(Protocol):
    """Reads and writes one dialect. Pure; every cost is O(size of the message)."""

    @property
    def dialect(self) -> str:
        """Its name, as the user gives it: "openai-chat", "openai-responses", "anthropic" or "gemini"."""

    @property
    def user_first(self) -> bool:
        """Whether the first message must be from the user (Anthropic, Gemini)."""

    @property
    def system_inside(self) -> bool:
        """Whether system text may stand among the messages."""

    @property
    def itemised(self) -> bool:
        """Whether one turn of the model arrives as several items (Responses), so that neighbours form one group."""

    @property
    def unique_calls(self) -> bool:
        """Whether a call id may be used only once in a request (Anthropic; Responses: a call has one output)."""

    @property
    def one_turn(self) -> bool:
        """Whether a call of the model may not follow its words in a message of their own (Gemini)."""

    def read(self, wire: Wire) -> Message:
        """Read a JSON object; `message.wire is wire`. Raises InvalidInput."""

    def write(self, message: Message) -> Wire:
        """Return the JSON object of a message: its own wire if it has one, else one made from its parts."""

    def revise(self, message: Message, parts: Sequence[Part]) -> Message:
        """Return the message with other parts.

        Unknown fields stay, and so does the JSON of each part that is still among `parts` (the same object). Without
        any parts the message gets the emptiest form that the dialect allows.
        """

    def sanitize(self, message: Message, known: Collection[str] = ()) -> Sanitized:
        """Return what the provider would accept of the message, seen alone (no pairing).

        Names of calls that are in `known`, the tools of the request, are accepted whatever they are.
        """

    def note(self, text: str, *, role: str = "user", kind: str = "notice") -> Message:
        """Return a message of Foldline's own: role "user", "assistant", or "system" where the dialect allows it."""

    def answer(self, call: ToolCall, text: str) -> Message:
        """Return a message with a result for a call that has none."""

    def missing_result(self, opened: Opaque, text: str) -> Message | None:
        """Return a message with a result for a call that the provider ran and never answered.

        None where such a call may stand without one.
        """

    def merge(self, messages: Sequence[Message]) -> Message | None:
        """Merge messages with results into one, results first, where the dialect wants all results of a turn together.

        None where each result stands alone.
        """

    def separate_media(self, results: Sequence[Message]) -> tuple[list[Message], Message | None]:
        """Split the results of a turn from what may not stand in them, which goes into a message of its own or None.

        Where results hold only text (Chat Completions), the images of all of them follow in a message of the user.
        """


class MessageCodec(ABC):
    """The steps that codecs share: what differs is how a message is read, revised and mended.

    `mend` returns the JSON as the provider accepts it (the same object if it is accepted, None if nothing can be sent)
    and notes faults. `revise` writes a message with other parts. `content` is the field that holds the results of a
    turn in dialects that want them in one message, else "".
    """

    def __init__(
        self,
        mend: Callable[[Wire, list[str], Collection[str]], Wire | None],
        revise: Callable[[Message, Sequence[Part]], tuple[Wire, tuple[Part, ...]]],
        content: str = "",
    ) -> None:
        # Functions, not methods to override: sanitizing a message must not cost a call more for sharing this.
        self._mend, self._revise, self._content = mend, revise, content

    @abstractmethod
    def read(self, wire: Wire) -> Message:
        """Read a JSON object; every codec has its own reader."""

    def write(self, message: Message) -> Wire:
        """Return the JSON object of a message. Raises InvalidInput for parts that the dialect cannot hold."""
        return message.wire if message.wire is not None else self._revise(message, message.parts)[0]

    def revise(self, message: Message, parts: Sequence[Part]) -> Message:
        """Return the message with other parts; everything else stays."""
        if message.wire is not None and same_items(message.parts, parts):
            return message
        wire, settled = self._revise(message, parts)
        return replace(message, parts=settled, wire=wire)

    def sanitize(self, message: Message, known: Collection[str] = ()) -> Sanitized:
        """Return what the provider would accept of the message, seen alone."""
        wire = self.write(message)
        faults: list[str] = []
        mended = self._mend(wire, faults, known)
        if mended is None:
            return Sanitized(None, tuple(faults))
        return (
            Sanitized(message)
            if mended is wire
            else Sanitized(with_session_fields(message, self.read(mended)), tuple(faults))
        )

    def missing_result(self, opened: Opaque, text: str) -> Message | None:
        """Return None: no call that the provider runs needs a result."""
        # Chat has no such calls, and Gemini sends them in one content with their result. In Responses an approval may
        # stay without its answer, and a program without its output is passed on as it is.
        return None

    def merge(self, messages: Sequence[Message]) -> Message | None:
        """Merge messages with results: first the results, then all else, both in order. None for none."""
        if not self._content:
            return None
        if len(messages) < 2:
            return messages[0] if messages else None
        if any(message.role == "assistant" for message in messages):
            raise InvalidInput("an assistant message cannot be merged with results")
        parts = [part for message in messages for part in message.parts]
        parts.sort(key=lambda part: not isinstance(part, ToolResult))
        first = messages[0]
        kinds = {message.kind for message in messages}
        # An empty list, so that the parts become blocks even where the first message was plain text.
        emptied = replace(first, wire={**self.write(first), self._content: []})
        wire, settled = self._revise(emptied, parts)
        return replace(
            first,
            parts=settled,
            wire=wire,
            pinned=any(message.pinned for message in messages),
            kind=kinds.pop() if len(kinds) == 1 else "",
        )

    def separate_media(self, results: Sequence[Message]) -> tuple[list[Message], Message | None]:
        """Return the results unchanged: images may stand in them."""
        return list(results), None


# --- the row of a dialect -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyForm:
    """The field names of a dialect's request, by the API references of Chat, Responses, Messages and Gemini.

    `caps` are the names of the output cap, the one that takes precedence first; they are in the object `caps_in` if
    that is named. With one of the fields `elsewhere` the server holds a part of the conversation, which is not known
    here. With `references`, items may refer to what it holds. With `system_in_parts`, system text is an object with
    parts. `spellings` maps a field to its other spelling.
    """

    dialect: str
    messages: str
    system: str | None
    caps: tuple[str, ...]
    caps_in: str = ""
    elsewhere: tuple[str, ...] = ()
    references: bool = False
    system_in_parts: bool = False
    spellings: Mapping[str, str] | None = None

    def spelled(self, fields: Mapping[str, Json]) -> BodyForm:
        """The form with the spellings that a request uses. O(spellings)."""
        used = {usual: other for usual, other in (self.spellings or {}).items() if other in fields}
        if not used:
            return self
        return replace(
            self,
            system=used.get(self.system or "", self.system),
            caps_in=used.get(self.caps_in, self.caps_in),
        )

    def system_in(self, given: Json) -> Json:
        """The system text of a request as a string or a list of blocks."""
        if not (self.system_in_parts and isinstance(given, Mapping)):
            return given
        parts = given.get("parts")
        return [parts] if isinstance(parts, Mapping) else parts

    def system_json(self, system: Json, before: Json = None) -> Json:
        """System text as a request holds it, with the other fields of the object that stood there `before`."""
        if not self.system_in_parts or system is None:
            return system
        blocks = [{"text": system}] if isinstance(system, str) else system
        # A part of Gemini has no `type`: its data field says what it is.
        parts = [{name: value for name, value in block.items() if name != "type"} for block in blocks]
        return {**(before if isinstance(before, Mapping) else {}), "parts": parts}


@dataclass(frozen=True, slots=True)
class Path:
    """The ending of a dialect's path, for replies or for a count of tokens; `streamed` if the path itself says so.

    The stream of a `binary` path is one of frames, not of events, and passes unread.
    """

    ending: re.Pattern[str]
    counting: bool = False
    streamed: bool = False
    binary: bool = False

    @classmethod
    def of(cls, ending: str, *, counting: bool = False, streamed: bool = False, binary: bool = False) -> Path:
        """The path that ends in the pattern `ending`."""
        return cls(re.compile(f"{ending}$"), counting, streamed, binary)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWords:
    """The vocabulary of a stream: the events that open it, end it or report an error, and the field with the usage.

    `shape` is what an event holds: choices, named events, or candidates. `says` tells whether bytes of a stream may
    say more than pieces of content do; all others are passed on unread. `shown` are the fields of a whole response
    that hold content.
    """

    shape: Literal["choices", "message", "response", "candidates"]
    says: Callable[[bytes], bool]
    usage: str = "usage"
    shown: tuple[str, ...] = ("choices", "output", "content")
    openings: frozenset[str] = frozenset()
    ends: frozenset[str] = frozenset()
    errors: frozenset[str] = frozenset({"error", "response.error"})


@dataclass(frozen=True, slots=True)
class ErrorBodies:
    """Errors in the words of a provider: clients recognise an overflow by its code or its wording.

    `refused(status, message, code)` is any error, `overflow(tokens, limit, detail)` one for a prompt that is too long.
    """

    refused: Callable[[int, str, str | None], dict[str, Any]]
    overflow: Callable[[int, int, str], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class MediaBlocks:
    """Writers of images and files from another dialect: an image from its source and detail, a document from its
    source. They return None for what the dialect cannot carry."""

    image: Callable[[Source, str], dict[str, Any] | None]
    document: Callable[[Source], dict[str, Any] | None]


@dataclass(frozen=True, slots=True)
class ApiCompaction:
    """Whose own API compacts in a dialect. Gateways pass it on for these alone (OpenRouter)."""

    makers: frozenset[str]
    model_names: re.Pattern[str]
    """Names of their models, for those that are newer than the catalogue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One dialect as a row: everything that the rest of the package branches on.

    Higher layers have a module of their own for each dialect and find it by `module`.
    """

    name: str
    codec: Codec
    rules: Mapping[str, Rule]
    check: Callable[[Findings, Sequence[Wire]], None]
    """Notes which rules the messages break."""
    check_outside: Callable[[Findings, Json, Json, Sequence[Json]], None] | None = None
    """Notes which rules the system text, the tools and the cache markers break."""
    limits: Limits
    media: MediaBlocks
    body: BodyForm
    paths: tuple[Path, ...]
    stream: StreamWords
    errors: ErrorBodies
    tool: Callable[[str, str, Json], dict[str, Json]]
    """Writes a tool from its name, its description and the schema of its arguments."""
    key_header: tuple[str, str] = ("authorization", "Bearer ")
    """The header with the API key, and the prefix of its value."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of every request."""
    version: str = "v1"
    """The version in front of the paths; it is part of a base URL unless `version_in_base` is off."""
    version_in_base: bool = True
    card_window: tuple[str, ...] = ()
    """The fields of a model's card that name its window."""
    cache_rule: str = "openai"
    """Prices the cache of a model that is not in the catalogue."""
    maker: Literal["openai", "anthropic", "gemini"] = "openai"
    free_text_calls: bool = True
    """A call may have free text as its input."""
    failed_results: bool = False
    """A result can be marked as failed."""
    results_inside: bool = False
    """The results of a turn are in one message of the user."""
    parts_only: bool = False
    """Text is never a bare string."""
    alternates: bool = False
    """Some servers require alternating roles (`foldline.codecs.openai_chat.roles`)."""
    cache_markers: bool = False
    """Markers in the request ask for caching."""
    sign_call: Callable[[ToolCall], ToolCall] | None = None
    """Signs a call of another model, where a call needs a signature."""
    signed: Callable[[Sequence[Wire]], list[Wire]] | None = None
    """Completes missing signatures in a list of messages."""
    compaction: ApiCompaction | None = None
    """The makers whose API compacts on request."""

    @property
    def module(self) -> str:
        """The name of this dialect's modules in `foldline.providers` and `foldline.testing.forms`."""
        return self.name.replace("-", "_")
