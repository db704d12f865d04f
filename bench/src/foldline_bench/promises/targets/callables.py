"""Functions and classes of Python, by the names of the parameters and methods that they have."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from foldline.codecs.dialect import DIALECTS
from foldline.engine.one_shot import count
from foldline.errors import FoldlineError, InvalidInput
from foldline.messages import Json, Wire
from foldline_bench.promises.targets.base import (
    Ability,
    DeclinedError,
    Opening,
    SentRequest,
    SessionUnderTest,
    Target,
    sized,
)
from foldline_bench.promises.targets.work import counted

__all__ = ["ClassTarget", "FunctionTarget", "target_of"]

OPTIONAL: Final = ("window", "dialect", "system", "pinned", "count")
"""Parameters that are passed where a function or a class has them."""


def target_of(name: str, found: object, dialects: tuple[str, ...] = ()) -> Target:
    """The target for a function or a class. Raises InvalidInput where it is neither, or has not what is needed."""
    if not callable(found):
        raise InvalidInput(f"is a {type(found).__name__}, not a function or a class", place=name)
    spoken = dialects or tuple(getattr(found, "dialects", ()))
    if unknown := [dialect for dialect in spoken if dialect not in DIALECTS]:
        raise InvalidInput(f"no such dialect: {unknown[0]!r}; there are {', '.join(DIALECTS)}", place=name)
    try:
        taken = _parameters(found)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"its parameters cannot be read: {error}", place=name) from None
    if isinstance(found, type):
        if missing := [method for method in ("append", "prepare") if not callable(getattr(found, method, None))]:
            raise InvalidInput(f"the class has no method {missing[0]}", place=name)
        if "window" not in taken:
            raise InvalidInput("the class takes no window", place=name)
        return ClassTarget(name, found, taken, spoken or ("openai-chat",))
    if len(_positional(found)) < 2:
        raise InvalidInput("the function does not take (messages, window)", place=name)
    return FunctionTarget(name, found, taken, spoken or ("openai-chat",))


def _parameters(found: Callable[..., Any]) -> frozenset[str]:
    parameters = inspect.signature(found).parameters
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()) and isinstance(found, type):
        return frozenset({*parameters, "window"})
    return frozenset(parameters)


def _positional(found: Callable[..., Any]) -> list[str]:
    kinds = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    return [name for name, one in inspect.signature(found).parameters.items() if one.kind in kinds]


def _counter(dialect: str) -> Callable[[Sequence[Wire]], int]:
    return lambda messages: count(messages, dialect=dialect)


def _options(opening: Opening, taken: frozenset[str]) -> dict[str, Any]:
    given: Mapping[str, Any] = {
        "window": opening.window_tokens,
        "dialect": opening.dialect,
        "system": opening.system or None,
        "pinned": opening.pinned,
        "count": _counter(opening.dialect),
    }
    return {name: given[name] for name in OPTIONAL if name in taken}


def _called(call: Callable[[], Any]) -> Any:
    """What the tool returns; its errors as DeclinedError."""
    try:
        return call()
    except Exception as error:
        raise DeclinedError(f"{type(error).__name__}: {error}") from error


class _GivenMessages:
    """The messages that a tool was given, and copies to see whether it changed them."""

    def __init__(self) -> None:
        self.messages: list[Wire] = []
        self._copies: list[Wire] = []

    def add(self, new: Sequence[Wire]) -> list[Wire]:
        """Copies that the tool alone has."""
        made: list[Wire] = [copy.deepcopy(dict(wire)) for wire in new]
        self.messages += made
        self._copies += new
        return made

    def changed(self) -> int | None:
        pairs = zip(self.messages, self._copies, strict=True)
        return next((index for index, (one, other) in enumerate(pairs) if one != other), None)


class FunctionTarget(Target):
    """A function of (messages, window); it may take `dialect`, `system`, `pinned` and `count` by name."""

    kind = "function"

    def __init__(self, name: str, call: Callable[..., Any], taken: frozenset[str], dialects: tuple[str, ...]) -> None:
        self.name, self.dialects = name, dialects
        self._call, self._taken = call, taken
        had: set[Ability] = {"given"}
        had |= {"system"} if "system" in taken else set()
        had |= {"pins"} if "pinned" in taken else set()
        self.abilities = frozenset(had)
        self.counts_alike = "count" in taken or bool(getattr(call, "counts_alike", False))

    def open(self, opening: Opening) -> SessionUnderTest:
        """A session whose whole history is passed with each call."""
        options = _options(opening, self._taken - {"window"})

        def called(messages: list[Wire]) -> Any:
            room = opening.window_tokens
            if opening.system and "system" not in self._taken:  # it is sent all the same, and takes its room
                room -= count((), dialect=opening.dialect, system=opening.system)
            return _called(lambda: self._call(messages, room, **options))

        return _FunctionSession(opening, called)


class _FunctionSession(SessionUnderTest):
    def __init__(self, opening: Opening, call: Callable[[list[Wire]], Any]) -> None:
        self._opening, self._call = opening, call
        self._given = _GivenMessages()
        self._length = 0
        self._result: list[Wire] = []

    def send(self, new: Sequence[Wire]) -> SentRequest:
        self._given.add(new)
        passed = list(self._given.messages)
        sent = _read(self._call(passed), self._opening)
        # A list that the tool emptied is the caller's history, gone.
        self._length = len(passed)
        self._result = list(sent.messages)
        return sent

    def again(self) -> SentRequest:
        return _read(self._call(copy.deepcopy(self._result)), self._opening)

    def changed(self) -> int | None:
        held = len(self._given.messages)
        return self._given.changed() if self._length == held else min(self._length, held)


class ClassTarget(Target):
    """A class with `append` and `prepare`; it may have `pin`, `refused` and `original`."""

    kind = "class"

    def __init__(self, name: str, made: type, taken: frozenset[str], dialects: tuple[str, ...]) -> None:
        self.name, self.dialects = name, dialects
        self._made, self._taken = made, taken
        had: set[Ability] = {"given", "work"}
        had |= {"system"} if "system" in taken else set()
        had |= {"pins"} if "pinned" in taken or callable(getattr(made, "pin", None)) else set()
        had |= {"refused"} if callable(getattr(made, "refused", None)) else set()
        had |= {"original"} if callable(getattr(made, "original", None)) else set()
        self.abilities = frozenset(had)
        self.counts_alike = "count" in taken or bool(getattr(made, "counts_alike", False))

    def open(self, opening: Opening) -> SessionUnderTest:
        """A new object of the class."""
        options = _options(opening, self._taken)
        if opening.system and "system" not in self._taken:
            options["window"] -= count((), dialect=opening.dialect, system=opening.system)
        pins = opening.pinned if "pinned" not in self._taken else frozenset[int]()
        return _ClassSession(opening, _called(lambda: self._made(**options)), pins)


class _ClassSession(SessionUnderTest):
    def __init__(self, opening: Opening, tool: Any, pins: frozenset[int]) -> None:
        self._opening, self._tool, self._pins = opening, tool, pins
        self._given = _GivenMessages()

    def send(self, new: Sequence[Wire]) -> SentRequest:
        return _read(self._prepared(new), self._opening)

    def again(self) -> SentRequest:
        return _read(_called(self._tool.prepare), self._opening)

    def refused(self, words: str) -> SentRequest:
        _called(lambda: self._tool.refused(words))
        return self.again()

    def original(self, index: int) -> Wire:
        found: Wire = _called(lambda: self._tool.original(index))
        return found

    def changed(self) -> int | None:
        return self._given.changed()

    def work(self, new: Sequence[Wire]) -> int:
        return counted(lambda: self._prepared(new))

    def _prepared(self, new: Sequence[Wire]) -> Any:
        first = len(self._given.messages)
        for index, wire in enumerate(self._given.add(new), start=first):
            self._append(wire)
            if index in self._pins and hasattr(self._tool, "pin"):
                self._pin(index)
        return _called(self._tool.prepare)

    def _append(self, wire: Wire) -> None:
        _called(lambda: self._tool.append(wire))

    def _pin(self, index: int) -> None:
        _called(lambda: self._tool.pin(index))

    def close(self) -> None:
        if callable(getattr(self._tool, "close", None)):
            _called(self._tool.close)


def _read(result: Any, opening: Opening) -> SentRequest:
    """The request in what a tool returned: a list of messages, or an object that has them."""
    system: Json = opening.system
    if not isinstance(result, Iterable) and hasattr(result, "messages"):
        system = getattr(result, "system", system)
        result = result.messages
    if isinstance(result, str | bytes | Mapping) or not isinstance(result, Iterable):
        raise DeclinedError(f"returned a {type(result).__name__}, not a list of messages")
    messages = list(result)
    if wrong := next((one for one in messages if not isinstance(one, Mapping)), None):
        raise DeclinedError(f"returned a {type(wrong).__name__} among the messages")
    try:
        return sized(messages, system, opening.dialect)
    except FoldlineError as error:
        raise DeclinedError(f"returned what is no message: {error}") from None
