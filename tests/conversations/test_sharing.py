"""Two clients with a common beginning: nothing of one reaches the other except what both have sent."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.conversations.clients import Wire, body_of, conversations, plan_request, turns, under
from tests.store.fresh import databases, places
from tests.store.places import Places

from foldline.conversations.conversation_cache import PlannedRequest
from foldline.conversations.persistence import ConversationStore
from foldline.conversations.service import Conversations
from foldline.engine.context import Request
from foldline.engine.presets import policy
from foldline.messages import Json
from foldline.store.addresses import open_store

__all__ = ["databases", "places"]  # the fixtures

KINDS = ("files", "sqlite", "postgresql")
DIALECTS = ("openai-chat", "openai-responses", "anthropic")
WINDOW = 12_000
MARK = {"cache_control": {"type": "ephemeral"}}
SECRET = re.compile(r"(?:ALICE|BOB|KEY)[\w-]*")


@dataclass
class Telltale:
    """A model that writes all secrets that it sees into its summary; records the keys of its callers."""

    key: str
    model: str = "some-model"
    seen: list[str] = field(default_factory=list)

    def __call__(self, messages: list[dict[str, str]], max_output_tokens: int, /) -> str:
        return self._summary("plain", messages)

    def as_client(self, request: Request, fields: Mapping[str, Json], /) -> str:
        return self._summary("as client", [request.system, request.tools, request.messages, dict(fields)])

    def _summary(self, how: str, read: Any) -> str:
        self.seen.append(how)
        found = sorted(set(SECRET.findall(json.dumps(read))))
        return f"Goal: mend the build for KEY-{self.key}. Open: {' '.join(found)} and no more."


@dataclass
class Person:
    """A client with words, tools and a key of its own."""

    name: str
    dialect: str
    all: Conversations
    key: str = ""
    system: str = ""
    holds: list[PlannedRequest] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.model = Telltale(self.key or self.name)

    async def grow(self, wires: Sequence[Wire]) -> None:
        """Send each turn of a history."""
        for stop in range(1, len(wires) + 1, 4):
            await self.send(wires[:stop])

    async def send(self, wires: Sequence[Wire]) -> None:
        sent, text = [dict(wire) for wire in wires], self.system or f"You help {self.name}-SYSTEM."
        fields: dict[str, Any] = {"tools": _tools(self.dialect, "" if self.system else self.name)}
        if self.dialect == "anthropic":
            fields |= {"system": text, "max_tokens": 200}
            sent[-1] = {"role": sent[-1]["role"], "content": [{"type": "text", "text": sent[-1]["content"], **MARK}]}
        elif self.dialect == "openai-responses":
            fields["instructions"] = text
        else:
            sent.insert(0, {"role": "system", "content": text})
        body = body_of(self.dialect, sent, **fields)
        body = type(body)(**{**_fields(body), "fields": {k: v for k, v in body.fields.items() if k != "x-unknown"}})
        hold = await plan_request(self.all, body, WINDOW, summarize=self.model, client=self.key.encode())
        self.holds.append(hold)


def _fields(body: Any) -> dict[str, Any]:
    return {name: getattr(body, name) for name in body.__dataclass_fields__}


def _tools(dialect: str, name: str) -> list[Wire]:
    told = {"name": "look", "description": f"Looks into {name}-TOOL."}
    if dialect == "anthropic":
        return [{**told, "input_schema": {"type": "object"}}]
    made = {**told, "parameters": {"type": "object"}}
    return [{"type": "function", **made}] if dialect == "openai-responses" else [{"type": "function", "function": made}]


def own(person: Person, other: str) -> None:
    """Have nothing of another one be in what was sent for a person, nor what was written by another's key."""
    for hold in person.holds:
        text = hold.plan.data.decode()
        for secret in SECRET.findall(text):
            assert not secret.startswith(other), f"{secret} was sent for {person.name}"
            assert not secret.startswith("KEY-") or secret == f"KEY-{person.model.key}", secret


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("keys", [("a", "b"), ("one", "one")])
@pytest.mark.parametrize("kind", KINDS)
def test_a_summary_that_was_written_in_sight_of_a_system_text_stays_with_it(
    dialect: str, keys: tuple[str, str], kind: str, places: Places
) -> None:
    wires, address = turns(dialect, 14, mark="shared", words=400), places(kind)

    async def work() -> None:
        keeping = ConversationStore(lambda: open_store(address))
        service = conversations(under_=under(policy=policy("sliding")), store=keeping)
        alice, bob = (Person(name, dialect, service, key) for name, key in zip(("ALICE", "BOB"), keys, strict=True))
        await alice.grow(wires)
        assert "as client" in alice.model.seen
        assert any("ALICE-SYSTEM" in hold.plan.data.decode() for hold in alice.holds)
        assert any("ALICE-TOOL and no more" in hold.plan.data.decode() for hold in alice.holds)
        await bob.grow([*wires[:49], *turns(dialect, 4, mark="BOB", words=400)])
        own(bob, "ALICE")
        await alice.grow([*wires, *turns(dialect, 4, mark="ALICE", words=400)])
        own(alice, "BOB")
        await service.aclose()
        keeping = ConversationStore(lambda: open_store(address))  # another process, later, on the same store
        again = conversations(under_=under(policy=policy("sliding")), store=keeping, shared=True)
        carol = Person("CAROL", dialect, again, keys[1])
        await carol.send(wires[:53])
        own(carol, "ALICE")
        dave = Person("ALICE", dialect, again, keys[0])
        await dave.send([*wires, *turns(dialect, 4, mark="ALICE", words=400)][:-3])
        assert not dave.model.seen, "what was written for it is found again"
        await again.aclose()

    asyncio.run(work())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_client_that_goes_on_with_all_of_another_one_takes_over_nothing_of_its_system_text(dialect: str) -> None:
    wires = turns(dialect, 16, mark="shared", words=400)

    async def work() -> None:
        service = conversations(under_=under(policy=policy("sliding")))
        alice, bob = (Person(name, dialect, service, "one") for name in ("ALICE", "BOB"))
        await alice.grow(wires[:57])
        assert "as client" in alice.model.seen
        await bob.send(wires[:61])
        assert bob.holds[-1].plan.folds and bob.model.seen == ["plain"] * len(bob.model.seen)
        own(bob, "ALICE")
        await alice.send(wires[:61])
        assert alice.holds[-1].plan.folds
        own(alice, "BOB")
        await service.aclose()

    asyncio.run(work())


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", ["", *KINDS])
def test_a_summary_that_was_written_in_sight_of_later_messages_stays_with_them(
    dialect: str, kind: str, places: Places
) -> None:
    wires, address = turns(dialect, 12, mark="shared", words=400), places(kind) if kind else ""

    async def work() -> None:
        keeping = ConversationStore(lambda: open_store(address)) if address else None
        service = conversations(under_=under(policy=policy("sliding")), store=keeping)
        alice, bob = (Person(name, dialect, service, "one", "You help.") for name in ("ALICE", "BOB"))
        mine = [*wires, *turns(dialect, 8, mark="ALICE", words=400)]
        for stop in range(1, len(mine) + 1, 4):
            await alice.send(mine[:stop])
            if "as client" in alice.model.seen[-1:] and stop > len(wires) and alice.holds[-1].plan.new_folds:
                break
        assert "as client" in alice.model.seen
        for cut in (len(wires), len(wires) - 8):
            await bob.grow([*wires[:cut], *turns(dialect, 4, mark="BOB", words=400)])
        own(bob, "ALICE")
        await service.aclose()

    asyncio.run(work())


