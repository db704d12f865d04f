"""The chat with a person: reads a line, runs a turn or a command, shows what comes of it, until it is left."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from shlex import quote
from typing import TYPE_CHECKING, Any

from foldline.doors.chat.commands import run_command
from foldline.doors.chat.interrupts import Interrupts, LeaveError
from foldline.doors.chat.prompt import PromptInput
from foldline.doors.chat.startup import Chat, open_conversation, print_banner, print_model, ticking
from foldline.errors import FoldlineError, SummaryError

if TYPE_CHECKING:
    from foldline.hosting.agent_conversation import AgentConversation

__all__ = ["ChatLoop"]


class ChatLoop:
    """One chat. `run` returns the exit code."""

    def __init__(self, chat: Chat, prompt: PromptInput, *, interrupts: Interrupts | None = None) -> None:
        self.chat, self.prompt = chat, prompt
        self.screen, self.consent = chat.screen, chat.consent
        self._interrupts = interrupts or Interrupts()
        self._interrupts.idle = prompt.break_off
        chat.consent.stop = self._interrupts.stop
        self._stack = AsyncExitStack()
        self._starting: asyncio.Task[AgentConversation] | None = None
        self._next = ""

    async def run(self) -> int:
        """The whole chat. Raises FoldlineError and OSError when it cannot begin."""
        code, left = 0, None
        with self._interrupts.handled():
            async with ticking(self.screen), self._stack:
                print_banner(self.chat)
                self._starting = asyncio.create_task(self._stack.enter_async_context(open_conversation(self.chat)))
                self._starting.add_done_callback(self._started)
                try:
                    await self._lines()
                except LeaveError as leave:
                    code = leave.code
                finally:
                    if not self._starting.done():
                        self._starting.cancel()
                    (conversation,) = await asyncio.gather(self._starting, return_exceptions=True)
                    if (
                        not isinstance(conversation, BaseException)
                        and conversation.begun
                        and conversation.id is not None
                    ):
                        place = (
                            conversation.store.place if conversation.store is not None and self.chat.kept.named else ""
                        )
                        left = f"{conversation.id} --store {quote(place)}" if place else conversation.id
        if left is not None:
            self.screen.line(f"To go on: foldline chat --resume {left}", "dim")
        return code

    async def conversation(self) -> AgentConversation:
        """The conversation, once its model is picked. Raises what kept it from beginning."""
        if self._starting is None:
            raise RuntimeError("the conversation has not begun")
        return await asyncio.shield(self._starting)

    async def compact(self, instructions: str | None) -> None:
        """Compact the session, and show the summary and the new figures."""
        from foldline.display import compacted, summary_of

        conversation = await self.conversation()
        agent = await conversation.agent()
        how = "folding by digest" if agent.summarize is None else "summarising"
        with self.screen.working(how):
            try:
                folds = await agent.session.compact(instructions, agent.summarize)
            except SummaryError as error:
                self.screen.error(f"not compacted: {error.reason}")
                return
            finally:
                conversation.save(agent)
        shown = summary_of(folds) or "\n\n".join(fold.shown[0].text for fold in folds if fold.shown)
        self.screen.line(compacted(agent.session.figures, shown))

    async def confirmed(self, question: str) -> bool:
        """Whether the person says yes; anything else is no."""
        try:
            answer = await self.prompt.ask(question)
        except (EOFError, KeyboardInterrupt):
            return False
        return answer.strip().lower() in ("y", "yes")

    # --- inside ------------------------------------------------------------------------------------------------------

    def _started(self, starting: asyncio.Task[AgentConversation]) -> None:
        if starting.cancelled():
            return
        error = starting.exception()
        if error is not None:
            self.prompt.break_off(error)
            return
        conversation = starting.result()
        self.screen.model = conversation.runtime.provider.model
        self.prompt.above(lambda: print_model(self.screen, conversation, asks=not self.consent.everything))

    async def _lines(self) -> None:
        """Line by line, until the person leaves."""
        if not self.prompt.redraws:
            await self._interrupts.run(self.conversation())
        while True:
            try:
                typed = self._next or await self.prompt.line()
                self._next = ""
            except KeyboardInterrupt:
                if self._interrupts.pressed():
                    return
                self.screen.line("Ctrl-C again leaves, so does Ctrl-D.", "dim")
                continue
            except EOFError:
                return
            if typed.strip():
                await self._taken(typed)

    async def _taken(self, typed: str) -> None:
        if typed.startswith("/") and not typed.startswith("//"):
            await self._guarded(run_command(self, typed))
        else:
            await self._guarded(self._turn(typed[1:] if typed.startswith("//") else typed))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Do some work that Ctrl-C stops; what goes wrong in it is one line."""
        starting = self._starting
        with self.prompt.silent():
            try:
                await self._interrupts.run(work)
            except (FoldlineError, OSError) as error:
                if starting is not None and starting.done() and not starting.cancelled() and starting.exception():
                    raise
                self.screen.error(str(error))

    async def _turn(self, text: str) -> None:
        with self.screen.working("starting"):
            conversation = await self.conversation()
            await conversation.run_turn(text)
        await self._ask_at_threshold(conversation)

    async def _ask_at_threshold(self, conversation: AgentConversation) -> None:
        """S4.03: at the threshold the person is asked; nothing is compacted unasked."""
        from foldline.display import threshold_question

        figures = (await conversation.agent()).session.figures
        if not figures.asks:
            return
        try:
            answer = (await self.prompt.ask(threshold_question(figures))).strip()
        except (EOFError, KeyboardInterrupt):
            return
        if answer.lower() in ("y", "yes"):
            await self.compact(None)
        elif answer.lower() not in ("", "n", "no"):
            self._next = answer  # who goes on talking has said no, and has said something
