"""Opens a chat: its parts, the conversation with its runtime, and the lines printed at the start."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from foldline.agent.settings.file import LoadedSettings
from foldline.doors.chat.prompt import Consent
from foldline.doors.chat.screen import Screen
from foldline.hosting.runtime import ALLOWABLE

if TYPE_CHECKING:
    from foldline.agent.events import AgentEvent
    from foldline.hosting.agent_conversation import AgentConversation

__all__ = ["Chat", "StoragePlaces", "open_conversation", "print_banner", "print_model", "refresh_screen"]

# A spinner looks even at 8 frames a second; each frame renders the block in progress again.
_TICK_SECONDS: Final = 0.12


@dataclass(frozen=True, slots=True, kw_only=True)
class StoragePlaces:
    """Places of stored data; None for data that is not stored. `sessions` is a place for `open_store`.

    `named` says that the place was given on the command line, so that a resume must name it again.
    """

    sessions: Path | str | None = None
    named: bool = False
    calls: Path | None = None
    learned: Path | None = None


@dataclass(slots=True, kw_only=True)
class Chat:
    """The parts of a chat. `resume` names the session to resume; `listeners` receive every event, as the screen does.

    With `verbose` the log goes to standard error too.
    """

    loaded: LoadedSettings
    screen: Screen
    consent: Consent
    workspace: Path
    environ: Mapping[str, str]
    storage: StoragePlaces
    resume: str | None = None
    verbose: bool = False
    listeners: list[Callable[[AgentEvent], None]] = field(default_factory=list)


@asynccontextmanager
async def open_conversation(chat: Chat) -> AsyncIterator[AgentConversation]:
    """Open the conversation, with its model selected and its session resumed, until the end of the block.

    Raises FoldlineError and OSError. Models and servers are not awaited.
    """
    # In a thread: these modules take longer to load than a person takes to start typing.
    await asyncio.to_thread(_load)
    from foldline.agent.events import Notice
    from foldline.doors.chat.event_lines import Journal
    from foldline.hosting.agent_conversation import AgentConversation
    from foldline.hosting.runtime import Runtime, open_call_log
    from foldline.store.addresses import open_store
    from foldline.store.learned_limits import LearnedLimits
    from foldline.store.session import FileSession

    # A cell for the closures below: the journal asks for the folder of a session that does not exist yet.
    conversations: list[AgentConversation] = []

    def folder() -> Path | None:
        session = conversations[0].stored if conversations else None
        return session.folder if isinstance(session, FileSession) else None

    # The log first: an error in a later listener must not lose the line about its cause.
    listeners = (
        Journal(folder, verbose=sys.stderr if chat.verbose else None).on_event,
        chat.screen.on_event,
        *chat.listeners,
    )

    def emit(event: AgentEvent) -> None:
        for listener in listeners:
            listener(event)

    def notice(line: str) -> None:
        emit(Notice(line))

    storage = chat.storage
    learned = None if storage.learned is None else LearnedLimits(storage.learned)
    keep_calls = chat.loaded.settings.keep_calls
    async with AsyncExitStack() as stack:
        # In a thread: a database may be far away.
        store = None if storage.sessions is None else await asyncio.to_thread(open_store, storage.sessions)
        if store is not None:
            stack.callback(store.close)
        runtime = await Runtime.start(
            chat.loaded.settings,
            chat.environ,
            workspace=chat.workspace,
            learned=learned,
            calls=None if storage.calls is None else open_call_log(storage.calls, notice, keep_calls),
            notice=notice,
        )
        # Before the conversation in the stack, so closed after it: the last snapshot may need it.
        stack.push_async_callback(runtime.aclose)
        conversations.append(AgentConversation(runtime, store=store, emit=emit, allowed=chat.consent.allowed))
        # Before the resume: a session that cannot be read leaves the conversation to be closed all the same.
        stack.callback(conversations[0].close)
        if chat.resume is not None:
            conversations[0].resume(chat.resume)
        yield conversations[0]


def _load() -> None:
    import foldline.hosting.agent_conversation  # noqa: F401
    from foldline.doors.chat.markdown import load_renderer

    load_renderer()


@asynccontextmanager
async def refresh_screen(screen: Screen) -> AsyncIterator[None]:
    """Redraw the screen a few times a second, until the end of the block."""

    async def tick() -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            screen.tick()

    ticker = asyncio.create_task(tick())
    try:
        yield
    finally:
        ticker.cancel()
        # Awaited: a tick after the end of the block would draw over the shell's prompt.
        with suppress(asyncio.CancelledError):
            await ticker


def print_banner(chat: Chat) -> None:
    """Print the lines that need no model: policy, workspace, withheld settings."""
    settings = chat.loaded.settings
    screen = chat.screen
    named = "" if settings.name == "main" else f" · agent {settings.name}"
    profile = "" if chat.loaded.profile is None else f" · profile {chat.loaded.profile}"
    screen.line(f"foldline chat{named}{profile} · policy {settings.policy_settings.name} · /help", "bold")
    screen.field("folder", str(chat.workspace))
    for withheld in chat.loaded.withheld:
        screen.line(f"not before it is trusted (foldline config trust): {withheld}", "yellow")


def print_model(screen: Screen, conversation: AgentConversation, *, asks: bool = True) -> None:
    """Print the model and why it was selected, its permissions, its window if known, and the session.

    `asks` says whether the person must allow each call that changes something.
    """
    runtime = conversation.runtime
    screen.field("model", runtime.picked.line)
    for note in runtime.picked.notes:
        screen.field("", note, "yellow")
    allow = runtime.settings.tools.allow.intersection(ALLOWABLE)
    if runtime.picked.tools:
        how = "each call is asked for" if asks else "no call is asked for (--yes)"
        nothing = f"none that change anything (--allow {','.join(ALLOWABLE)})"
        screen.field("allowed", f"{', '.join(sorted(allow))}; {how}" if allow else nothing)
    elif allow:
        screen.field("allowed", f"{', '.join(sorted(allow))}: without effect, for this model gets no tools", "yellow")
    tokens = runtime.settings.model.max_input_tokens
    if tokens is not None:
        screen.field("window", f"{tokens:,} tokens, as set")
    if conversation.store is None:
        screen.field("session", "nothing is kept (--no-save)")
    elif conversation.id is not None:
        screen.field("session", f"{conversation.id}, resumed")
        if (text := conversation.resume_text()) is not None:
            screen.field("", text, "dim")
