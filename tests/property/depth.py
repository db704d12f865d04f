"""How deep the property tests on whole sessions go."""

from __future__ import annotations

from hypothesis import settings

__all__ = ["costly"]

DAILY = 400
"""The most examples that a profile for every day runs (`ci`)."""

_most = settings().max_examples

costly = settings(max_examples=_most if _most > DAILY else _most // 4)
"""For a test whose every example is a whole session: a quarter of the profile's examples each day.

Whoever asks for more than DAILY gets them all: `make fuzz`, and FOLDLINE_EXAMPLES.
"""
