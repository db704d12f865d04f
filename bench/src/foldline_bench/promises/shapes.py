"""The generated histories: many shapes of sessions, the same for the same seed, sized by the window."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from itertools import count as numbers
from typing import Final, TypeAlias

from foldline.messages import Wire
from foldline_bench.promises.histories import ShapedHistory
from foldline_bench.promises.wire_forms import FORMS, AskedCall, CallResult, WireForm

__all__ = ["SHAPES", "Author", "history_of", "steady_history"]

CHARS_PER_TOKEN: Final = 4
SYSTEM: Final = "You are a careful engineer. Answer briefly. Contract number KX-4471 is never to be named."
# One pixel.
PNG: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_WORDS: Final = (
    "account budget cache delta engine filter gateway handler index journal kernel ledger module network order parser "
    "queue record schema token update vector worker yield zone retry signal"
).split()
# Letters of one to four bytes, joined emoji, marks that combine, both directions, and line ends of all kinds.
_SCRIPTS: Final = (
    "Привет, мир",
    "你好，世界",
    "مرحبا بالعالم",
    "שלום",
    "नमस्ते दुनिया",
    "e\u0301a\u0308o\u0302",
    "👩‍👩‍👧‍👦🏳️‍🌈👍🏽",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
    "line\r\nend\u2028here\u0085",
    "\u200bzero\u200dwidth",
    "🇪🇺🇯🇵",
)


class Author:
    """Writes one history: words, calls and results, each different from all others."""

    def __init__(self, form: WireForm, window_tokens: int, seed: str) -> None:
        self.form = form
        self.window_tokens = window_tokens
        self.random = random.Random(seed)
        self._numbers = numbers(1)
        self.steps: list[tuple[Wire, ...]] = []

    def text(self, share: float, *, scripts: bool = False) -> str:
        """Lines that take about a share of the window."""
        wanted = max(40, int(share * self.window_tokens * CHARS_PER_TOKEN))
        lines: list[str] = []
        size = 0
        while size < wanted:
            number = next(self._numbers)
            words = self.random.choices(_SCRIPTS if scripts else _WORDS, k=4 if scripts else 7)
            lines.append(f"{number:06d} src/{words[0]}/{words[1]}_{number}.py: {' '.join(words)}")
            size += (len(lines[-1].encode()) if scripts else len(lines[-1])) + 1
        return "\n".join(lines)

    def call(self, **arguments: str) -> AskedCall:
        """A call with an id of its own."""
        number = next(self._numbers)
        return AskedCall(f"call_{number}", "read_file", arguments or {"path": f"src/file_{number}.py"})

    def ask(self, share: float = 0.01, *, images: int = 0, scripts: bool = False) -> list[Wire]:
        """Words of the user."""
        words = f"Question {next(self._numbers)}: " + self.text(share, scripts=scripts)
        return self.form.user(words, [PNG] * images)

    def say(self, share: float = 0.01) -> list[Wire]:
        """An answer in words."""
        return self.form.assistant(f"Answer {next(self._numbers)}: " + self.text(share))

    def work(self, shares: list[float], *, failed: bool = False, scripts: bool = False) -> list[Wire]:
        """A turn of the model with one call for each share, and all results."""
        calls = [self.call() for _ in shares]
        told = [
            CallResult(
                call, f"{'Error' if failed else 'Output'} of {call.id}\n{self.text(share, scripts=scripts)}", failed
            )
            for call, share in zip(calls, shares, strict=True)
        ]
        return [*self.form.assistant("Reading.", calls), *self.form.results(told)]

    def step(self, *parts: list[Wire]) -> None:
        """End a step: a request is due."""
        self.steps.append(tuple(wire for part in parts for wire in part))


def _chat(author: Author) -> None:
    author.step(author.ask())
    for _ in range(60):
        author.step(author.say(0.05), author.ask(0.02))


def _tools(author: Author) -> None:
    author.step(author.ask())
    for turn in range(50):
        author.step(author.work([0.08]), *([author.say(), author.ask()] if turn % 8 == 7 else []))


def _loop(author: Author) -> None:
    """One question and a long loop of tools: no later words of the user to cut at."""
    author.step(author.ask(0.05))
    for _ in range(60):
        author.step(author.work([0.06]))


def _parallel(author: Author) -> None:
    author.step(author.ask())
    for turn in range(24):
        author.step(author.work([0.03, 0.02, 0.04, 0.03]))
        if turn % 5 == 4:
            author.step(author.say(), author.ask())


def _errors(author: Author) -> None:
    author.step(author.ask())
    for turn in range(40):
        author.step(author.work([0.07], failed=turn % 3 != 1))


def _images(author: Author) -> None:
    author.step(author.ask(images=1))
    for turn in range(40):
        author.step(author.say(0.05), author.ask(0.04, images=turn % 3))


def _huge(author: Author) -> None:
    author.step(author.ask())
    for turn in range(12):
        author.step(author.work([3.0 if turn in {4, 9} else 0.05]))
    author.step(author.say(), author.ask())


def _unicode(author: Author) -> None:
    author.step(author.ask(scripts=True))
    for turn in range(16):
        author.step(author.work([2.0 if turn in {5, 11} else 0.08], scripts=True))
    author.step(author.say(), author.ask(0.02, scripts=True))


def _mixed(author: Author) -> None:
    author.step(author.ask(0.03))
    for _ in range(50):
        match author.random.randrange(5):
            case 0:
                author.step(author.say(author.random.uniform(0.01, 0.1)), author.ask(author.random.uniform(0.01, 0.1)))
            case 1:
                author.step(author.work([author.random.uniform(0.01, 0.08) for _ in range(3)]))
            case 2:
                author.step(author.work([author.random.uniform(0.1, 0.6)]))
            case 3:
                author.step(author.work([0.02], failed=True))
            case _:
                author.step(author.say(0.02), author.ask(0.02, images=1))


def _long_words(author: Author) -> None:
    """Users who paste: each question takes a quarter of the window."""
    author.step(author.ask(0.25))
    for _ in range(14):
        author.step(author.say(0.05), author.ask(0.25))


def _arguments(author: Author) -> None:
    """A tool that writes: the calls are large, their results small."""
    author.step(author.ask())
    for _ in range(24):
        call = author.call(path="src/new.py", content=author.text(0.12))
        author.step(author.form.assistant("Writing.", [call]), author.form.results([CallResult(call, "written")]))


def _small(author: Author) -> None:
    """A session that never comes near the window."""
    author.step(author.ask())
    for _ in range(8):
        author.step(author.work([0.02]))
        author.step(author.say(), author.ask())


def _too_large(author: Author) -> None:
    """Words of a user that no window holds."""
    author.step(author.ask(2.5))


def _empty(author: Author) -> None:
    """Results, answers and questions without any content."""
    author.step(author.ask())
    for turn in range(24):
        call = author.call()
        author.step(author.form.assistant("", [call]), author.form.results([CallResult(call, "")]))
        author.step(author.form.assistant(""), author.form.user("") if turn % 2 else author.ask())
        author.step(author.work([0.08]))


def _order(author: Author) -> None:
    """Results in another order than their calls, late ones, second ones, and one without its call."""
    form = author.form
    author.step(author.ask())
    for turn in range(20):
        calls = [author.call() for _ in range(3)]
        told = [CallResult(call, f"Output of {call.id}\n{author.text(0.03)}") for call in calls]
        asked = form.assistant("Reading.", calls)
        match turn % 4:
            case 0:
                author.step(asked, form.results(told[::-1]))
            case 1:
                author.step(asked, form.results(told[1:]), author.ask(), form.results(told[:1]))
            case 2:
                author.step(asked, form.results(told), form.results(told[:1]))
            case _:
                author.step(asked, form.results(told), form.results([CallResult(author.call(), "lost")]))
        author.step(author.say(), author.ask())


Write: TypeAlias = Callable[[Author], None]

SHAPES: Final[Mapping[str, Write]] = {
    "small": _small,
    "chat": _chat,
    "tools": _tools,
    "loop": _loop,
    "mixed": _mixed,
    "long-words": _long_words,
    "arguments": _arguments,
    "parallel": _parallel,
    "errors": _errors,
    "images": _images,
    "huge": _huge,
    "unicode": _unicode,
    "empty": _empty,
    "order": _order,
    "too-large": _too_large,
}
"""Every shape by its name."""

_FAULTY: Final = frozenset({"empty", "order"})


def history_of(shape: str, dialect: str, window_tokens: int, seed: int) -> ShapedHistory:
    """The history of a shape. O(its size)."""
    author = Author(FORMS[dialect], window_tokens, f"{seed}/{shape}")
    SHAPES[shape](author)
    return _finished(author, shape, feasible=shape != "too-large", faulty=shape in _FAULTY)


def steady_history(dialect: str, window_tokens: int, steps: int) -> ShapedHistory:
    """A session whose steps are all of one size, for counting work."""
    author = Author(FORMS[dialect], window_tokens, "steady")
    author.step(author.ask())
    for _ in range(steps):
        author.step(author.work([0.01]))
    return _finished(author, "steady")


def _finished(author: Author, shape: str, *, feasible: bool = True, faulty: bool = False) -> ShapedHistory:
    steps = author.steps
    if author.form.system_inside:
        steps[0] = ({"role": "system", "content": SYSTEM}, *steps[0])
    # The first question: what a user would want to stay.
    first = len(steps[0]) - 1
    return ShapedHistory(
        shape=shape,
        dialect=author.form.dialect,
        window_tokens=author.window_tokens,
        steps=tuple(steps),
        system="" if author.form.system_inside else SYSTEM,
        feasible=feasible,
        faulty=faulty,
        pinned=frozenset({first}) if feasible else frozenset(),
    )


def every(dialects: tuple[str, ...], windows: tuple[int, ...], seed: int) -> Iterator[ShapedHistory]:
    """Every generated history."""
    for dialect in dialects:
        for window in windows:
            for shape in SHAPES:
                yield history_of(shape, dialect, window, seed)
