"""Foldline as a target: a context, and the function `fit`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from foldline.codecs.dialect import DIALECTS
from foldline.engine.context import Context
from foldline.engine.one_shot import fit
from foldline.failures.classification import classify
from foldline.messages import Json, Wire
from foldline.view.request import Request

__all__ = ["FoldlineContext", "fitted"]


class FoldlineContext:
    """A `Context` with a refusal and the originals by the names of the suite."""

    dialects = tuple(DIALECTS)
    counts_alike = True

    def __init__(self, *, window: int, dialect: str, system: Json = None) -> None:
        self._context = Context(dialect=dialect, window=window, system=system)

    def append(self, message: Wire) -> None:
        """Record a message."""
        self._context.append(message)

    def pin(self, index: int) -> None:
        """Keep a message whole."""
        self._context.pin(index)

    def prepare(self) -> Request:
        """The next request."""
        return self._context.prepare()

    def refused(self, words: str) -> None:
        """Learn of a refusal."""
        self._context.recover(classify(status=400, body={"error": {"message": words}}))

    def original(self, index: int) -> Wire:
        """A message as it was appended, whatever became of it since."""
        for fold in self._context.explain(index):
            found: Wire = json.loads(self._context.original(fold)[index - fold.start])  # from the archive
            return found
        return self._context.view.entries[index].recorded


def fitted(messages: Sequence[Wire], window: int, *, dialect: str, system: Any) -> Any:
    """`foldline.fit`."""
    return fit(messages, max_tokens=window, dialect=dialect, system=system)


fitted.dialects = tuple(DIALECTS)  # type: ignore[attr-defined]  # the names that the suite looks for
fitted.counts_alike = True  # type: ignore[attr-defined]
