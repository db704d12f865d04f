"""What is about to be left out is summed up by a model first, where there is one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from foldline.reducers.base import Ask
from foldline.reducers.drop_groups import is_checkpoint
from foldline.reducers.summarize import Summarize
from foldline.view.budget import Need
from foldline.view.tiles import Span
from foldline.view.view import View

__all__ = ["Leaves", "SumUp"]


class Leaves(Protocol):
    """A reducer that can say which spans it would leave out."""

    def leaving(self, view: View, need: Need, *, spare: bool = True) -> Iterable[Span]:
        """The spans, oldest first; with `spare` checkpoints are not among them."""


@dataclass(frozen=True, slots=True)
class SumUp:
    """Asks for a checkpoint of each span that `drop` would leave out; an earlier checkpoint is updated.

    It stands before `drop` in a policy: what no model was there for, or failed at, leaves as it would have.
    """

    drop: Leaves
    summarize: Summarize = field(default_factory=Summarize)
    name: str = "sum_up"
    only_asks: ClassVar[bool] = True

    def propose(self, view: View, need: Need, /) -> Iterable[Ask]:
        """One ask per span, oldest first."""
        for span in self.drop.leaving(view, need, spare=False):
            alone = span.last == span.first + 1 and is_checkpoint(view.tiles[span.first])
            if not alone and span.tokens >= self.summarize.least_tokens:
                ask = self.summarize.ask(view, span, need)
                if ask is not None:
                    yield ask
