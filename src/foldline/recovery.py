"""What to do after a provider refused a request.

The ladder (design section 6): lower the output cap where the output is what does not fit; else the policy at OVERFLOW,
then digest, cut everything large, window, floor; then give up with the floor named. Each step sends strictly fewer
tokens than the last, so it ends (strands#3338: 965 calls, because nothing checked that).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from foldline.budget import MARGIN, Pressure
from foldline.engine import Engine
from foldline.failures import Failure
from foldline.policy import OVERFLOW
from foldline.reducers.base import Reducer
from foldline.reducers.images import OldImages

__all__ = ["Action", "Recovery", "recover"]

Action: TypeAlias = Literal["lower_output", "fold", "images", "none"]

LEAST_OUTPUT_TOKENS = 16
"""No lower cap is tried: a reply needs room for a word."""

LEAST_WINDOW_TOKENS = 256
"""A smaller limit in an error is a misread number, not a window (codex#26783)."""

STEP = 0.75
"""Share of the size at which the request was refused that the next one aims at, when the error names no numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What was done: `action`, whether to `retry`, the size before and after, and the limit that was learned."""

    action: Action
    retry: bool
    tokens_before: int
    tokens_after: int
    limit: int | None = None


def recover(engine: Engine, failure: Failure) -> Recovery:
    """Do what a failure asks for. Raises DoesNotFit when nothing more can be reduced, or folding is off."""
    before = engine.used_tokens
    step = _STEPS.get(failure.kind)
    if step is None:
        return Recovery(action="none", retry=False, tokens_before=before, tokens_after=before)
    limit = _learn(engine, failure)
    action = step(engine, failure, before)
    return Recovery(action=action, retry=True, tokens_before=before, tokens_after=engine.used_tokens, limit=limit)


def _learn(engine: Engine, failure: Failure) -> int | None:
    """Take over a limit that the error names, where it is plausible."""
    limit = failure.limit
    if limit is None or limit < LEAST_WINDOW_TOKENS or failure.limit_of == "output":
        return None
    if failure.kind == "request_too_large_for_rate" or failure.limit_of == "rate":
        engine.limits = replace(engine.limits, max_input_tokens=min(limit, engine.limits.max_input_tokens or limit))
        return limit
    if failure.kind not in ("prompt_overflow", "output_overflow", "ambiguous"):
        return None
    limits = engine.limits
    if limit < limits.window_tokens:
        engine.limits = replace(
            limits, window_tokens=limit, max_output_tokens=min(limits.max_output_tokens, limit // 2)
        )
    return limit


def _lower_output(engine: Engine, failure: Failure, before: int) -> Action:
    """A cap that fits beside the input; when there is no room for one, history has to give way."""
    limits = engine.limits
    if failure.limit_of == "output" and failure.limit:
        cap = min(failure.limit, limits.max_output_tokens - 1)
    else:
        taken = max(failure.input_tokens or 0, before)
        cap = int((limits.window_tokens - taken) * (1 - MARGIN / 2))
    if LEAST_OUTPUT_TOKENS <= cap < limits.max_output_tokens:
        engine.limits = replace(limits, max_output_tokens=cap)
        return "lower_output"
    halved = limits.max_output_tokens // 2
    if cap >= limits.max_output_tokens and halved >= LEAST_OUTPUT_TOKENS:
        engine.limits = replace(limits, max_output_tokens=halved)
        return "lower_output"
    return _fold(engine, failure, before)


def _fold(engine: Engine, failure: Failure, before: int) -> Action:
    share = STEP
    if failure.limit and failure.requested and failure.requested > failure.limit and not failure.lower_bound:
        share = min(STEP, (1 - MARGIN) * failure.limit / failure.requested)
    target = min(share * before, engine.limits.input_tokens)
    _descend(engine, (*engine.policy.reducers, *OVERFLOW), target, lambda: engine.used_tokens < before)
    return "fold"


def _fewer_bytes(engine: Engine, failure: Failure, before: int) -> Action:
    del failure
    images = engine.view.estimated_tokens
    _run(engine, (OldImages(keep=1, bytes_only=True),), 0)
    if engine.view.estimated_tokens < images:
        return "images"
    _run(engine, (OldImages(keep=0, bytes_only=True),), 0)
    if engine.view.estimated_tokens < images:
        return "images"
    _descend(engine, OVERFLOW, STEP * before, lambda: engine.used_tokens < before)
    return "fold"


def _no_images(engine: Engine, failure: Failure, before: int) -> Action:
    del failure, before
    size = engine.view.estimated_tokens
    _run(engine, (OldImages(keep=0),), 0)
    if engine.view.estimated_tokens >= size:
        raise engine.no_fit(reason="the provider refused an image, and no image may be removed")
    return "images"


def _descend(engine: Engine, ladder: tuple[Reducer, ...], target: float, smaller: Callable[[], bool]) -> None:
    """Rungs in order until the target is met; at the end it must at least have become smaller."""
    if not engine.auto:
        raise engine.no_fit(reason="folding is switched off (auto=False)")
    _run(engine, ladder, max(1.0, target))
    if not smaller():
        raise engine.no_fit(reason="the provider refused it, and nothing more can be reduced")


def _run(engine: Engine, reducers: tuple[Reducer, ...], target: float) -> None:
    if not engine.auto:
        raise engine.no_fit(reason="folding is switched off (auto=False)")
    with engine.batching():
        for _ in engine.run(reducers, Pressure.OVERFLOW, target, False):
            raise AssertionError("recovery asks no model")


_STEPS: dict[str, Callable[[Engine, Failure, int], Action]] = {
    "output_overflow": _lower_output,
    "prompt_overflow": _fold,
    "request_too_large_for_rate": _fold,
    "bytes_overflow": _fewer_bytes,
    "image": _no_images,
}
