"""The script of a fake server, taken step by step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from foldline.testing.values import Body, FakeReply, Script, Scripts

__all__ = ["Steps"]


class Steps:
    """A script of any form. One step alone answers everything; of many each answers once, the last one for ever with
    `repeat`."""

    def __init__(self, script: Scripts, *, repeat: bool) -> None:
        self._steps: Iterator[Script] = iter(())
        self._last: Script | None = None
        self._stays = True
        self.taken = 0
        if script is None:
            self._last = FakeReply("ok")
        elif isinstance(script, FakeReply | str) or callable(script):
            self._last = script
        elif isinstance(script, Iterable):
            self._steps, self._stays = iter(script), repeat

    def reply(self, body: Body) -> FakeReply | None:
        """The answer to a request; None when the script is at its end. What a function in it raises is raised."""
        step = next(self._steps, self._last if self._stays else None)
        if step is None:
            return None
        self._last = step
        self.taken += 1
        said = step(body) if callable(step) else step
        return FakeReply(said) if isinstance(said, str) else said
