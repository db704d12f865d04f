"""One call of a model through an adapter: what the framework is about to send, and what is sent instead."""

from __future__ import annotations

from collections.abc import Callable, Hashable, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypedDict, TypeVar

from foldline.adapters.histories import MOST_CONVERSATIONS, FollowedHistory
from foldline.adapters.translation import FrameworkHistory, Translation, framework_messages
from foldline.engine.context import AsyncSummarize, Context, SummarizeWith
from foldline.engine.events import ContextEvent
from foldline.engine.policy import Policy
from foldline.engine.recovery import Recovery
from foldline.errors import InvalidInput
from foldline.failures.classification import classify
from foldline.failures.failure import Failure
from foldline.tokens import ESTIMATE, Counter
from foldline.view.budget import MARGIN, TokenLimits, assumed_window, limits_of
from foldline.view.request import Request
from foldline.view.system_and_tools import System, Tools

__all__ = ["AdapterSettings", "FittedCall", "ModelCall", "ShownCall", "check_settings"]

M = TypeVar("M")


class AdapterSettings(TypedDict, total=False):
    """The settings that all adapters take: those of `Context`, and three of their own.

    `window` is the model's window in tokens: without it the framework's own figure, then the catalogue. `summarize` and
    `summarize_async` write summaries for policies that ask for them; an async call prefers the second, and runs the
    first in a thread. `most_conversations` is how many are kept in memory.
    """

    window: int | None
    policy: str | Policy
    max_output_tokens: int | None
    facts: Sequence[str]
    counter: Counter
    on_event: Callable[[ContextEvent], None] | None
    summarize: SummarizeWith | None
    summarize_async: AsyncSummarize | None
    most_conversations: int


_KNOWN: Final = frozenset(AdapterSettings.__annotations__)
_ANY_WINDOW: Final = 1_000_000


