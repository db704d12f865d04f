"""Options shared by several commands: which agent runs, its store and consent, and sizes in tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.util import find_spec
from typing import Any, Final, TypeVar, cast

import click

from foldline.errors import MissingExtra

__all__ = [
    "agent_options",
    "complete_policy",
    "needs_extra",
    "size_list_tokens",
    "size_or_none_tokens",
    "size_tokens",
    "store_option",
    "window_and_policy",
    "yes_option",
]

Command = TypeVar("Command", bound=Callable[..., Any])


def complete_policy(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The names of policies that begin so, for the completion of a shell."""
    from foldline.engine.presets import POLICIES

    del context, parameter
    return [name for name in POLICIES if name.startswith(incomplete)]


store_option: Final = click.option(
    "--store", metavar="PLACE", help="Where sessions are kept: a folder, sqlite:///FILE, postgresql://…"
)
"""The store of a command that runs agents."""

yes_option: Final = click.option(
    "--yes", is_flag=True, help="Run allowed tools; without it each call is refused, as there is nobody to ask."
)
"""Consent given in advance, where there is nobody to ask."""


def needs_extra(extra: str, what: str, packages: Sequence[str]) -> Callable[[Command], Command]:
    """Wrap a command so that it raises MissingExtra if a package of its extra is missing.

    It goes above the options: those of an agent import settings, whose own extra is only a part of what a server needs.
    """

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(**arguments: Any) -> Any:
            # Looked up but not imported: a chat has its prompt on screen before most of these packages are loaded.
            if any(find_spec(name) is None for name in packages):
                raise MissingExtra(extra, what)
            return command(**arguments)

        return cast(Command, run)

    return decorate


def agent_options(command: Command) -> Command:
    """Add the options that choose an agent. The command receives `options` and `workspace` instead of them."""

    @click.option("--agent", metavar="NAME", help="The agent of agents.yaml; without it main, or the only one.")
    @click.option("--profile", metavar="NAME", help="A profile of agents.yaml.")
    @click.option("--config", metavar="FILE", help="A settings file, instead of those that are found.")
    @click.option("--model", metavar="NAME", help="The model; a .gguf file is loaded here.")
    @click.option("--provider", metavar="NAME", help="openai, anthropic, ollama, embedded, …; detected by default.")
    @click.option("--base-url", metavar="URL", help="The address of any compatible server.")
    @click.option(
        "--policy",
        metavar="NAME",
        shell_complete=complete_policy,
        help="How the context is folded (balanced, cost, quality, …).",
    )
    @click.option("--window", type=int, metavar="TOKENS", help="The window to stay within.")
    @click.option(
        "--workspace", metavar="DIR", default=".", help="The folder that the tools see; by default the current one."
    )
    @click.option("--allow", metavar="TOOL", multiple=True, help="Offer write_file, edit_file or run_command too.")
    @click.option("--trust", is_flag=True, help="Trust the agents.yaml of this folder, this once.")
    # click reads the name and help text of a command from the wrapped function.
    @wraps(command)
    def run(
        *,
        agent: str | None,
        profile: str | None,
        config: str | None,
        model: str | None,
        provider: str | None,
        base_url: str | None,
        policy: str | None,
        window: int | None,
        allow: tuple[str, ...],
        trust: bool,
        **named: Any,
    ) -> Any:
        # Imported here: `foldline --help` loads this module, and should not load an agent.
        from foldline.hosting.runtime import Options

        options = Options(
            agent=agent,
            profile=profile,
            config=config,
            model=model,
            provider=provider,
            base_url=base_url,
            policy=policy,
            window=window,
            # Both forms work: --allow a,b and --allow a --allow b.
            allow=tuple(name for names in allow for name in names.split(",") if name),
            trust=trust,
        )
        return command(options=options, **named)

    return cast(Command, run)


# ASCII: \d would also match digits of other scripts, which no other tool reads as numbers.
_FORM: Final = re.compile(r"(\d+)([km]?)", re.IGNORECASE | re.ASCII)
# Decimal, as in the catalogue of models: 128k is 128,000.
_UNITS: Final = {"": 1, "k": 1_000, "m": 1_000_000}


def window_and_policy(command: Command) -> Command:
    """Add the options for the window and the policy of conversations behind a proxy."""
    window = click.option(
        "--window",
        type=click.IntRange(1),
        metavar="TOKENS",
        help="The window of every model; by default the upstream is asked.",
    )
    policy = click.option(
        "--policy",
        metavar="NAME",
        shell_complete=complete_policy,
        help="How conversations are folded (balanced, cost, quality, …).",
    )
    return window(policy(command))


def size_tokens(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """Parse a size of 1 or more: 16k is 16,000 and 1m is 1,000,000. Raises BadParameter."""
    return None if value is None else _size(value, 1, context, option)


def size_or_none_tokens(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """Parse a size, where 0 means none."""
    return None if value is None else _size(value, 0, context, option)


def size_list_tokens(context: click.Context, option: click.Parameter, value: str) -> tuple[int, ...]:
    """Parse sizes separated by commas, such as 8k,16k. Raises BadParameter."""
    return tuple(_size(part, 1, context, option) for part in value.split(","))


def _size(words: str, least: int, context: click.Context, option: click.Parameter) -> int:
    found = _FORM.fullmatch(words.strip())
    # BadParameter and not InvalidInput: click adds the name of the option and the hint at --help.
    if found is None:
        raise click.BadParameter(f"{words!r} is not a size such as 16000 or 16k", context, option)
    size = int(found[1]) * _UNITS[found[2].lower()]
    if size < least:
        raise click.BadParameter(f"{words!r} is too small: {least} or more", context, option)
    return size
