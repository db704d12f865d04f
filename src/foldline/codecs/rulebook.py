"""The rules of the dialects: what a rule is, and what the checks of all dialects share.

The table of a dialect (`foldline.codecs.<dialect>.rules`) has the strictest widely used server of that dialect: where
OpenAI accepts what vLLM, Mistral or Moonshot refuse, their rule is in it. Only what providers document or answer with
an error is a rule. Checks read JSON that may be anything: they note junk and never raise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from foldline.codecs.blocks import field_in, mend_content, read_block, read_content
from foldline.codecs.limits import Amounts, Caps, Limits, tool_names
from foldline.codecs.media import amounts_of, mend_media
from foldline.messages import Json, Part, ToolResult

__all__ = [
    "Findings",
    "Rule",
    "Violation",
    "check_amounts",
    "check_call_id",
    "check_call_name",
    "check_content",
    "check_media",
    "check_tools",
    "is_blank",
    "quoted",
    "read_role",
    "table_of",
]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its id, the sentence that must hold, the document it comes from.

    `alone` is true if a message keeps or breaks the rule by itself, whatever surrounds it.
    """

    id: str
    sentence: str
    source: str
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Violation:
    """One reason for which a provider would refuse the request; `index` is the message, None for the whole."""

    index: int | None
    rule: str
    detail: str
    source: str

    def __str__(self) -> str:
        where = "request" if self.index is None else f"message {self.index}"
        return f"{where}: {self.detail} [{self.rule}; {self.source}]"


@dataclass(slots=True)
class Findings:
    """Collects the violations of one request by the rules and limits of its dialect."""

    rules: Mapping[str, Rule]
    limits: Limits
    found: list[Violation] = field(default_factory=list)

    def add(self, index: int | None, rule: str, detail: str = "") -> None:
        """Note that message `index` breaks `rule`. Without a detail, the violation gets the sentence of the rule."""
        broken = self.rules[rule]
        self.found.append(Violation(index, rule, detail or broken.sentence, broken.source))


_JSON = "RFC 8259, section 8.1: JSON between systems is UTF-8"


def table_of(source: str, *own: Rule) -> dict[str, Rule]:
    """Return the rules of a dialect by id: those of all dialects, which cite `source`, and its own."""
    shared = (
        Rule("empty-request", "A request has at least one message.", source),
        Rule("object", "A message is a JSON object with a role or a type.", source, alone=True),
        Rule("encoding", "A request travels as UTF-8 JSON: no lone surrogates, no NaN.", _JSON, alone=True),
        Rule("role", "A role is one of those that the API names.", source, alone=True),
        Rule("content", "Content is text or a list of blocks, each an object with a type.", source, alone=True),
        Rule("call-shape", "A call has an id and names a tool; a result names its call.", source, alone=True),
    )
    return {rule.id: rule for rule in (*shared, *own)}


# --- checks of all dialects -----------------------------------------------------------------------------------------

# Characters of a long name or id in a finding.
_SHOWN_CHARS: Final = 48


def is_blank(block: Mapping[str, Any]) -> bool:
    """Whether a block is a text without visible text. O(its length)."""
    text = block.get("text")
    return block.get("type") == "text" and (text is None or (isinstance(text, str) and not text.strip()))


def check_content(found: Findings, index: int, content: Json) -> None:
    """Note why content is neither text nor a list of valid blocks. O(blocks)."""
    # The mending finds the faults, so that checking and mending cannot disagree.
    faults: list[str] = []
    mend_content(content, "text", faults)
    for fault in faults:
        found.add(index, "content", fault.partition(";")[0])


def read_role(found: Findings, index: int, wire: Json, known: Mapping[str, Any]) -> str | None:
    """Return the role of a message; None if it is no object with a role, which is noted."""
    role = wire.get("role") if isinstance(wire, Mapping) else None
    if not isinstance(role, str) or not role:
        found.add(index, "object")
        return None
    # Noted, but returned all the same: the other rules of the message are still worth checking.
    if role not in known:
        found.add(index, "role", f"unknown role {role!r}")
    return role


def quoted(ids: set[str]) -> str:
    """Return the ids in quotes, sorted, for a sentence."""
    return ", ".join(map(repr, sorted(ids)))


def check_call_name(found: Findings, index: int, name: str) -> None:
    """Note the name of a call that no tool can have. O(its length)."""
    if found.limits.call_name(name) != name:
        why = _why(name, found.limits.call_name_chars)
        found.add(index, "call-name", f"no tool can have the name {_brief(name)} of a call: {why}")


def check_call_id(found: Findings, index: int, call_id: str) -> None:
    """Note the id of a call if it is too long. O(its length)."""
    if found.limits.call_id(call_id) != call_id:
        found.add(index, "call-id-length", f"the id {_brief(call_id)} of a call has {len(call_id)} characters")


def check_tools(found: Findings, tools: Json) -> None:
    """Note the tools whose names are not accepted. O(tools)."""
    for name in tool_names(tools):
        if found.limits.tool_name(name) != name:
            why = _why(name, found.limits.tool_name_chars)
            found.add(None, "tool-name", f"no tool can have the name {_brief(name)}: {why}")


def check_media(found: Findings, index: int, content: Json, text_type: str) -> None:
    """Note the images and files of a list of blocks that would be refused. O(blocks)."""
    faults: list[str] = []
    for block in content if isinstance(content, list | tuple) else ():
        if isinstance(block, Mapping):
            mend_media(block, found.limits, text_type, faults)
    for fault in faults:
        found.add(index, "image", fault.partition("; ")[0])


def check_amounts(found: Findings, caps: Caps, contents: Iterable[Json]) -> None:
    """Note the amounts of a request, over all `contents`, that exceed the limits of the provider. O(size)."""
    held = Amounts()
    for content in contents:
        held += amounts_of(read_content(content, _read_any))
    for name, number, most in caps.over(held):
        found.add(None, "amount", f"the request holds {number:,} {name}, {most:,} are taken")


def _read_any(block: Json) -> Part:
    # Images inside results count as well. Calls hold none, so no codec is needed to count.
    if isinstance(block, Mapping) and block.get("type") == "tool_result":
        return ToolResult("", read_content(block.get("content"), _read_any), raw=block)
    if isinstance(block, Mapping) and isinstance(inner := field_in(block, "functionResponse"), Mapping):
        return ToolResult("", read_content(inner.get("parts")), raw=block)
    return read_block(block)


def _brief(name: str) -> str:
    return repr(name if len(name) <= _SHOWN_CHARS else f"{name[:_SHOWN_CHARS]}...")


def _why(name: str, most: int) -> str:
    return f"it has {len(name)} characters, {most} are taken" if len(name) > most else "only letters, digits, _ and -"
