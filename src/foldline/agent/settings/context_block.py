"""The `session.context` block: as a file has it, and as the core takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Final, Literal

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from foldline.agent.settings.checks import Amount, Count, Flag, Name, settings_block, whole
from foldline.engine.settings import ContextSettings

__all__ = ["AsContext", "ContextBlock"]

_CONTEXT: Final = ContextSettings()  # its defaults are those of the block


@settings_block
class ContextBlock:
    """The `session.context` block as a file has it, for the policy `layered`."""

    max_history_tokens: Amount = Field(
        default=_CONTEXT.max_history_tokens,
        description="Cap of the conversation's history at the start of a turn; 0: no cap.",
    )
    max_tool_result_tokens: Annotated[int, whole(1, None)] = Field(
        default=_CONTEXT.max_tool_result_tokens, description="Cap of one tool result."
    )
    tool_result_truncation: Literal["head", "tail", "both"] = Field(
        default="head", description="What stays of a longer one."
    )
    tool_result_keep_first: Amount = Field(
        default=_CONTEXT.tool_result_keep_first, description="First results that are never masked."
    )
    tool_result_keep_last: Amount = Field(
        default=_CONTEXT.tool_result_keep_last, description="Last results that are not masked yet; both 0: no masking."
    )
    tool_result_limits: Mapping[Name, Count] = Field(
        default_factory=dict, description="Other caps by tool, in tokens: {bash: 2000}; they hold under every policy."
    )
    summarize_omitted: Flag = Field(
        default=_CONTEXT.summarize_omitted, description="A model sums up what leaves the history, where there is one."
    )

    def context(self) -> ContextSettings:
        """Convert to the settings of the core, which knows no file and no pydantic."""
        return ContextSettings(**{each.name: getattr(self, each.name) for each in fields(self)})


# An annotation, not a field of the block's type: an agent runs on the settings of the core, whoever built them.
class AsContext:
    """ContextSettings for pydantic: parsed from a block in a file, passed on as they are in code."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        del source
        block = core_schema.no_info_after_validator_function(
            ContextBlock.context, handler.generate_schema(ContextBlock)
        )
        return core_schema.no_info_wrap_validator_function(
            lambda value, inner: value if isinstance(value, ContextSettings) else inner(value), block
        )
