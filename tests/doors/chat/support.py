"""A chat without a terminal: lines from a list, output in a string, a fake model over a real connection."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from tests.serving import serve

from foldline.doors.chat.chat_loop import ChatLoop
from foldline.doors.chat.prompt import Consent
from foldline.doors.chat.screen import Screen
from foldline.doors.chat.startup import Chat, StoragePlaces
from foldline.hosting.runtime import Options, settings_for
from foldline.testing import FakeProvider

MODEL = "fake-model"


def console(width: int = 100, *, terminal: bool = False, encoding: str = "utf-8") -> Console:
    """A console that keeps what it is given."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
    return Console(
        file=file,
        width=width,
        height=30,
        force_terminal=terminal,
        color_system="truecolor" if terminal else None,
        highlight=False,
        markup=False,
    )


def shown(on: Console) -> str:
    """What was printed so far."""
    assert isinstance(on.file, io.TextIOWrapper)
    assert isinstance(on.file.buffer, io.BytesIO)
    return on.file.buffer.getvalue().decode(on.file.encoding)


@dataclass
class Typed:
    """A prompt whose lines and answers are known beforehand; the end of the lines is the end of the input."""

    lines: Iterable[str | BaseException]
    answers: Iterable[str | BaseException] = ()
    questions: list[str] = field(default_factory=list)
    redraws: bool = True

    def __post_init__(self) -> None:
        self._lines: Iterator[str | BaseException] = iter(self.lines)
        self._answers: Iterator[str | BaseException] = iter(self.answers)

    async def line(self) -> str:
        return self._next(self._lines)

    async def ask(self, question: str) -> str:
        self.questions.append(question)
        return self._next(self._answers)

    def print_above(self, show: Callable[[], None]) -> None:
        show()

    def abort(self, error: BaseException) -> None:
        self._lines = iter([error])

    def silent(self) -> AbstractContextManager[None]:
        return nullcontext()

    def _next(self, given: Iterator[str | BaseException]) -> str:
        found = next(given, EOFError())
        if isinstance(found, BaseException):
            raise found
        return found


@dataclass
class Held:
    """The end of a chat: its exit code, its output and its questions."""

    code: int
    text: str
    questions: list[str]
    home: Path

    @property
    def sessions(self) -> list[str]:
        """The names of the sessions that were kept."""
        folder = self.home / "data" / "sessions"
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@contextmanager
def faked(fake: FakeProvider) -> Iterator[str]:
    """The base URL of a fake."""
    with serve(fake) as served:
        yield f"{served.url}/v1"


def hold(
    fake: FakeProvider,
    folder: Path,
    lines: Iterable[str | BaseException],
    *,
    answers: Iterable[str | BaseException] = (),
    width: int = 100,
    resume: str | None = None,
    save: bool = True,
    place: str | None = None,
    settings: str = "",
    environ: Mapping[str, str] | None = None,
    **options: object,
) -> Held:
    """A whole chat: these lines typed one after the other, at a model that is `fake`."""
    home, work = folder / "home", folder / "work"
    work.mkdir(exist_ok=True)
    config = None
    if settings:
        config = str(folder / "agents.yaml")
        Path(config).write_text(settings)
    on = console(width)
    typed = Typed(lines, answers)
    variables = {"FOLDLINE_HOME": str(home), **(environ or {})}
    with faked(fake) as base_url:
        given = {"base_url": base_url, "model": MODEL, "config": config, **options}
        loaded = settings_for(Options(**given), variables, folder=work)  # type: ignore[arg-type]
        screen = Screen(on)
        kept = StoragePlaces(
            sessions=place or home / "data" / "sessions",
            named=place is not None,
            calls=home / "data" / "calls.sqlite",
            learned=home / "learned.json",
        )
        chat = Chat(
            loaded=loaded,
            screen=screen,
            consent=Consent(screen, typed),
            workspace=work,
            environ=variables,
            storage=kept if save else StoragePlaces(),
            resume=resume,
        )
        code = asyncio.run(ChatLoop(chat, typed).run())
    return Held(code, shown(on), typed.questions, home)
