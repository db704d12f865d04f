"""Which messages are a user's own words, and which texts in them a client added by itself.

The newest words of a user must stay in view. So a wrong answer here either folds the user's request, or protects what a
client adds to every request by itself.
"""

from __future__ import annotations

import re

from foldline.codecs.base import Codec
from foldline.messages import Message, Opaque, Part, Text, ToolResult

__all__ = ["asks", "is_injected", "keeps_user_words", "own_words", "speaks", "words_of"]


def speaks(message: Message) -> bool:
    """Whether a message holds a user's own words: anything but results, approvals and texts of the client."""
    # A kind marks what we wrote in the user's role: notices and summaries are nobody's words.
    return message.role == "user" and message.agent_visible and not message.kind and any(map(_is_own, message.parts))


def asks(message: Message) -> bool:
    """Whether a message may stand for a user's words while there are none: a client wrote all of the session."""
    return message.role == "user" and message.agent_visible and not message.kind and bool(own_words(message))


def words_of(codec: Codec, message: Message) -> Message:
    """A message of the user without the results in it: the same one where there are none."""
    if not message.results:
        return message
    return codec.revise(message, [part for part in message.parts if not isinstance(part, ToolResult)])


def _is_own(part: Part) -> bool:
    if isinstance(part, Text):
        return not is_injected(part.text)
    return not (isinstance(part, ToolResult) or (isinstance(part, Opaque) and part.answers))


# Texts that clients put beside a user's words or after results: Claude Code <system-reminder>, Cline
# <environment_details>, Codex <environment_context>, IDE extensions <ide_selection>; others "[SYSTEM NOTE] ...".
_ELEMENT = re.compile(r"<([a-z][a-z0-9]*[-_][a-z0-9_-]{1,40})(?:\s[^<>]{0,200})?>", re.IGNORECASE)
_ABOUT = re.compile(r"remind|system|environment|context|notif|notice|ide_|hook|todo|status|instructions", re.IGNORECASE)
# Codex heads a file of instructions with a line, before one element.
_HEAD = re.compile(r"# [\w.-]{1,40}\.md instructions(?: for [^\n]{1,1000})?\n+(?=<INSTRUCTIONS>)")
_NOTE = re.compile(
    r"\[\s{0,4}(?:(?:automated|automatic|internal|hidden)\s)?(?:system|reminder|hook|automated)\b[^\]\n]{0,80}\]",
    re.IGNORECASE,
)


def is_injected(text: str) -> bool:
    """Whether a client added this text by itself: elements such as <system-reminder>, or a bracketed note. O(size)."""
    rest = text.strip()
    if _NOTE.match(rest):
        return True
    if _HEAD.match(rest):
        return rest.endswith("</INSTRUCTIONS>")
    if not rest.startswith("<"):
        return False
    while rest:
        # Words after the last element are the user's: clients put reminders before what a user typed.
        begin = _ELEMENT.match(rest)
        if begin is None or not _ABOUT.search(begin[1]):
            return False
        end = rest.find(f"</{begin[1]}>", begin.end())
        if end < 0:
            return False
        rest = rest[end + len(begin[1]) + 3 :].lstrip()
    return True


def own_words(message: Message) -> list[Part]:
    """The parts of a message that are no tool results."""
    return [part for part in message.parts if not isinstance(part, ToolResult)]


def keeps_user_words(old: Message, new: Message, *, parts_refused: bool) -> bool:
    """Whether `new` keeps all of the user's own parts of `old`; with `parts_refused` only the texts are required."""
    # Results beside the words are left out of the comparison: they may be shortened, as anywhere else.
    before, after = own_words(old), own_words(new)
    if not parts_refused or not new.agent_visible:
        return before == after
    texts = [part.text for part in after if isinstance(part, Text)]
    return all(part.text in texts for part in before if isinstance(part, Text))
