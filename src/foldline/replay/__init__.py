"""Replaying recorded sessions: what each policy sends, what that costs, what it keeps and what it breaks."""

from __future__ import annotations

from foldline.replay.cache import bill_tokens
from foldline.replay.recording import Recording
from foldline.replay.run import policy_named, replay
from foldline.replay.senders import Managed, Pauses, Sender, Sent, Unmanaged, context_for
from foldline.replay.turns import DISTANCES, NONE, Asked, Mark, Recall, Replay, Tally, Turn

__all__ = [
    "DISTANCES",
    "NONE",
    "Asked",
    "Managed",
    "Mark",
    "Pauses",
    "Recall",
    "Recording",
    "Replay",
    "Sender",
    "Sent",
    "Tally",
    "Turn",
    "Unmanaged",
    "bill_tokens",
    "context_for",
    "policy_named",
    "replay",
]
