"""A summariser out of any provider: what `Context.prepare_async` and `compact_async` ask for a summary."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from foldline.codecs import codec
from foldline.engine.context import Completion, Request
from foldline.errors import InvalidInput
from foldline.failures import redact
from foldline.messages import Wire
from foldline.providers.base import Provider, Reply
from foldline.tokens import ESTIMATE, Counter, message_tokens, system_tokens
from foldline.view.system_and_tools import System
from foldline.view.transcript import Usage
from foldline.view.usage import usage_of

__all__ = ["Summariser", "summariser"]

_BETWEEN: Final = "\n\n"

OnReply: TypeAlias = Callable[[Reply], Awaitable[None] | None]


def summariser(provider: Provider, *, on_reply: OnReply | None = None, counter: Counter = ESTIMATE) -> Summariser:
    """What asks the provider for a summary; `on_reply` gets each reply, for its usage, and may be awaitable."""
    return Summariser(provider, on_reply, counter)


class Summariser:
    """Asks a provider for summaries, by a prompt of their own or by going on from a request of the session.

    Keys and tokens in known shapes are taken out of a summary. ProviderError is raised, which the context takes for a
    failed summary. A text that was cut off or refused is said to be so, and rejected there, as is a call of a tool.
    """

    def __init__(self, provider: Provider, on_reply: OnReply | None, counter: Counter) -> None:
        self._provider, self._on_reply, self._counter = provider, on_reply, counter

    @property
    def model(self) -> str:
        """The name of the model that writes."""
        return self._provider.model

    @property
    def dialect(self) -> str:
        """The dialect of the provider."""
        return self._provider.dialect

    async def __call__(self, messages: list[dict[str, str]], max_output_tokens: int) -> Completion:
        """A summary for plain texts."""
        return await self._asked(_request(self.dialect, messages, max_output_tokens, self._counter))

    async def continued(self, request: Request) -> Completion:
        """A summary for a request of the session with the question at its end."""
        return await self._asked(request)

    async def _asked(self, request: Request) -> Completion:
        reply: Reply | None = None
        async for piece in self._provider.stream(request):
            if isinstance(piece, Reply):
                reply = piece
        if reply is None:
            return Completion("", "length")
        if self._on_reply is not None:
            heard = self._on_reply(reply)
            if heard is not None:
                await heard
        reason = "tool_calls" if reply.calls else reply.finish_reason
        return Completion(redact(reply.text), reason, _usage(reply))


def _usage(reply: Reply) -> Usage | None:
    """What was reported, if anything was that can be read."""
    try:
        return None if reply.usage is None else usage_of(reply.usage)
    except InvalidInput:
        return None


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
        once=len(wires),
    )
