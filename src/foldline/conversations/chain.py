"""How a conversation without an id is known again: by a chain of hashes over its messages.

A client resends everything, so that the request of one turn begins with that of the turn before. Link n stands for the
first n messages, and whoever has the same link has the same n messages and the same credential: the chain begins with a
hash of it, so that no client ever goes on with what was made for another one.

There are two chains. The *exact* one is made of the JSON text of the messages, cache markers taken out: clients move
those from turn to turn. The *tolerant* one is the second chance: it sees no white space at all, nor the order of keys,
nor fields that are null, nor whether a text stands by itself or in a block.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final

from foldline.codecs import codec
from foldline.messages import Json

__all__ = ["LINK_BYTES", "exact_links", "leading", "said", "tolerant_links", "without_markers"]

LINK_BYTES: Final = 16

_UNSEEN: Final = ("cache_control",)
_TEXTS: Final = frozenset({"input_text", "output_text"})
_MESSAGE: Final = ("type", "message")
"""Responses: the names of a text's block by who spoke, and what an item is that names no type."""

_WHITE: Final = dict.fromkeys(map(ord, " \t\n\r\v\f\x1c\x1d\x1e\x1f\0"))
_MARKER: Final = re.compile(
    r',\s*"cache_control"\s*:\s*(?:null|\{[^{}]*\})|"cache_control"\s*:\s*(?:null|\{[^{}]*\})\s*,\s*'
)
"""A cache marker with the comma that parts it from its neighbours. Inside a text its quotes would be escaped."""


def exact_links(dialect: str, texts: Iterable[str], *, client: bytes = b"") -> list[bytes]:
    """The exact chain over the JSON texts of messages of one client. O(size)."""
    link = _link(b"exact", dialect.encode() + client)
    links = []
    for text in texts:
        plain = _MARKER.sub("", text) if '"cache_control"' in text else text
        link = _link(link, plain.encode("utf-8", "surrogatepass"))
        links.append(link)
    return links


def tolerant_links(
    dialect: str, messages: Iterable[Mapping[str, Json]], *, client: bytes = b"", after: bytes | None = None
) -> list[bytes]:
    """The tolerant chain over messages of a client, or what goes on `after` a link.

    O(size), several times as dear as the exact one.
    """
    link = _link(b"tolerant", dialect.encode() + client) if after is None else after
    links = []
    for message in messages:
        pieces: list[str] = []
        _spell(message, "", pieces)
        link = _link(link, "\0".join(pieces).encode("utf-8", "surrogatepass"))
        links.append(link)
    return links


def leading(dialect: str, messages: Iterable[Mapping[str, Json]]) -> int:
    """How many messages of system text a request begins with, where such text stands among the messages.

    They are no part of what is said: clients put the time, the folder and the like into them, anew for each request.
    """
    if not codec(dialect).system_inside:
        return 0
    count = 0
    for message in messages:
        if message.get("role") not in ("system", "developer"):
            break
        count += 1
    return count


def said(dialect: str, messages: Sequence[Mapping[str, Json]]) -> list[Mapping[str, Json]]:
    """The messages with nothing in those that lead: what the tolerant chain is made of."""
    count = leading(dialect, messages)
    return [*({"role": message.get("role")} for message in messages[:count]), *messages[count:]]


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


def _spell(value: Json, name: str, pieces: list[str]) -> None:
    """Put a value into pieces that are the same for every spelling of it. Each says what it is by its first sign."""
    if isinstance(value, str):
        if name == "content":
            pieces += ("[", "{", "ktext", _text(value), "ktype", "stext", "}", "]")
        else:
            pieces.append("stext" if name == "type" and value in _TEXTS else _text(value))
    elif isinstance(value, Mapping):
        unseen = () if name == "input" else _UNSEEN
        pieces.append("{")
        for key in sorted(value):
            inner = value[key]
            if inner is not None and key not in unseen and (key, inner) != _MESSAGE:
                pieces.append(f"k{key}")
                _spell(inner, key, pieces)
        pieces.append("}")
    elif isinstance(value, list):
        pieces.append("[")
        for inner in value:
            _spell(inner, "", pieces)
        pieces.append("]")
    else:
        pieces.append(f"v{value!r}")


def _text(text: str) -> str:
    # Taking signs out is six times faster than splitting at them, for texts of one byte a sign.
    plain = text.translate(_WHITE) if text.isascii() else "".join(text.split())
    return f"s{plain}"
