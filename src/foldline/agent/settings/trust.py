"""Trust in settings files of projects: the fields that need it, and the record of files that have it.

An `agents.yaml` in the working directory may have come with a cloned repository. Until the user trusts it, it cannot
start programs, allow tools that change things, or send the conversation and keys elsewhere.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from foldline.agent.settings.checks import variable_names
from foldline.agent.settings.layers import FileSettings, LocatedValue, Tree, leaves
from foldline.agent.settings.schedule import delivery_variables
from foldline.messages import Json
from foldline.store.files import read_json, update_json

__all__ = ["Withheld", "content_hash", "is_trusted", "remember_trust", "without_trust"]

# Fields of a model that decide who gets the conversation.
ELSEWHERE: Final = ("base_url", "api_key_env", "provider")

# Fields that an untrusted file may add to a request: sampling. Others can make a provider call servers,
# route to others, or charge more.
SAMPLING: Final = frozenset(
    "temperature top_p top_k min_p seed stop presence_penalty frequency_penalty repeat_penalty reasoning "
    "reasoning_effort thinking verbosity".split()
)


@dataclass(frozen=True, slots=True)
class Withheld:
    """A field that needs trust and has none; `what` says in a few words what it would do."""

    given: LocatedValue
    what: str

    def __str__(self) -> str:
        return f"{self.given.file}: line {self.given.line}: {self.given.name}: {self.what}"


def content_hash(data: bytes) -> str:
    """Return the hash of a file's content."""
    return hashlib.sha256(data).hexdigest()


def is_trusted(path: Path, mark: str, *, record: Path) -> bool:
    """Return whether the user trusts the file with this content. Raises InvalidInput for a damaged record."""
    return read_json(record).get(_key(path)) == mark


def remember_trust(path: Path, mark: str, *, record: Path) -> None:
    """Record trust in a file with this content only. Raises InvalidInput and OSError."""

    def note(kept: dict[str, Json]) -> None:
        # By content: after a git pull the file is a stranger's again.
        kept[_key(path)] = mark

    update_json(record, note)


def _key(path: Path) -> str:
    return str(path.resolve())


def without_trust(file: FileSettings, folder: Path) -> tuple[FileSettings, tuple[Withheld, ...]]:
    """Split off what only a trusted file may set. Returns the rest and the withheld fields; `folder` is the file's."""
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
    """Yield (field, withheld value) of all fields of an agent that need trust."""
    for name in ("model", "summariser"):
        model = tree.get(name)
        if isinstance(model, dict):
            # The whole block, or its name would be looked up at a server that the file did not mean.
            told = next((model[field] for field in ELSEWHERE if field in model), None)
            if told is None and (file := _weights_file(model)) is not None:
                yield name, Withheld(file, f"load the weights {file.value}")
            if told is not None:
                yield name, Withheld(told, f"send the conversation to a server of its own choice, {told.value}")
                continue
            more = {field.removeprefix("extra."): leaf for field, leaf in leaves(model) if field.startswith("extra.")}
            if beyond := sorted(more.keys() - SAMPLING):
                leaf = more[beyond[0]]
                yield f"{name}.extra", Withheld(leaf, f"send {', '.join(beyond)} with every request")
    tools = tree.get("tools", {})
    if "allow" in tools and tools["allow"].value:
        yield "tools.allow", Withheld(tools["allow"], f"offer {', '.join(tools['allow'].value)}")
    if "allow_private_urls" in tools and tools["allow_private_urls"].value:
        yield "tools.allow_private_urls", Withheld(tools["allow_private_urls"], "fetch from the private network")
    for name, server in tree.get("mcp", {}).items():
        first = next((leaf for _, leaf in leaves(server)), None)
        if first is not None:
            yield f"mcp.{name}", Withheld(first, _describe_server(name, server))
    for name, entry in tree.get("schedule", {}).items():
        first = next((leaf for _, leaf in leaves(entry)), None)
        if first is not None:
            yield f"schedule.{name}", Withheld(first, _describe_entry(name, entry))
    users = tree.get("telegram", {}).get("users")
    if users is not None and users.value:
        yield (
            "telegram.users",
            Withheld(users, f"let others talk to it on Telegram: {', '.join(map(str, users.value))}"),
        )
    path = tree.get("system_file")
    if path is not None and not Path(path.value).resolve().is_relative_to(folder.resolve()):
        yield "system_file", Withheld(path, f"read {path.value}, outside its folder")


def _weights_file(model: Tree) -> LocatedValue | None:
    """Return the file of weights that a model would load: their readers are not made for hostile files."""
    name: LocatedValue | None = model.get("name")
    embedded = "provider" in model and model["provider"].value == "embedded"
    return name if name is not None and (embedded or str(name.value).lower().endswith(".gguf")) else None


def _describe_entry(name: str, entry: Tree) -> str:
    """Say what a schedule entry would do. It runs unattended, and its result may leave the machine."""
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


def _describe_server(name: str, server: Tree) -> str:
    """Say what an MCP server would do, in full: nobody can judge a part."""
    if "command" in server:
        args = server["args"].value if "args" in server else ()
        does = f"start {shlex.join(map(str, (server['command'].value, *args)))}"
    elif "url" in server:
        does = f"connect to {server['url'].value}"
    else:
        does = f"change the MCP server {name}"
    values = [leaf.value for key, leaf in leaves(server) if key.startswith(("env.", "headers."))]
    told = sorted({variable for value in values for variable in variable_names(str(value))})
    without = " and use its tools without asking" if "allow" in server and server["allow"].value else ""
    return f"{does}{without}" + (f"; it is told {', '.join(told)}" if told else "")
