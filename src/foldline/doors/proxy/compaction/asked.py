"""A request that asks for compaction, and what serving it takes: counts, a summary, and the way on."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from foldline.codecs import codec
from foldline.conversations.compaction.condense import ClientHistory, Condensed, condense, condense_whole
from foldline.conversations.compaction.expansion import Expanded, rewritten
from foldline.conversations.compaction.seals import SealKey
from foldline.conversations.request_body import RequestBody
from foldline.conversations.request_plan import limits_for
from foldline.conversations.store_guard import WorkerThreads
from foldline.doors.proxy.compaction.answer_edits import BELIEVED, AnswerEdit, EditingSend
from foldline.doors.proxy.error_responses import ErrorResponse, error_response
from foldline.doors.proxy.exchange import ProxyExchange
from foldline.doors.proxy.request_head import ENCODING, Headers
from foldline.doors.proxy.summaries import RequestSummariser
from foldline.engine.context import Completion
from foldline.engine.policy import Policy
from foldline.errors import ProviderError
from foldline.messages import Wire
from foldline.tokens import ESTIMATE, message_tokens, system_tokens, tools_tokens
from foldline.view.transcript import Usage

__all__ = ["DONE_BY", "Asked", "AskedSummariser", "CompactionParts", "TokenRatios", "plain_headers"]

DONE_BY: Final = b"x-foldline-compaction"
"""The header that says who compacts."""

# The betas that Anthropic asks for: an upstream that does not do what they stand for need not know them.
_BETAS: Final = frozenset({b"compact-2026-01-12", b"compact-2026-09-04", b"context-management-2025-06-27"})
_BETA_HEADER: Final = b"anthropic-beta"

# The window counts as full below the share of its input limit at which the proxy would fold unasked (0.85).
_FULL_SHARE: Final = 0.8

# Parts that may be larger than their text: an image is named by its address, a file by its id.
_LARGE_PARTS: Final = (b'"image', b'"document"', b'"file', b'"input_image"', b'"input_file"')

# Text counted on the event loop, some milliseconds of work. More goes into a thread.
_MAX_INLINE_BYTES: Final = 64 * 1024

_LEAST_TOKENS: Final = 500  # a prompt of fewer says little about others
_MAX_RATIOS: Final = 1_000

T = TypeVar("T")


class TokenRatios:
    """How many tokens upstreams count for one of ours, by client and model. Bounded; the latest report counts."""

    def __init__(self) -> None:
        self._ratios: OrderedDict[tuple[bytes, str], float] = OrderedDict()

    def of(self, client: bytes, model: str) -> float:
        """The ratio for a client's requests to a model; 1.0 before the first report."""
        return self._ratios.get((client, model), 1.0)

    def learn(self, client: bytes, model: str, reported_tokens: int, counted_tokens: int) -> None:
        """Learn from a report; one that cannot be about the same messages teaches nothing."""
        low, high = BELIEVED
        if counted_tokens < _LEAST_TOKENS or not low <= reported_tokens / counted_tokens <= high:
            return
        self._ratios[client, model] = reported_tokens / counted_tokens
        self._ratios.move_to_end((client, model))
        if len(self._ratios) > _MAX_RATIOS:
            self._ratios.popitem(last=False)


@dataclass(frozen=True, slots=True)
class CompactionParts:
    """What all requests for compaction share: the key of the proxy, its policy, its threads, and what it learned."""

    key: SealKey
    policy: Policy
    threads: WorkerThreads
    ratios: TokenRatios = field(default_factory=TokenRatios)


@dataclass(slots=True)
class AskedSummariser:
    """The summariser of one request, which keeps the last error: a digest must not hide a refused credential."""

    asks: RequestSummariser
    error: Exception | None = None

    def __call__(self, messages: list[dict[str, str]], max_output_tokens: int, /) -> Completion:
        """Summarise plain texts."""
        try:
            return self.asks(messages, max_output_tokens)
        except Exception as error:  # kept, and raised again: the engine takes over with a digest
            self.error = error
            raise

    @property
    def usages(self) -> tuple[Usage, ...]:
        """What the upstream reported for each call."""
        return tuple(self.asks.usages)


