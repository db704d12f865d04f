"""The floor: what must stay, in its smallest form. It is computed before any model is called.

On the floor everything that may be folded is a notice, and every result that may be cut is a marker. No request of the
session can be smaller, so that an error can name it before money is spent. The folds that lead there are the last rung.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from foldline.codecs.provider_state import may_begin
from foldline.errors import DoesNotFit, Part
from foldline.messages import Image, Message, Text, ToolCall, ToolResult
from foldline.messages import Part as MessagePart
from foldline.reducers.base import form_fold
from foldline.reducers.drop import drop_fold
from foldline.reducers.truncate import shorten_arguments
from foldline.text.shorten import clip_tokens
from foldline.view.budget import Need
from foldline.view.pairing import is_paired
from foldline.view.tiles import JOINT, Tile, joint_places
from foldline.view.transcript import Fold
from foldline.view.view import LAST_RUNG, View

__all__ = ["Floor", "Minimum", "floor_of", "too_large", "too_many", "too_many_bytes"]


# The size of each text beside an open pair of the provider's, on the floor.
PAUSED_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Floor:
    """The size of the smallest request, its parts (largest first), and the folds that lead there."""

    tokens: int
    parts: tuple[Part, ...]
    folds: tuple[Fold, ...]


def floor_of(view: View) -> Floor:
    """The floor of a view. O(shown)."""
    # The same walk yields the number and the folds: an error that names a floor which the last rung does not reach, or
    # passes, would send its reader after the wrong part.
    folds: list[Fold] = []
    parts: list[Part] = []
    if view.base_tokens > 0:
        parts.append(Part("system and tools", view.base_tokens))
    spans = {span.first: span for span in view.spans()}
    leads: Message | None = None
    index, total = 0, view.base_tokens
    before: Message | None = None
    replied = True
    # The joints are counted as they would be after these folds: before each fold and after it roles may meet that did
    # not meet before.
    while index < len(view.tiles):
        span = spans.get(index)
        fold = None if span is None else drop_fold(view, span, reducer=LAST_RUNG, reason="the least that can be shown")
        if span is not None and fold is not None:
            folds.append(fold)
            size = fold.tokens + view.joint_tokens * len(joint_places(before, fold.shown, replied=replied))
            total += size
            before, replied = fold.shown[-1], view.ends_replied(span.first, span.last)
            leads = leads or fold.shown[0]
            parts.append(Part("notice of omitted messages", size, span.start))
            index = span.last
            continue
        tile = view.tiles[index]
        forms = list(_least_forms(view, tile, index)) if tile.messages else []
        folds += forms
        plain = [message for message in tile.messages if message.kind != JOINT]
        joints = view.joint_tokens * len(joint_places(before, plain, replied=replied))
        bare = tile.tokens - view.joint_tokens * (len(tile.messages) - len(plain))
        # A merged message costs less than its parts, so that the block is measured as a whole.
        size = joints + (view.measure(tile, {form.start: form for form in forms}) if forms else bare)
        total += size
        if plain:
            before, replied = plain[-1], tile.fold is None or tile.replied
        if tile.messages:
            leads = leads or tile.messages[0]
            parts.append(Part(view.protected(index) or "message that nothing may cut", size, tile.start))
        index += 1
    if view.tiles and (leads is None or (view.codec.user_first and not may_begin(leads))):
        total += view.lead_tokens
        parts.append(Part("first user message", view.lead_tokens))
    return Floor(total, tuple(sorted(parts, key=lambda part: -part.tokens)), tuple(folds))


def _least_forms(view: View, tile: Tile, index: int) -> Iterable[Fold]:
    """The smallest form of each entry of a block that stays."""
    if tile.fold is not None or tile.pinned or tile.system:
        return
    waits = tile.waiting and index == view.last_block
    for entry in tile.entries:
        form = tile.form(entry)
        least = [_least(view, part, calls=not waits, own=entry.seq == view.newest_user) for part in form.parts]
        if waits and form.role == "assistant" and is_paired(form):
            # The provider continues a paused turn only if it comes back unchanged; another message may have less text
            # beside its blocks.
            least = [_clipped(view, part) for part in least]
        if any(a is not b for a, b in zip(least, form.parts, strict=True)):
            fold = form_fold(view, tile, entry, least, reducer=LAST_RUNG, reason="the least that can be shown")
            if fold is not None:
                yield fold


def _least(view: View, part: MessagePart, *, calls: bool, own: bool) -> MessagePart:
    # Calls of a turn that goes on stay whole: their results are on the way, and the model reads both together.
    if isinstance(part, ToolResult):
        marker = f"[~{sum(view.counter.text(p.text) for p in part.parts if isinstance(p, Text))} tokens cut]"
        return replace(part, parts=(Text(marker),))
    if isinstance(part, ToolCall) and calls:
        short = shorten_arguments(part, 1, view.counter)
        return part if short == part.arguments else replace(part, arguments=short)
    if isinstance(part, Image) and not own:
        return Text("[image removed]")
    return part


def _clipped(view: View, part: MessagePart) -> MessagePart:
    if not isinstance(part, Text):
        return part
    total = view.counter.text(part.text)
    head, tail = clip_tokens(part.text, PAUSED_TOKENS, view.counter, "both")
    return replace(part, text=f"{head}\n[… ~{total} tokens, cut …]\n{tail}") if tail else part


def too_large(
    floor_tokens: int, limit: int, parts: Sequence[Part], reason: str | None = None, *, used_tokens: int | None = None
) -> DoesNotFit:
    """The error for a request over its token limit, with the largest parts of its floor."""
    return DoesNotFit(floor_tokens, limit, _largest(parts), reason=reason, used_tokens=used_tokens)


def too_many_bytes(view: View, over: int, limit: int, reason: str | None = None) -> DoesNotFit:
    """The error for a request that is `over` bytes over its byte budget, with its largest messages. O(tiles)."""
    parts = [
        Part(view.protected(index) or "message", tile.size_bytes, tile.start)
        for index, tile in enumerate(view.tiles)
        if tile.size_bytes
    ]
    if view.has_lead:
        parts.append(Part("first message that had to be supplied", view.request_bytes - view.size_bytes))
    return DoesNotFit(limit + over, limit, _largest(parts), reason=reason, unit="bytes")


def too_many(view: View, name: str, number: int, most: int, reason: str | None = None) -> DoesNotFit:
    """The error for a request with more of something than its provider takes, with its largest messages. O(tiles)."""
    parts = [
        Part(view.protected(index) or "message", size, tile.start)
        for index, tile in enumerate(view.tiles)
        if (size := tile.amounts.images + tile.amounts.pages or tile.amounts.messages)
    ]
    return DoesNotFit(number, most, _largest(parts), reason=reason, unit=name)


def _largest(parts: Sequence[Part], most: int = 12) -> tuple[Part, ...]:
    # An error is read on one screen: the largest dozen say where the tokens are.
    return tuple(sorted(parts, key=lambda part: -part.tokens))[:most]


@dataclass(frozen=True, slots=True)
class Minimum:
    """The last rung: goes to the floor fold by fold, oldest first, until the request fits."""

    name: str = LAST_RUNG

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """The folds that lead to the floor."""
        del need
        return floor_of(view).folds
