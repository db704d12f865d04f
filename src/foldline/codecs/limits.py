"""What a provider bounds besides tokens: names, ids, and how many images, pages and messages a request may hold.

A provider that names another number in a refusal is believed (`Caps.learned`). The substitute of a name or an id
follows from it alone, so that a call, its result and every later request agree.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Final

from foldline.messages import Json

__all__ = [
    "BESIDE_LARGER",
    "ITEM_ID_PREFIXES",
    "MANY_SIDE_PX",
    "MARKERS",
    "NAME",
    "NO_AMOUNTS",
    "NO_CAPS",
    "ONE_MESSAGE",
    "Amounts",
    "Caps",
    "Limits",
    "bounded_id",
    "has_valid_item_id",
    "is_item_id",
    "tool_names",
    "valid_author",
    "valid_name",
]

MARKERS: Final = 4
"""The most cache markers of a request (Anthropic docs, "Prompt caching")."""

MANY_SIDE_PX: Final = 2_000
"""The longest side in pixels of an image in a request with many images (Anthropic docs, "Vision")."""

BESIDE_LARGER: Final = f"images beside some over {MANY_SIDE_PX:,} pixels"
"""The name of what exceeds the limit where many images accompany large ones."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """What a request or a message holds: images, pages of PDF files, messages, images over `MANY_SIDE_PX`."""

    images: int = 0
    pages: int = 0
    messages: int = 0
    large_images: int = 0

    # Written out: the view adds and subtracts one for each message it shows or hides.
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


NO_AMOUNTS: Final = Amounts()

ONE_MESSAGE: Final = Amounts(messages=1)
"""The amounts of a message without images and files: one object, shared by nearly all messages."""


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
        """Yield each amount over its limit: its name, the amount, the limit. O(1)."""
        # Nearly every message has neither images nor pages, and no provider but one bounds the messages.
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
        """Return a share of each limit, at least 1: where folding lands once a limit is exceeded."""
        figures = {each.name: getattr(self, each.name) for each in fields(self)}
        return Caps(**{name: most if most is None else max(1, int(part * most)) for name, most in figures.items()})

    def learned(self, **limits: int | None) -> Caps:
        """Return these limits with those that the provider or the user named, by field; None changes nothing.

        A limit of images is one of images and pages together where the dialect counts them together.
        """
        # A larger number replaces a known one as well as a smaller one: the server knows best.
        known = {name: number for name, number in limits.items() if number is not None}
        if self.max_media is not None and "max_images" in known:
            known.setdefault("max_media", known["max_images"])
        # A misspelt limit must not pass for one that nobody set.
        wrong = known.keys() - {each.name for each in fields(self)}
        if wrong:
            raise TypeError(f"no such limit: {', '.join(sorted(wrong))}")
        return replace(self, **known)


NO_CAPS: Final = Caps()
"""No limits besides tokens."""


# --- names and ids ---------------------------------------------------------------------------------------------------

ITEM_ID_PREFIXES: Final = {
    "message": "msg",
    "function_call": "fc",
    "custom_tool_call": "ct",
    "reasoning": "rs",
}
"""The prefix of an item's id by its type (OpenAI API, error "Expected an ID that begins with")."""

# LiteLLM appends a thought signature of Gemini to the id of a call behind this mark. Shortening would lose it.
_SIGNATURE_MARK: Final = "__thought__"

_ITEM_ID_CHARS: Final = 64
_AUTHOR_CHARS: Final = 64
NAME: Final = re.compile(r"[a-zA-Z0-9_-]+")
"""The alphabet of a tool's name with most providers."""

_NOT_IN_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]+")
_NOT_IN_AUTHOR: Final = re.compile(r"[\s<|\\/>]+")
_DIGEST_CHARS: Final = 12


def _shortened(text: str, most: int, between: str) -> str:
    """Cut the text to `most` characters."""
    if len(text) <= most:
        return text
    # The digest keeps two texts apart that begin alike. A counter would not do: the substitute must be the same in
    # every later request, in which other calls may be gone.
    # `surrogatepass`, because an id from a client may hold a lone surrogate and still needs a substitute.
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    return f"{text[: most - len(digest) - len(between)]}{between}{digest}"


