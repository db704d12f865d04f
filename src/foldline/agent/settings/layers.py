"""Layers of settings: trees whose leaves know their places, merged, validated, and cut where a file is not trusted.

A fault of a merged tree names the file, line and field of the layer that it comes from.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from foldline.agent.settings.checks import (
    NAME,
    WHOLE,
    FieldPath,
    LocatedValue,
    Tree,
    dotted,
    fault,
    faults_of,
    leaves,
    values_of,
    variable_names,
)
from foldline.agent.settings.connections import TELEGRAM_TOKEN, delivery_variables
from foldline.agent.settings.model import BLOCK, AgentBlock, default_policy
from foldline.errors import InvalidInput
from foldline.messages import Json

__all__ = [
    "SECTIONS",
    "FileSettings",
    "Withheld",
    "block_schema",
    "cross_field_faults",
    "drop_field",
    "field_schema",
    "find_field",
    "merge",
    "merge_layers",
    "schema_definition",
    "settings_schema",
    "validate",
    "validate_merged",
    "variables_of",
    "with_policy_name",
    "without_trust",
]

_WHOLE: Final = ("model", "summariser", "policy")
SECTIONS: Final = ("defaults", "agents", "profiles")


# Fields of a model that decide who gets the conversation.
ELSEWHERE: Final = ("base_url", "api_key_env", "provider")

# Fields that an untrusted file may add to a request: sampling. Others can make a provider call servers,
# route to others, or charge more.
SAMPLING: Final = frozenset(
    "temperature top_p top_k min_p seed stop presence_penalty frequency_penalty repeat_penalty reasoning "
    "reasoning_effort thinking verbosity".split()
)


@cache
def settings_schema() -> dict[str, Json]:
    """The JSON schema of a settings file, for editors and for other checkers."""
    block = BLOCK.json_schema(ref_template="#/$defs/{model}")
    definitions = {**block.pop("$defs"), "Agent": block}
    properties = block["properties"]
    # A single word is short for a block with that name. Pydantic never sees it: the reader of files expands it before.
    for name in ("model", "summariser", "policy"):
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


def variables_of(tree: Tree) -> Iterator[tuple[LocatedValue, str]]:
    """Yield each environment variable that a layer uses, with the leaf that names it."""
    for name, leaf in leaves(tree):
        if name.endswith(".api_key_env"):
            yield leaf, leaf.value
        elif name.startswith("mcp.") and isinstance(leaf.value, str):
            yield from ((leaf, variable) for variable in variable_names(leaf.value))
        elif name.endswith(".deliver"):
            yield from ((leaf, variable) for item in leaf.value for variable in delivery_variables(item))
            yield from ((leaf, TELEGRAM_TOKEN) for item in leaf.value if "telegram" in item)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSettings:
    """The layers of one file: defaults, agents, profiles. `faults` are ordered by line."""

    file: str
    defaults: Tree
    agents: Mapping[str, Tree]
    profiles: Mapping[str, Tree]
    faults: tuple[InvalidInput, ...] = ()

    def map(self, change: Callable[[Tree], Tree]) -> FileSettings:
        """Return the settings with each layer changed."""
        return replace(
            self,
            defaults=change(self.defaults),
            agents={name: change(tree) for name, tree in self.agents.items()},
            profiles={name: change(tree) for name, tree in self.profiles.items()},
        )


def merge_layers(files: Sequence[FileSettings], agent: str, profile: str | None, flags: Tree) -> Tree:
    """Merge the layers of files for one agent; `flags` are the strongest."""
    tree: Tree = {}
    # By kind first, then by file: an agent's own field in the user's file beats defaults of the project.
    layers = [*(file.defaults for file in files), *(file.agents.get(agent, {}) for file in files)]
    if profile is not None:
        layers += (file.profiles.get(profile, {}) for file in files)
    for layer in (*layers, flags):
        tree = merge(tree, layer)
    return tree


def merge(weak: Tree, strong: Tree) -> Tree:
    """Merge two layers field by field; the strong one wins.

    A model, summariser, policy or MCP server that the strong layer names replaces the whole weak one. `tools.allow` and
    `tools.off` add up; for each tool the strongest layer that names it decides.
    """
    out = dict(weak)
    for name, new in strong.items():
        old = out.get(name)
        if name == "system":
            out.pop("system_file", None)
        elif name == "system_file":
            out.pop("system", None)
        if not isinstance(old, dict) or not isinstance(new, dict) or (name in _WHOLE and "name" in new):
            out[name] = new
        elif name == "tools":
            out[name] = _merged_tools(old, new)
        elif name == "mcp":
            # Env and arguments of one program mean nothing to another.
            servers = {key: s if "command" in s or "url" in s else _deep(old.get(key, {}), s) for key, s in new.items()}
            out[name] = {**old, **servers}
        else:
            out[name] = _deep(old, new)
    return out


def _deep(weak: Tree, strong: Tree) -> Tree:
    out = dict(weak)
    for name, new in strong.items():
        old = out.get(name)
        out[name] = _deep(old, new) if isinstance(old, dict) and isinstance(new, dict) else new
    return out


def _merged_tools(weak: Tree, strong: Tree) -> Tree:
    out = _deep(weak, strong)
    for name, other in (("allow", "off"), ("off", "allow")):
        old, new, opposite = weak.get(name), strong.get(name), strong.get(other)
        if old is None:
            continue
        # What the strong layer names in the opposite list leaves this one: the stronger word about a tool counts.
        remaining = [tool for tool in old.value if opposite is None or tool not in opposite.value]
        latest = old if new is None else new
        names = list(dict.fromkeys((*remaining, *(() if new is None else new.value))))
        out[name] = LocatedValue(names, latest.name, latest.file, latest.line)
    return out


# --- all together -----------------------------------------------------------------------------------------------------


def with_policy_name(tree: Tree) -> Tree:
    """Return the tree with a name in its policy block: without one, that of the default policy for the rest."""
    if not tree.get("policy") or "name" in tree["policy"]:
        return tree if tree.get("policy") else {name: inner for name, inner in tree.items() if name != "policy"}
    threshold = tree.get("compact_threshold")
    implied = default_policy("context" in tree.get("session", {}), None if threshold is None else threshold.value)
    first = next(iter(tree["policy"].values()))  # an error about the implied name points at the block
    return {**tree, "policy": {"name": replace(first, value=implied), **tree["policy"]}}


def validate_merged(tree: Tree, *, file: str = "") -> AgentBlock:
    """Validate a merged tree. Raises InvalidInput for the first fault across fields."""
    try:
        return validate(values_of(tree), WHOLE)
    except ValidationError as error:
        raise _located(tree, *faults_of(error)[0], file=file) from None


def cross_field_faults(tree: Tree, *, file: str = "") -> list[InvalidInput]:
    """Return the faults of a merged tree whose single fields are valid."""
    try:
        validate(values_of(tree), WHOLE)
    except ValidationError as error:
        return [_located(tree, path, reason, file=file) for path, reason in faults_of(error)]
    return []


def validate(values: Tree, context: str) -> AgentBlock:
    """Validate the values of a tree as one layer (PARTIAL) or as all together (WHOLE). Raises ValidationError."""
    # By aliases alone: a file says max_late, code max_late_seconds.
    return BLOCK.validate_python(values, context=context, by_alias=True, by_name=False)


def find_field(tree: Tree, path: FieldPath) -> tuple[LocatedValue | Tree, FieldPath]:
    """Follow a path in a tree. Returns the last leaf or block, and the rest of the path, which is inside a list."""
    found: LocatedValue | Tree = tree
    for at, step in enumerate(path):
        if not isinstance(found, dict) or step not in found:
            return found, path[at:]
        found = found[step]
    return found, ()


def _located(tree: Tree, path: FieldPath, reason: str, *, file: str) -> InvalidInput:
    """Return a fault of a merged tree at its field, or at the first field of its block."""
    found, rest = find_field(tree, path)
    if isinstance(found, LocatedValue):
        return fault(reason, file=found.file, line=found.line, name=dotted(rest, found.name))
    inside = next(leaves(found), None)
    if inside is None or found is tree:
        return fault(reason, file=file, name=dotted(path))
    below, leaf = inside
    # The field as its file names it, in a profile or at top level, and not the path in the merged tree.
    block = leaf.name.removesuffix(f".{below}")
    return fault(reason, file=leaf.file, line=leaf.line, name=dotted(rest, block))


def drop_field(tree: Tree, path: FieldPath) -> None:
    """Drop the field at a path; a list as a whole."""
    *blocks, last = map(str, path)  # an index stands behind a list alone, where nothing is looked up
    for step in blocks:
        if not isinstance(tree.get(step), dict):
            tree.pop(step, None)
            return
        tree = tree[step]
    tree.pop(last, None)


@dataclass(frozen=True, slots=True)
class Withheld:
    """A field that needs trust and has none; `what` describes its effect in a few words."""

    leaf: LocatedValue
    what: str

    def __str__(self) -> str:
        return f"{self.leaf.file}: line {self.leaf.line}: {self.leaf.name}: {self.what}"


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

    settings = file.map(cut)  # before `found` is read: the cut fills it
    return settings, tuple(found)


def _restricted(tree: Tree, folder: Path) -> Iterator[tuple[str, Withheld]]:
    """Yield (field, withheld value) of all fields of an agent that need trust."""
    for name in ("model", "summariser"):
        model = tree.get(name)
        if isinstance(model, dict):
            # The whole block, or its name would be looked up at a server that the file did not mean.
            target = next((model[field] for field in ELSEWHERE if field in model), None)
            if target is None and (file := _weights_file(model)) is not None:
                yield name, Withheld(file, f"load the weights {file.value}")
            if target is not None:
                yield name, Withheld(target, f"send the conversation to a server of its own choice, {target.value}")
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
    variables = sorted({variable for value in values for variable in variable_names(str(value))})
    without = " and use its tools without asking" if "allow" in server and server["allow"].value else ""
    return f"{does}{without}" + (f"; it is told {', '.join(variables)}" if variables else "")
