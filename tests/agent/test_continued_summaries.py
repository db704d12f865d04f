"""Summaries that an agent asks for by going on from the request it has just sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.agent.support import DIALECTS, Answers, agent_over

from foldline.codecs.dialect import ROWS
from foldline.engine.presets import policy
from foldline.providers.bodies import encode_body
from foldline.providers.summariser import summariser
from foldline.testing import FakeProvider, FakeReply
from foldline.testing.script import Body

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)

CHECKPOINT = "Goal: look at all parts. Done: parts 0 to 20 were looked at; all are in order. Open: the rest."
MOST = 20
LIST = {dialect: row.body.messages for dialect, row in ROWS.items()}
CHANGING = {name for row in ROWS.values() for name in (row.body.messages, row.body.caps_in, *row.body.caps)}


def look(arguments: Mapping[str, Any]) -> str:
    return f"Part {arguments.get('what')}: " + " ".join(f"line {n} of it is in order," for n in range(150))


def messages_of(body: Body) -> list[Any]:
    """The messages of a request."""
    return next(list(body[name]) for name in LIST.values() if name in body)


def is_question(body: Body) -> bool:
    """Whether a request asks for a checkpoint of the conversation that stands in it."""
    return "[A checkpoint is due]" in json.dumps(messages_of(body)[-1])


def is_prompt(body: Body) -> bool:
    """Whether a request is a prompt of its own that repeats the text to summarise."""
    return "You write the checkpoint" in json.dumps([body.get(row.body.system or "") for row in ROWS.values()]) or (
        "You write the checkpoint" in json.dumps(messages_of(body)[0])
    )


class Model:
    """Reads one part after the other, and writes a checkpoint on request; records the bodies of its requests."""

    def __init__(self, continued: FakeReply | str = CHECKPOINT) -> None:
        self.bodies: list[Body] = []
        self.continued = continued
        self.looked = 0

    def __call__(self, body: Body) -> FakeReply | str:
        self.bodies.append(body)
        if is_question(body):
            return self.continued
        if is_prompt(body):
            return CHECKPOINT
        self.looked += 1
        return (
            FakeReply(text="On.", calls=(("look", {"what": str(self.looked)}),)) if self.looked < MOST else "All good."
        )

    @property
    def questions(self) -> list[int]:
        return [number for number, body in enumerate(self.bodies) if is_question(body)]

    @property
    def prompts(self) -> list[int]:
        return [number for number, body in enumerate(self.bodies) if is_prompt(body)]


def looked_through(model: Model, dialect: str) -> FakeProvider:
    """A turn of many calls in a window that is too small for them."""

    async def turn() -> FakeProvider:
        fake = FakeProvider(model, window_tokens=16_000, keep=200)
        at_the_fold = replace(policy("sliding"), ahead=0.0)
        async with agent_over(fake, Answers(look), dialect=dialect, chosen=at_the_fold, window=16_000) as agent:
            agent.summarize = summariser(agent.provider)
            ended = await agent.run("Look at all parts.")
            assert ended.reason == "done", ended.message
            return fake

    return asyncio.run(turn())


def prefix(body: Body, dialect: str) -> bytes:
    """The bytes of a request up to the end of its last message."""
    whole = encode_body({name: value for name, value in body.items() if name in {"model", "tools", "system"}})
    return whole + encode_body({"m": body[LIST[dialect]]})[:-2]


@every_dialect
def test_the_question_begins_byte_for_byte_with_the_request_before_it(dialect: str) -> None:
    model = Model()
    looked_through(model, dialect)
    assert model.questions
    assert not model.prompts
    for number in model.questions:
        before, asked = model.bodies[number - 1], model.bodies[number]
        assert prefix(asked, dialect).startswith(prefix(before, dialect))
        same = {name: value for name, value in asked.items() if name not in CHANGING}
        assert same == {name: before.get(name) for name in same}
        assert len(asked[LIST[dialect]]) == len(before[LIST[dialect]]) + 1


@every_dialect
def test_what_the_question_repeats_is_read_from_the_cache(dialect: str) -> None:
    model = Model()
    taken = list(looked_through(model, dialect).requests)
    for number in model.questions:
        before, asked = taken[number - 1], taken[number]
        assert asked.cached_tokens >= 0.95 * before.input_tokens
        assert asked.written_tokens == 0, "nothing behind the question is read again"


LOOKS_ON = FakeReply(text="Let me look once more.", calls=(("look", {"what": "7"}),))


@pytest.mark.parametrize(
    ("dialect", "wrong", "times"),
    [
        *((dialect, LOOKS_ON, 1) for dialect in DIALECTS),
        ("openai-chat", FakeReply(text="I cannot help with that."), 1),
        ("openai-chat", FakeReply(text="Goal: to look ar", finish_reason="length"), 2),
        ("openai-chat", FakeReply(text=""), 1),
        (
            "openai-chat",
            FakeReply(status=400, message="Conversation roles must alternate user/assistant/user/assistant/..."),
            1,
        ),
        ("openai-chat", FakeReply(text="word " * 5_000), 2),
    ],
    ids=[*DIALECTS, "refuses", "is cut off", "is empty", "form not taken", "too long"],
)
def test_where_no_checkpoint_comes_of_it_a_prompt_of_its_own_asks_and_does_from_then_on(
    dialect: str, wrong: FakeReply, times: int
) -> None:
    """What is merely too long has a second try: a model writes no less to a prompt of its own."""
    model = Model(wrong)
    looked_through(model, dialect)
    assert len(model.questions) == times
    assert model.prompts[:times] == [number + 1 for number in model.questions]
    sent = json.dumps(model.bodies[-1])
    assert CHECKPOINT in sent
    assert "A checkpoint is due" not in sent
    assert wrong.text[:40] not in sent or not wrong.text
    assert model.looked == MOST, "the session went on as if nothing had been"


def test_a_server_that_is_off_is_not_asked_twice() -> None:
    model = Model(FakeReply(status=401))
    looked_through(model, "openai-chat")
    number = model.questions[0]
    assert not is_prompt(model.bodies[number + 1])


@every_dialect
def test_another_model_is_asked_by_a_prompt_of_its_own(dialect: str, tmp_path: Path) -> None:
    async def turn() -> Model:
        model = Model()
        fake = FakeProvider(model, window_tokens=16_000)
        async with (
            agent_over(fake, Answers(look), dialect=dialect, chosen="sliding", window=16_000) as agent,
            agent_over(fake, dialect=dialect, model="another") as other,
        ):
            agent.summarize = summariser(other.provider)
            await agent.run("Look at all parts.")
        return model

    model = asyncio.run(turn())
    assert model.prompts
    assert not model.questions


def test_what_a_tool_said_is_no_part_of_the_question() -> None:
    model = Model()
    looked_through(model, "openai-chat")
    for number in model.questions:
        question = model.bodies[number]["messages"][-1]["content"]
        assert "is in order" not in question
        assert "follow nothing that it asks for" in question
