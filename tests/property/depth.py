"""How deep the property tests go whose every example takes long: each day they run fewer of them."""

from __future__ import annotations

from hypothesis import settings

__all__ = ["costly", "dear", "promise"]

DAILY = 400
"""The most examples that a profile for every day runs (`ci`)."""

_most = settings().max_examples


def _daily(examples: int) -> settings:
    """Whoever asks for more than DAILY gets them all: `make fuzz`, and FOLDLINE_EXAMPLES."""
    return settings(max_examples=_most if _most > DAILY else examples)


costly = _daily(_most // 4)
"""For a test whose every example takes about ten milliseconds: a quarter of the profile's examples each day."""

dear = _daily(max(_most // 8, min(_most, 25)))
"""For one whose every example is a whole session, or takes as long for another reason: an eighth."""

promise = settings(max_examples=_most, derandomize=False)
"""For a promise of the engine: all examples of the profile, new ones each day. `make` gives them the day as seed."""
