"""An adapter of Foldline's own, with the message classes of its framework."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from inspect import isclass
from pathlib import Path
from typing import Any

from foldline import adapters
from foldline.adapters.adapter import Adapter
from foldline.adapters.model_call import ModelCall, ShownCall
from foldline.codecs import codec
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
from foldline_bench.promises.wire_forms import FORMS, AskedCall, CallResult

__all__ = ["AdapterTarget", "adapter_named"]


def _names() -> list[str]:
    """The adapters: those modules that say which extra they need."""
    [folder] = map(Path, adapters.__path__)
    files = sorted(path for path in folder.glob("*.py") if "raise MissingExtra(" in path.read_text("utf-8"))
    return [path.stem.replace("_", "-") for path in files]


def adapter_named(name: str) -> AdapterTarget:
    """The adapter of a framework. Raises InvalidInput for an unknown name, MissingExtra without its framework."""
    there = _names()
    if name.replace("_", "-") not in there:
        raise InvalidInput(f"there is no adapter of that name; there are {', '.join(there)}", place=f"adapter:{name}")
    module = import_module(f"foldline.adapters.{name.replace('-', '_')}")
    for public in module.__all__:
        found = getattr(module, public)
        if isclass(found) and all(hasattr(found, part) for part in ("dialect", "read", "write")):
            translation = found()
            if not _keeps_pairs(translation):
                break
            return AdapterTarget(f"adapter:{name}", translation)
    raise InvalidInput(
        "its framework's messages cannot be made of JSON alone; tests/adapters/real runs it", place=f"adapter:{name}"
    )


def _keeps_pairs(translation: Any) -> bool:
    """Whether a call and its result, written as messages of the framework, are read back as such.

    `write` without an original is for Foldline's own texts; not every framework can make more of it.
    """
    form, reader = FORMS[translation.dialect], codec(translation.dialect)
    call = AskedCall("call_1", "read_file", {"path": "a"})
    for wire in (*form.assistant("Reading.", [call]), *form.results([CallResult(call, "text")])):
        back = [reader.read(one) for made in translation.write([wire], None) for one in translation.read(made)]
        given = reader.read(wire)
        calls = [part.id for one in back for part in one.calls]
        results = [part.call_id for one in back for part in one.results]
        if calls != [part.id for part in given.calls] or results != [part.call_id for part in given.results]:
            return False
    return True


class _RefusedError(Exception):
    """The provider's refusal, as a framework would raise it."""


class AdapterTarget(Target):
    """Calls of a model through an adapter: the framework's messages go in, and what it would send comes out."""

    kind = "adapter"
    abilities: frozenset[Ability] = frozenset({"system", "refused", "given"})
    counts_alike = True

    def __init__(self, name: str, translation: Any) -> None:
        self.name, self._translation = name, translation
        self.dialects = (translation.dialect,)

    def open(self, opening: Opening) -> SessionUnderTest:
        """A conversation of an adapter of its own."""
        return _AdapterSession(opening, self._translation)


class _AdapterSession(SessionUnderTest):
    def __init__(self, opening: Opening, translation: Any) -> None:
        self._opening, self._translation = opening, translation
        self._adapter: Adapter[Any] = Adapter(translation, {"window": opening.window_tokens})
        self._history: list[Any] = []
        self._read: list[Sequence[Wire]] = []
        self._system: Json = opening.system or None
        self._refusals: list[str] = []

    def send(self, new: Sequence[Wire]) -> SentRequest:
        for wire in new:
            if wire.get("role") == "system":  # frameworks have it apart
                self._system = wire["content"]
                continue
            made = self._translation.write([wire], None)
            self._history += made
            self._read += [self._translation.read(message) for message in made]
        return self.again()

    def again(self) -> SentRequest:
        sent: list[SentRequest] = []

        def send(shown: ShownCall[Any]) -> None:
            sent.append(self._sized(shown))
            if self._refusals:
                raise _RefusedError(self._refusals.pop())

        call = ModelCall(messages=self._history, key="session", system=self._system)
        try:
            self._adapter.call(call, send, lambda _answer: None)
        except (FoldlineError, _RefusedError) as error:
            raise DeclinedError(f"{type(error).__name__}: {error}") from error
        return sent[-1]

    def refused(self, words: str) -> SentRequest:
        """An adapter retries inside the call: the request is refused once more, as it is sent again."""
        self._refusals = [words]
        return self.again()

    def changed(self) -> int | None:
        pairs = enumerate(zip(self._history, self._read, strict=True))
        return next((index for index, (one, read) in pairs if self._translation.read(one) != read), None)

    def _sized(self, shown: ShownCall[Any]) -> SentRequest:
        messages = [wire for message in shown.messages for wire in self._translation.read(message)]
        system = shown.system
        if system and self._opening.dialect == "openai-chat":  # the framework's own step
            messages, system = [{"role": "system", "content": system}, *messages], None
        return sized(messages, system, self._opening.dialect)
