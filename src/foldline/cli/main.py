"""The command `foldline`: the group of all commands, its exit codes, and the one line that an error prints.

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

__all__ = ["cli", "main", "stream_encoding"]

# click and argparse use 2 for bad usage. Bad input has the same code, as it is as certain to fail again.
_BAD_INPUT = 2
# A shell reports a process that a signal ended as 128 plus the signal's number: 2 is SIGINT, 13 is SIGPIPE.
_STOPPED = 130
_PIPE_CLOSED = 141

# The module of each command. Only the one that runs is imported: all of them take ten times as long as this one.
_COMMANDS: Final[Mapping[str, str]] = {
    "fit": "histories",
    "check": "histories",
    "count": "histories",
    "replay": "replay",
    "chat": "chat",
    "serve": "serve",
    "proxy": "proxy",
    "wrap": "wrap",
    "mcp": "mcp",
    "sessions": "sessions.listing",
    "growth": "growth",
    "report": "report",
    "models": "models",
    "telegram": "telegram",
    "config": "config",
    "schedule": "schedule",
}


# Commands of other distributions, found by their entry points in the group `foldline.commands`. They are named here
# too, so that the help lists them and a call can say what to install.
_DISTRIBUTIONS: Final[Mapping[str, str]] = {
    "bench": "foldline-bench",
    "conformance": "foldline-bench",
    "tune": "foldline-bench",
}


class _LazyCommands(Mapping[str, click.Command]):
    """The commands, each imported when it is looked up."""

    def __getitem__(self, name: str) -> click.Command:
        if name in _DISTRIBUTIONS:
            return _distribution_command(name)
        command: click.Command = getattr(import_module(f"foldline.cli.{_COMMANDS[name]}"), name)
        return command

    def __iter__(self) -> Iterator[str]:
        yield from _COMMANDS
        yield from _DISTRIBUTIONS

    def __len__(self) -> int:
        return len(_COMMANDS) + len(_DISTRIBUTIONS)


def _distribution_command(name: str) -> click.Command:
    """Return a command of another distribution, or a stand-in that says how to install it."""
    for found in entry_points(group="foldline.commands", name=name):
        command: click.Command = found.load()
        return command
    package = _DISTRIBUTIONS[name]

    # It accepts any arguments, and --help as one of them: what is missing has no help to show.
    @click.command(
        name,
        short_help=f"Comes with {package}.",
        context_settings={"ignore_unknown_options": True, "help_option_names": []},
    )
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def missing(arguments: tuple[str, ...]) -> None:
        # foldline itself may come from a checkout, where the other distribution is the folder beside it.
        install = f"pip install {package} (from a checkout: pip install ./bench)"
        raise MissingExtra(package, f"`foldline {name}`", install=install, needs=f"the package {package}")

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
        # Python sets it to None if the parent closed the descriptor (`>&-`). Refused at once: otherwise a model
        # would be paid for an answer that goes nowhere.
        if sys.stdout is None:
            _print_error("foldline: standard output is closed: there is nowhere to write to")
            sys.exit(_BAD_INPUT)
        try:
            # click's standalone mode has exit codes and messages of its own; all of them are set here instead.
            code = super().main(args, prog_name or "foldline", complete_var, standalone_mode=False, **extra)
            # Flushed inside the block: a full disk or a closed pipe often shows only now.
            sys.stdout.flush()
        except (BrokenPipeError, _ReaderGoneError):
            # `foldline … | head` is no error: no line is printed, and the code is that of any other Unix program.
            _exit(_PIPE_CLOSED)
        except click.Abort:
            # click turns KeyboardInterrupt into Abort. Whoever pressed Ctrl-C needs no message.
            _exit(_STOPPED)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            _exit(error.exit_code)
        except click.ClickException as error:
            _exit(_BAD_INPUT, _usage(error))
        except MissingExtra as error:
            _exit(_BAD_INPUT, f"foldline: {error}{_other_ways(error, sys.argv[1:] if args is None else args)}")
        except InvalidInput as error:
            _exit(_BAD_INPUT, f"foldline: {error}")
        except FoldlineError as error:
            _exit(1, f"foldline: {error}")
        except OSError as error:
            # Commands name files themselves where they know which; what is left is the output or a race.
            _exit(_BAD_INPUT, f"foldline: {_os_error_text(error)}")
        # A command returns its exit code; anything else that it returns means success.
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the named command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _ReaderGoneError from error


def _other_ways(error: MissingExtra, arguments: Sequence[str]) -> str:
    """How to run this command with the extra by uv, or install it with pipx, where a command of this package is run."""
    command = next((name for name in arguments if name in _COMMANDS), None)
    if command is None or error.install is not None:
        return ""
    # --force: who sees this may have installed foldline with pipx, which would then do nothing.
    package = f"'foldline[{error.extra}]'"
    return f" (uv: uvx {package} {command}; pipx: pipx install --force {package})"


def _usage(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "foldline"
    words = error.format_message()
    return f"{path}: {words[:1].lower()}{words[1:].rstrip('.')} (see '{path} --help')"


def _os_error_text(error: OSError) -> str:
    """Describe what the operating system refused. Without a file name it is usually the output."""
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else f"cannot read or write: {reason}"


def _exit(code: int, line: str = "") -> NoReturn:
    """End the process with this code, whatever becomes of output that is still buffered."""
    try:
        sys.stdout.flush()
    except OSError:
        # Otherwise Python would try again at exit, complain, and replace the code by 120.
        _drop_output()
    if line:
        _print_error(line)
    sys.exit(code)


def _print_error(line: str) -> None:
    # One line, whatever a message contains: scripts and logs read errors line by line.
    click.echo(" ".join(line.split()), err=True)


def _drop_output() -> None:
    """Point standard output at the null device."""
    # By descriptor: the buffer of sys.stdout stays, and Python can flush it at exit without an error.
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


@click.group(
    "foldline",
    cls=_Commands,
    # click asks for a mutable mapping, and would only write to it in add_command, which nothing calls.
    commands=cast("MutableMapping[str, click.Command]", _LazyCommands()),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(version("foldline"), prog_name="foldline")
def cli() -> None:
    """Keep LLM agents inside their context window.

    Histories are JSON: a list of messages, or an object with "messages" and optionally "system" and "tools". They are
    read from a file (.gz too) or from "-", standard input. Results go to standard output, all else to standard error.
    Exit codes: 0 done; 1 would be refused or does not fit; 2 bad usage or input.
    """


def stream_encoding(platform: str, is_terminal: bool, environ: Mapping[str, str]) -> str | None:
    """The encoding of a standard stream; None: the one that Python chose.

    On Windows Python takes the code page for files and pipes, which lacks most of the world's letters: they would
    become "?" in `foldline chat --once … > answer.txt`. Terminals have UTF-8 there.
    """
    chosen = environ.get("PYTHONIOENCODING") or environ.get("PYTHONUTF8")
    return "utf-8" if platform == "win32" and not is_terminal and not chosen else None


def main() -> None:
    """Entry point of the command `foldline`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a dash gets "?" instead of a traceback.
            encoding = stream_encoding(sys.platform, stream.isatty(), os.environ)
            stream.reconfigure(encoding=encoding, errors="replace" if stream is sys.stdout else None)
    cli.main()


if __name__ == "__main__":
    main()
