"""The policies that come with Foldline, by name: four of its own, and one for each documented system.

A preset is a row of `Policy`. To add a reducer to one, name it in its row here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

from foldline.engine.policy import Policy
from foldline.engine.settings import COMPACT_THRESHOLD, CheckpointSettings, ContextSettings, compact_threshold
from foldline.errors import InvalidInput
from foldline.reducers.archive_results import DIGEST_PREFIX, ArchiveResults
from foldline.reducers.arrival import RepeatedLines, RepeatNotices, ShortenNew
from foldline.reducers.base import Reducer
from foldline.reducers.dedupe import Dedupe
from foldline.reducers.digest import Digest, FallbackDigest
from foldline.reducers.drop import DropGroups, HistoryBudget, SlidingWindow, SumUp
from foldline.reducers.images import OldImages
from foldline.reducers.mask import IMPORTANT_FILES, Describe, Mask, ShortenOld, viewed
from foldline.reducers.result_share import TurnShare
from foldline.reducers.spill import Spill
from foldline.reducers.stages import ShortenByRent
from foldline.reducers.summarize import ACKNOWLEDGEMENT, Summarize
from foldline.reducers.truncate import CharLimit, FileViewLimit, OutputLimits, ResultLimit
from foldline.view.budget import Reserve, Trigger

__all__ = [
    "POLICIES",
    "POLICY_SETTINGS",
    "VARIANTS",
    "autopilot",
    "checkpoint",
    "configured_policy",
    "confirm",
    "layered",
    "policy",
    "policy_names",
    "sliding",
]

# The autopilot system's balanced figures: bytes over which it compacts, and newest results that stay.
CONTEXT_BYTES, KEEP_RECENT = 50_000, 6


def autopilot(
    keep_recent: int = KEEP_RECENT, max_context_bytes: int = CONTEXT_BYTES, *, describe: bool = False
) -> Policy:
    """The autopilot policy with numbers of its own; with `describe` a model says what an old result brought.

    Its document's presets are cost (4, 30,000), balanced (6, 50,000) and quality (10, 80,000).
    """
    mask = Mask(keep_first=0, keep_last=keep_recent, placeholder=viewed, important=IMPORTANT_FILES, keep_none=True)
    # That system counts bytes, not tokens, and folds all results that are old at once: hence no landing.
    return Policy(
        name="autopilot",
        about=f"results older than the last {keep_recent} become their first line once the context passes "
        f"{max_context_bytes:,} bytes",
        trigger=Trigger(bytes=max_context_bytes),
        landing=None,
        guard=(FileViewLimit(),),
        reducers=(Describe(mask), mask) if describe else (mask,),
        overflow=(replace(mask, keep_last=3, important=(), over_bytes=30_000), CharLimit(1_000)),
    )


# Newest messages that stay whole where a number of messages or turns is the threshold.
RETENTION_MESSAGES = 6


def sliding(
    *,
    tokens: int | None = None,
    messages: int | None = None,
    turns: int | None = None,
    retention_messages: int | None = None,
) -> Policy:
    """The sliding policy with thresholds of its own: it acts when any of them is reached, and lands below all of them.

    Without one it acts at 85 % of the input limit. The newest `retention_messages` are not summarised (None: a share of
    the tokens, or 6 where messages or turns are counted). Raises InvalidInput.
    """
    thresholds = {"tokens": tokens, "messages": messages, "turns": turns}
    for place, most in thresholds.items():
        if most is not None and most < 2:
            raise InvalidInput(f"must be 2 or more, not {most}: the newest message stays", place=place)
    # A share of the tokens says nothing about a number of messages: a policy that counts those keeps a number of them.
    counted = messages is not None or turns is not None
    keep = retention_messages if retention_messages is not None or not counted else RETENTION_MESSAGES
    trigger = (
        Trigger(tokens=tokens, messages=messages, turns=turns) if any(thresholds.values()) else Trigger(fraction=0.85)
    )
    summarize = Summarize(keep_messages=keep)
    return Policy(
        name="sliding",
        about="the oldest stretch is summarised first; when there is none, the window slides",
        trigger=trigger,
        # The digest covers the spans of a summary that failed. The window slides last, since it loses the most.
        reducers=(summarize, FallbackDigest(summarize), SlidingWindow(trigger)),
    )


def checkpoint(
    settings: CheckpointSettings | None = None,
    *,
    outputs: OutputLimits | None = None,
    large_output_chars: int = 200 * 1024,
) -> Policy:
    """The checkpoint policy with settings of its own; one tool output over `large_output_chars` is spilled."""
    chosen = settings or CheckpointSettings()
    reserve = Reserve(
        max_tokens=chosen.max_tokens, reserve_tokens=chosen.reserve_tokens, max_messages=chosen.max_messages
    )
    summarize = Summarize(
        keep_tokens=chosen.keep_recent_tokens or None, keep_messages=chosen.keep_recent, reserve=reserve
    )
    heuristic = ArchiveResults(chosen.tool_call_cutoff, strategy="heuristic")
    archives = {
        "llm": (ArchiveResults(chosen.tool_call_cutoff), heuristic),  # where no model is there, or it fails
        "heuristic": (heuristic,),
        "off": (),
    }
    return Policy(
        name="checkpoint",
        about="tool outputs limited and archived; old messages become a structured checkpoint",
        trigger=Trigger(reserve=reserve),
        landing=None,
        guard=(Spill(large_output_chars), outputs or OutputLimits()),
        always=archives[chosen.tool_summary_strategy],
        reducers=(summarize, FallbackDigest(summarize)),
        compactor=summarize,
        # What is archived after a compaction stands beside a summary, so its digest needs a heading of its own.
        after_compact=(replace(heuristic, prefix=DIGEST_PREFIX),),
        auto=chosen.auto_compact,
        ahead=0.0,  # its document asks when the limit is reached
    )


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
    # `SumUp` stands before what it sums up: without a model, or when it fails, the reducer behind it acts alone.
    # A summary takes room that a notice does not: a quarter of the budget leaves with it.
    return (limit,), (SumUp(replace(history, landing=0.75)), history, mask), (SumUp(DropGroups(loop_only=True)), *drops)


def _documented() -> list[Policy]:
    """One preset for each documented system, with its numbers."""
    guard, always, drops = _layered(ContextSettings())
    return [
        autopilot(),
        sliding(),
        checkpoint(),
        Policy(
            name="layered",
            about="results cut on arrival, the middle ones masked, history on a budget, "
            "oldest tool groups dropped last",
            # Dropping groups is the last resort there, for the loop at work: it lands just below its trigger.
            trigger=Trigger(fraction=1.0, keep_free=0.10),
            landing=0.9,
            guard=guard,
            always=always,
            reducers=drops,
        ),
        Policy(
            name="confirm",
            about="nothing is folded unasked until a request would not fit; says at 90 % that it is time to compact",
            trigger=Trigger(),  # never: it folds only what would not fit, and what the user agreed to
            guard=(TurnShare(),),
            compactor=Summarize(keep=0.0, least_tokens=64, acknowledge=ACKNOWLEDGEMENT),
            consent_at=COMPACT_THRESHOLD,
        ),
    ]


def _ours() -> list[Policy]:
    """Presets of this project. Figures: measured on 56 recorded sessions over 19,200 tokens at a window of 16,000 with
    Anthropic's cache prices, against no management (docs/policies.md says what each reaches).
    """
    rent, notices = (ShortenByRent(),), (RepeatNotices(),)
    return [
        Policy(
            name="balanced",
            about="fresh results whole, repeated lines once; folds in batches, when the limit is reached (default)",
            # A late trigger and a low landing make few folds, and each fold breaks the cached prefix once.
            trigger=Trigger(fraction=1.0),
            landing=0.47,
            newest_share=0.7,
            guard=_guard(share=0.35, of_result=0.30),
            reducers=_reducers(0.6),
            after_fold=notices,
        ),
        Policy(
            name="cost",
            about="smaller requests: fresh results shortened, folds land lower; loses most of what it shortens",
            trigger=Trigger(fraction=0.70),
            landing=0.40,
            newest_share=0.7,
            guard=_guard(share=0.035, of_result=0.05),
            always=rent,
            reducers=_reducers(0.4),
            after_fold=notices,
        ),
        Policy(
            name="quality",
            about="as much as fits stays whole: only what is too large is shortened, folds land high",
            trigger=Trigger(fraction=1.0),
            landing=0.70,
            newest_share=0.7,
            newest_decay=0.7,
            guard=_guard(share=0.50, of_result=0.20, group=0.60),
            reducers=_reducers(0.8, images=2),
            after_fold=notices,
        ),
        Policy(
            name="economical",
            about="folds when keeping has cost as much as folding would, at the provider's cache prices",
            trigger=Trigger(fraction=1.0),
            # Low: at the limit, each token kept is paid for at every request until the next fold. Fresh results are
            # whole all the same: to read one again costs more than what is saved by cutting it.
            landing=0.30,
            newest_share=0.7,
            guard=_guard(share=0.35, of_result=0.30),
            always=rent,
            reducers=_reducers(0.4),
            after_fold=notices,
            economical=True,
        ),
    ]


def _guard(share: float, of_result: float, group: float = 0.5) -> tuple[Reducer, ...]:
    return RepeatedLines(), ShortenNew(share=share, of_result=of_result, group=group)


def _reducers(keep: float, *, images: int = 1) -> tuple[Reducer, ...]:
    """What folds, from what loses least to what loses most; `keep` is the share of the landing that stays whole.

    With a model the summary does the work, and the digest finds little left to fold; without one the digest takes its
    place. Both keep the same tail, so it does not matter which ran.
    """
    return (
        OldImages(keep=images),
        Dedupe(),
        ShortenOld(keep=keep),
        Summarize(keep=keep),
        Digest(keep=keep, share=0.85),
    )


POLICIES: Mapping[str, Policy] = MappingProxyType({row.name: row for row in (*_documented(), *_ours())})

VARIANTS: Mapping[str, Policy] = MappingProxyType(
    {
        "autopilot-cost": replace(autopilot(4, 30_000), name="autopilot-cost"),
        "autopilot-quality": replace(autopilot(10, 80_000), name="autopilot-quality"),
    }
)
"""The other presets of the autopilot system's document: policies by name too, left out where all are compared."""


