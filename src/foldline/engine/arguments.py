"""Arguments of the public functions, checked before anything is done with them.

Checked at the door, so that a wrong argument is named as such. Inside it would surface messages later, as an error of
arithmetic in a reducer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, Final

from foldline.engine.policy import Policy
from foldline.errors import InvalidInput

__all__ = ["check_arguments", "checked_ranges"]


def _whole(least: int) -> Callable[[Any], bool]:
    # `True` is an int in Python, and a window of 1 token is never what was meant.
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least


def _listed(kind: type) -> Callable[[Any], bool]:
    def holds(value: Any) -> bool:
        # A text is a sequence of texts: `facts="port 80"` would become seven facts of one letter.
        listed = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        return listed and all(isinstance(item, kind) for item in value)

    return holds


_blocks, _pairs = _listed(Mapping), _listed(int)

_ARGUMENTS: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "dialect": (lambda value: isinstance(value, str), "the name of a dialect"),
    "model": (lambda value: value is None or isinstance(value, str), "the name of a model"),
    "policy": (lambda value: isinstance(value, str | Policy), "the name of a policy, or a Policy"),
    "max_tokens": (_whole(1), "a positive number of tokens"),
    "window": (lambda value: value is None or _whole(1)(value), "a positive number of tokens"),
    "max_output_tokens": (lambda value: value is None or _whole(0)(value), "a number of tokens, 0 or more"),
    "max_request_bytes": (lambda value: value is None or _whole(1)(value), "a positive number of bytes"),
    "system": (lambda value: value is None or isinstance(value, str) or _blocks(value), "text or a list of blocks"),
    "tools": (lambda value: value is None or _blocks(value), "a list of tool definitions"),
    "facts": (_listed(str), "a list of texts"),
    "rules_share": (
        lambda value: isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 0.5,
        "a share from 0 to 0.5",
    ),
    "learned": (lambda value: value is None or isinstance(value, MutableMapping), "a mapping that can be written"),
    "on_event": (lambda value: value is None or callable(value), "a function of one event"),
}


def check_arguments(**arguments: Any) -> None:
    """Check arguments of the public functions before anything is done with them. O(tools + facts).

    Raises InvalidInput that names the first wrong one.
    """
    for name, value in arguments.items():
        holds, wanted = _ARGUMENTS[name]
        if not holds(value):
            raise InvalidInput(f"must be {wanted}, not {repr(value)[:80]}", place=name)


def checked_ranges(ranges: Sequence[tuple[int, int]], stop: int) -> tuple[tuple[int, int], ...]:
    """Ranges [start, stop) of entries that are there. Raises InvalidInput."""
    if not ranges:
        raise InvalidInput("no entries were chosen", place="fold")
    for pair in ranges:
        if not (_pairs(pair) and len(pair) == 2 and pair[0] < pair[1] and not any(isinstance(n, bool) for n in pair)):
            raise InvalidInput(f"must be (start, stop), two numbers of entries, not {repr(pair)[:80]}", place="fold")
        if not 0 <= pair[0] < pair[1] <= stop:
            there = f"they are 0 to {stop - 1}" if stop else "nothing has been said yet"
            raise InvalidInput(f"entries {pair[0]} to {pair[1] - 1} are not there; {there}", place="fold")
    return tuple(ranges)
