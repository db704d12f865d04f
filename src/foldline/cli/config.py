"""The commands on settings: check a file, show the settings in effect, list paths, trust a file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from foldline.cli.console import json_out, log, terminal
from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.text.formatting import DASH, plural

if TYPE_CHECKING:
    from foldline.agent.settings.file import LoadedSettings, SettingsFile

__all__ = ["config"]

_BAD_INPUT: Final = 2

# A system prompt may fill pages; in the table its first words identify it. --json has all of it.
_MOST_CHARS: Final = 60


@click.group()
def config() -> None:
    """Settings of agents: the file agents.yaml, checked and explained."""


def _files(named: str | None) -> tuple[SettingsFile, ...]:
    from foldline.agent.settings.file import find_files

    found = find_files(named)
    if not found:
        from foldline.store.paths import config_path

        raise InvalidInput(f"there is none, neither ./agents.yaml nor {config_path()}", place="agents.yaml")
    return found


@config.command()
@click.argument("file", required=False)
def check(*, file: str | None) -> None:
    """List all faults in FILE, or in the files that apply here.

    Exit code 2 if there are any.
    """
    from foldline.agent.settings.file import check_file

    wrong = False
    for each in _files(file):
        faults = check_file(each.path)
        for fault in faults:
            click.echo(str(fault))
        wrong = wrong or bool(faults)
        if faults:
            log(f"{each.path}: {plural(len(faults), 'fault')}")
        else:
            _notes(each.path)
            log(f"{each.path}: all right")
    # After all files: one run shows every fault.
    if wrong:
        click.get_current_context().exit(_BAD_INPUT)


def _notes(path: Path) -> None:
    """Log what is valid in the file but does not work here and now."""
    # No fault: the file may be meant for another machine, where the variables are set.
    from foldline.agent.settings.file import missing_variables

    for note in missing_variables(path, os.environ):
        log(note)


@config.command()
@click.option("--agent", help="The agent; without it main, or the only one.")
@click.option("--profile", help="A profile of the file.")
@click.option("--config", "named", help="A settings file to use instead of the usual ones.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
def show(*, agent: str | None, profile: str | None, named: str | None, as_json: bool) -> None:
    """Show the effective settings, and where each comes from."""
    from foldline.agent.settings.file import effective_settings, load_settings

    loaded = load_settings(agent, profile=profile, config=named)
    rows = [(row.name, row.value, row.source) for row in effective_settings(loaded, os.environ)]
    if as_json:
        json_out(_plain(loaded, rows))
    else:
        _print_table(rows)
    # Said here too: otherwise a setting of the file would be missing from the table without a reason.
    for withheld in loaded.withheld:
        log(f"not before it is trusted (foldline config trust): {withheld}")
    files = ", ".join(str(each.path) for each in loaded.files) or "no file"
    log(f"agent {loaded.settings.name}, {f'profile {profile}, ' if profile else ''}{files}")


def _plain(loaded: LoadedSettings, rows: list[tuple[str, Json, str]]) -> Json:
    return {
        "agent": loaded.settings.name,
        "profile": loaded.profile,
        "files": [str(each.path) for each in loaded.files],
        "settings": {name: {"value": value, "from": source} for name, value, source in rows},
        "withheld": [str(withheld) for withheld in loaded.withheld],
    }


def _words(value: Json) -> str:
    if value is None or value in ([], {}):
        return DASH
    # bool is a subclass of int, and True is no number here.
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    # A project's file is foreign text: `visible` escapes the control characters in it.
    from foldline.agent.settings.checks import visible

    return visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), _MOST_CHARS)


def _print_table(rows: list[tuple[str, Json, str]]) -> None:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("setting", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("from", overflow="fold")
    for name, value, source in rows:
        table.add_row(name, _words(value), source)
    terminal().print(table)


@config.command()
def path() -> None:
    """Show where settings are read from, and where sessions and the rest are stored."""
    from foldline.agent.settings.file import CONFIG, FILE_NAME
    from foldline.store import paths as places

    named = os.environ.get(CONFIG)
    rows = [
        (CONFIG, named or DASH),
        ("of the project", str(Path.cwd() / FILE_NAME)),
        ("your own", str(places.config_path())),
        ("sessions", str(places.sessions_path())),
        ("calls", str(places.calls_path())),
        ("typed lines", str(places.history_path())),
        ("learned limits", str(places.learned_path())),
        ("trusted files", str(places.trusted_path())),
        ("cache", str(places.cache_folder())),
    ]
    for name, path_shown in rows:
        there = " (there)" if path_shown != DASH and Path(path_shown).exists() else ""
        click.echo(f"{name:<16}{path_shown}{there}")


@config.command()
@click.argument("file", default="agents.yaml")
@click.option("--yes", is_flag=True, help="Do not ask.")
def trust(*, file: str, yes: bool) -> None:
    """Let a project's FILE do what otherwise only your own settings may.

    The command shows what that is, and asks. The answer holds for the current content of the file.
    """
    from foldline.agent.settings.file import read_project, trust_file

    found, wants = read_project(Path(file))
    # On stderr, like the question after it: standard output may be piped.
    for withheld in wants:
        click.echo(str(withheld), err=True)
    if not wants:
        log(f"{file} asks for nothing that needs trust")
        return
    if not yes:
        click.confirm(f"Trust {file}?", abort=True, err=True)
    # By content, not by path: a pull must not change what was agreed to.
    trust_file(found)
    log(f"{file} is trusted until it changes")
