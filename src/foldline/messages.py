"""Messages and their parts, in any dialect.

A `Message` is a pure value without identity or place in a session. Each part keeps in `raw` the JSON block that it was
read from, and the message keeps the whole JSON object in `wire`, so that what nobody changed is sent as it came.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final, Literal, TypeAlias

__all__ = [
    "BlockWords",
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
    "block_words",
    "citations",
    "same_until",
    "snapshot",
]

Json: TypeAlias = Any
Wire: TypeAlias = Mapping[str, Any]
Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


def snapshot(value: Json) -> Json:
    """A deep copy of a JSON value, which the caller's later changes do not reach. Strings are shared. O(blocks)."""
    # `copy.deepcopy` keeps a memo of every object, and takes nearly twice as long.
    if isinstance(value, Mapping):
        return {key: snapshot(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [snapshot(inner) for inner in value]
    return value


def same_until(old: Sequence[Wire], new: Sequence[Wire]) -> int:
    """How many leading messages of two lists are equal. O(their size)."""
    # One comparison of lists runs in C, and nearly always the old list is a prefix of the new one.
    if old == list(new[: len(old)]):
        return len(old)
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(old), len(new)))


# The parts are what all dialects have in common, and no more: what only one of them knows stays in `raw`, so that
# nothing is lost on the way through.


@dataclass(frozen=True, slots=True)
class Text:
    """Text read or written by the model; a refusal is text too."""

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


# A field, not a look into `raw`: where a fold may end depends on it, in every dialect (`View.may_cut`).
@dataclass(frozen=True, slots=True)
class Reasoning:
    """Reasoning of the model; `signed` when the provider verifies it: then it is sent whole or not at all."""

    text: str = ""
    signed: bool = False
    raw: Json = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool; `arguments` is JSON text, or free text when `custom`.

    `caller` is the id of the provider-run call (of code) that made this one, "" when the model made it.
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
        # Nearly every result is one text, and it is read several times on its way into a request.
        if len(self.parts) == 1 and isinstance(self.parts[0], Text):
            return self.parts[0].text
        texts = (part.text for part in self.parts if isinstance(part, Text | Document | Opaque))
        return "\n".join(text for text in texts if text)


@dataclass(frozen=True, slots=True)
class Opaque:
    """A block that this package does not interpret (server tools, future kinds): passed on, and counted by size.

    `opens` is the id of the pair that it opens (a call that the provider runs, a request for approval), `answers` the
    id of the pair that it closes; both halves are sent or none. `caller` is the id of the pair that it came out of.
    """

    type: str
    raw: Json = None
    opens: str = field(default="", kw_only=True)
    answers: str = field(default="", kw_only=True)
    caller: str = field(default="", kw_only=True)

    @property
    def words(self) -> BlockWords:
        """Its words: a call that the provider ran, and the result. O(size of the block)."""
        return block_words(self.type, self.raw)

    @property
    def text(self) -> str:
        """All its words, without ids and encrypted or encoded fields; "" for none. O(size of the block)."""
        return self.words.text


Part: TypeAlias = Text | Image | Document | Reasoning | ToolCall | ToolResult | Opaque


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a session.

    `wire` is the JSON that came in or is sent, never changed. `kind` tells apart messages that look alike on the wire:
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
        # Computed once: appending reads them some twenty times, and each reducer again. List comprehensions are faster
        # than generators here.
        object.__setattr__(self, "calls", tuple([part for part in self.parts if isinstance(part, ToolCall)]))
        object.__setattr__(self, "results", tuple([part for part in self.parts if isinstance(part, ToolResult)]))

    @property
    def text(self) -> str:
        """All plain text of the message outside tool results, joined by newlines. O(size)."""
        return "\n".join(part.text for part in self.parts if isinstance(part, Text) and part.text)

    @property
    def cited(self) -> str:
        """The sources that its texts cite: titles, addresses and quotes; "" for none. O(size)."""
        raws = [part.raw for part in self.parts if isinstance(part, Text)]
        return "\n".join([found for raw in (*raws, self.wire) if raw and (found := citations(raw))])


# The words of blocks that this package does not interpret: calls of tools that the provider runs, and their results.
# Such a block goes back to its provider as it came; people, summaries, digests and searches read its words from here.

# The most strings read from one block. A block with more is data, and reading it would cost as much as the session.
_MOST_STRINGS: Final = 100_000


@dataclass(frozen=True, slots=True)
class BlockWords:
    """The words of one block: a call (`name` and `arguments`, "" for none) and its result (`result`)."""

    name: str = ""
    arguments: str = ""
    result: str = ""
    failed: bool = False

    @property
    def text(self) -> str:
        """All of them: the call on one line, then the result."""
        call = f"{self.name} {self.arguments}".strip()
        return "\n".join(piece for piece in (call, self.result) if piece)


# The fields in which each kind keeps the input of a call; all others are its result. Anthropic: "Web search tool", "Web
# fetch tool", "Code execution tool", "MCP connector". OpenAI, API reference, Responses, items: `mcp_call`,
# `web_search_call`, `file_search_call`, `code_interpreter_call`, `image_generation_call`, `mcp_list_tools`,
# `mcp_approval_request`. Chat Completions: the retired `function_call`, and `audio` with its transcript.
_INPUT_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "server_tool_use": ("input",),
    "mcp_tool_use": ("input",),
    "tool_use": ("input",),
    "mcp_call": ("arguments",),
    "mcp_approval_request": ("arguments",),
    "mcp_list_tools": ("server_label",),
    "web_search_call": ("action",),
    "file_search_call": ("queries",),
    "code_interpreter_call": ("code",),
    "image_generation_call": ("revised_prompt",),
    "computer_call": ("action", "actions"),
    "local_shell_call": ("action",),
    "tool_search_call": ("arguments", "query"),
    "function_call": ("arguments",),
    "custom_tool_call": ("input",),
    "tool_call": ("function", "custom"),
}
_NAMES: Final = ("name", "tool_name")
# Fields of a Chat Completions message that are blocks here: the block is the field with its value.
_FIELDS: Final = ("function_call", "audio")

