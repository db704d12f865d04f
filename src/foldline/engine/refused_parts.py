"""Leaves out or changes the one part that a provider refused, so that a session is never stuck on one message.

A line takes the place of the part; the words around it stay, in the newest user message too. A place that the error
names comes first; otherwise the older parts of the kind go, and the newest only when the next request is refused as
well. A part that cannot be changed inside its message goes with the history around it, which becomes a digest.

No record of earlier tries is needed: each step takes something out, a step with nothing left to do gives way to the
next, and so the steps end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from foldline.codecs.blocks import source_of
from foldline.codecs.dialect import dialect_named
from foldline.codecs.openai_chat.roles import role_faults
from foldline.engine.engine import Engine
from foldline.failures.failure import PartKind, RefusedPart
from foldline.messages import Document, Image, Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from foldline.reducers.digest import FallbackDigest
from foldline.reducers.drop import DropGroups
from foldline.view.budget import Pressure
from foldline.view.tiles import Tile
from foldline.view.transcript import Entry, Fold
from foldline.view.view import REFUSED_PART

__all__ = ["leave_out", "leave_out_heavy"]

# A smaller part is not what makes a body too large: the smallest limit in use is 1 MB (nginx), and sixteen such parts
# fill it.
HEAVY_BYTES: Final = 65_536

_WHY: Final = {
    "unreadable": "it could not be read",
    "protected": "it is protected by a password",
    "pages": "it has too many pages",
    "size": "it is too large",
    "count": "there were too many",
    "unsupported": "it is not taken here",
}
_MEDIA_TYPES: Final = re.compile(r"image|video|audio|file|media|document|screenshot")
# The names of tools that every provider accepts (OpenAI API reference, "function.name": 64 of these characters).
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class _Shown:
    """An entry as it is shown, with its place among the messages of the request."""

    tile: Tile
    entry: Entry
    message: Message
    index: int


def leave_out(engine: Engine, refused: RefusedPart) -> str | None:
    """Change what is sent, as the refusal requires; a sentence about it, None when nothing is left to change.

    O(what is shown).
    """
    # One list for all steps: places in the error count the messages of the request that was refused, and a step that
    # changed something returns at once.
    shown = list(_shown(engine))
    for step in _STEPS[refused.kind]:
        sentence = step(engine, shown, refused)
        if sentence is not None:
            return sentence
    return None


def leave_out_heavy(engine: Engine) -> str | None:
    """Leave out images and documents of many bytes, the newest last; as `leave_out`. O(what is shown)."""

    def is_heavy(part: Part) -> bool:
        return isinstance(part, Image | Document) and part.size_bytes >= HEAVY_BYTES

    return _left_out(engine, list(_shown(engine)), RefusedPart("document", "size"), is_heavy)


def _shown(engine: Engine) -> Iterator[_Shown]:
    """Every entry that is shown by itself, not under a fold, with its place among the messages that are sent."""
    view = engine.view
    # Refusals count the messages of the request, where a message of ours may stand before the first one.
    index = 1 if view.has_lead else 0
    for tile in view.tiles:
        # By identity: `arrange` moves and merges messages, and hands on the very objects where it does neither.
        forms = {id(tile.form(entry)): entry for entry in tile.entries} if tile.fold is None else {}
        placed: set[int] = set()
        merged = index
        for at, message in enumerate(tile.messages):
            entry = forms.get(id(message))
            if entry is None:
                merged = index + at  # the results of a turn in one message
            else:
                placed.add(entry.seq)
                yield _Shown(tile, entry, message, index + at)
        for entry in forms.values():
            form = tile.form(entry)
            if entry.seq not in placed and form.agent_visible:
                yield _Shown(tile, entry, form, merged)
        index += len(tile.messages)


# --- images and documents ---------------------------------------------------------------------------------------------


def _is_image(part: Part) -> bool:
    return isinstance(part, Image) or (isinstance(part, Opaque) and _MEDIA_TYPES.search(part.type) is not None)


def _is_document(part: Part) -> bool:
    return isinstance(part, Document)


def _media(engine: Engine, shown: Sequence[_Shown], refused: RefusedPart) -> str | None:
    """Leave out images or documents, the newest last; the other kind where there is none of the named one."""
    # An error may name the wrong kind: where there is none of it, the other one is all that can be left out.
    kinds = (_is_image, _is_document) if refused.kind == "image" else (_is_document, _is_image)
    for is_kind in kinds:
        if (sentence := _left_out(engine, shown, refused, is_kind)) is not None:
            return sentence
    return None


def _left_out(
    engine: Engine, shown: Sequence[_Shown], refused: RefusedPart, is_kind: Callable[[Part], bool]
) -> str | None:
    found = [
        (each, path)
        for each in shown
        if each.message.role != "system"
        for path, part in _walk(each.message.parts)
        if is_kind(part)
    ]
    named = [(each, path) for each, path in found if refused.place and _is_at(each, path, refused.place)]
    if not named and refused.place:
        named = [(each, path) for each, path in found if each.index == refused.place[0]]
    # Without a place, the older ones go first: the newest is most likely what the user asks about.
    if named:
        found = named
    elif refused.most is not None and refused.why == "count" and len(found) > refused.most:
        found = found[: len(found) - refused.most]
    elif refused.why != "unsupported" and len(found) > 1:
        found = found[:-1]
    return _replaced(engine, found, refused)


def _result_media(engine: Engine, shown: Sequence[_Shown], refused: RefusedPart) -> str | None:
    """Leave out all but text in tool results: of the named message, else of failed results, else of all."""
    found = [
        (each, path, len(path) > 1 and _at(each.message.parts, path[:1]))
        for each in shown
        for path, part in _walk(each.message.parts)
        if len(path) > 1 and not isinstance(part, Text)
    ]
    # Without a reason, failed results go first: Anthropic takes only text in those, and all blocks in the others.
    here = [(each, path) for each, path, _ in found if refused.place and each.index == refused.place[0]]
    failed = [(each, path) for each, path, result in found if isinstance(result, ToolResult) and result.is_error]
    return _replaced(engine, here or (failed if not refused.why else []) or [(e, p) for e, p, _ in found], refused)


def _replaced(engine: Engine, found: Sequence[tuple[_Shown, tuple[int, ...]]], refused: RefusedPart) -> str | None:
    """Put a line in place of each part that was found."""
    why = _WHY.get(refused.why, "the provider refused it")
    count = 0
    for each in {id(each): each for each, _ in found}.values():
        paths = {path for other, path in found if other is each}
        lines = {path: _line(each.message, path, why) for path in paths}
        if _form(engine, each, _with_lines(each.message.parts, lines, ()), f"{refused.kind} refused: {why}"):
            count += len(paths)
    if not count:
        return None
    what = "A part was" if count == 1 else f"{count} parts were"
    return f"{what} left out of the request: {why}."


def _line(message: Message, path: tuple[int, ...], why: str) -> str:
    """The line in place of a part: what it was, by its name where it has one, and why it is gone."""
    part = _at(message.parts, path)
    source = source_of(part.raw)
    name = " ".join((source.name or source.url or source.file_id).split())[:120]
    if isinstance(part, Image):
        what = f"image{f' of {part.width}x{part.height}' if part.width else ''}"
    elif isinstance(part, Document):
        what = "document"
    else:
        what = part.type if isinstance(part, Opaque) else "part"
    return f"[{what}{f' {name}' if name else ''} removed: {why}]"


def _with_lines(parts: Sequence[Part], lines: dict[tuple[int, ...], str], before: tuple[int, ...]) -> tuple[Part, ...]:
    out: list[Part] = []
    for at, part in enumerate(parts):
        path = (*before, at)
        if path in lines:
            out.append(Text(lines[path]))
        elif isinstance(part, ToolResult) and any(key[: len(path)] == path for key in lines):
            out.append(replace(part, parts=_with_lines(part.parts, lines, path)))
        else:
            out.append(part)
    return tuple(out)


# --- reasoning, items, names ------------------------------------------------------------------------------------------


def _reasoning(engine: Engine, shown: Sequence[_Shown], refused: RefusedPart) -> str | None:
    """Leave out thinking whose signature was refused: of the named message, then all of it."""
    found = [each for each in shown if any(isinstance(part, Reasoning) for part in each.message.parts)]
    # The place is believed once: after a second refusal all thinking goes, since other signatures may be bad too.
    before = any(fold.reducer == REFUSED_PART and fold.reason == _REASONING for fold in engine.recorder.folds.values())
    named = [each for each in found if refused.place and each.index == refused.place[0] and not before]
    named = named or [each for each in found if refused.item_id and not before and _holds(each, refused.item_id)]
    count = 0
    for each in named or found:
        rest = tuple(part for part in each.message.parts if not isinstance(part, Reasoning))
        count += _form(engine, each, rest, _REASONING)
    return "Earlier thinking was left out of the request: the provider did not take it." if count else None


_REASONING: Final = "reasoning refused: its signature does not hold"


def _item(engine: Engine, shown: Sequence[_Shown], refused: RefusedPart) -> str | None:
    """Leave out an item that the server does not know under its id."""
    count = 0
    for each in shown:
        if refused.item_id and _holds(each, refused.item_id) and not (each.message.calls or each.message.results):
            texts = tuple(part for part in each.message.parts if isinstance(part, Text))
            count += _form(engine, each, texts, "item refused: it is not known under its id")
    return "An item that the provider does not know was left out of the request." if count else None


def _names(engine: Engine, shown: Sequence[_Shown], refused: RefusedPart) -> str | None:
    """Change names in calls that hold other characters, else those that no tool has; drop names of speakers."""
    # The call stays with another name: without it its result would be an orphan, and the work it did be lost.
    tools = _tool_names(engine)
    calls = [each for each in shown if each.message.calls]
    odd = [each for each in calls if any(not _NAME.fullmatch(call.name) for call in each.message.calls)]
    named = [each for each in calls if refused.place and each.index == refused.place[0]]
    count = 0
    for each in odd or named:
        parts = tuple(
            replace(part, name=_plain(part.name, tools)) if isinstance(part, ToolCall) else part
            for part in each.message.parts
        )
        count += _form(engine, each, parts, "name refused: it holds signs that are not taken")
    for each in shown:
        wire = each.message.wire
        if wire is not None and isinstance(wire.get("name"), str) and not (each.message.calls or each.message.results):
            bare = {key: value for key, value in wire.items() if key != "name"}
            count += _commit(engine, each, replace(each.message, wire=bare), "name refused: a speaker's")
    return "A name in an earlier message was changed: the provider did not take it." if count else None


def _tool_names(engine: Engine) -> frozenset[str]:
    # By a pattern over the JSON: the four dialects keep the name of a tool in four places, and a name too many does no
    # harm here.
    tools = engine.recorder.system_and_tools.tools
    tools = tools if isinstance(tools, list | tuple) else ()
    return frozenset(re.findall(r'"name": ?"([^"]{1,64})"', json.dumps(list(tools), default=str)))


def _plain(name: str, tools: frozenset[str]) -> str:
    """A name that every provider accepts; the name of an existing tool stays."""
    if not _NAME.fullmatch(name):
        return re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")[:48] or "unknown_tool"
    return name if name in tools else "unknown_tool"


# --- history ----------------------------------------------------------------------------------------------------------


def _in_turn(engine: Engine, shown: Sequence[_Shown], refused: RefusedPart) -> str | None:
    """Make roles alternate in this and all later requests: the server's chat template needs it."""
    del shown, refused
    if engine.outgoing.alternating or not dialect_named(engine.codec.dialect).alternates:
        return None
    if next(role_faults(engine.view.shown()), None) is None:
        return None
    engine.outgoing.alternating = True
    return "Roles are put in turn from now on: the server wants them to alternate."


