"""The rules of the Messages API: messages, calls, results and thinking, then system text, tools and cache markers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from foldline.codecs.anthropic.cache_markers import markers, out_of_order
from foldline.codecs.anthropic.codec import CALL_ID, THOUGHTS, is_empty, is_server_result, is_use
from foldline.codecs.limits import MARKERS
from foldline.codecs.rulebook import (
    Findings,
    Rule,
    check_call_name,
    check_content,
    check_media,
    is_blank,
    quoted,
    read_role,
    table_of,
)
from foldline.messages import Json

__all__ = ["RULES", "check_messages", "check_outside"]

_MESSAGES = "Anthropic API reference, Messages"
_TOOL_USE = "Anthropic docs, Implement tool use"
_THINKING = "Anthropic docs, Extended thinking"
_STOPS = "Anthropic docs, Handling stop reasons"
_NON_EMPTY = 'Anthropic API, error "text content blocks must be non-empty"'
_ID_PATTERN = 'Anthropic API, error "String should match pattern" for tool_use.id'
_EMPTY_ERROR = 'Anthropic API, error "content cannot be empty if `is_error` is true"'
_ONLY_IN = 'Anthropic API, errors "blocks can only be in `assistant` messages" and "... in `user` messages"'
_VISION = 'Anthropic docs, "Vision"'
_CACHING = 'Anthropic docs, "Prompt caching"'

RULES: Final = table_of(
    _MESSAGES,
    Rule("user-first", "The first message is from the user.", _MESSAGES),
    Rule("empty-content", "Only a last assistant message may be empty.", f"{_MESSAGES}: non-empty content"),
    Rule("blank-text", "A text block has visible text.", _NON_EMPTY, alone=True),
    Rule("result-without-call", "A result answers a call of the message before.", _TOOL_USE),
    Rule("call-without-result", "All calls are answered in the next user message.", _TOOL_USE),
    Rule("second-result", "A call has one result.", _TOOL_USE),
    Rule(
        "server-use-without-result",
        "A tool that the provider runs has its result before the turn ends.",
        f"{_STOPS}: a result that is missing when the user's words follow",
    ),
    Rule(
        "server-result-without-use",
        "The result of a tool that the provider runs stands after its use.",
        "Anthropic docs, Server tools: the result follows the server_tool_use block",
    ),
    Rule(
        "caller",
        "A call out of code that the provider runs stands after that code.",
        "Anthropic docs, Programmatic tool calling: caller",
    ),
    Rule("results-first", "Results stand before the other blocks.", _TOOL_USE, alone=True),
    Rule("empty-error", "A failed result says something.", _EMPTY_ERROR, alone=True),
    Rule("block-place", "Calls and thinking are the assistant's, results are the user's.", _ONLY_IN, alone=True),
    Rule("call-ids", "A call id stands once in a request.", 'Anthropic API, error "`tool_use` ids must be unique"'),
    Rule("id-pattern", "A call id holds only letters, digits, _ and -.", _ID_PATTERN, alone=True),
    Rule("input-object", "The input of a call is an object.", f"{_MESSAGES}: tool_use, input", alone=True),
    Rule("signature", "A thinking block has its signature.", _THINKING, alone=True),
    Rule(
        "call-name",
        "The name of a tool in a call has 1 to 200 letters, digits, _ and -.",
        'Anthropic API, error "String should have at most 200 characters" for tool_use.name',
        alone=True,
    ),
    Rule("tool-name", "The name of a tool has 1 to 128 letters, digits, _ and -.", _TOOL_USE),
    Rule(
        "failed-media",
        "A failed result holds only text.",
        'Anthropic API, error "all content must be type `text` if `is_error` is true"',
        alone=True,
    ),
    Rule(
        "image",
        "An image is a PNG, JPEG, GIF or WebP file, labelled so, of at most 5 MB and 8,000 pixels; a file is a PDF.",
        f'{_VISION}; "PDF support"',
        alone=True,
    ),
    Rule(
        "amount",
        "A request holds at most 100 images and PDF pages (600 for models with a larger window) and 100,000 messages.",
        f'{_VISION}; "PDF support"; {_MESSAGES}: messages',
    ),
    Rule("cache-thinking", "Thinking has no cache marker.", _CACHING, alone=True),
    Rule("cache-count", "A request has at most 4 cache markers.", _CACHING),
    Rule("cache-order", "Markers for an hour stand before those for five minutes: tools, system, messages.", _CACHING),
    Rule("system-text", "A system text block has visible text.", _NON_EMPTY),
    Rule("tool-names", "Tools have different names.", 'Anthropic API, error "Tool names must be unique"'),
)
"""The rules of the dialect by id."""


def check_outside(found: Findings, system: Json, tools: Json, wires: Sequence[Json]) -> None:
    """Note the faults of the system text and the tools, and those of all cache markers. O(size)."""
    blocks = system if isinstance(system, list | tuple) else ()
    if any(is_blank(block) for block in blocks if isinstance(block, Mapping)):
        found.add(None, "system-text")
    given = tools if isinstance(tools, list | tuple) else ()
    names = [tool["name"] for tool in given if isinstance(tool, Mapping) and isinstance(tool.get("name"), str)]
    # Tools of the provider have names too, and share the name space.
    if len(set(names)) < len(names):
        found.add(None, "tool-names")
    marked = list(markers(tools, system, wires))
    if len(marked) > MARKERS:
        found.add(None, "cache-count", f"the request has {len(marked)} cache markers, {MARKERS} are taken")
    if any(out_of_order(marked)):
        found.add(None, "cache-order", "a cache marker for an hour stands after one for five minutes")


def _blocks(wire: Json) -> list[Mapping[str, Any]]:
    content = wire.get("content") if isinstance(wire, Mapping) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, Mapping)] if isinstance(content, list | tuple) else []


def _is_summary(wire: Mapping[str, Any]) -> bool:
    """Whether a message begins with the API's own summary, which stands for a whole conversation."""
    blocks = _blocks(wire)
    return bool(blocks) and blocks[0].get("type") == "compaction" and bool(blocks[0].get("content"))


