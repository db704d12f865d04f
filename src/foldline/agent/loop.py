"""The loop: call the model, run the tools it calls, repeat until it answers. Nothing here decides what to fold.

Every message is on disk before anything follows from it, and whatever ends a turn (an answer, a limit, a fault,
Ctrl-C) leaves a session whose next request is valid.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar, cast

from foldline.agent.events import Accepted, AgentEvent, Calling, EndReason, Listener, Notice, ReplyFinished, TurnEnded
from foldline.agent.server_speed import ServerSpeed
from foldline.agent.session import AgentSession
from foldline.agent.session_context import ranges_about
from foldline.agent.tool_calls import INTERRUPTED, run_calls
from foldline.agent.tools.base import CallScope, ToolOutcome
from foldline.agent.tools.toolbox import Toolbox
from foldline.agent.workers import owned_by
from foldline.codecs import codec as codec_for
from foldline.display import RunNotice
from foldline.engine.context import AsyncSummarize, Request
from foldline.engine.settings import COMPACT_THRESHOLD
from foldline.errors import DoesNotFit, FoldlineError, InvalidInput, ProviderError, SummaryError
from foldline.failures.failure import Failure
from foldline.messages import Message, Text
from foldline.providers.base import Provider, Reply, TextDelta
from foldline.store.call_log import usage_or_count
from foldline.tokens import ESTIMATE
from foldline.view.transcript import Fold, Usage

__all__ = ["MAX_ITERATIONS", "Agent", "RecordCall"]

MAX_ITERATIONS: Final = 50
"""Model calls in one turn (S0.08)."""

# Times that one refused request is sent again, smaller: as many as the ladder of recovery has rungs.
MAX_RECOVERIES: Final = 8

# Replies in a row that are discarded before the next one is recorded as it is: a server that always breaks off would
# otherwise be paid for ever.
MAX_DISCARDED: Final = 2

_COMPLETE: Final = ("stop", "tool_calls")
_REASONS: Final = {
    "length": "The answer was cut off at the output limit.",
    "refusal": "The model refused to answer.",
    "pause": "The model paused, and did not go on.",
    "malformed_call": "The model wrote calls that cannot be read.",
    "context_window": "The answer was cut off: the context window is full.",
    "failed": "The server broke off the answer.",
}

T = TypeVar("T")

RecordCall = Callable[[Request, Reply | None, Usage | None, str | None], Awaitable[None]]
"""Awaited after every model call with the request, the reply and its usage, or the error."""


@dataclass(slots=True, kw_only=True)
class Agent:
    """A model, its tools and a session. One turn at a time; `run` may be cancelled at any moment."""

    session: AgentSession
    provider: Provider
    toolbox: Toolbox
    scope: CallScope
    emit: Listener
    summarize: AsyncSummarize | None = None
    record: RecordCall | None = None
    max_iterations: int = MAX_ITERATIONS
    compact_threshold: float = COMPACT_THRESHOLD
    one_slot: bool = False
    """Whether the server works on one request at a time: then summaries are written ahead between turns alone."""
    speed: ServerSpeed | None = None
    """The speed of a local server, which takes the place of prices."""
    rests: bool = False
    """Whether the session is this agent's alone between two turns: then it folds before the cache expires."""
    at_rest: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]] | None = None
    """Runs that fold of a session that others may go on with between two turns; None: `rests` says whether it is."""
    _held: list[AgentEvent] = field(default_factory=list, init=False)
    _running: bool = field(default=False, init=False)
    _pausing: bool = field(default=False, init=False)

    def pause(self) -> None:
        """End the running turn once its current reply or tool calls are recorded. Without a turn, do nothing."""
        # Not mid-reply: the reply is paid for, and a call that has run must have its result recorded.
        self._pausing = self._running

    async def run(self, prompt: str, *, key: str = "") -> TurnEnded:
        """Run one turn, from the user's message to the answer.

        `key` is the client's own name for the turn: a client that lost its connection finds the turn by it. Refusals
        and faults do not raise; the turn ends and names them. Raises InvalidInput for an empty prompt or while a turn
        is running, and OSError for a full disk. A cancellation propagates after the session is in order.
        """
        if self._running:
            raise InvalidInput("a turn is running; wait for its end, or stop it", place="message")
        self._running, self._pausing = True, False
        try:
            # Threads are shared fairly between sessions, and a sub-agent counts as part of its session.
            with owned_by(self.session.stored.id if self.session.stored is not None else self.session):
                return await self._run(prompt, key)
        finally:
            self._running = False

    async def _run(self, prompt: str, key: str) -> TurnEnded:
        await self.session.wake()
        held, self._held = self._held, []
        for event in held:
            self.emit(event)
        if self.one_slot:  # it would have to wait for the summary, whose cache is as good without it
            self.session.stop_writing_ahead()
        await self.session.count_in_background(prompt)
        entry = self.session.add_user_message(prompt, key=key)
        # The end of a turn that no branch below names: an error of ours, or a full disk.
        ended = TurnEnded(reason="failed", message="The turn broke off.")
        try:
            await self.session.flush()
            self.emit(Accepted(entry.seq))
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
                self.session.end_turn(ended.reason)
                await self.session.flush()
                if self.one_slot and ended.reason == "done":
                    await self._write_ahead()
                self._rest()
            finally:  # even after a failed write: listeners wait for the end of the turn
                self.emit(ended)
        return ended

    async def _turn(self) -> TurnEnded:
        notice = RunNotice(self.compact_threshold)
        for iteration in range(1, self.max_iterations + 1):
            if self._pausing:
                return TurnEnded(reason="paused", message='Paused. Say "go on" to continue.', iterations=iteration - 1)
            reply = await self._reply(iteration)
            if reply.finish_reason == "pause" and reply.messages:
                # Sent back unchanged, the server continues it (Anthropic, "Handling stop reasons": pause_turn).
                continue
            if not reply.calls or not is_complete(reply):
                return end_of(reply, iteration)
            # All results are recorded in one write: a crash between two of them would leave an invalid history.
            outcomes = await run_calls(reply.calls, self.toolbox, self.scope, self.emit, self.session.record_results)
            await self.session.flush()
            await self._compact_if_requested(outcomes)
            if (text := notice.text(self.session.figures, continues=iteration < self.max_iterations)) is not None:
                self.session.add_notice(text)
        return TurnEnded(
            reason="iterations",
            text=reply.text,
            message=f'Stopped after {self.max_iterations} model calls in one turn. Say "go on" to continue from here.',
            iterations=self.max_iterations,
        )

    # --- the model ---------------------------------------------------------------------------------------------------

    async def _reply(self, iteration: int) -> Reply:
        """Return the model's next reply, recorded.

        A refused request is made smaller and sent again; an unusable reply is discarded, and its request sent again.
        """
        refusals = discarded = 0
        while True:
            request = await self._prepared()
            # Announced after folding, so that users see the size that is sent and not the size before.
            size_bytes = self.session.context.view.content_bytes
            calling = Calling(
                messages=len(request.messages), size_bytes=size_bytes, tokens=request.tokens, iteration=iteration
            )
            self.emit(calling)
            try:
                reply = await stream_reply(self.provider, request, self.emit, self._record_partial)
            except ProviderError as error:
                await self._log_call(request, None, None, str(error))
                if isinstance(error, ReplyInterrupted):
                    raise  # the user has seen half an answer, so that another one may not follow it
                failure = error.failure
                recovery = await self._fitted(partial(self.session.recover, failure, self.summarize))
                if not recovery.retry or refusals == MAX_RECOVERIES:
                    raise
                refusals += 1
                # The notice comes first: the model learns what changed in its history before it sees it.
                if recovery.notice is not None:
                    self.session.add_notice(recovery.notice)
                default = f"The request was refused ({error.failure.kind}); sent again."
                self.emit(Notice(recovery.notice or recovery.told or default))
            else:
                if discarded < MAX_DISCARDED and await self._discards(request, reply):
                    discarded += 1
                    continue
                recorded = await self._record_reply(request, reply)
                await self.session.flush()
                if not self.one_slot:
                    await self._write_ahead()
                return recorded

    async def _prepared(self) -> Request:
        """The next request. A fold is the time to change which tools are in short form: the prefix changes with it."""
        self._settle_tools(folded=False)
        request = await self._fitted(lambda: self.session.prepare(self.summarize))
        if self._settle_tools(folded=any(isinstance(fold, Fold) and not fold.form for fold in request.folds)):
            request = replace(await self.session.prepare(self.summarize), folds=request.folds)
        return request

    async def _fitted(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do what may raise DoesNotFit; once more with all tools in short form where that was the reason."""
        try:
            return await work()
        except DoesNotFit:
            if self.toolbox.forms is None or not self.toolbox.forms.shorten():
                raise
            self.session.set_tools(self.toolbox.wires(self.provider.dialect))
            return await work()

    def _settle_tools(self, *, folded: bool) -> bool:
        changed = self.toolbox.forms is not None and self.toolbox.forms.settle(folded=folded)
        if changed:
            self.session.set_tools(self.toolbox.wires(self.provider.dialect))
        return changed

    def _rest(self) -> None:
        run, fold = self.at_rest, self._fold_before_cold
        if self.summarize is not None and (self.rests or run is not None):
            self.session.rest(fold if run is None else partial(run, fold))

    async def _fold_before_cold(self) -> None:
        """Fold while the user is away. Its events are emitted with the next turn: nobody follows them now."""
        if self.summarize is None:
            return
        self.session.listen(self._held.append)
        try:
            await self.session.fold_before_cold(self.summarize)
        except (OSError, FoldlineError) as error:  # nobody waits for this task, which would take it along unseen
            self._held.append(Notice(f"The session could not be folded while it rested: {error}"))
        finally:
            self.session.listen(self.emit)

    async def _write_ahead(self) -> None:
        """Begin to write the summary of the next fold while the prefix is warm, if it is time for one."""
        if self.summarize is not None and (failure := await self.session.write_ahead(self.summarize)):
            self.emit(Notice(f"The next summary could not be written ahead: {failure}"))

    async def _discards(self, request: Request, reply: Reply) -> bool:
        """Return whether to discard a reply and send its request again; folds first where the window was full."""
        notice = retry_reason(reply)
        if reply.finish_reason == "context_window":
            full = Failure("prompt_overflow", message="the reply ended because the context window is full")
            try:
                recovery = await self.session.recover(full, self.summarize)
            except DoesNotFit:  # nothing may be folded, so half an answer is better than none
                return False
            if recovery.notice is not None:
                self.session.add_notice(recovery.notice)
            notice = "The answer was cut off: the context window is full. Folded, and asked again."
        if notice is None:
            return False
        await self._log_call(request, None, None, f"the reply ended as {reply.finish_reason}")
        self.emit(Notice(notice))
        return True

    def _record_partial(self, streamed: str) -> bool:
        """Record the words of a reply that broke off. Returns whether there were any."""
        if not (text := streamed.strip()):
            return False
        words = Message("assistant", (Text(f"{text}\n{INTERRUPTED}"),))
        self.session.record([codec_for(self.provider.dialect).write(words)])
        return True

    async def _record_reply(self, request: Request, reply: Reply) -> Reply:
        """Record a reply and its usage. Returns it with the ids of its calls as they will be sent back."""
        sent = [call.id for entry in self.session.record(reply.messages) for call in entry.message.calls]
        # Some servers report no usage; an estimate replaces it, marked as one.
        written = sum(ESTIMATE.text(call.arguments) for call in reply.calls) + ESTIMATE.text(reply.text)
        counted = usage_or_count(reply.usage, prompt_tokens=request.tokens, completion_tokens=max(1, written))
        usage = self.session.observe(counted)
        if self.speed is not None and usage.reported:
            self.speed.observe(usage, first_seconds=reply.first_seconds, seconds=reply.seconds, timings=reply.timings)
            self.session.context.use_cache_rule(self.speed.rule)
        self.emit(
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
        await self._log_call(request, reply, usage, None)
        # Some servers give all calls of a reply one id; pairing made them distinct when it recorded them.
        if len(sent) != len(reply.calls):
            return reply
        pairs = zip(reply.calls, sent, strict=True)
        return replace(reply, calls=tuple(replace(call, id=call_id) for call, call_id in pairs))

    async def _log_call(self, request: Request, reply: Reply | None, usage: Usage | None, error: str | None) -> None:
        if self.record is not None:
            await self.record(request, reply, usage, error)

    async def _compact_if_requested(self, outcomes: Sequence[ToolOutcome]) -> None:
        """Compact if a tool's outcome requests it, after the results are recorded (S4.10).

        The request is a typed field: the text of a result is data, and could come from anybody.
        """
        requested = next((outcome.compact for outcome in outcomes if outcome.compact is not None), None)
        if requested is None:
            return
        try:
            if requested.ranges or requested.topic:
                ranges = requested.ranges or ranges_about(self.session.context, requested.topic)
                await self.session.fold(ranges, requested.instructions, self.summarize)
            else:
                await self.session.compact(requested.instructions, self.summarize)
        except (SummaryError, InvalidInput) as error:
            self.session.add_notice(f"[The conversation could not be compacted: {error.reason}]")


class ReplyInterrupted(ProviderError):  # noqa: N818 - says what happened, like DoesNotFit
    """A reply broke off after some of it was shown and recorded: a retry would continue from half a sentence."""


async def stream_reply(
    provider: Provider, request: Request, emit: Listener, record_partial: Callable[[str], bool]
) -> Reply:
    """Send a request, emit what streams in, and return the whole reply.

    If the stream breaks off, `record_partial` gets the words so far and says whether there were any. Raises
    ProviderError; ReplyInterrupted once words were recorded.
    """
    words: list[str] = []
    try:
        async with aclosing(cast("Any", provider.stream(request))) as stream:
            async for piece in stream:
                if isinstance(piece, Reply):
                    return piece
                if isinstance(piece, TextDelta):
                    words.append(piece.text)
                emit(piece)
    except asyncio.CancelledError:  # while the stream closes too, though the whole reply has come
        record_partial("".join(words))
        raise
    except ProviderError as error:
        if record_partial("".join(words)):
            raise ReplyInterrupted(error.failure) from error
        raise
    raise AssertionError("a stream ends with its reply, or raises")


def is_complete(reply: Reply) -> bool:
    """Return whether the model finished the reply. The calls of any other reply may be cut off."""
    return reply.finish_reason in (*_COMPLETE, "length")


def retry_reason(reply: Reply) -> str | None:
    """Return why the same request is worth sending again, as a sentence for the user; None if it is not.

    Retried are calls that cannot be read, and a reply without a word that the server gave up. Words that were shown
    stay: a second answer would stand beside half of the first.
    """
    if reply.finish_reason == "malformed_call" or (_lost_calls(reply) and not reply.text.strip()):
        return "The model wrote a call that cannot be read; asked again."
    given_up = not reply.text.strip() and reply.finish_reason not in (*_COMPLETE, "length", "refusal", "context_window")
    return f"The server ended the reply without an answer ({reply.finish_reason}); asked again." if given_up else None


def _lost_calls(reply: Reply) -> bool:
    """Return whether the server says that a reply ends with calls but sent none: it could not read them."""
    return reply.finish_reason == "tool_calls" and not reply.calls


def end_of(reply: Reply, iteration: int) -> TurnEnded:
    """Return the end of a turn by this reply. A reply without a normal finish reason is a failure."""
    # "tool_calls" without calls must not count as done: the model meant to go on.
    finish = "malformed_call" if _lost_calls(reply) else reply.finish_reason
    reason: EndReason = "done" if finish in _COMPLETE else "failed"
    if finish == "length":
        reason = "length"
    elif finish == "refusal":
        reason = "refusal"
    message = "" if reply.text.strip() else "The model said nothing."
    if finish not in _COMPLETE:
        message = _REASONS.get(finish, f"The server ended the answer for a reason of its own: {finish[:80]}.")
    return TurnEnded(reason=reason, text=reply.text, message=message, iterations=iteration)