def _system(engine: Engine, shown: Sequence[_Shown], refused: RefusedPart) -> str | None:
    """Send system text as user text in this and all later requests: the server's template has no system role."""
    del shown, refused
    preamble, outgoing = engine.recorder.system_and_tools, engine.outgoing
    has_system = (
        any(message.get("role") in ("system", "developer") for message in engine.view.shown()) or preamble.system
    )
    if not (has_system and outgoing.takes_system) or not dialect_named(engine.codec.dialect).alternates:
        return None
    engine.outgoing.alternating, engine.outgoing.takes_system = True, False
    return "System text is sent as words of the user from now on: the server has no role for it."


def _digest(engine: Engine, shown: Sequence[_Shown], refused: RefusedPart) -> str | None:
    """Fold the history into a digest, which holds no calls, ids or roles that could be refused."""
    del shown, refused
    # Signed as a refused part, the fold may cover what the provider itself has condensed or stored (`View.commit`).
    before = len(engine.recorder.changes)
    need = engine.need(Pressure.OVERFLOW, 0)
    reducers = (FallbackDigest(engine.policy.compactor, name=REFUSED_PART), DropGroups(keep_groups=0))
    for reducer in reducers:
        for move in list(reducer.propose(engine.view, replace(need, target_tokens=1))):
            if isinstance(move, Fold):
                engine.commit(move)
        if len(engine.recorder.changes) > before:
            return "Earlier messages were condensed: the provider did not take them as they were."
    return None


