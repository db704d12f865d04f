"""What a client's harness puts beside a user's words: files of instructions, reminders, its environment, tool output.

A part of a message is read from its front. What a file or a tool says may close a tag and go on in the harness's or the
user's name; so nothing counts that follows such output in the same part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

__all__ = [
    "EARLIER",
    "RECORD_HEADER",
    "RULES_HEADER",
    "HarnessText",
    "Speaker",
    "carried_rules",
    "harness_texts",
    "is_withdrawal",
]

RULES_HEADER: Final = "[Standing rules, word for word: they hold until the user ends them]"
"""The line before the rules that a fold carries."""

RECORD_HEADER: Final = "[Record of the conversation so far]"
"""The first line of what stands in place of a summary where there is too little to summarise."""

EARLIER: Final = "earlier rules"
"""The name of rules that were read from such a list: the messages that they came from are not in this session."""

_BY_USER: Final = "- user: "

Speaker: TypeAlias = Literal["user", "file", "reminder", "setting"]
"""Whose a text is: a user's words, a file of instructions, a reminder, one field of an environment."""


@dataclass(frozen=True, slots=True)
class HarnessText:
    """A text with its speaker. Of two with the same name the newer one holds; `name` is "" for a user's words."""

    speaker: Speaker
    name: str
    text: str


# Codex: "# AGENTS.md instructions for /path", then <INSTRUCTIONS>; earlier versions <user_instructions>.
_AGENTS_HEAD: Final = re.compile(r"\s*# (AGENTS\.md|[\w.-]{1,40}\.md) instructions(?: for [^\n]{1,1000})?\n+(?=<)")
# At the start of a line, as harnesses write them: elsewhere a tag is a word of the user.
_TAG: Final = re.compile(r"(?m)(?:^|(?<=>))[ \t]*<([A-Za-z][\w:-]{0,60})(?:\s[^<>]{0,300})?>")
_INSTRUCTIONS: Final = frozenset({"user_instructions", "instructions", "agents_md", "project_instructions", "memory"})
_SETTINGS: Final = frozenset({"environment_context"})
_REMINDERS: Final = frozenset({"system-reminder", "system_reminder"})
_FIELD: Final = re.compile(r"<([a-z][a-z0-9_-]{0,40})>([^<>]{1,500})</\1>")
# Claude Code puts its memory files into one reminder, each under a line of this form.
_CONTENTS: Final = re.compile(r"(?m)^Contents of ([^\n]{1,1000}?)(?: \(([^\n()]{1,200})\))?:[ \t]*$")
_SECTION: Final = re.compile(r"(?m)^# ([a-z][A-Za-z]{2,40}(?:-[a-z]+)*)[ \t]*$")
_TRAILER: Final = re.compile(r"(?m)^[ \t]*IMPORTANT: this context may or may not be relevant")
# Reminders that carry what a tool or a file says.
_CARRIES: Final = re.compile(
    r"\s*(?:Called the \w+ tool|Result of calling|Note: [^\n]{1,1000} was (?:modified|changed|read)"
    r"|The user (?:opened|selected|has opened|has selected|viewed)|The (?:following )?files? |File "
    r"|Contents of the file|This is the (?:content|result)|[^\n]{0,200}(?:stdout|stderr|hook (?:error|blocking)"
    r"|diagnostic|background (?:bash|task|command|shell)))",
    re.IGNORECASE,
)
# Reminders about the moment, which the harness renews by itself.
_PASSING: Final = re.compile(
    r"\s*(?:[^\n]{0,160}(?:todo|task tools?|token usage|skills are available|agent types|deferred tools|mcp server"
    r"|today['’]s date|the date has changed|usd budget))",
    re.IGNORECASE,
)
_LEFT: Final = re.compile(r"exited (\w+) mode|(\w+) mode (?:is (?:off|over|no longer)|has ended)", re.IGNORECASE)
_MODE: Final = re.compile(r"\b(\w+) mode is (?:now |still )?active", re.IGNORECASE)

# Tool output that clients without tool messages put into a user's text.
_OUTPUT: Final = re.compile(
    r"\s*(?:\[[\w.-]{1,60}(?: for [^\]\n]{1,500})?\] Result:|(?:observation|tool (?:output|result)|command output"
    r"|output|stdout|stderr|result)\b[^\n:]{0,60}:|Called the \w+ tool\b"
    r"|Here (?:is|are) the (?:result|output|content))",
    re.IGNORECASE,
)


# Notes of ours and summaries of clients, sent back as a user's message: what tools said may stand in them as well.
_OURS: Final = re.compile(
    r"\s*\[(?:Digest of |Previous conversation summary\]|\d+ earlier messages omitted\]|conversation truncated"
    r"|Standing rules,|Record of the conversation so far\])"
)
_SUMMARISED: Final = re.compile(
    r"\s*(?:This session is being continued from a previous conversation|Another language model started to solve"
    r"|<(?:conversation_)?summary>|\[?(?:conversation|context) summary\b)",
    re.IGNORECASE,
)


def carried_rules(text: str) -> Iterator[HarnessText]:
    """The list of rules in a note of ours. O(size)."""
    before, header, rules = text.partition(f"{RULES_HEADER}\n")
    # At the start of a line only: inside a digest a tool's words never stand there. Other notes quote results as such.
    if header and (not before or before.endswith("\n")) and _OURS.match(text):
        rest: list[str] = []
        for line in rules.replace(f"- {EARLIER}:\n", "").split("\n"):
            # A sentence of the user is that again, so that the user can take it back. A heading has its list below it,
            # which cannot be told from what follows.
            if (said := line.removeprefix(_BY_USER)) == line or said.endswith((":", "：")):
                rest.append(line)
            else:
                yield HarnessText("user", "", said)
        if "".join(rest).strip():
            yield HarnessText("file", EARLIER, "\n".join(rest).strip("\n"))


