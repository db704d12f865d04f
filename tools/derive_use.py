"""Derive the table of expected use in `foldline.reducers.stages` from recorded sessions.

A reply uses a result when it names something that stood last in that result. Counted for each kind of tool, size and
age: the share of results that some reply of that age or later uses. The share of each source counts alike, so that the
source with the most sessions does not decide. Prints the table, and for each source left out how much better the
table of the others predicts its uses than one number for all (in bits per result and age).

    python -m tools.derive_use SESSIONS...
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from pathlib import Path

from foldline.codecs import codec
from foldline.messages import Message
from foldline.recorded.files import read_session
from foldline.recorded.sessions import Session
from foldline.reducers.stages import AGES, ToolKind, size_class, tool_kind
from foldline.text.identifiers import names
from foldline.tokens import ESTIMATE, message_tokens

Cell = tuple[ToolKind, int, int]

# What a cell is drawn towards while it has few results: as if so many more had been seen with the mean use.
PRIOR_RESULTS = 8


def uses(session: Session) -> list[tuple[ToolKind, int, int, set[int]]]:
    """Kind, size class and replies after each result, with the ages at which replies used it."""
    messages: list[Message] = [codec(session.dialect).read(wire) for wire in session.messages]
    last: dict[str, int] = {}
    calls: dict[str, ToolKind] = {}
    rows: dict[int, tuple[ToolKind, int, int]] = {}
    used: dict[int, set[int]] = defaultdict(set)
    replies = 0
    for number, message in enumerate(messages):
        named = names(_text(message))
        if message.role == "assistant":
            for name in named & last.keys():
                source = last[name]
                if source in rows:
                    used[source].add(replies - rows[source][2])
            replies += 1
            calls |= {call.id: tool_kind(call.name, call.arguments) for call in message.calls}
        if message.results:
            tokens = message_tokens(message, ESTIMATE)
            rows[number] = (calls.get(message.results[0].call_id, ToolKind.OTHER), size_class(tokens), replies)
        last |= dict.fromkeys(named, number)
    return [(kind, size, replies - at, used[number]) for number, (kind, size, at) in rows.items()]


def _text(message: Message) -> str:
    return "\n".join(
        (message.text, *(c.name + " " + c.arguments for c in message.calls), *(r.text for r in message.results))
    )


def counts(sessions: list[Session]) -> dict[Cell, tuple[int, int]]:
    """(results, of which used) per cell of kind, size class and age class."""
    out: dict[Cell, list[int]] = defaultdict(lambda: [0, 0])
    for session in sessions:
        for kind, size, replies, ages in uses(session):
            for place, age in enumerate(AGES):
                if age < replies:
                    cell = out[kind, size, place]
                    cell[0] += 1
                    cell[1] += any(used >= age for used in ages)
    return {cell: (seen, used) for cell, (seen, used) in out.items()}


def table(sources: list[dict[Cell, tuple[int, int]]]) -> dict[Cell, float]:
    """The use per cell, each source with the same weight. A cell with few results is drawn to that of all kinds."""
    out: dict[Cell, float] = {}
    for place in range(len(AGES)):
        for size in range(3):
            mean = _share(sources, [(kind, size, place) for kind in ToolKind], 0.2)
            for kind in ToolKind:
                out[kind, size, place] = _share(sources, [(kind, size, place)], mean)
    return out


def _share(sources: list[dict[Cell, tuple[int, int]]], cells: list[Cell], prior: float) -> float:
    weight = used = 0.0
    for source in sources:
        seen = sum(source.get(cell, (0, 0))[0] for cell in cells)
        # The logarithm: a source with many results says more, but not in proportion.
        worth = math.log1p(seen)
        weight += worth
        used += worth * sum(source.get(cell, (0, 0))[1] for cell in cells) / max(1, seen)
    return (used + prior * math.log1p(PRIOR_RESULTS)) / (weight + math.log1p(PRIOR_RESULTS))


def loss(predicted: dict[Cell, float], source: dict[Cell, tuple[int, int]]) -> float:
    """Bits per result and age class that the prediction needs."""
    bits = seen = 0.0
    for cell, (count, used) in source.items():
        share = min(0.99, max(0.01, predicted[cell]))
        bits -= used * math.log2(share) + (count - used) * math.log2(1 - share)
        seen += count
    return bits / max(1.0, seen)


def main(paths: list[str]) -> None:
    """Print the table and its errors on the sources left out."""
    by_source: dict[str, list[Session]] = defaultdict(list)
    for path in paths:
        by_source[Path(path).name.split("-")[0]].append(read_session(path))
    found = {source: counts(sessions) for source, sessions in sorted(by_source.items())}
    whole = table(list(found.values()))
    for kind in ToolKind:
        rows = [", ".join(f"{whole[kind, size, place]:.2f}" for place in range(len(AGES))) for size in range(3)]
        print(f"    ToolKind.{kind.name}: (({'), ('.join(rows)})),")
    for source, own in found.items():
        rest = [cells for name, cells in found.items() if name != source]
        one = _share(rest, [(k, s, p) for k in ToolKind for s in range(3) for p in range(len(AGES))], 0.2)
        alone = dict.fromkeys(whole, one)
        print(f"{source:12} table of the others {loss(table(rest), own):.3f} bits, one number {loss(alone, own):.3f}")


if __name__ == "__main__":
    main(sys.argv[1:])
