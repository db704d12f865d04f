"""What a digest is going to take whatever the reducers before it save.

To shorten a result that leaves with the same fold is work for nothing, and in long sessions most of a fold was that. So
reducers before a digest ask here which tiles they may pass over. The answer is exact: the digest comes out the same.
"""

from __future__ import annotations

from collections.abc import Collection

from foldline.reducers.digest import RULES, Digest, least_tokens
from foldline.view.budget import Need
from foldline.view.tiles import Tile
from foldline.view.view import View

__all__ = ["taken_by_digest"]


def taken_by_digest(view: View, need: Need, changing: Collection[tuple[int, Tile, int]] = ()) -> range:
    """The tiles that a later digest folds, and whose sizes do not change what it says. O(tiles).

    `changing` are results that the asking reducer may shorten in any place: (tile number, tile, tokens). All results
    before the tail of the digest may be shortened too. The answer is empty where any of that could be enough.
    """
    digest = _digest_after(need)
    if digest is None:
        return range(0)
    last = view.newest(digest.keep, need.target_tokens)
    of_tail = sum(tokens for index, _, tokens in changing if index >= last)
    saved_before = [_result_tokens(tile) for tile in view.tiles[:last]]
    excess = need.used_tokens - need.target_tokens
    if excess <= sum(saved_before) + of_tail:
        return range(0)
    first = _earliest_tail(view, need, digest, last, of_tail)
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
    return range(span.first, span.last) if max(least, most_room) * 5 // 4 <= least_span else range(0)


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


def _result_tokens(tile: Tile) -> int:
    """The most that shortening its results may save in a tile."""
    if tile.fold is not None:
        return 0
    return sum([tile.form_tokens(entry) for entry in tile.entries if entry.message.results])


def _earliest_tail(view: View, need: Need, digest: Digest, last: int, of_tail: int) -> int:
    """The first tile that may stay whole once what stands from tile `last` on, and before it, has been shortened."""
    left = int(digest.keep * max(0, need.target_tokens - view.fixed_tokens)) + of_tail
    left -= view.between(last, len(view.tiles))
    while last > 0:
        tile = view.tiles[last - 1]
        left -= tile.tokens - _result_tokens(tile)
        if left < 0:
            break
        last -= 1
    return last
