"""Settings made of a merged tree; what is wrong only when all is together is told with its place in the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from foldline.agent.settings.schedule import ScheduleSettings, schedule_settings
from foldline.agent.settings.tree import Given, Tree, flat, plain
from foldline.agent.settings.values import (
    KEEP_CALLS,
    AgentSettings,
    McpSettings,
    ModelSettings,
    PolicySettings,
    SubagentSettings,
    TelegramSettings,
    ToolSettings,
    implied_policy,
)
from foldline.agent.settings.yaml_lines import fault
from foldline.engine.settings import ContextSettings, SessionSettings
from foldline.errors import InvalidInput

__all__ = ["faults_together", "made"]


MOST_SYSTEM_BYTES: Final = 256 * 1024


class _Maker:
    """Makes values of one tree; an error of a value is told with the place of the field that it names."""

    def __init__(self, tree: Tree, file: str) -> None:
        self._leaves = dict(flat(tree))
        self._tree = tree
        self._file = file
        self.asks_context = "context" in tree.get("session", {})
        given = tree.get("compact_threshold")
        self.threshold: float | None = None if given is None else given.value

    def made(self, kind: Callable[..., Any], name: str, /, **given: Any) -> Any:
        """An instance of a settings class. Raises InvalidInput with file, line and field."""
        try:
            return kind(**given)
        except InvalidInput as error:
            field = f"{name}.{error.place}" if error.place else name
            inside = (leaf for key, leaf in self._leaves.items() if f"{key}.".startswith((f"{field}.", f"{name}.")))
            leaf = self._leaves.get(field) or next(inside, None)
            if leaf is None:
                raise fault(error.reason, file=self._file, name=field) from None
            if field not in self._leaves:  # the block is meant
                cut = leaf.name.rpartition(".")[0] if error.place is None else leaf.name
                raise fault(error.reason, file=leaf.file, line=leaf.line, name=cut or leaf.name) from None
            raise leaf.wrong(error.reason) from None

    def policy(self) -> PolicySettings | None:
        """The policy that was named; settings without a name are those of the policy that goes with the rest."""
        given = plain(self._tree.get("policy", {}))
        if not given:
            return None
        name = given.pop("name", None) or implied_policy(self.asks_context, self.threshold)
        made: PolicySettings = self.made(PolicySettings, "policy", name=name, settings=given)
        return made

    def model(self, name: str) -> ModelSettings | None:
        """A model, or None where it is not set or off."""
        found = self._tree.get(name)
        return ModelSettings(**plain(found)) if isinstance(found, dict) and found else None

    def session(self) -> SessionSettings | None:
        """The session block; one that is there and empty has its defaults."""
        if "session" not in self._tree:
            return None
        given = plain(self._tree["session"])
        context = ContextSettings(**given.pop("context", {}))
        return SessionSettings(**given, context=context)

    def system(self) -> str | None:
        """The system text, read from its file where it has one. Raises InvalidInput."""
        if "system_file" not in self._tree:
            return plain(self._tree["system"]) if "system" in self._tree else None
        given: Given = self._tree["system_file"]
        path = Path(given.value)
        try:
            if not path.is_file():
                raise given.wrong(f"there is no file {path}")
            if path.stat().st_size > MOST_SYSTEM_BYTES:
                raise given.wrong(f"{path} has more than {MOST_SYSTEM_BYTES:,} bytes")
            return path.read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise given.wrong(f"{path} cannot be read: {error}") from None

    def servers(self) -> Iterator[str]:
        """The names of the MCP servers."""
        yield from self._tree.get("mcp", {})

    def server(self, name: str) -> McpSettings:
        """The MCP server of that name."""
        made: McpSettings = self.made(McpSettings, f"mcp.{name}", **plain(self._tree["mcp"][name]))
        return made

    def entries(self) -> Iterator[str]:
        """The names of the entries of the schedule."""
        yield from self._tree.get("schedule", {})

    def entry(self, name: str) -> ScheduleSettings:
        """The entry of the schedule of that name."""
        made: ScheduleSettings = self.made(schedule_settings, f"schedule.{name}", **plain(self._tree["schedule"][name]))
        return made


def faults_together(tree: Tree, *, file: str = "") -> list[InvalidInput]:
    """What is wrong with a merged tree although each field is right."""
    maker = _Maker(tree, file)
    found = []
    parts: list[Callable[[], object]] = [maker.policy, maker.system]
    parts += (partial(maker.server, name) for name in maker.servers())
    parts += (partial(maker.entry, name) for name in maker.entries())
    for part in parts:
        try:
            part()
        except InvalidInput as error:
            found.append(error)
    return found


def made(tree: Tree, name: str, *, file: str = "") -> AgentSettings:
    """The settings of an agent from its merged tree. Raises InvalidInput for what only shows when all is together."""
    maker = _Maker(tree, file)
    tools = plain(tree.get("tools", {}))
    tools |= {key: frozenset(tools[key]) for key in ("allow", "off") if key in tools}
    summariser = tree.get("summariser")
    return AgentSettings(
        name=name,
        model=maker.model("model") or ModelSettings(),
        policy=maker.policy(),
        compact_threshold=maker.threshold,
        counter=plain(tree["counter"]) if "counter" in tree else "estimate",
        keep_calls=plain(tree["keep_calls"]) if "keep_calls" in tree else KEEP_CALLS,
        summariser=maker.model("summariser"),
        summaries=not isinstance(summariser, Given),
        system=maker.system(),
        session=maker.session(),
        asks_context=maker.asks_context,
        tools=ToolSettings(**tools),
        subagents=SubagentSettings(**plain(tree.get("subagents", {}))),
        mcp={server: maker.server(server) for server in maker.servers()},
        telegram=TelegramSettings(**plain(tree.get("telegram", {}))),
        schedule={entry: maker.entry(entry) for entry in maker.entries()},
    )
