"""The command `foldline chat`: an agent in the terminal, or one answer for a script."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from foldline.cli.options import agent_options, needs_extra
from foldline.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import Console

    from foldline.doors.chat.startup import Chat, StoragePlaces
    from foldline.hosting.runtime import Options

__all__ = ["chat"]

# The packages of the extra `chat`.
_NEEDED: Final = ("httpx", "platformdirs", "prompt_toolkit", "pydantic", "pypdf", "yaml")


@click.command()
@needs_extra("chat", "the chat", _NEEDED)
@agent_options
@click.option(
    "--resume", metavar="ID", is_flag=False, flag_value="latest", help="Continue a session; by default the last one."
)
@click.option("--once", metavar="PROMPT", help="Answer this one prompt on standard output, then exit.")
@click.option("--json", "as_json", is_flag=True, help="With one prompt: print one event per line.")
@click.option("--store", metavar="PLACE", help="Where the session is kept: a folder, sqlite:///FILE, postgresql://…")
@click.option("--no-save", is_flag=True, help="Keep nothing on disk.")
@click.option("--yes", is_flag=True, help="Run allowed tools without asking for each call.")
@click.option("-v", "--verbose", is_flag=True, help="Write the log to standard error too.")
def chat(
    *,
    options: Options,
    workspace: str,
    resume: str | None,
    once: str | None,
    as_json: bool,
    store: str | None,
    no_save: bool,
    yes: bool,
    verbose: bool,
) -> int:
    """Talk with an agent that works in this folder and never runs out of context.

    The model is the one in the settings, else that of a key in the environment, else that of a local server that
    answers, else the embedded one. A prompt on standard input, or --once, is answered on standard output, for scripts.

    Exit codes: 0 done; 1 the turn failed, did not fit or was cut off; 2 bad usage; 130 stopped.
    """
    storage = _storage(store, keep=not no_save, resume=resume)
    return _run(options, workspace, storage, resume=resume, yes=yes, verbose=verbose, once=once, as_json=as_json)


def _storage(store: str | None, *, keep: bool, resume: str | None) -> StoragePlaces:
    """Return the places where this chat stores its data."""
    from foldline.doors.chat.startup import StoragePlaces
    from foldline.hosting.session_choice import store_place
    from foldline.store import paths as places

    if not keep:
        # Both need a store. Ignoring either would lose what the user wanted to keep.
        for flag, value in (("--resume", resume), ("--store", store)):
            if value is not None:
                raise InvalidInput("cannot go with --no-save", place=flag)
        return StoragePlaces()
    return StoragePlaces(
        sessions=store_place(store, os.environ),
        named=store is not None,
        calls=places.calls_path(),
        learned=places.learned_path(),
    )


def _run(
    options: Options,
    workspace: str,
    storage: StoragePlaces,
    *,
    resume: str | None,
    yes: bool,
    verbose: bool,
    once: str | None,
    as_json: bool,
) -> int:
    """Build the chat, run it and return its exit code."""
    import asyncio

    from foldline.doors.chat.one_shot import answer_once, prompt_text, read_piped

    # None if the parent closed the descriptor, as cron and some supervisors do.
    typed = sys.stdin is not None and sys.stdin.isatty()
    piped = None if sys.stdin is None or typed else read_piped(sys.stdin)
    # Without a terminal there can be only one prompt: the piped text.
    single = once is not None or not typed
    if as_json and not single:
        raise InvalidInput("is for one prompt: give --once, or pipe it in", place="--json")
    text = prompt_text(once, piped) if single else ""
    chat = _chat(options, Path(workspace), storage, resume=resume, verbose=verbose, single=single, yes=yes)
    try:
        if single:
            return asyncio.run(answer_once(chat, text, as_events=as_json))
        return asyncio.run(_conversation(chat))
    except OSError as error:
        # The reader went away: `main` has an exit code for that.
        if isinstance(error, BrokenPipeError):
            raise
        raise InvalidInput(error.strerror or str(error), place=str(error.filename or "chat")) from None


def _chat(
    options: Options,
    workspace: Path,
    storage: StoragePlaces,
    *,
    resume: str | None,
    verbose: bool,
    single: bool,
    yes: bool,
) -> Chat:
    from foldline.doors.chat.prompt import Consent
    from foldline.doors.chat.screen import Screen
    from foldline.doors.chat.startup import Chat
    from foldline.hosting.runtime import settings_for

    if not workspace.is_dir():
        raise InvalidInput("is no folder", place=f"--workspace: {workspace}")
    # A copy: libraries set variables of their own, and settings must mean the same for the whole chat.
    environ = dict(os.environ)
    loaded = settings_for(options, environ)
    # Notices of a single answer go to standard error, as its standard output belongs to the script.
    screen = Screen(_console(to_stderr=single), answers=not single)
    return Chat(
        loaded=loaded,
        screen=screen,
        consent=Consent(screen, None, everything=yes),
        workspace=workspace.resolve(),
        environ=environ,
        storage=storage,
        resume=resume,
        verbose=verbose,
    )


async def _conversation(chat: Chat) -> int:
    from foldline.doors.chat.chat_loop import ChatLoop
    from foldline.doors.chat.commands import COMMANDS
    from foldline.doors.chat.prompt import prompt_for
    from foldline.store.paths import history_path

    # A history file only if sessions are stored: after --no-save nothing of the chat may stay on disk.
    prompt = prompt_for(
        chat.environ,
        commands=[(command.name, command.description) for command in COMMANDS],
        history=history_path(chat.environ) if chat.storage.sessions is not None else None,
        tty=sys.stdin.isatty() and sys.stdout.isatty(),
    )
    chat.consent.prompt = prompt
    return await ChatLoop(chat, prompt).run()


def _console(*, to_stderr: bool) -> Console:
    from foldline.cli.console import terminal

    console = terminal(to_stderr=to_stderr)
    # Wrapping is for terminals: in a file or a pipe a long line must stay one line.
    console.soft_wrap = not console.is_terminal
    return console
