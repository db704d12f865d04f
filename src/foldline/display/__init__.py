"""Texts for people and models about how full the window is: pure functions for any interface."""

from __future__ import annotations

from foldline.display.files import Room, file_part, file_refusal, file_view, line_bounds, preview_lines, size_text
from foldline.display.window import (
    RunNotice,
    colour,
    compact_question,
    compacted,
    preview,
    summary_of,
    telegram_compacted,
    telegram_footer,
    telegram_warning,
    threshold_question,
    token_line,
)

__all__ = [
    "Room",
    "RunNotice",
    "colour",
    "compact_question",
    "compacted",
    "file_part",
    "file_refusal",
    "file_view",
    "line_bounds",
    "preview",
    "preview_lines",
    "size_text",
    "summary_of",
    "telegram_compacted",
    "telegram_footer",
    "telegram_warning",
    "threshold_question",
    "token_line",
]
