"""The settings of an agent: the blocks of a settings file, each field with its default, bounds and meaning.

The agent runs on the same classes, and the JSON schema of a settings file is made from them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationInfo, model_validator

from foldline.agent.settings.checks import (
    NAME,
    PARTIAL,
    Check,
    EnvValue,
    Flag,
    HeaderName,
    Name,
    ServerName,
    Text,
    Texts,
    ToolNames,
    Url,
    UserIds,
    VariableKey,
    VariableName,
    Word,
    number,
    one_of,
    quoted,
    settings_block,
    substitute_variables,
    variable_names,
    whole,
)
from foldline.agent.settings.policies import AsContext, PolicySettings, default_policy
from foldline.agent.settings.schedule import ScheduleSettings
from foldline.codecs import DIALECTS
from foldline.engine.policy import Policy
from foldline.engine.settings import COMPACT_THRESHOLD, ContextSettings, compact_threshold, effective_limit
from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.reducers.truncate import ResultLimit

__all__ = [
    "BLOCK",
    "KEEP_CALLS",
    "OFF",
    "AgentBlock",
    "AgentSettings",
    "McpSettings",
    "ModelSettings",
    "SessionSettings",
    "SubagentSettings",
    "TelegramSettings",
    "ToolSettings",
    "block_schema",
    "field_schema",
    "schema_definition",
    "settings_schema",
]

OFF: Final = "off"
"""In place of a summariser: none."""

KEEP_CALLS: Final = 20_000
"""Model calls that stay in the record: months of one person's work, some hundred megabytes."""

# Rounds of tool calls in a turn without a `session` block (S0.08); the block's own default is 25 (S3.08).
MAX_TOOL_ITERATIONS: Final = 50


@settings_block
class ModelSettings:
    """A model and its server. A field that is None is determined by the name, the environment or the server."""

    name: Word | None = Field(default=None, description="The name that requests carry.")
    provider: Word | None = Field(default=None, description="Whose server: openai, anthropic, ollama, …")
    base_url: Url | None = Field(default=None, description="The address of the server.")
    dialect: Annotated[str, one_of(*DIALECTS)] | None = Field(
        default=None, description="How the server is spoken to; the provider's if not given."
    )
    api_key_env: VariableName | None = Field(
        default=None, description="The environment variable that holds the key; keys are never written in a file."
    )
    max_input_tokens: Annotated[int, whole(1)] | None = Field(
        default=None, description="The window to keep to, in tokens; that of the name if not given."
    )
    max_output_tokens: Annotated[int, whole(1)] | None = Field(
        default=None, description="Tokens of the window that are kept free for a reply."
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
        default_factory=ContextSettings, description="What the policy layered keeps to."
    )


@settings_block
class ToolSettings:
    """Which tools there are, and how far they go."""

    allow: ToolNames = Field(
        default=frozenset(), description="Tools to offer that are off unless allowed; each call is still asked."
    )
    off: ToolNames = Field(default=frozenset(), description="Tools that are not offered.")
    max_result_tokens: Mapping[Name, Annotated[int, whole(1)]] = Field(
        default_factory=dict, description="Caps of results by tool, under every policy: {read_file: 2000}."
    )
    command_timeout_seconds: Annotated[float, number(0, 86_400)] = Field(
        default=120.0, description="Most time of one command."
    )
    allow_private_urls: Flag = Field(default=False, description="fetch_url may reach this machine and its network.")


@settings_block
class SubagentSettings:
    """How deep agents may start agents, and how many in one session; 0 for none."""

    max_depth: Annotated[int, whole(0, 8)] = Field(default=1, description="How deep agents may start agents.")
    max_number: Annotated[int, whole(0, 1_000)] = Field(default=8, description="Most of them in one session.")


@settings_block
class TelegramSettings:
    """Who may write to the agent on Telegram, by their ids; by default nobody."""

    users: UserIds = Field(default=(), description="Ids of those who get an answer.")


@settings_block
class McpSettings:
    """One MCP server: a `command` that is started, or the `url` of one that runs.

    Values of `env` and `headers` may hold `${NAME}`: only `resolved` puts the environment's values in, so that settings
    never hold secrets.
    """

    command: Word | None = Field(default=None, description="A program to start.")
    args: Texts = Field(default=(), description="Its arguments.")
    env: Mapping[VariableKey, EnvValue] = Field(
        default_factory=dict, description="Its environment, beside what every program gets."
    )
    url: Url | None = Field(default=None, description="Or the address of a server that runs.")
    headers: Mapping[HeaderName, Word] = Field(default_factory=dict, description="Headers of each request to it.")
    allow: Flag = Field(default=False, description="Its tools run without being asked for.")

    @model_validator(mode="after")
    def _is_one_server(self, info: ValidationInfo) -> McpSettings:
        if info.context == PARTIAL:
            return self
        if (self.command is None) == (self.url is None):
            raise InvalidInput("must have a command to start, or the url of a server, and not both")
        # Refused, not ignored: a key in `env` of a remote server would look as if it were sent.
        for name in ("args", "env") if self.url is not None else ("headers",):
            if getattr(self, name):
                kind = "url" if self.url is not None else "command"
                raise InvalidInput(f"is of no use to a server with a {kind}", place=name)
        return self

    def missing(self, environ: Mapping[str, str]) -> list[tuple[str, str]]:
        """(field, variable) of each `${NAME}` that the environment does not have."""
        return [
            (f"{block}.{name}", variable)
            for block, values in (("env", self.env), ("headers", self.headers))
            for name, value in values.items()
            for variable in variable_names(value)
            if variable not in environ
        ]

    def resolved(self, environ: Mapping[str, str]) -> McpSettings:
        """With each `${NAME}` replaced. Raises InvalidInput that names the field and the variable that is missing."""
        for name, variable in self.missing(environ):
            raise InvalidInput(f"the environment has no {variable}", place=name)

        def filled(values: Mapping[str, str]) -> Mapping[str, str]:
            return {name: substitute_variables(value, environ) for name, value in values.items()}

        return replace(self, env=filled(self.env), headers=filled(self.headers))


