"""Jobs for worker processes, and the sessions that both sides read."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from foldline.codecs import codec
from foldline.codecs.convert import convert_all
from foldline.messages import Text
from foldline.providers.exact import exact_counter
from foldline.recorded.files import read_session
from foldline.recorded.sessions import Session
from foldline.tokens import ESTIMATE, Counter
from foldline_bench.weeks import Week, join

__all__ = ["COUNTER", "BenchJob", "CachingCounter", "SessionFile", "as_chat", "neutral_counter", "read_week"]

_CHAT = "openai-chat"

COUNTER: Final = "toktok-rs>=0.3,<0.4"
"""The requirement of the exact counter alone, for the environments of peers."""


@dataclass(frozen=True, slots=True)
class SessionFile:
    """A recorded session by its name in the bench and the path of its file; `joined` are those after it in a week."""

    name: str
    path: str
    joined: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """All of its files, in order."""
        return (self.path, *self.joined)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchJob:
    """One system at one budget over some sessions, in this order. Without `system`, the job asks what a peer offers.

    `peer` is a module of foldline_bench.peers, "" for our systems; `peer_file` is a file instead. Each session runs
    `repeat` times for its times. After `cap_seconds` the rest is left undone; the long session has as long again.
    """

    system: str = ""
    peer: str = ""
    peer_file: str = ""
    budget_tokens: int = 0
    exact: bool = False
    own_counter: bool = False
    told_rule: str = ""
    repeat: int = 1
    cap_seconds: float = 240.0
    stress: bool = False
    sessions: tuple[SessionFile, ...] = ()

    def as_json(self) -> str:
        """Write the job as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> BenchJob:
        """Read the job of a line that `as_json` wrote."""
        fields: dict[str, Any] = json.loads(text)
        files = (SessionFile(each["name"], each["path"], tuple(each["joined"])) for each in fields["sessions"])
        return cls(**{**fields, "sessions": tuple(files)})


class CachingCounter:
    """Counts each text once. It holds the texts, so it is for one process over some sessions."""

    def __init__(self, counter: Counter) -> None:
        self.name = counter.name
        self._counter = counter
        self._counts: dict[str, int] = {}

    def text(self, text: str, /) -> int:
        """Tokens of `text`. O(size) the first time."""
        found = self._counts.get(text)
        if found is None:
            found = self._counts[text] = self._counter.text(text)
        return found


def neutral_counter(exact: bool) -> CachingCounter:
    """Return the counter for the sizes of all systems. Raises MissingExtra."""
    return CachingCounter(exact_counter() if exact else ESTIMATE)


def read_week(file: SessionFile) -> Week:
    """Read a session as all systems see it: in the Chat Completions dialect, under its name in the bench, joined.

    Raises InvalidInput with the file named.
    """
    week = join((as_chat(read_session(path)) for path in file.paths), len(file.paths))
    return replace(week, session=replace(week.session, name=file.name))


def as_chat(session: Session) -> Session:
    """Convert a session to the Chat Completions dialect, its system text as the first message. O(size)."""
    # Few peers know another dialect. Tools are left out, as no peer counts what is sent beside the messages.
    source, chat = codec(session.dialect), codec(_CHAT)
    messages = session.messages
    if session.dialect != _CHAT:
        converted = convert_all([source.read(wire) for wire in messages], chat)
        messages = tuple(chat.write(message) for message in converted.messages)
    if session.system:
        messages = ({"role": "system", "content": _system_text(session)}, *messages)
    return replace(session, dialect=_CHAT, messages=messages, system=None, tools=None)


def _system_text(session: Session) -> str:
    if isinstance(session.system, str):
        return session.system
    parts = codec(session.dialect).read({"role": "user", "content": session.system}).parts
    return "\n\n".join(part.text for part in parts if isinstance(part, Text))
