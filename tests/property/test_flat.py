"""A turn of a long loop costs what one of a short loop does, folds included: counted in lines that ran, not in time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import foldline
from foldline.engine.context import Context
from tests.property.sessions import BUILDERS, DIALECTS, POLICIES
from tests.remembered import REMEMBERED

CORE = {
    str(path)
    for folder in ("codecs", "engine", "reducers", "view")  # not what reads texts, which are as long early as late
    for path in (Path(foldline.__file__).parent / folder).rglob("*.py")
}
EARLY, LATE, TURNS = 100, 700, 60


class Lines:
    """How many lines of the core ran: each tile, entry, fold or event that is looked at is one, or more."""

    def __init__(self) -> None:
        self.count = 0

    def _line(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        self.count += event == "line"
        return self._line

    def _call(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        return self._line if frame.f_code.co_filename in CORE else None

    @contextmanager
    def counted(self) -> Any:
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(before)


class Loop:
    """One long tool loop that begins with thinking; what folds stand for leaves memory (`releases`) or does not."""

    def __init__(self, dialect: str, policy: str, *, releases: bool) -> None:
        self.build, self.releases, self.turn = BUILDERS[dialect], releases, 0
        self.context = Context(dialect=dialect, policy=policy, window=3_000, max_output_tokens=300, counter=REMEMBERED)
        self.context.extend(self.build.user("Mend the build.", False))

    def go_on(self, turns: int) -> int:
        """So many turns more; how many of them folded."""
        folding = 0
        for _ in range(turns):
            number, self.turn = self.turn, self.turn + 1
            thinking = "let me see" if number == 0 else None
            result = f"module {number}: " + "nothing was wrong here. " * 12
            self.context.extend(self.build.turn([f"call_{number}"], [result], f"look {number}", thinking))
            request = self.context.prepare(lambda messages, most: "Goal: mend the build. Modules were read.")
            self.context.observe({"input_tokens": self.context.view.estimated_tokens, "output_tokens": 20})
            assert self.context.figures.current_context_tokens == self.context.view.tokens
            folding += bool(request.folds)
            if self.releases and request.folds:
                self.context.release()
        return folding

    def most_of(self, times: int) -> int:
        """Fifty turns more, so many times; the most of anything that it kept after one of them."""
        most = 0
        for _ in range(times):
            self.go_on(50)
            most = max(most, *sizes(self.context))
        return most


def sizes(context: Context) -> tuple[int, ...]:
    return (len(context.view.entries), len(context.view.tiles), len(context.events))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("releases", [True, False])
def test_a_turn_late_in_a_loop_that_began_with_thinking_costs_what_an_early_one_does(
    policy: str, releases: bool
) -> None:
    loop, early, late = Loop("anthropic", policy, releases=releases), Lines(), Lines()
    loop.go_on(EARLY)
    with early.counted():
        folds_early = loop.go_on(TURNS)
    most = loop.most_of(3)
    loop.go_on(LATE - loop.turn)
    with late.counted():
        folds_late = loop.go_on(TURNS)
    assert folds_early and folds_late
    assert early.count > 1_000 * TURNS, "it is the core that is looked at"
    assert late.count <= 1.3 * early.count
    if releases:
        assert max(sizes(loop.context)) <= 3 * most, "500 turns more are 1,000 entries more"


@pytest.mark.parametrize("dialect", [dialect for dialect in DIALECTS if dialect != "anthropic"])  # that one is above
@pytest.mark.parametrize("policy", POLICIES)
def test_a_loop_that_began_with_thinking_takes_the_memory_of_its_window(policy: str, dialect: str) -> None:
    loop = Loop(dialect, policy, releases=True)
    loop.go_on(EARLY)
    most = loop.most_of(3)
    loop.go_on(300)
    assert max(sizes(loop.context)) <= 3 * most, "300 turns more are 600 entries more"
