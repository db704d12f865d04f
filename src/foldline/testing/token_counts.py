"""Tokens of a request as the fake counts them: all of them, and those in its prompt cache.

The count knows nothing of the estimate under test. The cache holds the beginnings of earlier requests, by model, in the
two ways of the providers. OpenAI and most compatible servers find the longest beginning in common with an earlier
request. Anthropic ("Prompt caching") stores only what ends at a `cache_control` breakpoint, and a request finds what
was stored at one of its own breakpoints or at most 20 blocks before it. Minimum sizes and expiry are left out: a test
checks that the prefix is stable, not how long it is.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from foldline.messages import Json
from foldline.replay.run import common_prefix
from foldline.testing.script import Body

__all__ = ["IMAGE_TOKENS", "Cached", "PromptCache", "breakpoints", "count_body", "count_text", "dumped"]

IMAGE_TOKENS: Final = 85
"""The tokens of an image or file in base64, whatever its size: OpenAI's figure for an image of low detail."""

_COMPACT: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
# The fields that a model reads, in the order in which providers cache them: tools, system text, messages.
_PROMPT_FIELDS: Final = ("tools", "system", "instructions", "messages", "input", "systemInstruction", "contents")
# Base64 in all dialects: a data URL, a source of Anthropic, inline data of Gemini. It would count as text otherwise,
# at a quarter of a token per byte.
_PAYLOAD: Final = re.compile(
    r'(?:;base64,|"(?:type":"base64|mime_?[tT]ype":"[^"]{1,80})",[^{}]{0,80}?"data":")[A-Za-z0-9+/=_-]+'
)


def dumped(value: Json) -> str:
    """Return compact JSON. O(size)."""
    return _COMPACT.encode(value)


def count_text(text: str) -> int:
    """Return the tokens of a text: a quarter of its UTF-8 bytes, rounded up. O(size)."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // 4)


def count_body(body: Body) -> int:
    """Return the tokens of a request: a quarter of the UTF-8 bytes of its tools, system text and messages as JSON.

    The payload of an image costs IMAGE_TOKENS. O(size).
    """
    # Deliberately crude and unlike the estimate of the library: a fake that counted in the same way would hide an
    # error of the estimate from every test.
    text = "\n".join(dumped(body[name]) for name in _PROMPT_FIELDS if body.get(name))
    text, images = _PAYLOAD.subn("", text)
    return count_text(text) + images * IMAGE_TOKENS


# --- the prompt cache -----------------------------------------------------------------------------------------------

_LOOK_BACK_BLOCKS: Final = 20  # "Prompt caching": up to 20 blocks before each breakpoint are checked
# Bounds of the memory of a long soak test. A session compares with its own last prompts only.
_KEPT_PROMPTS: Final = 8
_KEPT_MODELS: Final = 16
_KEPT_MARKS: Final = 4_096


@dataclass(frozen=True, slots=True)
class Cached:
    """The tokens of a request that were read from the cache, and those written to it (Anthropic only)."""

    read_tokens: int = 0
    written_tokens: int = 0


class PromptCache:
    """Remembers a bounded number of requests, and finds how much of the next one is cached."""

    def __init__(self) -> None:
        self._prompts: OrderedDict[str, deque[str]] = OrderedDict()
        self._marks: OrderedDict[bytes, None] = OrderedDict()

    def by_prefix(self, body: Body, tokens: int) -> Cached:
        """Find the longest beginning in common with a request to the same model, and remember this one. O(size)."""
        fields = ("tools", "instructions", "systemInstruction", "messages", "input", "contents")
        text = "\n".join(dumped(body[name]) for name in fields if body.get(name))
        model = str(body.get("model"))
        known = self._prompts.setdefault(model, deque(maxlen=_KEPT_PROMPTS))
        self._prompts.move_to_end(model)
        if len(self._prompts) > _KEPT_MODELS:
            self._prompts.popitem(last=False)
        # Compared as text, so a change anywhere in the beginning ends the common part, as with a real provider.
        common = max((common_prefix(before, text) for before in known), key=len, default="")
        known.append(text)
        # Tokens in proportion to bytes: the count of the fake is one of bytes.
        return Cached(tokens * _size(common) // max(1, _size(text)))

    def by_breakpoint(self, body: Body, tokens: int) -> Cached:
        """Find the longest stored prefix, and store those that end at the breakpoints of this request. O(size)."""
        # A running digest, so that each block is hashed once, however many breakpoints there are.
        if not breakpoints(body):
            return Cached()
        running = hashlib.blake2b(dumped(body.get("model")).encode(), digest_size=16)
        digests: list[bytes] = []
        ends: list[int] = []
        marked: list[int] = []
        size = 0
        for number, (place, block) in enumerate(_blocks(body)):
            is_marked = _marks(block) > 0
            # The place belongs to the digest: the same text as system and as message is not the same prefix.
            data = f"{place}:{dumped(_bare(block) if is_marked else block)}".encode("utf-8", "surrogatepass")
            size += len(data)
            # With the length in front, so that no two lists of blocks have the same bytes.
            running.update(len(data).to_bytes(8, "big") + data)
            digests.append(running.digest())
            ends.append(size)
            if is_marked:
                marked.append(number)
        if body.get("cache_control") and digests:  # of the whole request: a breakpoint at its last block
            # Automatic caching of the whole request ("Prompt caching").
            marked.append(len(digests) - 1)
        found = max((self._found(digests, mark) for mark in marked), default=-1)
        for mark in marked:
            self._marks[digests[mark]] = None
            self._marks.move_to_end(digests[mark])
        while len(self._marks) > _KEPT_MARKS:
            self._marks.popitem(last=False)
        read = tokens * ends[found] // size if found >= 0 else 0
        return Cached(read, tokens * ends[max(marked)] // size - read)

    def _found(self, digests: list[bytes], mark: int) -> int:
        """Return the last block, at `mark` or shortly before it, that ends a stored prefix; -1 for none."""
        near = range(mark, max(-1, mark - _LOOK_BACK_BLOCKS - 1), -1)
        return next((number for number in near if digests[number] in self._marks), -1)


def breakpoints(body: Body) -> int:
    """Return the number of cache breakpoints of an Anthropic request. O(blocks)."""
    return sum(_marks(block) for _, block in _blocks(body)) + bool(body.get("cache_control"))


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _blocks(body: Body) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield all blocks with their places, in the order of caching: tools, system, messages."""
    for tool in body.get("tools") or ():
        yield "tool", tool
    for block in _listed(body.get("system")):
        yield "system", block
    for message in body.get("messages") or ():
        for block in _listed(message.get("content")):
            yield message["role"], block


def _listed(content: Json) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(content or ())


def _inner(block: Mapping[str, Any]) -> list[Any]:
    """Return the blocks inside a block, as a tool result has them."""
    content = block.get("content")
    return [one for one in content if isinstance(one, Mapping)] if isinstance(content, list) else []


def _marks(block: Mapping[str, Any]) -> int:
    return sum(one.get("cache_control") is not None for one in (block, *_inner(block)))


def _bare(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a block without its marks."""
    # A mark that moves on to a newer block must not change the older one.
    bare = {name: value for name, value in block.items() if name != "cache_control"}
    return {**bare, "content": [_bare(one) for one in _inner(block)]} if _inner(block) else bare
