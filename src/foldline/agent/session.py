"""The session of an agent: a context whose events are on disk before anything acts on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import PurePath
from typing import Any, Literal

from foldline.agent.ahead_writer import AheadWriter
from foldline.agent.events import Listener
from foldline.agent.session_context import BackgroundCounter, GatedListener, RecallableArchive, RunSettings
from foldline.agent.tool_calls import INTERRUPTED, open_calls, result_messages
from foldline.agent.workers import FOLDS, run_to_end, until_stopped
from foldline.codecs import codec as codec_for
from foldline.engine.ahead import chance_of_return
from foldline.engine.context import AsyncSummarize, Context, Request
from foldline.engine.events import ContextEvent
from foldline.engine.excerpts import entry_excerpt, search
from foldline.engine.recovery import Recovery
from foldline.engine.window_usage import WindowUsage
from foldline.errors import InvalidInput
from foldline.failures.failure import Failure
from foldline.messages import Json, Message, Text, ToolCall, Wire
from foldline.store.base import StoredSession
from foldline.store.clock import IdleTimer, seconds_since
from foldline.text.safe_regex import Work
from foldline.view.archive import MemoryArchive
from foldline.view.standing_rules import StandingRule
from foldline.view.transcript import Entry, Event, Fold, Limited, Seq, Unfold, Usage

__all__ = ["RESULT_LOST", "AgentSession"]

RESULT_LOST = "[no result was kept: the process ended before it was written down]"
"""The result of a call that has none when a session is opened again. The call may have run to its end."""


class AgentSession:
    """The events of a session, and the context that is built from them.

    With `stored`, the events of a method are on disk when it returns, and folded messages leave memory; they are read
    back on demand. Without it the session lives as long as the process. Methods that write raise OSError (a full disk);
    the next event then writes the rest.

    `writes_in_thread` is for an event loop with several sessions: events are on disk once `flush` was awaited, which
    coroutines do themselves, and large histories are folded in a thread. Other readers meanwhile see the session as it
    is between two folds.
    """

    def __init__(
        self,
        settings: RunSettings,
        *,
        stored: StoredSession | None = None,
        listen: Listener | None = None,
        learned: MutableMapping[tuple[str, str], int] | None = None,
    ) -> None:
        self.settings = settings
        self.stored = stored
        self.learned = {} if learned is None else learned
        self.writes_in_thread = False
        self.instructions: StandingRule | None = None  # the project's own, in the system text
        self._turns: list[tuple[int, Literal["begun", "ended"], dict[str, Json]]] = []
        self._listener = listen
        self._originals = stored.archive if stored is not None else MemoryArchive()
        self._archive, self._counter = RecallableArchive(self._originals), BackgroundCounter(settings.counter)
        self._writer, self._cold_returns = AheadWriter(), 0  # how often it went on after its cache had expired
        self._idle = IdleTimer(seconds_since(stored.tally.updated) if stored is not None else 0.0)
        self._context = self._build_context(tuple(stored.events()) if stored is not None else (), settings)
        self._written = self._context.event_count
        if stored is not None:
            self._context.release()  # so that a session of months takes only the memory of its window
        # A process that ended between a reply and its results leaves calls that every provider would refuse.
        self._answer_open_calls(RESULT_LOST)

    # --- state ------------------------------------------------------------------------------------------------------

    @property
    def context(self) -> Context:
        """The current context. Another object after `switch`, and after an `undo` of folds that left memory."""
        return self._context

    @property
    def figures(self) -> WindowUsage:
        """The usage of the window."""
        return self._context.figures

    @property
    def empty(self) -> bool:
        """Whether the session has no events."""
        return self._context.event_count == 0

    def listen(self, listener: Listener | None) -> None:
        """Send further events to another listener."""
        self._listener = listener

    # --- recording ---------------------------------------------------------------------------------------------------

    def add_user_message(self, text: str, *, key: str = "") -> Entry:
        """Begin a turn with a message of the user; `key` as in `Agent.run`. Raises InvalidInput for an empty one."""
        if not text.strip():
            raise InvalidInput("there is nothing in it", place="message")
        # A full disk can leave a recorded reply whose calls never ran.
        self._answer_open_calls(INTERRUPTED)
        # Before the message: a turn without one is harmless, but a client repeats a message whose key it cannot find.
        self._record_turn("begun", **({"key": key} if key else {}))
        return self.record([codec_for(self.settings.dialect).write(Message("user", (Text(text),)))])[0]

    def end_turn(self, reason: str) -> None:
        """Record the end of the turn and its reason."""
        self._record_turn("ended", reason=reason)

    async def count_in_background(self, text: str) -> None:
        """Count a message in a thread before it is recorded, if other sessions share the loop. O(its size)."""
        if self.writes_in_thread:
            await self._counter.count_in_background(text)

    async def flush(self) -> None:
        """Wait until all events are on disk. Raises OSError, SessionLost."""
        if self.writes_in_thread and (self._turns or self._written < self._context.event_count):
            await run_to_end(self._write_pending)

    def add_notice(self, text: str) -> Entry:
        """Record a notice to the model: a user message that no user wrote."""
        note = codec_for(self.settings.dialect).note(text)
        return self.record([codec_for(self.settings.dialect).write(note)], kind="notice")[0]

    def record(self, wires: Sequence[Wire], *, kind: str = "") -> list[Entry]:
        """Record messages, given as JSON of the dialect, in one write."""
        entries = [self._context.append(wire, kind=kind) for wire in wires]
        self._counter.clear()
        self._write()
        return entries

    def record_results(self, results: Sequence[tuple[ToolCall, str, bool]]) -> list[Entry]:
        """Record results of calls, each as (call, text, whether it is an error)."""
        return self.record(result_messages(self.settings.dialect, results))

    def observe(self, usage: object) -> Usage:
        """Record the usage that the provider reported for the last request."""
        found = self._context.observe(usage)
        self._idle.reset()
        self._write()
        return found

    # --- sending and folding -----------------------------------------------------------------------------------------

    async def prepare(self, summarize: AsyncSummarize | None = None) -> Request:
        """Return the next request, its folds on disk. Raises DoesNotFit."""
        async with self._folding():
            self._cold_returns += self.is_cold
            request = await self._context.prepare_async(summarize, idle_seconds=self._idle.seconds)
            self._idle.reset()  # not before: a request that was not built keeps no cache warm
            return request

    async def recover(self, failure: Failure, summarize: AsyncSummarize | None = None) -> Recovery:
        """Recover from a refusal: learn its limit, and fold. Raises DoesNotFit when nothing is left to try."""
        async with self._folding():
            return await self._context.recover_async(failure, summarize)

    async def compact(self, instructions: str | None, summarize: AsyncSummarize | None) -> tuple[Fold, ...]:
        """Fold all that may be folded, into a summary or, without a model, a digest. Raises SummaryError."""
        async with self._folding():
            return await self._context.compact_async(instructions, summarize=summarize, idle_seconds=self._idle.seconds)

    async def write_ahead(self, summarize: AsyncSummarize) -> str:
        """Begin to write the next fold's summary if it is time; turns go on. Returns why the last one failed, once."""
        failure = self._writer.new_failure(self._context.ahead)
        await self._writer.begin(self._context.ahead, summarize, self._idle.seconds)
        return failure

    def rest(self, fold: Callable[[], Awaitable[object]]) -> None:
        """Call `fold` shortly before the provider's cache expires, unless the session goes on before (`wake`)."""
        self._writer.rest(self._context.cache_lifetime_seconds, self._idle.seconds, fold)

    @property
    def is_cold(self) -> bool:
        """Whether the provider's cache has expired since the last request."""
        return 0 < self._context.cache_lifetime_seconds <= self._idle.seconds

    async def wake(self) -> None:
        """End the rest of the session: a fold that has begun meanwhile is ended first."""
        await self._writer.awake()

    async def fold_before_cold(self, summarize: AsyncSummarize) -> tuple[Fold, ...]:
        """Fold where that pays, as the cache is about to expire. By how often the session went on after such a rest."""
        async with self._folding():
            chance = chance_of_return(self._cold_returns)
            return await self._context.ahead.fold_before_cold_async(summarize, chance=chance)

    def stop_writing_ahead(self) -> None:
        """Stop writing a summary. Call it before a session is left, in the thread of its event loop."""
        self._writer.cancel()

    async def fold(
        self, ranges: Sequence[tuple[Seq, Seq]], instructions: str | None, summarize: AsyncSummarize | None
    ) -> tuple[Fold, ...]:
        """Fold chosen entries, as `Context.fold` does. Raises InvalidInput, SummaryError."""
        async with self._folding():
            return await self._context.fold_async(*ranges, instructions=instructions, summarize=summarize)

    def rewind(self, seq: Seq) -> int:
        """Go back to before a message; how many are left. O(log) if messages have left memory. Raises InvalidInput."""
        self._reload()
        count = self._context.rewind(seq)
        self._write_pending()
        return count

    def go_back(self, tip: Seq) -> int:
        """Go on from the end of a left branch; how many messages are back. O(log). Raises InvalidInput."""
        self._reload()
        count = self._context.branches.go_back(tip)
        self._write_pending()
        return count

    def undo(self) -> tuple[Unfold, ...]:
        """Undo the last batch of folds. O(log) if the messages they cover have left memory."""
        self._reload()
        unfolds = self._context.undo()
        self._write_pending()
        return unfolds

    def pin(self, seq: Seq, *, pinned: bool = True) -> None:
        """Exempt the group of an entry from folding. Raises InvalidInput, and FoldRefused if it is folded already."""
        if seq not in self._context.view.entries:
            self._reload()
        self._context.pin(seq, pinned=pinned)
        self._write_pending()

    def set_tools(self, tools: Sequence[Mapping[str, Any]]) -> None:
        """Send these definitions from now on. O(their size)."""
        self.settings = replace(self.settings, tools=tools)
        self._context.set_system_and_tools(system=self.settings.system, tools=tools)

    def switch(self, settings: RunSettings) -> None:
        """Continue under other settings of the same dialect: model, policy, window, tools. O(log).

        Folds stay. Learned limits stay with their server and model. Raises InvalidInput for another dialect.
        """
        if settings.dialect != self.settings.dialect:
            raise InvalidInput(
                f"this session speaks {self.settings.dialect}, that model {settings.dialect}; "
                "begin a new session for it",
                place="model",
            )
        same = (settings.endpoint, settings.model) == (self.settings.endpoint, self.settings.model)
        self._write_pending()  # after a full disk: below, the session is rebuilt from its log alone
        # A learned limit belongs to a server and its model, and would cut the window of another.
        events = [event for event in self._all_events() if same or not isinstance(event, Limited)]
        context = self._build_context(events, settings)
        # Built first: if it fails, neither the file nor this object has changed.
        if self.stored is not None:
            self.stored.change(model=settings.model, policy=settings.policy.name)
        self.settings, self._context = settings, context
        self._written = context.event_count

    # --- reading back ------------------------------------------------------------------------------------------------

    def peek(
        self, seq: Seq, *, start_line: int = 1, start_char: int = 1, lines: int = 50, call_id: str | None = None
    ) -> str:
        """Return lines of an entry as it was recorded, from memory or disk. Raises InvalidInput."""
        part: dict[str, Any] = {"start_line": start_line, "start_char": start_char, "lines": lines, "call_id": call_id}
        if seq in self._context.view.entries:
            return self._context.peek(seq, **part)
        found = {entry.seq: entry for entry in self._entries() if entry.seq == seq}
        return entry_excerpt(codec_for(self.settings.dialect), found, seq, **part)

    def saved(self, name: str) -> str:
        """Return an archived output, by its SHA-256 or its path. Raises InvalidInput."""
        # A model copies the place from a notice, which is a path; its last part is the key.
        key = PurePath(name.strip()).name
        try:
            return self._archive.get(key).decode("utf-8", "surrogatepass")
        except (KeyError, UnicodeDecodeError):
            raise InvalidInput(f"no output is kept under {name[:100]!r}", place="saved") from None

    def grep(self, pattern: str, *, seq: Seq | None = None, work: Work | None = None) -> list[tuple[Seq, int, str]]:
        """Return (seq, line number, line) of each matching line of all entries. O(log). Raises InvalidInput.

        Like `peek`, it may run in another thread than the event loop, as long as nothing is recorded.
        """
        if not self._context.released or seq in self._context.view.entries:
            return self._context.grep(pattern, seq=seq, work=work)
        found = (entry for entry in self._entries() if seq is None or entry.seq == seq)
        return search(codec_for(self.settings.dialect), found, pattern, work)

    def explain(self, seq: Seq) -> tuple[Fold, ...]:
        """Return every fold in effect that covers an entry. O(log). Raises InvalidInput."""
        return self.whole().explain(seq)

    def whole(self) -> Context:
        """Return a context with all messages in memory: this one, or a replay if some have left it. O(log).

        Read-only: changes to it are not stored.
        """
        return (
            self._context
            if not self._context.released
            else self._build_context(self._all_events(), self.settings, quiet=True)
        )

    def save(self) -> None:
        """Write the snapshot of the session. Raises OSError; nothing depends on a snapshot."""
        if self.stored is not None:
            self.stored.save(self._context)

    def close(self) -> None:
        """Close the files, and stop writing a summary ahead. Idempotent."""
        self._writer.cancel()
        if self.stored is not None:
            self.stored.close()

    # --- storage ------------------------------------------------------------------------------------------------------

    def _build_context(self, events: Sequence[Event], settings: RunSettings, *, quiet: bool = False) -> Context:
        gate, archive = GatedListener(self._on_event), RecallableArchive(self._originals)
        counter = BackgroundCounter(settings.counter)
        # A counter of whole messages never asks for a single text, so that there is nothing to count ahead.
        counting: dict[str, Any] = {} if hasattr(settings.counter, "message") else {"counter": counter}
        context = settings.context(events, learned=self.learned, archive=archive, on_event=gate, **counting)
        gate.open = not quiet  # replayed events were emitted when they happened
        context.in_thread, context.ahead.wait = self._read_history, self._writer.wait
        if not quiet:
            self._archive, self._counter = archive, counter
        return context

    async def _read_history(self, read: Callable[[], Any]) -> Any:
        """Run a read of a large history, in a thread if other sessions share the loop."""
        # To its end even when cancelled: the context would otherwise change under a thread that still reads it.
        return await FOLDS.run(lambda _: read(), run_to_end=True) if self.writes_in_thread else read()

    def _on_event(self, event: ContextEvent) -> None:
        if self._listener is not None:
            self._listener(event)

    def _record_turn(self, state: Literal["begun", "ended"], **more: Json) -> None:
        if self.stored is not None:
            self._turns.append((self._context.event_count, state, more))
            self._write()

    def _write(self) -> None:
        if not self.writes_in_thread:
            self._write_pending()

    def _write_pending(self) -> None:
        """Write pending events in their order; the originals of folds before the folds."""
        # Before the events: a fold on disk whose original is missing could never be read back.
        self._archive.write()
        if self.stored is None:
            self._written = self._context.event_count
            return
        while self._turns:
            at, state, more = self._turns[0]
            self._append(at)
            del self._turns[0]  # even if it fails: a retry would put the mark of the turn at the wrong place
            self.stored.turn(state, **more)
        self._append(self._context.event_count)

    def _append(self, stop: int) -> None:
        if self.stored is not None and stop > self._written:
            self.stored.append(self._context.events_after(self._written)[: stop - self._written])
            self._written = stop

    @asynccontextmanager
    async def _folding(self) -> AsyncIterator[None]:
        self._archive.buffering = self.writes_in_thread
        try:
            yield
        finally:
            await self._store_folds()

    async def _store_folds(self) -> None:
        """Store new folds, then release what they cover."""
        # In this order: once released, a message can be read from disk alone.
        new = self._context.event_count - self._written
        self._write()
        await self.flush()
        if self.stored is not None and new:
            self._context.release()

    def _all_events(self) -> list[Event]:
        return list(self._context.events if self.stored is None else self.stored.events())

    def _entries(self) -> Iterator[Entry]:
        """Iterate over all entries, including those that left memory."""
        events = self._context.events if self.stored is None else self.stored.events()
        return (event for event in until_stopped(events) if isinstance(event, Entry))

    def _reload(self) -> None:
        if self._context.released:
            self._write_pending()  # after a full disk: the log on disk must be whole before it is replayed
            self._context = self._build_context(self._all_events(), self.settings)
            self._written = self._context.event_count

    def _answer_open_calls(self, result: str) -> None:
        """Give open calls a result that says so. Their side effects may have happened."""
        if waiting := open_calls(self._context):
            self.record_results([(call, result, True) for call in waiting])
