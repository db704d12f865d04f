"""Recorded sessions as histories: those that come with the package, and the user's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from foldline.codecs import codec
from foldline.codecs.convert import convert_all
from foldline.engine.one_shot import check, count
from foldline.messages import Json, Message, Wire
from foldline.recorded.files import read_session
from foldline_bench.promises.histories import ShapedHistory

__all__ = ["FOLDER", "shipped_histories"]

FOLDER: Final = Path(__file__).parent / "sessions"
"""The sessions of the package; ATTRIBUTION.md beside them has their sources and licences."""

MOST_STEPS: Final = 80
"""Requests of one session; what came before the first of them is sent at once."""


@dataclass(frozen=True, slots=True)
class _ReadSession:
    """A recorded session in one dialect."""

    name: str
    messages: tuple[Message, ...]
    system: str


def shipped_histories(dialects: Sequence[str], windows: Sequence[int], given: Sequence[str]) -> Iterator[ShapedHistory]:
    """Each session in each dialect, at windows that its system text and its user's words leave room in.

    `given` are files of the user's own, beside those of the package. Raises InvalidInput for what cannot be read.
    """
    shipped = sorted(str(path) for path in FOLDER.glob("*.json.gz"))
    for path in (*shipped, *given):
        for dialect in dialects:
            session = _read(path, dialect)
            for window in windows:
                yield _history(session, dialect, window)


@cache
def _read(path: str, dialect: str) -> _ReadSession:
    session = read_session(path)
    reader = codec(session.dialect)
    read = [reader.read(wire) for wire in session.messages]
    messages = tuple(read) if session.dialect == dialect else convert_all(read, codec(dialect)).messages
    system = _text(session.system)
    inside = codec(dialect).system_inside and dialect == "openai-chat"
    if not inside:  # where it stands beside the messages, all of it does
        texts = [system, *(one.text for one in messages if one.role == "system")]
        system = "\n\n".join(text for text in texts if text)
        messages = tuple(one for one in messages if one.role != "system")
    elif system:
        messages = (codec(dialect).read({"role": "system", "content": system}), *messages)
        system = ""
    name = Path(path).name.partition(".")[0]
    return _ReadSession(name, messages, system)


def _text(system: Json) -> str:
    if isinstance(system, str) or system is None:
        return system or ""
    return "\n".join(str(block.get("text", "")) for block in system if isinstance(block, dict))


def _history(session: _ReadSession, dialect: str, window_tokens: int) -> ShapedHistory:
    writer = codec(dialect)
    steps: list[list[Wire]] = [[]]
    spoke = True
    for message in session.messages:
        if message.role == "assistant" and not spoke:
            steps.append([])
        spoke = message.role == "assistant"
        steps[-1].append(writer.write(message))
    if spoke:  # after the model's own last words no request is due
        while steps[-1] and codec(dialect).read(steps[-1][-1]).role == "assistant":
            steps[-1].pop()
    steps = [step for step in steps if step]
    cut = max(0, len(steps) - MOST_STEPS)
    joined = [[wire for step in steps[: cut + 1] for wire in step], *steps[cut + 1 :]]
    messages = [wire for step in joined for wire in step]
    # Twice what nobody can shorten: then it is the tool's own matter to fit the rest.
    words = [count([wire], dialect=dialect) for wire in messages if writer.read(wire).role in {"user", "system"}]
    fixed = count([], dialect=dialect, system=session.system or None) + sum(
        count([wire], dialect=dialect) for wire in messages if writer.read(wire).role == "system"
    )
    window = max(window_tokens, -(-(2 * (fixed + max(words, default=0))) // 1_000) * 1_000)
    return ShapedHistory(
        shape=f"session:{session.name}",
        dialect=dialect,
        window_tokens=window,
        steps=tuple(map(tuple, joined)),
        system=session.system,
        faulty=bool(check(messages, dialect=dialect, system=session.system or None)),
    )