def harness_texts(text: str) -> Iterator[HarnessText]:
    """The texts in one part of a user's message, in order, up to the first that a tool or a file may have written.

    O(size).
    """
    if _OURS.match(text):
        yield from carried_rules(text)
        return
    if _SUMMARISED.match(text):
        return
    if "<" not in text:
        yield from (_said(text) if not _OUTPUT.match(text) else ())
        return
    at, words = 0, ""
    for _ in range(_MOST_TAGS):
        if at >= len(text):
            break
        head = _AGENTS_HEAD.match(text, at) if not words.strip() else None
        begin = _TAG.search(text, head.end() if head is not None else at)
        if head is not None and begin is not None and begin.start() != head.end():
            head = None
        start = begin.start() if begin is not None else len(text)
        if head is None:
            words += text[at:start]
        if begin is None:
            break
        name, stop = begin[1].lower(), text.find(f"</{begin[1]}>", begin.end())
        if stop < 0:
            if _DATA.match(name):
                break  # cut off: all that follows may be what it quotes
            words, at = words + begin[0], begin.end()
            continue
        if not _OUTPUT.match(words):
            yield from _said(words)
        else:
            return
        words = ""
        inner = text[begin.end() : stop]
        if name in _INSTRUCTIONS:
            yield HarnessText("file", head[1] if head is not None else _NAMES.get(name, name), inner.strip("\n"))
        elif name in _SETTINGS:
            yield from _settings(name, inner)
        elif name in _REMINDERS:
            if _CARRIES.match(inner):
                return
            yield from _reminded(inner)
        elif _is_data(name):
            return
        else:
            words = text[begin.start() : stop + len(begin[1]) + 3]  # a word in angle brackets
        at = stop + len(begin[1]) + 3
    if not _OUTPUT.match(words):
        yield from _said(words)


# Tags that are looked at in one part: text with more of them is data.
_MOST_TAGS: Final = 400

_NAMES: Final = {"user_instructions": "AGENTS.md", "instructions": "AGENTS.md", "agents_md": "AGENTS.md"}
# What clients wrap: names of several words, and the plain ones for files and output. Tags of HTML are words.
_DATA: Final = re.compile(
    r"^(?:file|files|document|documents|output|stdout|stderr|result|results|content|contents|returncode|response"
    r"|search|page|web|url|diff|patch|log|logs|error|attachment|context|tool|code|source|data|text|quote|email)$"
)


def _is_data(name: str) -> bool:
    return any(mark in name for mark in "_:-") or _DATA.match(name) is not None


def _said(words: str) -> Iterator[HarnessText]:
    if words.strip():
        yield HarnessText("user", "", words)


def _settings(name: str, inner: str) -> Iterator[HarnessText]:
    # Field by field: later versions send only the fields that have changed.
    for found in _FIELD.finditer(inner):
        yield HarnessText("setting", f"{name}.{found[1]}", found[0])


def _reminded(inner: str) -> Iterator[HarnessText]:
    files = list(_CONTENTS.finditer(inner))
    if files:
        ends = [*(found.start() for found in files[1:]), len(inner)]
        for found, stop in zip(files, ends, strict=True):
            body = inner[found.end() : stop]
            # After the last file other sections follow ("# currentDate"); a file may have headings of its own, so that
            # only those in one word that begins small count.
            if stop == len(inner):
                cuts = [cut.start() for sign in (_SECTION, _TRAILER) if (cut := sign.search(body)) is not None]
                body = body[: min(cuts)] if cuts else body
            yield HarnessText("file", found[1].strip(), body.strip("\n").rstrip())
        rest = inner[files[-1].end() :]
        yield from _sections(rest)
    elif _SECTION.search(inner):
        yield from _sections(inner)
    elif not _PASSING.match(inner):
        yield HarnessText("reminder", _reminder_name(inner), inner.strip())


# Sections of the first reminder that say how things stand, and no rule.
_STATES: Final = frozenset({"claudeMd", "currentDate", "gitStatus", "directoryStructure", "userEmail"})


def _sections(text: str) -> Iterator[HarnessText]:
    found = list(_SECTION.finditer(text))
    for at, head in enumerate(found):
        stop = found[at + 1].start() if at + 1 < len(found) else len(text)
        body = text[head.end() : stop]
        cut = _TRAILER.search(body)
        body = (body if cut is None else body[: cut.start()]).strip()
        if head[1] not in _STATES and body:
            yield HarnessText("reminder", head[1], body)


def _reminder_name(inner: str) -> str:
    """A name under which a later reminder of the same kind replaces this one."""
    for sign in (_MODE, _LEFT):
        if (found := sign.search(inner)) is not None:
            return f"{next(filter(None, found.groups())).lower()} mode"
    first = inner.strip().split("\n", 1)[0]
    return " ".join(re.sub(r"[\d\W_]+", " ", first).lower().split())[:60]


def is_withdrawal(text: HarnessText) -> bool:
    """Whether a reminder says that a mode is over: nothing of it holds then. O(size)."""
    return text.speaker == "reminder" and _LEFT.search(text.text) is not None
