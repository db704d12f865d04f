"""Replay recorded sessions: the requests of each policy, their price, their recall and their faults."""

from __future__ import annotations

from foldline.replay.recall import MeasuredSession
from foldline.replay.results import (
    DISTANCES,
    NONE,
    HitCount,
    Mark,
    RecallCounts,
    Replay,
    Rereads,
    SummaryCall,
    Turn,
    bill_tokens,
    reread_tokens,
)
from foldline.replay.run import Managed, Pauses, Sender, Sent, Unmanaged, context_for, policy_named, replay

__all__ = [
    "DISTANCES",
    "NONE",
    "HitCount",
    "Managed",
    "Mark",
    "MeasuredSession",
    "Pauses",
    "RecallCounts",
    "Replay",
    "Rereads",
    "Sender",
    "Sent",
    "SummaryCall",
    "Turn",
    "Unmanaged",
    "bill_tokens",
    "context_for",
    "policy_named",
    "replay",
    "reread_tokens",
]
