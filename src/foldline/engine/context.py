"""`Context`: one session inside its window. The object that agents, the proxy and replays drive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import replace
from typing import Any

from foldline.catalog.models import CacheRule
from foldline.codecs import codec as codec_for
from foldline.codecs.caps import Caps
from foldline.engine.cached_summary import Continuing
from foldline.engine.compaction import compact
from foldline.engine.drivers import AsyncSummarize, Completion, Continues, SummarizeWith, drive, drive_async
from foldline.engine.engine import Engine, Steps
from foldline.engine.events import ContextEvent, LimitLearned, SilentTruncation, UsageDoubted, contained
from foldline.engine.folding import Folding, InThread
from foldline.engine.learned_caps import caps_taught, heed, learning
from foldline.engine.lookup import grep, head
from foldline.engine.policy import Policy, remembering
from foldline.engine.policy import policy as policy_of
from foldline.engine.recovery import Recovery, recover
from foldline.engine.replaying import repeat, repeat_all
from foldline.engine.validation import checked
from foldline.engine.window_usage import Figures
from foldline.errors import InvalidInput
from foldline.failures import Failure
from foldline.messages import Wire, same_until, snapshot
from foldline.text.safe_regex import Work
from foldline.tokens import ESTIMATE, Counter
from foldline.view.archive import Archive, MemoryArchive, Originals
from foldline.view.budget import Limits, assumed_window, cache_rule_of, limited, limits_of
from foldline.view.economics import Rent
from foldline.view.request import Request
from foldline.view.system_and_tools import System, SystemAndTools, Tools
from foldline.view.transcript import Entry, Event, Fold, Pin, Seq, Unfold, Usage
from foldline.view.usage import UsageReports, usage_of
from foldline.view.view import View

__all__ = ["AsyncSummarize", "Completion", "Context", "Continues", "Request", "SummarizeWith"]


class Context:
    """A session: append what happens, send what `prepare` returns, report what the provider reported.

    `window` is the model's window in tokens (setting > `learned` for (endpoint, model) > catalogue > 128,000 with a
    warning). `auto=False` never folds: what does not fit raises DoesNotFit. Appending and preparing cost O(what is new)
    between folds.
    """

    def __init__(
        self,
        *,
        dialect: str = "openai-chat",
        model: str | None = None,
        policy: str | Policy = "balanced",
        window: int | None = None,
        max_output_tokens: int | None = None,
        system: System = None,
        tools: Tools = None,
        on_event: Callable[[ContextEvent], None] | None = None,
        auto: bool = True,
        endpoint: str = "",
        max_request_bytes: int | None = None,
        caps: Caps | None = None,
        counter: Counter = ESTIMATE,
        archive: Archive | None = None,
        cache_rule: CacheRule | None = None,
        learned: MutableMapping[tuple[str, str], int] | None = None,
        facts: Sequence[str] = (),
    ) -> None:
        checked(dialect=dialect, model=model, policy=policy, window=window, max_output_tokens=max_output_tokens)
        checked(system=system, tools=tools, max_request_bytes=max_request_bytes)
        checked(facts=facts, learned=learned, on_event=on_event)
        codec = codec_for(dialect)
        chosen = remembering(policy_of(policy), tuple(facts))
        self.model, self.endpoint, self.dialect = model, endpoint, dialect
        self._learned = learned if learned is not None else {}
        self._tell = contained(on_event)
        self._reports, self._cache_seconds, self._doubted = UsageReports(), 0, False
        self.in_thread: InThread | None = None
        """Where the async calls read a large history, for a loop that others share: nothing is recorded meanwhile."""
        known = window or self._learned.get((endpoint, model or "")) or assumed_window(model)
        limits = limits_of(known, model, max_output_tokens)
        beside = SystemAndTools(system, tools, counter)
        kept = MemoryArchive() if archive is None else archive
        view = View(codec, counter, base_tokens=beside.tokens, weighed=bool(max_request_bytes), where=kept.where)
        rule = cache_rule or cache_rule_of(model, dialect)
        self._engine = Engine(
            codec=codec,
            counter=counter,
            policy=chosen,
            limits=limits,
            originals=Originals(kept),
            view=view,
            beside=beside,
            tell=self._tell,
            rent=Rent(rule, keep=chosen.kept_share) if chosen.economical else None,
            auto=auto,
            max_request_bytes=max_request_bytes,
            caps=caps or caps_taught(self._learned, endpoint, model, dialect),
            continuing=Continuing(rule),
        )
        heed(self._engine, self._learned, endpoint, model)

    # --- recording ---------------------------------------------------------------------------------------------------

    def append(
        self, wire: Wire, *, agent_visible: bool = True, user_visible: bool = True, kind: str = "", pinned: bool = False
    ) -> Entry:
        """Record one message in its own JSON; it is kept, not copied. Raises InvalidInput. O(size of the message)."""
        message = self._engine.codec.read(wire)
        if not (agent_visible and user_visible and not kind):
            message = replace(message, agent_visible=agent_visible, user_visible=user_visible, kind=kind)
        entry = self._engine.take(message, wire)
        if pinned:
            self.pin(entry.seq)
        return entry

    def extend(self, wires: Iterable[Wire]) -> list[Entry]:
        """Record several messages."""
        return [self.append(wire) for wire in wires]

    def sync(self, wires: Sequence[Wire]) -> list[Entry]:
        """Take up a whole history from a framework that owns it: only what is new is recorded.

        Where it differs from what was recorded, the session forks there: what was left stays in the log and is sent no
        longer. What is recorded is a copy, so that a list whose messages are edited in place is noticed. Raises
        InvalidInput, then nothing has changed. O(history) to compare, O(new) to take up.
        """
        path, codec = self._engine.path, self._engine.codec
        same = same_until(path, wires)
        new = [snapshot(wire) for wire in wires[same:]]
        for wire in new:
            codec.read(wire)  # all or nothing: a message that cannot be read forks nothing
        if same < len(path):
            self._engine.fork(same)
        return self.extend(new)

    def pin(self, seq: Seq, *, pinned: bool = True) -> None:
        """Keep the group of an entry whole from here on (or no longer). Raises FoldRefused when it is folded."""
        if seq not in self._engine.view.entries:
            raise InvalidInput(f"no entry {seq}", place="seq")
        self._engine.view.pin(seq, pinned)
        self._engine.log.append(Pin(seq, pinned))

    # --- sending -----------------------------------------------------------------------------------------------------

    def prepare(self, summarize: SummarizeWith | None = None, *, idle_seconds: float = 0.0) -> Request:
        """The next request: valid, and within the window. Raises DoesNotFit with the parts that cannot be reduced.

        `summarize(messages, max_output_tokens)` returns text; without it no model is asked. One that `Continues` is
        asked by the request that was sent last, where that is cheaper. `idle_seconds` since then: the provider's cache
        has forgotten it once its lifetime is over, and a fold breaks nothing (`economical` waits for that).
        """
        folding = self._folding(summarize)
        return drive(self._prepare(folding, idle_seconds), summarize, folding.usage)

    async def prepare_async(self, summarize: AsyncSummarize | None = None, *, idle_seconds: float = 0.0) -> Request:
        """`prepare` with an async summariser. Messages may come meanwhile; a cancellation leaves a valid session."""
        folding = self._folding(summarize)
        return await drive_async(self._prepare(folding, idle_seconds), summarize, folding.usage, self.in_thread)

    def compact(
        self, instructions: str | None = None, *, summarize: SummarizeWith | None, idle_seconds: float = 0.0
    ) -> tuple[Fold, ...]:
        """Summarise everything but system text and what must stay; without a model (None) a digest stands for it.

        Raises SummaryError: then nothing has changed.
        """
        self._engine.continuing.left(idle_seconds)
        folding = self._folding(summarize)
        return drive(compact(self._engine, instructions, folding), summarize, folding.usage)

    async def compact_async(
        self, instructions: str | None = None, *, summarize: AsyncSummarize | None, idle_seconds: float = 0.0
    ) -> tuple[Fold, ...]:
        """`compact` with an async summariser."""
        self._engine.continuing.left(idle_seconds)
        folding = self._folding(summarize)
        steps = compact(self._engine, instructions, folding)
        return await drive_async(steps, summarize, folding.usage, self.in_thread)

    def observe(self, usage: object) -> Usage:
        """Take the usage that a provider reported for the last request. Raises InvalidInput.

        A `Usage` with `reported=False` is recorded and corrects nothing, nor does one that cannot be true of the
        request: it says why in `doubt`, and the first of several in a row is told (`UsageDoubted`).
        """
        engine, found = self._engine, usage_of(usage, self._reports.number)
        if engine.rent is not None:
            found = engine.rent.with_state(found)
        if not found.reported:  # our own count says nothing about itself
            engine.note_usage(found)
            if found.doubt:
                self._tell(UsageDoubted(found.doubt, found.input_tokens, 0))
            return found
        judged = self._reports.check(found, engine.meter, engine.limits.window_tokens)
        found = judged.usage
        if why := self._measure(found):
            found = replace(found, doubt=why)
        engine.note_usage(found)
        if not found.doubt:
            engine.continuing.reported(found)
        if (reached := engine.policy.threshold(found.input_tokens, engine.limits)) is not None:
            self._tell(reached)
        if judged.cut:
            self._tell(SilentTruncation(judged.cut, judged.estimated_tokens, found.input_tokens))
        elif found.doubt and not self._doubted:
            self._tell(UsageDoubted(found.doubt, judged.estimated_tokens, found.input_tokens))
        self._doubted = bool(found.doubt)
        return found

    def recover(self, failure: Failure, summarize: SummarizeWith | None = None) -> Recovery:
        """Do what a failure asks for: lower the cap, learn a limit, fold harder, leave out the part that was refused.

        With `retry` the next `prepare` sends less, a lower cap or other parts. Raises DoesNotFit at the end.
        """
        folding = self._folding(summarize)
        return drive(self._recover(failure, folding), summarize, folding.usage)

    async def recover_async(self, failure: Failure, summarize: AsyncSummarize | None = None) -> Recovery:
        """`recover` with an async summariser."""
        folding = self._folding(summarize)
        return await drive_async(self._recover(failure, folding), summarize, folding.usage, self.in_thread)

    def send_beside(self, *, system: System, tools: Tools, leading: Sequence[Wire] = ()) -> None:
        """Send this system text and these tools from now on, as a client resends them. O(their size) if they differ.

        `leading` are the system messages that its list begins with now: the log keeps those that it began with.
        """
        checked(system=system, tools=tools)
        self._engine.send_beside(system, tools, leading)

    def send_to(self, model: str | None, limits: Limits, *, cache_seconds: int = 0) -> None:
        """Prepare for this model, these limits, a cache that lives so long (0: as usual). O(1); not in the log."""
        engine, same = self._engine, model == self.model
        if not same or cache_seconds != self._cache_seconds:
            self.model, self._cache_seconds = model, cache_seconds
            engine.caps = engine.caps if same else caps_taught(self._learned, self.endpoint, model, self.dialect)
            engine.pay_by(cache_rule_of(model, self.dialect, cache_seconds), same_model=same)
        engine.limits = limits

    def judge_by_own_count(self, limits: Limits) -> None:
        """Take our count as the measure: no margin, and nothing is folded until the limit itself is passed (`fit`)."""
        self._engine.limits, self._engine.trigger_at_limit = limits, True

    # --- looking back ------------------------------------------------------------------------------------------------

    @property
    def view(self) -> View:
        """What the model is shown, at what size."""
        return self._engine.view

    @property
    def events(self) -> tuple[Event, ...]:
        """The log: everything that happened, oldest first; of what was released, what still counts."""
        return tuple(self._engine.log)

    @property
    def event_count(self) -> int:
        """Events ever recorded."""
        return self._engine.log.total

    def events_after(self, count: int) -> tuple[Event, ...]:
        """The events after the first `count` ever recorded, to be written down. O(new). Raises InvalidInput."""
        return self._engine.log.after(count)

    @property
    def released(self) -> bool:
        """Whether something has been let go of."""
        return self._engine.released

    def release(self) -> int:
        """Let go of the entries that folds stand for, as the log is written down elsewhere. How many. O(in memory).

        Requests stay as they are. `undo`, a fork and a look at those entries then want a context replayed from there.
        """
        return self._engine.release(self._engine.policy.compactor.name)

    @property
    def limits(self) -> Limits:
        """What may be sent now."""
        return self._engine.limits

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self._engine.policy

    @property
    def figures(self) -> Figures:
        """How full the window is, by reported usage and as it stands now. O(1)."""
        engine, limits = self._engine, self._engine.limits
        return engine.totals.figures(engine.folds, limits, engine.used_tokens, engine.policy.ask_at_tokens(limits))

    def peek(
        self, seq: Seq, *, start_line: int = 1, start_char: int = 1, lines: int = 50, call_id: str | None = None
    ) -> str:
        """Lines of an entry as it came in, whether it is shown or folded: see `peek.head`."""
        part = {"start_line": start_line, "start_char": start_char, "lines": lines}
        return head(self._engine.codec, self._engine.view.entries, seq, call_id=call_id, **part)

    def grep(self, pattern: str, *, seq: Seq | None = None, work: Work | None = None) -> list[tuple[Seq, int, str]]:
        """(seq, line number, line) of the lines that match, over shown and folded entries alike: see `peek.grep`."""
        return grep(self._engine.codec, self._engine.view.entries, pattern, seq=seq, work=work)

    def explain(self, seq: Seq) -> tuple[Fold, ...]:
        """Every fold in effect that covers an entry, inner ones first. Raises InvalidInput. O(folds)."""
        if seq not in self._engine.view.entries:
            raise InvalidInput(f"no entry {seq}", place="seq")
        return tuple(fold for fold in self._engine.folds.values() if fold.start <= seq < fold.stop)

    def undo(self) -> tuple[Unfold, ...]:
        """Take back the last batch of folds, those of one call; the next `prepare` may fold again if it must.

        Empty when there is none. Raises InvalidInput, and takes nothing back, after `release`."""
        return self._engine.take_back(self._engine.last_batch())

    def original(self, fold: Fold) -> tuple[bytes, ...]:
        """The originals behind a fold, as the JSON they came in as, from the archive. Raises KeyError."""
        return self._engine.originals.read(fold)

    @classmethod
    def replay(cls, events: Iterable[Event], **settings: Any) -> Context:
        """The state that a log leads to, under the same settings. O(log). Raises InvalidInput if it leads nowhere."""
        context = cls(**settings)
        repeat_all(context._engine, events, context.repeat)
        return context

    def repeat(self, event: Event) -> None:
        """Do again what an event of a log says was done. O(what it did). Raises InvalidInput where that cannot be."""
        repeat(self._engine, event, append=self.append, pin=self.pin, measure=self._measure)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _folding(self, summarize: SummarizeWith | AsyncSummarize | None) -> Folding:
        """The state of a call: whether there is a model to ask, and whether it can go on from what was sent."""
        continues = (
            (summarize is not None and isinstance(summarize, Continues))
            and (summarize.model or None) == (self.model or None)
            and summarize.dialect == self.dialect
        )
        return Folding(asks=summarize is not None, continues=continues, in_thread=self.in_thread)

    def _measure(self, usage: Usage) -> str:
        """Correct our count by a report for a request that was sent; why it is not believed, "" if it is."""
        self._reports.number = max(self._reports.number, usage.request)
        if not usage.estimated_tokens:
            return ""
        meter, sure = self._engine.meter, not (usage.cached_tokens or usage.written_tokens)
        why = meter.observe(usage.estimated_tokens, usage.input_tokens, usage.output_tokens or None, sure=sure)
        if not why:
            self._engine.answered_tokens = usage.input_tokens
        if not why and not usage.current:
            meter.folded()
        return why

    def _prepare(self, folding: Folding, idle_seconds: float) -> Steps[Request]:
        engine, beside = self._engine, self._engine.beside
        engine.continuing.left(idle_seconds)
        if not engine.path and not engine.released:
            raise InvalidInput("no messages", place="messages")
        with engine.during(folding):
            yield from engine.settle(folding.asks)
        system, as_before = beside.render()
        messages, system, tools, stable, mended = engine.outgoing.adjust(*engine.view.wires(), system, beside.tools)
        self._reports.record(engine.view.estimated_tokens, engine.meter.changes)
        engine.meter.sent()
        news, engine.news = tuple(engine.news), []
        asked, engine.asked = tuple(engine.asked), []
        request = Request(
            messages=messages,
            system=system,
            tools=tools,
            tokens=engine.used_tokens,
            max_output_tokens=engine.limits.max_output_tokens,
            stable_until=stable if as_before else 0,
            folds=news,
            repairs=(*engine.view.repairs, *mended),
            asked=asked,
        )
        engine.continuing.sent(request, engine.view, engine.next_seq, beside)
        return request

    def _recover(self, failure: Failure, folding: Folding) -> Steps[Recovery]:
        engine, limits = self._engine, self._engine.limits
        engine.continuing.forget()  # what was refused is in no cache
        with engine.during(folding), learning(engine, self._learned, self.endpoint, self.model):
            outcome = yield from recover(engine, failure, folding.asks)
        if engine.limits != limits:
            engine.log.append(limited(engine.limits))
        if outcome.limit is not None:
            of = failure.limit_of or ("rate" if failure.kind == "request_too_large_for_rate" else "window")
            if of == "window":
                self._learned[self.endpoint, self.model or ""] = outcome.limit
            self._tell(LimitLearned(outcome.limit, of, self.endpoint))
        return outcome
