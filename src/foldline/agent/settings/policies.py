"""The policy of an agent as a file has it, with the settings that each policy takes; and the context of `layered`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from pydantic import Field, GetCoreSchemaHandler, ValidationInfo, model_validator
from pydantic_core import CoreSchema, core_schema

from foldline.agent.settings.checks import PARTIAL, Flag, Name, Share, one_of, settings_block, whole
from foldline.engine.policy import Policy
from foldline.engine.presets import POLICIES, VARIANTS, autopilot, checkpoint, confirm, layered, policy, sliding
from foldline.engine.settings import CheckpointSettings, ContextSettings
from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.reducers.truncate import OutputLimits
from foldline.view.budget import Trigger

__all__ = ["POLICY_SETTINGS", "AsContext", "PolicySettings", "default_policy", "policy_names"]


def policy_names() -> tuple[str, ...]:
    """All policies that a file may name."""
    return (*POLICIES, *VARIANTS)


def default_policy(has_context: bool, threshold: float | None) -> str:
    """The policy where none is named: that of the system whose settings are there, else balanced."""
    return "layered" if has_context else "confirm" if threshold is not None else "balanced"


_OWN_SETTINGS: Final = ("trigger", "landing", "keep", "arrival_share", "arrival_of_result", "auto")
POLICY_SETTINGS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "autopilot": ("keep_recent", "max_context_bytes", "describe", "auto"),
        "sliding": ("tokens", "messages", "turns", "retention_messages", "auto"),
        "checkpoint": (
            *(f.name for f in fields(CheckpointSettings)),
            "large_output_chars",
            *(f"output_{f.name}" for f in fields(OutputLimits) if f.name != "name"),
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
`compact_threshold`: where the systems' own files have them.
"""


@settings_block
class PolicySettings:
    """A policy by name, with settings of its own. What is None is the policy's own default.

    One block for all policies: which of its fields a policy takes is `POLICY_SETTINGS`.
    """

    name: Annotated[str, one_of(*policy_names())] = Field(default="balanced", description="The policy.")
    auto: Flag | None = Field(
        default=None, description="false: nothing is folded unasked; then a request may not fit. Not for checkpoint."
    )
    trigger: Share | None = Field(default=None, description="Share of the input limit at which it acts.")
    landing: Share | None = Field(default=None, description="Share at which it stops; below the trigger.")
    keep: Share | None = Field(
        default=None, description="Share of the landing, the newest of it, that no summary or digest replaces."
    )
    arrival_share: Share | None = Field(
        default=None, description="What a result may take on arrival, as a share of the room that is left."
    )
    arrival_of_result: Share | None = Field(default=None, description="And, on top of it, this share of its own size.")
    keep_recent: Annotated[int, whole(0)] | None = Field(
        default=None, description="autopilot: newest results that stay; checkpoint: newest messages."
    )
    max_context_bytes: Annotated[int, whole(1)] | None = Field(
        default=None, description="autopilot: acts over so many bytes."
    )
    describe: Flag | None = Field(default=None, description="autopilot: a model says what an old result brought.")
    tokens: Annotated[int, whole(2)] | None = Field(default=None, description="sliding: acts at so many tokens.")
    messages: Annotated[int, whole(2)] | None = Field(default=None, description="sliding: acts at so many messages.")
    turns: Annotated[int, whole(2)] | None = Field(default=None, description="sliding: acts at so many turns.")
    retention_messages: Annotated[int, whole(0)] | None = Field(
        default=None, description="sliding: newest messages that are not summed up."
    )
    max_messages: Annotated[int, whole(1, None)] | None = Field(
        default=None, description="checkpoint: without a limit of tokens, acts at so many messages."
    )
    max_tokens: Annotated[int, whole(0, None)] | None = Field(
        default=None, description="checkpoint: the limit where the window less the reserve is nothing."
    )
    keep_recent_tokens: Annotated[int, whole(0, None)] | None = Field(
        default=None, description="checkpoint: newest tokens that stay; 0: keep_recent messages."
    )
    reserve_tokens: Annotated[int, whole(0, None)] | None = Field(
        default=None, description="checkpoint: acts at the window less these."
    )
    tool_call_cutoff: Annotated[int, whole(0, None)] | None = Field(
        default=None, description="checkpoint: tool results that stay."
    )
    tool_summary_strategy: Literal["llm", "heuristic", "off"] | None = Field(
        default=None, description="checkpoint: how older tool results are summed up."
    )
    auto_compact: Flag | None = Field(default=None, description="checkpoint: false: nothing is compacted unasked.")
    large_output_chars: Annotated[int, whole(1)] | None = Field(
        default=None, description="checkpoint: larger outputs go to the archive."
    )
    output_max_lines: Annotated[int, whole(1)] | None = Field(default=None, description="checkpoint: of one output.")
    output_max_bytes: Annotated[int, whole(1)] | None = Field(default=None, description="checkpoint: of one output.")
    output_max_chars: Annotated[int, whole(1)] | None = Field(default=None, description="checkpoint: of one output.")
    output_mode: Literal["head", "head_tail"] | None = Field(
        default=None, description="checkpoint: what stays of a longer output."
    )

    @model_validator(mode="after")
    def _goes_together(self, info: ValidationInfo) -> PolicySettings:
        if info.context == PARTIAL:
            return self
        known = POLICY_SETTINGS[self.name]
        for name in self.settings:
            if name not in known:
                elsewhere = {"layered": "session.context", "confirm": "compact_threshold"}.get(self.name)
                more = f"; what {self.name} takes is set as {elsewhere}" if elsewhere else ""
                raise InvalidInput(f"is no setting of {self.name}; known are {', '.join(known)}{more}", place=name)
        # Checks what only holds together, as that it lands below its trigger.
        self.value(ContextSettings(), None)
        return self

    @property
    def settings(self) -> dict[str, Json]:
        """What is set beside the name."""
        return {
            each.name: found
            for each in fields(self)
            if each.name != "name" and (found := getattr(self, each.name)) is not None
        }

    def value(self, context: ContextSettings, threshold: float | None) -> Policy:
        """The policy; `context` counts for layered, `threshold` (None: not set) says when any of them asks."""
        # Only what is set: everything else is the policy's own default, which may change.
        given: dict[str, Any] = self.settings
        auto = given.pop("auto", None)
        if self.name == "autopilot":
            made = autopilot(**given)
        elif self.name == "sliding":
            made = sliding(**given)
        elif self.name == "checkpoint":
            made = _checkpoint(given)
        elif self.name == "layered":
            made = layered(context)
        elif self.name == "confirm":
            made = confirm(threshold)
        else:
            made = _own_policy(policy(self.name), given)
        if threshold is not None:
            made = replace(made, consent_at=threshold)
        return made if auto is None else replace(made, auto=auto)


