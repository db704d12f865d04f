"""A recorded session from a file of any format, and the detection of its dialect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from foldline.codecs import DIALECTS
from foldline.messages import Json, Wire
from foldline.recorded.json_values import Unread

__all__ = [
    "Session",
    "detect_dialect",
]


# Block types that only one dialect has. "text", "refusal" and "file" occur in several.
_DIALECT_OF_BLOCK: Final = {
    "input_text": "openai-responses",
    "output_text": "openai-responses",
    "input_image": "openai-responses",
    "input_file": "openai-responses",
    "summary_text": "openai-responses",
    "image_url": "openai-chat",
    "input_audio": "openai-chat",
    "tool_use": "anthropic",
    "tool_result": "anthropic",
    "thinking": "anthropic",
    "redacted_thinking": "anthropic",
    "image": "anthropic",
    "document": "anthropic",
    "server_tool_use": "anthropic",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One recorded session: `messages` are wire messages of `dialect`, in order, as they were recorded.

    `system` and `tools` are set where the dialect keeps them outside the messages. `source` and `licence` name the
    origin, "" when unknown. `body` is the object that held the messages, None when there was none. `unread` lists what
    a lenient reader could not read.
    """

    name: str
    dialect: str
    messages: tuple[Wire, ...]
    system: Json = None
    tools: tuple[Wire, ...] | None = None
    model: str | None = None
    source: str = ""
    licence: str = ""
    body: Wire | None = None
    unread: tuple[Unread, ...] = ()


def detect_dialect(messages: Iterable[Json], *, system: Json = None) -> str:
    """The dialect of these messages, by shapes that only one dialect has. O(blocks).

    Plain text fits every dialect: it counts as "openai-chat", and as "anthropic" beside a list of system blocks.
    """
    # A vote, because no single sign is safe: recordings mix dialects where a tool wrote one form into the other.
    votes: Counter[str] = Counter()
    for message in messages:
        votes.update(_hints(message))
    if not votes:
        return "anthropic" if isinstance(system, list) else "openai-chat"
    # `max` takes the first of equals, so the order of DIALECTS decides a tie, and the result does not depend on
    # hashing.
    return max(DIALECTS, key=lambda name: votes[name])


def _hints(message: Json) -> Iterator[str]:
    """A dialect for each sign of it; a message may hold signs of several."""
    if not isinstance(message, dict):
        return
    # Items of the Responses API that are no messages (calls, results, reasoning) have a type and no role.
    if "role" not in message and "type" in message:
        yield "openai-responses"
    if isinstance(message.get("parts"), list):
        yield "gemini"
    if message.get("role") in ("tool", "function") or message.get("tool_calls"):
        yield "openai-chat"
    content = message.get("content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and (dialect := _DIALECT_OF_BLOCK.get(str(block.get("type")))):
            yield dialect
