"""Decides what to do after a provider refused a request.

The ladder (design section 6): lower the output cap where the output is what does not fit; otherwise the policy at
OVERFLOW, then digest, cut everything large, window, floor; at the end give up and name the floor. Each step sends
strictly fewer tokens than the last, so the ladder ends (strands#3338: 965 calls, because nothing checked that). The
refusal of one part (an image, a document, a signature, a name, an order of messages) goes to
`foldline.engine.refused_parts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from foldline.engine.engine import Engine, Steps
from foldline.engine.policy import OVERFLOW
from foldline.engine.refused_parts import leave_out, leave_out_heavy
from foldline.failures.failure import NEAR_WINDOW, Failure, PartKind, RefusedPart, believable
from foldline.reducers.images import OldImages
from foldline.view.budget import MARGIN, Pressure

__all__ = ["NOTICE", "Action", "Recovery", "recover"]

Action: TypeAlias = Literal["lower_output", "fold", "images", "parts", "none"]
"""`images` and `parts`: the refused part was left out of the request, or changed."""

# No lower cap is tried: a reply needs room for a word.
LEAST_OUTPUT_TOKENS = 16

# A smaller limit in an error is a misread number, not a window (codex#26783).
LEAST_WINDOW_TOKENS = 256

NOTICE = "Context was compacted and truncated to fit token limits."
"""What the autopilot system says after it has recovered (S0.05)."""

# Where the error names no numbers, the next request aims at this share of the refused one.
STEP = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What was done: `action`, whether to `retry`, the size before and after, and the limit that was learned.

    `notice` is for the user, and for the model where it should know; None when no history was folded. `told` is a
    sentence for the user alone about a refused part; the model reads a line in its place.
    """

    action: Action
    retry: bool
    tokens_before: int
    tokens_after: int
    limit: int | None = None
    notice: str | None = None
    told: str | None = None


def recover(engine: Engine, failure: Failure, with_model: bool = False) -> Steps[Recovery]:
    """Do what a failure calls for. Raises DoesNotFit when nothing more can be reduced, or folding is off."""
    before = engine.used_tokens
    # Some servers answer an overflow with a bare 400, 413 or 422, as they answer many other faults.
    if failure.kind == "ambiguous" and before >= NEAR_WINDOW * engine.limits.room_tokens:
        failure = replace(failure, kind="prompt_overflow")  # pi#4940: only near the window is it an overflow
    if failure.kind in ("image", "document", "malformed"):
        return _without_part(engine, failure, before)
    step = _STEPS.get(failure.kind)
    if step is None:
        return Recovery(action="none", retry=False, tokens_before=before, tokens_after=before)
    limit = _learn(engine, failure)
    action = yield from step(engine, failure, before, with_model)
    return Recovery(
        action=action,
        retry=True,
        tokens_before=before,
        tokens_after=engine.used_tokens,
        limit=limit,
        notice=NOTICE if action == "fold" else None,
    )


