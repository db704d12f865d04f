"""The command `foldline`: one group, one error line, and what the exit codes mean.

0    done
1    the request would be refused, or does not fit
2    bad usage or bad input: one line on stderr says where, and nothing was written
130  stopped with Ctrl-C
141  the reader of the output went away
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.metadata import entry_points, version
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import click

from foldline.errors import FoldlineError, InvalidInput, MissingExtra

if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = ["cli", "main"]

_BAD_INPUT = 2
_STOPPED = 130  # 128 + SIGINT, as a shell reports it
_PIPE_CLOSED = 141  # 128 + SIGPIPE

# The module of each command. Only the one that runs is imported, so that a chat starts at once.
_COMMANDS: Final[Mapping[str, str]] = {
    "fit": "requests",
    "check": "requests",
    "count": "requests",
    "replay": "replay",
    "chat": "chat",
    "serve": "serve",
    "proxy": "proxy",
    "sessions": "sessions.listing",
    "growth": "growth",
    "report": "report",
    "models": "models",
    "telegram": "telegram",
    "config": "config",
    "schedule": "schedule",
}


# Commands of other distributions of this project, found by their entry points in the group `foldline.commands`.
_INSTALLS: Final[Mapping[str, str]] = {"bench": "foldline-bench", "tune": "foldline-bench"}


class _LazyCommands(Mapping[str, click.Command]):
    """The commands, each imported when it is looked up."""

    def __getitem__(self, name: str) -> click.Command:
        if name in _INSTALLS:
            return _distribution_command(name)
        command: click.Command = getattr(import_module(f"foldline.cli.{_COMMANDS[name]}"), name)
        return command

    def __iter__(self) -> Iterator[str]:
        yield from _COMMANDS
        yield from _INSTALLS

    def __len__(self) -> int:
        return len(_COMMANDS) + len(_INSTALLS)


def _distribution_command(name: str) -> click.Command:
    """A command of another distribution; if that is not installed, a stand-in that says how to install it."""
    for found in entry_points(group="foldline.commands", name=name):
        command: click.Command = found.load()
        return command
    package = _INSTALLS[name]

    @click.command(
        name,
        short_help=f"Comes with {package}.",
        context_settings={"ignore_unknown_options": True, "help_option_names": []},
    )
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def missing(arguments: tuple[str, ...]) -> None:
        raise MissingExtra(package, f"`foldline {name}`", install=f"pip install {package}")

    return missing


class _ReaderGoneError(Exception):
    """The reader of the output went away. (click would handle a BrokenPipeError itself and exit with 1.)"""


class _Commands(click.Group):
    """A group that prints errors as one line, with the exit codes above. Other exceptions are bugs and stay visible."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command. Ends the process with its exit code, unless `standalone_mode` is False."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        # Python sets it to None if the descriptor is closed at start (`>&-`).
        if sys.stdout is None:  # closed by the parent process: nothing is read, written or paid for
            _print_error("foldline: standard output is closed: there is nowhere to write to")
            sys.exit(_BAD_INPUT)
        try:
            code = super().main(args, prog_name or "foldline", complete_var, standalone_mode=False, **extra)
            sys.stdout.flush()
        except (BrokenPipeError, _ReaderGoneError):
            _exit(_PIPE_CLOSED)
        except click.Abort:
            _exit(_STOPPED)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            _exit(error.exit_code)
        except click.ClickException as error:
            _exit(_BAD_INPUT, _usage(error))
        except (InvalidInput, MissingExtra) as error:
            _exit(_BAD_INPUT, f"foldline: {error}")
        except FoldlineError as error:
            _exit(1, f"foldline: {error}")
        except OSError as error:
            _exit(_BAD_INPUT, f"foldline: {_os_error_text(error)}")
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the named command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _ReaderGoneError from error


def _usage(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "foldline"
    words = error.format_message()
    return f"{path}: {words[:1].lower()}{words[1:].rstrip('.')} (see '{path} --help')"


def _os_error_text(error: OSError) -> str:
    """What the operating system refused; without a file it is usually a full output."""
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else f"cannot read or write: {reason}"


def _exit(code: int, line: str = "") -> NoReturn:
    """End the process. Output that cannot be written is dropped: Python would complain, and exit with 120."""
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()
    if line:
        _print_error(line)
    sys.exit(code)


def _print_error(line: str) -> None:
    click.echo(" ".join(line.split()), err=True)


def _drop_output() -> None:
    """Point stdout at nothing, so that Python does not complain when it flushes what nobody reads."""
    # At exit Python flushes stdout once more, and would report the same error again.
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


@click.group(
    "foldline",
    cls=_Commands,
    commands=cast("MutableMapping[str, click.Command]", _LazyCommands()),  # none is ever added to it
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(version("foldline"), prog_name="foldline")
def cli() -> None:
    """Keeps LLM agents inside their context window.

    Histories are JSON: a list of messages, or an object with "messages" and, beside them, "system" and "tools". They
    are read from a file (.gz too) or from "-", standard input. Results go to standard output, all else to standard
    error. Exit codes: 0 done; 1 would be refused or does not fit; 2 bad usage or input.
    """


def main() -> None:
    """Entry point of the command `foldline`."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show a dash gets "?", not a traceback
    cli.main()


if __name__ == "__main__":
    main()
