"""The command `foldline chat`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from foldline.cli.options import agent_options
from foldline.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from rich.console import Console

    from foldline.doors.chat.startup import Chat, StoragePlaces
    from foldline.hosting.runtime import Options

__all__ = ["chat"]

# The packages of the extra `chat`. Found but not imported, so that the prompt is on screen first.
_NEEDED: Final = ("httpx", "platformdirs", "prompt_toolkit", "pypdf", "yaml")


@click.command()
@agent_options
@click.option("--resume", metavar="ID", is_flag=False, flag_value="latest", help="Go on with a session; the last one.")
@click.option("--once", metavar="PROMPT", help="Answer this one prompt on standard output, and end.")
@click.option("--json", "as_json", is_flag=True, help="With one prompt: an event on each line of standard output.")
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

    The model is what is set, else that of a key in the environment, else a local server that answers, else the embedded
    one. A prompt on standard input, or --once, is answered on standard output, for scripts.

    Exit codes: 0 done; 1 the turn failed, did not fit or was cut off; 2 bad usage; 130 stopped.
    """
    from importlib.util import find_spec

    if any(find_spec(name) is None for name in _NEEDED):
        raise MissingExtra("chat", "the chat")
    storage = _storage(store, keep=not no_save, resume=resume)
    return _run(options, workspace, storage, resume=resume, yes=yes, verbose=verbose, once=once, as_json=as_json)


def _storage(store: str | None, *, keep: bool, resume: str | None) -> StoragePlaces:
    """Where the data of this chat is stored."""
    from foldline.doors.chat.startup import StoragePlaces
    from foldline.hosting.session_choice import store_place
    from foldline.store import paths as places

    if not keep:
        for flag, given in (("--resume", resume), ("--store", store)):
            if given is not None:
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
    """Build the chat and run it; return its exit code."""
    import asyncio

    from foldline.doors.chat.one_shot import answer_once, prompt_text, read_piped

    typed = sys.stdin is not None and sys.stdin.isatty()
    piped = None if sys.stdin is None or typed else read_piped(sys.stdin)
    # Without a terminal to type at there can be only one prompt.
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
        # The reader went away: `main` ends with its own exit code.
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
    # A copy: settings and subprocesses see the same environment for the whole chat.
    environ = dict(os.environ)
    loaded = settings_for(options, environ)
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

    prompt = prompt_for(
        chat.environ,
        commands=[(command.name, command.description) for command in COMMANDS],
        history=history_path(chat.environ) if chat.storage.sessions is not None else None,
        tty=sys.stdin.isatty() and sys.stdout.isatty(),
    )
    chat.consent.prompt = prompt
    return await ChatLoop(chat, prompt).run()


def _console(*, to_stderr: bool) -> Console:
    from foldline.cli.files import terminal

    console = terminal(to_stderr=to_stderr)
    # In a file or a pipe a long line stays whole.
    console.soft_wrap = not console.is_terminal
    return console
