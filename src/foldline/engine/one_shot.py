"""The one-shot functions `fit`, `check` and `count`, for a history that is kept elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foldline.codecs import codec as codec_for
from foldline.codecs.dialect import violations
from foldline.codecs.limits import Caps
from foldline.codecs.provider_state import is_provider_summary
from foldline.codecs.rulebook import Violation
from foldline.engine.arguments import check_arguments
from foldline.engine.context import Context, SummarizeWith
from foldline.engine.policy import Policy
from foldline.errors import InvalidInput
from foldline.messages import Wire
from foldline.tokens import ESTIMATE, Counter, message_tokens, system_tokens, tools_tokens
from foldline.view.budget import TokenLimits
from foldline.view.origins import Origin
from foldline.view.system_and_tools import System, Tools
from foldline.view.transcript import Fold, Repair

__all__ = ["Fit", "check", "count", "fit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A history that fits: `tokens` with system text and tools, the folds made and the repairs in effect.

    `origins` says of each message which of the given ones it shows or stands for, by their indexes.

    `tools` are those to send: the given ones, with fewer cache markers where the provider accepts no more.
    """

    messages: list[Wire]
    system: System
    tokens: int
    folds: tuple[Fold, ...]
    repairs: tuple[Repair, ...]
    tools: Tools = None
    origins: tuple[Origin, ...] = ()


def fit(
    messages: Sequence[Wire],
    *,
    max_tokens: int,
    dialect: str = "openai-chat",
    policy: str | Policy = "balanced",
    model: str | None = None,
    system: System = None,
    tools: Tools = None,
    max_output_tokens: int = 0,
    summarize: SummarizeWith | None = None,
    max_request_bytes: int | None = None,
    caps: Caps | None = None,
    counter: Counter = ESTIMATE,
) -> Fit:
    """Fit a history into `max_tokens - max_output_tokens` tokens, as a valid request; unchanged when it fits already.

    The list itself is never changed. Raises DoesNotFit (with the floor that would do) and InvalidInput. O(history).
    """
    # `max_output_tokens` is inside `max_tokens` here: callers have one number, the window.
    check_arguments(max_tokens=max_tokens, max_output_tokens=max_output_tokens)
    if not 0 <= max_output_tokens < max_tokens:
        raise InvalidInput(f"must be from 0 to below max_tokens, not {max_output_tokens}", place="max_output_tokens")
    context = Context(
        dialect=dialect,
        model=model,
        policy=policy,
        window=max_tokens,
        max_output_tokens=max_output_tokens,
        system=system,
        tools=tools,
        max_request_bytes=max_request_bytes,
        caps=caps,
        counter=counter,
    )
    # The caller names a hard limit, and may be close to it on purpose: no margin is kept, and no trigger applies.
    context.fold_only_over_limit(TokenLimits(max_tokens, max_output_tokens, margin=0.0))
    for index, message in enumerate(_listed(messages)):  # one by one, so that an error names the message
        try:
            context.append(message)
        except InvalidInput as error:
            raise InvalidInput(str(error), place=f"message {index}") from None
    request = context.prepare(summarize)
    return Fit(
        messages=request.messages,
        system=request.system,
        tokens=request.tokens,
        # A new context has nothing to take back, so there is no `Unfold` among them: this is for the type.
        folds=tuple(fold for fold in request.folds if isinstance(fold, Fold)),
        repairs=request.repairs,
        tools=request.tools,
        origins=request.origins,
    )


def check(
    messages: Sequence[Wire],
    *,
    dialect: str = "openai-chat",
    system: System = None,
    tools: Tools = None,
    caps: Caps | None = None,
    alternating: bool = False,
) -> list[Violation]:
    """Why the strictest widely used server of the dialect would refuse the request; [] if it would accept it.

    `caps` is what a request may hold besides tokens, where that differs from the least that servers of the dialect
    accept. `alternating` is for a server whose chat template needs alternating roles (Mistral, Gemma, Qwen ...).
    """
    check_arguments(dialect=dialect, system=system, tools=tools)
    codec_for(dialect)
    return violations(_listed(messages), dialect, system=system, tools=tools, caps=caps, alternating=alternating)


def count(
    messages: Sequence[Wire],
    *,
    dialect: str = "openai-chat",
    model: str | None = None,
    system: System = None,
    tools: Tools = None,
    counter: Counter = ESTIMATE,
) -> int:
    """Tokens of a request: messages, system text and tool schemas. Never raises on unknown parts. O(size).

    `counter` says whose tokens: an estimate, the same for every `model`, or `exact_counter(model)` of
    `foldline.providers.exact` (extra `exact`). `model` is taken so that `count` and `fit` can share their settings.
    """
    check_arguments(dialect=dialect, model=model, system=system, tools=tools)
    codec = codec_for(dialect)
    total = since = system_tokens(system, counter) + tools_tokens(tools, counter)
    for index, wire in enumerate(_listed(messages)):
        try:
            message = codec.read(wire)
        except InvalidInput as error:
            raise InvalidInput(str(error), place=f"message {index}") from None
        if is_provider_summary(message):
            total = since  # the provider drops all before its own summary, except system text
        # Tokens are summed as they come, with no view: `count` is asked for histories that would not be valid.
        size = message_tokens(message, counter)
        total += size
        since += size if message.role == "system" else 0
    return total


def _listed(messages: Sequence[Wire]) -> Sequence[Wire]:
    # A generator would be used up by the first look at it, and a text would be read as messages of one letter.
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
        raise InvalidInput(f"must be a list of messages, not {type(messages).__name__}", place="messages")
    return messages