def policy(chosen: str | Policy) -> Policy:
    """The policy of that name, or the policy itself. Raises InvalidInput that lists the known names."""
    if isinstance(chosen, Policy):
        return chosen
    by_name = {**POLICIES, **VARIANTS}
    if chosen not in by_name:
        raise InvalidInput(f"unknown policy {chosen!r}; known: {', '.join(by_name)}", place="policy")
    return by_name[chosen]


def layered(settings: ContextSettings) -> Policy:
    """The layered policy with an agent's own settings."""
    guard, always, reducers = _layered(settings)
    return replace(POLICIES["layered"], guard=guard, always=always, reducers=reducers)


def confirm(threshold: float | None = None) -> Policy:
    """The confirm policy that asks at another share of the window (0.9 if None). Raises InvalidInput."""
    return replace(POLICIES["confirm"], consent_at=compact_threshold(threshold))


def policy_names() -> tuple[str, ...]:
    """The names of all policies, variants included."""
    return (*POLICIES, *VARIANTS)


_OWN_SETTINGS = ("trigger", "landing", "keep", "arrival_share", "arrival_of_result", "ahead", "auto")
POLICY_SETTINGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "autopilot": ("keep_recent", "max_context_bytes", "describe", "auto"),
        "sliding": ("tokens", "messages", "turns", "retention_messages", "ahead", "auto"),
        "checkpoint": (
            *(f.name for f in fields(CheckpointSettings)),
            "large_output_chars",
            *(f"output_{f.name}" for f in fields(OutputLimits) if f.name != "name"),
            "ahead",
        ),
        "layered": ("auto",),
        "confirm": ("auto",),
        "balanced": _OWN_SETTINGS,
        "cost": _OWN_SETTINGS,
        "quality": _OWN_SETTINGS,
        "economical": _OWN_SETTINGS,
        **dict.fromkeys(VARIANTS, ("auto",)),
    }
)
"""The settings of each policy beside its name. Those of `layered` are `session.context`, that of `confirm` is
`compact_threshold`: the documented systems have them there.
"""


