"""The calls of a session that have no result yet, and the notes that report a result which came too late.

Several open calls may share an id (some servers give all parallel calls the same one, or none): the results of a turn
answer its calls in order, and a later turn is answered before an earlier one.

A late result must not get lost: it is the newest thing there is. Its call is no longer shown, so a note of ours reports
it, in the user's role. Each of its lines is marked as quoted, so that none reads like words of ours or of the user.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from foldline.codecs.base import Codec
from foldline.codecs.encoding import NO_IDS, json_text
from foldline.codecs.gemini.parts import POSITIONAL
from foldline.messages import Document, Image, Message, Opaque, Part, Text, ToolCall, ToolResult
from foldline.view.transcript import Seq

__all__ = [
    "OpenCall",
    "OpenCalls",
    "RememberedCall",
    "free_name",
    "late_answer_note",
    "late_result_note",
    "remembered_call",
]

_NAME_CHARS: Final = 200
# How much of a call is remembered for a late result: enough for the model to recognise it.
_ARGUMENTS_CHARS: Final = 2_000

# The longest id that all providers take: the limit of `tool_calls[].id` in Chat Completions ("string too long. Expected
# a string with maximum length 40"); the `call_id` of Responses may have 64.
_ID_CHARS: Final = 40

# The only form of an id that Mistral's API takes (its error: "must be a-z, A-Z, 0-9, with a length of 9").
_MISTRAL_ID: Final = re.compile(r"[a-zA-Z0-9]{9}")


@dataclass(frozen=True, slots=True)
class RememberedCall:
    """The name and arguments of a call, for the note about a late result."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call without a result: `id` as it came in, `name` the id that it is sent under."""

    id: str
    name: str
    group: Seq
    called: RememberedCall


def remembered_call(part: ToolCall | Opaque) -> RememberedCall:
    """What to remember of a call, or of a block that opens a pair."""
    if isinstance(part, ToolCall):
        return RememberedCall(part.name[:_NAME_CHARS], part.arguments[:_ARGUMENTS_CHARS])
    raw = part.raw if isinstance(part.raw, Mapping) else {}
    name = raw.get("name")
    value = next((raw[key] for key in ("input", "arguments", "code") if raw.get(key)), "")
    arguments = value if isinstance(value, str) else json_text(value)
    return RememberedCall(
        (name if isinstance(name, str) and name else part.type)[:_NAME_CHARS], arguments[:_ARGUMENTS_CHARS]
    )


def free_name(call_id: str, times: int, taken: Callable[[str], bool]) -> str:
    """An unused id for the `times`-th call with this one, of at most 40 characters, so that every provider takes it."""
    mistral = _MISTRAL_ID.fullmatch(call_id) is not None
    while True:
        end = str(times) if mistral else f"-{times}"
        name = call_id[: (9 if mistral else _ID_CHARS) - len(end)] + end
        if not taken(name):
            return name
        times += 1


_MOST_PLACES: Final = 32
"""Results of one name and without ids that may come in as many messages as there are results."""


def _waits_under(call_id: str) -> Iterable[str]:
    """The ids under which the call of a result may wait.

    A result of Gemini that names no call has the place it has in its own message: one in a message of its own is the
    first there, and answers the first call of its name that waits.
    """
    if call_id in NO_IDS:
        return (call_id, *NO_IDS)
    if not call_id.startswith(POSITIONAL):
        return (call_id,)
    name = call_id.rpartition(":")[0] if _PLACE.search(call_id) else call_id
    return (call_id, name, *(f"{name}:{place}" for place in range(2, _MOST_PLACES)))


_PLACE: Final = re.compile(r":\d+$")