# Fields of a kind that hold encoded data, however short: by its length alone a small picture would pass for words.
_UNREAD: Final[Mapping[str, tuple[str, ...]]] = {"image_generation_call": ("result",), "audio": ("data",)}

_NO_WORDS: Final = frozenset(
    "type id object status index role caller citations annotations logprobs score created_at expires_at container_id"
    " container server_label server_name call_id tool_use_id approval_request_id file_id item_id page_age return_code"
    " is_error cache_control input_schema detail mime_type media_type retrieved_at b64_json format".split()
)
# Names of fields whose values are not for reading: ids, signatures and encrypted text of any provider, present or to
# come.
_ENCODED: Final = re.compile(r"encrypted|signature|base64|_id$", re.IGNORECASE)
_ENCODED_TEXT: Final = re.compile(r"(?:data:[^,]{0,200},)?[A-Za-z0-9+/=_-]{200,}+\s*")
_ERROR: Final = re.compile(r"error", re.IGNORECASE)


def block_words(kind: str, raw: Any) -> BlockWords:
    """The words of a block of type `kind`. O(its size); never raises."""
    if not isinstance(raw, Mapping):
        return BlockWords(result=raw) if isinstance(raw, str) else BlockWords(result=_joined(raw))
    # Never raises, and knows no provider: a block of a future kind has to leave some words for a summary.
    block: Mapping[str, Any] = raw
    if kind in _FIELDS and isinstance(raw.get(kind), Mapping):
        block = raw[kind]
    # A kind that is not in the table, and has no output field, is read as a call: what a future tool was asked matters
    # more to a summary than how its block is laid out.
    fields = _INPUT_FIELDS.get(kind, ())
    if not fields and kind.endswith("_call") and not any(key in block for key in ("output", "result", "results")):
        fields = ("arguments", "input", "action", "operation")
    name = next((block[key] for key in _NAMES if isinstance(block.get(key), str) and block[key]), "")
    if fields and not name:
        name = kind.removesuffix("_call")
    inputs = [_as_given(block[key]) for key in fields if block.get(key) not in (None, "", [], {})]
    not_result = {*fields, *(_NAMES if fields else ()), *_UNREAD.get(kind, ())}
    result = _joined({key: value for key, value in block.items() if key not in not_result})
    return BlockWords(name if fields else "", " ".join(piece for piece in inputs if piece), result, _failed(block))


def citations(raw: Any) -> str:
    """The sources that a text block cites. O(their size); never raises."""
    if not isinstance(raw, Mapping):
        return ""
    cited, noted = raw.get("citations"), raw.get("annotations")
    return _joined([cited, noted]) if cited or noted else ""  # nearly no text has any


def _as_given(value: Any) -> str:
    """The input of a call as text: a string unchanged, anything else as JSON."""
    if isinstance(value, str):
        return "" if _is_encoded(value) else value
    try:
        return json.dumps(_readable(value), ensure_ascii=False, default=str)
    except (RecursionError, ValueError, TypeError):
        return _joined(value)


def _readable(value: Any) -> Any:
    """An input without encoded fields."""
    if isinstance(value, Mapping):
        return {key: _readable(inner) for key, inner in value.items() if not _ENCODED.search(str(key))}
    if isinstance(value, list | tuple):
        return [_readable(inner) for inner in value]
    return "…" if isinstance(value, str) and _is_encoded(value) else value


def _is_encoded(text: str) -> bool:
    return _ENCODED_TEXT.fullmatch(text) is not None


def _failed(block: Mapping[str, Any]) -> bool:
    # Each provider says it in its own way: a flag (Anthropic), a status (OpenAI), an error in the content (web search
    # and code execution of Anthropic).
    if block.get("is_error") is True or block.get("error") or block.get("status") in {"failed", "incomplete"}:
        return True
    content = block.get("content")
    if not isinstance(content, Mapping):
        return False
    return bool(_ERROR.search(str(content.get("type", "")))) or content.get("return_code") not in (None, 0)


def _joined(value: Any) -> str:
    return "\n".join(_strings(value))


def _strings(value: Any) -> Iterator[str]:
    """The texts in a JSON value, in order. Not recursive: a value may be nested deeper than the stack."""
    waiting: list[Any] = [value]
    seen: set[int] = set()
    left = _MOST_STRINGS
    while waiting and left:
        one = waiting.pop()
        if isinstance(one, str):
            if one.strip() and not _is_encoded(one):
                left -= 1
                yield one
        elif isinstance(one, Mapping | list | tuple) and id(one) not in seen:
            seen.add(id(one))
            waiting += reversed(list(_inside(one)))


def _inside(value: Any) -> Iterable[Any]:
    if not isinstance(value, Mapping):
        return value  # type: ignore[no-any-return]
    encoded = value.get("type") == "base64"
    return (
        inner
        for key, inner in value.items()
        if isinstance(key, str)
        and key not in _NO_WORDS
        and not _ENCODED.search(key)
        and not (encoded and key == "data")
    )
