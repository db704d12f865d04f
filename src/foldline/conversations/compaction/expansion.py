"""What a block or an item of ours says, put into the messages of a request in place of what it covers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from foldline.codecs import codec
from foldline.conversations.compaction.condense import summary_note
from foldline.conversations.compaction.seals import Seal
from foldline.conversations.request_body import RequestBody, to_json
from foldline.messages import Json, Wire
from foldline.view.rendering import UNDERSTOOD

__all__ = ["Expanded", "messages_of", "rewritten"]

_NEAR: Final = 8

# Fields of a message that say nothing to the model, and may differ where a client sends it again.
_ASIDE: Final = frozenset({"cache_control", "id", "status"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Expanded:
    """The messages of a request without blocks and items of ours.

    `summaries` are the positions of messages that show a summary, `dropped` the messages that these cover. `signed`
    says that a block of a request for compaction was among them.
    """

    messages: list[Wire]
    summaries: frozenset[int] = frozenset()
    dropped: tuple[Wire, ...] = ()
    signed: bool = False
    changed: bool = False


def messages_of(
    dialect: str, seal: Seal, following: Sequence[Wire], cache_control: Json = None
) -> tuple[list[Wire], int]:
    """Return the messages that a seal stands for, and the position of the summary among them.

    What its client sends again in `following` is not shown twice.
    """
    shown = _not_repeated(seal.shown, following)
    reader, out, at = codec(dialect), list[Wire](), 0
    for index, wire in enumerate(shown):
        if wire is not None:
            out.append(dict(wire))
            continue
        at = len(out)
        note = dict(reader.write(summary_note(dialect, seal.summary)))
        if cache_control is not None:
            note["content"] = [{"type": "text", "text": note["content"], "cache_control": cache_control}]
        out.append(note)
        after = [*shown[index + 1 :], *following][:1]
        if after and after[0] is not None and after[0].get("role") == "user" and not _has_results(after[0]):
            # Some chat templates need roles that alternate.
            out.append(reader.write(reader.note(UNDERSTOOD, role="assistant")))
    return out, at


def _not_repeated(
    shown: Sequence[Mapping[str, Json] | None], following: Sequence[Wire]
) -> Sequence[Mapping[str, Json] | None]:
    # A client puts them right behind the block; what comes later is new.
    again = {to_json(_bare(wire)) for wire in following[: len(shown) + _NEAR]} if len(shown) > 1 else set()
    if not again:
        return shown
    at = shown.index(None)
    before, after = shown[:at], shown[at + 1 :]
    # A group of calls and results stays whole: either all of it is sent again, or it is shown.
    if after and all(wire is not None and to_json(_bare(wire)) in again for wire in after):
        after = ()
    if any(wire is not None and wire.get("role") != "assistant" and to_json(_bare(wire)) in again for wire in before):
        before = ()
    return (*before, None, *after)


def _bare(wire: Mapping[str, Any]) -> dict[str, Json]:
    """Return a message as it is compared: text as a list of blocks, without fields that may differ."""
    content = wire.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if isinstance(blocks, list):
        blocks = [_bare_block(block) if isinstance(block, Mapping) else block for block in blocks]
    rest = {name: value for name, value in wire.items() if name not in _ASIDE and (name, value) != ("type", "message")}
    return {**rest, "content": blocks}


def _bare_block(block: Mapping[str, Any]) -> dict[str, Json]:
    kept = {name: value for name, value in block.items() if name not in _ASIDE and value is not None}
    return {**kept, "type": "text"} if kept.get("type") in ("input_text", "output_text") else kept


def _has_results(wire: Mapping[str, Any]) -> bool:
    content = wire.get("content")
    blocks = content if isinstance(content, list) else []
    return any(isinstance(block, Mapping) and block.get("type") == "tool_result" for block in blocks)


def rewritten(body: RequestBody, messages: Sequence[Wire], without: Sequence[str]) -> bytes:
    """Return a body with other messages and without some fields; all else is the client's own text. O(size)."""
    own = {id(wire): at for at, wire in enumerate(body.messages)} if body.item_spans else {}
    texts = [body.item(own[id(wire)]) if id(wire) in own else to_json(wire) for wire in messages]
    fields = [
        f"{to_json(name)}:" + (f"[{','.join(texts)}]" if name == body.form.messages else body.text[start:stop])
        for name, (start, stop) in body.spans.items()
        if name not in without
    ]
    return f"{{{','.join(fields)}}}".encode("utf-8", "surrogatepass")
