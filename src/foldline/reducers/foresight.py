"""What a digest is going to take whatever the reducers before it save.

To shorten a result that leaves with the same fold is work for nothing, and in long sessions most of a fold was that. So
reducers before a digest ask here which tiles they may pass over. The answer is exact: the digest comes out the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from foldline.messages import Message, Text, ToolResult
from foldline.reducers.digest import FRAME_TOKENS, RULES, Digest, least_tokens
from foldline.view.budget import Need
from foldline.view.tiles import Tile
from foldline.view.view import View

__all__ = ["taken_by_digest"]


def taken_by_digest(view: View, need: Need, notice: str, changing: Collection[tuple[int, int]] = ()) -> range:
    """The tiles that a later digest folds, and whose sizes do not change what it says. O(tiles).

    `notice` is the least that reducers leave of a result. `changing` are results that the asking reducer may shorten in
    any place: (tile number, tokens). All results before the tail of the digest may be shortened too. The answer is
    empty where any of that could be enough.
    """
    digest = _digest_after(need)
    if digest is None:
        return range(0)
    last = view.newest(digest.keep, need.target_tokens)
    of_tail = sum(tokens for index, tokens in changing if index >= last)
    stays = view.count(Message("tool", (ToolResult("", (Text(notice),)),)))
    saved_before = [_saved_tokens(tile, stays) for tile in view.tiles[:last]]
    excess = need.used_tokens - need.target_tokens
    if excess <= sum(saved_before) + of_tail:
        return range(0)
    first = _earliest_tail(view, need, digest, saved_before, of_tail)
    now, sure = view.spans(last), view.spans(first)
    if not sure or now[0].first != sure[0].first:
        return range(0)
    span = sure[0]
    saved_inside = sum(saved_before[span.first : span.last])
    least_span = span.tokens - saved_inside
    # What the target leaves room for: what is saved inside the span makes it and the excess smaller alike.
    most_room = now[0].tokens - excess + sum(saved_before) - saved_inside + of_tail
    # The share of the span bounds the digest too. Where that may decide, the size of the span matters.
    if most_room > max(digest.least_tokens, int(digest.share * least_span)):
        return range(0)
    # A digest that does not shrink its span is refused.
    least = max(digest.least_tokens, least_tokens(view, now[0], need.target_tokens // RULES))
    most = max(least, most_room)
    return range(span.first, span.last) if most + most // 16 + FRAME_TOKENS <= least_span else range(0)


def _digest_after(need: Need) -> Digest | None:
    """The digest that is sure to run when the reducers before it are not enough; None where there is none."""
    spared = 1.0
    for reducer in need.followers:
        if isinstance(reducer, Digest):
            return reducer if reducer.keep <= spared else None
        if (share := getattr(reducer, "spared_share", None)) is not None:
            spared = min(spared, share)
        elif not getattr(reducer, "only_asks", False):
            return None
    return None


def _saved_tokens(tile: Tile, stays: int) -> int:
    """The most that shortening its results may save in a tile, where so much of each message stays."""
    if tile.fold is not None:
        return 0
    return sum([max(0, tile.form_tokens(entry) - stays) for entry in tile.entries if entry.message.results])


def _earliest_tail(view: View, need: Need, digest: Digest, saved_before: Sequence[int], of_tail: int) -> int:
    """The first tile that may stay whole once results are shortened: `saved_before` in each tile before the tail."""
    last = len(saved_before)
    left = int(digest.keep * max(0, need.target_tokens - view.fixed_tokens)) + of_tail
    left -= view.between(last, len(view.tiles))
    while last > 0:
        left -= view.tiles[last - 1].tokens - saved_before[last - 1]
        if left < 0:
            break
        last -= 1
    return last
