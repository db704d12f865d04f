"""What stood beside the messages in the newest request of a session: the log of the session does not hold it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from foldline.messages import Json
from foldline.store.calls.reader import REPLY
from foldline.store.calls.schema import faults, open_to_read

__all__ = ["SentBeside", "sent_beside"]

_OUTPUT_CAPS: Final = ("max_completion_tokens", "max_output_tokens", "max_tokens")
_LEADING_ROLES: Final = ("system", "developer")


@dataclass(frozen=True, slots=True)
class SentBeside:
    """System text, tool schemas and output cap of a request, None where it had none."""

    system: str | Sequence[Mapping[str, Json]] | None
    tools: Sequence[Mapping[str, Json]] | None
    max_output_tokens: int | None


def sent_beside(path: Path | str, session_id: str) -> SentBeside | None:
    """What the newest request of a session was sent with; None where no call of it was recorded. O(one request).

    Changes nothing. Marks for the prompt cache are left out. Raises OSError, and InvalidInput for a file that is no
    record of calls.
    """
    place = Path(path).absolute()
    try:
        database = open_to_read(place)
    except FileNotFoundError:
        return None
    try:
        with faults(place):
            row = database.execute(
                "SELECT request_system, request_tools, request_parameters, request_messages FROM llm_calls"
                " WHERE session_id = ? AND purpose = ? ORDER BY id DESC LIMIT 1",
                (session_id, REPLY),
            ).fetchone()
    finally:
        database.close()
    if row is None:
        return None
    system, tools, parameters, messages = (json.loads(text or "null") for text in row)
    if system is None:
        system = _leading(messages)
    caps = (parameters.get(name) for name in _OUTPUT_CAPS)
    return SentBeside(
        system=_unmarked(system) or None,
        tools=_unmarked(tools) or None,
        max_output_tokens=next((cap for cap in caps if isinstance(cap, int)), None),
    )


def _leading(messages: Json) -> Json:
    """The system text that Chat Completions has as the first message."""
    first = messages[0] if messages else None
    return first.get("content") if isinstance(first, dict) and first.get("role") in _LEADING_ROLES else None


def _unmarked(value: Json) -> Json:
    """Without the cache points, which the provider's adapter sets anew in each request."""
    if not isinstance(value, list):
        return value
    return [
        {name: inner for name, inner in each.items() if name != "cache_control"} if isinstance(each, dict) else each
        for each in value
    ]