@st.composite
def _courses(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Who sends how many turns, in which order."""
    return draw(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 5)), min_size=3, max_size=8))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Two clients with `shared` turns in common, who alternate: through two processes on one store, or one."""

    dialect: str
    shared: int
    same_key: bool
    same_system: bool
    policy: str
    course: list[tuple[int, int]]

    def run(self, address: str) -> None:
        """Send all, and have nothing of one be in the requests of the other."""
        asyncio.run(self._run(address))

    async def _run(self, address: str) -> None:
        common = turns(self.dialect, self.shared, mark="shared", words=400)
        histories = [[*common, *turns(self.dialect, 16, mark=mark, words=400)] for mark in ("ALICE", "BOB")]
        processes = []
        for _ in range(2):
            keeping = ConversationStore(lambda: open_store(address)) if address else None
            processes.append(conversations(under_=under(policy=policy(self.policy)), store=keeping, shared=True))
        system = "You help." if self.same_system else ""
        people = [
            Person(who, self.dialect, processes[0], "one" if self.same_key else who, system) for who in ("ALICE", "BOB")
        ]
        sent = [0, 0]
        for number, (who, some) in enumerate(self.course):
            people[who].all = processes[number % 2] if address else processes[0]
            for _ in range(some):
                sent[who] = min(sent[who] + 4, len(histories[who]) - 3)
                await people[who].send(histories[who][: sent[who] + 1])
        own(people[0], "BOB")
        own(people[1], "ALICE")
        for process in processes:
            await process.aclose()


_IN_SIGHT = Case(
    dialect="anthropic",
    shared=9,
    same_key=True,
    same_system=False,
    policy="sliding",
    course=[(0, 5)] * 3 + [(1, 5)] * 3 + [(0, 2)],
)


@given(
    case=st.builds(
        Case,
        dialect=st.sampled_from(DIALECTS),
        shared=st.integers(0, 12),
        same_key=st.booleans(),
        same_system=st.booleans(),
        policy=st.sampled_from(["sliding", "balanced", "checkpoint", "cost"]),
        course=_courses(),
    ),
    stored=st.booleans(),
)
@example(case=_IN_SIGHT, stored=True)
@settings(max_examples=25, deadline=None)
def test_nothing_of_one_client_is_in_the_requests_of_another(case: Case, stored: bool) -> None:
    with tempfile.TemporaryDirectory() as place:
        case.run(f"sqlite:///{place}/folds.db" if stored else "")


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("same", [(True, False), (False, True), (True, True)])
def test_nor_is_it_where_two_processes_share_a_postgresql(
    dialect: str, same: tuple[bool, bool], places: Places
) -> None:
    for shared, course in ((9, _IN_SIGHT.course), (5, [(0, 4), (1, 5)] * 4)):
        case = replace(_IN_SIGHT, dialect=dialect, shared=shared, same_key=same[0], same_system=same[1], course=course)
        case.run(places("postgresql"))
