"""The command `foldline telegram`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from foldline.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    import asyncio

    from foldline.interfaces.starting import Options

__all__ = ["telegram"]

TOKEN: Final = "FOLDLINE_TELEGRAM_TOKEN"
_NEEDED: Final = ("httpx", "platformdirs", "pypdf", "telegram", "yaml")
_TOKEN_SHAPE: Final = re.compile(r"\d{1,20}:[\w-]{20,100}")
_MOST_TOKEN_BYTES: Final = 4_096


@click.command()
@click.option("--token-file", metavar="FILE", help=f"A file with the bot's token; without it {TOKEN} has it.")
@click.option(
    "--user",
    "users",
    type=click.IntRange(1, 2**52 - 1),
    multiple=True,
    metavar="ID",
    help="Who may write; in place of agents.yaml's.",
)
@click.option("--agent", metavar="NAME", help="The agent of agents.yaml; without it main, or the only one.")
@click.option("--profile", metavar="NAME", help="A profile of agents.yaml.")
@click.option("--config", metavar="FILE", help="A settings file, instead of those that are found.")
@click.option("--model", metavar="NAME", help="The model; a .gguf file is loaded here.")
@click.option("--provider", metavar="NAME", help="openai, anthropic, ollama, embedded, …; by default it is found.")
@click.option("--base-url", metavar="URL", help="The address of any compatible model server.")
@click.option("--policy", metavar="NAME", help="How the context is folded (balanced, cost, quality, …).")
@click.option("--window", type=int, metavar="TOKENS", help="The window to keep to.")
@click.option("--workspace", metavar="DIR", default=".", help="The folder that the tools see; the current one.")
@click.option("--allow", metavar="TOOL", multiple=True, help="Offer write_file, edit_file or run_command too.")
@click.option("--store", metavar="PLACE", help="Where sessions are kept: a folder, sqlite:///FILE, postgresql://…")
@click.option("--trust", is_flag=True, help="Take the agents.yaml of this folder as your own, this once.")
@click.option(
    "--yes", is_flag=True, help="Run allowed tools without asking; else they are refused: nobody can be asked."
)
@click.option("--base-url-api", metavar="URL", help="The address of a Bot API server of your own.")
@click.option("--grace", type=float, default=30.0, metavar="SECONDS", help="What a turn may take when it is stopped.")
def telegram(
    *,
    token_file: str | None,
    users: tuple[int, ...],
    agent: str | None,
    profile: str | None,
    config: str | None,
    model: str | None,
    provider: str | None,
    base_url: str | None,
    policy: str | None,
    window: int | None,
    workspace: str,
    allow: tuple[str, ...],
    store: str | None,
    trust: bool,
    yes: bool,
    base_url_api: str | None,
    grace: float,
) -> int:
    """Let people talk with an agent on Telegram, each in a conversation that never runs out of context.

    Only users that are named by their ids get an answer: --user, or telegram.users in agents.yaml. Ctrl-C or SIGTERM
    stops it in order; what was not answered by then is answered after the next start.

    Exit codes: 0 stopped; 2 bad usage, nobody is allowed, or the token is refused.
    """
    from importlib.util import find_spec

    if any(find_spec(name) is None for name in _NEEDED):
        raise MissingExtra("telegram", "Telegram")
    import asyncio

    from foldline.interfaces.starting import Options, settings_for

    options = Options(
        agent=agent,
        profile=profile,
        config=config,
        model=model,
        provider=provider,
        base_url=base_url,
        policy=policy,
        window=window,
        allow=tuple(name for given in allow for name in given.split(",") if name),
        trust=trust,
    )
    loaded = settings_for(options, os.environ)
    allowed = users or loaded.settings.telegram.users
    if not allowed:
        left_out = any(each.given.name.endswith("telegram.users") for each in loaded.withheld)
        why = " (those of this folder's agents.yaml count once you trust it: foldline config trust)" if left_out else ""
        raise InvalidInput(
            f"nobody may write to the bot: name users by their ids, with --user or as telegram.users{why}",
            place="--user",
        )
    door = _Door(
        token=_token(token_file),
        address=base_url_api,
        users=allowed,
        options=options,
        workspace=Path(workspace),
        store=store,
        yes=yes,
        grace_seconds=grace,
    )
    return asyncio.run(door.run())


def _token(file: str | None) -> str:
    """The bot's token. Never an argument: those are in every list of processes. Raises InvalidInput."""
    if file is None:
        place, text = TOKEN, os.environ.get(TOKEN, "")
        if not text:
            raise InvalidInput(
                "is not set, and there is no --token-file; @BotFather gives a bot its token", place=TOKEN
            )
    else:
        place = f"--token-file: {file}"
        try:
            with open(file, encoding="utf-8") as opened:
                text = opened.read(_MOST_TOKEN_BYTES)
        except UnicodeDecodeError:
            text = ""
        except OSError as error:
            raise InvalidInput(f"cannot be read: {error.strerror or error}", place=place) from None
    if not _TOKEN_SHAPE.fullmatch(text.strip()):
        raise InvalidInput('holds no token of a bot, which looks like "123456789:AAF…"', place=place)
    return text.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Door:
    """The bot, whom it answers, and with what."""

    token: str
    address: str | None
    users: tuple[int, ...]
    options: Options
    workspace: Path
    store: str | None
    yes: bool
    grace_seconds: float

    async def run(self) -> int:
        """Answer until a signal comes; one that comes before anybody is answered ends it at once."""
        import asyncio
        import signal
        from contextlib import suppress

        stopping, answering = asyncio.Event(), asyncio.Event()
        work = asyncio.create_task(self._answer(stopping, answering))

        def stop() -> None:
            stopping.set()
            if not answering.is_set():
                work.cancel()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError):  # Windows: Ctrl-C raises KeyboardInterrupt
                loop.add_signal_handler(number, stop)
        with suppress(asyncio.CancelledError):
            await work
        return 0

    async def _answer(self, stopping: asyncio.Event, answering: asyncio.Event) -> None:
        from foldline.interfaces.actor import ActorLimits
        from foldline.interfaces.gateway.desk import Desk
        from foldline.interfaces.gateway.telegram import telegram as connected
        from foldline.interfaces.opening import opened
        from foldline.interfaces.scheduling.clock import scheduled

        kept = opened(
            self.options,
            os.environ,
            workspace=self.workspace,
            store=self.store,
            yes=self.yes,
            limits=ActorLimits(),
            notice=self._notice,
        )
        bot = connected(self.token, base_url=self.address, notice=self._notice)
        async with kept as actors, bot as gateway:
            desk = Desk(actors, gateway, users=[str(user) for user in self.users], notice=self._notice)
            people = "1 user" if len(self.users) == 1 else f"{len(self.users)} users"
            model, place = actors.crew.provider.model, actors.store.place
            self._notice(f"{gateway.account} answers {people} with {model}; sessions in {place}")
            answering.set()
            plan = scheduled(
                actors,
                tell=self._notice,
                grace_seconds=self.grace_seconds,
                environ={**os.environ, TOKEN: self.token},
                telegram_url=self.address,
            )
            async with plan:
                await desk.run(stopping, grace_seconds=self.grace_seconds)

    def _notice(self, line: str) -> None:
        click.echo(line.rstrip().replace(self.token, "TOKEN"), err=True)
