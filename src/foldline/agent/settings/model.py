"""The settings of an agent: the blocks of a settings file, each field with its default, bounds and meaning.

The agent runs on the same classes, and the JSON schema of a settings file is made from them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationInfo, model_validator

from foldline.agent.settings.checks import (
    PARTIAL,
    Amount,
    Check,
    Count,
    Flag,
    Name,
    ServerName,
    Share,
    Text,
    ToolNames,
    Url,
    VariableName,
    Word,
    number,
    number_from,
    one_of,
    quoted,
    settings_block,
    whole,
)
from foldline.agent.settings.connections import McpSettings, ScheduleSettings, TelegramSettings
from foldline.agent.settings.context_block import AsContext
from foldline.codecs import DIALECTS
from foldline.engine.policy import Policy
from foldline.engine.presets import POLICY_SETTINGS, configured_policy, policy_names
from foldline.engine.settings import (
    COMPACT_THRESHOLD,
    ContextSettings,
    compact_threshold,
    effective_limit,
)
from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.reducers.truncate import ResultLimit
from foldline.view.standing_rules import RULES_SHARE

__all__ = [
    "BLOCK",
    "OFF",
    "AgentBlock",
    "AgentSettings",
    "ModelSettings",
    "PolicySettings",
    "SessionSettings",
    "SubagentSettings",
    "ToolSettings",
    "default_policy",
]

OFF: Final = "off"
"""In place of a summariser: no model summarises."""

KEEP_CALLS: Final = 20_000
"""Model calls that stay in the log: months of one person's work, some hundred megabytes."""

# Rounds of tool calls in a turn without a `session` block (S0.08); the block's own default is 25 (S3.08).
MAX_TOOL_ITERATIONS: Final = 50


@settings_block
class ModelSettings:
    """A model and its server. A field that is None is determined by the name, the environment or the server."""

    name: Word | None = Field(default=None, description="The name that requests carry.")
    provider: Word | None = Field(default=None, description="The provider of the server: openai, anthropic, ollama, …")
    base_url: Url | None = Field(default=None, description="The address of the server.")
    dialect: Annotated[str, one_of(*DIALECTS)] | None = Field(
        default=None, description="The dialect of the server; by default the provider's."
    )
    api_key_env: VariableName | None = Field(
        default=None, description="The environment variable that holds the key; keys are never written in a file."
    )
    max_input_tokens: Count | None = Field(
        default=None, description="The window to stay inside, in tokens; by default that of the model's name."
    )
    max_output_tokens: Count | None = Field(
        default=None, description="Tokens of the window that stay free for a reply."
    )
    tools: Literal["native", "schema"] | None = Field(
        default=None,
        description="schema: calls by constrained decoding, for a server whose template has no tools.",
    )
    extra: Mapping[str, Json] = Field(
        default_factory=dict, description="Further fields of each request, sent as they are: {temperature: 0.2}."
    )

    @property
    def limit_tokens(self) -> int:
        """The window: as set, by the model's name, or 128,000 tokens (S3.01)."""
        return effective_limit(self.max_input_tokens, self.name)


# So a file of a documented system works as it does there, without naming a policy that its authors never heard of.
def default_policy(has_context: bool, threshold: float | None) -> str:
    """Return the policy where none is named: that of the system whose settings are present, else balanced."""
    return "layered" if has_context else "confirm" if threshold is not None else "balanced"


