"""An incoming request: the hash chains that identify its conversation, and the cache markers that it may keep.

A client resends everything, so the request of one turn begins with the request of the turn before. Link n stands for
the first n messages: two requests with the same link have the same n messages and the same credential. Each chain
begins with a hash of the credential, so no client ever continues a conversation of another one.

There are two chains. The *exact* chain hashes the JSON text of the messages without cache markers, because clients move
those from turn to turn. The *tolerant* chain is the second chance: it ignores white space, the order of keys, fields
that are null, and whether a text stands by itself or in a block.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final, Literal, TypeAlias

from foldline.catalog.models import lookup
from foldline.codecs import codec
from foldline.codecs.anthropic.cache_markers import (
    count_markers,
    keep_last_markers,
    limit_markers,
    markers,
    order_markers,
    out_of_order,
    strip_markers,
)
from foldline.codecs.anthropic.codec import THOUGHTS
from foldline.codecs.dialect import dialect_named
from foldline.codecs.limits import MARKERS
from foldline.conversations.request_body import RequestBody, read_body, to_json
from foldline.engine.context import Request, SummarizeWith
from foldline.messages import Json, Wire
from foldline.providers.cache_points import anthropic_points
from foldline.view.budget import TokenLimits
from foldline.view.system_and_tools import System

__all__ = [
    "LINK_BYTES",
    "MARKER",
    "IncomingRequest",
    "PlanMode",
    "exact_links",
    "has_markers",
    "leading",
    "messages_json",
    "recorded_form",
    "tolerant_links",
    "wants_markers",
    "with_marker",
    "with_markers",
    "with_valid_markers",
    "without_leading_text",
    "without_markers",
]

PlanMode: TypeAlias = Literal["fold", "look", "refuse"]
"""Fold a request that does not fit; fold it without storing anything; refuse it."""

LINK_BYTES: Final = 16

_IGNORED_FIELDS: Final = ("cache_control",)

# Responses names the block of a text after its speaker, and treats an item without a type as a message.
_TEXT_TYPES: Final = frozenset({"input_text", "output_text"})
_DEFAULT_TYPE: Final = ("type", "message")

MARKER: Final = '"cache_control"'

_WHITE: Final = dict.fromkeys(map(ord, " \t\n\r\v\f\x1c\x1d\x1e\x1f\0"))

# A cache marker with the comma that separates it from its neighbours. Inside a text its quotes would be escaped.
_MARKER: Final = re.compile(
    r',\s*"cache_control"\s*:\s*(?:null|\{[^{}]*\})|"cache_control"\s*:\s*(?:null|\{[^{}]*\})\s*,\s*'
)


class IncomingRequest:
    """A client's request with its hash chains. Hashes that may not be needed are made on first use.

    `name` is the client's own name for the conversation, "" without one. What refusals teach is learned under
    `learned_as`, for this `client` alone. `sent` says that the bytes have already gone out unchanged.
    """

    __slots__ = (
        "_fingerprint",
        "_scope",
        "_tolerant",
        "body",
        "client",
        "exact",
        "learned_as",
        "limits",
        "messages",
        "mode",
        "name",
        "sent",
        "summarize",
    )

    def __init__(
        self,
        body: RequestBody,
        limits: TokenLimits,
        name: str,
        mode: PlanMode,
        summarize: SummarizeWith | None,
        *,
        learned_as: str = "",
        client: bytes = b"",
    ) -> None:
        self.learned_as, self.client, self.sent = learned_as, client, False
        self.body, self.limits, self.name, self.mode, self.summarize = body, limits, name, mode, summarize
        self.messages = without_leading_text(body.dialect, body.messages)
        # Leading system text changes from request to request, so only its role enters the chain.
        first = leading(body.dialect, body.messages)
        texts = [*(str(message["role"]) for message in self.messages[:first])]
        texts += [body.item(at) for at in range(first, len(body.item_spans))] or [body.text]
        self.exact = exact_links(body.dialect, texts[: len(self.messages)], client=client)
        self._tolerant: list[bytes] = []
        self._fingerprint = self._scope = b""

    @property
    def fingerprint(self) -> bytes:
        """A hash of model, system text and tools."""
        if not self._fingerprint:
            self._fingerprint = _hash(self.body.model.encode("utf-8", "surrogatepass"), self.scope)
        return self._fingerprint

    @property
    def scope(self) -> bytes:
        """A hash of system text and tools: what a model reads in addition to the conversation. O(their size)."""
        if not self._scope:
            body = self.body
            spans = [body.spans.get(name or "", (0, 0)) for name in (body.form.system, "tools")]
            spans += body.item_spans[: leading(body.dialect, body.messages)]
            self._scope = _hash(*(body.text[start:stop].encode("utf-8", "surrogatepass") for start, stop in spans))
        return self._scope

    @property
    def is_first(self) -> bool:
        """Whether there is at most one message after the system text: a first question."""
        return len(self.messages) - leading(self.body.dialect, self.body.messages) <= 1

    def tolerant(self) -> list[bytes]:
        """Return the tolerant chain. O(size) on first use."""
        if not self._tolerant:
            self._tolerant = tolerant_links(self.body.dialect, self.messages, client=self.client)
        return self._tolerant


def _hash(*pieces: bytes) -> bytes:
    # The length before each piece keeps ("ab", "c") apart from ("a", "bc").
    digest = blake2b(digest_size=16)
    for piece in pieces:
        digest.update(len(piece).to_bytes(8, "big"))
        digest.update(piece)
    return digest.digest()


def exact_links(dialect: str, texts: Iterable[str], *, client: bytes = b"") -> list[bytes]:
    """Return the exact chain over the JSON texts of one client's messages. O(size)."""
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
    """Return the tolerant chain over a client's messages, or its continuation `after` a link.

    O(size), at several times the cost of the exact chain.
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
    """Count the messages of system text at the start of a request, in a dialect that puts it among the messages.

    They do not identify a conversation: clients write the time or the working folder into them for each request.
    """
    if not codec(dialect).system_inside:
        return 0
    count = 0
    for message in messages:
        if message.get("role") not in ("system", "developer"):
            break
        count += 1
    return count


def without_leading_text(dialect: str, messages: Sequence[Mapping[str, Json]]) -> list[Mapping[str, Json]]:
    """Return the messages, the leading ones reduced to their roles: the input of the tolerant chain."""
    count = leading(dialect, messages)
    return [*({"role": message.get("role")} for message in messages[:count]), *messages[count:]]


def without_markers(value: Json) -> Json:
    """Return the JSON without cache markers, or the same object if it has none. O(size)."""
    if isinstance(value, dict):
        pairs = ((name, inner) for name, inner in value.items() if name != "cache_control")
        # The `input` of a call belongs to a tool, whose parameters may have any name.
        copy = {name: inner if name == "input" else without_markers(inner) for name, inner in pairs}
        same = len(copy) == len(value) and all(copy[name] is value[name] for name in copy)
        return value if same else copy
    if isinstance(value, list):
        items = [without_markers(inner) for inner in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    return value


def _link(before: bytes, data: bytes) -> bytes:
    return blake2b(data, digest_size=LINK_BYTES, key=before).digest()


def _spell(value: Json, name: str, pieces: list[str]) -> None:
    """Append pieces that are the same for every spelling of a value. The first character of a piece is its type."""
    if isinstance(value, str):
        if name == "content":
            pieces += ("[", "{", "ktext", _text(value), "ktype", "stext", "}", "]")
        else:
            pieces.append("stext" if name == "type" and value in _TEXT_TYPES else _text(value))
    elif isinstance(value, Mapping):
        ignored = () if name == "input" else _IGNORED_FIELDS
        pieces.append("{")
        for key in sorted(value):
            inner = value[key]
            if inner is not None and key not in ignored and (key, inner) != _DEFAULT_TYPE:
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
    # For ASCII, removing characters is six times faster than splitting at them.
    plain = text.translate(_WHITE) if text.isascii() else "".join(text.split())
    return f"s{plain}"


# --- cache markers ----------------------------------------------------------------------------------------------------


def recorded_form(wire: Wire, body: RequestBody) -> Wire:
    """Return a message as it is recorded, without cache markers: those hold for one request only."""
    if not dialect_named(body.dialect).cache_markers:
        return wire
    bare_wire = without_markers(wire)
    return bare_wire if isinstance(bare_wire, dict) else wire


def has_markers(body: RequestBody) -> bool:
    """Whether any message of a request has a cache marker. O(size)."""
    start, stop = body.spans[body.form.messages]
    return body.text.find(MARKER, start, stop) >= 0


def wants_markers(body: RequestBody) -> bool:
    """Whether a client has set no cache marker anywhere, for a model that caches only up to markers."""
    if not dialect_named(body.dialect).cache_markers or MARKER in body.text:
        return False
    model = lookup(body.model)
    return model.known and model.cache.write_ratio > 1


def with_markers(request: Request, system: System, model: str) -> tuple[list[Wire], System]:
    """Return messages and system text with the markers that an agent of this library would set. O(messages)."""
    # Tools keep the client's bytes: the marker of the system text, or of the first messages, covers them too.
    system, _, messages = anthropic_points(
        system,
        None,
        request.messages,
        stable_until=request.stable_until,
        breaks_at=request.breaks_at,
        lasts_until=request.lasts_until,
        tokens=request.tokens,
        model=model,
    )
    return messages, system


def messages_json(body: RequestBody, shown: Sequence[Wire], positions: Mapping[int, int], recorded: int) -> str:
    """Return the JSON of `shown`, with the client's own text for each message whose id is in `positions`.

    Messages that were not `recorded` follow at the end, unchanged. O(messages).
    """
    pieces = []
    for wire in shown:
        at = positions.get(id(wire))
        pieces.append(to_json(wire) if at is None or not body.item_spans else body.item(at))
    pieces += map(body.item, range(recorded, len(body.item_spans)))
    if dialect_named(body.dialect).cache_markers and has_markers(body) and not any(MARKER in piece for piece in pieces):
        # All cache markers were on folded messages: without a new one nothing would be cached any more.
        pieces[-1] = to_json(with_marker(shown[-1] if recorded == len(body.messages) else body.messages[-1]))
    return f"[{','.join(pieces)}]"


def with_marker(wire: Wire) -> Wire:
    """Return a message with a cache marker on its last block, or unchanged if it has no block for one."""
    content = wire.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list) or not blocks or not isinstance(blocks[-1], dict):
        return wire
    return {**wire, "content": [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}]}


def with_valid_markers(body: RequestBody) -> RequestBody | None:
    """Return a request whose cache markers Anthropic accepts in number and order; None if the client's are valid.

    The rules are those of `foldline.view.request`. Tools and system text lose markers only if they have too many by
    themselves, the newest messages keep theirs, and thinking has none. A marker for the whole request is one of the
    four (Anthropic docs, "Prompt caching"). O(size).
    """
    # A pure function of the request: the same markers are always mended the same way, so the cached prefix stays.
    if not dialect_named(body.dialect).cache_markers or MARKER not in body.text:
        return None
    tools, system, wires = (
        body.fields.get("tools"),
        body.fields.get("system"),
        list(map(_without_thinking_markers, body.messages)),
    )
    most = MARKERS - isinstance(body.fields.get("cache_control"), dict)
    lifetimes = list(markers(tools, system, wires))
    same = all(a is b for a, b in zip(wires, body.messages, strict=True))
    if same and len(lifetimes) <= most and not any(out_of_order(lifetimes)):
        return None
    outside, inside = len(list(markers(tools, system, ()))), sum(map(count_markers, wires))
    if outside > most:
        tools, system = limit_markers(tools, system, most - bool(inside))
    outside = len(list(markers(tools, system, ())))
    tools, short = order_markers(tools, False)
    system, short = order_markers(system, short)
    shown, _ = order_markers(_newest(wires, most - outside), short)
    changed = body.changed(_changes(body, tools, system, shown))
    return read_body(body.form, changed, addressed=body.addressed, streamed=body.streamed_by_path)


def _without_thinking_markers(wire: Wire) -> Wire:
    """Return a message without markers on its thinking, or the same object if there are none."""
    blocks = wire.get("content")
    if not isinstance(blocks, list) or not count_markers(wire):
        return wire
    out = [strip_markers(each) if isinstance(each, dict) and each.get("type") in THOUGHTS else each for each in blocks]
    return wire if all(a is b for a, b in zip(out, blocks, strict=True)) else {**wire, "content": out}


def _newest(wires: Sequence[Wire], keep: int) -> list[Wire]:
    """Return the messages with the last `keep` markers only. Messages that do not change are the same objects."""
    out: list[Wire] = []
    for wire in reversed(wires):
        here = count_markers(wire)
        out.append(keep_last_markers(wire, keep))
        keep -= min(here, keep)
    return out[::-1]


def _changes(body: RequestBody, tools: Json, system: Json, shown: Sequence[Wire]) -> dict[str, str]:
    """Return the JSON of the changed fields, with the client's own text for each unchanged message."""
    changes = {"tools": to_json(tools)} if tools is not body.fields.get("tools") else {}
    if system is not body.fields.get("system"):
        changes["system"] = to_json(system)
    pairs = zip(body.messages, shown, strict=True)
    if any(original is not wire for original, wire in pairs):
        texts = [
            body.item(at) if original is wire else to_json(wire)
            for at, (original, wire) in enumerate(zip(body.messages, shown, strict=True))
        ]
        changes[body.form.messages] = f"[{','.join(texts)}]"
    return changes
