"""What must hold of a request with parts that the provider made, judged apart from the product."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["separated"]


def separated(messages: Sequence[Any], dialect: str) -> list[str]:
    """The halves of pairs that stand without their other half, in words.

    An opening half may wait at the end: in the last assistant message, or before results that close the request.
    """
    if dialect == "anthropic":
        return list(_anthropic(messages))
    return list(_responses(messages)) if dialect == "openai-responses" else []


def _blocks(message: Any) -> list[dict[str, Any]]:
    content = message.get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _anthropic(messages: Sequence[Any]) -> Iterator[str]:
    uses: dict[str, int] = {}
    open_: set[str] = set()
    for at, message in enumerate(messages):
        for block in _blocks(message):
            kind = block.get("type", "")
            if kind in {"server_tool_use", "mcp_tool_use"}:
                uses[block["id"]] = at
                open_.add(block["id"])
            elif kind.endswith("_tool_result"):
                if block["tool_use_id"] not in uses:
                    yield f"{at}: {kind} without its use"
                open_.discard(block["tool_use_id"])
            caller = block.get("caller")
            if isinstance(caller, dict) and caller.get("tool_id") and caller["tool_id"] not in uses:
                yield f"{at}: a call whose caller {caller['tool_id']} is not there"
    last = max((at for at, message in enumerate(messages) if message.get("role") == "assistant"), default=-1)
    ends = messages[last + 1 :]
    tail = all(block.get("type") == "tool_result" for message in ends for block in _blocks(message))
    for name in open_:
        if not (tail and len(ends) <= 1):
            yield f"{uses[name]}: {name} has no result"


def _responses(items: Sequence[Any]) -> Iterator[str]:
    calls: set[str] = set()
    requests: set[str] = set()
    answered: set[str] = set()
    for at, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "mcp_approval_request":
            requests.add(item["id"])
        elif kind == "mcp_approval_response" and item["approval_request_id"] not in requests:
            yield f"{at}: an approval without its request"
        elif kind.endswith("_call_output"):
            name = item.get("call_id") or item.get("id")
            if name not in calls:
                yield f"{at}: {kind} without its call"
            if name in answered:
                yield f"{at}: a second output for {name}"
            answered.add(name)
        elif "call_id" in item:
            calls.add(item["call_id"])
    for name in calls - answered:
        yield f"call {name} has no output"
