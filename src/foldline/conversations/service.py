"""Finds the conversation of each request, and says what is to be sent for it.

One request of a conversation is worked on at a time; different ones go side by side. What takes long (a long history, a
summary, a store) is done in threads, so that streams of others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final
from uuid import uuid4
from weakref import WeakValueDictionary

from foldline.conversations.beginning import kept_of
from foldline.conversations.chain import said, tolerant_links
from foldline.conversations.conversation import UNKNOWN_TOKENS, Conversation, Under, limits_for
from foldline.conversations.conversation_cache import Held, Known, Match, common
from foldline.conversations.learned_limits import Taught
from foldline.conversations.matching import Asked, is_chance, is_for, is_reminded, is_smaller, may_be_stored
from foldline.conversations.passthrough import is_small
from foldline.conversations.persistence import Found, Keeping, LateArchive
from foldline.conversations.planned_request import Hold, How
from foldline.conversations.request_body import RequestBody
from foldline.conversations.store_guard import StoreAtHand
from foldline.conversations.threads import Working
from foldline.engine.context import SummarizeWith
from foldline.engine.learned_caps import lesson_in, lesson_name
from foldline.errors import SessionLost
from foldline.failures import Failure
from foldline.view.transcript import Event

__all__ = ["Conversations"]

_INLINE_CHARS: Final = 64 * 1024
"""Text that is taken up on the event loop: a few milliseconds of work; more goes into a thread."""


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
        self._working = Working()
        self._taught = Taught()
        self._store = None
        if keeping is not None:
            self._store = StoreAtHand(keeping, shared=shared, run=self._working.run, notice=notice)

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

    async def take(self, body: RequestBody, window_tokens: int | None, **given: Any) -> Hold:
        """What to send for a request: `asked`, with the same arguments, and `take_up` in one."""
        return await self.take_up(self.asked(body, window_tokens, **given))

    def asked(
        self,
        body: RequestBody,
        window_tokens: int | None,
        *,
        learned_as: str = "",
        name: str = "",
        how: How = "fold",
        summarize: SummarizeWith | None = None,
        client: bytes = b"",
    ) -> Asked:
        """A request under its limits (None: nobody knows the window, so nothing is folded until the upstream refuses).

        `name` is the one that its client gave the conversation.

        `client` is a hash of the credential that is shown with it: conversations are known, and limits learned, for
        each by itself. What a refusal tells of the window holds for all its requests with the same `learned_as`: else
        for the model.
        """
        learned_as = learned_as or body.model
        window_tokens = self._taught.window_tokens(client, learned_as, window_tokens or UNKNOWN_TOKENS)
        limits = limits_for(body, window_tokens, most_output_tokens=self._taught.most_output_tokens(client, body.model))
        return Asked(body, limits, name, how, summarize, learned_as=learned_as, client=client)

    def passes(self, asked: Asked) -> bool:
        """Whether a request is sure to go on as it came, so that it may be sent before it is taken up. O(messages).

        That is: it is well below its limits by the length of its text, and goes on with a conversation in memory that
        nothing is folded of, or begins one.
        """
        if asked.name or (self._store is not None and self._store.shared):
            return False
        if self._under.taught(asked.learned_as, asked.client):
            return False
        match = self._match(asked)
        if self._store is not None and may_be_stored(match, asked, shared=self._store.shared):
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
        held = self._made(asked, [])
        asked.name, asked.how = "", "look" if asked.how == "fold" else asked.how
        async with held.lock:
            return await self._hold(held, asked, "")

    async def standing(self, body: RequestBody, client: bytes = b"") -> bytes:
        """A request as it would be sent now, without folding anew: what its tokens are to be counted of.

        Nothing is taken up: such a question may come while the conversation is asked something else.
        """
        asked = Asked(body, limits_for(body, UNKNOWN_TOKENS), "", "look", None, client=client)
        match = self._match(asked)
        if match is None or not match.goes_on:
            return body.raw
        async with match.held.lock:
            same = self._goes_on(match.held, asked) and is_for(match.held, asked)
            return match.held.conversation.standing(body) if same else body.raw

    def took(self, hold: Hold, reported_tokens: int | None) -> None:
        """A request was answered; the upstream reported its size, or did not (None)."""
        self._taught.took(hold.client, hold.learned_as, hold.plan.tokens, reported_tokens)

    async def recover(self, hold: Hold, failure: Failure) -> bool:
        """Change a plan after the upstream refused it; whether to send it again. Raises DoesNotFit.

        A limit far below what the same client was answered to is not believed beyond this request: it is made smaller
        by itself, and its conversation stays as it was.
        """
        named = failure.limit or 0
        if named and failure.limit_of == "output":
            self._taught.learn_output(hold.client, hold.plan.body.model, named)
        doubted = failure.limit_of == "window" and self._taught.doubts(hold.client, hold.learned_as, named)
        if doubted := named > 0 and doubted and not hold.doubted:
            hold.doubted, hold.summarize = True, None
        held, body = hold.held, hold.plan.body
        if not doubted:
            async with held.lock:
                if hold.plan.version == held.conversation.version:
                    return await self._recovered(hold, failure)
        # It went on with another request, or this refusal is not believed: what was refused is one of its own.
        limits = hold.plan.limits
        asked = Asked(body, limits, "", hold.how, hold.summarize, learned_as=hold.learned_as, client=hold.client)
        try:
            held = await self._branch(asked, held, len(body.messages))
        except SessionLost:
            held = await self._working.run(self._made, asked, [])
        async with held.lock:
            await self._working.run(held.conversation.take_up, body)
            hold.held, hold.plan = held, await self._working.run(held.conversation.plan, body, limits)
            if not hold.doubted:
                self._index(held, asked)
            return await self._recovered(hold, failure)

    async def _recovered(self, hold: Hold, failure: Failure) -> bool:
        """Change the newest plan of a conversation whose lock is held."""
        held = hold.held
        recover = partial(held.conversation.recover, hold.plan, failure, hold.summarize)
        plan = await self._working.ask(recover, asks=hold.summarize is not None)
        if plan is None:
            return False
        hold.plan = plan
        if hold.doubted:
            return True
        await self._learn(hold)
        if plan.new_folds:
            try:
                await self._write(hold)
            except SessionLost:  # the next request reads what the other process wrote
                self._forget(held)
        return True

    async def _learn(self, hold: Hold) -> None:
        """Take the window that a refusal named, and what else it taught."""
        learned, under = hold.held.conversation.learned, self._under
        while learned:
            (_, name), number = learned.popitem()
            if not (lesson := lesson_in(name)):
                self._taught.learn_window(hold.client, hold.learned_as, number)
            key = under.endpoint, lesson_name(hold.learned_as, lesson), hold.client
            await self._working.run(under.learned.__setitem__, key, number)  # it may be a file

    async def aclose(self) -> None:
        """Write down what is not yet, and let go of everything."""
        if self._store is not None:
            for held in self._known:
                self._store.leave(held)
            await self._store.aclose()
        self._working.close()

    # --- finding -----------------------------------------------------------------------------------------------------

    async def _found(self, asked: Asked) -> tuple[Held, str]:
        """The conversation that a request goes on with, or a new one that begins as far as one is known."""
        match, warning, name = self._match(asked), "", asked.name
        if self._store is not None and may_be_stored(match, asked, shared=self._store.shared):
            after = 0 if match is None else match.depth - 1
            found, warning = await self._store.find(
                asked.exact[after:],
                asked.tolerant()[after:],
                name="" if match is not None and match.held.name == name else name,
                own=None if match is None else match.held,
                sight=asked.sight,
            )
            if found is not None:
                made = await self._from_store(asked, found)
                same = match is not None and match.goes_on and match.held.name in ("", name)
                if same and match is not None and not match.held.lock.locked():
                    self._forget(match.held)  # the new one begins with all of it
                return self._call(made, name), warning
        if match is None:
            return self._call(self._made(asked, []), name), warning
        if match.goes_on and match.held.name in ("", name) and is_for(match.held, asked):
            if not is_smaller(match.held, asked):
                return self._call(match.held, name), warning
            # A side question, as for a title: it is not worth a summary, and the store leads to the main one.
            asked.summarize, asked.how = None, "look" if asked.how == "fold" else asked.how
        held = await self._branch(asked, match.held, match.depth)
        if is_reminded(match, asked) and not match.held.lock.locked():
            held.conversation.name = match.held.conversation.name  # the same one, but for what stood at its end
            self._forget(match.held)
        return self._call(held, name), warning

    def _match(self, asked: Asked) -> Match | None:
        named = self._named.get(asked.name) if asked.name else None
        if named is not None and named in self._known:
            depth = max(common(named.exact, asked.exact), common(named.tolerant, asked.tolerant()))
            return Match(named, depth) if depth else None
        match = self._known.match(asked.exact, asked.tolerant, asked.beside, model=asked.body.model)
        return None if match is None or is_chance(match, asked) else match

    def _goes_on(self, held: Held, asked: Asked) -> bool:
        """Whether a request begins with all of a conversation that is still known (what was let go of is stored)."""
        return asked.begins_with(held) and (not held.exact or held in self._known)

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

    async def _branch(self, asked: Asked, source: Held, count: int) -> Held:
        """A new conversation that begins with the first messages of another one. O(log)."""
        async with source.lock:
            conversation = source.conversation
            events = conversation.context.events if self._store is None else await self._store.events(source)
            idle_seconds, sight = conversation.idle.seconds, conversation.sight
            varies = count == conversation.count and source.sight_newest != asked.sight
        held = await self._working.run(
            self._made, asked, kept_of(events, count, sight, asked.sight), idle_seconds, sight
        )
        held.conversation.varies = held.conversation.varies or varies
        return held

    async def _from_store(self, asked: Asked, found: Found) -> Held:
        """The conversation of a store, or a branch of it where the request goes another way."""

        def read() -> Held:
            dialect = asked.body.dialect
            its = tolerant_links(dialect, said(dialect, list(found.messages)), client=asked.client)
            depth = common(its, asked.tolerant())
            events = kept_of(found.events, depth, found.sight, asked.sight)
            held = self._made(asked, events, found.idle_seconds, found.sight)
            if depth == len(its) and found.sight is not None and self._store is not None:
                held.archive.behind(found.archive)
                self._store.keeping.adopt(held.conversation, found)
            return held

        return await self._working.run(read)

    def _made(
        self, asked: Asked, events: Sequence[Event], idle_seconds: float = 0.0, sight: bytes | None = b""
    ) -> Held:
        """A conversation that begins with events, in which a model wrote that had these things in sight."""
        archive, name = LateArchive(), uuid4().hex[:16]
        under = replace(self._under, lessons=self._under.taught(asked.learned_as, asked.client))
        conversation = Conversation(
            name, asked.body, under, asked.limits, archive=archive, events=events, idle_seconds=idle_seconds
        )
        if sight == asked.sight:
            conversation.sight = asked.sight
        else:
            conversation.varies = sight != b""
        return Held(conversation, archive, asked.beside)

    # --- working -----------------------------------------------------------------------------------------------------

    async def _hold(self, held: Held, asked: Asked, warning: str) -> Hold:
        conversation, body, limits = held.conversation, asked.body, asked.limits
        await self._taken_up(held, asked)
        if asked.how == "refuse":
            conversation.refuse(limits)
            return asked.held(held, conversation.as_it_came(body, limits), warning)
        # Nobody knows what others have folded: as it came, to begin with. What was sent grew meanwhile by another one.
        if (warning and not conversation.rewritten) or (asked.sent and not conversation.is_calm(limits)):
            return asked.held(held, conversation.as_it_came(body, limits), warning)
        most = self._taught.most_output_tokens(asked.client, body.model)
        plan_it = partial(conversation.plan, body, limits, most_output_tokens=most, sight=asked.sight)
        if conversation.is_calm(limits):
            plan = plan_it()
        else:
            plan = await self._working.ask(partial(plan_it, asked.summarize), asks=asked.summarize is not None)
        if asked.sent:
            plan = replace(plan, data=body.raw, changed=False)  # also where a cap was learned meanwhile
        hold = asked.held(held, plan, warning)
        if plan.new_folds or held.owes:
            await self._write(hold)
        return hold

    async def _taken_up(self, held: Held, asked: Asked) -> None:
        """Record what is new in a request."""
        conversation, body = held.conversation, asked.body
        if held.sight_newest not in (b"", asked.sight):
            conversation.varies = True
        # First: also of what cannot be read, or is left, it is counted from here on.
        held.sight_newest, held.beside_newest = asked.sight, asked.beside
        if sum(stop - start for start, stop in body.item_spans[conversation.count :]) > _INLINE_CHARS:
            try:
                await self._working.run(conversation.take_up, body)
            except asyncio.CancelledError:
                if conversation.count == len(asked.exact):  # it was taken up: the next request is to find all of it
                    self._index(held, asked)
                raise
        else:
            conversation.take_up(body)
        self._index(held, asked)
        held.kept = held.kept or asked.how == "fold"

    def _index(self, held: Held, asked: Asked) -> None:
        """Have it be found by what its client sends now. O(new)."""
        for gone in self._known.put(held, asked.exact, asked.tolerant_on(held)):
            if self._store is not None:
                self._store.leave(gone)

    async def _write(self, hold: Hold) -> None:
        if self._store is not None and hold.how == "fold":
            warning = await self._store.write(hold.held)
            hold.held.owes, hold.warning = bool(warning), warning or hold.warning