@dataclass(slots=True)
class Asked:
    """A request that asks for compaction. `window_tokens` is None for an unknown window."""

    parts: CompactionParts
    exchange: ProxyExchange
    body: RequestBody
    client: bytes
    window_tokens: int | None = None
    summariser: AskedSummariser | None = None
    counted_tokens: int = 0
    """Our count of the messages that were counted last."""

    @property
    def usages(self) -> tuple[Usage, ...]:
        """What the upstream reported for the summary."""
        return () if self.summariser is None else self.summariser.usages

    @property
    def most_tokens(self) -> int | None:
        """The size at which the window is full; None for an unknown window."""
        if self.window_tokens is None:
            return None
        return int(_FULL_SHARE * limits_for(self.body, self.window_tokens).input_tokens)

    def due(self, trigger: int) -> int:
        """The size from which on to compact: the client's, unless the window is full before."""
        return trigger if self.most_tokens is None else min(trigger, self.most_tokens)

    def tokens_of(self, wire: Wire) -> int:
        """Count the tokens of a message, by our own count. Raises InvalidInput."""
        return message_tokens(codec(self.body.dialect).read(wire), ESTIMATE)

    def may_have(self, tokens: int) -> bool:
        """Whether the request may have so many tokens, by its length: each has at least one byte. O(size)."""
        raw = self.body.raw
        return len(raw) >= tokens or any(part in raw for part in _LARGE_PARTS)

    async def counted(self, messages: Sequence[Wire]) -> int:
        """Count the tokens of the request with these messages, as the upstream would count them. Raises InvalidInput.

        That is our own count, corrected by what the upstream has reported for this client and model.
        """
        body = self.body

        def count() -> int:
            fixed = system_tokens(body.system, ESTIMATE) + tools_tokens(body.tools, ESTIMATE)
            return fixed + sum(map(self.tokens_of, messages))

        inline = len(body.raw) <= _MAX_INLINE_BYTES
        self.counted_tokens = count() if inline else await self.parts.threads.run(count)
        return round(self.counted_tokens * self.parts.ratios.of(self.client, body.model))

    async def condensed(self, expanded: Expanded, *, instructions: str | None = None) -> Condensed | None:
        """Condense the conversation, by a model if one is to be asked; None for nothing to fold.

        Raises InvalidInput.
        """
        history, policy = self._history(expanded), self.parts.policy
        return await self._written(lambda: condense(history, policy, self.summariser, instructions), "")

    async def summarised(self, expanded: Expanded, *, instructions: str | None = None, target: str = "") -> Condensed:
        """Summarise the whole conversation, by a model if one is to be asked, at the path `target`.

        Raises InvalidInput.
        """
        history, policy = self._history(expanded), self.parts.policy
        return await self._written(lambda: condense_whole(history, policy, self.summariser, instructions), target)

    def _history(self, expanded: Expanded) -> ClientHistory:
        body = self.body
        return ClientHistory(
            dialect=body.dialect,
            messages=expanded.messages,
            system=body.system,
            tools=body.tools,
            model=body.model,
            window_tokens=self.window_tokens,
            max_output_tokens=body.cap_tokens,
            summaries=expanded.summaries,
        )

    async def _written(self, work: Callable[[], T], target: str) -> T:
        body, exchange = self.body, self.exchange
        if exchange.services.summaries is not None:
            of = body.dialect, body.model, exchange.headers, asyncio.get_running_loop()
            asks = exchange.services.summaries.for_request(*of, client=self.client, target=target or exchange.target)
            self.summariser = AskedSummariser(asks)
        try:
            return await self.parts.threads.run(work, summarizes=True)
        except asyncio.CancelledError:
            exchange.leave()
            raise
        finally:
            if self.summariser is not None:
                exchange.summaries, exchange.summary_model = self.usages, self.summariser.asks.model

    def denied(self) -> ErrorResponse | None:
        """The upstream's own refusal of the client's credential, which an answer made here must not hide; or None."""
        summariser = self.summariser
        error = None if summariser is None else summariser.error
        if summariser is None or not isinstance(error, ProviderError):
            return None
        # A key that may not use the model for summaries may still use its own.
        own = summariser.asks.model == self.body.model
        if error.failure.status != 401 and not (error.failure.status == 403 and own):
            return None
        return error_response(self.body.dialect, error.failure.status or 401, error.failure.message)

    async def go_on(
        self,
        messages: Sequence[Wire],
        edit: AnswerEdit | None = None,
        *,
        warning: str = "",
        sent_tokens: int | None = None,
        planned: bool = True,
    ) -> None:
        """Send the request with other messages, without the fields that were served here, and change its answer.

        `sent_tokens` is our own count of it, if it was counted. Unless `planned` it is not folded.
        """
        exchange = self.exchange
        raw = rewritten(self.body, messages, ("context_management", "compaction"))
        exchange.send = EditingSend(exchange.send, [(DONE_BY, b"foldline")], edit, warning, wanted=self.body.streamed)
        exchange.headers = plain_headers(exchange.headers, edited=edit is not None)
        await exchange.run(raw, planned=planned)
        plan, watch = exchange.planned, exchange.watch
        usage = None if watch is None else watch.usage
        # A report is about what was sent: of a folded request it does not say how good the count was.
        if sent_tokens and usage is not None and plan is not None and not plan.plan.changed:
            self.parts.ratios.learn(self.client, self.body.model, usage.input_tokens, sent_tokens)

    async def answer(self, response: ErrorResponse, *, warning: str = "") -> None:
        """Give an answer that needs no reply of a model."""
        exchange = self.exchange
        exchange.send = EditingSend(exchange.send, [(DONE_BY, b"foldline")], warning=warning)
        exchange.body = self.body
        await exchange.answer(response, "compacted" if response.status < 400 else "refused")


def plain_headers(headers: Headers, *, edited: bool) -> Headers:
    """Return the headers of a request that was changed: no coding, no betas that are served here.

    With `edited` its answer will be changed too, and is asked for without a coding.
    """
    out: Headers = []
    for name, value in headers:
        plain = name.lower()
        if plain == ENCODING or (edited and plain == b"accept-encoding"):
            continue
        if plain == _BETA_HEADER:
            betas = [beta for beta in map(bytes.strip, value.split(b",")) if beta and beta not in _BETAS]
            out += [(name, b",".join(betas))] if betas else []
        else:
            out.append((name, value))
    return [*out, (b"accept-encoding", b"identity")] if edited else out
