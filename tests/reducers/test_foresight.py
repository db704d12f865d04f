"""What leaves with the same fold is not shortened first, and the request is the same as if it had been."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from foldline.engine.context import Context
from foldline.engine.presets import POLICIES
from foldline.reducers.digest import Digest
from foldline.view.budget import Need
from foldline.view.transcript import Fold
from foldline.view.view import View


@dataclass(frozen=True)
class Unknown:
    """A reducer of a user that does nothing: what it may do before a digest, nobody can foresee."""

    name: str = "unknown"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        return ()


def turns(seed: int, count: int = 120, most_lines: int = 120) -> Iterable[list[dict[str, Any]]]:
    """A session with results of all sizes, some of them repeated, and now and then a user."""
    chance = random.Random(seed)
    yield [{"role": "system", "content": "You are a coding agent."}, {"role": "user", "content": "Mend the build."}]
    texts: list[str] = []
    for turn in range(count):
        lines = chance.choice((1, 3, 12, 40, 40, 120))
        lines = min(lines, most_lines)
        text = "\n".join(f"src/part_{chance.randrange(60)}/file_{turn}.py:{n} def name_{n}()" for n in range(lines))
        if texts and chance.random() < 0.2:
            text = chance.choice(texts)
        texts.append(text)
        function = {"name": "read_file", "arguments": f'{{"path": "src/part_{chance.randrange(40)}"}}'}
        call = {"id": f"call_{turn}", "type": "function", "function": function}
        new: list[dict[str, Any]] = [
            {"role": "assistant", "content": f"Look at name_{turn % 7}.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{turn}", "content": text},
        ]
        if chance.random() < 0.05:
            new += [
                {"role": "assistant", "content": "Done."},
                {"role": "user", "content": f"Never touch {turn}. Go on."},
            ]
        yield new


def requests(
    policy: str, seed: int, window: int, *, foreseeing: bool, count: int = 120, most_lines: int = 120
) -> tuple[list[list[Any]], int]:
    """Each request of a session, and how many folds went into them."""
    row = POLICIES[policy]
    if not foreseeing:
        at = next(at for at, reducer in enumerate(row.reducers) if isinstance(reducer, Digest))
        row = replace(row, reducers=(*row.reducers[:at], Unknown(), *row.reducers[at:]))
    context = Context(policy=row, window=window, max_output_tokens=0)
    out, folds = [], 0
    for new in turns(seed, count, most_lines):
        context.extend(new)
        request = context.prepare()
        out.append(list(request.messages))
        folds += len(request.folds)
    return out, folds


@pytest.mark.parametrize("policy", ["balanced", "economical", "quality", "cost"])
@pytest.mark.parametrize(("seed", "most_lines"), [(0, 120), (1, 12), (2, 3)])
def test_requests_are_those_of_a_policy_that_foresees_nothing(policy: str, seed: int, most_lines: int) -> None:
    seen, folds = requests(policy, seed, 8_000, foreseeing=True, most_lines=most_lines)
    plain, plain_folds = requests(policy, seed, 8_000, foreseeing=False, most_lines=most_lines)
    assert seen == plain
    assert folds <= plain_folds


def test_most_of_what_a_digest_takes_is_not_shortened_before() -> None:
    folds = requests("balanced", 0, 8_000, foreseeing=True, count=300, most_lines=3)[1]
    assert folds < 0.5 * requests("balanced", 0, 8_000, foreseeing=False, count=300, most_lines=3)[1]


@dataclass(frozen=True)
class Noting:
    """Notes which reducers it is told will follow."""

    followers: list[tuple[object, ...]]
    name: str = "noting"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        self.followers.append(need.followers)
        return ()


def test_where_a_model_may_write_nothing_is_foreseen() -> None:
    # It reads what is shown: whole results would cost it more than short ones.
    seen: list[tuple[object, ...]] = []
    row = POLICIES["balanced"]
    policy = replace(row, reducers=(Noting(seen), *row.reducers))
    for summarise in (None, lambda messages, most: "Goal: mend the build."):
        context = Context(policy=policy, window=4_000, max_output_tokens=0)
        for new in turns(0, count=40):
            context.extend(new)
            context.prepare(summarise)
        assert seen
        assert set(seen) == {() if summarise else row.reducers}
        seen.clear()
