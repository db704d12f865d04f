"""How much of what is no text a request may hold: the limits other than tokens, by dialect and by model.

A provider that names another number in a refusal is believed (`Caps.learned`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Final

__all__ = ["BESIDE_LARGER", "MANY_SIDE_PX", "MARKERS", "NOTHING", "NO_CAPS", "ONE_MESSAGE", "Amounts", "Caps"]

MARKERS: Final = 4
"""Cache markers of a request, at most (Anthropic docs, "Prompt caching")."""


MANY_SIDE_PX: Final = 2_000
"""Pixels of the longer side that an image may have where a request holds many (Anthropic docs, "Vision")."""

BESIDE_LARGER: Final = f"images beside some over {MANY_SIDE_PX:,} pixels"
"""What there is too much of where many images stand beside large ones."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """What a request holds, or one message of it: images, pages of PDF files, messages, images over `MANY_SIDE_PX`."""

    images: int = 0
    pages: int = 0
    messages: int = 0
    large_images: int = 0

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(
            self.images + other.images,
            self.pages + other.pages,
            self.messages + other.messages,
            self.large_images + other.large_images,
        )

    def __sub__(self, other: Amounts) -> Amounts:
        return Amounts(
            self.images - other.images,
            self.pages - other.pages,
            self.messages - other.messages,
            self.large_images - other.large_images,
        )


NOTHING: Final = Amounts()

ONE_MESSAGE: Final = Amounts(messages=1)
"""What a message without images and files holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """The most that a request may hold; None for no limit.

    `max_media` is for images and pages together. With more than `many_images` images, none may have a side over
    `MANY_SIDE_PX` pixels.
    """

    max_images: int | None = None
    max_pages: int | None = None
    max_media: int | None = None
    max_messages: int | None = None
    many_images: int | None = None

    def over(self, held: Amounts) -> Iterator[tuple[str, int, int]]:
        """What there is too much of: its name, how many are held, how many may be. O(1)."""
        if not held.images and not held.pages and (self.max_messages is None or held.messages <= self.max_messages):
            return iter(())
        figures = (
            ("images", held.images, self.max_images),
            ("PDF pages", held.pages, self.max_pages),
            ("images and PDF pages", held.images + held.pages, self.max_media),
            ("messages", held.messages, self.max_messages),
            (BESIDE_LARGER, held.images if held.large_images else 0, self.many_images),
        )
        return ((name, number, most) for name, number, most in figures if most is not None and number > most)

    def share(self, part: float) -> Caps:
        """A part of each limit, at least one of each: where to land when a limit is passed."""
        figures = {each.name: getattr(self, each.name) for each in fields(self)}
        return Caps(**{name: most if most is None else max(1, int(part * most)) for name, most in figures.items()})

    def learned(self, **told: int | None) -> Caps:
        """These limits with others that the provider, or the user, named: fields of `Caps`; None tells nothing.

        A number for images holds for images and pages together where the dialect counts them together. A smaller
        number than one that is known takes its place, a larger one too: the server knows best.
        """
        known = {name: number for name, number in told.items() if number is not None}
        if self.max_media is not None and "max_images" in known:
            known.setdefault("max_media", known["max_images"])
        wrong = known.keys() - {each.name for each in fields(self)}
        if wrong:
            raise TypeError(f"no such limit: {', '.join(sorted(wrong))}")
        return replace(self, **known)


NO_CAPS: Final = Caps()
"""No limit but tokens."""
