"""The words of blocks that this package does not interpret: what a tool that the provider runs was asked, and brought.

Such a block goes back to its provider as it came. Whoever reads a session (a person, a summary, a digest, a search)
reads its words from here: names, inputs and outputs as text, without ids, signatures and what is encrypted or encoded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Saying", "aside", "saying"]

_MOST_STRINGS: Final = 100_000
"""Strings of one block that are read: a block of more is no text."""


@dataclass(frozen=True, slots=True)
class Saying:
    """What one block says: a call (`name` and `arguments`, each "" if it is none), and what came of it."""

    name: str = ""
    arguments: str = ""
    brought: str = ""
    failed: bool = False

    @property
    def text(self) -> str:
        """All of it: the call in a line, then what came of it."""
        call = f"{self.name} {self.arguments}".strip()
        return "\n".join(piece for piece in (call, self.brought) if piece)


# Where a kind keeps what it was asked, and what it brought. Anthropic: "Web search tool", "Web fetch tool", "Code
# execution tool", "MCP connector". OpenAI, API reference, Responses, items: `mcp_call`, `web_search_call`,
# `file_search_call`, `code_interpreter_call`, `image_generation_call`, `mcp_list_tools`, `mcp_approval_request`.
# Chat Completions: the retired `function_call`, and `audio` with its transcript.
_ASKED: Final[Mapping[str, tuple[str, ...]]] = {
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
_FIELDS: Final = ("function_call", "audio")
"""Fields of a message in Chat Completions that are blocks here: the block is the field with its value."""

_UNREAD: Final[Mapping[str, tuple[str, ...]]] = {"image_generation_call": ("result",), "audio": ("data",)}
"""Fields of a kind that hold what is encoded, however short."""

_NO_WORDS: Final = frozenset(
    "type id object status index role caller citations annotations logprobs score created_at expires_at container_id"
    " container server_label server_name call_id tool_use_id approval_request_id file_id item_id page_age return_code"
    " is_error cache_control input_schema detail mime_type media_type retrieved_at b64_json format".split()
)
_ENCODED: Final = re.compile(r"encrypted|signature|base64|_id$", re.IGNORECASE)
"""In the name of a field whose value is no text for a reader."""
_ENCODED_TEXT: Final = re.compile(r"(?:data:[^,]{0,200},)?[A-Za-z0-9+/=_-]{200,}+\s*")
_ERROR: Final = re.compile(r"error", re.IGNORECASE)


def saying(kind: str, raw: Any) -> Saying:
    """The words of a block of type `kind`. O(its size); never raises."""
    if not isinstance(raw, Mapping):
        return Saying(brought=raw) if isinstance(raw, str) else Saying(brought=_joined(raw))
    block: Mapping[str, Any] = raw
    if kind in _FIELDS and isinstance(raw.get(kind), Mapping):
        block = raw[kind]
    fields = _ASKED.get(kind, ())
    if not fields and kind.endswith("_call") and not any(key in block for key in ("output", "result", "results")):
        fields = ("arguments", "input", "action", "operation")
    name = next((block[key] for key in _NAMES if isinstance(block.get(key), str) and block[key]), "")
    if fields and not name:
        name = kind.removesuffix("_call")
    asked = [_as_given(block[key]) for key in fields if block.get(key) not in (None, "", [], {})]
    told = {*fields, *(_NAMES if fields else ()), *_UNREAD.get(kind, ())}
    brought = _joined({key: value for key, value in block.items() if key not in told})
    return Saying(name if fields else "", " ".join(piece for piece in asked if piece), brought, _failed(block))


def aside(raw: Any) -> str:
    """What a text block names beside its text: the sources that it cites. O(their size); never raises."""
    if not isinstance(raw, Mapping):
        return ""
    return _joined([raw.get("citations"), raw.get("annotations")])


def _as_given(value: Any) -> str:
    """An input as a call's arguments stand: text as it is, anything else as JSON."""
    if isinstance(value, str):
        return "" if _is_encoded(value) else value
    try:
        return json.dumps(_readable(value), ensure_ascii=False, default=str)
    except (RecursionError, ValueError, TypeError):
        return _joined(value)


def _readable(value: Any) -> Any:
    """An input without what is encoded in it."""
    if isinstance(value, Mapping):
        return {key: _readable(inner) for key, inner in value.items() if not _ENCODED.search(str(key))}
    if isinstance(value, list | tuple):
        return [_readable(inner) for inner in value]
    return "…" if isinstance(value, str) and _is_encoded(value) else value


def _is_encoded(text: str) -> bool:
    return _ENCODED_TEXT.fullmatch(text) is not None


def _failed(block: Mapping[str, Any]) -> bool:
    if block.get("is_error") is True or block.get("error") or block.get("status") in {"failed", "incomplete"}:
        return True
    content = block.get("content")
    if not isinstance(content, Mapping):
        return False
    return bool(_ERROR.search(str(content.get("type", "")))) or content.get("return_code") not in (None, 0)


def _joined(value: Any) -> str:
    return "\n".join(_strings(value))


def _strings(value: Any) -> Iterator[str]:
    """The texts in a JSON value in their order; not recursive: a value may be nested deeper than the stack is."""
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
