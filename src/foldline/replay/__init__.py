"""Replaying recorded sessions: what each policy sends, what that costs, what it keeps and what it breaks."""

from __future__ import annotations

from foldline.replay.run import Recording, policy_named, replay
from foldline.replay.turns import NONE, Mark, Recall, Replay, Tally, Turn

__all__ = ["NONE", "Mark", "Recall", "Recording", "Replay", "Tally", "Turn", "policy_named", "replay"]
