"""What refusals have taught about an endpoint besides its window: numbers of images and pages, and the order of roles.

Lessons are stored with the windows, by endpoint and model, so that a reopened session or another process is not refused
again. Each is a whole number under the model's name with the lesson's name appended. That keeps the file of windows one
format: a reader that knows no lessons sees the window of a model that is never used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Final, TypeAlias

from foldline.codecs.dialect import dialect_named
from foldline.codecs.limits import Caps
from foldline.engine.engine import Engine
from foldline.view.budget import caps_for

__all__ = [
    "LESSONS",
    "Lessons",
    "apply_role_lessons",
    "caps_from_lessons",
    "lesson_in",
    "lesson_name",
    "lessons_in",
    "recording_lessons",
]

# Whole numbers by an endpoint and a name. A flat mapping of numbers, since any store of a caller can hold one.
Learned: TypeAlias = MutableMapping[tuple[str, str], int]

Lessons: TypeAlias = Mapping[str, int]
"""Numbers by the names of `LESSONS`."""

_NUMBERS: Final = ("max_images", "max_pages")
_ALTERNATES: Final = "alternates"
_NO_SYSTEM: Final = "no_system"
LESSONS: Final = (*_NUMBERS, _ALTERNATES, _NO_SYSTEM)
"""The most images and PDF pages of a request; 1 for a server whose roles alternate, or that has no system role."""

# The name of a model may hold it as well: `lesson_in` believes only a known lesson behind the last one.
_BETWEEN: Final = "#"


def lesson_name(model: str, lesson: str) -> str:
    """The name under which a lesson about a model is stored; without a lesson, that of its window."""
    return f"{model}{_BETWEEN}{lesson}" if lesson else model


def lesson_in(name: str) -> str:
    """The lesson that a stored name belongs to; "" for the name of a window."""
    _, between, lesson = name.rpartition(_BETWEEN)
    return lesson if between and lesson in LESSONS else ""


def lessons_in(stored: Callable[[str], int | None], model: str) -> Lessons:
    """All lessons about a model; `stored` returns the number under a name. O(1)."""
    found = {lesson: stored(lesson_name(model, lesson)) for lesson in LESSONS}
    return {lesson: number for lesson, number in found.items() if number}


def caps_from_lessons(learned: Learned, endpoint: str, model: str | None, dialect: str) -> Caps:
    """What a request to a model may hold besides tokens: learned numbers in place of documented ones. O(1)."""
    lessons = lessons_in(lambda name: learned.get((endpoint, name)), model or "")
    return caps_for(model, dialect).learned(**{lesson: lessons.get(lesson) for lesson in _NUMBERS})


def apply_role_lessons(engine: Engine, learned: Learned, endpoint: str, model: str | None) -> None:
    """Apply the order of roles that a server is known to need, from the next request on. O(1)."""
    lessons = lessons_in(lambda name: learned.get((endpoint, name)), model or "")
    # A server without a system role has a template that wants turns: the one lesson implies the other.
    if dialect_named(engine.codec.dialect).alternates:
        engine.outgoing.alternating = bool(lessons.get(_ALTERNATES) or lessons.get(_NO_SYSTEM))
        engine.outgoing.takes_system = not lessons.get(_NO_SYSTEM)


@contextmanager
def recording_lessons(engine: Engine, learned: Learned, endpoint: str, model: str | None) -> Iterator[None]:
    """Store what a session learns inside this block. O(1)."""
    # By comparison, not by a call at each place that learns: a new lesson needs its name in `LESSONS` and no more.
    before = _lessons_of(engine)
    yield
    for lesson, number in _lessons_of(engine).items():
        # Only what has changed: a number of the catalogue was taught by no refusal, and must not outlive the catalogue.
        if number and before[lesson] != number:
            learned[endpoint, lesson_name(model or "", lesson)] = number


def _lessons_of(engine: Engine) -> dict[str, int]:
    """What a session applies now, learned or not; 0 for nothing."""
    roles = {_ALTERNATES: int(engine.outgoing.alternating), _NO_SYSTEM: int(not engine.outgoing.takes_system)}
    return {lesson: getattr(engine.caps, lesson) or 0 for lesson in _NUMBERS} | roles
