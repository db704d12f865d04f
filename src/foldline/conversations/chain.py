"""How a conversation without an id is known again: by a chain of hashes over its messages.

A client resends everything, so that the request of one turn begins with that of the turn before. Link n stands for the
first n messages, and whoever has the same link has the same n messages.

There are two chains. The *exact* one is made of the JSON text of the messages, cache markers taken out: clients move
those from turn to turn. The *tolerant* one is the second chance: it sees neither white space, nor the order of keys,
nor fields that are null, nor whether a text stands by itself or in a block.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final

from foldline.messages import Json

__all__ = ["LINK_BYTES", "exact_links", "tolerant_links", "without_markers"]

LINK_BYTES: Final = 16

_UNSEEN: Final = ("cache_control",)
_TEXTS: Final = frozenset({"input_text", "output_text"})
_MESSAGE: Final = ("type", "message")
"""Responses: the names of a text's block by who spoke, and what an item is that names no type."""

_MARKER: Final = re.compile(
    r',\s*"cache_control"\s*:\s*(?:null|\{[^{}]*\})|"cache_control"\s*:\s*(?:null|\{[^{}]*\})\s*,\s*'
)
"""A cache marker with the comma that parts it from its neighbours. Inside a text its quotes would be escaped."""


def exact_links(dialect: str, texts: Iterable[str]) -> list[bytes]:
    """The exact chain over the JSON texts of messages. O(size)."""
    link = _link(b"exact", dialect.encode())
    links = []
    for text in texts:
        plain = _MARKER.sub("", text) if '"cache_control"' in text else text
        link = _link(link, plain.encode("utf-8", "surrogatepass"))
        links.append(link)
    return links


def tolerant_links(dialect: str, messages: Iterable[Mapping[str, Json]], *, after: bytes | None = None) -> list[bytes]:
    """The tolerant chain over messages, or what goes on `after` a link. O(size), several times as dear as exact."""
    link = _link(b"tolerant", dialect.encode()) if after is None else after
    links = []
    for message in messages:
        plain = json.dumps(_plain(message), sort_keys=True, separators=(",", ":"))
        link = _link(link, plain.encode())
        links.append(link)
    return links


def without_markers(value: Json) -> Json:
    """The same JSON without cache markers; the very object where it holds none. O(size).

    What stands in the `input` of a call is a tool's, whatever it is called.
    """
    if isinstance(value, dict):
        pairs = ((name, inner) for name, inner in value.items() if name != "cache_control")
        made = {name: inner if name == "input" else without_markers(inner) for name, inner in pairs}
        same = len(made) == len(value) and all(made[name] is value[name] for name in made)
        return value if same else made
    if isinstance(value, list):
        items = [without_markers(inner) for inner in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    return value


def _link(before: bytes, data: bytes) -> bytes:
    return blake2b(data, digest_size=LINK_BYTES, key=before).digest()


def _plain(value: Json, name: str = "") -> Json:
    if isinstance(value, str):
        if name == "content":
            return [_plain({"type": "text", "text": value})]
        return "text" if name == "type" and value in _TEXTS else " ".join(value.split())
    if isinstance(value, Mapping):
        marks = () if name == "input" else _UNSEEN
        pairs = ((key, inner) for key, inner in value.items() if inner is not None and (key, inner) != _MESSAGE)
        return {key: _plain(inner, key) for key, inner in pairs if key not in marks}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value
