"""Running sums over the tiles of a view, and the rendered messages, which stay the same objects between folds.

Prefix sums are cut off at the first change and extended when they are read: a view changes at its end far more often
than it is read there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from foldline.codecs.limits import NO_AMOUNTS, Amounts
from foldline.messages import Message, Wire
from foldline.view.origins import Origin, origins_of
from foldline.view.tiles import Tile
from foldline.view.transcript import Repair, Seq

__all__ = ["RunningTotals"]


class RunningTotals:
    """Sums over the tiles of a view. Changing a tile costs O(1); prefix sums after it are computed at the next read."""

    def __init__(self, write: Callable[[Message], Wire]) -> None:
        self.tokens = 0
        self.size_bytes = 0
        self.content_bytes = 0
        self.messages = self.joints = 0
        # What the tiles with images or files hold; the number of messages is not kept here.
        self._media: Amounts = NO_AMOUNTS
        self._write = write
        self._repaired: dict[Seq, Tile] = {}
        self._starts: list[Seq] = []
        self._sums: list[int] = [0]
        self._offsets: list[int] = [0]
        self._wires: list[Wire] = []
        self.origins: list[Origin] = []
        """Where each message of the last call of `wires` comes from (read-only)."""
        # The first tile whose messages may differ from `_wires`.
        self._dirty = 0
        # Leading messages of that tile that are as in `_wires` all the same.
        self._kept = 0

    def continue_from(self, before: RunningTotals) -> None:
        """Compare the first rendering with the last one of the view that this one replaces."""
        # A rebuilt view mostly shows what the old one did: without this an undo would report the whole prefix as new.
        self._wires = before._wires

    @property
    def shows(self) -> int:
        """Number of messages shown, joints included."""
        return self.messages + self.joints

    @property
    def amounts(self) -> Amounts:
        """Images, pages and messages of all tiles. O(1)."""
        media = self._media
        return Amounts(media.images, media.pages, self.shows, media.large_images)

    def add(self, tile: Tile) -> None:
        """Add a tile to the sums. O(1)."""
        self._account(tile, 1)

    def remove(self, tile: Tile) -> None:
        """Take a tile out of the sums, as it was when it was added: before it is changed. O(1)."""
        self._account(tile, -1)

    def _account(self, tile: Tile, sign: int) -> None:
        self.tokens += sign * tile.tokens
        self.size_bytes += sign * tile.size_bytes
        self.content_bytes += sign * tile.content_bytes
        self.messages += sign * (len(tile.messages) - tile.joints)
        self.joints += sign * tile.joints
        # Most tiles hold text only: adding up value objects for each of them showed in the cost of an append.
        amounts = tile.amounts
        if amounts.images or amounts.pages:
            self._media = self._media + amounts if sign > 0 else self._media - amounts
        if sign > 0 and tile.is_repaired:
            self._repaired[tile.start] = tile
        elif self._repaired:
            self._repaired.pop(tile.start, None)

    def replace(self, first: int, last: int, tiles: Sequence[Tile]) -> None:
        """Put `tiles` in the place of tiles [first, last)."""
        self._starts[first:last] = [tile.start for tile in tiles]
        self.invalidate(first)

    def invalidate(self, index: int, kept: int = 0) -> None:
        """Note that a tile has changed after its first `kept` messages. O(1), besides what is cut off."""
        if index <= self._dirty:
            self._kept = kept if index < self._dirty else min(self._kept, kept)
            self._dirty = index
        # Cut off, not corrected: most changes are at the end, where there is little to cut and nothing to add up again.
        del self._sums[index + 1 :]
        del self._offsets[index + 1 :]

    def is_rendered(self, index: int) -> bool:
        """Whether the last call of `wires` returned a tile as it is now."""
        return index < self._dirty

    def index(self, seq: Seq) -> int:
        """Number of the tile that covers an entry; -1 before the first. O(log tiles)."""
        return bisect_right(self._starts, seq) - 1

    def repairs(self) -> list[Repair]:
        """Every repair in effect, in order of the log. O(repairs)."""
        return [repair for start in sorted(self._repaired) for repair in self._repaired[start].repairs]

    def between(self, tiles: Sequence[Tile], first: int, last: int) -> int:
        """Tokens of tiles [first, last). O(1) between folds."""
        self._sum(tiles)
        return self._sums[last] - self._sums[first]

    def tail(self, tiles: Sequence[Tile], tokens: int) -> int:
        """First tile of the longest tail that holds at most `tokens`. O(log tiles) between folds."""
        self._sum(tiles)
        return bisect_left(self._sums, self._sums[-1] - tokens)

    def wires(self, tiles: Sequence[Tile]) -> tuple[list[Wire], int]:
        """The JSON of all messages (read-only), and how many leading ones equal those of the last call. O(changed)."""
        rendered = len(self._offsets) == len(tiles) + 1 and self._offsets[-1] == len(self._wires)
        if rendered and self._dirty >= len(tiles):
            return self._wires, len(self._wires)
        kept = self._kept
        # The last message that is surely as it was: all before it keeps its place and its object.
        keep = self._offsets[self._dirty] + kept
        fresh: list[Wire] = []
        origins: list[Origin] = []
        for tile in tiles[self._dirty :]:
            fresh += map(self._write, tile.messages[kept:])
            origins += origins_of(tile, kept)
            self._offsets.append(keep + len(fresh))
            kept = 0
        # Rendered anew is not changed: a refreshed tile often gives the same JSON, which is still in the cache.
        same = 0
        for old, new in zip(self._wires[keep:], fresh, strict=False):
            if old is not new and old != new:
                break
            same += 1
        self._wires[keep:], self.origins[keep:] = fresh, origins
        self._dirty, self._kept = len(tiles), 0
        return self._wires, keep + same

    def _sum(self, tiles: Sequence[Tile]) -> None:
        for tile in tiles[len(self._sums) - 1 :]:
            self._sums.append(self._sums[-1] + tile.tokens)
