"""Replaces old images and files by a line of text: images cost tokens by their area, and bytes by their encoding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import is_

from foldline.codecs.limits import BESIDE_LARGER, NO_AMOUNTS, Amounts, Caps
from foldline.codecs.media import amounts_of
from foldline.messages import Document, Image, Part, Text, ToolResult
from foldline.reducers.base import form_fold
from foldline.view.budget import Need
from foldline.view.transcript import Fold
from foldline.view.view import View

__all__ = ["OldImages", "OldMedia"]


@dataclass(frozen=True, slots=True)
class OldImages:
    """Replaces images by a placeholder, oldest first, all but the newest `keep`; the newest user's images always stay.

    With `bytes_only` images stay whose payload is not in the request (URLs): removing them would not serve a byte
    budget.
    """

    keep: int = 1
    bytes_only: bool = False
    name: str = "images"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per entry that holds images."""
        del need
        # By entries, not by images: screenshots of one call belong together, and a form is per entry.
        found = [
            (tile, entry)
            for tile in view.tiles
            if tile.fold is None and not tile.pinned and not tile.system
            for entry in tile.entries
            if any(map(_shows_image, tile.form(entry).parts)) and entry.seq != view.newest_user
        ]
        for tile, entry in found[: len(found) - self.keep if self.keep else len(found)]:
            parts = _without(tile.form(entry).parts, self.bytes_only)
            fold = form_fold(view, tile, entry, parts, reducer=self.name, reason="an image older than the newest ones")
            if fold is not None:
                yield fold


@dataclass(frozen=True, slots=True)
class OldMedia:
    """Replaces images and PDF files by a line, oldest first, where a request holds more than `caps` allow.

    It lands at `landing` of what is allowed, so that not every further image changes the prefix. The newest stay, and
    those of the newest user message. Where only large images are over the limit, only these leave, if they are fewer.
    """

    caps: Caps = field(default_factory=Caps)
    landing: float = 0.75
    name: str = "images"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per entry whose images or files have to leave, oldest first."""
        del need
        amounts, landing = view.amounts, self.caps.share(self.landing)
        over = list(self.caps.over(amounts))
        # Anthropic allows large images only beside few others. Either the large ones leave or enough of all: whichever
        # is less, so that as many pictures as possible stay.
        large = [name for name, _, _ in over] == [BESIDE_LARGER] and amounts.large_images <= amounts.images - over[0][2]
        for tile in view.tiles:
            if tile.fold is not None or tile.pinned or tile.system:
                continue
            for entry in tile.entries:
                if not any(landing.over(amounts)):
                    return
                form = tile.form(entry)
                if entry.seq == view.newest_user or not any(map(_shows_media, form.parts)):
                    continue
                parts, left = _fewer(form.parts, amounts, landing, large)
                fold = form_fold(view, tile, entry, parts, reducer=self.name, reason=_too_many(over))
                if fold is not None:
                    amounts = left
                    yield fold


def _too_many(over: Iterable[tuple[str, int, int]]) -> str:
    return "more than the provider takes: " + ", ".join(f"{n:,} {name} of {most:,}" for name, n, most in over)


def _shows_media(part: Part) -> bool:
    return isinstance(part, Image | Document) or (isinstance(part, ToolResult) and any(map(_shows_media, part.parts)))


def _fewer(parts: Iterable[Part], amounts: Amounts, landing: Caps, large: bool) -> tuple[list[Part], Amounts]:
    """The parts without their first media, until `amounts` are down at the landing; and the amounts then.

    With `large` only large images are removed.
    """
    out: list[Part] = []
    for part in parts:
        if isinstance(part, ToolResult):
            inner, amounts = _fewer(part.parts, amounts, landing, large)
            same = all(map(is_, inner, part.parts))
            out.append(part if same else replace(part, parts=tuple(inner)))
            continue
        # Part by part, with the rest weighed after each: one image less may be all that is needed.
        here = replace(amounts_of((part,)), messages=0) if isinstance(part, Image | Document) else NO_AMOUNTS
        goes = here.large_images if large else here.images or here.pages
        if goes and any(landing.over(amounts)):
            amounts -= here
            out.append(Text(f"[{'image' if here.images else 'document'} removed]"))
        else:
            out.append(part)
    return out, amounts


def _shows_image(part: Part) -> bool:
    return isinstance(part, Image) or (isinstance(part, ToolResult) and any(map(_shows_image, part.parts)))


def _without(parts: Sequence[Part], bytes_only: bool) -> list[Part]:
    # The size in the placeholder tells a model what it can ask for again: a photo, an icon, a screenshot.
    out: list[Part] = []
    for part in parts:
        if isinstance(part, Image) and (part.size_bytes or not bytes_only):
            size = f" of {part.width}x{part.height}" if part.width else ""
            out.append(Text(f"[image{size} removed]"))
        elif isinstance(part, ToolResult):
            out.append(replace(part, parts=tuple(_without(part.parts, bytes_only))) if _shows_image(part) else part)
        else:
            out.append(part)
    return out
