"""Jobs for worker processes, and the sessions that both sides read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from foldline.codecs import codec
from foldline.codecs.convert import convert_all
from foldline.messages import Text
from foldline.providers.exact import exact_counter
from foldline.recorded.files import read_session
from foldline.recorded.sessions import Session
from foldline.tokens import ESTIMATE, Counter

__all__ = ["COUNTER", "BenchJob", "CachingCounter", "SessionFile", "as_chat", "neutral_counter", "read_sessions"]

_CHAT = "openai-chat"

COUNTER: Final = "toktok-rs>=0.3,<0.4"
"""What pip installs for the exact counter: the extra `exact`, by itself, for environments that are not this one."""


@dataclass(frozen=True, slots=True)
class SessionFile:
    """A recorded session by its name in the bench and the path of its file."""

    name: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchJob:
    """One system at one budget over some sessions, in this order; with no `system`, what the peer has to offer, once it
    is sure that its environment has the counter.

    `peer` is the module of foldline_bench.peers, "" for ours, `peer_file` a file instead of that. Each session is run
    `repeat` times for the time it takes. What is not done after `cap_seconds` stays undone; the long session, if there
    is to be one, has as long again.
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
        """The job as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> BenchJob:
        """The job of a line that `as_json` wrote."""
        fields: dict[str, Any] = json.loads(text)
        return cls(**{**fields, "sessions": tuple(SessionFile(**each) for each in fields["sessions"])})


class CachingCounter:
    """A counter that counts each text once. It holds the texts: it is for one process over some sessions."""

    def __init__(self, counter: Counter) -> None:
        self.name = counter.name
        self._counter = counter
        self._known: dict[str, int] = {}

    def text(self, text: str, /) -> int:
        """Tokens of `text`. O(size) the first time."""
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = self._counter.text(text)
        return found


def neutral_counter(exact: bool) -> CachingCounter:
    """The counter for sizes of all systems. Raises MissingExtra."""
    return CachingCounter(exact_counter() if exact else ESTIMATE)


def read_sessions(files: Sequence[SessionFile]) -> list[Session]:
    """The sessions as all systems see them: in the Chat Completions dialect, under their names here.

    Raises InvalidInput with the file named.
    """
    return [replace(as_chat(read_session(file.path)), name=file.name) for file in files]


def as_chat(session: Session) -> Session:
    """The session in the Chat Completions dialect, its system text as the first message, and without tools.

    Few systems of other people know another dialect, and none counts what is sent beside the messages. O(size).
    """
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
