"""What can be set for an agent, as values with defaults. `settings_file` reads them from `agents.yaml`."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Final, Literal

from foldline.agent.settings.schedule import ScheduleSettings
from foldline.engine.policy import POLICIES, VARIANTS, Policy, autopilot, checkpoint, confirm, layered, policy, sliding
from foldline.engine.settings import (
    COMPACT_THRESHOLD,
    CheckpointSettings,
    ContextSettings,
    SessionSettings,
    effective_limit,
)
from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.reducers.base import Reducer
from foldline.reducers.digest import Digest
from foldline.reducers.summarize import Summarize
from foldline.reducers.truncate import OutputLimits, ResultLimit, ShortenNew
from foldline.view.budget import Trigger

__all__ = [
    "KEEP_CALLS",
    "POLICY_SETTINGS",
    "AgentSettings",
    "McpSettings",
    "ModelSettings",
    "PolicySettings",
    "SubagentSettings",
    "TelegramSettings",
    "ToolSettings",
    "implied_policy",
    "policy_names",
    "variables",
    "variables_out",
]

KEEP_CALLS: Final = 20_000
"""Model calls that stay in the record: months of one person's work, some hundred megabytes."""

MAX_TOOL_ITERATIONS: Final = 50
"""Rounds of tool calls in one turn where no `session` block is set (S0.08); the block's own default is 25 (S3.08)."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """A model and its server. What is None is found out: by the name, from the environment, from the server.

    `api_key_env` names the environment variable with the key. `tools` "schema" makes tool calls by constrained
    decoding, for servers whose template has none. `extra` goes into each request as it is.
    """

    name: str | None = None
    provider: str | None = None
    base_url: str | None = None
    dialect: str | None = None
    api_key_env: str | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    tools: Literal["native", "schema"] | None = None
    extra: Mapping[str, Json] = field(default_factory=lambda: _NOTHING)

    @property
    def limit_tokens(self) -> int:
        """The window to keep to: what is set, else what goes with the name, else 128,000 (S3.01)."""
        return effective_limit(self.max_input_tokens, self.name)


_OURS: Final = ("trigger", "landing", "keep", "arrival_share", "arrival_of_result", "auto")
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
        "balanced": _OURS,
        "cost": _OURS,
        "quality": _OURS,
        "economical": _OURS,
        **dict.fromkeys(VARIANTS, ("auto",)),
    }
)
"""The settings of each policy beside its name. Those of `layered` are `session.context`, that of `confirm` is
`compact_threshold`: where the systems' own files have them.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySettings:
    """A policy by name, with settings of its own. Raises InvalidInput whose place is the field."""

    name: str = "balanced"
    settings: Mapping[str, Json] = field(default_factory=lambda: _NOTHING)

    def __post_init__(self) -> None:
        policy(self.name)
        known = POLICY_SETTINGS[self.name]
        for name in self.settings:
            if name not in known:
                elsewhere = {"layered": "session.context", "confirm": "compact_threshold"}.get(self.name)
                more = f"; what {self.name} takes is set as {elsewhere}" if elsewhere else ""
                raise InvalidInput(f"is no setting of {self.name}; known are {', '.join(known)}{more}", place=name)
        # Checks what only holds together, as that it lands below its trigger.
        self.value(ContextSettings(), None)

    def value(self, context: ContextSettings, threshold: float | None) -> Policy:
        """The policy; `context` counts for layered, `threshold` (None: not set) says when any of them asks."""
        given: dict[str, Any] = dict(self.settings)
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
            made = _ours(policy(self.name), given)
        if threshold is not None:
            made = replace(made, consent_at=threshold)
        return made if auto is None else replace(made, auto=auto)


def _checkpoint(given: dict[str, Any]) -> Policy:
    limits = {key.removeprefix("output_"): given.pop(key) for key in tuple(given) if key.startswith("output_")}
    large = {key: given.pop(key) for key in ("large_output_chars",) if key in given}
    return checkpoint(CheckpointSettings(**given), outputs=OutputLimits(**limits) if limits else None, **large)


def _ours(made: Policy, given: Mapping[str, Any]) -> Policy:
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
        kept = (replace(r, keep=given["keep"]) if isinstance(r, Digest | Summarize) else r for r in made.reducers)
        made = replace(made, reducers=tuple(kept))
    return replace(made, guard=tuple(_arriving(r, given) for r in made.guard))