@settings_block
class PolicySettings:
    """A policy by name, with settings of its own. None stands for the policy's default.

    One block for all policies: `POLICY_SETTINGS` lists the fields that each policy takes.
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
        default=None, description="Up to which share of the room for history a result stays whole on arrival."
    )
    arrival_of_result: Share | None = Field(default=None, description="And, of a larger one, this share of the rest.")
    ahead: Annotated[float, number_from(0, 1)] | None = Field(
        default=None, description="Share of the trigger at which a summary is written in the background; 0: never."
    )
    keep_recent: Annotated[int, whole(0)] | None = Field(
        default=None, description="autopilot: newest results that stay; checkpoint: newest messages."
    )
    max_context_bytes: Count | None = Field(default=None, description="autopilot: acts over so many bytes.")
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
    max_tokens: Amount | None = Field(
        default=None, description="checkpoint: the limit where the window less the reserve is nothing."
    )
    keep_recent_tokens: Amount | None = Field(
        default=None, description="checkpoint: newest tokens that stay; 0: keep_recent messages."
    )
    reserve_tokens: Amount | None = Field(default=None, description="checkpoint: acts at the window less these.")
    tool_call_cutoff: Amount | None = Field(default=None, description="checkpoint: tool results that stay.")
    tool_summary_strategy: Literal["llm", "heuristic", "off"] | None = Field(
        default=None, description="checkpoint: how older tool results are summed up."
    )
    auto_compact: Flag | None = Field(default=None, description="checkpoint: false: nothing is compacted unasked.")
    large_output_chars: Count | None = Field(default=None, description="checkpoint: larger outputs go to the archive.")
    output_max_lines: Count | None = Field(default=None, description="checkpoint: of one output.")
    output_max_bytes: Count | None = Field(default=None, description="checkpoint: of one output.")
    output_max_chars: Count | None = Field(default=None, description="checkpoint: of one output.")
    output_mode: Literal["head", "head_tail"] | None = Field(
        default=None, description="checkpoint: what stays of a longer output."
    )

    @model_validator(mode="after")
    def _goes_together(self, info: ValidationInfo) -> PolicySettings:
        # A layer may set the name and another one the settings: only all layers together can be judged.
        if info.context == PARTIAL:
            return self
        settings = POLICY_SETTINGS[self.name]
        for name in self.settings:
            if name not in settings:
                elsewhere = {"layered": "session.context", "confirm": "compact_threshold"}.get(self.name)
                more = f"; what {self.name} takes is set as {elsewhere}" if elsewhere else ""
                raise InvalidInput(f"is no setting of {self.name}; known are {', '.join(settings)}{more}", place=name)
        # Building the policy checks what single fields cannot, such as a landing below the trigger.
        self.value(ContextSettings(), None)
        return self

    @property
    def settings(self) -> dict[str, Json]:
        """The settings that are not None, without the name."""
        return {
            each.name: found
            for each in fields(self)
            if each.name != "name" and (found := getattr(self, each.name)) is not None
        }

    def value(self, context: ContextSettings, threshold: float | None) -> Policy:
        """Return the policy; `context` counts for layered, `threshold` (None: not set) says when any of them asks."""
        # Only what is set: everything else is the policy's own default, which may change.
        return configured_policy(self.name, self.settings, context=context, threshold=threshold)


@settings_block
class SessionSettings:
    """The `session` block."""

    on_disconnect: Literal["pause", "continue"] = Field(
        default="pause", description="Whether a session pauses or goes on when its user leaves."
    )
    max_tool_iterations: Annotated[int, whole(1, None)] = Field(
        default=25, description="Most rounds of tool calls in one turn; 50 where there is no session block at all."
    )
    context: Annotated[ContextSettings, AsContext()] = Field(
        default_factory=ContextSettings, description="The settings of the policy layered."
    )


@settings_block
class ToolSettings:
    """The tools of an agent, and their limits."""

    allow: ToolNames = Field(
        default=frozenset(), description="Tools to offer that are off unless allowed; a person still allows each call."
    )
    off: ToolNames = Field(default=frozenset(), description="Tools that are not offered.")
    max_result_tokens: Mapping[Name, Count] = Field(
        default_factory=dict, description="Caps of results by tool, under every policy: {read_file: 2000}."
    )
    command_timeout_seconds: Annotated[float, number(0, 86_400)] = Field(
        default=120.0, description="The time limit of one command."
    )
    allow_private_urls: Flag = Field(default=False, description="fetch_url may reach this machine and its network.")
    definitions: Literal["auto", "whole", "short"] = Field(
        default="auto", description="Definitions of MCP tools: whole, short, or short where they take too much (auto)."
    )


@settings_block
class SubagentSettings:
    """How deep agents may start agents, and how many in one session; 0 for none."""

    max_depth: Annotated[int, whole(0, 8)] = Field(default=1, description="How deep agents may start agents.")
    max_number: Annotated[int, whole(0, 1_000)] = Field(default=8, description="The maximum of them in one session.")


# The rule is the core's, for callers without a file; here it only loses the core's name of the field.
def _threshold(value: Json) -> float:
    if not isinstance(value, int | float):
        raise InvalidInput(f"must be above 0 and at most 1, not {quoted(value)}")
    try:
        return compact_threshold(value)
    except InvalidInput as error:
        raise InvalidInput(error.reason) from None


# Whether it was "off" is lost here; the loader reads it from the layers, which hold the word itself.
def _or_off(value: Json) -> Json:
    return None if value == OFF else value


# Two classes of it, since a file names a file of system text, which an agent has read.
@settings_block
class _AgentFields:
    """The fields that a file and a running agent share."""

    model: ModelSettings = Field(default_factory=ModelSettings, description="The model: its name, or a block.")
    policy: PolicySettings | None = Field(
        default=None,
        description="How the conversation stays in the window: a policy by name, or a block. By default layered with a "
        "session.context, confirm with a compact_threshold, else balanced.",
    )
    compact_threshold: Annotated[float, Check(_threshold, number(0, 1).schema)] | None = Field(
        default=None, description="Share of the window at which the user is asked whether to compact: 0.9."
    )
    keep_calls: Count = Field(
        default=KEEP_CALLS,
        description="Model calls that stay in the log, which all agents of a user share; the oldest are deleted.",
    )
    counter: Literal["estimate", "chars", "exact"] = Field(
        default="estimate",
        description="How tokens are counted: estimate; chars: four characters are one; exact: by its vocabulary.",
    )
    summariser: Annotated[ModelSettings | None, BeforeValidator(_or_off)] = Field(
        default=None, description="The model that summarises, as model; by default the model itself; off: none."
    )
    system: Text | None = Field(default=None, description="The system text.")
    instructions_file: Annotated[Word | None, BeforeValidator(_or_off)] = Field(
        default="AGENTS.md",
        description="A file of the working folder whose text is added to the system text; off: none.",
    )
    rules_share: Annotated[float, number(0, 0.5)] = Field(
        default=RULES_SHARE, description="Share of the input limit that standing rules may take in folds."
    )
    # None where there is no block: such an agent has 50 tool rounds (S0.08), one with a block 25 (S3.08).
    session: SessionSettings | None = Field(default=None, description="The session and its context.")
    tools: ToolSettings = Field(default_factory=ToolSettings, description="Its tools and their limits.")
    subagents: SubagentSettings = Field(default_factory=SubagentSettings, description="The agents that it may start.")
    mcp: Mapping[ServerName, McpSettings] = Field(default_factory=dict, description="Servers of further tools.")
    schedule: Mapping[Name, ScheduleSettings] = Field(
        default_factory=dict, description="Its runs at set times, by the name of the entry."
    )
    telegram: TelegramSettings = Field(default_factory=TelegramSettings, description="Its bot on Telegram.")


@settings_block
class AgentBlock(_AgentFields):
    """The fields of an agent as a file has them: in `agents.NAME`, `defaults` and `profiles.NAME` alike."""

    system_file: Word | None = Field(
        default=None, description="A file with the system text, from the folder of the settings file; 256 KiB at most."
    )


@settings_block
class AgentSettings(_AgentFields):
    """The settings of one agent. Every field has a default.

    Without `summaries` no model summarises. `has_context` tells whether `session.context` was set.
    """

    name: str = "main"
    summaries: bool = True
    has_context: bool = False

    @property
    def max_tool_iterations(self) -> int:
        """The maximum of tool rounds in a turn."""
        return MAX_TOOL_ITERATIONS if self.session is None else self.session.max_tool_iterations

    @property
    def threshold(self) -> float:
        """The share of the window at which the user is asked, if the policy asks."""
        return COMPACT_THRESHOLD if self.compact_threshold is None else self.compact_threshold

    @property
    def policy_settings(self) -> PolicySettings:
        """The policy as set, or the default for the other settings."""
        if self.policy is not None:
            return self.policy
        return PolicySettings(name=default_policy(self.has_context, self.compact_threshold))

    def policy_value(self) -> Policy:
        """Return the policy with its settings.

        Limits of single tools go before its own guard, which leaves their results as they are.
        """
        context = ContextSettings() if self.session is None else self.session.context
        limits = {**self.tools.max_result_tokens, **context.tool_result_limits}
        chosen = self.policy_settings
        policy = chosen.value(replace(context, tool_result_limits=limits), self.compact_threshold)
        # `layered` has limits of single tools itself; a second guard would cut the same results again.
        if not limits or chosen.name == "layered":
            return policy
        # First in the guard, without a limit for other tools: those are for the policy's own guard.
        guard = ResultLimit(sys.maxsize, context.tool_result_truncation, limits, "tool_limit")
        return replace(policy, guard=(guard, *policy.guard))


BLOCK: Final = TypeAdapter(AgentBlock)
