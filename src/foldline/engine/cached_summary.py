"""Asks for a summary by going on from the request that was sent last, where that is the cheaper way.

A prompt that repeats a span is paid for in full. The request that the provider has just answered stands in its cache:
the same bytes with one message more, the question, are read from there for a tenth of the price at most providers. What
was sent is the prefix even when a milder reducer has changed the view since: what it shortened is still there in full.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from foldline.catalog.prices import CacheRule, request_price
from foldline.errors import ProviderError, SummaryError
from foldline.messages import Json, Reasoning
from foldline.reducers.base import Ask
from foldline.view.budget import Limits
from foldline.view.request import Request
from foldline.view.system_and_tools import System, SystemAndTools, Tools
from foldline.view.transcript import Seq, Usage
from foldline.view.user_words import speaks
from foldline.view.view import View

__all__ = ["Continuing"]

SLACK = 0.03
"""Share of a prompt that its count may be wrong by. The larger part of it was taken by the provider just now, which
has mostly said how large it is; 1.1 % was seen for the rest. One that does not fit is refused, and put plainly."""

LEAST_TOKENS = 800
"""Room for the reply below which a checkpoint would be cut off: about what models write when nobody limits them."""

WORDS = 0.6
"""Words that a token of room is good for: 0.75 are usual in English, less in code and in other languages."""

MOST_TOO_LONG = 2
"""Replies in a row that are too long after which the session is asked no more: each is paid for beside the prompt."""

_AROUND_TOKENS = 64
"""What a message takes beside its text, and the two sentences that are added here."""

MOST_FAULTS = 2
"""Faults of the server in a row after which a prompt of its own is tried: some servers tell so of a form (a 500)."""

_NOT_THE_FORM = frozenset({"auth", "quota", "rate"})
"""Refusals that a request of another form would meet too."""

_SIZES = frozenset({"prompt_overflow", "output_overflow", "bytes_overflow", "request_too_large_for_rate"})
"""Refusals of this one question, which was a little too large: a prompt of its own is smaller."""

_OF_THE_FORM = frozenset({400, 404, 405, 415, 422})
"""Statuses that the same question would bring again."""


@dataclass(slots=True)
class Continuing:
    """What a question may be put to: the request that was sent last, as long as the session is still what it was.

    `cold` says whether the provider's cache has been left for too long. After a reply that was no summary the session
    is asked no more: the model has gone on with its work, and would again. One that was merely too long is another
    matter, for a model writes no less to a prompt of its own, which costs some ten times as much: only two of them in a
    row end it. What a server refuses ends it only where it would refuse it again.
    """

    rule: CacheRule
    cold: bool = False
    _gave_up: bool = False
    _too_long: int = 0
    """Replies that were too long, since the last that was not."""
    _faults: int = 0
    """Faults of the server, since the last question that it answered."""
    _caches: bool = True
    _request: Request | None = None
    _view: View | None = None
    _stop: Seq = 0
    _given: tuple[Tools, System] = (None, None)
    """What stood beside the messages then, before it was settled how it is sent."""

    def left(self, idle_seconds: float) -> None:
        """Take how long it is since the last request: the cache keeps what nobody uses for its lifetime. O(1)."""
        self.cold = 0 < self.rule.lifetime_seconds <= idle_seconds

    def sent(self, request: Request, view: View, stop: Seq, beside: SystemAndTools) -> None:
        """A request goes out, with the entries before `stop` in it. O(1)."""
        self._request, self._view, self._stop = request, view, stop
        self._given = beside.tools, beside.system

    def reported(self, usage: Usage) -> None:
        """Take what the provider reported for it: where nothing was read from a cache, there is none to read from."""
        request = self._request
        if usage.cached_tokens:
            self._caches = True
        elif request is not None and request.stable_until and request.tokens >= 2 * self.rule.minimum_tokens:
            self._caches = False

    def forget(self) -> None:
        """What was sent is in no cache: the provider refused it, or the next request goes to another model."""
        self._request = self._view = None

    def begin_anew(self, rule: CacheRule) -> None:
        """Another model is asked: how the one before answered says nothing of it, nor does what that one cached."""
        self.forget()
        self.rule, self._gave_up, self._too_long, self._faults, self._caches = rule, False, 0, 0, True

    def succeeded(self) -> None:
        """A question that was put so has brought a summary."""
        self._too_long = self._faults = 0

    def failed(self, error: SummaryError) -> bool:
        """A question that was put so has failed; whether to ask by a prompt of its own. So are later ones, mostly."""
        cause = error.__cause__
        if cause is None:  # there was an answer, and it was no summary: it called a tool, say
            self._faults = 0
            self._too_long += error.too_long
            self._gave_up = not error.too_long or self._too_long >= MOST_TOO_LONG
            return True
        if not isinstance(cause, ProviderError) or (status := cause.failure.status) is None:
            return False  # nobody is there
        kind = cause.failure.kind
        if kind in _NOT_THE_FORM:
            return False
        if kind in _SIZES:
            return True
        self._gave_up = kind == "malformed" or status in _OF_THE_FORM
        if status >= 500 or status == 408:
            self._faults += 1
            return self._gave_up or self._faults >= MOST_FAULTS
        return True

    def instead(self, ask: Ask, view: View, beside: SystemAndTools, limits: Limits) -> Ask | None:
        """The same question put to the session, with its whole request; None where its own prompt is the better one.

        That is: the session has changed, the model would not read all of the span there, it does not fit, or costs no
        less. O(messages).
        """
        request, question = self._request, ask.continued
        if self._gave_up or request is None or question is None or self._view is not view:
            return None
        if self._given != (beside.tools, beside.system):
            return None
        if any(map(_runs_at_the_provider, request.tools or ())):
            return None
        messages, tokens, stop = request.messages, request.tokens, self._stop
        if ask.stop > stop:
            messages, tokens, stop = view.shown(), max(tokens, view.tokens), view.tiles[-1].stop
            if messages[: len(request.messages)] != request.messages:
                return None
        ratio = view.meter.ratio  # both ways are weighed in the provider's tokens, as the request is
        tokens += round(ratio * view.counter.text(question.prompt[-1]["content"])) + _AROUND_TOKENS
        wished = question.max_output_tokens
        room = min(wished, limits.window_tokens - round((1 + SLACK) * tokens))
        if room < min(wished, LEAST_TOKENS) or tokens > (limits.max_input_tokens or tokens):
            return None
        cached = 0 if self.cold or not self._caches else _still_read(request, view)
        rule = self.rule
        plain_tokens = round(ratio * ask.plain_tokens)
        plainly = plain_tokens * rule.step(plain_tokens).input_ratio
        if request_price(rule, tokens, cached) >= plainly:
            return None
        kept = _kept(ask, view, stop)
        words = [
            question.prompt[-1]["content"],
            f"Write at most {round(WORDS * room, -1)} words.",
            *_beside_it(kept),
        ]
        whole = replace(
            request,
            messages=[*messages, view.codec.write(view.codec.note("\n".join(words)))],
            tokens=tokens,
            max_output_tokens=room,
            folds=(),
            once=len(messages) - len(request.messages) + 1,
            kept=kept,
        )
        return replace(question, request=whole)


def _kept(ask: Ask, view: View, stop: Seq) -> int:
    """About how many messages before entry `stop` come after the span."""
    return sum(len(tile.messages) for tile in view.tiles[view.index(ask.stop - 1) + 1 :] if tile.start < stop)


def _beside_it(kept: int) -> Iterator[str]:
    """What need not be said again."""
    if kept:
        newest = "newest message stays" if kept == 1 else f"newest {kept} messages stay"
        yield f"The {newest} in view beside it: do not repeat what is said there. Cover all that comes before."


_RUN_BY_THE_CLIENT = ("function", "custom", "bash_", "text_editor_", "computer_", "memory_")
"""How the types of tools begin whose calls come back to the client; `bash_20250124` and the like are Anthropic's."""


def _runs_at_the_provider(tool: Mapping[str, Json]) -> bool:
    """Whether a provider runs calls of a tool itself (a web search, code, an MCP server).

    In a question that nobody sees such a call would act before its reply could be rejected.
    """
    kind = tool.get("type")
    return isinstance(kind, str) and not kind.startswith(_RUN_BY_THE_CLIENT)


def _still_read(request: Request, view: View) -> int:
    """How many tokens of what was sent a cache still holds when words of a user follow it. O(newest loop).

    Reasoning of a running tool loop is left out by providers once the user speaks (Anthropic, "Extended thinking with
    prompt caching"; OpenAI, "Reasoning models"), so that from there on it is another prompt. Newer models keep it;
    which do is not asked here: then this is too low, and the question is put plainly.
    """
    after_tokens, reasoned = 0, False
    for wire in reversed(request.messages):
        message = view.codec.read(wire)
        if speaks(message):
            break
        after_tokens += view.count(message)
        reasoned = reasoned or any(isinstance(part, Reasoning) for part in message.parts)
    return max(0, request.tokens - after_tokens) if reasoned else request.tokens
