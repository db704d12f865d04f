"""The protocol of reducers, and the ways to make a fold that shrinks and keeps what must stay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self, runtime_checkable

from foldline.messages import Document, Message, Part, Text, ToolResult
from foldline.view.budget import Need
from foldline.view.request import Request
from foldline.view.tiles import Span, Tile
from foldline.view.transcript import Entry, Fold, Seq
from foldline.view.view import View

__all__ = [
    "Ask",
    "Compactor",
    "HasKeptShare",
    "Move",
    "Reducer",
    "Spans",
    "WithArrivalShares",
    "WithExemptions",
    "WithFacts",
    "WithTail",
    "WithWindow",
    "form_fold",
    "result_entries",
    "result_text",
    "span_fold",
    "with_results",
    "with_texts",
]


# A reducer yields what it wants written and never calls a model: so the same reducer serves sync and async callers, and
# a test passes a text to `finish` where a driver would pass a model's.


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request for model output about entries [start, stop).

    The driver calls the model and passes its text to `finish`, which returns the fold, asks again (for the next piece
    of a long input), or raises SummaryError: then the view stays unchanged. `prompt` holds plain system and user texts,
    {"role", "content"}; `plain_tokens` is the size of this prompt and of those to follow.

    `continued` asks the same of a model that still has the session in its cache: its prompt is the one message appended
    to the last request. The engine chooses between the two, and sets `request`, which is sent in place of the prompt.
    """

    prompt: tuple[Mapping[str, str], ...]
    max_output_tokens: int
    finish: Callable[[str], Fold | Ask]
    reducer: str
    start: Seq
    stop: Seq
    plain_tokens: int = 0
    continued: Ask | None = None
    request: Request | None = None


Move = Fold | Ask


# A protocol, not a base class: a reducer of a user needs no import from here, and none can lean on shared state.
class Reducer(Protocol):
    """Reads a view and proposes moves, in the order in which to make them. No I/O, clock, randomness or mutation."""

    @property
    def name(self) -> str:
        """The name recorded in its folds."""

    def propose(self, view: View, need: Need, /) -> Iterable[Fold | Ask]:
        """Moves that lead from the view towards the need; the engine stops once the need is met."""


# --- optional methods -------------------------------------------------------------------------------------------------
# How a setting reaches a reducer. A policy calls each method on every reducer that has it, whoever wrote it, and leaves
# the others as they are: so a setting needs no list of the classes that it is for.


@runtime_checkable
class WithFacts(Protocol):
    """Writes summaries. `Context(facts=...)` reaches it, and `Context.figures` start anew at each of its folds."""

    def with_facts(self, facts: tuple[str, ...], /) -> Self:
        """The same reducer, whose summaries hold these facts too."""


@runtime_checkable
class WithWindow(Protocol):
    """Has a model read the history, in pieces where its window is smaller than the session's."""

    def with_window(self, window_tokens: int, /) -> Self:
        """The same reducer for a model with this window."""


@runtime_checkable
class WithExemptions(Protocol):
    """Shortens results on arrival, and can leave those of some tools alone."""

    def exempting(self, tools: frozenset[str], /) -> Self:
        """The same reducer, which leaves results of these tools alone too."""


@runtime_checkable
class WithTail(Protocol):
    """Leaves a share of the target whole at the end of the view."""

    def keeping(self, share: float, /) -> Self:
        """The same reducer with another share."""


@runtime_checkable
class HasKeptShare(Protocol):
    """Folds all before a tail, without a model. The tail is what the rent of `economical` cannot fold."""

    @property
    def kept_share(self) -> float:
        """Share of the target that stays whole at the end."""


@runtime_checkable
class WithArrivalShares(Protocol):
    """Shortens results on arrival to a share of the window, and of the result."""

    @property
    def share(self) -> float:
        """Share of the room for history up to which a result stays whole."""

    @property
    def of_result(self) -> float:
        """Share of the rest of a larger result that stays."""

    def arriving(self, share: float | None, of_result: float | None, /) -> Self:
        """The same reducer with other shares (None: as they are)."""


