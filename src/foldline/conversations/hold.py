"""One request of a conversation, while it is on its way."""

from __future__ import annotations

from dataclasses import dataclass

from foldline.context import SummarizeWith
from foldline.conversations.asked import How
from foldline.conversations.conversation import Plan
from foldline.conversations.known import Held
from foldline.transcript import Usage

__all__ = ["Hold"]


@dataclass(slots=True)
class Hold:
    """One request of a conversation: what to send for it. `warning` says what could not be done as it should.

    A window that a refusal of it names is learned as `learned_as`.
    """

    held: Held
    plan: Plan
    how: How
    summarize: SummarizeWith | None
    warning: str = ""
    learned_as: str = ""

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
            self.held.conversation.observe(self.plan, usage)
        return self.plan.truncated(usage, stop_reason)
