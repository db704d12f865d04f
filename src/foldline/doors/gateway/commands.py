"""The commands of a chat. Only a person's own message is read as one, never what a model, a tool or a file says."""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from foldline.display import telegram_compacted, telegram_footer
from foldline.doors.chat.event_lines import fold_source
from foldline.doors.gateway.markdown import escape_markdown
from foldline.engine.presets import policy_names
from foldline.hosting.session_actor import SessionActor, SessionState
from foldline.hosting.session_pool import SessionPool
from foldline.hosting.session_text import parts_of, rows_of, seq_range
from foldline.text.formatting import plural
from foldline.view.transcript import Fold

__all__ = ["COMMANDS", "CommandRequest", "GatewayCommand", "parse_command", "unknown_command"]

# A command as Telegram defines it. A path such as /etc/hosts is none.
_PATTERN: Final = re.compile(r"/(?P<name>[A-Za-z0-9_]{1,32})(?:\s+(?P<argument>.*))?", re.DOTALL)
_NEWEST_FOLDS: Final = 5


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """A requested command: its session's key and its argument. `waiting` is the number of messages in the queue."""

    pool: SessionPool
    key: str
    argument: str = ""
    waiting: int = 0

    async def actor(self) -> SessionActor:
        """The session of the person, created if there is none."""
        return await self.pool.session_for_key(self.key)

    async def existing_actor(self) -> SessionActor | None:
        """The session of the person; None if there is none."""
        name = await asyncio.to_thread(self.pool.store.session_of, self.key)
        return None if name is None else await self.pool.actor(name)


@dataclass(frozen=True, slots=True)
class GatewayCommand:
    """One command: its name, arguments and description. An `immediate` one does not wait for a running turn.

    `run` returns the answer. It raises what `SessionActor` raises.
    """

    name: str
    arguments: str
    description: str
    run: Callable[[CommandRequest], Awaitable[str]]
    immediate: bool = False


def parse_command(text: str) -> tuple[str, str] | None:
    """Return (name, argument) of a command; None for any other text."""
    found = _PATTERN.fullmatch(text.strip())
    return None if found is None else (found["name"].lower(), (found["argument"] or "").strip())


def unknown_command(name: str) -> str:
    """The answer to an unknown command."""
    # A typo is the usual reason for an unknown name.
    near = difflib.get_close_matches(name, [each.name for each in COMMANDS], n=1, cutoff=0.6)
    hint = f"Did you mean /{near[0]}?" if near else "/help lists what there is."
    return f"There is no command /{escape_markdown(name)}. {hint}"


async def _start(request: CommandRequest) -> str:
    return f"Write to me, or send a file. I remember what was said, also after a restart.\n\n{await _help(request)}"


async def _help(request: CommandRequest) -> str:
    lines = [f"/{each.name} {escape_markdown(each.arguments)}".rstrip() + f" – {each.description}" for each in COMMANDS]
    return "\n".join([*lines, "", "//… says a text that begins with a slash."])


async def _compact(request: CommandRequest) -> str:
    result = await (await request.actor()).compact(request.argument or None)
    return telegram_compacted(result.before, result.after, result.summary)


async def _undo(request: CommandRequest) -> str:
    actor = await request.actor()
    undone = await actor.undo()
    if not undone:
        return "There is nothing to take back."
    figures = await actor.inspect(lambda state: state.context.figures)
    return f"Took back {plural(len(undone), 'fold')}.\n\n{telegram_footer(figures)}"


async def _new(request: CommandRequest) -> str:
    # Created if there is none: the answer names the former session, so that it can be found again.
    before = await request.actor()
    result = await request.pool.renew(request.key)
    return f"A new conversation (`{result.id}`). The one before is kept as `{before.id}`."


async def _policy(request: CommandRequest) -> str:
    actor = await request.actor()
    if not request.argument:
        policy = await actor.inspect(lambda state: state.context.policy.name)
        names = escape_markdown(", ".join(policy_names()))
        return f"The context is folded by {escape_markdown(policy)}. There are {names}."
    await actor.use_policy(request.argument)
    return f"The context is folded by {escape_markdown(request.argument)} from here on."


async def _stop(request: CommandRequest) -> str:
    # Not created for this: nothing can run in a session that does not exist.
    actor = await request.existing_actor()
    if actor is None or not actor.cancel():
        return "Nothing is running."
    return (
        f"Stopping. {plural(request.waiting, 'message')} behind it will be answered."
        if request.waiting
        else "Stopping."
    )


async def _context(request: CommandRequest) -> str:
    actor = await request.existing_actor()
    return "Nothing was said yet." if actor is None else await actor.inspect(_context_text)


def _context_text(state: SessionState) -> str:
    context = state.context
    parts = parts_of(rows_of(context), state.system, state.tools)
    # At least 1: a share of it is shown, and a window of 0 tokens can be set.
    window, policy = max(1, context.limits.window_tokens), escape_markdown(context.policy.name)
    # Aligned by spaces in a code block: Telegram has no tables.
    digits = max(len(f"{tokens:,}") for tokens in parts.values())
    lines = [f"{name:<8} {tokens:>{digits},} {tokens / window:>6.1%}" for name, tokens in parts.items()]
    folds = [tile for tile in context.view.entries_and_folds if isinstance(tile, Fold)]
    fold_lines = [
        f"messages {seq_range(fold.start, fold.stop)}: {fold.before_tokens:,} → {fold.tokens:,} tokens "
        f"({escape_markdown(fold_source(fold))})"
        for fold in folds[-_NEWEST_FOLDS:]
    ]
    return "\n".join(
        [
            telegram_footer(context.figures),
            f"Policy {policy}; a request may have {context.limits.input_tokens:,} tokens.",
            "```",
            *lines,
            "```",
            f"{plural(len(folds), 'fold')} in effect{':' if folds else '.'}",
            *([f"… {len(folds) - len(fold_lines)} older ones"] if len(fold_lines) < len(folds) else []),
            *fold_lines,
        ]
    )


# In the order of the platform's menu: the most useful first.
COMMANDS: Final = (
    GatewayCommand("compact", "[instructions]", "sum up the conversation and go on from the summary", _compact),
    GatewayCommand("context", "", "show what fills the window", _context, immediate=True),
    GatewayCommand("undo", "", "take back the last folds", _undo),
    GatewayCommand("new", "", "begin a new conversation", _new),
    GatewayCommand("policy", "[name]", "say how the context is folded, or fold otherwise", _policy),
    GatewayCommand("stop", "", "stop what is running", _stop, immediate=True),
    GatewayCommand("help", "", "list the commands", _help, immediate=True),
    GatewayCommand("start", "", "say what this is", _start, immediate=True),
)
