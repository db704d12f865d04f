"""Fakes for tests of agents that use Foldline: ordinary objects, no patching."""

from __future__ import annotations

from foldline.testing.provider import FakeProvider
from foldline.testing.script import Fails, FakeReply, FakeRequest, Gate, Refused, Script
from foldline.testing.scripted_model import Call, ScriptedModel, asks_for_summary, session
from foldline.testing.token_counts import count_body

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
