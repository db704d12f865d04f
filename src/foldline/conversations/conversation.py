"""One conversation of a client: a context fed from full requests, and its view spliced back into the client's bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol, runtime_checkable

from foldline.codecs import codec
from foldline.codecs.dialect import dialect_named
from foldline.conversations.incoming_request import (
    leading,
    messages_json,
    recorded_form,
    wants_markers,
    with_markers,
)
from foldline.conversations.request_body import RequestBody, lowered_cap, title_of
from foldline.conversations.request_plan import (
    NO_FOLD_SHARE,
    ConversationSettings,
    RequestPlan,
    WarmReturns,
    folds_by_share_only,
    mended_at_once,
)
from foldline.engine.context import Completion, Context, Request, SummarizeWith
from foldline.engine.learned_caps import lesson_name
from foldline.engine.recovery import Recovery
from foldline.errors import DoesNotFit, Part
from foldline.failures.failure import Failure
from foldline.messages import Json, Wire
from foldline.providers.cache_points import has_point
from foldline.providers.summariser import is_text_only
from foldline.store.clock import IdleTimer
from foldline.view.archive import Archive
from foldline.view.budget import MARGIN, TokenLimits, cache_seconds
from foldline.view.system_and_tools import System
from foldline.view.transcript import Entry, Event, Fold, Unfold, Usage

__all__ = ["ClientSummariser", "Conversation", "folds_in", "summariser_for"]

# Fields that shape a client's own replies. They are not part of the prompt, so a cached prefix holds without them.
_REPLY_FIELDS: Final = frozenset(
    "background logit_bias logprobs metadata n prediction seed stop stop_sequences store stream_options top_logprobs "
    "truncation".split()
)


class Conversation:
    """The messages of one client, in order of arrival. Never forked: a branch is a conversation of its own.

    `learned` holds what refusals taught; the service empties it. `folded` and `mended` say why requests differ from the
    client's bytes: something is folded, or the upstream refused the messages as they came. `summary_scope` is the hash
    of the system text and tools that a model read when it wrote a summary, b"" for none. `scope_varies` says that the
    client has changed its system text or tools: from then on no model reads them for a summary, because that summary
    would hold for no other ones.

    Methods are synchronous; the caller makes sure that only one runs at a time.
    """

    def __init__(
        self,
        name: str,
        body: RequestBody,
        settings: ConversationSettings,
        limits: TokenLimits,
        *,
        archive: Archive,
        events: Iterable[Event] = (),
        idle_seconds: float = 0.0,
    ) -> None:
        """Begin with `events`, last used `idle_seconds` ago, in the dialect of a request. O(events)."""
        self.name, self.dialect = name, body.dialect
        named = {lesson_name(body.model, lesson): number for lesson, number in settings.lessons.items()}
        self.learned = {(settings.endpoint, name): number for name, number in named.items()}
        self.context = Context.replay(
            events,
            dialect=body.dialect,
            model=body.model or None,
            policy=settings.policy,
            window=limits.window_tokens,
            max_output_tokens=limits.max_output_tokens,
            system=body.system,
            tools=body.tools,
            endpoint=settings.endpoint,
            max_request_bytes=settings.max_request_bytes,
            counter=settings.counter,
            archive=archive,
            learned=self.learned,
        )
        self.title = title_of(body.messages)
        self.count = 0  # messages
        self.version = 0
        self.folded = self.mended = False
        # `idle`: since the upstream last heard of this conversation.
        self.idle, self.returns = IdleTimer(idle_seconds), WarmReturns()
        self.summary_scope, self.scope_varies = b"", False
        # System text that client messages were moved into, for the latest request.
        self._moved_system: System = None
        # The largest output cap that the upstream accepts, as far as known, for the model or for the latest request.
        self._max_output_tokens: int | None = None
        # The latest request was refused for its output: send a cap even if the client set none.
        self._cap_refused = False
        self._entry_tokens = self._bytes = 0
        self._inherited_folds: set[int] = set()  # folds of the branch point, which are no news to the client
        for event in self.context.events:
            if isinstance(event, Entry):
                self._count_entry(event)
            elif isinstance(event, Fold):
                self.folded = True
                self._inherited_folds.add(event.id)

    @property
    def model(self) -> str:
        """The model of the latest request."""
        return self.context.model or ""

    @property
    def rewritten(self) -> bool:
        """Whether requests differ from the client's own bytes: something is folded or mended."""
        return self.folded or self.mended

    @property
    def mendable(self) -> bool:
        """Whether the client's own messages are sent and are no valid history, so the engine could mend them. O(1)."""
        return not self.rewritten and bool(self.context.view.repairs)

    @property
    def weight_bytes(self) -> int:
        """An estimate of its memory: parsed JSON takes a few times the size of its text. O(1)."""
        return 20_000 + 5 * self._bytes

    @property
    def given_tokens(self) -> int:
        """The size of all that the client sends, as the provider would count it."""
        view = self.context.view
        return round((self._entry_tokens + view.base_tokens) * view.meter.ratio)

    # --- recording ---------------------------------------------------------------------------------------------------

    def append(self, body: RequestBody) -> None:
        """Record the new messages of a request, which must begin with all recorded ones. O(new).

        Raises InvalidInput for messages that cannot be parsed, and then records nothing.
        """
        self.context.set_system_and_tools(
            system=body.system, tools=body.tools, leading=body.messages[: leading(body.dialect, body.messages)]
        )
        if not (new := [recorded_form(wire, body) for wire in body.messages[self.count :]]):
            return
        # Parse all of them before the first is recorded: `extend` would stop halfway.
        for wire in new:
            codec(self.dialect).read(wire)
        for entry in self.context.extend(new):
            self._count_entry(entry)

    def release(self) -> int:
        """Free the messages behind folds, which the store has by now. Returns their number."""
        released = self.context.release()
        if released:
            # About four bytes of text a token. An estimate will do: it decides what is evicted, never what is sent.
            self._bytes = 4 * sum(entry.tokens for entry in self.context.view.entries.values())
        return released

    def observe(self, plan: RequestPlan, usage: Usage) -> str:
        """Record a usage report of the upstream. Returns why it cannot be true of the request, or ""."""
        # The report of an older request, or of one that the context did not prepare, has no count to be compared with.
        if plan.version == self.version:
            self.idle.reset()
            if plan.prepared:
                return self.context.observe(usage).doubt
        return ""

    def _count_entry(self, entry: Entry) -> None:
        self.count += 1
        self._entry_tokens += entry.tokens
        self._bytes += 4 * entry.tokens

    # --- planning ----------------------------------------------------------------------------------------------------

    def plan(
        self,
        body: RequestBody,
        limits: TokenLimits,
        summarize: SummarizeWith | None = None,
        *,
        max_output_tokens: int | None = None,
        scope: bytes = b"",
    ) -> RequestPlan:
        """Plan a request that was appended. Raises DoesNotFit. O(new) if nothing is folded.

        `max_output_tokens` is the largest output cap of the model, if known. `scope` is the hash of system text and
        tools; without it no model reads them for a summary.
        """
        self._max_output_tokens, self._cap_refused = max_output_tokens, False
        self.context.switch_model(body.model or None, limits, cache_seconds=cache_seconds(body.text))
        writer = summarize
        if scope and not self.scope_varies:
            # The scope is recorded only when a model reads it: until then the summaries hold for any system text.
            writer = summariser_for(summarize, body, self.positions, partial(setattr, self, "summary_scope", scope))
        if self.version:
            self.returns.record(self.idle.seconds, body.model)
        request = self.context.prepare(writer, idle_seconds=self.idle.seconds)
        self.idle.reset()
        return self._build_plan(body, request)

    def recover(
        self, plan: RequestPlan, failure: Failure, summarize: SummarizeWith | None = None
    ) -> RequestPlan | None:
        """Plan a request anew after the upstream refused it; None if sending again cannot help. Raises DoesNotFit."""
        # Mend before condensing: the fault may be one that the engine has repaired already.
        if failure.kind in ("malformed", "other") and (self.mendable or self._sets_markers(plan.body)):
            self.returns.refused = self.rewritten
            self.mended = self.mended or self.mendable
            return self._build_plan(plan.body, self.context.prepare(summarize))
        found: Recovery = self.context.recover(failure, summarize)
        if found.action == "lower_output":
            self._max_output_tokens, self._cap_refused = self.context.limits.max_output_tokens, True
        elif found.retry:
            self.mended = True
        return self._build_plan(plan.body, self.context.prepare(summarize)) if found.retry else None

    def has_headroom(self, limits: TokenLimits) -> bool:
        """Whether the next request is too far from its limits for any fold or summary. O(1)."""
        view = self.context.view
        near = view.tokens > NO_FOLD_SHARE * limits.input_tokens or view.amounts.images or view.repairs
        return not (near or self.rewritten) and folds_by_share_only(self.context.policy)

    def check_fits(self, limits: TokenLimits) -> None:
        """Raise DoesNotFit if the unchanged messages are larger than the window less the reply."""
        tokens, room = self.given_tokens if self.folded else self.context.view.tokens, limits.room_tokens
        if tokens > room:
            fixed = self.context.view.fixed_tokens
            parts = (Part("messages", tokens - fixed), Part("system and tools", fixed))
            raise DoesNotFit(tokens, room, parts, reason="requests are not changed here (--strict)", used_tokens=tokens)

    def unchanged_plan(self, body: RequestBody, limits: TokenLimits) -> RequestPlan:
        """Return a plan that sends the client's bytes."""
        self.version += 1
        tokens = self.given_tokens if self.folded else self.context.view.tokens
        return RequestPlan(
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

    def _build_plan(self, body: RequestBody, request: Request) -> RequestPlan:
        self.version += 1
        self._moved_system = request.system if request.system != body.system else None
        folds = (fold for fold in request.folds if isinstance(fold, Fold))
        new_folds = tuple(fold for fold in folds if fold.id not in self._inherited_folds)
        self.folded = self.folded or bool(new_folds)
        self.mended = self.mended or bool(mended_at_once(self.dialect, request.repairs))
        limits, cap = self.context.limits, None
        room = max(limits.max_output_tokens, limits.window_tokens - int((1 + MARGIN) * request.tokens))
        if self._max_output_tokens is not None:
            room = min(room, self._max_output_tokens)
        # If input and cap exceed the window together, some servers refuse and others cut the reply silently.
        if self._cap_refused if body.cap_tokens is None else body.cap_tokens > room:
            cap = room
        if any(isinstance(fold, Unfold) for fold in request.folds):
            self.folded = folds_in(self.context) > 0
        changed = self.rewritten or cap is not None
        messages, system = request.messages, self._moved_system
        if self._sets_markers(body):
            messages, marked = with_markers(request, request.system, body.model)
            system = system if marked is request.system else marked
        return RequestPlan(
            body=body,
            data=self._splice(body, messages, system, cap) if changed else body.raw,
            changed=changed,
            given_tokens=self.given_tokens if self.folded else request.tokens,
            tokens=request.tokens,
            folds=folds_in(self.context) if self.folded else 0,
            new_folds=new_folds,
            limits=limits,
            version=self.version,
            rules=self.context.rules,
            tool_sizes=self.context.tool_sizes,
        )

    def _sets_markers(self, body: RequestBody) -> bool:
        # A client that caches by itself, or has not come back for its cache, is not charged for another one.
        return self.rewritten and self.returns.pay and wants_markers(body)

    # --- bytes -------------------------------------------------------------------------------------------------------

    def positions(self) -> dict[int, int]:
        """Return the position in the client's request of each recorded message, by the object's id. O(messages)."""
        return {id(entry.recorded): seq for seq, entry in self.context.view.entries.items()}

    def current_body(self, body: RequestBody) -> bytes:
        """Return a request with its recorded messages as they are shown now, and new ones unchanged. O(messages)."""
        if not self.rewritten:
            return body.raw
        shown, _ = self.context.view.wires()
        return self._splice(body, shown, self._moved_system, None)

    def _splice(self, body: RequestBody, shown: Sequence[Wire], system: System, cap_tokens: int | None) -> bytes:
        """Return the client's bytes with other messages, and another system text if it must change. O(messages)."""
        changes = {} if cap_tokens is None else lowered_cap(body, cap_tokens)
        if self.rewritten:
            changes[body.form.messages] = messages_json(body, shown, self.positions(), self.count)
            if body.form.system and system is not None:
                changes[body.form.system] = body.system_json(system)
        return body.changed(changes)


def folds_in(context: Context) -> int:
    """Count the folds that the model is shown. O(tiles)."""
    return sum((tile.fold is not None) + len(tile.forms) for tile in context.view.tiles)


# --- summaries that continue a client's request -----------------------------------------------------------------------


@runtime_checkable
class ClientSummariser(Protocol):
    """A summariser that can send a question with the fields of a client's request."""

    @property
    def model(self) -> str:
        """The model that writes."""

    def __call__(self, messages: list[dict[str, str]], max_output_tokens: int, /) -> str | Completion:
        """Summarise plain texts."""

    def as_client(self, request: Request, fields: Mapping[str, Json], /) -> str | Completion:
        """Summarise by a client's request that ends with the question, sent with these fields."""


@dataclass(frozen=True, slots=True)
class _RequestSummariser:
    """The summariser of one request. Its `continued` tells a context that it can continue the request."""

    client_summariser: ClientSummariser
    positions: Callable[[], Mapping[int, int]]
    body: RequestBody
    on_scope_used: Callable[[], None]

    @property
    def model(self) -> str:
        return self.client_summariser.model

    @property
    def dialect(self) -> str:
        return self.body.dialect

    def __call__(self, messages: list[dict[str, str]], max_output_tokens: int, /) -> str | Completion:
        return self.client_summariser(messages, max_output_tokens)

    def continued(self, request: Request, /) -> str | Completion:
        # Recorded messages have no cache markers. The client's own have them, so that the question hits its cache.
        self.on_scope_used()
        positions = self.positions()
        places = ((wire, positions.get(id(wire))) for wire in request.messages)
        messages = [wire if at is None else self.body.messages[at] for wire, at in places]
        sent = replace(request, messages=messages, breaks_at=())  # no marker that the client's request did not have
        return self.client_summariser.as_client(sent, _prompt_fields(self.body))


def summariser_for(
    summarize: SummarizeWith | None,
    body: RequestBody,
    positions: Callable[[], Mapping[int, int]],
    on_scope_used: Callable[[], None] = lambda: None,
) -> SummarizeWith | None:
    """Return the summariser for a request, able to continue it if its fields leave the answer a plain text.

    That is: no call is forced, no output format is set, and every field is known to do no harm.

    `positions` maps the id of a recorded message to its position in the body. `on_scope_used` is called before a model
    reads the system text and tools.
    """
    if isinstance(summarize, ClientSummariser) and is_text_only(_prompt_fields(body)) and _is_cached(body):
        return _RequestSummariser(summarize, positions, body, on_scope_used)
    return summarize


def _prompt_fields(body: RequestBody) -> dict[str, Json]:
    """Return the fields other than model, messages, system text, tools, caps, streaming and those of the reply."""
    form = body.form
    apart = {"model", "tools", "stream", form.messages, form.system or "", *form.caps} | _REPLY_FIELDS
    return {name: value for name, value in body.fields.items() if name not in apart and value is not None}


def _is_cached(body: RequestBody) -> bool:
    """Whether a provider caches the request. Anthropic caches on request only."""
    if not dialect_named(body.dialect).cache_markers:
        return True
    return bool(body.fields.get("cache_control")) or any(map(has_point, body.messages))
