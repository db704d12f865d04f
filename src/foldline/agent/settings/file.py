"""`agents.yaml`: finds the files, loads them, and merges their layers into the settings of an agent.

There are two files, the user's own and over it the one in the working directory; or a single one that is named. Flags
override a profile, which overrides the agent, the defaults and the built-in values.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

from foldline.agent.settings.checks import LocatedValue, Tree, leaves, line_of
from foldline.agent.settings.connections import ScheduleSettings
from foldline.agent.settings.document import MAX_BYTES, YamlDocument, check_document, read_yaml
from foldline.agent.settings.layers import (
    FileSettings,
    Withheld,
    cross_field_faults,
    merge_layers,
    validate_merged,
    variables_of,
    with_policy_name,
    without_trust,
)
from foldline.agent.settings.model import AgentBlock, AgentSettings, ModelSettings
from foldline.engine.settings import ContextSettings
from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.store.files import read_json, update_json
from foldline.store.paths import config_path, trusted_path

__all__ = [
    "FILE_NAME",
    "EffectiveSetting",
    "LoadedSettings",
    "SettingsFile",
    "check_file",
    "effective_settings",
    "find_files",
    "load_settings",
    "missing_variables",
    "read_project",
    "trust_file",
]

FILE_NAME = "agents.yaml"
CONFIG = "FOLDLINE_CONFIG"
FLAGS = "command line"
BUILT_IN = "built in"
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


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """A setting: name as in a file, value (None: determined when needed), and source."""

    name: str
    value: Json
    source: str


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
    try:
        project = (folder or Path.cwd()) / FILE_NAME
    except FileNotFoundError:
        raise InvalidInput("the working directory is no longer there") from None
    # In the user's own folder the file is found twice, and is trusted.
    if project.exists() and not (found and project.samefile(own)):
        found.append(SettingsFile(project, own=False))
    return tuple(found)


def _display_path(path: Path) -> str:
    """Return a path for an error: relative if it is in the working directory."""
    # Not resolved: people look for the name that they know, even if it is a link.
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except (ValueError, FileNotFoundError):
        return str(path)


def _read(path: Path) -> tuple[FileSettings, str]:
    """Read and check a file. Returns its layers and the hash of its content. Raises InvalidInput if it is no YAML."""
    name = _display_path(path)
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | _NO_WAIT), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InvalidInput("is no file", place=name)
            data = file.read(MAX_BYTES + 1)  # one more, so that the reader sees that the file is too long
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror or error}", place=name) from None
    settings = check_document(read_yaml(data, file=name), file=name)
    folder = path.absolute().parent

    # Resolved per file, before layers merge: afterwards nothing says which folder a relative path starts from.
    def resolve(tree: Tree) -> Tree:
        if "system_file" not in tree:
            return tree
        leaf = tree["system_file"]
        return {**tree, "system_file": replace(leaf, value=str(folder / Path(str(leaf.value)).expanduser()))}

    return settings.map(resolve), hashlib.sha256(data).hexdigest()


def _read_valid(path: Path) -> tuple[FileSettings, str]:
    settings, mark = _read(path)
    for fault in settings.faults:
        raise fault
    return settings, mark


def read_project(path: Path) -> tuple[SettingsFile, tuple[Withheld, ...]]:
    """Read a file of a project, and what in it needs trust. Raises InvalidInput for the first fault."""
    settings, mark = _read_valid(path)
    return SettingsFile(path, own=False, mark=mark), without_trust(settings, path.absolute().parent)[1]


def trust_file(file: SettingsFile, *, environ: Mapping[str, str] | None = None) -> None:
    """Record the user's trust in a file of `LoadedSettings.files` with the content that was read.

    Raises InvalidInput and OSError.
    """

    def record(trusted: dict[str, Json]) -> None:
        # By content: after a git pull the file is a stranger's again.
        trusted[str(file.path.resolve())] = file.mark

    update_json(trusted_path(environ), record)


def _is_trusted(file: SettingsFile, environ: Mapping[str, str]) -> bool:
    """Return whether the user trusts the file with this content. Raises InvalidInput for a damaged record."""
    return read_json(trusted_path(environ)).get(str(file.path.resolve())) == file.mark


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
    layers: list[FileSettings] = []
    files: list[SettingsFile] = []
    withheld: tuple[Withheld, ...] = ()
    for found in find_files(config, folder=folder, environ=environ):
        settings, mark = _read_valid(found.path)
        files.append(replace(found, mark=mark))
        # Cut before layers merge: an untrusted field must not win over the user's own value and then be dropped.
        if not (found.own or trust or _is_trusted(files[-1], environ)):
            settings, restricted = without_trust(settings, found.path.absolute().parent)
            withheld += restricted
        layers.append(settings)
    name = _select_agent(agent, layers)
    if profile is not None and not any(profile in file.profiles for file in layers):
        hint = _known_names(file.profiles for file in layers)
        raise InvalidInput(f"there is no profile {profile!r}; {hint}", place="--profile")
    tree = merge_layers(layers, name, profile, _check_flags(flags or {}))
    return LoadedSettings(
        settings=_settings(tree, name, file=layers[-1].file if layers else ""),
        sources=dict(leaves(tree)),
        files=tuple(files),
        profile=profile,
        withheld=withheld,
    )


def _check_flags(flags: Mapping[str, Json]) -> Tree:
    # Flags pass the same checks as a file, under the name of the command line.
    checked = check_document(YamlDocument({"defaults": dict(flags)}, {}), file=FLAGS)
    for error in checked.faults:
        place = (error.place or "").removeprefix(f"{FLAGS}: defaults.")
        raise InvalidInput(error.reason, place=f"{FLAGS}: {place}")
    return checked.defaults


def _known_names(groups: Iterable[Mapping[str, Tree]]) -> str:
    names = sorted(set(chain.from_iterable(groups)))
    return f"known are {', '.join(names)}" if names else "none is set"


def _select_agent(agent: str | None, files: Sequence[FileSettings]) -> str:
    names = {name for file in files for name in file.agents}
    if agent is None:
        if BUILT_IN_AGENT in names or not names:
            return BUILT_IN_AGENT
        if len(names) == 1:
            return next(iter(names))
        raise InvalidInput(f"which agent? There are {', '.join(sorted(names))}", place="--agent")
    if agent not in names and agent != BUILT_IN_AGENT:
        hint = _known_names(file.agents for file in files)
        raise InvalidInput(f"there is no agent {agent!r}; {hint}", place="--agent")
    return agent


def _settings(tree: Tree, name: str, *, file: str) -> AgentSettings:
    """Build the settings of an agent from its merged tree. Raises InvalidInput for faults across fields."""
    block = validate_merged(with_policy_name(tree), file=file)
    shared = {each.name: getattr(block, each.name) for each in fields(AgentBlock) if each.name != "system_file"}
    system = _system_text(tree["system_file"]) if "system_file" in tree else block.system
    off = isinstance(tree.get("summariser"), LocatedValue)  # a summariser that is on is a block
    return AgentSettings(
        **{**shared, "system": system}, name=name, summaries=not off, has_context="context" in tree.get("session", {})
    )


def _system_text(leaf: LocatedValue) -> str:
    """Read the system text from its file. Raises InvalidInput."""
    path = Path(leaf.value)
    try:
        if not path.is_file():
            raise leaf.wrong(f"there is no file {path}")
        if path.stat().st_size > MAX_SYSTEM_BYTES:
            raise leaf.wrong(f"{path} has more than {MAX_SYSTEM_BYTES:,} bytes")
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise leaf.wrong(f"{path} cannot be read: {error}") from None


def check_file(path: Path) -> list[InvalidInput]:
    """Return all faults of a file by line: of single fields, and of each agent under each profile."""
    try:
        settings, _ = _read(path)
    except InvalidInput as error:
        return [error]
    faults = {str(error): error for error in settings.faults}
    # A fault of the defaults shows again in each agent: it is one line to mend.
    for agent in settings.agents or (BUILT_IN_AGENT,):
        for profile in (None, *settings.profiles):
            tree = merge_layers([settings], agent, profile, {})
            found = cross_field_faults(with_policy_name(tree), file=settings.file)
            try:
                if "system_file" in tree:
                    _system_text(tree["system_file"])
            except InvalidInput as error:
                found.append(error)
            for fault in found:
                faults.setdefault(str(fault), fault)
    return sorted(faults.values(), key=line_of)


def missing_variables(path: Path, environ: Mapping[str, str]) -> list[str]:
    """Return notes on valid fields that will not work here: their environment variables are not set.

    Raises InvalidInput if the file is no YAML.
    """
    settings, _ = _read(path)
    notes: dict[str, None] = {}
    for tree in (settings.defaults, *settings.agents.values(), *settings.profiles.values()):
        for leaf, variable in variables_of(tree):
            if not environ.get(variable):
                notes[str(leaf.wrong(f"the environment has no {variable}"))] = None
    return list(notes)


def effective_settings(loaded: LoadedSettings, environ: Mapping[str, str]) -> tuple[EffectiveSetting, ...]:
    """Return every setting of the agent. Of the environment it only says whether a variable is set."""
    return tuple(
        EffectiveSetting(name, value, source or _source(loaded, name)) for name, value, source in _rows(loaded, environ)
    )


def _source(loaded: LoadedSettings, name: str) -> str:
    """Return the source of a field; of a list or a block of names, those of its parts."""
    if name in loaded.sources:
        return loaded.sources[name].source
    parts = {leaf.source: None for field, leaf in loaded.sources.items() if field.startswith(f"{name}.")}
    return ", ".join(parts) or BUILT_IN


def _rows(loaded: LoadedSettings, environ: Mapping[str, str]) -> Iterator[tuple[str, Json, str]]:
    """Yield (name, value, source) of each setting; an empty source is looked up by the name."""
    now = loaded.settings
    yield from _model_rows("model", now.model, environ)
    policy = now.policy_settings
    implied = "goes with session.context" if now.has_context else "goes with compact_threshold"
    source = "" if "policy.name" in loaded.sources else implied
    yield "policy.name", policy.name, BUILT_IN if now.policy is None and policy.name == "balanced" else source
    for name, value in policy.settings.items():
        yield f"policy.{name}", value, ""
    yield "compact_threshold", now.threshold, ""
    yield "counter", now.counter, ""
    if now.summariser is None:
        yield "summariser", "the model itself" if now.summaries else "off", ""
    else:
        yield from _model_rows("summariser", now.summariser, environ)
    yield "system_file" if "system_file" in loaded.sources else "system", now.system, ""
    yield "instructions_file", now.instructions_file or "off", ""
    yield "rules_share", now.rules_share, ""
    yield "session.max_tool_iterations", now.max_tool_iterations, ""
    yield "session.on_disconnect", "pause" if now.session is None else now.session.on_disconnect, ""
    yield from _block_rows("session.context", ContextSettings() if now.session is None else now.session.context)
    yield from _block_rows("tools", now.tools)
    yield from _block_rows("subagents", now.subagents)
    for server, connection in now.mcp.items():
        for name, value, source in _block_rows(f"mcp.{server}", connection):
            if value or name.endswith(".allow"):
                yield name, value, source
    yield from _block_rows("telegram", now.telegram)
    for entry, scheduled in now.schedule.items():
        yield from _entry_rows(entry, scheduled)


def _block_rows(place: str, block: Any) -> Iterator[tuple[str, Json, str]]:
    for field in fields(block):
        value = getattr(block, field.name)
        plain = dict(value) if isinstance(value, Mapping) else sorted(value) if isinstance(value, frozenset) else value
        yield f"{place}.{field.name}", list(plain) if isinstance(plain, tuple) else plain, ""


def _entry_rows(name: str, entry: ScheduleSettings) -> Iterator[tuple[str, Json, str]]:
    deliver: Json = [{key: value for key, value in asdict(to).items() if value is not None} for to in entry.deliver]
    late = None if entry.max_late_seconds is None else f"{entry.max_late_seconds:.0f}s"
    # As a file writes them: a cron as its text, a time with its unit.
    written = {"cron": entry.cron.text, "session": entry.session or name, "deliver": deliver, "max_late": late}
    for field in ("cron", "timezone", "prompt", "session", "deliver", "enabled", "max_late", "policy"):
        yield f"schedule.{name}.{field}", written[field] if field in written else getattr(entry, field), ""


def _model_rows(block: str, model: ModelSettings, environ: Mapping[str, str]) -> Iterator[tuple[str, Json, str]]:
    for name in ("name", "provider", "base_url", "dialect"):
        yield f"{block}.{name}", getattr(model, name), ""
    # Only known after the start where no name is set: then the server's figure counts, and None is shown.
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
