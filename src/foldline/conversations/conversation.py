"""One conversation of a client: its context, fed from requests that resend everything, and spliced back into them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from foldline.catalog.models import lookup
from foldline.codecs import codec
from foldline.conversations.as_client import as_client
from foldline.conversations.chain import leading
from foldline.conversations.marking import MARKER, marks, plain, with_marker
from foldline.conversations.request_body import RequestBody, lowered_cap, written
from foldline.conversations.title import title_of
from foldline.engine.context import Context, Request, SummarizeWith
from foldline.engine.learned_caps import Lessons, lesson_name, lessons_in
from foldline.engine.policy import Policy
from foldline.engine.recovery import Recovery
from foldline.errors import DoesNotFit, Part
from foldline.failures import Failure, silent_truncation
from foldline.messages import Wire
from foldline.store.clock import IdleTimer
from foldline.tokens import ESTIMATE, Counter
from foldline.view.archive import Archive
from foldline.view.budget import MARGIN, Limits, Trigger, cache_seconds, limits_of, output_tokens
from foldline.view.system_and_tools import System
from foldline.view.transcript import Entry, Event, Fold, Unfold, Usage

__all__ = ["CALM", "UNKNOWN_TOKENS", "Conversation", "Learned", "Plan", "Under", "limits_for", "waits"]

UNKNOWN_TOKENS: Final = 2**40
"""The window where nobody knows it: no request comes near."""

CALM: Final = 0.5
"""Share of the input limit below which no policy that looks at tokens folds: their triggers are well above."""


class Learned(Protocol):
    """Windows that refusals named, by a base URL, the name under which one is learned, and a hash of a credential."""

    def get(self, key: tuple[str, str, bytes], /) -> int | None:
        """The window in tokens, if one is known."""

    def __setitem__(self, key: tuple[str, str, bytes], tokens: int, /) -> None:
        """Take a window that was named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Under:
    """What every conversation runs under. `learned` are windows that refusals of `endpoint` named, `lessons` what they
    taught besides about the model of one (`foldline.engine.learned_caps`).
    """

    policy: Policy
    endpoint: str = ""
    max_request_bytes: int | None = None
    learned: Learned
    counter: Counter = ESTIMATE
    lessons: Lessons = field(default_factory=dict)

    def taught(self, learned_as: str, client: bytes) -> Lessons:
        """What refusals taught a client besides windows. O(1)."""
        return lessons_in(lambda name: self.learned.get((self.endpoint, name, client)), learned_as)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be sent for one request: `data`, the very bytes that came unless `changed`.

    `given_tokens` is the size of what the client sent, `tokens` of what is sent, by our count. `folds` are those in
    effect, `new_folds` those since the request before. `version` says which request of the conversation this is.
    """

    body: RequestBody
    data: bytes
    changed: bool
    given_tokens: int
    tokens: int
    folds: int
    new_folds: tuple[Fold, ...]
    limits: Limits
    version: int
    prepared: bool = True
    """Whether it is what the context prepared last; False for one that was passed on without asking it."""

    def truncated(self, usage: Usage, stop_reason: str = "") -> str:
        """Why the upstream is thought to have cut what was sent, by what it reported; "" if nothing points to it."""
        why = silent_truncation(
            estimate_tokens=self.tokens,
            reported_tokens=usage.input_tokens,
            window=self.limits.window_tokens,
            stop_reason=stop_reason,
            output_tokens=usage.output_tokens,
        )
        return why or ""


def limits_for(body: RequestBody, window_tokens: int, *, most_output_tokens: int | None = None) -> Limits:
    """What may be sent for a request: the output cap that it sets, or what is usual, is kept free of the window.

    At most a quarter of the window, though: clients set caps that no reply reaches (128,000 of 200,000 tokens), and
    what is kept for them is lost to the conversation. Such a cap is lowered once the window fills up.
    """
    model = body.model or None
    reserve = body.cap_tokens or output_tokens(lookup(model), window_tokens)
    if most_output_tokens is not None:
        reserve = min(reserve, most_output_tokens)
    return limits_of(window_tokens, model, min(reserve, window_tokens // 4))


class Conversation:
    """The messages of one client, in the order in which they came. Never forked: a branch is a conversation of its own.

    Methods are synchronous; whoever calls them sees to it that only one runs at a time.
    """

    def __init__(
        self,
        name: str,
        body: RequestBody,
        under: Under,
        limits: Limits,
        *,
        archive: Archive,
        events: Iterable[Event] = (),
        idle_seconds: float = 0.0,
    ) -> None:
        """One that begins with `events`, last used so long ago, in the dialect of a request. O(events)."""
        self.name, self.dialect = name, body.dialect
        named = {lesson_name(body.model, lesson): number for lesson, number in under.lessons.items()}
        self.learned = {(under.endpoint, name): number for name, number in named.items()}
        """What refusals taught, to be taken from here by whoever knows what it holds for."""
        self.context = Context.replay(
            events,
            dialect=body.dialect,
            model=body.model or None,
            policy=under.policy,
            window=limits.window_tokens,
            max_output_tokens=limits.max_output_tokens,
            system=body.system,
            tools=body.tools,
            endpoint=under.endpoint,
            max_request_bytes=under.max_request_bytes,
            counter=under.counter,
            archive=archive,
            learned=self.learned,
        )
        self.title = title_of(body.messages)
        self.count = 0
        """How many messages there are."""
        self.version = 0
        self.folded = False
        self.mended = False
        """Whether the upstream has refused it as it came: from then on it is sent as the engine mends it."""
        self.idle = IdleTimer(idle_seconds)
        """Since its upstream was last heard of it."""
        self._moved: System = None
        """The system text of the newest request, where messages of the client were moved into it."""
        self._most_output_tokens: int | None = None
        """The largest cap that the upstream takes, as far as is known: for the model, or for the newest request."""
        self._lowered = False
        """Whether the newest request was refused for its output: then a cap is said even where the client set none."""
        self.sight = b""
        """The system text and tools that a model had in sight when it wrote a fold, as a hash; b"" if none was."""
        self.varies = False
        """Whether its client has sent other system text or tools with it: then none are in sight of a model any more,
        as what is written so holds for no other ones."""
        self._entry_tokens = self._bytes = 0
        self._begun_with: set[int] = set()
        """The folds that it began with: they are no news."""
        for event in self.context.events:
            if isinstance(event, Entry):
                self._took(event)
            elif isinstance(event, Fold):
                self.folded = True
                self._begun_with.add(event.id)

    @property
    def model(self) -> str:
        """The model that was asked last."""
        return self.context.model or ""

    @property
    def _given_tokens(self) -> int:
        """Size of all that the client sends, as the provider would count it."""
        view = self.context.view
        return round((self._entry_tokens + view.base_tokens) * view.meter.ratio)

    @property
    def weight_bytes(self) -> int:
        """About how much memory it takes: parsed JSON is a few times its text. O(1)."""
        return 20_000 + 5 * self._bytes

    # --- taking up ---------------------------------------------------------------------------------------------------

    def take_up(self, body: RequestBody) -> None:
        """Record the messages that are new in a request, which must begin with those that are known. O(new).

        Raises InvalidInput for one that cannot be read; then nothing is recorded.
        """
        leads = body.messages[: leading(body.dialect, body.messages)]
        self.context.set_system_and_tools(system=body.system, tools=body.tools, leading=leads)
        new = [plain(wire, body) for wire in body.messages[self.count :]]
        if not new:
            return
        for wire in new:
            codec(self.dialect).read(wire)
        for entry in self.context.extend(new):
            self._took(entry)

    def _took(self, entry: Entry) -> None:
        self.count += 1
        self._entry_tokens += entry.tokens
        self._bytes += 4 * entry.tokens

    # --- sending -----------------------------------------------------------------------------------------------------

    def plan(
        self,
        body: RequestBody,
        limits: Limits,
        summarize: SummarizeWith | None = None,
        *,
        most_output_tokens: int | None = None,
        sight: bytes = b"",
    ) -> Plan:
        """What to send for a request that was taken up. Raises DoesNotFit. O(new) where nothing is folded.

        `most_output_tokens` is the largest output cap that the model takes, where that is known. Without `sight`, the
        hash of what stands beside the messages, no model is asked that has it in sight.
        """
        self._most_output_tokens, self._lowered = most_output_tokens, False
        self.context.switch_model(body.model or None, limits, cache_seconds=cache_seconds(body.text))
        asks = summarize
        if sight and not self.varies:
            asks = as_client(summarize, body, self.places, partial(setattr, self, "sight", sight))
        request = self.context.prepare(asks, idle_seconds=self.idle.seconds)
        self.idle.reset()
        return self._planned(body, request)

    def recover(self, plan: Plan, failure: Failure, summarize: SummarizeWith | None = None) -> Plan | None:
        """What to send after the upstream refused a plan; None where sending again is no help. Raises DoesNotFit."""
        if failure.kind in ("malformed", "other") and self.mendable:
            self.mended = True  # before anything is condensed: what was wrong with it may be known
            return self._planned(plan.body, self.context.prepare(summarize))
        found: Recovery = self.context.recover(failure, summarize)
        if found.action == "lower_output":
            self._most_output_tokens, self._lowered = self.context.limits.max_output_tokens, True
        elif found.retry:
            self.mended = True
        return self._planned(plan.body, self.context.prepare(summarize)) if found.retry else None

    def standing(self, body: RequestBody) -> bytes:
        """A request that begins with all messages, as they are shown now and what is new as it came. O(messages)."""
        if not self.rewritten:
            return body.raw
        shown, _ = self.context.view.wires()
        return self._spliced(body, shown, self._moved, None)

    @property
    def rewritten(self) -> bool:
        """Whether what is sent is not the client's own bytes: something is folded, or mended."""
        return self.folded or self.mended

    @property
    def mendable(self) -> bool:
        """Whether what was sent is the client's own, and is no valid history: the engine would send another. O(1)."""
        return not self.rewritten and bool(self.context.view.repairs)

    def observe(self, plan: Plan, usage: Usage) -> str:
        """Take what the upstream reported for a plan; of one that is not the newest it says nothing.

        Of one that was not prepared it says nothing either: the count to compare it with is of another request. Says
        why it cannot be true of the request, "" if it can.
        """
        if plan.version == self.version:
            self.idle.reset()
            if plan.prepared:
                return self.context.observe(usage).doubt
        return ""

    def is_calm(self, limits: Limits) -> bool:
        """Whether the next request is so far from its limits that nothing will be folded and no model asked. O(1)."""
        view = self.context.view
        near = view.tokens > CALM * limits.input_tokens or view.amounts.images or view.repairs
        return not (near or self.rewritten) and waits(self.context.policy)

    def refuse(self, limits: Limits) -> None:
        """Raise DoesNotFit when the messages, as they came, are larger than the window less the reply."""
        tokens, room = self._given_tokens if self.folded else self.context.view.tokens, limits.room_tokens
        if tokens > room:
            beside = self.context.view.fixed_tokens
            parts = (Part("messages", tokens - beside), Part("system and tools", beside))
            raise DoesNotFit(tokens, room, parts, reason="requests are not changed here (--strict)", used_tokens=tokens)

    def as_it_came(self, body: RequestBody, limits: Limits) -> Plan:
        """A plan that changes nothing."""
        self.version += 1
        tokens = self._given_tokens if self.folded else self.context.view.tokens
        return Plan(
            body=body,
            data=body.raw,
            changed=False,
            given_tokens=tokens,
            tokens=tokens,
            folds=0,
            new_folds=(),
            limits=limits,
            version=self.version,
            prepared=False,
        )

    def release(self) -> int:
        """Let go of what folds stand for, as it is written down elsewhere; how many messages."""
        gone = self.context.release()
        if gone:
            self._bytes = 4 * sum(entry.tokens for entry in self.context.view.entries.values())
        return gone

    def _planned(self, body: RequestBody, request: Request) -> Plan:
        self.version += 1
        self._moved = request.system if request.system != body.system else None
        folds = (fold for fold in request.folds if isinstance(fold, Fold))
        new_folds = tuple(fold for fold in folds if fold.id not in self._begun_with)
        self.folded = self.folded or bool(new_folds)
        self.mended = self.mended or any(repair.rule == "alternation" for repair in request.repairs)  # known before
        limits, cap = self.context.limits, None
        room = max(limits.max_output_tokens, limits.window_tokens - int((1 + MARGIN) * request.tokens))
        if self._most_output_tokens is not None:
            room = min(room, self._most_output_tokens)
        if self._lowered if body.cap_tokens is None else body.cap_tokens > room:
            cap = room  # servers refuse input and cap together over the window, or cut the reply without a word
        if any(isinstance(fold, Unfold) for fold in request.folds):
            self.folded = folds_in(self.context) > 0
        changed = self.rewritten or cap is not None
        return Plan(
            body=body,
            data=self._spliced(body, request.messages, self._moved, cap) if changed else body.raw,
            changed=changed,
            given_tokens=self._given_tokens if self.folded else request.tokens,
            tokens=request.tokens,
            folds=folds_in(self.context) if self.folded else 0,
            new_folds=new_folds,
            limits=limits,
            version=self.version,
        )

    # --- the bytes ---------------------------------------------------------------------------------------------------

    def _spliced(self, body: RequestBody, shown: Sequence[Wire], system: System, cap_tokens: int | None) -> bytes:
        """The client's bytes with what is shown in place of its messages, and `system` where its own will not do.

        Messages that were not taken up stand at the end, as they came. O(messages).
        """
        changes = {} if cap_tokens is None else lowered_cap(body, cap_tokens)
        if self.rewritten:
            changes[body.form.messages] = self._array(body, shown)
            if body.form.system and system is not None:
                changes[body.form.system] = written(system)
        return body.changed(changes)

    def places(self) -> dict[int, int]:
        """Which message of the client each recorded one is, by its identity. O(messages)."""
        return {id(entry.recorded): seq for seq, entry in self.context.view.entries.items()}

    def _array(self, body: RequestBody, shown: Sequence[Wire]) -> str:
        """The JSON of what is shown: the client's own text where a message is shown as it came. O(messages)."""
        places = self.places()
        pieces = []
        for wire in shown:
            at = places.get(id(wire))
            pieces.append(written(wire) if at is None or not body.item_spans else body.item(at))
        pieces += map(body.item, range(self.count, len(body.item_spans)))
        if self.dialect == "anthropic" and marks(body) and not any(MARKER in piece for piece in pieces):
            # All marks stood on what is folded: without one nothing of the conversation would be cached any more.
            pieces[-1] = written(with_marker(shown[-1] if self.count == len(body.messages) else body.messages[-1]))
        return f"[{','.join(pieces)}]"


def waits(policy: Policy) -> bool:
    """Whether a policy looks at nothing but a share of the window before it folds. Any other may fold at any size."""
    plain = Trigger(fraction=policy.trigger.fraction)
    return not (policy.always or policy.economical) and policy.trigger == plain


def folds_in(context: Context) -> int:
    """How many folds the model is shown. O(tiles)."""
    return sum((tile.fold is not None) + len(tile.forms) for tile in context.view.tiles)