def check_settings(settings: AdapterSettings, dialect: str) -> None:
    """Check the settings of an adapter when it is made. Raises InvalidInput that names the first wrong one."""
    for name in settings:
        if name not in _KNOWN:
            raise InvalidInput(f"no such setting; there are {', '.join(sorted(_KNOWN))}", place=name)
    for name in ("summarize", "summarize_async"):
        if not (settings.get(name) is None or callable(settings.get(name))):
            raise InvalidInput("must be a function of messages and a number of tokens", place=name)
    most = settings.get("most_conversations", MOST_CONVERSATIONS)
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        raise InvalidInput(f"must be a positive number, not {most!r}", place="most_conversations")
    window = settings.get("window")
    call: ModelCall[object] = ModelCall(messages=())
    context_for(call, settings, dialect, _ANY_WINDOW if window is None else window, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall(Generic[M]):
    """A call of a model that a framework is about to make.

    `messages` is the whole history as the framework has it, `key` the framework's own name for the conversation (None:
    it is found by its content). `tools` are definitions as JSON. `window` is the framework's figure for the model,
    `max_output_tokens` the cap that it sends; `endpoint` tells servers apart that serve models of one name.
    """

    messages: Sequence[M]
    key: Hashable | None = None
    model: str | None = None
    system: System = None
    tools: Tools = None
    window: int | None = None
    max_output_tokens: int | None = None
    endpoint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCall(Generic[M]):
    """What to send instead: `messages` has the framework's own objects wherever they are shown whole.

    `system` is that of the call, or None where the server takes no system text and it stands among the messages.
    `max_output_tokens` is the cap to send in place of the framework's, None where that may stay. `tokens` is the size.
    """

    messages: list[M]
    system: System
    max_output_tokens: int | None
    tokens: int


@dataclass(slots=True, kw_only=True)
class FittedCall(Generic[M]):
    """A call under way, in the conversation that was lent to it."""

    call: ModelCall[M]
    followed: FollowedHistory
    history: FrameworkHistory[M]
    translation: Translation[M]
    settings: AdapterSettings
    told_window: int | None
    """What was said of the window, by the user or the framework."""
    window: int | None
    """The window to begin with."""

    @property
    def new_messages(self) -> int:
        """About how many messages there are to record."""
        return abs(len(self.history.wires) - self.followed.count)

    @property
    def context(self) -> Context:
        """The context of the conversation."""
        return self.followed.context

    def begin(self) -> None:
        """Bring the context up to the call: model and limits, system text and tools, new messages. O(history)."""
        call, followed = self.call, self.followed
        told = (call.endpoint, call.model, self.told_window, call.max_output_tokens)
        if followed.told != told:
            # Not with each call: a window that a refusal has taught must stay in force.
            assumed = self.context.limits.window_tokens if followed.told is None else None
            followed.told, followed.capped = told, False
            window = self.window or assumed or assumed_window(call.model)
            self.context.switch_model(call.model, _limits(call, self.settings, window))
        self.context.set_system_and_tools(system=call.system, tools=call.tools)
        followed.follow(self.history)

    def shown(self, request: Request) -> ShownCall[M]:
        """What to send for a request. O(messages)."""
        shown = list(self.followed.shown(request))
        return ShownCall(
            messages=framework_messages(self.translation, self.history, shown),
            system=request.system,
            max_output_tokens=self._cap(request),
            tokens=request.tokens,
        )

    def failure(self, error: object, request: Request) -> Failure:
        """What an error of the framework says, or an event of a stream."""
        # With the messages, whose text is no evidence: a tool may have quoted an error.
        limits = self.context.limits
        failure = classify(
            error=error,
            estimate=request.tokens,
            window=limits.window_tokens,
            request=[dict(wire) for wire in request.messages],
        )
        if failure.limit_of == "window" and failure.limit and failure.limit < limits.window_tokens:
            # The room for the reply followed from a window that was told wrong: kept, it would be half of the true one.
            output_tokens = _limits(self.call, self.settings, failure.limit).max_output_tokens
            if output_tokens < limits.max_output_tokens:
                self.context.switch_model(self.call.model, replace(limits, max_output_tokens=output_tokens))
        return failure

    def goes_on(self, recovery: Recovery) -> bool:
        """Whether to send again after a recovery."""
        self.followed.capped = self.followed.capped or recovery.action == "lower_output"
        return recovery.retry

    def answered(self, usage: object | None) -> None:
        """Record the provider's report of the answer, where it came with one that can be read."""
        if usage is None:
            return
        try:
            self.context.observe(usage)
        except InvalidInput:
            return  # an answer is not given up for its report: the estimate goes on without it

    def _cap(self, request: Request) -> int | None:
        # As the proxy does: where input and cap exceed the window together, some servers refuse and others cut the
        # reply silently.
        limits, asked = self.context.limits, self.call.max_output_tokens
        room = max(limits.max_output_tokens, limits.window_tokens - int((1 + MARGIN) * request.tokens))
        if self.followed.capped:
            room = limits.max_output_tokens
        return room if (self.followed.capped if asked is None else asked > room) else None


def context_for(
    call: ModelCall[M],
    settings: AdapterSettings,
    dialect: str,
    window: int | None,
    learned: MutableMapping[tuple[str, str], int],
) -> Context:
    """A context for a new conversation. Raises InvalidInput."""
    return Context(
        dialect=dialect,
        model=call.model,
        window=window,
        policy=settings.get("policy", "balanced"),
        max_output_tokens=settings.get("max_output_tokens"),
        facts=settings.get("facts", ()),
        counter=settings.get("counter", ESTIMATE),
        on_event=settings.get("on_event"),
        learned=learned,
        endpoint=call.endpoint,
    )


def _limits(call: ModelCall[M], settings: AdapterSettings, window: int) -> TokenLimits:
    """The limits of a call. A cap of the framework reserves at most a quarter of the window, as in the proxy."""
    reserve = settings.get("max_output_tokens")
    if reserve is not None and reserve >= window:
        reserve = window // 2
    if reserve is None and call.max_output_tokens is not None:
        reserve = min(call.max_output_tokens, window // 4)
    return limits_of(window, call.model, reserve)