class Spans(Protocol):
    """Can say which spans it would fold."""

    def spans(self, view: View, need: Need, /) -> Iterable[Span]:
        """The spans, oldest first."""


class Compactor(Reducer, Spans, Protocol):
    """Serves `Context.compact`. Without a model, a digest stands for each of its spans."""

    def focused(self, instructions: str | None, /) -> Compactor:
        """The same reducer with the instructions of one compaction."""


# --- making folds -----------------------------------------------------------------------------------------------------


def span_fold(
    view: View,
    start: Seq,
    stop: Seq,
    shown: Sequence[Message],
    *,
    reducer: str,
    reason: str,
    requested: bool = False,
) -> Fold | None:
    """A fold of whole tiles. None when it would not shrink. O(shown).

    Standing rules stay in `shown` (`View.with_rules`), and the newest user's words behind it.

    In a `requested` compaction (`Need.requested`) those words may be folded too, once they are answered.
    """
    # Refused here rather than at the commit: a reducer sees None and can go on with another span.
    residue = view.residue(start, stop, requested=requested)
    messages = view.with_rules(start, stop, (*shown, *residue), reducer)
    tokens = sum(map(view.count, messages))
    first, last = view.index(start), view.index(stop - 1) + 1
    if tokens + max(0, view.joining_tokens(first, last, messages)) >= view.between(first, last):
        return None
    return Fold(start=start, stop=stop, shown=messages, tokens=tokens, reducer=reducer, reason=reason)


def form_fold(
    view: View, tile: Tile, entry: Entry, parts: Sequence[Part], *, reducer: str, reason: str, kind: str = ""
) -> Fold | None:
    """A fold that shows one entry with other parts, with the same calls and results. None when it would not shrink."""
    # From the form, not from the entry: what an earlier fold has cut must not come back with a later one.
    message = view.codec.revise(tile.form(entry), parts)
    if kind:
        message = replace(message, kind=kind)
    tokens = view.count(message)
    if tokens >= tile.form_tokens(entry):
        return None
    return Fold(start=entry.seq, stop=entry.seq + 1, shown=(message,), tokens=tokens, reducer=reducer, reason=reason)


def result_entries(view: View, first: int = 0, last: int | None = None) -> list[tuple[int, Tile, Entry]]:
    """Every shown entry with tool results in tiles [first, last), oldest first, with its tile. O(tiles)."""
    # A list: callers count from its end ("the last five results").
    return [
        (index, tile, entry)
        for index, tile in enumerate(view.tiles[first:last], first)
        if tile.fold is None and not tile.pinned
        for entry in tile.entries
        if entry.message.results and entry.message.agent_visible
    ]


def result_text(message: Message) -> str:
    """All result text of a message."""
    return "\n".join(result.text for result in message.results)


def with_results(message: Message, change: Callable[[ToolResult], str | None]) -> list[Part]:
    """The parts of a message with its results replaced; None from `change` leaves a result unchanged.

    Images and other blocks of a replaced result leave with it.
    """
    return _changed(message, change, whole=True)


def with_texts(message: Message, change: Callable[[ToolResult], str | None]) -> list[Part]:
    """The parts of a message with the texts of its results cut; their images and other blocks stay."""
    return _changed(message, change, whole=False)


def _changed(message: Message, change: Callable[[ToolResult], str | None], *, whole: bool) -> list[Part]:
    parts: list[Part] = []
    for part in message.parts:
        text = change(part) if isinstance(part, ToolResult) else None
        if isinstance(part, ToolResult) and text is not None:
            rest = () if whole else (inner for inner in part.parts if not isinstance(inner, Text | Document))
            parts.append(replace(part, parts=(Text(text), *rest)))
        else:
            parts.append(part)
    return parts