def configured_policy(
    name: str, settings: Mapping[str, Any], *, context: ContextSettings, threshold: float | None
) -> Policy:
    """The policy of that name with settings of its own (`POLICY_SETTINGS`); absent ones keep their defaults.

    `context` counts for layered. `threshold` (None: not set) is the share of the window at which any policy asks.
    Raises InvalidInput that names the setting.
    """
    own = {key: value for key, value in settings.items() if key not in ("auto", "ahead")}
    if name == "autopilot":
        row = autopilot(**own)
    elif name == "sliding":
        row = sliding(**own)
    elif name == "checkpoint":
        row = _configured_checkpoint(own)
    elif name == "layered":
        row = layered(context)
    elif name == "confirm":
        row = confirm(threshold)
    else:
        row = _configured_own(policy(name), own)
    if threshold is not None:
        row = replace(row, consent_at=threshold)
    return replace(row, **{key: settings[key] for key in ("auto", "ahead") if key in settings})


def _configured_checkpoint(settings: dict[str, Any]) -> Policy:
    limits = {key.removeprefix("output_"): settings.pop(key) for key in tuple(settings) if key.startswith("output_")}
    large = {key: settings.pop(key) for key in ("large_output_chars",) if key in settings}
    return checkpoint(CheckpointSettings(**settings), outputs=OutputLimits(**limits) if limits else None, **large)


def _configured_own(preset: Policy, settings: Mapping[str, Any]) -> Policy:
    if "trigger" in settings:
        preset = replace(preset, trigger=Trigger(fraction=settings["trigger"]))
    if "landing" in settings:
        preset = replace(preset, landing=settings["landing"])
    if (preset.landing or 0.0) >= (preset.trigger.fraction or 1.0):
        # A fold that lands on its trigger is followed by the next at every message.
        place = "landing" if "landing" in settings else "trigger"
        raise InvalidInput(
            f"must land below its trigger: landing {preset.landing:g}, trigger {preset.trigger.fraction:g}", place=place
        )
    if "keep" in settings:
        preset = preset.keeping(settings["keep"])
    return preset.arriving(settings.get("arrival_share"), settings.get("arrival_of_result"))
