"""The promises: their names, what each says, and what it is judged by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from foldline_bench.promises import judges, trials
from foldline_bench.promises.histories import ShapedHistory
from foldline_bench.promises.rounds import Round
from foldline_bench.promises.targets.base import Ability, Target
from foldline_bench.promises.trials import TrialCase
from foldline_bench.promises.wire_forms import FORMS

__all__ = ["PROMISES", "Promise"]

Judge: TypeAlias = Callable[[Round], str | None]
Attempt: TypeAlias = Callable[[Target, TrialCase], str | None]

_STEADY: Final = frozenset({"small", "chat", "tools", "loop", "parallel", "errors", "arguments"})
"""Shapes whose steps are small beside the window: here a fold can make room for more than one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """One promise. It has a judge of rounds, or a trial of its own.

    `shapes` are the histories that it is judged by (none: all that a provider would take); `needs` are abilities, of
    which the target must have one.
    """

    name: str
    about: str
    judge: Judge | None = None
    attempt: Attempt | None = None
    shapes: frozenset[str] = frozenset()
    needs: frozenset[Ability] = frozenset()
    once: bool = False
    """Whether one dialect shows it."""

    def applies(self, target: Target) -> bool:
        """Whether the target has what the promise is about."""
        return not self.needs or bool(self.needs & target.abilities)

    def covers(self, history: ShapedHistory, target: Target) -> bool:
        """Whether a history shows it."""
        if self.judge is None:
            return False
        if self.name == "system" and not FORMS[history.dialect].system_inside and "system" not in target.abilities:
            return False  # the suite sends it, as the tool never gets it
        if self.name in {"system", "pinned"} and history.shape.startswith("session:"):
            return False
        if self.shapes:
            return history.shape in self.shapes
        return not history.faulty and (history.feasible or self.name == "fits")


def _of(name: str, about: str, judge: Judge, *shapes: str, needs: frozenset[Ability] = frozenset()) -> Promise:
    return Promise(name=name, about=about, judge=judge, shapes=frozenset(shapes), needs=needs)


_ALL: Final = (
    _of("fits", "each request fits the window, or the tool says that none can", judges.fits_fault),
    _of("valid", "each request keeps the rules of its dialect", judges.valid_fault),
    _of("words", "the newest words of the user are in it, whole", judges.words_fault),
    _of("system", "so is the system text", judges.system_fault),
    _of("pinned", "so is what was pinned", judges.pins_fault, needs=frozenset({"pins"})),
    _of("prefix", "between folds a request begins with the bytes of the last", judges.prefix_fault, *sorted(_STEADY)),
    _of("kept", "nothing is lost: originals are untouched and readable", judges.kept_fault,
        needs=frozenset({"given", "original"})),
    _of("parallel", "calls made at once keep all their results", judges.parallel_fault, "parallel"),
    _of("errors", "a result that failed stays one, in its own words", judges.errors_fault, "errors"),
    _of("images", "images of the newest question stay", judges.images_fault, "images"),
    _of("huge", "a result of three windows is shortened, not lost", judges.huge_fault, "huge"),
    _of("unicode", "no cut breaks a character", judges.unicode_fault, "unicode"),
    _of("empty", "empty content becomes a valid request", judges.mended_fault, "empty"),
    _of("order", "late and unordered results find their calls", judges.order_fault, "order"),
    Promise(name="long", about="work for a request is for what is new, by count", attempt=trials.long_fault,
            needs=frozenset({"work"}), once=True),
    Promise(name="recovers", about="after a refusal for its size a smaller request goes out",
            attempt=trials.recovers_fault, needs=frozenset({"refused", "http"})),
    Promise(name="ends", about="nothing new changes nothing, and refusals come to an end", attempt=trials.ends_fault),
    Promise(name="streams", about="streamed or not, it is the same", attempt=trials.streams_fault,
            needs=frozenset({"http"})),
)  # fmt: skip

PROMISES: Final[Mapping[str, Promise]] = {promise.name: promise for promise in _ALL}
"""Every promise by its name, in the order of the table."""