@dataclass(slots=True)
class OpenCalls:
    """The open calls. Each method is O(1), but `waits` O(open groups) and `remove_groups` O(open calls)."""

    # By id, then by group (the latest last), then by the id that is sent, in the order in which they came: dicts keep
    # it, so that the first call of the latest group is found without a search.
    _by_id: dict[str, dict[Seq, dict[str, OpenCall]]] = field(default_factory=dict)
    _by_name: dict[str, OpenCall] = field(default_factory=dict)
    # How many calls wait in each group.
    _groups: dict[Seq, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(self._groups.values())

    def __contains__(self, group: Seq) -> bool:
        """Whether a group has an open call."""
        return group in self._groups

    def add(self, call: OpenCall) -> None:
        """Register a call. It replaces one of its group that is sent under the same id."""
        if call.id in self._by_id:
            self.remove(call)
        self._by_id.setdefault(call.id, {}).setdefault(call.group, {})[call.name] = call
        self._by_name[call.name] = call
        self._groups[call.group] = self._groups.get(call.group, 0) + 1

    def find(self, call_id: str) -> OpenCall | None:
        """The call that a result with this id answers: the first one in the latest group that has this id.

        The id may also be the one the call was sent under: a client that read the repaired history uses that. And a
        result may leave its id empty in another way than its call did (null, "" or absent).
        """
        for name in _waits_under(call_id):
            if groups := self._by_id.get(name):
                return next(iter(groups[next(reversed(groups))].values()))
        return self._by_name.get(call_id)

    def remove(self, call: OpenCall) -> None:
        """Forget a call. Does nothing when it is not open."""
        group = call.group
        groups = self._by_id.get(call.id)
        calls = None if groups is None else groups.get(group)
        if groups is None or calls is None or calls.pop(call.name, None) is None:
            return
        if not calls:
            del groups[group]
        if not groups:
            del self._by_id[call.id]
        named = self._by_name.get(call.name)
        if named is call or named == call:
            del self._by_name[call.name]
        if self._groups[group] == 1:
            del self._groups[group]
        else:
            self._groups[group] -= 1

    def waits(self, start: Seq) -> bool:
        """Whether a group that began at `start` or later has an open call."""
        return max(self._groups, default=-1) >= start

    def remove_groups(self, left: Callable[[Seq], bool]) -> list[OpenCall]:
        """Forget the calls of some groups; returns them, oldest first."""
        # Most calls of this find nothing to remove, and open groups are a handful: they are asked first.
        if not any(map(left, self._groups)):
            return []
        calls = [call for groups in self._by_id.values() for group in groups.values() for call in group.values()]
        gone = sorted((call for call in calls if left(call.group)), key=lambda call: call.group)
        for call in gone:
            self.remove(call)
        return gone


# Everything that a reader may take for the end of a line: a quoted text must not begin a line of its own with any.
_BREAKS: Final = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")

# As mail and Markdown quote: models know that what stands behind it is somebody else's.
_QUOTE: Final = "> "
# Pictures and files that a user message may hold as the result did.
_SHOWN_TYPES: Final = frozenset({"image", "document", "image_url", "file", "input_image", "input_file"})


def late_result_note(codec: Codec, called: RememberedCall, result: ToolResult) -> Message:
    """A user message of ours with a result and its call in words; pictures and files are sent with it."""
    # In the user's role: no dialect lets a tool speak whose call is not shown.
    beside = [part for part in result.parts if _may_stand(part)]
    words = "\n".join(_words(part) for part in result.parts if not _may_stand(part))
    text = _note_text("failed" if result.is_error else "has its result", called, words)
    message = codec.note(text)
    return codec.revise(message, [*message.parts, *beside]) if beside else message


def late_answer_note(codec: Codec, called: RememberedCall, answer: Opaque) -> Message:
    """A user message of ours with the answer to the opening half of a pair: a result, or a user's approval."""
    raw = answer.raw if isinstance(answer.raw, Mapping) else {}
    approves = raw.get("approve")
    if isinstance(approves, bool):
        reason = raw.get("reason")
        words = reason if isinstance(reason, str) else ""
        return codec.note(_note_text(f"was {'approved' if approves else 'refused'} by the user", called, words))
    return codec.note(_note_text("has its result", called, _words(answer)))


def _note_text(what: str, called: RememberedCall, words: str) -> str:
    call = _quoted(f"{called.name} {called.arguments}".strip())
    lines = [f"[An earlier call {what}. The call was:]", call]
    if words:
        lines += [
            "[What came, as a tool gave it:]" if "by the user" not in what else "[The reason given:]",
            _quoted(words),
        ]
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return "\n".join(_QUOTE + line for line in _BREAKS.split(text))


def _may_stand(part: Part) -> bool:
    raw = part.raw if isinstance(part, Image | Document) else None
    return isinstance(raw, Mapping) and raw.get("type") in _SHOWN_TYPES


def _words(part: Part) -> str:
    """A part in words: its text, else its kind (pictures, files), else its JSON without ids."""
    if isinstance(part, Text | Document | Opaque) and (text := part.text):
        return text
    if isinstance(part, Image | Document):
        return f"(a {type(part).__name__.lower()})"
    raw = part.raw
    if isinstance(raw, Mapping):
        fields = {key: value for key, value in raw.items() if key not in {"type", "id", "tool_use_id", "call_id"}}
        return json_text(fields)
    return ""
