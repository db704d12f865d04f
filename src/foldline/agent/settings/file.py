"""`agents.yaml`: finds the files, loads them, and merges their layers into the settings of an agent.

There are two files, the user's own and over it the one in the working directory; or a single one that is named. Flags
go before a profile, then the agent, the defaults and the built-in values.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from pathlib import Path
from typing import Final

from foldline.agent.settings.checks import variable_names
from foldline.agent.settings.layers import (
    FileSettings,
    LocatedValue,
    Tree,
    check_document,
    cross_field_faults,
    leaves,
    merge,
    validate_merged,
)
from foldline.agent.settings.model import AgentBlock, AgentSettings
from foldline.agent.settings.policies import default_policy
from foldline.agent.settings.schedule import TELEGRAM_TOKEN, delivery_variables
from foldline.agent.settings.trust import Withheld, content_hash, is_trusted, remember_trust, without_trust
from foldline.agent.settings.yaml_lines import MAX_BYTES, YamlDocument, line_of, read_yaml
from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.store.paths import config_path, trusted_path

__all__ = [
    "FILE_NAME",
    "LoadedSettings",
    "SettingsFile",
    "check_file",
    "find_files",
    "load_settings",
    "missing_variables",
    "read_file",
    "read_project",
    "trust_file",
]

FILE_NAME = "agents.yaml"
CONFIG = "FOLDLINE_CONFIG"
FLAGS = "command line"
BUILT_IN_AGENT = "main"
MAX_SYSTEM_BYTES: Final = 256 * 1024
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # a pipe in place of the file must not hang the start


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """A settings file. `own`: it is the user's, either named or in the user's folder of settings.

    `mark` is the hash of the content that was read.
    """

    path: Path
    own: bool
    mark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """The settings of an agent, and their sources.

    `sources` maps a field to the value that was set and its place; other fields have built-in values. `withheld` are
    fields of a file in the working directory that need trust (`trust_file`, or `trust=True`) and have none.
    """

    settings: AgentSettings
    sources: Mapping[str, LocatedValue]
    files: tuple[SettingsFile, ...] = ()
    profile: str | None = None
    withheld: tuple[Withheld, ...] = ()


def find_files(
    config: str | Path | None = None, *, folder: Path | None = None, environ: Mapping[str, str] | None = None
) -> tuple[SettingsFile, ...]:
    """Return the settings files, weakest first: only the named one (`config`, or FOLDLINE_CONFIG), or those found.

    Raises InvalidInput if the named file does not exist.
    """
    environ = os.environ if environ is None else environ
    named = str(config) if config is not None else environ.get(CONFIG) or None
    if named is not None:
        path = Path(named).expanduser()
        if not path.exists():
            raise InvalidInput("there is no such file", place=str(path) if config is not None else f"{CONFIG}: {path}")
        return (SettingsFile(path, own=True),)
    found = []
    own = config_path(environ)
    if own.exists():
        found.append(SettingsFile(own, own=True))
    project = (folder or _working_directory()) / FILE_NAME
    # In the user's own folder the file is found twice, and is trusted.
    if project.exists() and not (found and project.samefile(own)):
        found.append(SettingsFile(project, own=False))
    return tuple(found)


def _working_directory() -> Path:
    """Return the working directory. Raises InvalidInput if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise InvalidInput("the working directory is no longer there") from None


