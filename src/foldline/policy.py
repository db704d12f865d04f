"""Policies: a row of settings and reducers each. One engine runs them all.

A policy acts when its trigger is reached: its reducers run in order until the request has landed. What must fit and does
not is then the business of `RUNGS`, which need no model and always work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from foldline.budget import Limits, Reserve, Trigger, consent_tokens
from foldline.errors import InvalidInput
from foldline.events import ThresholdReached
from foldline.reducers.archive_results import DIGEST_PREFIX, ArchiveResults
from foldline.reducers.base import Reducer
from foldline.reducers.dedupe import Dedupe
from foldline.reducers.digest import Digest
from foldline.reducers.drop_groups import DropGroups
from foldline.reducers.floor import Minimum
from foldline.reducers.images import OldImages
from foldline.reducers.mask import IMPORTANT_FILES, Mask, ShortenOld, viewed
from foldline.reducers.render_budget import HistoryBudget
from foldline.reducers.spill import Spill
from foldline.reducers.sum_up import SumUp
from foldline.reducers.summarize import ACKNOWLEDGEMENT, Summarize
from foldline.reducers.truncate import FileViewLimit, OutputLimits, ResultLimit, ResultShare, ShortenNew
from foldline.reducers.turn_share import TurnShare
from foldline.reducers.window import Window
from foldline.settings import COMPACT_THRESHOLD, ContextSettings, compact_threshold

__all__ = [
    "FOR_BYTES",
    "MILD_RUNGS",
    "OVERFLOW",
    "POLICIES",
    "RUNGS",
    "Policy",
    "autopilot",
    "confirm",
    "layered",
    "policy",
]

RUNGS: tuple[Reducer, ...] = (
    OldImages(),
    Dedupe(),
    ShortenOld(),
    Digest(),
    ResultShare(),
    OldImages(keep=0),
    Digest(keep=0.1, share=0.3, least_tokens=96),
    DropGroups(),
    Minimum(),
)
"""What makes a request fit without a model, mildest first; the last one ends at the floor."""

MILD_RUNGS = 4
"""So many first rungs aim at the landing; those after them stop as soon as the request fits."""

OVERFLOW: tuple[Reducer, ...] = (
    ShortenOld(keep=0.2, share=0.15),
    Digest(keep=0.1),
    ResultShare(),
    Window(),
    DropGroups(keep_groups=0),
    Minimum(),
)
"""The ladder after a refusal of the provider: digest, cut what is large, window (design section 6)."""

FOR_BYTES: tuple[Reducer, ...] = (OldImages(bytes_only=True), OldImages(keep=0, bytes_only=True), Minimum())
"""What brings a request under its byte budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a session is kept in its window.

    `guard` runs on what has just come in; `always` before every request; `reducers` when `trigger` is reached, until
    the view is down to `landing` of the input limit (None: all they propose). `consent_at` (share of the window) only
    reports that it is time to compact. `compactor` serves `compact`. `economical` folds when keeping has cost as much
    as folding would.
    """

    name: str
    trigger: Trigger = field(default_factory=lambda: Trigger(fraction=0.85))
    landing: float | None = 0.60
    guard: tuple[Reducer, ...] = ()
    always: tuple[Reducer, ...] = ()
    reducers: tuple[Reducer, ...] = ()
    compactor: Summarize = field(default_factory=lambda: Summarize(keep=0.0, least_tokens=64))
    after_compact: tuple[Reducer, ...] = ()
    consent_at: float | None = None
    economical: bool = False
    about: str = ""

    def ask_at_tokens(self, limits: Limits) -> int:
        """Size at which the user is to be asked; 0 for a policy that never asks."""
        return 0 if self.consent_at is None else consent_tokens(self.consent_at, limits)

    def threshold(self, used_tokens: int, limits: Limits) -> ThresholdReached | None:
        """The event that says that it is time to ask, with the figures; None if it is not."""
        if not 0 < self.ask_at_tokens(limits) <= used_tokens:
            return None
        return ThresholdReached(used_tokens, limits.window_tokens, used_tokens / limits.window_tokens)


def _autopilot(keep_recent: int, context_bytes: int) -> tuple[Trigger, tuple[Reducer, ...]]:
    """The autopilot system: over a number of bytes, results older than the last few show their first line only."""
    mask = Mask(keep_first=0, keep_last=keep_recent, placeholder=viewed, important=IMPORTANT_FILES)
    return Trigger(bytes=context_bytes), (mask,)


_CHECKPOINT = Summarize(keep_tokens=20_000, reserve=Reserve())
_TOOL_DIGEST = ArchiveResults(prefix=DIGEST_PREFIX, strategy="heuristic")


def _layered(settings: ContextSettings) -> tuple[tuple[Reducer, ...], tuple[Reducer, ...], tuple[Reducer, ...]]:
    """The three-layer system: what guards, what runs always, what runs last."""
    limit = ResultLimit(settings.max_tool_result_tokens, settings.tool_result_truncation, settings.tool_result_limits)
    history, mask = (
        HistoryBudget(settings.max_history_tokens),
        Mask(keep_first=settings.tool_result_keep_first, keep_last=settings.tool_result_keep_last),
    )
    drops: tuple[Reducer, ...] = (DropGroups(loop_only=True),)
    if not settings.summarize_omitted:
        return (limit,), (history, mask), drops
    # A summary takes room that a notice does not: a quarter of the budget leaves with it.
    return (limit,), (SumUp(replace(history, landing=0.75)), history, mask), (SumUp(DropGroups(loop_only=True)), *drops)


def _presets() -> dict[str, Policy]:
    trigger, reducers = _autopilot(6, 50_000)
    guard, always, drops = _layered(ContextSettings())
    rows = [
        Policy(
            name="autopilot",
            about="results older than the last 6 become their first line once the context passes 50,000 bytes",
            trigger=trigger,
            landing=None,
            guard=(FileViewLimit(),),
            reducers=reducers,
        ),
        Policy(
            name="sliding",
            about="the oldest stretch is summarised first; when there is none, the window slides",
            trigger=Trigger(fraction=0.85),
            reducers=(Summarize(first_only=True), Digest(), Window()),
        ),
        Policy(
            name="checkpoint",
            about="tool outputs limited and archived; old messages become a structured checkpoint",
            trigger=Trigger(reserve=Reserve()),
            guard=(Spill(), OutputLimits()),
            always=(ArchiveResults(), ArchiveResults(strategy="heuristic")),
            reducers=(_CHECKPOINT, _TOOL_DIGEST, Digest(keep=0.5)),
            compactor=_CHECKPOINT,
            after_compact=(_TOOL_DIGEST,),
        ),
        Policy(
            name="layered",
            about="results cut on arrival, the middle ones masked, history on a budget, oldest tool groups dropped last",
            trigger=Trigger(fraction=1.0, keep_free=0.10),
            landing=0.9,
            guard=guard,
            always=always,
            reducers=drops,
        ),
        Policy(
            name="confirm",
            about="nothing is folded unasked until a request would not fit; says at 90 % that it is time to compact",
            trigger=Trigger(),
            guard=(TurnShare(),),
            compactor=Summarize(keep=0.0, least_tokens=64, acknowledge=ACKNOWLEDGEMENT),
            consent_at=COMPACT_THRESHOLD,
        ),
        Policy(
            name="balanced",
            about="large results shortened on arrival; folds in batches that land well below the trigger (default)",
            trigger=Trigger(fraction=0.95),
            landing=0.65,
            guard=(ShortenNew(share=0.12, least_tokens=200),),
            reducers=(OldImages(), Dedupe(), ShortenOld(keep=0.2), Summarize(keep=0.3), Digest(keep=0.3, share=0.7)),
        ),
        Policy(
            name="cost",
            about="smaller requests: results shortened harder, folds land lower",
            trigger=Trigger(fraction=0.70),
            landing=0.40,
            guard=(ShortenNew(share=0.08, fill=0.7, least_tokens=160),),
            reducers=(OldImages(), Dedupe(), ShortenOld(keep=0.3, share=0.2), Summarize(keep=0.3), Digest(keep=0.3)),
        ),
        Policy(
            name="quality",
            about="as much as fits stays whole: results shortened late, folds land high",
            trigger=Trigger(fraction=0.95),
            landing=0.80,
            guard=(ShortenNew(share=0.25, most_tokens=20_000),),
            reducers=(
                OldImages(keep=2),
                Dedupe(),
                ShortenOld(keep=0.6, share=0.4),
                Summarize(keep=0.6),
                Digest(keep=0.6),
            ),
        ),
        Policy(
            name="economical",
            about="folds when keeping has cost as much as folding would, at the provider's cache prices",
            trigger=Trigger(fraction=0.95),
            landing=0.50,
            guard=(ShortenNew(share=0.12, least_tokens=200),),
            reducers=(OldImages(), Dedupe(), ShortenOld(keep=0.2), Summarize(keep=0.3), Digest(keep=0.3, share=0.7)),
            economical=True,
        ),
    ]
    return {row.name: row for row in rows}


POLICIES: Mapping[str, Policy] = MappingProxyType(_presets())


def policy(chosen: str | Policy) -> Policy:
    """The policy of that name, or the policy itself. Raises InvalidInput that lists the known names."""
    if isinstance(chosen, Policy):
        return chosen
    if chosen not in POLICIES:
        raise InvalidInput(f"unknown policy {chosen!r}; known: {', '.join(POLICIES)}", place="policy")
    return POLICIES[chosen]


def autopilot(keep_recent: int = 6, max_context_bytes: int = 50_000) -> Policy:
    """The autopilot policy with other numbers; its presets are cost (4, 30,000), balanced (6, 50,000), quality (10, 80,000)."""
    trigger, reducers = _autopilot(keep_recent, max_context_bytes)
    return replace(POLICIES["autopilot"], trigger=trigger, reducers=reducers)


def layered(settings: ContextSettings) -> Policy:
    """The layered policy with an agent's own settings."""
    guard, always, reducers = _layered(settings)
    return replace(POLICIES["layered"], guard=guard, always=always, reducers=reducers)


def confirm(threshold: float | None = None) -> Policy:
    """The confirm policy that asks at another share of the window (0.9 if None). Raises InvalidInput."""
    return replace(POLICIES["confirm"], consent_at=compact_threshold(threshold))