# --- inside -----------------------------------------------------------------------------------------------------------

# The steps of each kind, mildest first. Each is tried at every refusal: one that finds nothing to change gives way.
_Step = Callable[[Engine, Sequence[_Shown], RefusedPart], "str | None"]

_STEPS: Final[dict[PartKind, tuple[_Step, ...]]] = {
    "image": (_media,),
    "document": (_media,),
    "result_media": (_result_media, _media),
    "reasoning": (_reasoning, _digest),
    "item": (_item, _reasoning, _digest),
    "name": (_names, _digest),
    "call_id": (_digest,),
    "roles": (_in_turn, _digest),
    "system": (_system,),
    "empty": (_digest,),
    "pairs": (_digest,),
    "history": (_digest,),
}


def _walk(parts: Sequence[Part], before: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Part]]:
    """Every part with its path; the parts of a result follow it."""
    for at, part in enumerate(parts):
        yield (*before, at), part
        if isinstance(part, ToolResult):
            yield from _walk(part.parts, (*before, at))


def _at(parts: Sequence[Part], path: tuple[int, ...]) -> Part:
    part = parts[path[0]]
    return _at(part.parts, path[1:]) if isinstance(part, ToolResult) and len(path) > 1 else part


def _is_at(each: _Shown, path: tuple[int, ...], place: tuple[int, ...]) -> bool:
    """Whether a part is the named one, or inside it. In Chat a result is a message of its own."""
    if each.index != place[0]:
        return False
    rest = place[1:]
    return path[: len(rest)] == rest or (each.message.role == "tool" and path[1 : 1 + len(rest)] == rest)


def _holds(each: _Shown, item_id: str) -> bool:
    # Where an id stands differs by the type of the item: a search of its JSON finds it wherever that is.
    return item_id in json.dumps(each.message.wire, default=str) if each.message.wire is not None else False


def _form(engine: Engine, each: _Shown, parts: tuple[Part, ...], reason: str) -> bool:
    """Show an entry with other parts, or hide it when none is left; False where nothing changes."""
    if parts:
        return _commit(engine, each, engine.codec.revise(each.message, parts), reason)
    return _commit(engine, each, replace(each.message, agent_visible=False), reason)


def _commit(engine: Engine, each: _Shown, message: Message, reason: str) -> bool:
    """Commit another form of an entry. It may be larger than before: a line can be longer than the part it replaces."""
    view, seq = engine.view, each.entry.seq
    if message.agent_visible and engine.codec.write(message) == engine.codec.write(each.message):
        return False
    tokens = view.count(message)
    fold = Fold(start=seq, stop=seq + 1, shown=(message,), tokens=tokens, reducer=REFUSED_PART, reason=reason)
    return engine.commit(fold, again=True) is not None
