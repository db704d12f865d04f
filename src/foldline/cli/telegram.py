"""The command `foldline telegram`: the agent as a bot, for named users."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from foldline.cli.console import log
from foldline.cli.options import agent_options, needs_extra, store_option, yes_option
from foldline.errors import InvalidInput
from foldline.hosting.session_choice import in_one_line

if TYPE_CHECKING:
    from foldline.hosting.process import ShutdownRequest
    from foldline.hosting.runtime import Options

__all__ = ["telegram"]

TOKEN: Final = "FOLDLINE_TELEGRAM_TOKEN"
_NEEDED: Final = ("httpx", "platformdirs", "pydantic", "pypdf", "telegram", "yaml")
# BotFather does not document the form. This is that of all tokens so far, with room on both sides: it is there to catch
# a file that holds something else.
_TOKEN_SHAPE: Final = re.compile(r"\d{1,20}:[\w-]{20,100}")
_MOST_TOKEN_BYTES: Final = 4_096


@click.command()
@needs_extra("telegram", "Telegram", _NEEDED)
@click.option("--token-file", metavar="FILE", help=f"A file with the bot's token; else {TOKEN} has it.")
@click.option(
    "--user",
    "users",
    type=click.IntRange(1, 2**52 - 1),
    multiple=True,
    metavar="ID",
    help="A user who may write; replaces those of agents.yaml.",
)
@store_option
@agent_options
@yes_option
@click.option("--base-url-api", metavar="URL", help="The address of a Bot API server of your own.")
@click.option(
    "--grace-seconds", type=click.FloatRange(0), default=30.0, show_default=True, help="Time for turns to finish."
)
@in_one_line
def telegram(
    *,
    token_file: str | None,
    users: tuple[int, ...],
    options: Options,
    workspace: str,
    store: str | None,
    yes: bool,
    base_url_api: str | None,
    grace_seconds: float,
) -> None:
    """Let people talk with an agent on Telegram, each in a conversation that never runs out of context.

    Only users named by their ids get an answer: --user, or telegram.users in agents.yaml. After Ctrl-C or SIGTERM,
    turns have --grace-seconds to finish; a second signal stops at once. What is unanswered by then is answered after
    the next start.

    Exit codes: 0 stopped; 2 bad usage, nobody is allowed, or the token is refused.
    """
    import asyncio

    bot = _TelegramBot(
        users=users or _users(options),
        token=_token(token_file),
        address=base_url_api,
        options=options,
        workspace=Path(workspace),
        store=store,
        yes=yes,
        grace_seconds=grace_seconds,
    )
    asyncio.run(bot.run())


def _users(options: Options) -> tuple[int, ...]:
    """Return the users of the settings. Raises InvalidInput if there are none."""
    from foldline.hosting.runtime import settings_for

    loaded = settings_for(options, os.environ)
    if not loaded.settings.telegram.users:
        # Nobody and not everybody: a bot is found by its name, and its answers cost money. If a folder's own file names
        # users, it is not trusted yet: the error says so.
        left_out = any(each.leaf.name.endswith("telegram.users") for each in loaded.withheld)
        why = " (those of this folder's agents.yaml count once you trust it: foldline config trust)" if left_out else ""
        raise InvalidInput(
            f"nobody may write to the bot: name users by their ids, with --user or as telegram.users{why}",
            place="--user",
        )
    return loaded.settings.telegram.users


def _token(file: str | None) -> str:
    """Return the bot's token. Raises InvalidInput."""
    # There is no option for it: any process of the machine can read the arguments of the others.
    if file is None:
        place, text = TOKEN, os.environ.get(TOKEN, "")
        if not text:
            raise InvalidInput(
                "is not set, and there is no --token-file; @BotFather gives a bot its token", place=TOKEN
            )
    else:
        place = f"--token-file: {file}"
        try:
            with open(file, encoding="utf-8") as token_file:
                text = token_file.read(_MOST_TOKEN_BYTES)
        except UnicodeDecodeError:
            # The check below has the better message.
            text = ""
        except OSError as error:
            raise InvalidInput(f"cannot be read: {error.strerror or error}", place=place) from None
    # Checked here, where the error can say what a token looks like.
    if not _TOKEN_SHAPE.fullmatch(text.strip()):
        raise InvalidInput('holds no token of a bot, which looks like "123456789:AAF…"', place=place)
    return text.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class _TelegramBot:
    """The bot, its users, and the agent behind it."""

    token: str
    address: str | None
    users: tuple[int, ...]
    options: Options
    workspace: Path
    store: str | None
    yes: bool
    grace_seconds: float

    async def run(self) -> None:
        """Answer until a signal comes."""
        from foldline.hosting.process import run_until_signal

        await run_until_signal(self._answer, self._notice)

    async def _answer(self, shutdown: ShutdownRequest) -> None:
        from foldline.doors.gateway.chat_gateway import ChatGateway
        from foldline.doors.gateway.telegram import telegram as connected
        from foldline.doors.schedule.clock import run_schedule
        from foldline.hosting.process import set_pace
        from foldline.hosting.session_actor import ActorLimits
        from foldline.hosting.session_pool import open_pool

        # A delivery of the schedule may need the token; commands that the model runs must not see it.
        environ = {**os.environ, TOKEN: self.token}
        os.environ.pop(TOKEN, None)
        opened = open_pool(
            self.options,
            environ,
            workspace=self.workspace,
            store=self.store,
            yes=self.yes,
            limits=ActorLimits(),
            notice=self._notice,
        )
        bot = connected(self.token, base_url=self.address, notice=self._notice)
        async with opened as pool, bot as gateway:
            set_pace()
            chat_gateway = ChatGateway(pool, gateway, users=[str(user) for user in self.users], notice=self._notice)
            people = "1 user" if len(self.users) == 1 else f"{len(self.users)} users"
            self._notice(f"{gateway.account} answers {people}; sessions in {pool.store.place}")
            for line in (pool.runtime.picked.line, *pool.runtime.picked.notes):
                self._notice(line)
            grace = self.grace_seconds
            async with run_schedule(pool, notice=self._notice, grace_seconds=grace, telegram_url=self.address):
                shutdown.is_open = True
                await chat_gateway.run(shutdown.requested, grace_seconds=grace)

    def _notice(self, line: str) -> None:
        # Errors of the HTTP library quote the address, and Telegram has the token in the path.
        log(line.rstrip().replace(self.token, "TOKEN"))