def _threshold(value: Json) -> float:
    if not isinstance(value, int | float):
        raise InvalidInput(f"must be above 0 and at most 1, not {quoted(value)}")
    try:
        return compact_threshold(value)
    except InvalidInput as error:
        raise InvalidInput(error.reason) from None


def _or_off(value: Json) -> Json:
    return None if value == OFF else value


@settings_block
class _AgentFields:
    """The fields that a file and a running agent share."""

    model: ModelSettings = Field(default_factory=ModelSettings, description="The model: its name, or a block.")
    policy: PolicySettings | None = Field(
        default=None,
        description="How the window is kept: a policy by name, or a block. Without one it goes with what is set: "
        "layered with a session.context, confirm with a compact_threshold, else balanced.",
    )
    compact_threshold: Annotated[float, Check(_threshold, number(0, 1).schema)] | None = Field(
        default=None, description="Share of the window at which the user is asked whether to compact: 0.9."
    )
    keep_calls: Annotated[int, whole(1)] = Field(
        default=KEEP_CALLS,
        description="Model calls that stay in the record, which all agents of a user share; the oldest go.",
    )
    counter: Literal["estimate", "chars", "exact"] = Field(
        default="estimate",
        description="How tokens are counted: estimate; chars: four characters are one; exact: by its vocabulary.",
    )
    summariser: Annotated[ModelSettings | None, BeforeValidator(_or_off)] = Field(
        default=None, description="The model that sums up, as model; the model itself if not given; off: none does."
    )
    system: Text | None = Field(default=None, description="The system text.")
    session: SessionSettings | None = Field(default=None, description="The session, and what of it is kept.")
    tools: ToolSettings = Field(default_factory=ToolSettings, description="Which tools there are.")
    subagents: SubagentSettings = Field(default_factory=SubagentSettings, description="Agents that it may start.")
    mcp: Mapping[ServerName, McpSettings] = Field(default_factory=dict, description="Servers of further tools.")
    schedule: Mapping[Name, ScheduleSettings] = Field(
        default_factory=dict, description="What it does at set times, by the name of the entry."
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
    """All that is set for one agent. Every field has a default.

    With `summaries` off no model sums up. `has_context` says whether `session.context` was set.
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
        made = chosen.value(replace(context, tool_result_limits=limits), self.compact_threshold)
        if not limits or chosen.name == "layered":  # that one has limits of single tools itself
            return made
        # First in the guard, without a limit for other tools: those are for the policy's own guard.
        guard = ResultLimit(sys.maxsize, context.tool_result_truncation, limits, "tool_limit")
        return replace(made, guard=(guard, *made.guard))


BLOCK: Final = TypeAdapter(AgentBlock)


@cache
def settings_schema() -> dict[str, Json]:
    """The JSON schema of a settings file, for editors and for other checkers."""
    block = BLOCK.json_schema(ref_template="#/$defs/{model}")
    definitions = {**block.pop("$defs"), "Agent": block}
    properties = block["properties"]
    for name in ("model", "summariser", "policy"):  # a word stands for the block's name
        described = {"description": properties[name]["description"]}
        properties[name] = described | {"anyOf": [*_forms(properties[name]), {"type": "string"}]}
    agent: Json = {"$ref": "#/$defs/Agent"}
    named: Json = {"type": "object", "additionalProperties": agent, "propertyNames": {"pattern": f"^{NAME.pattern}$"}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of agents",
        "type": "object",
        "properties": {"defaults": agent, "agents": named, "profiles": named} | properties,
        "additionalProperties": agent,
        "$defs": definitions,
    }


def _forms(schema: Json) -> list[Json]:
    found: list[Json] = schema.get("anyOf", [schema])
    return found


def schema_definition(name: str) -> Mapping[str, Json]:
    """Return the JSON schema of one block by the name of its class."""
    found: Mapping[str, Json] = settings_schema()["$defs"][name]
    return found


def block_schema(schema: Json) -> Mapping[str, Json] | None:
    """The schema of a block of fields, found behind references and alternatives; None for a single value."""
    for form in _forms(schema):
        target = schema_definition(form["$ref"].rpartition("/")[2]) if "$ref" in form else form
        if target.get("type") == "object":
            return target
    return None


def field_schema(block: Mapping[str, Json], name: str) -> Json:
    """The schema of one field of a block; {} for one that may be anything. None where there is no such field."""
    if "properties" in block:
        return block["properties"].get(name)
    for named in block.get("patternProperties", {}).values():  # pydantic checks the names themselves
        return named
    others = block.get("additionalProperties", {})
    return others if isinstance(others, Mapping) else {}
