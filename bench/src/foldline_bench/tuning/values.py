"""Values of a tuning: session sources, jobs and outcomes. All of them can be pickled for other machines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any, Final, Literal

from foldline.agent.settings.model import AgentSettings, PolicySettings, SessionSettings
from foldline.catalog.models import CacheRule, Model, lookup
from foldline.engine.policy import Policy
from foldline.engine.settings import ContextSettings
from foldline.messages import Json
from foldline.recorded.sessions import Session
from foldline.replay import NONE
from foldline.view.budget import cache_rule_of, limits_of

__all__ = [
    "UNMANAGED",
    "Conditions",
    "SessionSource",
    "SessionSummary",
    "Setting",
    "TrialJob",
    "TrialOutcome",
    "content_sha256",
]


@dataclass(frozen=True, slots=True)
class SessionSource:
    """Where one session is: `place` is a file, the URI of an object, or a store; `part` a session or row in it.

    `label` is the id of a row that has one, for people.
    """

    # An address and not the content: it goes to other machines with each job, and the worker reads the session itself.

    form: Literal["file", "stored", "row"]
    place: str
    part: str = ""
    label: str = field(default="", compare=False)

    @property
    def shown(self) -> str:
        """Return the place for people, without the user and password of an address."""
        scheme, mark, rest = self.place.partition("://")
        place = f"{scheme}{mark}{rest.rpartition('@')[2].partition('?')[0]}" if mark else self.place
        if not self.part:
            return place
        row = f"row {self.part}" if self.form == "row" else self.part
        return f"{place}: {self.label} ({row})" if self.label else f"{place}: {row}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """A first description of a session. With a `fault`, it cannot be used and the rest is empty.

    `origin` is its source, or what its place says of it: sessions of one origin are judged together.
    """

    source: SessionSource
    sha256: str = ""
    name: str = ""
    model: str | None = None
    dialect: str = ""
    origin: str = ""
    fault: str = ""


def content_sha256(session: Session) -> str:
    """Return a hash over what is replayed, the same wherever the session is stored. O(size)."""
    # Not over the file: the same session in a store, a Parquet row and a .gz file has one identity, and known results.
    tools = None if session.tools is None else list(session.tools)
    whole = [session.dialect, session.model, session.system, tools, list(session.messages)]
    return sha256(json.dumps(whole, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Setting:
    """A policy with figures of its own, as `agents.yaml` has them; `context` is its `session.context`."""

    policy: str
    settings: tuple[tuple[str, Json], ...] = ()
    context: tuple[tuple[str, Json], ...] = ()

    @property
    def agent(self) -> AgentSettings:
        """Return the settings of an agent with this setting and without a summariser. Raises InvalidInput."""
        session = SessionSettings(context=ContextSettings(**dict(self.context))) if self.context else None
        return AgentSettings(
            policy=PolicySettings(name=self.policy, **dict(self.settings)),
            session=session,
            has_context=session is not None,
            summaries=False,
        )

    def value(self) -> Policy:
        """Return the policy, as the agent would have it."""
        return self.agent.policy_value()

    @property
    def name(self) -> str:
        """Return the policy and its settings: "economical landing 0.6"."""
        return " ".join((self.policy, *(f"{key} {value}" for key, value in (*self.settings, *self.context))))

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {"policy": self.policy, "settings": dict(self.settings), "context": dict(self.context)}


UNMANAGED: Final = Setting(NONE)
"""No management, the baseline of all bills. It is no setting of an agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The conditions common to all replays. `model` None: each session's own. `exact` counts by a real vocabulary."""

    window: int
    max_output_tokens: int | None = None
    model: str | None = None
    exact: bool = False

    def model_of(self, look: SessionSummary) -> Model:
        """Return the model that a session is priced as."""
        return lookup(self.model or look.model)

    def rule_of(self, look: SessionSummary) -> CacheRule:
        """Return how its requests are priced."""
        return cache_rule_of(self.model or look.model, look.dialect)

    def output_tokens_of(self, look: SessionSummary) -> int:
        """Return the tokens reserved for a reply: as requested, else as an agent reserves. Raises InvalidInput."""
        limits = limits_of(self.window, self.model or look.model, self.max_output_tokens)
        return self.window - limits.room_tokens

    def key(self, look: SessionSummary, setting: Setting, code: str) -> str:
        """Return the key of a result: everything that it depends on. `code` identifies the code of the replay."""
        # Prices by value and not by the model's name: a new price in the catalogue makes old results unknown.
        model = self.model_of(look)
        prices = [model.input_usd_per_million, model.output_usd_per_million, asdict(self.rule_of(look))]
        sizes = [self.window, self.output_tokens_of(look), self.exact]
        whole = [code, look.sha256, setting.as_json(), sizes, prices]
        return sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class TrialJob:
    """One session and the settings to replay it under."""

    look: SessionSummary
    settings: tuple[Setting, ...]
    conditions: Conditions


_PAIRS: Final = ("far", "line", "far_tool", "near_line", "rereads", "reread_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOutcome:
    """One session under one setting. `paid_tokens` is the price of all input, in tokens at the full input price.

    `input_usd` and `reply_usd` are None when the model has no price in the catalogue. `far`, `line` and `far_tool` are
    references (kept, of so many), `near_line` by what is feasible. `rereads` are the messages to read again and
    `reread_tokens` their price, low and high. Sums over all requests. Where some were refused, `floor_tokens` is the
    most that had to stay in one, and `limit_tokens` what there was room for; else both are 0.
    """

    session: str
    requests: int
    recorded_tokens: int
    invalid: int
    over_budget: int
    refused: int
    floor_tokens: int
    limit_tokens: int
    tokens: int
    paid_tokens: float
    input_usd: float | None
    reply_usd: float | None
    folds: int
    far: tuple[int, int]
    line: tuple[int, int]
    far_tool: tuple[int, int]
    near_line: tuple[int, int]
    rereads: tuple[int, int]
    reread_tokens: tuple[float, float]

    @property
    def fits(self) -> bool:
        """Whether every request was made, was valid, and fitted the window."""
        return not (self.invalid or self.over_budget or self.refused)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TrialOutcome:
        """Read the plain values that `asdict` gave. Raises TypeError for others."""
        # JSON has no tuples.
        pairs = {name: tuple(value[name]) for name in _PAIRS if name in value}
        return cls(**{**value, **pairs})
