"""The project's own instructions: AGENTS.md in the working folder, as part of the system text of its agent.

The file may have come with a cloned repository. It is read through the workspace, which follows no link out of the
folder, and only its text counts: it can name no tool and set no setting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from foldline.agent.tools.files.file_text import decoded
from foldline.agent.tools.workspace import Workspace
from foldline.errors import InvalidInput
from foldline.text.standing import rule_lines
from foldline.tokens import Counter
from foldline.view.standing_rules import StandingRule

__all__ = ["INSTRUCTIONS_SHARE", "instructions_text", "project_instructions"]

INSTRUCTIONS_SHARE: Final = 0.1
"""The share of the window that the file may take. It is sent with every request, and no fold can shorten it."""

# Read at most: Codex, which reads such files too, stops at 32 KiB (`project_doc_max_bytes`).
_MOST_BYTES: Final = 64 * 1024


def project_instructions(
    workspace: Workspace, name: str | None, window_tokens: int, counter: Counter, tell: Callable[[str], None]
) -> StandingRule | None:
    """The instructions in a file of the working folder; None without one, for an empty one, and where `name` is None.

    One that is too large is kept by its lines that read as rules. `tell` is told of that, and of a file that cannot be
    read. O(its size).
    """
    if name is None:
        return None
    try:
        if workspace.find(name).status is None:
            return None
        with workspace.open(name) as (file, _):
            data = file.read(_MOST_BYTES + 1)
        text = decoded(data[:_MOST_BYTES], name).text.strip()
    except (InvalidInput, OSError) as error:
        tell(f"{name} is left out: {error.reason if isinstance(error, InvalidInput) else error.strerror}")
        return None
    if not text:
        return None
    room_tokens = int(INSTRUCTIONS_SHARE * window_tokens)
    tokens = counter.text(text)
    if tokens <= room_tokens and len(data) <= _MOST_BYTES:
        return StandingRule(text, name, -1, tokens)
    lines, left = [], room_tokens
    for line in rule_lines(text):
        size = counter.text(line) + 1
        if size <= left:
            lines.append(line)
            left -= size
    size_text = f"{tokens:,} tokens" if len(data) <= _MOST_BYTES else f"more than {_MOST_BYTES // 1024} KiB"
    tell(f"{name} has {size_text}, more than {room_tokens:,}: {len(lines)} of its lines, its rules, are kept")
    return StandingRule("\n".join(lines), name, -1, room_tokens - left, whole=False) if lines else None


def instructions_text(system: str, found: StandingRule | None) -> str:
    """The system text with the project's instructions behind it."""
    if found is None:
        return system
    part = "" if found.whole else f", the lines of it that are rules; read_file shows all of {found.source}"
    head = f"Instructions of this project, from {found.source}{part}. They hold unless the user says otherwise."
    return f"{system}\n\n{head}\n<instructions>\n{found.text}\n</instructions>"