def _learn(engine: Engine, failure: Failure) -> int | None:
    """Apply a limit that the error names, where it is plausible."""
    limit = failure.limit
    if limit is None or limit < LEAST_WINDOW_TOKENS or failure.limit_of == "output":
        return None
    if not believable(limit, engine.answered_tokens):
        return None  # the model has answered larger requests: the number is about this one alone
    # A rate limit bounds a request without being the window: it is stored beside it, as `max_input_tokens`.
    if failure.kind == "request_too_large_for_rate" or failure.limit_of == "rate":
        engine.limits = replace(engine.limits, max_input_tokens=min(limit, engine.limits.max_input_tokens or limit))
        return limit
    if failure.kind not in ("prompt_overflow", "output_overflow"):
        return None
    limits = engine.limits
    if limit < limits.window_tokens:
        engine.limits = replace(
            # An output cap of the whole window would leave no room for the input.
            limits,
            window_tokens=limit,
            max_output_tokens=min(limits.max_output_tokens, limit // 2),
        )
    return limit


def _lower_output(engine: Engine, failure: Failure, before: int, with_model: bool) -> Steps[Action]:
    """Lower the output cap to what fits beside the input; fold where no cap does."""
    limits = engine.limits
    if failure.limit_of == "output" and failure.limit:
        # Strictly below the refused cap, whatever the error says: an equal one would be refused again, without end.
        cap = min(failure.limit, limits.max_output_tokens - 1)
    else:
        used = max(failure.input_tokens or 0, before)
        cap = int((limits.window_tokens - used) * (1 - MARGIN / 2))
    if LEAST_OUTPUT_TOKENS <= cap < limits.max_output_tokens:
        engine.limits = replace(limits, max_output_tokens=cap)
        return "lower_output"
    # The numbers of the error explain nothing, and yet the output was too much: halving ends after a few tries.
    halved = limits.max_output_tokens // 2
    if cap >= limits.max_output_tokens and halved >= LEAST_OUTPUT_TOKENS:
        engine.limits = replace(limits, max_output_tokens=halved)
        return "lower_output"
    return (yield from _fold(engine, failure, before, with_model))


def _fold(engine: Engine, failure: Failure, before: int, with_model: bool) -> Steps[Action]:
    """Fold by the policy's own answer to a refusal, in full, and then by the ladder until the target is met."""
    share = STEP
    # An error with both numbers says by how much our count is wrong: the same share is right whatever the tokenizer.
    if failure.limit and failure.requested and failure.requested > failure.limit and not failure.lower_bound:
        share = min(STEP, (1 - MARGIN) * failure.limit / failure.requested)
    target = min(share * before, engine.limit_tokens)  # in any case within what is known to be the limit
    policy = engine.policy
    with _refused(engine, failure):
        yield from engine.run(policy.overflow, Pressure.OVERFLOW, 0, False)
        yield from engine.run((*policy.reducers, *OVERFLOW), Pressure.OVERFLOW, max(1.0, target), with_model)
        yield from engine.run(policy.after_fold, Pressure.OVERFLOW, 0, False)
        _smaller(engine, before)
    return "fold"


def _fewer_bytes(engine: Engine, failure: Failure, before: int, with_model: bool) -> Steps[Action]:
    del with_model  # bytes are in images and documents, which no summary makes smaller
    size = engine.view.estimated_tokens
    with _refused(engine, failure):
        # The newest image first stays: it is usually the one that the user has just sent.
        for keep in (1, 0):
            yield from engine.run((OldImages(keep=keep, bytes_only=True),), Pressure.OVERFLOW, 0, False)
            if engine.view.estimated_tokens < size:
                return "images"
        if leave_out_heavy(engine) is not None:
            return "parts"
        yield from engine.run(OVERFLOW, Pressure.OVERFLOW, max(1.0, STEP * before), False)
        _smaller(engine, before)
    return "fold"


def _without_part(engine: Engine, failure: Failure, before: int) -> Recovery:
    """Leave out the refused part. A malformed history is left alone when the error says nothing about the fault."""
    part = failure.part or (RefusedPart(_KINDS[failure.kind]) if failure.kind in _KINDS else None)
    sentence = None
    if part is not None:
        _learn_amounts(engine, part)
        with _refused(engine, failure):
            sentence = leave_out(engine, part)
            if sentence is None and failure.kind == "image":
                raise engine.does_not_fit(reason="the provider refused an image, and no image may be removed")
    return Recovery(
        action="none" if sentence is None else "images" if failure.kind == "image" else "parts",
        retry=sentence is not None,
        tokens_before=before,
        tokens_after=engine.used_tokens,
        told=sentence,
    )


def _learn_amounts(engine: Engine, part: RefusedPart) -> None:
    """Apply the number that the provider named, from the next request on."""
    if part.most and part.kind == "image" and part.why == "count":
        engine.caps = engine.caps.learned(max_images=part.most)
    elif part.most and part.kind == "document" and part.why == "pages":
        engine.caps = engine.caps.learned(max_pages=part.most)


_KINDS: dict[str, PartKind] = {"image": "image", "document": "document"}


@contextmanager
def _refused(engine: Engine, failure: Failure) -> Iterator[None]:
    """Fold after a refusal, with a beginning and an end that are emitted."""
    if not (engine.auto and engine.policy.auto):
        raise engine.does_not_fit(reason="folding is switched off")
    with engine.announced(f"the provider refused the request: {failure.kind}"):
        yield


def _smaller(engine: Engine, before: int) -> None:
    """Raise DoesNotFit unless the request has become smaller: else the same refusal would come again, without end."""
    if engine.used_tokens >= before:
        raise engine.does_not_fit(reason="the provider refused it, and nothing more can be reduced")


# Kinds that are not here are no matter of size: to wait, to pay or to give up is the caller's decision.
_STEPS: dict[str, Callable[[Engine, Failure, int, bool], Steps[Action]]] = {
    "output_overflow": _lower_output,
    "prompt_overflow": _fold,
    "request_too_large_for_rate": _fold,
    "bytes_overflow": _fewer_bytes,
}