def _checkpoint(given: dict[str, Any]) -> Policy:
    limits = {key.removeprefix("output_"): given.pop(key) for key in tuple(given) if key.startswith("output_")}
    large = {key: given.pop(key) for key in ("large_output_chars",) if key in given}
    return checkpoint(CheckpointSettings(**given), outputs=OutputLimits(**limits) if limits else None, **large)


def _own_policy(made: Policy, given: Mapping[str, Any]) -> Policy:
    if "trigger" in given:
        made = replace(made, trigger=Trigger(fraction=given["trigger"]))
    if "landing" in given:
        made = replace(made, landing=given["landing"])
    if (made.landing or 0.0) >= (made.trigger.fraction or 1.0):
        # A fold that lands on its trigger is followed by the next at every message.
        place = "landing" if "landing" in given else "trigger"
        raise InvalidInput(
            f"must land below its trigger: landing {made.landing:g}, trigger {made.trigger.fraction:g}", place=place
        )
    if "keep" in given:
        made = made.keeping(given["keep"])
    return made.arriving(given.get("arrival_share"), given.get("arrival_of_result"))


_CONTEXT: Final = ContextSettings()  # its defaults are those of the block


@settings_block
class ContextBlock:
    """The `session.context` block as a file has it, for the policy `layered`."""

    max_history_tokens: Annotated[int, whole(0, None)] = Field(
        default=_CONTEXT.max_history_tokens,
        description="Cap of the conversation's history at the start of a turn; 0: no cap.",
    )
    max_tool_result_tokens: Annotated[int, whole(1, None)] = Field(
        default=_CONTEXT.max_tool_result_tokens, description="Cap of one tool result."
    )
    tool_result_truncation: Literal["head", "tail", "both"] = Field(
        default="head", description="What stays of a longer one."
    )
    tool_result_keep_first: Annotated[int, whole(0, None)] = Field(
        default=_CONTEXT.tool_result_keep_first, description="First results that are never masked."
    )
    tool_result_keep_last: Annotated[int, whole(0, None)] = Field(
        default=_CONTEXT.tool_result_keep_last, description="Last results that are not masked yet; both 0: no masking."
    )
    tool_result_limits: Mapping[Name, Annotated[int, whole(1)]] = Field(
        default_factory=dict, description="Other caps by tool, in tokens: {bash: 2000}; they hold under every policy."
    )
    summarize_omitted: Flag = Field(
        default=_CONTEXT.summarize_omitted, description="A model sums up what leaves the history, where there is one."
    )

    def context(self) -> ContextSettings:
        """The same as the core has it, which knows no file and no pydantic."""
        return ContextSettings(**{each.name: getattr(self, each.name) for each in fields(self)})


class AsContext:
    """ContextSettings for pydantic: by the block in a file, as it is in code."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        del source
        block = core_schema.no_info_after_validator_function(
            ContextBlock.context, handler.generate_schema(ContextBlock)
        )
        return core_schema.no_info_wrap_validator_function(
            lambda value, inner: value if isinstance(value, ContextSettings) else inner(value), block
        )
