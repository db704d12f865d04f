"""The kind of work in a recorded session: figures are also given by group.

The mix of sessions decides every figure over all of them, so that it has to be seen through.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["UNKNOWN", "group_of"]

UNKNOWN: Final = "other"

# The first match in the source decides.
_KINDS: Final = (
    (
        "issue solving",
        re.compile(r"swe-?agent|swe[-_ ]?bench|openhands|multi_swe|agent-as-a-judge|devai", re.IGNORECASE),
    ),
    ("MCP servers", re.compile(r"mcp", re.IGNORECASE)),
    ("customer service", re.compile(r"tau2?-?bench", re.IGNORECASE)),
    ("chat", re.compile(r"memorybank|aider|chat", re.IGNORECASE)),
    ("coding", re.compile(r"claude.?code|codex|session-share|opencode|openagents|pi-mono", re.IGNORECASE)),
)


def group_of(source: str) -> str:
    """The group of a session by where it comes from: a kind of work, else the source's own name, else "other"."""
    for kind, pattern in _KINDS:
        if pattern.search(source):
            return kind
    return source.partition(" (")[0].strip() or UNKNOWN
