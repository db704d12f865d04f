"""Questions that go on from a client's request: sent with all that the client sends beside its messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol, runtime_checkable

from foldline.conversations.request_body import RequestBody
from foldline.engine.context import Completion, Request, SummarizeWith
from foldline.messages import Json, Wire
from foldline.providers.cache_points import has_point
from foldline.providers.summariser import is_text_only

__all__ = ["ForClient", "as_client"]

_NOT_ASKED: Final = frozenset(
    "background logit_bias logprobs metadata n prediction seed stop stop_sequences store stream_options top_logprobs "
    "truncation".split()
)
"""Fields that say how a client wants its own replies. No prompt is made of them, so that a cache does not see them."""


@runtime_checkable
class ForClient(Protocol):
    """A summariser that can send a question with the fields of a client's request."""

    @property
    def model(self) -> str:
        """The model that writes."""

    def __call__(self, messages: list[dict[str, str]], max_output_tokens: int, /) -> str | Completion:
        """A summary for plain texts."""

    def as_client(self, request: Request, fields: Mapping[str, Json], /) -> str | Completion:
        """A summary for a request of the client with a question at its end, and with these fields beside it."""


@dataclass(frozen=True, slots=True)
class _AsClient:
    """The summariser of one request of a conversation; a context takes it for one that can go on from it."""

    asks: ForClient
    places: Callable[[], Mapping[int, int]]
    body: RequestBody
    seen: Callable[[], None]

    @property
    def model(self) -> str:
        return self.asks.model

    @property
    def dialect(self) -> str:
        return self.body.dialect

    def __call__(self, messages: list[dict[str, str]], max_output_tokens: int, /) -> str | Completion:
        return self.asks(messages, max_output_tokens)

    def continued(self, request: Request, /) -> str | Completion:
        """The client's own messages, with the cache markers that it sets now."""
        self.seen()
        known = self.places()
        messages: list[Wire] = []
        for wire in request.messages:
            at = known.get(id(wire))
            messages.append(wire if at is None else self.body.messages[at])
        return self.asks.as_client(replace(request, messages=messages), _fields(self.body))


def as_client(
    summarize: SummarizeWith | None,
    body: RequestBody,
    places: Callable[[], Mapping[int, int]],
    seen: Callable[[], None] = lambda: None,
) -> SummarizeWith | None:
    """The summariser, able to go on from what a client sends where its requests are such that an answer is a text.

    That is: no call is forced, no form is set, and there is no field that is not known to do no harm.

    `places` says which message of the body a recorded one is, by its identity. `seen` is called before a model is
    asked that has system text and tools in sight.
    """
    if isinstance(summarize, ForClient) and is_text_only(_fields(body)) and _cached(body):
        return _AsClient(summarize, places, body, seen)
    return summarize


def _fields(body: RequestBody) -> dict[str, Json]:
    """What stands beside model, messages, system text and tools, the caps and the way of streaming aside."""
    form = body.form
    apart = {"model", "tools", "stream", form.messages, form.system or "", *form.caps} | _NOT_ASKED
    return {name: value for name, value in body.fields.items() if name not in apart and value is not None}


def _cached(body: RequestBody) -> bool:
    """Whether a cache holds what the client sends: Anthropic's only does if it is asked to."""
    return body.dialect != "anthropic" or bool(body.fields.get("cache_control")) or any(map(has_point, body.messages))