def _arriving(reducer: Reducer, given: Mapping[str, Any]) -> Reducer:
    """What shortens results on arrival, with the shares that are set. One that is above its cap raises the cap."""
    if not isinstance(reducer, ShortenNew):
        return reducer
    share = given.get("arrival_share", reducer.share)
    of_result = given.get("arrival_of_result", reducer.of_result)
    return replace(reducer, share=share, of_result=of_result, most=max(reducer.most, share))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSettings:
    """Which tools there are, and how far they go.

    `allow` offers tools that are off unless allowed (each call is still asked); `off` takes tools away.
    `max_result_tokens` cuts results by tool, under every policy.
    """

    allow: frozenset[str] = frozenset()
    off: frozenset[str] = frozenset()
    max_result_tokens: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    command_timeout_seconds: float = 120.0
    allow_private_urls: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentSettings:
    """How deep agents may start agents, and how many in one session; 0 for none."""

    max_depth: int = 1
    max_number: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramSettings:
    """Who may write to the agent on Telegram, by their ids; by default nobody."""

    users: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class McpSettings:
    """One MCP server: a `command` that is started, or the `url` of one that runs. Raises InvalidInput.

    Values of `env` and `headers` may hold `${NAME}`: only `resolved` puts the environment's values in, so that settings
    never hold secrets. With `allow` its tools run without being asked for.
    """

    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    allow: bool = False

    def __post_init__(self) -> None:
        if (self.command is None) == (self.url is None):
            raise InvalidInput("must have a command to start, or the url of a server, and not both")
        for name in ("args", "env") if self.url is not None else ("headers",):
            if getattr(self, name):
                raise InvalidInput(
                    f"is of no use to a server with a {'url' if self.url is not None else 'command'}", place=name
                )

    def missing(self, environ: Mapping[str, str]) -> list[tuple[str, str]]:
        """(field, variable) of each `${NAME}` that the environment does not have."""
        return [
            (f"{block}.{name}", variable)
            for block, values in (("env", self.env), ("headers", self.headers))
            for name, value in values.items()
            for variable in variables(value)
            if variable not in environ
        ]

    def resolved(self, environ: Mapping[str, str]) -> McpSettings:
        """With each `${NAME}` replaced. Raises InvalidInput that names the field and the variable that is missing."""
        for name, variable in self.missing(environ):
            raise InvalidInput(f"the environment has no {variable}", place=name)

        def filled(values: Mapping[str, str]) -> Mapping[str, str]:
            return {name: _VARIABLE.sub(lambda found: environ[found[1]], value) for name, value in values.items()}

        return replace(self, env=filled(self.env), headers=filled(self.headers))


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """All that is set for one agent. Every field has a default.

    `policy` None stands for the one that goes with what is set: layered with a `session.context`, confirm with a
    `compact_threshold`, else balanced. `summariser` None is the model itself; with `summaries` off no model sums up.
    `counter` says how tokens are counted: by our estimate, by characters / 4 (S2.09), by the model's own vocabulary.
    `asks_context` says whether `session.context` was set. `keep_calls` bounds the record of model calls, which all
    agents of a user share: the oldest go.
    """

    name: str = "main"
    model: ModelSettings = field(default_factory=ModelSettings)
    policy: PolicySettings | None = None
    compact_threshold: float | None = None
    counter: Literal["estimate", "chars", "exact"] = "estimate"
    keep_calls: int = KEEP_CALLS
    summariser: ModelSettings | None = None
    summaries: bool = True
    system: str | None = None
    session: SessionSettings | None = None
    asks_context: bool = False
    tools: ToolSettings = field(default_factory=ToolSettings)
    subagents: SubagentSettings = field(default_factory=SubagentSettings)
    mcp: Mapping[str, McpSettings] = field(default_factory=lambda: _NOTHING)
    schedule: Mapping[str, ScheduleSettings] = field(default_factory=lambda: _NOTHING)
    telegram: TelegramSettings = field(default_factory=TelegramSettings)

    @property
    def max_tool_iterations(self) -> int:
        """Most rounds of tool calls in one turn."""
        return MAX_TOOL_ITERATIONS if self.session is None else self.session.max_tool_iterations

    @property
    def threshold(self) -> float:
        """Share of the window at which the user is to be asked, if the policy asks at all."""
        return COMPACT_THRESHOLD if self.compact_threshold is None else self.compact_threshold

    @property
    def policy_settings(self) -> PolicySettings:
        """The policy that is set, or that goes with what is set."""
        if self.policy is not None:
            return self.policy
        return PolicySettings(name=implied_policy(self.asks_context, self.compact_threshold))

    def policy_value(self) -> Policy:
        """The policy with all that is set for it.

        Limits of single tools go before its own guard, which then leaves what they have cut as it is.
        """
        context = ContextSettings() if self.session is None else self.session.context
        limits = {**self.tools.max_result_tokens, **context.tool_result_limits}
        chosen = self.policy_settings
        made = chosen.value(replace(context, tool_result_limits=limits), self.compact_threshold)
        if not limits or chosen.name == "layered":  # that one has limits of single tools itself
            return made
        guard = ResultLimit(sys.maxsize, context.tool_result_truncation, limits, "tool_limit")
        return replace(made, guard=(guard, *made.guard))


def variables(value: str) -> list[str]:
    """The names in the `${NAME}` of a value."""
    return _VARIABLE.findall(value)


def variables_out(value: str) -> str:
    """The value without its `${NAME}`."""
    return _VARIABLE.sub("", value)


def implied_policy(asks_context: bool, threshold: float | None) -> str:
    """The policy where none is named: that of the system whose settings are there, else balanced."""
    return "layered" if asks_context else "confirm" if threshold is not None else "balanced"


def policy_names() -> tuple[str, ...]:
    """All policies that a file may name."""
    return (*POLICIES, *VARIANTS)
