"""Finds the conversation of each request, and says what is to be sent for it.

One request of a conversation is worked on at a time; different ones go side by side. What takes long (a long history, a
summary, a store) is done in threads, so that streams of others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar
from uuid import uuid4
from weakref import WeakValueDictionary

from foldline.budget import Limits
from foldline.context import SummarizeWith
from foldline.conversations.ahead import is_small
from foldline.conversations.asked import Asked, How, beside_of, is_chance, is_reminded, is_smaller
from foldline.conversations.body import RequestBody
from foldline.conversations.chain import said, tolerant_links
from foldline.conversations.conversation import Conversation, Under, before, limits_for
from foldline.conversations.hold import Hold
from foldline.conversations.keeping import Found, Keeping, LateArchive
from foldline.conversations.known import Held, Known, Match, common
from foldline.conversations.store_at_hand import StoreAtHand
from foldline.errors import SessionLost
from foldline.failures import Failure
from foldline.transcript import Event

__all__ = ["Conversations"]

_INLINE_CHARS: Final = 64 * 1024
"""Text that is taken up on the event loop: a few milliseconds of work; more goes into a thread."""

_THREADS: Final = 16
_ASKING_THREADS: Final = 64
"""Summaries wait in these for a model, for minutes; nothing else waits behind them."""

_TURN_MESSAGES: Final = 2
"""An answer and what the user or a tool said to it. A turn may have more, but most have these."""

T = TypeVar("T")


class Conversations:
    """All conversations of a proxy: in memory as long as they are used, at most `most_bytes` of them.

    With `keeping` those that were folded are in a store too; if it is `shared`, other processes may go on with them at
    any time, and each request looks there first. A store that is lost is told by `notice` and by warnings.
    """

    def __init__(
        self,
        under: Under,
        *,
        most_bytes: int,
        keeping: Keeping | None = None,
        shared: bool = False,
        notice: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._under = under
        self._known = Known(most_bytes)
        self._named: WeakValueDictionary[str, Held] = WeakValueDictionary()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="foldline-conversation")
        self._asking = ThreadPoolExecutor(_ASKING_THREADS, thread_name_prefix="foldline-summary")
        self._most_output: dict[str, int] = {}
        self._most_window: dict[str, int] = {}
        """What refusals said, by the name that it was learned as: believed whatever else was said of that window."""
        self._store = None
        if keeping is not None:
            self._store = StoreAtHand(keeping, shared=shared, run=self._run, notice=notice)

    def __len__(self) -> int:
        return len(self._known)

    @property
    def weight_bytes(self) -> int:
        """About how much memory the conversations take."""
        return self._known.bytes

    @property
    def store_up(self) -> bool:
        """Whether the store answered when it was last asked; True without one."""
        return self._store is None or self._store.up

    def kept_as(self, hold: Hold) -> str:
        """The id under which the store has a conversation; "" if it has it not."""
        return "" if self._store is None else self._store.keeping.session_of(hold.held.conversation)

    async def take(self, body: RequestBody, window_tokens: int, **given: Any) -> Hold:
        """What to send for a request: `asked`, with the same arguments, and `take_up` in one."""
        return await self.take_up(self.asked(body, window_tokens, **given))

    def asked(
        self,
        body: RequestBody,
        window_tokens: int,
        *,
        learned_as: str = "",
        name: str = "",
        how: How = "fold",
        summarize: SummarizeWith | None = None,
    ) -> Asked:
        """A request under its limits; `name` is the one that its client gave the conversation.

        What a refusal tells of the window holds for all requests with the same `learned_as`: else for the model.
        """
        learned_as = learned_as or body.model
        window_tokens = min(window_tokens, self._most_window.get(learned_as, window_tokens))
        limits = limits_for(body, window_tokens, most_output_tokens=self._most_output.get(body.model))
        return Asked(body, limits, name, how, summarize, learned_as=learned_as)

    def passes(self, asked: Asked) -> bool:
        """Whether a request is sure to go on as it came, so that it may be sent before it is taken up. O(messages).

        That is: it is well below its limits by the length of its text, and goes on with a conversation in memory that
        nothing is folded of, or begins one.
        """
        if asked.name or (self._store is not None and self._store.shared):
            return False
        match = self._match(asked)
        if self._store is not None and self._is_for_store(match, asked):
            return False
        if match is None:
            return is_small(asked, None, self._under.policy)
        held = match.held
        same = match.goes_on and not held.name and held.beside_newest == asked.beside and not is_smaller(held, asked)
        return same and not held.lock.locked() and is_small(asked, held.conversation, self._under.policy)

    async def take_up(self, asked: Asked, *, sent: bool = False) -> Hold:
        """What to send for a request; with `sent` it has gone out as it came, and is only taken up.

        Raises DoesNotFit, and InvalidInput for messages that cannot be read: such a request can only be passed on.
        """
        asked.sent = sent
        for _ in range(3):
            try:
                held, warning = await self._found(asked)
            except SessionLost:
                continue  # the one that it branches off had to go meanwhile: it is in the store
            async with held.lock:
                if not self._goes_on(held, asked):
                    continue  # another request went on with it meanwhile
                try:
                    return await self._hold(held, asked, warning)
                except SessionLost:
                    self._forget(held)
        held = self._made(asked.body, asked.limits, [])
        asked.name, asked.how = "", "look" if asked.how == "fold" else asked.how
        async with held.lock:
            return await self._hold(held, asked, "")

    async def standing(self, body: RequestBody) -> bytes:
        """A request as it would be sent now, without folding anew: what its tokens are to be counted of.

        Nothing is taken up: such a question may come while the conversation is asked something else.
        """
        asked = Asked(body, limits_for(body, 2**40), "", "look", None)
        match = self._match(asked)
        if match is None or not match.goes_on:
            return body.raw
        async with match.held.lock:
            return match.held.conversation.standing(body) if self._goes_on(match.held, asked) else body.raw

    async def recover(self, hold: Hold, failure: Failure) -> bool:
        """Change a plan after the upstream refused it; whether to send it again. Raises DoesNotFit."""
        if failure.limit_of == "output" and failure.limit:
            self._most_output[hold.plan.body.model] = failure.limit
        held, body = hold.held, hold.plan.body
        async with held.lock:
            if hold.plan.version == held.conversation.version:
                return await self._recovered(hold, failure)
        # It went on with another request: what was refused is a branch of its own.
        limits = hold.plan.limits
        try:
            held = await self._branch(body, limits, held, len(body.messages))
        except SessionLost:
            held = await self._run(self._made, body, limits, [])
        async with held.lock:
            await self._run(held.conversation.take_up, body)
            hold.held, hold.plan = held, await self._run(held.conversation.plan, body, limits)
            self._index(held, Asked(body, limits, "", hold.how, None))
            return await self._recovered(hold, failure)

    async def _recovered(self, hold: Hold, failure: Failure) -> bool:
        """Change the newest plan of a conversation whose lock is held."""
        held = hold.held
        recover = partial(held.conversation.recover, hold.plan, failure, hold.summarize)
        plan = await self._in(self._threads if hold.summarize is None else self._asking, recover)
        if plan is None:
            return False
        hold.plan = plan
        await self._learn(hold)
        if plan.new_folds:
            try:
                await self._write(hold)
            except SessionLost:  # the next request reads what the other process wrote
                self._forget(held)
        return True

    async def _learn(self, hold: Hold) -> None:
        """Take the window that a refusal named."""
        learned, under = hold.held.conversation.learned, self._under
        while learned:
            _, tokens = learned.popitem()
            self._most_window[hold.learned_as] = tokens
            await self._run(under.learned.__setitem__, (under.endpoint, hold.learned_as), tokens)  # it may be a file

    async def aclose(self) -> None:
        """Write down what is not yet, and let go of everything."""
        if self._store is not None:
            for held in self._known:
                self._store.leave(held)
            await self._store.aclose()
        for threads in (self._threads, self._asking):
            threads.shutdown(wait=False, cancel_futures=True)

    # --- finding -----------------------------------------------------------------------------------------------------

    async def _found(self, asked: Asked) -> tuple[Held, str]:
        """The conversation that a request goes on with, or a new one that begins as far as one is known."""
        match, warning, name = self._match(asked), "", asked.name
        if self._store is not None and self._is_for_store(match, asked):
            after = 0 if match is None else match.depth - 1
            found, warning = await self._store.find(
                asked.exact[after:],
                asked.tolerant()[after:],
                name="" if match is not None and match.held.name == name else name,
                own=None if match is None else match.held,
            )
            if found is not None:
                made = await self._from_store(asked, found)
                same = match is not None and match.goes_on and match.held.name in ("", name)
                if same and match is not None and not match.held.lock.locked():
                    self._forget(match.held)  # the new one begins with all of it
                return self._call(made, name), warning
        if match is None:
            return self._call(self._made(asked.body, asked.limits, []), name), warning
        if match.goes_on and match.held.name in ("", name):
            if not is_smaller(match.held, asked):
                return self._call(match.held, name), warning
            # A side question, as for a title: it is not worth a summary, and the store leads to the main one.
            asked.summarize, asked.how = None, "look" if asked.how == "fold" else asked.how
        held = await self._branch(asked.body, asked.limits, match.held, match.depth)
        if is_reminded(match, asked) and not match.held.lock.locked():
            held.conversation.name = match.held.conversation.name  # the same one, but for what stood at its end
            self._forget(match.held)
        return self._call(held, name), warning

    def _match(self, asked: Asked) -> Match | None:
        named = self._named.get(asked.name) if asked.name else None
        if named is not None and named in self._known:
            depth = max(common(named.exact, asked.exact), common(named.tolerant, asked.tolerant()))
            return Match(named, depth) if depth else None
        match = self._known.match(asked.exact, asked.tolerant, asked.beside)
        return None if match is None or is_chance(match, asked) else match

    def _is_for_store(self, match: Match | None, asked: Asked) -> bool:
        """Whether the store may know more of a request than memory does."""
        if asked.how == "refuse":
            return False
        if self._store is not None and self._store.shared and len(asked.exact) > 1:
            return True
        if match is None:  # of a first question there is nothing to fold but what would be cut alike again
            return bool(asked.name) or not asked.is_first
        if not match.goes_on or match.held.name != asked.name:
            return True
        # More than a turn is new: it may be another one, whose beginning is the same by chance.
        return len(asked.exact) - match.depth > _TURN_MESSAGES and not match.held.conversation.folded

    def _goes_on(self, held: Held, asked: Asked) -> bool:
        """Whether a request begins with all of a conversation."""
        count = held.conversation.count
        if not held.exact:
            return count <= len(asked.body.messages)
        if held not in self._known:
            return False  # it had to go meanwhile, and what was let go of it is in the store
        if count > len(asked.exact) or count != len(held.exact):
            return False
        return held.exact[-1] == asked.exact[count - 1] or held.tolerant[-1] == asked.tolerant()[count - 1]

    def _forget(self, held: Held) -> None:
        """Let go of a conversation that another process has gone on with: it is read anew."""
        self._known.drop(held)
        if self._store is not None:
            self._store.drop(held)

    def _call(self, held: Held, name: str) -> Held:
        if name:
            held.name = name
            self._named[name] = held
        return held

    # --- making ------------------------------------------------------------------------------------------------------

    async def _branch(self, body: RequestBody, limits: Limits, source: Held, count: int) -> Held:
        """A new conversation that begins with the first messages of another one. O(log)."""
        async with source.lock:
            context = source.conversation.context
            events = context.events if self._store is None else await self._store.events(source)
            idle_seconds = source.conversation.idle.seconds
        return await self._run(self._made, body, limits, before(events, count), idle_seconds)

    async def _from_store(self, asked: Asked, found: Found) -> Held:
        """The conversation of a store, or a branch of it where the request goes another way."""

        def read() -> Held:
            its = tolerant_links(asked.body.dialect, said(asked.body.dialect, list(found.messages)))
            depth = common(its, asked.tolerant())
            held = self._made(asked.body, asked.limits, before(found.events, depth), found.idle_seconds)
            if depth == len(its) and self._store is not None:
                held.archive.behind(found.archive)
                self._store.keeping.adopt(held.conversation, found)
            return held

        return await self._run(read)

    def _made(self, body: RequestBody, limits: Limits, events: Sequence[Event], idle_seconds: float = 0.0) -> Held:
        archive, name = LateArchive(), uuid4().hex[:16]
        conversation = Conversation(
            name, body, self._under, limits, archive=archive, events=events, idle_seconds=idle_seconds
        )
        return Held(conversation, archive, beside_of(body))

    # --- working -----------------------------------------------------------------------------------------------------

    async def _hold(self, held: Held, asked: Asked, warning: str) -> Hold:
        conversation, body, limits, how = held.conversation, asked.body, asked.limits, asked.how
        most = self._most_output.get(body.model)
        held.beside_newest = asked.beside  # first: also of what cannot be read, or is left, it is counted from here on
        if sum(stop - start for start, stop in body.item_spans[conversation.count :]) > _INLINE_CHARS:
            try:
                await self._run(conversation.take_up, body)
            except asyncio.CancelledError:
                if conversation.count == len(asked.exact):  # it was taken up: the next request is to find all of it
                    self._index(held, asked)
                raise
        else:
            conversation.take_up(body)
        self._index(held, asked)
        held.kept = held.kept or how == "fold"
        if how == "refuse":
            conversation.refuse(limits)
            return Hold(held, conversation.as_it_came(body, limits), how, None, warning, asked.learned_as)
        # Nobody knows what others have folded: as it came, to begin with. What was sent grew meanwhile by another one.
        if (warning and not conversation.folded) or (asked.sent and not conversation.is_calm(limits)):
            return Hold(held, conversation.as_it_came(body, limits), how, asked.summarize, warning, asked.learned_as)
        if conversation.is_calm(limits):
            plan = conversation.plan(body, limits, most_output_tokens=most)
        else:
            work = partial(conversation.plan, body, limits, asked.summarize, most_output_tokens=most)
            plan = await self._in(self._threads if asked.summarize is None else self._asking, work)
        if asked.sent:
            plan = replace(plan, data=body.raw, changed=False)  # also where a cap was learned meanwhile
        hold = Hold(held, plan, how, asked.summarize, warning, asked.learned_as)
        if plan.new_folds or held.owes:
            await self._write(hold)
        return hold

    def _index(self, held: Held, asked: Asked) -> None:
        """Have it be found by what its client sends now. O(new)."""
        old = held.tolerant
        if held.exact:
            new = tolerant_links(asked.body.dialect, asked.messages[len(old) :], after=old[-1])
            tolerant = [*old, *new]
        else:
            tolerant = asked.tolerant()
        for gone in self._known.put(held, asked.exact, tolerant):
            if self._store is not None:
                self._store.leave(gone)

    async def _write(self, hold: Hold) -> None:
        if self._store is not None and hold.how == "fold":
            warning = await self._store.write(hold.held)
            hold.held.owes, hold.warning = bool(warning), warning or hold.warning

    async def _run(self, work: Callable[..., T], *given: object) -> T:
        return await self._in(self._threads, work, *given)

    async def _in(self, threads: ThreadPoolExecutor, work: Callable[..., T], *given: object) -> T:
        """Do something in a thread. A client that leaves is let go of when it is done: half of it would be nobody's."""
        future = asyncio.get_running_loop().run_in_executor(threads, work, *given)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            while not future.done():
                with suppress(asyncio.CancelledError):  # a second one, as at the end of a server
                    await asyncio.wait({future})
            if not future.cancelled():
                future.exception()
            raise
