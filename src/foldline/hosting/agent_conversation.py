"""One agent conversation at a time: start it, resume it, clear it, move it to another model. Knows no terminal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from typing import Final

from foldline.agent.assemble import Parts, assemble
from foldline.agent.events import Listener, Notice, TurnEnded
from foldline.agent.loop import Agent
from foldline.agent.session import AgentSession
from foldline.agent.session_context import RunSettings
from foldline.agent.settings.model import ModelSettings, PolicySettings
from foldline.agent.tools.base import PermissionRequest
from foldline.catalog.models import lookup
from foldline.codecs import codec as codec_for
from foldline.codecs.convert import convert_all
from foldline.display.resuming import resume_price, resume_text
from foldline.engine.context import Context
from foldline.engine.presets import policy as preset
from foldline.errors import FoldRefused, InvalidInput
from foldline.hosting.runtime import Runtime, model_choice
from foldline.messages import Message
from foldline.providers.discovery import DEFAULT_ADDRESSES
from foldline.providers.endpoint import HOSTED
from foldline.providers.selection import select_model
from foldline.store.base import Store, StoredSession
from foldline.store.clock import seconds_since

__all__ = ["AgentConversation", "carry_over", "named_policy", "with_policy"]

_PROVIDERS: Final = frozenset(
    {*(hosted.name for hosted in HOSTED), *(place.kind for place in DEFAULT_ADDRESSES), "embedded"}
)


class AgentConversation:
    """A conversation with an agent. Close it; the owner of `runtime` closes that.

    The session is created with the first turn, or when its state is first read. A session without a message leaves
    nothing behind. A `store` of None keeps nothing on disk.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        store: Store | None,
        emit: Listener,
        allowed: Callable[[PermissionRequest], Awaitable[bool]],
    ) -> None:
        self.runtime, self.store = runtime, store
        self._emit, self._allowed = emit, allowed
        self._agent: Agent | None = None
        self._stored: StoredSession | None = None
        self._policy: PolicySettings | None = None
        # Whether the session was created here. A resumed one is never removed, however little is in it.
        self._new = False

    @property
    def id(self) -> str | None:
        """The id of the session; None before it is on disk."""
        return None if self._stored is None else self._stored.id

    @property
    def stored(self) -> StoredSession | None:
        """The session on disk, if any."""
        return self._stored

    @property
    def policy_name(self) -> str:
        """The name of the policy in effect."""
        return (self._policy or self.runtime.settings.policy_settings).name

    @property
    def started(self) -> bool:
        """Whether the session has a message."""
        return self._agent is not None and not self._agent.session.empty

    async def agent(self) -> Agent:
        """Return the agent, created at the first call. Raises InvalidInput, OSError."""
        if self._agent is None:
            parts = await self._parts()
            # Created with the first turn, not with the chat: a person who leaves at once leaves no empty session.
            if self._stored is None and self.store is not None:
                self._stored = self._create(parts)
            elif self._stored is not None:
                await self._load_stored(parts)
            if self._agent is None:  # `_load_stored` has one already if it carried the session over
                self._agent = assemble(parts, tell=self._emit, stored=self._stored)
        return self._agent

    async def run_turn(self, text: str) -> TurnEnded:
        """Run one turn. Raises what `Agent.run` raises; the snapshot is written however the turn ends."""
        agent = await self.agent()
        try:
            return await agent.run(text)
        finally:
            self.save(agent)

    def save(self, agent: Agent) -> None:
        """Write the snapshot. Nothing depends on it: a full disk is reported, and ends nothing."""
        try:
            agent.session.save()
        except OSError as fault:
            self._emit(Notice(f"The snapshot of the session could not be written: {fault}"))

    def resume(self, name: str) -> str:
        """Resume a session by its id, a prefix of it, or "latest". Returns its id. Raises InvalidInput."""
        if self.store is None:
            raise InvalidInput("nothing is kept here (--no-save)", place="resume")
        found = self.store.find(name)
        if found == self.id:
            return found
        # Opened before the current one is left: if it is damaged or taken, the conversation stays where it was.
        opened = self.store.open(found)
        self.clear()
        self._stored = opened
        return found

    def resume_text(self) -> str | None:
        """What going on with the session costs, as a sentence; None without a known price. O(sessions)."""
        if self.store is None or self.id is None:
            return None
        snapshot = next((one.snapshot for one in self.store.sessions() if one.id == self.id), None)
        if snapshot is None:
            return None
        model = lookup(self.runtime.provider.model)
        price = resume_price(model, snapshot.tokens)
        return resume_text(price, cold=model.cache.expired(seconds_since(snapshot.updated)))

    def clear(self) -> None:
        """Leave the session; the next turn starts a new one."""
        # A session that was opened and never used must not show up in the list of sessions.
        unused = self._new and self._agent is not None and self._agent.session.empty
        if self._agent is not None:
            if self.started:
                self.save(self._agent)
            if not unused:
                self._agent.session.close()
        if self._stored is not None:
            if unused:
                self._stored.discard()
            else:
                self._stored.close()
        self._agent = self._stored = None
        self._new = False

    def close(self) -> None:
        """Leave the session. Closing twice is harmless."""
        self.clear()

    # --- another model or policy -------------------------------------------------------------------------------------

    async def use_policy(self, name: str) -> None:
        """Continue under another policy. Raises InvalidInput for an unknown one."""
        self._policy = named_policy(name)
        # The session stays and gets a new agent around it: a policy is fixed when its agent is assembled.
        if self._agent is not None:
            self._agent = self._reassembled(self._agent, await self._parts())

    async def use_model(self, name: str) -> str | None:
        """Continue with another model: NAME, PROVIDER, or PROVIDER:NAME.

        If the new model speaks another dialect, a new session starts with what the old model was shown, converted; the
        id of the old session is returned. Raises InvalidInput and what `select_model` raises; nothing has changed then.
        """
        before = self.runtime.provider
        model = self._settings_for_name(name)
        picked = await select_model(model_choice(model), self.runtime.environ)
        # The runtime changes only after the selection succeeded: a mistyped name leaves the old model in place.
        settings = replace(self.runtime.settings, model=model)
        agent, left = self._agent, self.id
        await self.runtime.change(settings, picked)
        if agent is None:
            return None
        parts = await self._parts()
        if picked.provider.dialect == before.dialect:
            self._agent = self._reassembled(agent, parts)
            return None
        self._carry_over(agent.session.context, parts, parent=left)
        self.save(agent)
        agent.session.close()
        return left or ""

    def _settings_for_name(self, name: str) -> ModelSettings:
        """The settings of a model given by name."""
        now = self.runtime.settings.model
        provider, _, rest = name.partition(":")
        # The most explicit form first. A model of a local server may have a colon in its name ("qwen3:8b"), so the part
        # before it counts only if it is a provider.
        if name in _PROVIDERS:
            return ModelSettings(provider=name)
        if rest and provider in _PROVIDERS:
            return ModelSettings(provider=provider, name=rest)
        # Limits belong to one model; the address and key stay, as the server may have several models.
        if now.base_url is not None:
            return replace(now, name=name, max_input_tokens=None, max_output_tokens=None)
        # A known model of another vendor would be refused by the current server, with a message about a wrong name.
        catalogued = lookup(name)
        if catalogued.known and catalogued.vendor in _PROVIDERS:
            return ModelSettings(provider=catalogued.vendor, name=name)
        return ModelSettings(provider=self.runtime.provider.name, name=name, api_key_env=now.api_key_env)

    async def _parts(self) -> Parts:
        return with_policy(await self.runtime.parts(self._allowed), self._policy)

    def _reassembled(self, agent: Agent, parts: Parts) -> Agent:
        return assemble(parts, tell=self._emit, session=agent.session)

    async def _load_stored(self, parts: Parts) -> None:
        """Fit a stored session to the current model and policy. A session of another dialect is carried over."""
        if self._stored is None:
            raise RuntimeError("nothing is stored")
        old, provider = self._stored, parts.provider
        header, policy = old.header, parts.settings.policy_value().name
        if header.dialect == provider.dialect:
            if (header.model, header.policy) != (provider.model, policy):
                old.change(model=provider.model, policy=policy)
            return
        # The old session is only read, in its own dialect. Nothing is sent, so it needs no system text and no tools.
        under = RunSettings(
            dialect=header.dialect,
            model=header.model or "",
            policy=parts.settings.policy_value(),
            window=parts.window_tokens,
            max_output_tokens=None,
            system=None,
            tools=None,
        )
        session = AgentSession(under, stored=old)
        try:
            self._carry_over(session.context, parts, parent=old.id)
        finally:
            session.close()
        self._emit(Notice(f"{old.id} speaks {header.dialect}; what its model was shown goes on in {self.id}."))

    def _carry_over(self, context: Context, parts: Parts, *, parent: str | None) -> None:
        """Start a session with what the old model was shown, in the dialect of the new one."""
        self._stored = self._create(parts, parent) if self.store is not None else None
        self._agent = carry_over(context, parts, emit=self._emit, stored=self._stored)

    def _create(self, parts: Parts, parent: str | None = None) -> StoredSession:
        if self.store is None:
            raise RuntimeError("there is no store")
        self._new = True
        return self.store.create(
            dialect=parts.provider.dialect,
            model=parts.provider.model,
            policy=parts.settings.policy_value().name,
            window=parts.window_tokens,
            parent=parent,
        )


