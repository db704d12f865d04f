"""Fakes for tests of agents that use Foldline: ordinary objects, no patching."""

from __future__ import annotations

from foldline.testing.counting import count_body
from foldline.testing.provider import FakeProvider
from foldline.testing.scripts import Call, ScriptedModel, asks_for_summary, session
from foldline.testing.values import Fails, FakeReply, FakeRequest, Gate, Refused, Script

__all__ = [
    "Call",
    "Fails",
    "FakeProvider",
    "FakeReply",
    "FakeRequest",
    "Gate",
    "Refused",
    "Script",
    "ScriptedModel",
    "asks_for_summary",
    "count_body",
    "session",
]
