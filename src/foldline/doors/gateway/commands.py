"""What a person can ask for by a command. Only a message of a person is ever read as one, nothing that a model, a tool
or a file says.
"""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from foldline.agent.settings.policies import policy_names
from foldline.display import telegram_compacted, telegram_footer
from foldline.doors.chat.event_lines import fold_source
from foldline.doors.gateway.markdown import escape_markdown
from foldline.hosting.request_rows import parts_of, rows_of
from foldline.hosting.session_actor import SessionActor, SessionState
from foldline.hosting.session_pool import SessionPool
from foldline.hosting.session_text import seq_range
from foldline.text.formatting import plural
from foldline.view.transcript import Fold

__all__ = ["COMMANDS", "CommandRequest", "GatewayCommand", "parse_command", "unknown_command"]

# A command as Telegram has it. What goes on with other signs (/etc/hosts) is none.
_TYPED: Final = re.compile(r"/(?P<name>[A-Za-z0-9_]{1,32})(?:\s+(?P<given>.*))?", re.DOTALL)
_NEWEST_FOLDS: Final = 5


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """A command that is asked for: for the session of this key, with these words behind it.

    `waiting` is how many messages wait there.
    """

    pool: SessionPool
    key: str
    given: str = ""
    waiting: int = 0

    async def actor(self) -> SessionActor:
        """The session of the person who asks; made if there is none."""
        return await self.pool.bound(self.key)

    async def begun(self) -> SessionActor | None:
        """The same; None if there is none."""
        name = await asyncio.to_thread(self.pool.store.bound, self.key)
        return None if name is None else await self.pool.actor(name)


@dataclass(frozen=True, slots=True)
class GatewayCommand:
    """One command: its name, what it takes, what it does. One that is `at_once` does not wait for what runs.

    `run` returns the answer. It raises what `SessionActor` raises.
    """

    name: str
    takes: str
    does: str
    run: Callable[[CommandRequest], Awaitable[str]]
    at_once: bool = False


def parse_command(text: str) -> tuple[str, str] | None:
    """(name, what follows) of a command that was typed; None for what is none."""
    found = _TYPED.fullmatch(text.strip())
    return None if found is None else (found["name"].lower(), (found["given"] or "").strip())


def unknown_command(name: str) -> str:
    """What to say of a command that there is not."""
    near = difflib.get_close_matches(name, [each.name for each in COMMANDS], n=1, cutoff=0.6)
    hint = f"Did you mean /{near[0]}?" if near else "/help lists what there is."
    return f"There is no command /{escape_markdown(name)}. {hint}"


async def _start(asked: CommandRequest) -> str:
    return f"Write to me, or send a file. I remember what was said, also after a restart.\n\n{await _help(asked)}"


async def _help(asked: CommandRequest) -> str:
    lines = [f"/{each.name} {escape_markdown(each.takes)}".rstrip() + f" – {each.does}" for each in COMMANDS]
    return "\n".join([*lines, "", "//… says a text that begins with a slash."])


async def _compact(asked: CommandRequest) -> str:
    made = await (await asked.actor()).compact(asked.given or None)
    return telegram_compacted(made.before, made.after, made.summary)


async def _undo(asked: CommandRequest) -> str:
    actor = await asked.actor()
    taken = await actor.undo()
    if not taken:
        return "There is nothing to take back."
    figures = await actor.inspect(lambda state: state.context.figures)
    return f"Took back {plural(len(taken), 'fold')}.\n\n{telegram_footer(figures)}"


async def _new(asked: CommandRequest) -> str:
    before = await asked.actor()
    made = await asked.pool.renewed(asked.key)
    return f"A new conversation (`{made.id}`). The one before is kept as `{before.id}`."


async def _policy(asked: CommandRequest) -> str:
    actor = await asked.actor()
    if not asked.given:
        now = await actor.inspect(lambda state: state.context.policy.name)
        return (
            f"The context is folded by {escape_markdown(now)}. There are {escape_markdown(', '.join(policy_names()))}."
        )
    await actor.use_policy(asked.given)
    return f"The context is folded by {escape_markdown(asked.given)} from here on."


async def _stop(asked: CommandRequest) -> str:
    actor = await asked.begun()
    if actor is None or not actor.cancel():
        return "Nothing is running."
    return f"Stopping. {plural(asked.waiting, 'message')} behind it will be answered." if asked.waiting else "Stopping."


async def _context(asked: CommandRequest) -> str:
    actor = await asked.begun()
    return "Nothing was said yet." if actor is None else await actor.inspect(_context_text)


def _context_text(state: SessionState) -> str:
    now = state.context
    parts = parts_of(rows_of(now), state.system, state.tools)
    window = max(1, now.limits.window_tokens)
    digits = max(len(f"{tokens:,}") for tokens in parts.values())
    lines = [f"{name:<8} {tokens:>{digits},} {tokens / window:>6.1%}" for name, tokens in parts.items()]
    folds = [tile for tile in now.view.entries_and_folds if isinstance(tile, Fold)]
    told = [
        f"messages {seq_range(fold.start, fold.stop)}: {fold.before_tokens:,} → {fold.tokens:,} tokens "
        f"({escape_markdown(fold_source(fold))})"
        for fold in folds[-_NEWEST_FOLDS:]
    ]
    return "\n".join(
        [
            telegram_footer(now.figures),
            f"Policy {escape_markdown(now.policy.name)}; a request may have {now.limits.input_tokens:,} tokens.",
            "```",
            *lines,
            "```",
            f"{plural(len(folds), 'fold')} in effect{':' if folds else '.'}",
            *([f"… {len(folds) - len(told)} older ones"] if len(told) < len(folds) else []),
            *told,
        ]
    )


COMMANDS: Final = (
    GatewayCommand("compact", "[instructions]", "sum up the conversation and go on from the summary", _compact),
    GatewayCommand("context", "", "show what fills the window", _context, at_once=True),
    GatewayCommand("undo", "", "take back the last folds", _undo),
    GatewayCommand("new", "", "begin a new conversation", _new),
    GatewayCommand("policy", "[name]", "say how the context is folded, or fold otherwise", _policy),
    GatewayCommand("stop", "", "stop what is running", _stop, at_once=True),
    GatewayCommand("help", "", "list the commands", _help, at_once=True),
    GatewayCommand("start", "", "say what this is", _start, at_once=True),
)