def _display_path(path: Path) -> str:
    """Return a path for an error: relative if it is in the working directory."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except (ValueError, FileNotFoundError):
        return str(path)


def _read_bytes(path: Path) -> bytes:
    name = _display_path(path)
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | _NO_WAIT), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InvalidInput("is no file", place=name)
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror or error}", place=name) from None


def read_file(path: Path) -> FileSettings:
    """Read and check a file; its faults are in `faults`. Raises InvalidInput if it is no YAML."""
    return _parse(path, _read_bytes(path))


def _parse(path: Path, data: bytes) -> FileSettings:
    name = _display_path(path)
    settings = check_document(read_yaml(data, file=name), file=name)
    folder = path.absolute().parent

    def placed(tree: Tree) -> Tree:
        given = tree.get("system_file")
        if given is None:
            return tree
        return {**tree, "system_file": replace(given, value=str(folder / Path(str(given.value)).expanduser()))}

    return replace(
        settings,
        defaults=placed(settings.defaults),
        agents={agent: placed(tree) for agent, tree in settings.agents.items()},
        profiles={profile: placed(tree) for profile, tree in settings.profiles.items()},
    )


def trust_file(file: SettingsFile, *, environ: Mapping[str, str] | None = None) -> None:
    """Record the user's trust in a file of `LoadedSettings.files` with the content that was read.

    Raises InvalidInput and OSError.
    """
    remember_trust(file.path, file.mark, record=trusted_path(environ))


def load_settings(
    agent: str | None = None,
    *,
    profile: str | None = None,
    config: str | Path | None = None,
    flags: Mapping[str, Json] | None = None,
    trust: bool = False,
    folder: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> LoadedSettings:
    """Load the settings of an agent (None: "main", or the only one), in milliseconds.

    `flags` are fields of an agent as in a file ({"model": "gpt-4.1-mini", "policy": "cost"}), and override all else.
    `trust` treats a file of the working directory as the user's own. Raises InvalidInput with file, line and field for
    the first fault, and for an unknown agent or profile.
    """
    environ = os.environ if environ is None else environ
    found = find_files(config, folder=folder, environ=environ)
    files: list[FileSettings] = []
    withheld: tuple[Withheld, ...] = ()
    read: list[SettingsFile] = []
    for each in found:
        data = _read_bytes(each.path)
        mark = content_hash(data)
        read.append(replace(each, mark=mark))
        settings = _parse(each.path, data)
        if settings.faults:
            raise settings.faults[0]
        if not (each.own or trust or is_trusted(each.path, mark, record=trusted_path(environ))):
            settings, left = without_trust(settings, each.path.absolute().parent)
            withheld += left
        files.append(settings)
    name = _select_agent(agent, files)
    if profile is not None and not any(profile in file.profiles for file in files):
        known = _names(file.profiles for file in files)
        raise InvalidInput(f"there is no profile {profile!r}; {known}", place="--profile")
    tree = _merge_layers(files, name, profile, _flags(flags))
    return LoadedSettings(
        settings=_settings(tree, name, file=files[-1].file if files else ""),
        sources=dict(leaves(tree)),
        files=tuple(read),
        profile=profile,
        withheld=withheld,
    )


def _flags(flags: Mapping[str, Json] | None) -> Tree:
    if not flags:
        return {}
    # Flags pass the same checks as a file, under the name of the command line.
    checked = check_document(YamlDocument({"defaults": dict(flags)}, {}), file=FLAGS)
    if checked.faults:
        error = checked.faults[0]
        place = (error.place or "").removeprefix(f"{FLAGS}: defaults.")
        raise InvalidInput(error.reason, place=f"{FLAGS}: {place}")
    return checked.defaults


def _names(groups: Iterator[Mapping[str, Tree]]) -> str:
    names = sorted(set(chain.from_iterable(groups)))
    return f"known are {', '.join(names)}" if names else "none is set"


def _select_agent(agent: str | None, files: Sequence[FileSettings]) -> str:
    known = {name for file in files for name in file.agents}
    if agent is None:
        if BUILT_IN_AGENT in known or not known:
            return BUILT_IN_AGENT
        if len(known) == 1:
            return next(iter(known))
        raise InvalidInput(f"which agent? There are {', '.join(sorted(known))}", place="--agent")
    if agent not in known and agent != BUILT_IN_AGENT:
        raise InvalidInput(f"there is no agent {agent!r}; {_names(file.agents for file in files)}", place="--agent")
    return agent


def _merge_layers(files: Sequence[FileSettings], agent: str, profile: str | None, flags: Tree) -> Tree:
    tree: Tree = {}
    # By kind first, then by file: an agent's own field in the user's file beats defaults of the project.
    layers = [*(file.defaults for file in files), *(file.agents.get(agent, {}) for file in files)]
    if profile is not None:
        layers += (file.profiles.get(profile, {}) for file in files)
    for layer in (*layers, flags):
        tree = merge(tree, layer)
    return tree


def _settings(tree: Tree, name: str, *, file: str) -> AgentSettings:
    """Build the settings of an agent from its merged tree. Raises InvalidInput for faults across fields."""
    block = validate_merged(_with_policy_name(tree), file=file)
    shared = {each.name: getattr(block, each.name) for each in fields(AgentBlock) if each.name != "system_file"}
    system = _system_text(tree["system_file"]) if "system_file" in tree else block.system
    off = isinstance(tree.get("summariser"), LocatedValue)
    return AgentSettings(
        **{**shared, "system": system}, name=name, summaries=not off, has_context="context" in tree.get("session", {})
    )


def _with_policy_name(tree: Tree) -> Tree:
    """Return the tree with a name in its policy block: without one, that of the default policy for the rest."""
    if not tree.get("policy") or "name" in tree["policy"]:
        return tree if tree.get("policy") else {name: inner for name, inner in tree.items() if name != "policy"}
    given = tree.get("compact_threshold")
    implied = default_policy("context" in tree.get("session", {}), None if given is None else given.value)
    first = next(iter(tree["policy"].values()))
    return {**tree, "policy": {"name": replace(first, value=implied), **tree["policy"]}}


def _system_faults(tree: Tree) -> Iterator[InvalidInput]:
    if "system_file" in tree:
        try:
            _system_text(tree["system_file"])
        except InvalidInput as error:
            yield error


def _system_text(given: LocatedValue) -> str:
    """Read the system text from its file. Raises InvalidInput."""
    path = Path(given.value)
    try:
        if not path.is_file():
            raise given.wrong(f"there is no file {path}")
        if path.stat().st_size > MAX_SYSTEM_BYTES:
            raise given.wrong(f"{path} has more than {MAX_SYSTEM_BYTES:,} bytes")
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise given.wrong(f"{path} cannot be read: {error}") from None


def check_file(path: Path) -> list[InvalidInput]:
    """Return all faults of a file by line: of single fields, and of each agent under each profile."""
    try:
        settings = read_file(path)
    except InvalidInput as error:
        return [error]
    faults = {str(error): error for error in settings.faults}
    for agent in settings.agents or (BUILT_IN_AGENT,):
        for profile in (None, *settings.profiles):
            tree = _merge_layers([settings], agent, profile, {})
            for fault in (*cross_field_faults(_with_policy_name(tree), file=settings.file), *_system_faults(tree)):
                faults.setdefault(str(fault), fault)
    return sorted(faults.values(), key=line_of)


def read_project(path: Path) -> tuple[SettingsFile, tuple[Withheld, ...]]:
    """Read a file of a project, and what in it needs trust. Raises InvalidInput for the first fault."""
    data = _read_bytes(path)
    settings = _parse(path, data)
    if settings.faults:
        raise settings.faults[0]
    return SettingsFile(path, own=False, mark=content_hash(data)), without_trust(settings, path.absolute().parent)[1]


def missing_variables(path: Path, environ: Mapping[str, str]) -> list[str]:
    """Return notes on valid fields that will not work here: their environment variables are not set.

    Raises InvalidInput if the file is no YAML.
    """
    settings = read_file(path)
    found: dict[str, None] = {}
    for tree in (settings.defaults, *settings.agents.values(), *settings.profiles.values()):
        for name, given in leaves(tree):
            wanted = [given.value] if name.endswith(".api_key_env") else []
            if name.startswith("mcp."):
                wanted = variable_names(given.value) if isinstance(given.value, str) else []
            if name.endswith(".deliver"):
                wanted = [each for to in given.value for each in delivery_variables(to)]
                wanted += [TELEGRAM_TOKEN for to in given.value if "telegram" in to]
            for variable in wanted:
                if not environ.get(variable):
                    found[str(given.wrong(f"the environment has no {variable}"))] = None
    return list(found)
