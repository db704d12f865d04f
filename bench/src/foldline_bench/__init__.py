"""Figures that compare: policies over many sessions, and the time that one turn takes."""

from __future__ import annotations

from foldline.replay.rows import ENOUGH, Row, rows

__all__ = ["ENOUGH", "Row", "rows"]