def valid_name(name: str, most: int, known: Collection[str] = (), alphabet: re.Pattern[str] = NAME) -> str:
    """Return the name of a tool in the alphabet and length that providers accept; unchanged if it is accepted.

    A name in `known` stays: the tools of the request have it, and a server that accepts them accepts the call.
    """
    if name in known or (len(name) <= most and alphabet.fullmatch(name)):
        return name
    return _shortened(_NOT_IN_NAME.sub("_", name).strip("_") or "unknown_tool", most, "_")


def tool_names(tools: Json) -> Iterator[str]:
    """Yield the names in a list of tools of any dialect. Tools of the provider's own have none and are skipped."""
    for tool in tools if isinstance(tools, list | tuple) else ():
        if not isinstance(tool, Mapping):
            continue
        listed = tool.get("functionDeclarations") or tool.get("function_declarations")
        # A tool of Gemini has no name of its own, whether it holds functions or is one of the provider's.
        if isinstance(listed, list | tuple):  # Gemini lists the functions inside one tool
            yield from tool_names(listed)
            continue
        inner = tool.get("function") or tool.get("custom")
        name = (inner if isinstance(inner, Mapping) else tool).get("name")
        if isinstance(name, str) and name:
            yield name


def bounded_id(call_id: str, most: int | None) -> str:
    """Return the id of a call in the length that its provider accepts (None: any)."""
    return call_id if most is None or _SIGNATURE_MARK in call_id else _shortened(call_id, most, "-")


def valid_author(name: str) -> str:
    """Return the `name` of a message's author without blanks, <, |, \\, / and >, at most 64 characters; "" for none."""
    if len(name) <= _AUTHOR_CHARS and not _NOT_IN_AUTHOR.search(name):
        return name
    # Replaced rather than dropped: the name is what tells the members of a group chat apart.
    return _shortened(_NOT_IN_AUTHOR.sub("_", name).strip("_"), _AUTHOR_CHARS, "_")


def is_item_id(item_id: Json, kind: str) -> bool:
    """Whether the Responses API accepts this as the id of an item of that type."""
    return (
        isinstance(item_id, str)
        and len(item_id) <= _ITEM_ID_CHARS
        and NAME.fullmatch(item_id) is not None
        and item_id.startswith(ITEM_ID_PREFIXES.get(kind, ""))
    )


def has_valid_item_id(item: Json, kind: str) -> bool:
    """Whether an item has no id, or one that the API accepts."""
    return item.get("id") is None or kind not in ITEM_ID_PREFIXES or is_item_id(item["id"], kind)


# --- the limits of a dialect ------------------------------------------------------------------------------------------

# Anthropic docs, "Vision" and "PDF support": models with a window above this accept more images and pages.
_LARGE_WINDOW_TOKENS: Final = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one dialect. `call_id_chars` is None if an id may have any length.

    `image_chars` is the limit of an image's base64, `image_side_px` that of its longer side in pixels (0: none). With
    `strict_media` the declared type of an image must match its data. `large_media` replaces `caps.max_media` for models
    with a window over 200,000 tokens.
    """

    call_name_chars: int
    tool_name_chars: int
    call_id_chars: int | None = None
    name: re.Pattern[str] = NAME
    image_chars: int = 0
    image_side_px: int = 0
    strict_media: bool = False
    caps: Caps = NO_CAPS
    large_media: int | None = None

    def call_name(self, name: str, known: Collection[str] = ()) -> str:
        """Return the name of a tool as a call may have it; see `valid_name`."""
        return valid_name(name, self.call_name_chars, known, self.name)

    def tool_name(self, name: str) -> str:
        """Return the name of a tool as the list of tools may have it."""
        return valid_name(name, self.tool_name_chars, (), self.name)

    def call_id(self, call_id: str) -> str:
        """Return the id of a call in an accepted length."""
        return bounded_id(call_id, self.call_id_chars)

    def caps_for(self, window_tokens: int | None = None) -> Caps:
        """Return the limits for a model with this window; the smaller ones if the window is unknown."""
        if self.large_media is None or window_tokens is None or window_tokens <= _LARGE_WINDOW_TOKENS:
            return self.caps
        return replace(self.caps, max_media=self.large_media)
