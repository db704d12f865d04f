"""The interface of a chat platform, and the values that it delivers.

Everything else (permission, commands, sessions, figures) belongs to `ChatGateway`. A new platform is one module with a
class that has the methods of `Gateway`.
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
    """The platform refuses a message for this chat, or a file, for good: blocked, deleted."""


@dataclass(frozen=True, slots=True)
class ChatPlace:
    """A chat and, on platforms that have them, a thread in it ("" for none)."""

    chat: str
    thread: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A file to fetch: the platform's id, its name, and its size if known."""

    id: str
    name: str
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A message from a person. `key` is the platform's number for it, the same if it is delivered again.

    `user` is the id that the platform vouches for, never a name that people choose. `own` says whether the text is the
    person's own words: a forwarded text, one that another bot wrote for them, or the caption of a file is no command
    whatever it begins with. `unreadable` names the kinds of its parts that are not read here ("pictures").
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
        """The message as a JSON object."""
        files = [dataclasses.asdict(file) for file in self.files]
        return dataclasses.asdict(self) | {"unreadable": list(self.unreadable), "files": files}

    @classmethod
    def of(cls, value: Mapping[str, Json]) -> Incoming:
        """Rebuild a message from `as_json`. Raises InvalidInput for any other value."""
        try:
            fields = dict(value)
            fields["where"] = ChatPlace(**fields["where"])
            fields["files"] = tuple(Attachment(**each) for each in fields["files"])
            fields["unreadable"] = tuple(fields["unreadable"])
            # An unknown field is a TypeError here: a message of a newer version must not be answered in part.
            return cls(**fields)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"is no stored message: {error}", place="inbox") from None


Receive: TypeAlias = Callable[[Sequence[Incoming]], Awaitable[None]]
"""Stores messages. Once it returns they are on disk, and their arrival may be confirmed to the platform."""


class Gateway(Protocol):
    """One account on one chat platform. Texts are a small subset of Markdown: see `doors.gateway.markdown`."""

    @property
    def name(self) -> str:
        """The platform and the account, as in the keys of sessions: "telegram:12345". It never changes."""

    @property
    def max_units(self) -> int:
        """The longest message, in what `units` counts."""

    @property
    def max_file_bytes(self) -> int:
        """The largest file that the platform delivers."""

    def units(self, line: str) -> int:
        """The size of one line in a message, as the platform counts; never more than for the line as it stands."""

    async def run(self, receive: Receive) -> None:
        """Receive until cancelled, through losses of the network. Raises InvalidInput if the account is refused.

        Arrival is confirmed to the platform only after `receive` has returned.
        """

    async def send(self, place: ChatPlace, text: str) -> str:
        """Send a text of at most `max_units`; return the id of the message. Raises NotDelivered.

        Waits while the network is away, or as long as the platform asks.
        """

    async def edit(self, place: ChatPlace, sent: str, text: str) -> None:
        """Replace the text of a sent message, or leave it. Nothing depends on it, so it does not wait."""

    async def typing(self, place: ChatPlace) -> None:
        """Show for some seconds that an answer is being written, or do nothing."""

    async def fetch(self, file: Attachment, max_bytes: int) -> bytes:
        """Fetch a file. Raises NotDelivered: it is gone, larger than `max_bytes`, or the network is away."""

    async def announce(self, commands: Sequence[tuple[str, str]]) -> None:
        """Publish the commands in the platform's menu: name without the slash, and description."""
