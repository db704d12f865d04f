"""`Context`: one session inside its window. The object that agents, the proxy and replays drive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from typing import Any

from foldline.catalog.models import CacheRule
from foldline.codecs import codec as codec_for
from foldline.codecs.limits import Caps
from foldline.engine.ahead import SummariesAhead
from foldline.engine.arguments import check_arguments, checked_ranges
from foldline.engine.cached_summary import CachedSummary
from foldline.engine.drivers import AsyncSummarize, Completion, Continues, SummarizeWith, drive, drive_async
from foldline.engine.engine import Engine, Steps
from foldline.engine.events import ContextEvent, LimitLearned, guarded
from foldline.engine.excerpts import entry_excerpt, grep
from foldline.engine.folding import Folding, InThread
from foldline.engine.learned_caps import apply_role_lessons, caps_from_lessons, recording_lessons
from foldline.engine.log_replay import LogReplay
from foldline.engine.policy import Policy
from foldline.engine.presets import policy as policy_of
from foldline.engine.recorder import Branches, Recorder
from foldline.engine.recovery import Recovery, recover
from foldline.engine.window_usage import WindowUsage
from foldline.errors import InvalidInput
from foldline.failures.failure import Failure
from foldline.messages import Wire, same_until, snapshot
from foldline.reducers.drop import ChosenSpans
from foldline.reducers.stages import ResultStage, result_stages
from foldline.text.safe_regex import Work
from foldline.tokens import ESTIMATE, Counter
from foldline.view.archive import Archive, MemoryArchive, Originals
from foldline.view.budget import TokenLimits, assumed_window, cache_rule_of, limits_of
from foldline.view.economics import Rent
from foldline.view.request import Request
from foldline.view.standing_rules import RULES_SHARE, StandingRule
from foldline.view.system_and_tools import System, SystemAndTools, Tools
from foldline.view.tool_sizes import ToolSize
from foldline.view.transcript import Entry, Event, Fold, Seq, Unfold, Usage
from foldline.view.usage import usage_of
from foldline.view.view import View

__all__ = ["AsyncSummarize", "Completion", "Context", "Continues", "Request", "SummarizeWith"]


class Context:
    """A session: append what happens, send what `prepare` returns, report what the provider reported.

    `window` is the model's window in tokens (setting > `learned` for (endpoint, model) > catalogue > 128,000 with a
    warning). `auto=False` never folds: what does not fit raises DoesNotFit. Folds keep standing rules (`rules`) word
    for word, up to `rules_share` of the input limit (0: they are left to summaries and digests). Appending and
    preparing cost O(what is new) between folds.
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
        rules_share: float = RULES_SHARE,
    ) -> None:
        check_arguments(dialect=dialect, model=model, policy=policy, window=window, max_output_tokens=max_output_tokens)
        check_arguments(system=system, tools=tools, max_request_bytes=max_request_bytes, rules_share=rules_share)
        check_arguments(facts=facts, learned=learned, on_event=on_event)
        codec, chosen = codec_for(dialect), policy_of(policy).with_facts(tuple(facts))
        self.model, self.endpoint, self.dialect = model, endpoint, dialect
        # The caller's mapping itself, not a copy: what this session learns is there for all that share it.
        self._learned = learned if learned is not None else {}
        self._emit, self._cache_seconds = guarded(on_event), 0
        self.in_thread: InThread | None = None
        """Where the async calls read a large view, in a shared event loop; nothing is recorded meanwhile."""
        # What the caller sets wins over what a refusal taught, since a caller may want to stay below it.
        window_tokens = window or self._learned.get((endpoint, model or "")) or assumed_window(model)
        originals = MemoryArchive() if archive is None else archive
        in_bytes = bool(max_request_bytes)  # each message costs a dump then: only where a budget needs it
        preamble, rule = SystemAndTools(system, tools, counter), cache_rule or cache_rule_of(model, dialect)
        recorder = Recorder(
            codec=codec,
            counter=counter,
            originals=Originals(originals),
            view=View(codec, counter, base_tokens=preamble.tokens, counts_bytes=in_bytes, where=originals.where),
            system_and_tools=preamble,
            emit=self._emit,
        )
        self._engine = Engine(
            recorder=recorder,
            policy=chosen,
            limits=limits_of(window_tokens, model, max_output_tokens),
            rent=Rent(rule, keep=chosen.kept_share) if chosen.economical else None,
            auto=auto,
            rules_share=rules_share,
            max_request_bytes=max_request_bytes,
            caps=caps or caps_from_lessons(self._learned, endpoint, model, dialect),
            cached_summary=CachedSummary(rule),
        )
        self.ahead = SummariesAhead(self._engine, self._folding)
        # The replay is kept: a repair of a log applies events one at a time, with messages of its own between them.
        self.branches, self._replay = Branches(recorder, self._engine.account), LogReplay(self._engine)
        apply_role_lessons(self._engine, self._learned, endpoint, model)

    # --- recording ---------------------------------------------------------------------------------------------------

    def append(
        self, wire: Wire, *, agent_visible: bool = True, user_visible: bool = True, kind: str = "", pinned: bool = False
    ) -> Entry:
        """Record one message in its own JSON; it is kept, not copied. Raises InvalidInput. O(size of the message)."""
        return self._engine.append(
            wire, agent_visible=agent_visible, user_visible=user_visible, kind=kind, pinned=pinned
        )

    def extend(self, wires: Iterable[Wire]) -> list[Entry]:
        """Record several messages."""
        return [self.append(wire) for wire in wires]

    def sync(self, wires: Sequence[Wire]) -> list[Entry]:
        """Record what is new in a whole history of a framework that owns it.

        Where it differs from what was recorded, the session forks: what was left stays in the log and is no longer
        sent. The recorded messages are copies, so that a list whose messages are edited in place is noticed. Raises
        InvalidInput, then nothing has changed. O(history) to compare, O(new) to record.
        """
        recorder, codec = self._engine.recorder, self._engine.codec
        same = same_until(recorder.path, wires)
        # A framework may edit its messages in place: only a copy can be compared with what the list holds next time.
        new = [snapshot(wire) for wire in wires[same:]]
        for wire in new:
            codec.read(wire)  # all or nothing: a message that cannot be read forks nothing
        if same < len(recorder.path):
            recorder.fork(same)
        return self.extend(new)

    def pin(self, seq: Seq, *, pinned: bool = True) -> None:
        """Keep the group of an entry whole from here on (or no longer). Raises FoldRefused when it is folded."""
        self._engine.recorder.pin(seq, pinned=pinned)

    # --- sending -----------------------------------------------------------------------------------------------------

    def prepare(self, summarize: SummarizeWith | None = None, *, idle_seconds: float = 0.0) -> Request:
        """The next request: valid, and within the window. Raises DoesNotFit with the parts that cannot be reduced.

        `summarize(messages, max_output_tokens)` returns text; without it no model is called. One that implements
        `Continues` gets its question inside the session where that is cheaper. `idle_seconds` is the pause since the
        last request: once the provider's cache has expired, a fold breaks nothing (`economical` waits for that).
        """
        folding = self._folding(summarize, idle_seconds)
        return drive(self._engine.prepare(folding), summarize, folding.usage.append)

    async def prepare_async(self, summarize: AsyncSummarize | None = None, *, idle_seconds: float = 0.0) -> Request:
        """`prepare` with an async summariser. Messages may come meanwhile; a cancellation leaves a valid session."""
        folding = self._folding(summarize, idle_seconds)
        steps = self._engine.prepare(folding)
        return await drive_async(steps, summarize, folding.usage.append, self.in_thread)

    def compact(
        self, instructions: str | None = None, *, summarize: SummarizeWith | None, idle_seconds: float = 0.0
    ) -> tuple[Fold, ...]:
        """Summarise everything but system text and what must stay; without a model (None) a digest replaces it.

        Raises SummaryError: then nothing has changed.
        """
        folding = self._folding(summarize, idle_seconds)
        return drive(self._engine.compact(instructions, folding), summarize, folding.usage.append)

    async def compact_async(
        self, instructions: str | None = None, *, summarize: AsyncSummarize | None, idle_seconds: float = 0.0
    ) -> tuple[Fold, ...]:
        """`compact` with an async summariser."""
        folding = self._folding(summarize, idle_seconds)
        steps = self._engine.compact(instructions, folding)
        return await drive_async(steps, summarize, folding.usage.append, self.in_thread)

    def fold(
        self, *ranges: tuple[Seq, Seq], instructions: str | None = None, summarize: SummarizeWith | None = None
    ) -> tuple[Fold, ...]:
        """Fold the groups that entries [start, stop) of each range touch, but what must stay; `undo` takes it back.

        Without a model a digest. Raises InvalidInput for what is not there, SummaryError: then nothing has changed.
        """
        folding = self._folding(summarize)
        folding.chosen = ChosenSpans(checked_ranges(ranges, self._engine.recorder.next_seq))
        return drive(self._engine.compact(instructions, folding), summarize, folding.usage.append)

    async def fold_async(
        self, *ranges: tuple[Seq, Seq], instructions: str | None = None, summarize: AsyncSummarize | None = None
    ) -> tuple[Fold, ...]:
        """`fold` with an async summariser."""
        folding = self._folding(summarize)
        folding.chosen = ChosenSpans(checked_ranges(ranges, self._engine.recorder.next_seq))
        steps = self._engine.compact(instructions, folding)
        return await drive_async(steps, summarize, folding.usage.append, self.in_thread)

    def rewind(self, seq: Seq) -> int:
        """Go back to before the group of entry `seq`, as a branch; how many messages are left. Raises InvalidInput."""
        return self._engine.recorder.rewind(seq)

    def observe(self, usage: object) -> Usage:
        """Record the usage that a provider reported for the last request. Raises InvalidInput.

        A `Usage` with `reported=False` is recorded and corrects nothing, nor does one that cannot be true of the
        request: it says why in `doubt`, and the first of several in a row is emitted (`UsageDoubted`).
        """
        return self._engine.observe(usage_of(usage, self._engine.reports.number))

    def recover(self, failure: Failure, summarize: SummarizeWith | None = None) -> Recovery:
        """Do what a failure calls for: lower the cap, learn a limit, fold harder, leave out the part that was refused.

        With `retry` the next `prepare` sends less, a lower cap or other parts. Raises DoesNotFit at the end.
        """
        folding = self._folding(summarize)
        return drive(self._recover(failure, folding), summarize, folding.usage.append)

    async def recover_async(self, failure: Failure, summarize: AsyncSummarize | None = None) -> Recovery:
        """`recover` with an async summariser."""
        folding = self._folding(summarize)
        return await drive_async(self._recover(failure, folding), summarize, folding.usage.append, self.in_thread)

    def set_system_and_tools(self, *, system: System, tools: Tools, leading: Sequence[Wire] = ()) -> None:
        """Send this system text and these tools from now on. O(their size) if they differ.

        `leading` are the system messages that a client's list begins with now; the log keeps those it began with.
        """
        check_arguments(system=system, tools=tools)
        self._engine.set_system_and_tools(system, tools, leading)

    def switch_model(self, model: str | None, limits: TokenLimits, *, cache_seconds: int = 0) -> None:
        """Use this model, these limits and this cache lifetime (0: the usual one) from now on. O(1); not in the log."""
        engine, same = self._engine, model == self.model
        # Numbers that refusals taught belong to the model: they stay as long as it does.
        if not same or cache_seconds != self._cache_seconds:
            self.model, self._cache_seconds = model, cache_seconds
            engine.caps = engine.caps if same else caps_from_lessons(self._learned, self.endpoint, model, self.dialect)
            engine.use_cache_rule(cache_rule_of(model, self.dialect, cache_seconds), same_model=same)
        engine.limits = limits

    def fold_only_over_limit(self, limits: TokenLimits) -> None:
        """Fold only when our own count passes the limit itself: no margin, and no trigger of the policy (`fit`)."""
        self._engine.limits, self._engine.trigger_at_limit = limits, True

    # --- looking back ------------------------------------------------------------------------------------------------

    @property
    def view(self) -> View:
        """What the model is shown, at what size."""
        return self._engine.view

    @property
    def events(self) -> tuple[Event, ...]:
        """The log, oldest first, without what was released."""
        return tuple(self._engine.recorder.log)

    @property
    def event_count(self) -> int:
        """Events ever recorded."""
        return self._engine.recorder.log.total

    def events_after(self, count: int) -> tuple[Event, ...]:
        """The events after the first `count` ever recorded, to be written down. O(new). Raises InvalidInput."""
        return self._engine.recorder.log.after(count)

    @property
    def released(self) -> bool:
        """Whether entries have left memory."""
        return self._engine.recorder.released

    def release(self) -> int:
        """Drop folded entries from memory, once the log is stored elsewhere; returns how many.

        Requests stay as they are. `undo`, a fork and a look at those entries then need a context that is replayed from
        the written log. O(in memory).
        """
        return self._engine.recorder.release(self._engine.policy.checkpoints)

    @property
    def rules(self) -> tuple[StandingRule, ...]:
        """The standing rules that folds keep word for word, oldest first, with source and size. O(rules)."""
        rules = self._engine.view.rules
        rules.room_tokens = int(self._engine.rules_share * self._engine.limits.input_tokens)
        return rules.kept

    @property
    def tool_sizes(self) -> tuple[ToolSize, ...]:
        """The tokens of each tool definition, with its MCP server. O(tools) once for each change."""
        return self._engine.recorder.system_and_tools.tool_sizes

    @property
    def limits(self) -> TokenLimits:
        """The limits in force."""
        return self._engine.limits

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self._engine.policy

    def use_cache_rule(self, rule: CacheRule) -> None:
        """Reckon with these prices of the same model's cache from now on; not in the log. O(1)."""
        self._engine.use_cache_rule(rule, same_model=True)

    @property
    def cache_lifetime_seconds(self) -> int:
        """How long the provider's cache keeps a prefix that is not used; 0: no cache, or none that expires."""
        return self._engine.cached_summary.rule.lifetime_seconds

    @property
    def figures(self) -> WindowUsage:
        """How full the window is, by reported usage and by the request as it stands. O(1)."""
        return self._engine.figures

    def results(self) -> list[ResultStage]:
        """The stage of each tool result: whole, short, a line or gone, with its sizes and what it holds. O(log)."""
        return result_stages(self._engine.view)

    def peek(
        self, seq: Seq, *, start_line: int = 1, start_char: int = 1, lines: int = 50, call_id: str | None = None
    ) -> str:
        """Lines of an entry as it was appended, shown or folded: see `excerpts.excerpt`."""
        part = {"start_line": start_line, "start_char": start_char, "lines": lines}
        return entry_excerpt(self._engine.codec, self._engine.view.entries, seq, call_id=call_id, **part)

    def grep(self, pattern: str, *, seq: Seq | None = None, work: Work | None = None) -> list[tuple[Seq, int, str]]:
        """(seq, line number, line) of the lines that match, shown or folded: see `excerpts.grep`."""
        return grep(self._engine.codec, self._engine.view.entries, pattern, seq=seq, work=work)

    def explain(self, seq: Seq) -> tuple[Fold, ...]:
        """Every fold in effect that covers an entry, inner ones first. Raises InvalidInput. O(folds)."""
        if seq not in self._engine.view.entries:
            raise InvalidInput(f"no entry {seq}", place="seq")
        # Folds are in order of their commits, and a fold is older than the one over it: inner ones come first.
        return tuple(fold for fold in self._engine.recorder.folds.values() if fold.start <= seq < fold.stop)

    def undo(self) -> tuple[Unfold, ...]:
        """Take back the last batch of folds, those of one call; the next `prepare` may fold again if it must.

        Empty when there is none. Raises InvalidInput, and takes nothing back, after `release`."""
        return self._engine.recorder.unfold(self._engine.recorder.last_batch())

    def original(self, fold: Fold) -> tuple[bytes, ...]:
        """The originals behind a fold, as the JSON they came in as, from the archive. Raises KeyError."""
        return self._engine.recorder.originals.read(fold)

    @classmethod
    def replay(cls, events: Iterable[Event], **settings: Any) -> Context:
        """The state that a log leads to, under the same settings. O(log). Raises InvalidInput if it leads nowhere."""
        context = cls(**settings)
        context._replay.run(events)
        return context

    def apply(self, event: Event) -> None:
        """Apply one event of a log. O(what it did). Raises InvalidInput where it contradicts those before it."""
        self._replay.apply(event)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _folding(self, summarize: SummarizeWith | AsyncSummarize | None, idle_seconds: float = 0.0) -> Folding:
        """The state of a call: whether there is a model, and whether it can continue from what was sent."""
        # Another model has another cache, and another dialect could not send the request.
        continues = (
            (summarize is not None and isinstance(summarize, Continues))
            and (summarize.model or None) == (self.model or None)
            and summarize.dialect == self.dialect
        )
        return Folding(
            has_model=summarize is not None,
            continues=continues,
            cold=self._engine.cached_summary.is_cold(idle_seconds),
            in_thread=self.in_thread,
            wait=self.ahead.wait,
        )

    def _recover(self, failure: Failure, folding: Folding) -> Steps[Recovery]:
        engine, limits = self._engine, self._engine.limits
        engine.cached_summary.forget()  # a refused request is in no cache
        with engine.active(folding), recording_lessons(engine, self._learned, self.endpoint, self.model):
            outcome = yield from recover(engine, failure, folding.has_model)
        engine.note_limits(limits)
        if outcome.limit is not None:
            # A rate or an output cap passes, or belongs to one model call: only a window is worth remembering.
            of = failure.limit_of or ("rate" if failure.kind == "request_too_large_for_rate" else "window")
            if of == "window":
                self._learned[self.endpoint, self.model or ""] = outcome.limit
            self._emit(LimitLearned(outcome.limit, of, self.endpoint))
        return outcome
