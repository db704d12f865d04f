"""The effective settings of an agent, row by row, each with its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import cast

from foldline.agent.settings.file import LoadedSettings
from foldline.agent.settings.model import ModelSettings
from foldline.agent.settings.schedule import ScheduleSettings
from foldline.engine.settings import ContextSettings
from foldline.messages import Json

__all__ = ["EffectiveSetting", "effective_settings"]

BUILT_IN = "built in"


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """A setting: name as in a file, value (None: determined when needed), and source."""

    name: str
    value: Json
    source: str


def effective_settings(loaded: LoadedSettings, environ: Mapping[str, str]) -> tuple[EffectiveSetting, ...]:
    """Return every setting of the agent. Of the environment it only says whether a variable is set."""
    return tuple(
        EffectiveSetting(name, value, source or _source(loaded, name)) for name, value, source in _rows(loaded, environ)
    )


def _source(loaded: LoadedSettings, name: str) -> str:
    """Return the source of a field; of a list or a block of names, those of its parts."""
    given = loaded.sources.get(name)
    if given is not None:
        return given.source
    parts = {each.source: None for key, each in loaded.sources.items() if key.startswith(f"{name}.")}
    return ", ".join(parts) or BUILT_IN


def _rows(loaded: LoadedSettings, environ: Mapping[str, str]) -> Iterator[tuple[str, Json, str]]:
    """Yield (name, value, source) of each setting; an empty source is looked up by the name."""
    now = loaded.settings
    yield from _model_rows("model", now.model, environ)
    chosen = now.policy_settings
    implied = "goes with session.context" if now.has_context else "goes with compact_threshold"
    built_in = now.policy is None and chosen.name == "balanced"
    unnamed = "policy.name" not in loaded.sources
    yield "policy.name", chosen.name, BUILT_IN if built_in else implied if unnamed else ""
    for name, value in chosen.settings.items():
        yield f"policy.{name}", value, ""
    yield "compact_threshold", now.threshold, ""
    yield "counter", now.counter, ""
    if now.summariser is None:
        yield "summariser", "the model itself" if now.summaries else "off", ""
    else:
        yield from _model_rows("summariser", now.summariser, environ)
    where = "system_file" if "system_file" in loaded.sources else "system"
    yield where, now.system, ""
    yield "session.max_tool_iterations", now.max_tool_iterations, ""
    yield "session.on_disconnect", "pause" if now.session is None else now.session.on_disconnect, ""
    context = ContextSettings() if now.session is None else now.session.context
    for field in fields(ContextSettings):
        value = getattr(context, field.name)
        yield f"session.context.{field.name}", dict(value) if isinstance(value, Mapping) else value, ""
    yield "tools.allow", sorted(now.tools.allow), ""
    yield "tools.off", sorted(now.tools.off), ""
    yield "tools.max_result_tokens", dict(now.tools.max_result_tokens), ""
    yield "tools.command_timeout_seconds", now.tools.command_timeout_seconds, ""
    yield "tools.allow_private_urls", now.tools.allow_private_urls, ""
    yield "subagents.max_depth", now.subagents.max_depth, ""
    yield "subagents.max_number", now.subagents.max_number, ""
    for name, server in now.mcp.items():
        for part in fields(server):
            found = getattr(server, part.name)
            if found or part.name == "allow":
                shown = dict(found) if isinstance(found, Mapping) else list(found) if part.name == "args" else found
                yield f"mcp.{name}.{part.name}", shown, ""
    yield "telegram.users", list(now.telegram.users), ""
    for name, entry in now.schedule.items():
        yield from _entry_rows(f"schedule.{name}", entry)


def _entry_rows(block: str, entry: ScheduleSettings) -> Iterator[tuple[str, Json, str]]:
    """The fields of an entry of the schedule."""
    yield f"{block}.cron", entry.cron.text, ""
    yield f"{block}.timezone", entry.timezone, ""
    yield f"{block}.prompt", entry.prompt, ""
    yield f"{block}.session", entry.session or block.removeprefix("schedule."), ""
    told = [{key: value for key, value in asdict(to).items() if value is not None} for to in entry.deliver]
    yield f"{block}.deliver", cast(Json, told), ""
    yield f"{block}.enabled", entry.enabled, ""
    late = None if entry.max_late_seconds is None else f"{entry.max_late_seconds:.0f}s"
    yield f"{block}.max_late", late, ""
    yield f"{block}.policy", entry.policy, ""


def _model_rows(block: str, model: ModelSettings, environ: Mapping[str, str]) -> Iterator[tuple[str, Json, str]]:
    """The fields of a model."""
    for name in ("name", "provider", "base_url", "dialect"):
        yield f"{block}.{name}", getattr(model, name), ""
    guessed = model.max_input_tokens is None and model.name is not None
    limit = model.limit_tokens if guessed else model.max_input_tokens
    yield f"{block}.max_input_tokens", limit, "by the model's name" if guessed else ""
    for name in ("max_output_tokens", "tools"):
        yield f"{block}.{name}", getattr(model, name), ""
    key = model.api_key_env
    if key is not None:
        yield f"{block}.api_key_env", key, ""
        yield f"{block} key", "set" if environ.get(key) else "not set", f"environment {key}"
    if model.extra:
        yield f"{block}.extra", dict(model.extra), ""
