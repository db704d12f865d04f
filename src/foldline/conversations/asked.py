"""A request on its way to its conversation: with its chains, and what it stands beside."""

from __future__ import annotations

from hashlib import blake2b
from typing import Literal, TypeAlias

from foldline.budget import Limits
from foldline.context import SummarizeWith
from foldline.conversations.body import RequestBody
from foldline.conversations.chain import exact_links, leading, said, tolerant_links

__all__ = ["Asked", "How", "beside_of"]

How: TypeAlias = Literal["fold", "look", "refuse"]
"""Fold what does not fit; the same, written nowhere; refuse what does not fit."""


class Asked:
    """A request, with its chains."""

    __slots__ = ("_tolerant", "body", "exact", "how", "limits", "messages", "name", "summarize")

    def __init__(self, body: RequestBody, limits: Limits, name: str, how: How, summarize: SummarizeWith | None) -> None:
        self.body, self.limits, self.name, self.how, self.summarize = body, limits, name, how, summarize
        self.messages = said(body.dialect, body.messages)
        first = leading(body.dialect, body.messages)
        texts = [*(str(message["role"]) for message in self.messages[:first])]
        texts += [body.item(at) for at in range(first, len(body.item_spans))] or [body.text]
        self.exact = exact_links(body.dialect, texts[: len(self.messages)])
        self._tolerant: list[bytes] = []

    def tolerant(self) -> list[bytes]:
        """The tolerant chain, made when it is first asked for."""
        if not self._tolerant:
            self._tolerant = tolerant_links(self.body.dialect, self.messages)
        return self._tolerant


def beside_of(body: RequestBody) -> bytes:
    """A hash of the model and of what stands beside what is said: system text and tools."""
    made = blake2b(body.model.encode("utf-8", "surrogatepass"), digest_size=16)
    spans = [body.spans.get(name or "", (0, 0)) for name in (body.form.system, "tools")]
    for start, stop in (*spans, *body.item_spans[: leading(body.dialect, body.messages)]):
        made.update(body.text[start:stop].encode("utf-8", "surrogatepass"))
    return made.digest()
