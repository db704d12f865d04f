"""What a fold of megabytes takes, in units of work: how often they are counted, and how many functions are called."""

from __future__ import annotations

import cProfile
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from foldline.engine.context import Context
from foldline.engine.presets import policy
from foldline.reducers.base import Move
from foldline.reducers.summarize import _pieces
from foldline.testing import ScriptedModel
from foldline.tokens import ESTIMATE
from foldline.view.budget import Need
from foldline.view.transcript import Fold
from foldline.view.view import View

CHARS = 2_000_000
TEXTS = {
    "short lines": "\n".join(f"{number % 97} ok" for number in range(CHARS // 6)),
    "lines of a log": "\n".join(
        f"2026-01-01T12:00:{number % 60:02d} INFO svc.module_{number % 37}: request {number} to /api/items/{number}"
        for number in range(CHARS // 75)
    ),
    "one line": " ".join(f"word{number}" for number in range(CHARS // 11)),
}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
HISTORIES: dict[str, Any] = {
    "a result": lambda text: [
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": text},
    ],
    "the user's": lambda text: [{"role": "user", "content": text}, {"role": "user", "content": "And now?"}],
    "a reply": lambda text: [{"role": "assistant", "content": text}, {"role": "user", "content": "And now?"}],
}


class Counting:
    """The estimate; how many characters it has counted."""

    name = "counting"

    def __init__(self) -> None:
        self.chars = 0

    def text(self, text: str, /) -> int:
        self.chars += len(text)
        return ESTIMATE.text(text)


def large(text: str, kind: str) -> tuple[Context, Counting]:
    """A session whose newest messages are of that kind, taken up and not yet folded."""
    counting = Counting()
    context = Context(window=128_000, counter=counting)
    context.extend([{"role": "user", "content": "Look, and never delete backups."}, *HISTORIES[kind](text)])
    counting.chars = 0
    return context, counting


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("kind", HISTORIES)
def test_megabytes_are_counted_a_few_times_and_not_looked_at_line_by_line(text: str, kind: str) -> None:
    context, counting = large(text, kind)
    profile = cProfile.Profile()
    folded = profile.runcall(context.prepare)
    assert len([fold for fold in folded.folds if isinstance(fold, Fold)]) == 1
    assert folded.tokens < 128_000
    assert counting.chars < 4 * len(text)
    assert sum(each.callcount for each in profile.getstats() if not isinstance(each.code, str)) < 250_000


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_the_record_of_a_summary_holds_megabytes_whole_and_counts_them_a_few_times(text: str) -> None:
    context, counting = large("", "the user's")
    found = _pieces([text], 20_000, context.view)
    assert "".join(found) == text
    assert max(map(ESTIMATE.text, found)) < 20_000
    assert len(found) < 1.2 * ESTIMATE.text(text) / 20_000 + 2
    assert counting.chars < 4 * len(text)


class Wishes:
    """A reducer that does nothing but ask."""

    name = "wishes"
    only_asks = True

    def __init__(self) -> None:
        self.asked = 0

    def propose(self, view: View, need: Need, /) -> Iterable[Move]:
        self.asked += 1
        return ()


def test_without_a_model_nobody_prepares_what_it_would_be_asked() -> None:
    wishes = Wishes()
    chosen = replace(policy("balanced"), reducers=(wishes, *policy("balanced").reducers))
    context = Context(window=8_000, policy=chosen)
    for number in range(40):
        context.append({"role": "user" if number % 2 == 0 else "assistant", "content": f"word{number} " * 200})
    context.append({"role": "user", "content": "And now?"})
    assert context.prepare().folds
    assert wishes.asked == 0
    context.append({"role": "assistant", "content": "more words " * 4_000})
    context.append({"role": "user", "content": "And now?"})
    context.prepare(ScriptedModel(["A summary."]))
    assert wishes.asked == 1
