"""What refusals taught besides windows: how many images and pages are taken, what order of roles is wanted.

It is kept where windows are, by endpoint and model, so that a session that is opened again, or another process, need
not be refused again. A lesson stands under the model's name with the name of the lesson behind it, as a whole number:
a file of windows holds it too, and whoever knows no lessons takes it for the window of a model that nobody asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Final, TypeAlias

from foldline.codecs.caps import Caps
from foldline.engine.engine import Engine
from foldline.view.budget import caps_for

__all__ = ["LESSONS", "Lessons", "caps_taught", "heed", "learning", "lesson_in", "lesson_name", "lessons_in"]

Learned: TypeAlias = MutableMapping[tuple[str, str], int]
"""Whole numbers by an endpoint and a name."""

Lessons: TypeAlias = Mapping[str, int]
"""Numbers by the names of `LESSONS`."""

_NUMBERS: Final = ("max_images", "max_pages")
_ALTERNATES: Final = "alternates"
_NO_SYSTEM: Final = "no_system"
LESSONS: Final = (*_NUMBERS, _ALTERNATES, _NO_SYSTEM)
"""The most images and PDF pages of a request; 1 for a server whose roles alternate, or that has none for the system."""

_BETWEEN: Final = "#"


def lesson_name(model: str, lesson: str) -> str:
    """The name under which a lesson about a model is kept; that of its window without one."""
    return f"{model}{_BETWEEN}{lesson}" if lesson else model


def lesson_in(name: str) -> str:
    """The lesson that a name is of; "" where it is that of a window."""
    _, between, lesson = name.rpartition(_BETWEEN)
    return lesson if between and lesson in LESSONS else ""


def lessons_in(known: Callable[[str], int | None], model: str) -> Lessons:
    """What is known of a model, by a function that has the number under a name. O(1)."""
    found = {lesson: known(lesson_name(model, lesson)) for lesson in LESSONS}
    return {lesson: number for lesson, number in found.items() if number}


def caps_taught(learned: Learned, endpoint: str, model: str | None, dialect: str) -> Caps:
    """What a request to a model may hold besides tokens: the numbers of refusals in place of documented ones. O(1)."""
    lessons = lessons_in(lambda name: learned.get((endpoint, name)), model or "")
    return caps_for(model, dialect).learned(**{lesson: lessons.get(lesson) for lesson in _NUMBERS})


def heed(engine: Engine, learned: Learned, endpoint: str, model: str | None) -> None:
    """Keep to the order of roles that a server was known to want, from the next request on. O(1)."""
    lessons = lessons_in(lambda name: learned.get((endpoint, name)), model or "")
    if engine.codec.dialect == "openai-chat":
        engine.outgoing.alternating = bool(lessons.get(_ALTERNATES) or lessons.get(_NO_SYSTEM))
        engine.outgoing.takes_system = not lessons.get(_NO_SYSTEM)


@contextmanager
def learning(engine: Engine, learned: Learned, endpoint: str, model: str | None) -> Iterator[None]:
    """Put down what a session keeps to behind this and did not before. O(1)."""
    before = _kept_to(engine)
    yield
    for lesson, number in _kept_to(engine).items():
        if number and before[lesson] != number:
            learned[endpoint, lesson_name(model or "", lesson)] = number


def _kept_to(engine: Engine) -> dict[str, int]:
    """What a session keeps to now, learned or not; 0 for nothing."""
    roles = {_ALTERNATES: int(engine.outgoing.alternating), _NO_SYSTEM: int(not engine.outgoing.takes_system)}
    return {lesson: getattr(engine.caps, lesson) or 0 for lesson in _NUMBERS} | roles
