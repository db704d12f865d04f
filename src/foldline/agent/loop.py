"""The loop: ask the model, run the tools it calls, go on until it answers. Nothing here decides what to fold.

Every message is on the disk before anything follows from it, and whatever ends a turn (an answer, a limit, a fault,
Ctrl-C) leaves a session whose next request is valid.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from foldline.agent.events import Accepted, Calling, Listener, Notice, ReplyFinished, TurnEnded
from foldline.agent.replies import BrokenOffError, answered, asks_again, is_whole, streamed
from foldline.agent.session import AgentSession
from foldline.agent.tool_calls import INTERRUPTED, run_calls
from foldline.agent.tools.base import CallScope, ToolOutcome
from foldline.agent.tools.toolbox import Toolbox
from foldline.agent.workers import owned_by
from foldline.codecs import codec as codec_for
from foldline.display import RunNotice
from foldline.engine.context import AsyncSummarize, Request
from foldline.engine.settings import COMPACT_THRESHOLD
from foldline.errors import DoesNotFit, InvalidInput, ProviderError, SummaryError
from foldline.failures import Failure
from foldline.messages import Message, Text
from foldline.providers.base import Provider, Reply
from foldline.store.call_log import usage_or_count
from foldline.tokens import ESTIMATE
from foldline.view.transcript import Usage

__all__ = ["MAX_ITERATIONS", "Agent", "RecordCall"]

MAX_ITERATIONS: Final = 50
"""Model calls in one turn (S0.08)."""

# Refusals of one request that are answered by a smaller one: as many as the ladder has rungs.
MAX_RECOVERIES: Final = 8

# Replies of one turn in a row that were thrown away, after which the next one counts as it is.
MAX_ASKED_AGAIN: Final = 2

RecordCall = Callable[[Request, Reply | None, Usage | None, str | None], Awaitable[None]]
"""Told of every model call, and waited for: the request, the reply and its usage, or the error."""


@dataclass(slots=True, kw_only=True)
class Agent:
    """A model, its tools and a session. One turn at a time; `run` may be cancelled at any moment."""

    session: AgentSession
    provider: Provider
    toolbox: Toolbox
    scope: CallScope
    tell: Listener
    summarize: AsyncSummarize | None = None
    record: RecordCall | None = None
    max_iterations: int = MAX_ITERATIONS
    compact_threshold: float = COMPACT_THRESHOLD
    _running: bool = field(default=False, init=False)
    _pausing: bool = field(default=False, init=False)

    def pause(self) -> None:
        """End the turn that runs once the reply or the tool calls that are under way are recorded. Else nothing."""
        self._pausing = self._running

    async def run(self, prompt: str, *, key: str = "") -> TurnEnded:
        """One turn: from what the user says to the answer. Raises InvalidInput (no words; a turn is running), OSError.

        `key` is the client's own name for it, by which it is found again if the client could not hear of its end.
        Refusals and faults do not raise: the turn ends and says so. A cancellation propagates, after the session has
        been left in order; so does what nobody foresaw, and a full disk.
        """
        if self._running:
            raise InvalidInput("a turn is running; wait for its end, or stop it", place="message")
        self._running, self._pausing = True, False
        try:
            with owned_by(self.session.stored.id if self.session.stored is not None else self.session):
                return await self._run(prompt, key)
        finally:
            self._running = False

    async def _run(self, prompt: str, key: str) -> TurnEnded:
        await self.session.count_ahead(prompt)
        said = self.session.say(prompt, key=key)
        ended = TurnEnded(reason="failed", message="The turn broke off.")
        try:
            await self.session.written()
            self.tell(Accepted(said.seq))
            ended = await self._turn()
        except DoesNotFit as error:
            ended = TurnEnded(reason="does_not_fit", message=str(error))
        except ProviderError as error:
            ended = TurnEnded(reason="failed", message=str(error))
        except asyncio.CancelledError:
            ended = TurnEnded(reason="cancelled", message="Stopped.")
            raise
        finally:
            try:
                self.session.end(ended.reason)
                await self.session.written()
            finally:  # a full disk or not: whoever listens waits for it
                self.tell(ended)
        return ended

    async def _turn(self) -> TurnEnded:
        notice = RunNotice(self.compact_threshold)
        for iteration in range(1, self.max_iterations + 1):
            if self._pausing:
                return TurnEnded(reason="paused", message='Paused. Say "go on" to continue.', iterations=iteration - 1)
            reply = await self._reply(iteration)
            if reply.finish_reason == "pause" and reply.messages:
                continue  # sent back as it is, the server goes on (Anthropic, "Handling stop reasons": pause_turn)
            if not reply.calls or not is_whole(reply):
                return answered(reply, iteration)
            outcomes = await run_calls(reply.calls, self.toolbox, self.scope, self.tell, self.session.record_results)
            await self.session.written()
            await self._compact_if_asked(outcomes)
            if (text := notice.text(self.session.figures, goes_on=iteration < self.max_iterations)) is not None:
                self.session.note(text)
        return TurnEnded(
            reason="iterations",
            text=reply.text,
            message=f'Stopped after {self.max_iterations} model calls in one turn. Say "go on" to continue from here.',
            iterations=self.max_iterations,
        )

    # --- the model ---------------------------------------------------------------------------------------------------

    async def _reply(self, iteration: int) -> Reply:
        """The model's next reply, recorded. What is refused is changed and sent again; what is none, asked again."""
        refused = again = 0
        while True:
            request = await self.session.prepare(self.summarize)
            size_bytes = self.session.context.view.content_bytes
            calling = Calling(
                messages=len(request.messages), size_bytes=size_bytes, tokens=request.tokens, iteration=iteration
            )
            self.tell(calling)
            try:
                reply = await streamed(self.provider, request, self.tell, self._keep)
            except ProviderError as error:
                await self._recorded(request, None, None, str(error))
                if isinstance(error, BrokenOffError):
                    raise
                recovery = await self.session.recover(error.failure, self.summarize)
                if not recovery.retry or refused == MAX_RECOVERIES:
                    raise
                refused += 1
                if recovery.notice is not None:
                    self.session.note(recovery.notice)
                told = f"The request was refused ({error.failure.kind}); sent again."
                self.tell(Notice(recovery.notice or recovery.told or told))
            else:
                if again < MAX_ASKED_AGAIN and await self._throws_away(request, reply):
                    again += 1
                    continue
                taken = await self._take(request, reply)
                await self.session.written()
                return taken

    async def _throws_away(self, request: Request, reply: Reply) -> bool:
        """Whether a reply that is none is asked for again, after what it takes to get a better one."""
        told = asks_again(reply)
        if reply.finish_reason == "context_window":
            full = Failure("prompt_overflow", message="the reply ended because the context window is full")
            try:
                recovery = await self.session.recover(full, self.summarize)
            except DoesNotFit:  # nothing may go: what there is of the answer is kept
                return False
            if recovery.notice is not None:
                self.session.note(recovery.notice)
            told = "The answer was cut off: the context window is full. Folded, and asked again."
        if told is None:
            return False
        await self._recorded(request, None, None, f"the reply ended as {reply.finish_reason}")
        self.tell(Notice(told))
        return True

    def _keep(self, said: str) -> bool:
        """Record the words of a reply that broke off; whether there were any."""
        if not (text := said.strip()):
            return False
        words = Message("assistant", (Text(f"{text}\n{INTERRUPTED}"),))
        self.session.record([codec_for(self.provider.dialect).write(words)])
        return True

    async def _take(self, request: Request, reply: Reply) -> Reply:
        """Record a reply. Its calls come back under the ids that are sent: some servers use one id for all of them."""
        sent = [call.id for entry in self.session.record(reply.messages) for call in entry.message.calls]
        written = sum(ESTIMATE.text(call.arguments) for call in reply.calls) + ESTIMATE.text(reply.text)
        counted = usage_or_count(reply.usage, prompt_tokens=request.tokens, completion_tokens=max(1, written))
        usage = self.session.observe(counted)
        self.tell(
            ReplyFinished(
                text=reply.text,
                calls=len(reply.calls),
                finish_reason=reply.finish_reason,
                prompt_tokens=usage.input_tokens,
                expected_tokens=request.tokens,
                completion_tokens=usage.output_tokens,
                cached_tokens=usage.cached_tokens,
                estimated=not usage.reported,
                seconds=reply.seconds,
                figures=self.session.figures,
            )
        )
        await self._recorded(request, reply, usage, None)
        if len(sent) != len(reply.calls):
            return reply
        pairs = zip(reply.calls, sent, strict=True)
        return replace(reply, calls=tuple(replace(call, id=call_id) for call, call_id in pairs))

    async def _recorded(self, request: Request, reply: Reply | None, usage: Usage | None, error: str | None) -> None:
        if self.record is not None:
            await self.record(request, reply, usage, error)

    async def _compact_if_asked(self, outcomes: Sequence[ToolOutcome]) -> None:
        """Compact once the results are recorded, where a tool's typed outcome wishes it (S4.10); text cannot."""
        wish = next((outcome.compact for outcome in outcomes if outcome.compact is not None), None)
        if wish is None:
            return
        try:
            await self.session.compact(wish.instructions, self.summarize)
        except SummaryError as error:
            self.session.note(f"[The conversation could not be compacted: {error.reason}]")
