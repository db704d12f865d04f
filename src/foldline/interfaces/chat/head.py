"""What is said at the start: what runs, why, and what it may do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foldline.interfaces.chat.begin import Chat
from foldline.interfaces.chat.screen import Screen

if TYPE_CHECKING:
    from foldline.interfaces.talking import Talk

__all__ = ["first_lines", "model_lines"]


def first_lines(chat: Chat) -> None:
    """What is known at once: policy, workspace, tools that change things."""
    settings = chat.loaded.settings
    screen = chat.screen
    named = "" if settings.name == "main" else f" · agent {settings.name}"
    profile = "" if chat.loaded.profile is None else f" · profile {chat.loaded.profile}"
    screen.line(f"foldline chat{named}{profile} · policy {settings.policy_settings.name} · /help", "bold")
    allowed = ", ".join(sorted(settings.tools.allow)) or "none (--allow write_file, edit_file, run_command)"
    screen.line(f"folder   {chat.workspace}", "dim")
    screen.line(f"allowed  {allowed}; each call is asked for" if settings.tools.allow else f"allowed  {allowed}", "dim")
    for withheld in chat.loaded.withheld:
        screen.line(f"not before it is trusted (foldline config trust): {withheld}", "yellow")


def model_lines(screen: Screen, talk: Talk) -> None:
    """The model and why it was picked, its window as far as it is known, the session."""
    crew = talk.crew
    screen.line(f"model    {crew.picked.line}", "dim")
    for note in crew.picked.notes:
        screen.line(f"         {note}", "yellow")
    tokens = crew.settings.model.max_input_tokens
    if tokens is not None:
        screen.line(f"window   {tokens:,} tokens, as set", "dim")
    if talk.store is None:
        screen.line("session  nothing is kept (--no-save)", "dim")
    elif talk.id is not None:
        screen.line(f"session  {talk.id}, resumed", "dim")
