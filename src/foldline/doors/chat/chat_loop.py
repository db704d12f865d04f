"""The loop of a chat: read a line, run a turn or a command, show the result, until the person leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from shlex import quote
from typing import TYPE_CHECKING, Any

from foldline.doors.chat.commands import run_command
from foldline.doors.chat.interrupts import Interrupts, LeaveError
from foldline.doors.chat.prompt import PromptInput
from foldline.doors.chat.startup import Chat, open_conversation, print_banner, print_model, refresh_screen
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
        # Ctrl-C has three targets: the line being typed, a question, and running work. Each is set by its owner.
        self._interrupts.on_idle = prompt.abort
        chat.consent.stop = self._interrupts.stop
        self._stack = AsyncExitStack()
        self._opening: asyncio.Task[AgentConversation] | None = None
        self._next_line = ""  # an answer to a question that was in fact the next message

    async def run(self) -> int:
        """Run the whole chat. Raises FoldlineError and OSError if it cannot begin."""
        code, left = 0, None
        with self._interrupts.installed():
            # The stack inside: closing it may print, and the screen is still alive then.
            async with refresh_screen(self.screen), self._stack:
                print_banner(self.chat)
                # A task of its own: the person can type while models and modules load.
                self._opening = asyncio.create_task(self._stack.enter_async_context(open_conversation(self.chat)))
                self._opening.add_done_callback(self._on_opened)
                try:
                    await self._read_lines()
                except LeaveError as leave:
                    code = leave.code
                finally:
                    if not self._opening.done():
                        self._opening.cancel()
                    # Gathered even after a cancellation: the stack must not close what the opening still uses.
                    (conversation,) = await asyncio.gather(self._opening, return_exceptions=True)
                    if not isinstance(conversation, BaseException) and conversation.started:
                        left = self._resume_arguments(conversation)
        if left is not None:
            self.screen.line(f"To go on: foldline chat --resume {left}", "dim")
        return code

    async def conversation(self) -> AgentConversation:
        """Wait for the conversation to be open. Raises the error of the opening."""
        if self._opening is None:
            raise RuntimeError("the conversation is not open")
        # Shielded: Ctrl-C during a command must not cancel the opening, which later commands need.
        return await asyncio.shield(self._opening)

    async def compact(self, instructions: str | None) -> None:
        """Compact the session; show the summary and the new figures."""
        from foldline.display import compacted, summary_of

        conversation = await self.conversation()
        agent = await conversation.agent()
        # Without a summariser a compaction costs no model call, and the person should know which it is.
        how = "folding by digest" if agent.summarize is None else "summarising"
        with self.screen.working(how):
            try:
                folds = await agent.session.compact(instructions, agent.summarize)
            except SummaryError as error:
                self.screen.error(f"not compacted: {error.reason}")
                return
            finally:
                # Also after Ctrl-C or an error: folds that were made before it are in effect.
                conversation.save(agent)
        # A digest has no summary: its own text is what the model reads.
        shown = summary_of(folds) or "\n\n".join(fold.shown[0].text for fold in folds if fold.shown)
        self.screen.line(compacted(agent.session.figures, shown))

    async def confirm(self, question: str) -> bool:
        """Ask a question; only yes is yes."""
        # A closed terminal or Ctrl-C is no consent.
        try:
            answer = await self.prompt.ask(question)
        except (EOFError, KeyboardInterrupt):
            return False
        return answer.strip().lower() in ("y", "yes")

    # --- inside ------------------------------------------------------------------------------------------------------

    def _resume_arguments(self, conversation: AgentConversation) -> str | None:
        """The arguments of `--resume` that find this session again; None if it is not on disk."""
        store = conversation.store
        if conversation.id is None or store is None:
            return None
        return f"{conversation.id} --store {quote(store.place)}" if self.chat.storage.named else conversation.id

    def _on_opened(self, opening: asyncio.Task[AgentConversation]) -> None:
        if opening.cancelled():
            return
        error = opening.exception()
        # It ends the wait for a line: `_read_lines` raises it, and nobody is left at a prompt without a chat.
        if error is not None:
            self.prompt.abort(error)
            return
        conversation = opening.result()
        self.screen.model = conversation.runtime.provider.model
        # The person may be in the middle of a line by now.
        self.prompt.print_above(lambda: print_model(self.screen, conversation, asks=not self.consent.everything))

    async def _read_lines(self) -> None:
        """Handle line after line until the person leaves."""
        # A terminal that cannot redraw would mix the lines about the model with what is being typed.
        if not self.prompt.redraws:
            await self._interrupts.run(self.conversation())
        while True:
            try:
                typed = self._next_line or await self.prompt.line()
                self._next_line = ""
            except KeyboardInterrupt:
                if self._interrupts.pressed():
                    return
                self.screen.line("Ctrl-C again leaves, so does Ctrl-D.", "dim")
                continue
            except EOFError:
                return
            if typed.strip():
                await self._dispatch(typed)

    async def _dispatch(self, typed: str) -> None:
        if typed.startswith("/") and not typed.startswith("//"):
            await self._run_guarded(run_command(self, typed))
        else:
            await self._run_guarded(self._turn(typed[1:] if typed.startswith("//") else typed))

    async def _run_guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work that Ctrl-C cancels; an error in it is one line."""
        # What the person types meanwhile is not echoed, or it would be mixed with the answer.
        opening = self._opening
        with self.prompt.silent():
            try:
                await self._interrupts.run(work)
            except (FoldlineError, OSError) as error:
                # An error of the opening ends the chat; one of a turn or command does not.
                if opening is not None and opening.done() and not opening.cancelled() and opening.exception():
                    raise
                self.screen.error(str(error))

    async def _turn(self, text: str) -> None:
        with self.screen.working("starting"):
            conversation = await self.conversation()
            await conversation.run_turn(text)
        await self._ask_at_threshold(conversation)

    async def _ask_at_threshold(self, conversation: AgentConversation) -> None:
        """Ask at the threshold whether to compact (S4.03). Nothing is compacted without a yes."""
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
            self._next_line = answer  # any other text is a no, and the next message
