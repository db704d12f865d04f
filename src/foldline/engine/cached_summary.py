"""Asks for a summary inside the session itself, where the provider's cache makes that cheaper.

A prompt of its own repeats the span to be summarised, at the full price. The request that the provider has just
answered is in its cache: the same bytes with one message more, the question, are read from there for a tenth of the
price at most providers. The prefix is what was *sent*, even when a milder reducer has changed the view since: what it
shortened is still there in full.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from foldline.catalog.prices import CacheRule, request_price
from foldline.errors import ProviderError, SummaryError
from foldline.messages import Json, Reasoning
from foldline.reducers.base import Ask
from foldline.view.budget import TokenLimits
from foldline.view.origins import OURS, shown_origins
from foldline.view.request import Request
from foldline.view.system_and_tools import System, SystemAndTools, Tools
from foldline.view.transcript import Seq, Usage
from foldline.view.user_words import speaks
from foldline.view.view import View

__all__ = ["CachedSummary"]

# Share of a prompt by which its count may be wrong. The provider has just taken the larger part of it and mostly said
# how large that is; 1.1 % was seen for the rest. A prompt that does not fit is refused, and asked plainly.
SLACK = 0.03

# Less room than this for the reply cuts a checkpoint off: models write about as much when nobody limits them.
LEAST_TOKENS = 800

# Words to a token of room: 0.75 is usual in English, less in code and in other languages.
WORDS = 0.6

# After so many replies in a row that are too long the session is no longer asked: each is paid for beside the prompt.
MOST_TOO_LONG = 2

# What a message takes beside its text, and the two sentences that are added here.
_AROUND_TOKENS = 64

# After so many server faults in a row a prompt of its own is tried: some servers answer a form with a 500.
MOST_FAULTS = 2

# Refusals that a request of another form would meet too.
_NOT_THE_FORM = frozenset({"auth", "quota", "rate"})

# Refusals of this one question, which was a little too large: a prompt of its own is smaller.
_SIZES = frozenset({"prompt_overflow", "output_overflow", "bytes_overflow", "request_too_large_for_rate"})

# Statuses that the same question would bring again.
_OF_THE_FORM = frozenset({400, 404, 405, 415, 422})


@dataclass(slots=True)
class CachedSummary:
    """Chooses between two ways of asking for a summary: inside the session, or by a prompt of its own.

    It remembers the last request, as long as the session is still what it was then. Once a reply is not a summary, the
    session is no longer used: the model has gone on with its work, and would again. A reply that was merely too long
    is another matter, since a model writes no less to a prompt of its own, which costs some ten times as much: only two
    of them in a row end it. A refusal of the server ends it only where the server would refuse it again.
    """

    rule: CacheRule
    _gave_up: bool = False
    # Replies that were too long, since the last that was not.
    _too_long: int = 0
    # Server faults since the last question that it answered.
    _faults: int = 0
    _caches: bool = True
    _request: Request | None = None
    _view: View | None = None
    _stop: Seq = 0
    # Whether that request ended within a turn that the provider has to finish.
    _paused: bool = False
    # Tools and system text of that request, as they were given.
    _preamble: tuple[Tools, System] = (None, None)

    def is_cold(self, idle_seconds: float) -> bool:
        """Whether the cache has expired after a pause of this length, counted from its last use. O(1)."""
        return self.rule.expired(idle_seconds)

    def sent(self, request: Request, view: View, stop: Seq, preamble: SystemAndTools) -> None:
        """Remember a request, with the entries before `stop` in it. O(1)."""
        self._request, self._view, self._stop = request, view, stop
        self._paused = view.tiles[-1].waiting
        self._preamble = preamble.tools, preamble.system

    def reported(self, usage: Usage) -> None:
        """Learn from its report whether the provider caches at all: then something was read where much was repeated."""
        request = self._request
        if usage.cached_tokens:
            self._caches = True
        elif not self.rule.lifetime_seconds:
            return  # the slot of a local server: it holds the last prompt, whether it reports that or not
        elif request is not None and request.stable_until and request.tokens >= 2 * self.rule.minimum_tokens:
            self._caches = False

    def forget(self) -> None:
        """The last request is in no cache: the provider refused it, or the next one goes to another model."""
        self._request = self._view = None

    def reset(self, rule: CacheRule) -> None:
        """Another model answers from now on: the replies and the cache of the one before say nothing about it."""
        self.forget()
        self.rule, self._gave_up, self._too_long, self._faults, self._caches = rule, False, 0, 0, True

    def succeeded(self) -> None:
        """A question to the session has brought a summary."""
        self._too_long = self._faults = 0

    def failed(self, error: SummaryError) -> bool:
        """Note that a question to the session has failed; whether a prompt of its own may succeed."""
        cause = error.__cause__
        if cause is None:  # there was an answer, and it was no summary: it called a tool, say
            self._faults = 0
            self._too_long += error.too_long
            self._gave_up = not error.too_long or self._too_long >= MOST_TOO_LONG
            return True
        if not isinstance(cause, ProviderError) or (status := cause.failure.status) is None:
            return False  # no server answered
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

    def cheaper(self, ask: Ask, view: View, preamble: SystemAndTools, limits: TokenLimits, *, cold: bool) -> Ask | None:
        """The same question as a request of the session; None where its own prompt is the better way.

        That is so when the session has changed, the model would not read all of the span there, there is no room for
        the reply, or it costs no less. O(messages).
        """
        request, question = self._request, ask.continued
        if self._gave_up or request is None or question is None or self._view is not view:
            return None
        if self._preamble != (preamble.tools, preamble.system):
            return None  # tools and system text stand first: another of them is another prompt from its first token on
        if any(map(_runs_at_the_provider, request.tools or ())):
            return None
        messages, tokens, stop, origins = request.messages, request.tokens, self._stop, request.origins
        if ask.stop > stop:
            # The span reaches beyond what was sent. What has come since may be appended, as long as all before it is
            # still the same: a fold in between would break the prefix.
            messages, tokens, stop = view.shown(), max(tokens, view.tokens), view.tiles[-1].stop
            origins = tuple(shown_origins(view.tiles, lead=view.has_lead))
            if messages[: len(request.messages)] != request.messages:
                return None
        if self._paused if messages is request.messages else view.tiles[-1].waiting:
            return None  # a user message may not follow a call that the provider still runs (code that calls tools)
        ratio = view.meter.ratio  # both ways are weighed in the provider's tokens, as the request is
        tokens += round(ratio * view.counter.text(question.prompt[-1]["content"])) + _AROUND_TOKENS
        wished = question.max_output_tokens
        room = min(wished, limits.window_tokens - round((1 + SLACK) * tokens))
        if room < min(wished, LEAST_TOKENS) or tokens > (limits.max_input_tokens or tokens):
            return None
        # The prices of both ways, reply left out: it is the same text either way.
        cached = 0
        if not cold and self._caches:
            cached = _still_read(request, view)
            if self.rule.write_ratio > 1:  # a provider that caches up to the points that it is given
                cached = min(cached, request.tokens - _unwritten_tokens(request, view))
        plain_tokens = round(ratio * ask.plain_tokens)
        plain_price = plain_tokens * self.rule.step(plain_tokens).input_ratio
        if request_price(self.rule, tokens, cached) >= plain_price:
            return None
        staying = _messages_after(ask, view, stop)
        words = [
            question.prompt[-1]["content"],
            f"Write at most {round(WORDS * room, -1)} words.",
            *_note_of_newest(staying),
        ]
        whole = replace(
            request,
            messages=[*messages, view.codec.write(view.codec.note("\n".join(words)))],
            tokens=tokens,
            max_output_tokens=room,
            folds=(),
            once=len(messages) - len(request.messages) + 1,
            kept=staying,
            origins=(*origins, OURS),
        )
        return replace(question, request=whole)


def _messages_after(ask: Ask, view: View, stop: Seq) -> int:
    """About how many messages stand between the span and entry `stop`."""
    return sum(len(tile.messages) for tile in view.tiles[view.index(ask.stop - 1) + 1 :] if tile.start < stop)


def _note_of_newest(staying: int) -> Iterator[str]:
    """A sentence for the model about the messages that stay in view: it need not repeat them."""
    if staying:
        newest = "newest message stays" if staying == 1 else f"newest {staying} messages stay"
        yield f"The {newest} in view beside it: do not repeat what is said there. Cover all that comes before."


# The first letters of the types of tools whose calls come back to the client; `bash_20250124` and the like are
# Anthropic's.
_RUN_BY_THE_CLIENT = ("function", "custom", "bash_", "text_editor_", "computer_", "memory_")


def _runs_at_the_provider(tool: Mapping[str, Json]) -> bool:
    """Whether a provider runs calls of a tool itself (a web search, code, an MCP server).

    A question for a summary must not act: such a call would have run before its reply could be rejected.
    """
    kind = tool.get("type")
    return isinstance(kind, str) and not kind.startswith(_RUN_BY_THE_CLIENT)


def _unwritten_tokens(request: Request, view: View) -> int:
    """Tokens behind the last cache point of a request, where its end was not worth a cache. O(those messages)."""
    if request.lasts_until is None:
        return 0
    return sum(view.count(view.codec.read(wire)) for wire in request.messages[request.lasts_until :])


def _still_read(request: Request, view: View) -> int:
    """Tokens of the last request that a cache still holds when a user message follows it. O(newest loop).

    Providers leave the reasoning of a running tool loop out once the user speaks (Anthropic, "Extended thinking with
    prompt caching"; OpenAI, "Reasoning models"), so that it is another prompt from there on. Newer models keep it;
    this code does not know which ones: for them the count is too low, and the question goes out as a prompt of its own.
    """
    after_tokens, reasoned = 0, False
    for wire in reversed(request.messages):
        message = view.codec.read(wire)
        if speaks(message):
            break
        after_tokens += view.count(message)
        reasoned = reasoned or any(isinstance(part, Reasoning) for part in message.parts)
    return max(0, request.tokens - after_tokens) if reasoned else request.tokens
