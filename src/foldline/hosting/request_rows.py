"""The rows of the next request: each message the model is shown, and the tokens of each part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from foldline.codecs import codec as codec_for
from foldline.engine.context import Context
from foldline.messages import Json, Message
from foldline.tokens import system_tokens, tools_tokens
from foldline.view.view import LEAD

__all__ = ["RequestRow", "parts_of", "rows_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """A message of the next request, and the session messages [start, stop) that it stands for (-1: none).

    `fold` is the id of the fold that made it, None for an unchanged message.
    """

    start: int
    stop: int
    tokens: int
    message: Message
    mark: str
    """As in `foldline sessions show`: "-" stands for folded messages, "~" marks a shortened one."""
    fold: int | None = None
    state: str = "shown"
    """"shown", "shortened", "pinned" or "repaired". A message that stands for others is "shown"."""


def rows_of(context: Context) -> Iterator[RequestRow]:
    """Yield each message of the next request, in order. Changes nothing. O(shown)."""
    view = context.view
    if view.has_lead:  # a first user message that is supplied
        yield RequestRow(
            start=-1, stop=0, tokens=view.lead_tokens, message=codec_for(context.dialect).note(LEAD), mark=" "
        )
    for tile in view.tiles:
        repaired = {repair.seq for repair in tile.repairs}
        for message, tokens in zip(tile.messages, tile.weights, strict=True):
            # A tile shows originals, shortened forms and repairs side by side; only identity tells which entry a
            # message is.
            found = next((entry for entry in tile.entries if tile.form(entry) is message), None)
            start, stop = (tile.start, tile.stop) if found is None else (found.seq, found.seq + 1)
            form = None if found is None else tile.forms.get(found.seq)
            fold = tile.fold or form
            state = "shortened" if form is not None else "pinned" if tile.pinned else "shown"
            if state == "shown" and tile.fold is None and (found is None or found.seq in repaired):
                state = "repaired"
            yield RequestRow(
                start=start,
                stop=stop,
                tokens=tokens,
                message=message,
                mark="-" if tile.fold is not None else "~" if form is not None else " ",
                fold=None if fold is None else fold.id,
                state=state,
            )


def parts_of(rows: Iterable[RequestRow], system: Json, tools: Json) -> dict[str, int]:
    """Count the tokens of each part of a request: system text, tools, folded messages, other messages."""
    rows = tuple(rows)
    return {
        "system": system_tokens(system),
        "tools": tools_tokens(tools),
        "folded": sum(row.tokens for row in rows if row.mark != " "),
        "messages": sum(row.tokens for row in rows if row.mark == " "),
    }