def check_messages(found: Findings, wires: Sequence[Json]) -> None:
    """Note what the Messages API would refuse in the messages. O(size)."""
    if not isinstance(wires[0], Mapping) or not (wires[0].get("role") == "user" or _is_summary(wires[0])):
        found.add(0, "user-first")
    # Client tools are answered in the very next message, those of the provider anywhere in the same turn: two accounts.
    waiting: set[str] = set()
    used: set[str] = set()
    pairs = _Pairs(found)
    for index, wire in enumerate(wires):
        role = read_role(found, index, wire, {"user": 1, "assistant": 1})
        if role is None:
            continue
        check_content(found, index, wire.get("content"))
        blocks = _blocks(wire)
        # A last assistant message may be an empty prefill; the API says so in the error for all others.
        last_assistant = role == "assistant" and index == len(wires) - 1
        if is_empty(wire.get("content")) and not (last_assistant and wire.get("content") == []):
            found.add(index, "empty-content")
        if any(map(is_blank, blocks)):
            found.add(index, "blank-text")
        results = [block for block in blocks if block.get("type") == "tool_result"]
        pairs.add(index, role, blocks)
        if role == "user":
            _check_results(found, index, results, waiting)
            _check_user_blocks(found, index, blocks)
            waiting = set()
            continue
        if results:
            found.add(index, "block-place", "a result in an assistant message")
        if waiting:
            found.add(index, "call-without-result", f"calls {quoted(waiting)} have no result in the next user message")
        waiting = _check_uses(found, index, blocks, used)
    if waiting:
        found.add(None, "call-without-result", f"calls {quoted(waiting)} have no result at the end")


@dataclass(slots=True)
class _Pairs:
    """The calls of tools that the provider runs, and their results."""

    found: Findings
    open: dict[str, int] = field(default_factory=dict)
    """The message of each call without a result."""
    opened: set[str] = field(default_factory=set)
    callers: dict[str, str] = field(default_factory=dict)

    def add(self, index: int, role: str, blocks: Sequence[Mapping[str, Any]]) -> None:
        """Note the faults in the pairs of one more message."""
        if role == "user":
            # Results alone continue the turn of the model, in which the provider may still answer its own calls. Words
            # of the user end it ("Handling stop reasons").
            if any(block.get("type") != "tool_result" for block in blocks):
                self._end_turn(())
            return
        self._end_turn(self._continued(blocks))
        for block in blocks:
            kind, caller = block.get("type"), _caller(block)
            if caller and caller not in self.opened:
                self.found.add(index, "caller", f"a {kind} out of {caller!r}, which is not there")
            if is_use(kind):
                opened = _pattern_id(self.found, index, block.get("id"), "call") or ""
                self.open[opened] = index
                self.opened.add(opened)
                self.callers[opened] = caller
            if is_server_result(kind):
                answered = _pattern_id(self.found, index, block.get("tool_use_id"), "result") or ""
                if answered in self.open:
                    del self.open[answered]
                elif answered in self.opened:
                    self.found.add(index, "second-result", f"a second {kind} for {answered!r}")
                else:
                    self.found.add(index, "server-result-without-use", f"a {kind} for {answered!r}, which is not there")

    def _continued(self, blocks: Sequence[Mapping[str, Any]]) -> set[str]:
        """Return the open calls that an assistant message continues."""
        # Code that the provider runs stays open while the calls that it makes are answered.
        answered = {_id(block.get("tool_use_id")) for block in blocks if is_server_result(block.get("type"))}
        return answered | set(map(_caller, blocks)) | {self.callers.get(opened, "") for opened in answered}

    def _end_turn(self, continued: Collection[str]) -> None:
        for opened in [opened for opened in self.open if opened not in continued]:
            index = self.open.pop(opened)
            self.found.add(index, "server-use-without-result", f"the call {opened!r} has no result in its turn")


