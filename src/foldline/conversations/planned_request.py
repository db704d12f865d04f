"""One request of a conversation, while it is on its way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from foldline.conversations.conversation import Plan
from foldline.conversations.conversation_cache import Held
from foldline.engine.context import SummarizeWith
from foldline.view.transcript import Usage

__all__ = ["Hold", "How"]

How: TypeAlias = Literal["fold", "look", "refuse"]
"""Fold what does not fit; the same, written nowhere; refuse what does not fit."""


@dataclass(slots=True)
class Hold:
    """One request of a conversation: what to send for it. `warning` says what could not be done as it should.

    A window that a refusal of it names is learned as `learned_as`, for this `client` alone.
    """

    held: Held
    plan: Plan
    how: How
    summarize: SummarizeWith | None
    warning: str = ""
    learned_as: str = ""
    doubt: str = ""
    """Why what was reported cannot be true of it, where the report before was not doubted."""
    client: bytes = b""
    doubted: bool = False
    """Whether it was changed for a limit that is not believed: another request is sent as if there had been none."""

    @property
    def session(self) -> str:
        """The name of the conversation."""
        return self.held.conversation.name

    @property
    def title(self) -> str:
        """The first words of the user in it."""
        return self.held.conversation.title

    def observe(self, usage: Usage, stop_reason: str = "") -> str:
        """Take what the upstream reported; says why it is thought to have cut the prompt, "" if it is not."""
        if not self.held.lock.locked():  # else the next request is worked on, and this one is no longer the newest
            doubt = self.held.conversation.observe(self.plan, usage)
            self.doubt, self.held.doubted = "" if self.held.doubted else doubt, bool(doubt)
        return self.plan.truncated(usage, stop_reason)