def named_policy(name: str) -> PolicySettings:
    """The settings of a policy by its name. Raises InvalidInput that lists the known names."""
    preset(name)  # raises an error for a person who typed a name; that of PolicySettings is for a line of a file
    return PolicySettings(name=name)


def with_policy(parts: Parts, policy: PolicySettings | None) -> Parts:
    """Return the parts under `policy`; unchanged for None."""
    return parts if policy is None else replace(parts, settings=replace(parts.settings, policy=policy))


def carry_over(context: Context, parts: Parts, *, emit: Listener, stored: StoredSession | None) -> Agent:
    """Return an agent whose new session starts with what another model was shown, converted. O(shown)."""
    codec = codec_for(parts.provider.dialect)
    shown = [message for tile in context.view.tiles for message in tile.messages]
    # By identity: two equal messages may differ in their pin.
    pinned = {id(m) for tile in context.view.tiles if tile.pinned for m in tile.messages}
    # What the model was shown, not the whole log: the new model may have a smaller window.
    converted = convert_all([replace(m, pinned=True) if id(m) in pinned else m for m in shown], codec)
    agent = assemble(parts, tell=emit, stored=stored)
    record_messages(agent.session, converted.messages)
    if converted.lost:
        emit(Notice(f"Not carried over: {', '.join(converted.lost)}."))
    return agent


def record_messages(session: AgentSession, messages: Sequence[Message]) -> None:
    """Record messages made elsewhere, with their kinds and pins."""
    codec = codec_for(session.settings.dialect)
    # In runs of one kind: the session records a kind for each call, and keeps groups within it.
    for kind, same in groupby(messages, key=lambda message: message.kind):
        together = list(same)
        entries = session.record([codec.write(message) for message in together], kind=kind)
        for entry, message in zip(entries, together, strict=True):
            if message.pinned:
                with suppress(FoldRefused):  # nothing is folded yet; a repair may have joined it to another
                    session.pin(entry.seq)
