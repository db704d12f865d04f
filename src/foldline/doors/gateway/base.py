"""What a chat platform must do, and what it hands over. All else (who may, commands, sessions, figures) is the desk's.

A new platform is one module with a class that has the methods of `Gateway`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from foldline.errors import FoldlineError, InvalidInput
from foldline.messages import Json

__all__ = ["Attachment", "ChatPlace", "Gateway", "Incoming", "NotDelivered", "Receive"]


class NotDelivered(FoldlineError):  # noqa: N818 - says what happened, like DoesNotFit
    """The platform does not take a message for this place, or hand out this file, and will not: blocked, deleted."""


@dataclass(frozen=True, slots=True)
class ChatPlace:
    """A place where people write: a chat and, where the platform has them, a thread in it ("" for none)."""

    chat: str
    thread: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A file that can be fetched: the platform's own id of it, its name, and its size where that was told."""

    id: str
    name: str
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """What a person sent. `key` is the platform's own number for it: the same when it is handed over again.

    `user` is the id that the platform vouches for, never a name that people choose. `own` says whether the text is the
    person's own words: what was forwarded, what another bot wrote for them, and the caption of a file, is no command
    whatever it begins with.
    `unreadable` names the kinds of what came with it and is not read here ("pictures").
    """

    key: str
    user: str
    where: ChatPlace
    text: str = ""
    own: bool = True
    files: tuple[Attachment, ...] = ()
    unreadable: tuple[str, ...] = ()
    edited: bool = False

    def as_json(self) -> dict[str, Json]:
        """All of it as a JSON object."""
        files = [dataclasses.asdict(file) for file in self.files]
        return dataclasses.asdict(self) | {"unreadable": list(self.unreadable), "files": files}

    @classmethod
    def of(cls, value: Mapping[str, Json]) -> Incoming:
        """What `as_json` made an object of. Raises InvalidInput for any other."""
        try:
            given = dict(value)
            given["where"] = ChatPlace(**given["where"])
            given["files"] = tuple(Attachment(**each) for each in given["files"])
            given["unreadable"] = tuple(given["unreadable"])
            return cls(**given)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"is no message that was kept: {error}", place="inbox") from None


Receive: TypeAlias = Callable[[Sequence[Incoming]], Awaitable[None]]
"""Takes messages over. Once it returns they are written down, and the platform may be told that they arrived."""


class Gateway(Protocol):
    """One account on one chat platform. Texts are Markdown of a small kind: see `splitting`."""

    @property
    def name(self) -> str:
        """The platform and the account, as keys of sessions have it: "telegram:12345". It never changes."""

    @property
    def most_units(self) -> int:
        """How long one message may be, in what `units` counts."""

    @property
    def most_file_bytes(self) -> int:
        """How large a file the platform hands out."""

    def units(self, line: str) -> int:
        """How much of a message one line takes, as the platform counts; never more than for the line as it stands."""

    async def run(self, take: Receive) -> None:
        """Receive until cancelled, through losses of the network. Tell the platform that a message arrived only after
        `take` has returned. Raises InvalidInput when the account is refused.
        """

    async def send(self, where: ChatPlace, text: str) -> str:
        """Send a text of at most `most_units`; the id of the message. Waits while the network is away, or as long as
        the platform asks for. Raises NotDelivered.
        """

    async def edit(self, where: ChatPlace, sent: str, text: str) -> None:
        """Put another text in the place of a message that was sent, or leave it: nothing depends on it, no wait."""

    async def typing(self, where: ChatPlace) -> None:
        """Show that an answer is being made, for some seconds, or do nothing."""

    async def fetch(self, file: Attachment, most_bytes: int) -> bytes:
        """The content of a file. Raises NotDelivered: it is gone, larger than `most_bytes`, or the network is away."""

    async def announce(self, commands: Sequence[tuple[str, str]]) -> None:
        """Tell the platform which commands there are (name without the slash, what it does), for its menu."""
