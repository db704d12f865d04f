"""The runtime of agents, from user settings: the model, its window, MCP servers, the call log.

Knows no terminal: every interface that runs agents starts here. Heavy modules are loaded when needed, so that a prompt
is on screen first.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from foldline.agent.settings.file import LoadedSettings, load_settings
from foldline.errors import FoldlineError, InvalidInput, MissingExtra
from foldline.messages import Json

if TYPE_CHECKING:
    from foldline.agent.assemble import Parts
    from foldline.agent.settings.connections import McpSettings
    from foldline.agent.settings.model import AgentSettings, ModelSettings
    from foldline.agent.tools.base import PermissionRequest, Tool
    from foldline.agent.tools.workspace import Workspace
    from foldline.providers.base import Provider
    from foldline.providers.selection import ModelPreference, SelectedModel
    from foldline.store.call_log import CallLog

__all__ = [
    "ALLOWABLE",
    "Options",
    "Runtime",
    "WindowSize",
    "model_choice",
    "open_call_log",
    "settings_for",
    "settings_of_flags",
    "window_size",
]

_FLAGS: Final = {
    "model": "--model",
    "model.name": "--model",
    "model.provider": "--provider",
    "model.base_url": "--base-url",
    "model.max_input_tokens": "--window",
    "policy": "--policy",
    "policy.name": "--policy",
    "tools.allow": "--allow",
}
# The prefix of a place in the settings that came from an option: the error then names the option.
_FROM_FLAGS: Final = "command line: "

ALLOWABLE: Final = ("write_file", "edit_file", "run_command")
"""The tools that are off unless allowed (`agent.assemble` has them too, and takes long to load)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of the command line; None where not given. `window` is in tokens."""

    agent: str | None = None
    profile: str | None = None
    config: str | None = None
    model: str | None = None
    provider: str | None = None
    base_url: str | None = None
    policy: str | None = None
    window: int | None = None
    allow: tuple[str, ...] = ()
    trust: bool = False


def settings_of_flags(options: Options) -> dict[str, Json]:
    """The options as fields of an agent, in the form of a settings file."""
    model = {
        "name": options.model,
        "provider": options.provider,
        "base_url": options.base_url,
        "max_input_tokens": options.window,
    }
    # Only what was given: an absent option must not override the settings file with null.
    model = {name: value for name, value in model.items() if value is not None}
    flags: dict[str, Json] = {"model": model} if model else {}
    if options.policy is not None:
        flags["policy"] = options.policy
    if options.allow:
        flags["tools"] = {"allow": list(options.allow)}
    return flags


def settings_for(options: Options, environ: Mapping[str, str], *, folder: Path | None = None) -> LoadedSettings:
    """Load the settings in effect under these options. Raises InvalidInput; for an option it names the flag."""
    # Checked before the files are read, by the option's own list: a typing error needs no other message.
    for name in options.allow:
        if name not in ALLOWABLE:
            raise InvalidInput(f"{name[:80]!r} is no tool to be allowed; {', '.join(ALLOWABLE)} are", place="--allow")
    try:
        loaded = load_settings(
            options.agent,
            profile=options.profile,
            config=options.config,
            flags=settings_of_flags(options),
            trust=options.trust,
            folder=folder,
            environ=environ,
        )
    except InvalidInput as error:
        place = error.place or ""
        field = place.removeprefix(_FROM_FLAGS)
        if field == place:
            raise
        raise InvalidInput(error.reason, place=_FLAGS.get(field.partition("[")[0], field)) from None
    model = loaded.settings.model
    if options.provider is not None and options.base_url is None and model.base_url is not None:
        # The file's address and key belong to the file's provider: neither may reach another one.
        elsewhere = replace(model, name=options.model, base_url=None, dialect=None, api_key_env=None)
        return replace(loaded, settings=replace(loaded.settings, model=elsewhere))
    return loaded


def model_choice(model: ModelSettings) -> ModelPreference:
    """The settings that decide where a model is looked for, with a new id under which its requests are cached."""
    from foldline.providers.selection import ModelPreference

    return ModelPreference(
        provider=model.provider,
        model=model.name,
        base_url=model.base_url,
        dialect=model.dialect,
        api_key_env=model.api_key_env,
        window=model.max_input_tokens,
        tools=model.tools,
        extra=model.extra,
        session_id=secrets.token_hex(16),
    )


def _known_tools(settings: AgentSettings) -> tuple[str, ...]:
    """The names of all built-in tools, offered or not."""
    from foldline.agent.assemble import tool_names

    everything = replace(settings.tools, allow=frozenset(ALLOWABLE), off=frozenset())
    return tool_names(replace(settings, tools=everything))


def _check_allowed(settings: AgentSettings) -> None:
    """Raise InvalidInput for an allowed name that is no tool: it would have no effect."""
    for name in sorted(settings.tools.allow.difference(_known_tools(settings))):
        raise InvalidInput(f"{name!r} is no tool; {', '.join(ALLOWABLE)} are off unless allowed", place="tools.allow")


async def _summariser(model: ModelSettings, environ: Mapping[str, str]) -> SelectedModel:
    """Select the model that writes summaries. Raises what `select_model` raises, with that model named."""
    from foldline.providers.selection import select_model

    try:
        return await select_model(model_choice(model), environ)
    except InvalidInput as error:
        raise InvalidInput(error.reason, place=f"summariser.{error.place or 'model'}") from None
    except MissingExtra:  # it names a command to install, for any model
        raise
    except FoldlineError as error:
        raise FoldlineError(f"summariser: {error}") from None


@dataclass(frozen=True, slots=True)
class WindowSize:
    """The window in tokens, the source of the figure, and a warning for the user if it is a guess."""

    tokens: int
    source: str
    warning: str | None = None


async def window_size(
    settings: AgentSettings, provider: Provider, learned: Mapping[tuple[str, str], int], *, ask: bool = True
) -> WindowSize:
    """Find the window: from the settings, else from a past error, else from the server, else from the catalogue.

    A server that does not answer costs 2 s at most. Without `ask` no server is queried.
    """
    from foldline.catalog.models import lookup
    from foldline.providers.endpoint import Endpoint

    if settings.model.max_input_tokens is not None:
        return WindowSize(settings.model.max_input_tokens, "as set")
    # An error states the limit in force; a server or the catalogue may state the model's nominal one.
    named = learned.get((provider.endpoint, provider.model))
    if named is not None:
        return WindowSize(named, "learned from an error")
    reported = await provider.window_tokens() if ask else None
    if reported is not None:
        return WindowSize(reported, "the server says so")
    # An embedded model has the path of a file as its address: it is local, and no address that `Endpoint` could parse.
    address = provider.endpoint
    local = (
        not address.startswith(("http://", "https://"))
        or Endpoint(name=provider.name, dialect=provider.dialect, base_url=address, model=provider.model).is_local
    )
    model = lookup(provider.model, local=local)
    return WindowSize(model.window_tokens, "by the catalogue" if model.known else "a guess", model.warning)


class Runtime:
    """The parts that the agents of one run share: the model, the summariser, MCP servers, the call log. Close it.

    `notice` receives what does not end a run: a server that failed to start, a guessed window.
    """

    def __init__(
        self,
        settings: AgentSettings,
        environ: Mapping[str, str],
        picked: SelectedModel,
        *,
        workspace: Workspace,
        learned: MutableMapping[tuple[str, str], int],
        calls: CallLog | None = None,
        summaries: SelectedModel | None = None,
        notice: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.settings, self.environ, self.picked = settings, environ, picked
        self.workspace, self.learned, self.calls, self.summaries = workspace, learned, calls, summaries
        self.window: WindowSize | None = None
        self._notice = notice
        self._servers = AsyncExitStack()
        self._tools: tuple[Tool, ...] | None = None
        # Sessions that begin at the same moment share one start of the MCP servers.
        self._start_lock = asyncio.Lock()

    @classmethod
    async def start(
        cls,
        settings: AgentSettings,
        environ: Mapping[str, str],
        *,
        workspace: Path,
        learned: MutableMapping[tuple[str, str], int] | None = None,
        calls: CallLog | None = None,
        notice: Callable[[str], None] = lambda line: None,
    ) -> Runtime:
        """Select the models. An embedded model is started but not awaited, and no server is queried for its window.

        Raises InvalidInput for a bad setting or workspace, and what `select_model` raises.
        """
        from foldline.agent.tools.workspace import Workspace
        from foldline.providers.selection import select_model

        _check_allowed(settings)
        root = Workspace(workspace)
        picked = await select_model(model_choice(settings.model), environ)
        summaries = None
        try:
            if settings.summaries and settings.summariser is not None:
                summaries = await _summariser(settings.summariser, environ)
        except BaseException:  # the first model may hold a process or connections by now
            await picked.provider.aclose()
            raise
        return cls(
            settings,
            environ,
            picked,
            workspace=root,
            learned={} if learned is None else learned,
            calls=calls,
            summaries=summaries,
            notice=notice,
        )

    @property
    def provider(self) -> Provider:
        """The model that answers."""
        return self.picked.provider

    async def parts(self, allowed: Callable[[PermissionRequest], Awaitable[bool]]) -> Parts:
        """Return what an agent is assembled from. The first call queries the window and starts MCP servers."""
        from foldline.agent.assemble import Parts, tool_names

        async with self._start_lock:
            # Once for all sessions of a model: the query takes up to 2 s on a server that does not answer.
            if self.window is None:
                self.window = await window_size(self.settings, self.provider, self.learned)
                if self.window.warning is not None:
                    self._notice(self.window.warning)
            if self.picked.tools and self._tools is None:
                self._tools = await self._started()
        settings = self.settings
        tools: tuple[Tool, ...] = ()
        if self.picked.tools:
            tools = self._tools or ()
        else:  # a model that gets no tools would still call those it reads of, and never answer
            settings = replace(settings, tools=replace(settings.tools, off=frozenset(tool_names(settings))))
        return Parts(
            settings=settings,
            provider=self.provider,
            workspace=self.workspace,
            window_tokens=self.window.tokens,
            allowed=allowed,
            summaries=None if self.summaries is None else self.summaries.provider,
            more_tools=tools,
            calls=self.calls,
            learned=self.learned,
        )

    async def change(self, settings: AgentSettings, picked: SelectedModel | None = None) -> None:
        """Continue under other settings and, if given, with another model. The former model is closed."""
        before = self.picked.provider
        self.settings = settings
        if picked is not None:
            # The window belongs to the model, so it is looked up again. MCP servers stay: they know nothing of models.
            self.picked, self.window = picked, None
            await before.aclose()

    async def aclose(self) -> None:
        """End MCP servers and an embedded model, and close connections and files. Closing twice is harmless."""
        # Each end runs even if the one before it fails: a process left behind would keep its port and memory.
        try:
            await self._servers.aclose()
        finally:
            await self.provider.aclose()
            if self.summaries is not None:
                await self.summaries.provider.aclose()
            if self.calls is not None:
                self.calls.close()

    # --- inside ------------------------------------------------------------------------------------------------------

    async def _started(self) -> tuple[Tool, ...]:
        """The tools of the MCP servers, started in parallel. One that fails to start is reported and left out."""
        if not self.settings.mcp:
            return ()
        from foldline.agent.tools.toolbox import renamed

        # In parallel: each may take seconds to start.
        found = await asyncio.gather(*(self._server(name, own) for name, own in self.settings.mcp.items()))
        tools: list[Tool] = []
        used_names = set(_known_tools(self.settings))
        for tool in (tool for own in found for tool in own):
            # `read` of a server `file` collides with our `read_file`: the later one gets a suffix.
            renamed_tool = tool if tool.name not in used_names else renamed(tool, used_names)
            used_names.add(renamed_tool.name)
            tools.append(renamed_tool)
        return tuple(tools)

    async def _server(self, name: str, own: McpSettings) -> tuple[Tool, ...]:
        try:
            from foldline.agent.tools.mcp import McpServer, mcp_tools

            # Variables are resolved here and not in the settings: a missing one concerns this server alone.
            resolved = own.resolved(self.environ)
            server = McpServer(
                name=name,
                command=resolved.command,
                args=resolved.args,
                env=resolved.env,
                url=resolved.url,
                headers=resolved.headers,
                allow=resolved.allow,
            )
            return await self._servers.enter_async_context(mcp_tools(name, server))
        except FoldlineError as error:
            # Errors of the MCP client name the server already; those of its settings do not.
            place = "" if str(error).startswith("MCP server") else f"MCP server {name}: "
            self._notice(f"{place}{error}")
            return ()


def open_call_log(path: Path, notice: Callable[[str], None], keep_calls: int) -> CallLog | None:
    """Open the log of model calls, which holds `keep_calls` of them. Without one if it cannot be opened."""
    from foldline.store.call_log import CallLog

    try:
        return CallLog(path, keep_calls=keep_calls)
    except (OSError, FoldlineError) as error:
        notice(f"Model calls are not logged: {error}")
        return None