def _id(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _caller(block: Mapping[str, Any]) -> str:
    caller = block.get("caller")
    return _id(caller.get("tool_id")) if isinstance(caller, Mapping) else ""


def _check_results(found: Findings, index: int, results: Sequence[Mapping[str, Any]], waiting: set[str]) -> None:
    seen: set[str] = set()
    for block in results:
        call_id = _pattern_id(found, index, block.get("tool_use_id"), "result")
        # Before the check for a missing call, which a second result would fail as well, with a misleading reason.
        if call_id in seen:
            found.add(index, "second-result", f"two results for call {call_id!r}")
        elif call_id is not None and call_id not in waiting:
            found.add(index, "result-without-call", f"result {call_id!r} answers no call of the message before")
        if call_id is not None:
            seen.add(call_id)
        check_content(found, index, block.get("content"))
        check_media(found, index, block.get("content"), "text")
        if block.get("is_error") is True and is_empty(block.get("content")):
            found.add(index, "empty-error")
        if block.get("is_error") is True and any(inner.get("type") != "text" for inner in _blocks(block)):
            found.add(index, "failed-media")
    if waiting - seen:
        detail = f"calls {quoted(waiting - seen)} have no result in the next user message"
        found.add(index, "call-without-result", detail)


def _check_user_blocks(found: Findings, index: int, blocks: Sequence[Mapping[str, Any]]) -> None:
    kinds = [block.get("type") for block in blocks]
    for kind in dict.fromkeys(kind for kind in kinds if isinstance(kind, str)):
        if kind in ("tool_use", *THOUGHTS) or is_use(kind) or is_server_result(kind):
            found.add(index, "block-place", f"a {kind} block in a user message")
    check_media(found, index, blocks, "text")
    # In order exactly if no result follows another block: False sorts before True.
    flags = [kind != "tool_result" for kind in kinds]
    if flags != sorted(flags):
        found.add(index, "results-first")


def _check_uses(found: Findings, index: int, blocks: Sequence[Mapping[str, Any]], used: set[str]) -> set[str]:
    here: set[str] = set()
    for block in blocks:
        kind = block.get("type")
        if kind == "thinking" and not block.get("signature"):
            found.add(index, "signature")
        if kind in THOUGHTS and "cache_control" in block:
            found.add(index, "cache-thinking")
        if kind != "tool_use":
            continue
        call_id = _pattern_id(found, index, block.get("id"), "call")
        if call_id is not None:
            # Over the whole request: ids are compared across all messages ("`tool_use` ids must be unique").
            if call_id in used:
                found.add(index, "call-ids", f"the call id {call_id!r} was used before")
            used.add(call_id)
            here.add(call_id)
        if not isinstance(block.get("name"), str) or not block["name"]:
            found.add(index, "call-shape", f"call {call_id!r} names no tool")
        else:
            check_call_name(found, index, block["name"])
        if not isinstance(block.get("input"), Mapping):
            found.add(index, "input-object", f"the input of call {call_id!r} is not an object")
    return here


def _pattern_id(found: Findings, index: int, value: Json, what: str) -> str | None:
    if not isinstance(value, str):
        found.add(index, "call-shape", f"a {what} without the id of its call")
        return None
    if not CALL_ID.fullmatch(value):
        found.add(index, "id-pattern", f"the id {value!r} of a {what} holds more than letters, digits, _ and -")
    return value
