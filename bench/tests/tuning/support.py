"""Sessions, settings and engines as the tests of the tuning want them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeVar, cast

from foldline_bench.tuning import Conditions, InProcess, Setting, TuneResult, located, tune
from foldline_bench.tuning.search import run_job
from foldline_bench.tuning.values import UNMANAGED, TrialJob, TrialOutcome

__all__ = ["FEW", "Imagined", "recorded", "session", "tuned", "write_sessions"]

Given = TypeVar("Given")
Got = TypeVar("Got")

FEW = (Setting("sliding"), Setting("autopilot", (("max_context_bytes", 8_000),)), Setting("layered"))
"""Settings that a test replays where it is not about which; they have no neighbours."""


def session(seed: int, rounds: int = 8, result_lines: int = 60) -> dict[str, Any]:
    """A session of tool calls whose replies name again what early results brought: with 8 rounds some 6,000 tokens."""
    chance = Random(seed)
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Look through module_{seed} and tell me all."}]
    named: list[str] = []
    for number in range(rounds):
        names = [f"value_{seed}_{number}_{place}" for place in range(result_lines)]
        again = " ".join(chance.sample(named[: len(named) // 3], 4)) if number > 6 else ""
        call = {"name": "read_file", "arguments": json.dumps({"path": f"src/part_{number}.py"})}
        messages += [
            {
                "role": "assistant",
                "content": f"Let me read on. {again}",
                "tool_calls": [{"id": f"c{number}", "type": "function", "function": call}],
            },
            {
                "role": "tool",
                "tool_call_id": f"c{number}",
                "content": "\n".join(f"{name} = {chance.randint(1000, 99999)}  # line" for name in names),
            },
        ]
        named += names
    messages.append({"role": "assistant", "content": "Done."})
    return {"id": f"session-{seed}", "dialect": "openai-chat", "messages": messages}


def recorded(path: Path, seed: int = 0, **shape: int) -> Path:
    """A session in a file."""
    path.write_text(json.dumps(session(seed, **shape)))
    return path


def write_sessions(folder: Path, count: int, **shape: int) -> Path:
    """So many sessions in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(count):
        recorded(folder / f"{seed:03}.json", seed, **shape)
    return folder


def tuned(folder: Path, state: Path, **more: Any) -> TuneResult:
    """A tuning of a folder in this process."""
    given: dict[str, Any] = {"engine": InProcess(), "settings": FEW, **more}
    conditions = Conditions(window=4_000, model="claude-sonnet-4-5")
    return tune(located([str(folder)]), conditions, state=state, **given)


class Imagined:
    """An engine whose replays cost and keep what a function says, so that what is best is known beforehand."""

    batch = 5
    about = "imagined"

    def __init__(self, worth: Callable[[str, Setting], tuple[float, float]]) -> None:
        self._worth = worth

    def each(self, work: Callable[[Given], Got], pieces: Sequence[Given]) -> Iterator[Got]:
        """Real looks, imagined replays."""
        if cast(Any, work) is not run_job:
            yield from map(work, pieces)
            return
        for piece in cast("Sequence[TrialJob]", pieces):
            look = piece.look
            results = tuple((setting, self._outcome(look.sha256, setting)) for setting in piece.settings)
            yield cast(Got, (look, results))

    def _outcome(self, sha256: str, setting: Setting) -> TrialOutcome:
        cost, far = (1.0, 1.0) if setting == UNMANAGED else self._worth(sha256, setting)
        kept = round(far * 1000)
        return TrialOutcome(
            session=sha256,
            requests=10,
            recorded_tokens=100_000,
            invalid=0,
            over_budget=int(cost < 0),
            refused=int(cost <= -9),
            floor_tokens=9_000 if cost <= -9 else 0,
            limit_tokens=3_000 if cost <= -9 else 0,
            tokens=int(cost * 1e5),
            paid_tokens=abs(cost) * 1e5,
            input_usd=abs(cost),
            reply_usd=0.25,
            folds=3,
            far=(kept, 1000),
            line=(kept, 1000),
            far_tool=(kept, 1000),
            near_line=(kept, 1000),
            rereads=(1, 2),
            reread_tokens=(0.0, 0.0),
        )

    def __enter__(self) -> Imagined:
        return self

    def __exit__(self, *_gone: object) -> None:
        pass
