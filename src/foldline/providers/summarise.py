"""A summariser out of any provider: what `Context.prepare_async` and `compact_async` ask for a summary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from foldline.beside import System
from foldline.codecs import codec
from foldline.context import AsyncSummarize, Completion, Request
from foldline.failures import redact
from foldline.messages import Wire
from foldline.providers.base import Provider, Reply
from foldline.tokens import ESTIMATE, Counter, message_tokens, system_tokens

__all__ = ["summariser"]

_BETWEEN: Final = "\n\n"


def summariser(
    provider: Provider, *, on_reply: Callable[[Reply], None] | None = None, counter: Counter = ESTIMATE
) -> AsyncSummarize:
    """A function that asks the provider for a summary; `on_reply` gets each reply, for its usage.

    Keys and tokens in known shapes are taken out of it. ProviderError is raised, which the context takes for a failed
    summary. A text that was cut off or refused is said to be so, and rejected there.
    """

    async def summarise(messages: list[dict[str, str]], max_output_tokens: int) -> Completion:
        reply: Reply | None = None
        async for piece in provider.stream(_request(provider.dialect, messages, max_output_tokens, counter)):
            if isinstance(piece, Reply):
                reply = piece
        if reply is None:
            return Completion("", "length")
        if on_reply is not None:
            on_reply(reply)
        return Completion(redact(reply.text), reply.finish_reason)

    return summarise


def _request(dialect: str, messages: list[dict[str, str]], max_output_tokens: int, counter: Counter) -> Request:
    """Plain texts as a request of the dialect: system text beside the messages, which is right in all three."""
    reader = codec(dialect)
    texts = [message["content"] for message in messages if message["role"] == "system"]
    system: System = _BETWEEN.join(texts) if texts else None
    wires: list[Wire] = [dict(message) for message in messages if message["role"] != "system"]
    tokens = system_tokens(system, counter) + sum(message_tokens(reader.read(wire), counter) for wire in wires)
    return Request(
        messages=wires,
        system=system,
        tools=None,
        tokens=tokens,
        max_output_tokens=max_output_tokens,
        stable_until=0,
        folds=(),
        repairs=(),
    )
