"""`agents.yaml`: where it is looked for, what it says, and the settings that are in force.

Two files count: the user's own, and over it the one in the working directory; or one alone, where it is named. Within
them a flag goes before a profile, that before the agent, that before the defaults, and those before what is built in.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from pathlib import Path
from typing import Final

from foldline.agent.settings.checks import variables
from foldline.agent.settings.layers import (
    FileSettings,
    LocatedValue,
    Tree,
    checked_file,
    faults_together,
    flat,
    merged,
    validated,
)
from foldline.agent.settings.model import AgentBlock, AgentSettings
from foldline.agent.settings.policies import implied_policy
from foldline.agent.settings.schedule import TELEGRAM_TOKEN, delivery_variables
from foldline.agent.settings.trust import Withheld, content_mark, is_trusted, remember_trust, without_trust
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
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # a pipe in the file's place must not hang the start


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """A file that was found. `own` ones are the user's: named, or in the folder of the user's settings.

    `mark` stands for the content that was read.
    """

    path: Path
    own: bool
    mark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """The settings of an agent, and where they come from.

    `sources` has, by field, the value that was set and its place; what is not there is built in. `withheld` is what a
    file of the working directory asks for and does not get until `trust_file` (or `trust=True`) says that it may.
    """

    settings: AgentSettings
    sources: Mapping[str, LocatedValue]
    files: tuple[SettingsFile, ...] = ()
    profile: str | None = None
    withheld: tuple[Withheld, ...] = ()


def find_files(
    config: str | Path | None = None, *, folder: Path | None = None, environ: Mapping[str, str] | None = None
) -> tuple[SettingsFile, ...]:
    """The files that count, the weakest first: the one named (`config`, else FOLDLINE_CONFIG) alone, else those found.

    Raises InvalidInput when a file that was named is not there.
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
    project = (folder or _here()) / FILE_NAME
    if project.exists() and not (found and project.samefile(own)):
        found.append(SettingsFile(project, own=False))
    return tuple(found)


def _here() -> Path:
    """The working directory. Raises InvalidInput when it is no longer there."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise InvalidInput("the working directory is no longer there") from None


def _shown(path: Path) -> str:
    """A path as errors have it: short where it is in the working directory."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except (ValueError, FileNotFoundError):
        return str(path)


def _bytes(path: Path) -> bytes:
    name = _shown(path)
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | _NO_WAIT), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InvalidInput("is no file", place=name)
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror or error}", place=name) from None


def read_file(path: Path) -> FileSettings:
    """What a file says, checked; all that is wrong with it is in `faults`. Raises InvalidInput if it is no YAML."""
    return _parsed(path, _bytes(path))


