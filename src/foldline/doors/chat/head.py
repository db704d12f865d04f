"""What is said at the start: what runs, why, and what it may do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foldline.doors.chat.begin import Chat
from foldline.doors.chat.screen import Screen
from foldline.hosting.runtime import ALLOWABLE

if TYPE_CHECKING:
    from foldline.hosting.agent_conversation import Talk

__all__ = ["first_lines", "model_lines"]


def first_lines(chat: Chat) -> None:
    """What is known at once: policy, workspace, what is withheld."""
    settings = chat.loaded.settings
    screen = chat.screen
    named = "" if settings.name == "main" else f" · agent {settings.name}"
    profile = "" if chat.loaded.profile is None else f" · profile {chat.loaded.profile}"
    screen.line(f"foldline chat{named}{profile} · policy {settings.policy_settings.name} · /help", "bold")
    screen.field("folder", str(chat.workspace))
    for withheld in chat.loaded.withheld:
        screen.line(f"not before it is trusted (foldline config trust): {withheld}", "yellow")


def model_lines(screen: Screen, talk: Talk, *, asks: bool = True) -> None:
    """The model and why it was picked, what it may do, its window as far as it is known, the session.

    `asks` says whether a person is asked for each call that changes something.
    """
    crew = talk.crew
    screen.field("model", crew.picked.line)
    for note in crew.picked.notes:
        screen.field("", note, "yellow")
    allow = crew.settings.tools.allow.intersection(ALLOWABLE)
    if crew.picked.tools:
        how = "each call is asked for" if asks else "no call is asked for (--yes)"
        nothing = f"none that change anything (--allow {','.join(ALLOWABLE)})"
        screen.field("allowed", f"{', '.join(sorted(allow))}; {how}" if allow else nothing)
    elif allow:
        screen.field("allowed", f"{', '.join(sorted(allow))}: without effect, for this model gets no tools", "yellow")
    tokens = crew.settings.model.max_input_tokens
    if tokens is not None:
        screen.field("window", f"{tokens:,} tokens, as set")
    if talk.store is None:
        screen.field("session", "nothing is kept (--no-save)")
    elif talk.id is not None:
        screen.field("session", f"{talk.id}, resumed")
