"""Figures that compare: policies over many sessions, and the time that one turn takes."""

from __future__ import annotations

from foldline.replay.results import ENOUGH
from foldline.replay.rows import PolicyRow, rows

__all__ = ["ENOUGH", "PolicyRow", "rows"]