def _parsed(path: Path, data: bytes) -> FileSettings:
    name = _shown(path)
    settings = checked_file(read_yaml(data, file=name), file=name)
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
    """Remember that the user trusts a file of `LoadedSettings.files` as it was read. A changed file is asked for again.

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
    """The settings that are in force for an agent (None: "main", or the only one there is), in milliseconds.

    `flags` are fields of an agent as a file would have them ({"model": "gpt-4.1-mini", "policy": "cost"}); they go
    before all else. `trust` takes a file of the working directory as if it were the user's own. Raises InvalidInput
    with file, line and field for the first thing that is wrong, and for an agent or profile that is not there.
    """
    environ = os.environ if environ is None else environ
    found = find_files(config, folder=folder, environ=environ)
    files: list[FileSettings] = []
    withheld: tuple[Withheld, ...] = ()
    read: list[SettingsFile] = []
    for each in found:
        data = _bytes(each.path)
        mark = content_mark(data)
        read.append(replace(each, mark=mark))
        settings = _parsed(each.path, data)
        if settings.faults:
            raise settings.faults[0]
        if not (each.own or trust or is_trusted(each.path, mark, record=trusted_path(environ))):
            settings, left = without_trust(settings, each.path.absolute().parent)
            withheld += left
        files.append(settings)
    name = _chosen(agent, files)
    if profile is not None and not any(profile in file.profiles for file in files):
        known = _names(file.profiles for file in files)
        raise InvalidInput(f"there is no profile {profile!r}; {known}", place="--profile")
    tree = _in_force(files, name, profile, _flags(flags))
    return LoadedSettings(
        settings=_settings(tree, name, file=files[-1].file if files else ""),
        sources=dict(flat(tree)),
        files=tuple(read),
        profile=profile,
        withheld=withheld,
    )


def _flags(flags: Mapping[str, Json] | None) -> Tree:
    if not flags:
        return {}
    checked = checked_file(YamlDocument({"defaults": dict(flags)}, {}), file=FLAGS)
    if checked.faults:
        error = checked.faults[0]
        place = (error.place or "").removeprefix(f"{FLAGS}: defaults.")
        raise InvalidInput(error.reason, place=f"{FLAGS}: {place}")
    return checked.defaults


def _names(groups: Iterator[Mapping[str, Tree]]) -> str:
    names = sorted(set(chain.from_iterable(groups)))
    return f"known are {', '.join(names)}" if names else "none is set"


def _chosen(agent: str | None, files: Sequence[FileSettings]) -> str:
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


def _in_force(files: Sequence[FileSettings], agent: str, profile: str | None, flags: Tree) -> Tree:
    tree: Tree = {}
    layers = [*(file.defaults for file in files), *(file.agents.get(agent, {}) for file in files)]
    if profile is not None:
        layers += (file.profiles.get(profile, {}) for file in files)
    for layer in (*layers, flags):
        tree = merged(tree, layer)
    return tree


def _settings(tree: Tree, name: str, *, file: str) -> AgentSettings:
    """The settings of an agent from its merged tree. Raises InvalidInput for what only shows when all is together."""
    block = validated(_named(tree), file=file)
    shared = {each.name: getattr(block, each.name) for each in fields(AgentBlock) if each.name != "system_file"}
    system = _system_text(tree["system_file"]) if "system_file" in tree else block.system
    off = isinstance(tree.get("summariser"), LocatedValue)
    return AgentSettings(
        **{**shared, "system": system}, name=name, summaries=not off, asks_context="context" in tree.get("session", {})
    )


def _named(tree: Tree) -> Tree:
    """The tree with the name of its policy: settings without one are those of the policy that goes with the rest."""
    if not tree.get("policy") or "name" in tree["policy"]:
        return tree if tree.get("policy") else {name: inner for name, inner in tree.items() if name != "policy"}
    given = tree.get("compact_threshold")
    implied = implied_policy("context" in tree.get("session", {}), None if given is None else given.value)
    first = next(iter(tree["policy"].values()))
    return {**tree, "policy": {"name": replace(first, value=implied), **tree["policy"]}}


def _system_faults(tree: Tree) -> Iterator[InvalidInput]:
    if "system_file" in tree:
        try:
            _system_text(tree["system_file"])
        except InvalidInput as error:
            yield error


def _system_text(given: LocatedValue) -> str:
    """The system text out of its file. Raises InvalidInput."""
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
    """All that is wrong with a file, in order of lines: field by field, then each agent under each profile."""
    try:
        settings = read_file(path)
    except InvalidInput as error:
        return [error]
    faults = {str(error): error for error in settings.faults}
    for agent in settings.agents or (BUILT_IN_AGENT,):
        for profile in (None, *settings.profiles):
            tree = _in_force([settings], agent, profile, {})
            for fault in (*faults_together(_named(tree), file=settings.file), *_system_faults(tree)):
                faults.setdefault(str(fault), fault)
    return sorted(faults.values(), key=line_of)


def read_project(path: Path) -> tuple[SettingsFile, tuple[Withheld, ...]]:
    """A file of a project, and what of it needs trust. Raises InvalidInput for the first thing that is wrong."""
    data = _bytes(path)
    settings = _parsed(path, data)
    if settings.faults:
        raise settings.faults[0]
    return SettingsFile(path, own=False, mark=content_mark(data)), without_trust(settings, path.absolute().parent)[1]


def missing_variables(path: Path, environ: Mapping[str, str]) -> list[str]:
    """What is right in a file and still will not work here: variables that the environment does not have.

    Raises InvalidInput if the file is no YAML.
    """
    settings = read_file(path)
    found: dict[str, None] = {}
    for tree in (settings.defaults, *settings.agents.values(), *settings.profiles.values()):
        for name, given in flat(tree):
            wanted = [given.value] if name.endswith(".api_key_env") else []
            if name.startswith("mcp."):
                wanted = variables(given.value) if isinstance(given.value, str) else []
            if name.endswith(".deliver"):
                wanted = [each for to in given.value for each in delivery_variables(to)]
                wanted += [TELEGRAM_TOKEN for to in given.value if "telegram" in to]
            for variable in wanted:
                if not environ.get(variable):
                    found[str(given.wrong(f"the environment has no {variable}"))] = None
    return list(found)
