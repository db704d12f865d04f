"""The frame of every page: one file that needs nothing beside itself, in light and dark."""

from __future__ import annotations

from collections.abc import Sequence

from foldline.report.style import STYLE

__all__ = ["document"]


def document(title: str, body: Sequence[str], *, style: str = "") -> str:
    """A whole page as text, to be saved as UTF-8. The parts of `body` are HTML, the title is plain words of ours.

    `style` is what this page needs over the style of all pages.

    The policy forbids scripts and anything from elsewhere: what pages show of a session was written by others.
    """
    return "\n".join(
        (_HEAD.format(title=title, style=STYLE + style), "<main>", *body, "</main>", "</body>", "</html>", "")
    )


_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>"""
