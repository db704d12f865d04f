"""Settings files of projects that the user trusts: what such a file may not do by itself, and what is remembered.

A file `agents.yaml` in the working directory may have come with a cloned repository. Until the user says that it is
his, it cannot start programs, allow tools that change things, or send the conversation and keys elsewhere.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from foldline.agent.settings.checks import variables
from foldline.agent.settings.layers import FileSettings, LocatedValue, Tree, flat
from foldline.agent.settings.schedule import delivery_variables
from foldline.messages import Json
from foldline.store.files import read_json, update_json

__all__ = ["Withheld", "content_mark", "is_trusted", "remember_trust", "without_trust"]

# Fields of a model that say to whom the conversation goes.
ELSEWHERE: Final = ("base_url", "api_key_env", "provider")

# What a stranger's file may add to a request: how the model writes. Other fields can make a provider call servers,
# route to others, or charge more.
SAMPLING: Final = frozenset(
    "temperature top_p top_k min_p seed stop presence_penalty frequency_penalty repeat_penalty reasoning "
    "reasoning_effort thinking verbosity".split()
)


@dataclass(frozen=True, slots=True)
class Withheld:
    """Something that a file asks for and does not get before it is trusted; `what` says it in a few words."""

    given: LocatedValue
    what: str

    def __str__(self) -> str:
        return f"{self.given.file}: line {self.given.line}: {self.given.name}: {self.what}"


def content_mark(data: bytes) -> str:
    """What tells one content of a file from any other."""
    return hashlib.sha256(data).hexdigest()


def is_trusted(path: Path, mark: str, *, record: Path) -> bool:
    """Whether the user trusts this file with the content of this mark. Raises InvalidInput for a damaged record."""
    return read_json(record).get(_key(path)) == mark


def remember_trust(path: Path, mark: str, *, record: Path) -> None:
    """Remember that the user trusts the file with this content, and with no other. Raises InvalidInput and OSError."""

    def note(kept: dict[str, Json]) -> None:
        kept[_key(path)] = mark

    update_json(record, note)


def _key(path: Path) -> str:
    return str(path.resolve())


def without_trust(file: FileSettings, folder: Path) -> tuple[FileSettings, tuple[Withheld, ...]]:
    """The settings without what only a trusted file may set, and what was left out. `folder` is that of the file."""
    found: list[Withheld] = []

    def cut(tree: Tree) -> Tree:
        out = dict(tree)
        for name, withheld in _restricted(tree, folder):
            found.append(withheld)
            block, _, field = name.partition(".")
            if field and isinstance(out.get(block), dict):
                out[block] = {key: value for key, value in out[block].items() if key != field}
            else:
                out.pop(name, None)
        return out

    settings = FileSettings(
        file=file.file,
        defaults=cut(file.defaults),
        agents={name: cut(tree) for name, tree in file.agents.items()},
        profiles={name: cut(tree) for name, tree in file.profiles.items()},
        faults=file.faults,
    )
    return settings, tuple(found)


def _restricted(tree: Tree, folder: Path) -> Iterator[tuple[str, Withheld]]:
    """(field, what it asks for) of all that needs trust in the fields of an agent."""
    for name in ("model", "summariser"):
        model = tree.get(name)
        if isinstance(model, dict):
            # The whole block: its name alone would be looked for at a server that the file did not mean.
            told = next((model[field] for field in ELSEWHERE if field in model), None)
            if told is None and (file := _weights(model)) is not None:
                yield name, Withheld(file, f"load the weights {file.value}")
            if told is not None:
                yield name, Withheld(told, f"send the conversation to a server of its own choice, {told.value}")
                continue
            more = {field.removeprefix("extra."): leaf for field, leaf in flat(model) if field.startswith("extra.")}
            if beyond := sorted(more.keys() - SAMPLING):
                leaf = more[beyond[0]]
                yield f"{name}.extra", Withheld(leaf, f"send {', '.join(beyond)} with every request")
    tools = tree.get("tools", {})
    if "allow" in tools and tools["allow"].value:
        yield "tools.allow", Withheld(tools["allow"], f"offer {', '.join(tools['allow'].value)}")
    if "allow_private_urls" in tools and tools["allow_private_urls"].value:
        yield "tools.allow_private_urls", Withheld(tools["allow_private_urls"], "fetch from the private network")
    for name, server in tree.get("mcp", {}).items():
        first = next((leaf for _, leaf in flat(server)), None)
        if first is not None:
            yield f"mcp.{name}", Withheld(first, _server(name, server))
    for name, entry in tree.get("schedule", {}).items():
        first = next((leaf for _, leaf in flat(entry)), None)
        if first is not None:
            yield f"schedule.{name}", Withheld(first, _entry(name, entry))
    users = tree.get("telegram", {}).get("users")
    if users is not None and users.value:
        yield (
            "telegram.users",
            Withheld(users, f"let others talk to it on Telegram: {', '.join(map(str, users.value))}"),
        )
    path = tree.get("system_file")
    if path is not None and not Path(path.value).resolve().is_relative_to(folder.resolve()):
        yield "system_file", Withheld(path, f"read {path.value}, outside its folder")


def _weights(model: Tree) -> LocatedValue | None:
    """The file of a model that would be loaded here: what reads such files is not made for a stranger's."""
    name: LocatedValue | None = model.get("name")
    embedded = "provider" in model and model["provider"].value == "embedded"
    return name if name is not None and (embedded or str(name.value).lower().endswith(".gguf")) else None


def _entry(name: str, entry: Tree) -> str:
    """What an entry of the schedule would do: unattended, and the result leaves the machine."""
    if "prompt" not in entry:
        return f"change the schedule's entry {name}"
    deliveries = entry["deliver"].value if "deliver" in entry else ()
    places = [
        f"the file {to['file']}"
        if "file" in to
        else str(to["webhook"])
        if "webhook" in to
        else f"Telegram chat {to['telegram']}"
        for to in deliveries
    ]
    used = {name for to in deliveries for name in delivery_variables(to)}
    uses = f"; it uses {', '.join(sorted(used))}" if used else ""
    sends = f", and send what comes of it to {', '.join(places)}" if places else ""
    return f"run at set times{sends}{uses}"


def _server(name: str, server: Tree) -> str:
    """What a server would do, in full: what is hidden here could not be judged."""
    if "command" in server:
        args = server["args"].value if "args" in server else ()
        does = f"start {shlex.join(map(str, (server['command'].value, *args)))}"
    elif "url" in server:
        does = f"connect to {server['url'].value}"
    else:
        does = f"change the MCP server {name}"
    values = [leaf.value for key, leaf in flat(server) if key.startswith(("env.", "headers."))]
    told = sorted({variable for value in values for variable in variables(str(value))})
    without = " and use its tools without asking" if "allow" in server and server["allow"].value else ""
    return f"{does}{without}" + (f"; it is told {', '.join(told)}" if told else "")
