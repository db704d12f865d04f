"""Pages for people."""

from __future__ import annotations

from foldline.report.page import page

__all__ = ["page"]
