"""The engine under compaction-conformance-kit: what survives when a conversation is compacted to few characters.

The kit plants rules, constraints, facts, goals and preferences in a conversation, has it compacted five times, and
looks for their words in the text. Its class is `Foldline`:

    compaction-kit check foldline_bench.conformance:Foldline
    compaction-kit benchmark --spec foldline_bench.conformance:Foldline

`python -m foldline_bench.conformance` runs both in the kit's own environment, `.bench/conformance`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from foldline.engine.one_shot import count, fit
from foldline.engine.policy import Policy
from foldline.errors import DoesNotFit
from foldline.messages import Wire
from foldline.reducers.dedupe import Dedupe
from foldline.reducers.digest import Digest
from foldline.reducers.mask import ShortenOld
from foldline.text.shorten import largest
from foldline.tokens import CharsPerFour
from foldline.view.budget import Trigger
from foldline_bench.workers.processes import worker_environment

__all__ = ["KIT_PYTHON", "CompactedText", "Foldline", "KitTurn"]

KIT_PYTHON: Final = Path(".bench/conformance/bin/python")
"""The interpreter that has the kit, from the root of the project."""

COMPACTING: Final = Policy(
    name="compacting",
    about="everything before the newest user message in one digest, without a model",
    trigger=Trigger(fraction=1.0),
    landing=1.0,
    reducers=(Dedupe(), ShortenOld(keep=0.0), Digest(keep=0.0, share=1.0)),
)
# The kit's budgets are characters.
CHARS: Final = CharsPerFour()

# Share of the first text that is kept where the kit names no budget: the largest of its own three.
UNSAID_BUDGET: Final = 0.30

_TURN = re.compile(r"^\[(system|user|assistant)\] ", re.MULTILINE)


class KitTurn(Protocol):
    """A turn as the kit has it."""

    @property
    def role(self) -> str:
        """The speaker: "system", "user", "assistant" or "tool"."""

    @property
    def text(self) -> str:
        """The words of the turn."""


@dataclass(frozen=True, slots=True)
class CompactedText:
    """A compacted conversation, with the fields of the kit's `CompactedContext`."""

    text: str
    compactor_name: str
    round_num: int = 1
    structured: None = None

    def as_transcript_text(self) -> str:
        """The text."""
        return self.text


class Foldline:
    """Compacts by the rungs that need no model, into the window that just holds the characters allowed."""

    name = "foldline"

    def __init__(self) -> None:
        self._unsaid_chars = 0

    def compact(self, turns: Sequence[KitTurn], round_num: int = 1, budget_chars: int | None = None) -> CompactedText:
        """The conversation in at most `budget_chars`; as it is when it fits. O(turns log budget)."""
        messages = _messages(turns)
        text = _text(messages)
        if budget_chars is None:
            if round_num == 1:
                self._unsaid_chars = int(UNSAID_BUDGET * len(text))
            budget_chars = self._unsaid_chars
        if len(text) > budget_chars:
            text = _within(messages, budget_chars)
        return CompactedText(text, self.name, round_num)


def _within(messages: Sequence[Wire], budget_chars: int) -> str:
    """The text of the largest window that holds the budget; of the smallest that can be made if none does.

    What fits no window at all as it is sized is left as it is.
    """
    made: dict[int, str] = {}

    def fits(window_tokens: int) -> bool:
        try:
            made[window_tokens] = _text(
                fit(messages, max_tokens=window_tokens, policy=COMPACTING, counter=CHARS).messages
            )
        except DoesNotFit:
            return True
        return len(made[window_tokens]) <= budget_chars

    best = largest(1, count(messages, counter=CHARS), fits)
    if not made:
        return _text(messages)
    return made[best] if best in made else made[min(made)]


def _messages(turns: Sequence[KitTurn]) -> list[Wire]:
    """The turns as messages. A text of the engine, which comes back as one system turn, is parsed into its messages."""
    if len(turns) == 1 and _TURN.match(turns[0].text):
        pieces = _TURN.split(turns[0].text)[1:]
        pairs = zip(pieces[::2], pieces[1::2], strict=True)
        return [{"role": role, "content": text.removesuffix("\n")} for role, text in pairs]
    return [{"role": "assistant" if turn.role == "tool" else turn.role, "content": turn.text} for turn in turns]


def _text(messages: Sequence[Wire]) -> str:
    return "\n".join(f"[{message['role']}] {message['content']}" for message in messages)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the kit's benchmark and its check on `Foldline`, and print both as the kit does."""
    parser = argparse.ArgumentParser(prog="python -m foldline_bench.conformance")
    parser.add_argument(
        "--python", type=Path, default=KIT_PYTHON, help="interpreter that has compaction-conformance-kit"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args(argv)
    if not options.python.exists():
        sys.stderr.write("compaction-conformance-kit is not installed: python bench/tools/bench_peers.py conformance\n")
        sys.exit(2)
    spec, form = "foldline_bench.conformance:Foldline", "json" if options.json else "md"
    for arguments in (["benchmark", "--spec", spec], ["check", spec, "--budgets", "10%,20%,30%"]):
        command = [str(options.python), "-m", "compaction_kit.cli", *arguments, "--format", form]
        environment = {**worker_environment(), "PYTHONPATH": str(Path(__file__).parents[2])}
        done = subprocess.run(command, env=environment, check=False)
        if done.returncode > 1:  # 1: it flags something, which its table tells
            sys.exit(done.returncode)


if __name__ == "__main__":
    main()
