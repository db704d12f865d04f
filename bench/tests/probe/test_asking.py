from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.serving import serve

from foldline.codecs import DIALECTS
from foldline.errors import ProviderError
from foldline.providers.base import Retrying
from foldline.providers.endpoint import Endpoint
from foldline.providers.http import provider_for
from foldline.testing import FakeProvider, FakeReply
from foldline.tokens import ESTIMATE
from foldline_bench.probe.asking import INSTRUCTIONS, ask, chosen_letter, question_request
from foldline_bench.probe.questions import Question
from foldline_bench.probe.values import GivenAnswer
from foldline_bench.probe.views import NOTHING, SessionText

QUESTION = Question("s", "next", "call", 4, 0, "Which?", ("open(a)", "open(b)", "close(a)", "read(c)"), 1, "open(b)")
VIEW = SessionText("[user]\nOpen b.", 8)


def answer(
    script: Any, dialect: str = "openai-chat", view: SessionText = VIEW
) -> tuple[GivenAnswer, FakeProvider, list[Retrying]]:
    fake, waits = FakeProvider(script), list[Retrying]()

    async def without_pause(_seconds: float) -> None:
        return

    async def run(url: str) -> GivenAnswer:
        endpoint = Endpoint(name="fake", dialect=dialect, base_url=url, model="m")
        provider = provider_for(endpoint, sleep=without_pause)
        try:
            return await ask(provider, QUESTION, view, max_output_tokens=50, counter=ESTIMATE, on_retry=waits.append)
        finally:
            await provider.aclose()

    with serve(fake) as served:
        return asyncio.run(run(served.url)), fake, waits


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_question_is_asked_in_every_dialect(dialect: str) -> None:
    given, fake, _ = answer("B", dialect)
    assert (given["outcome"], given["letter"], given["question"]) == ("right", "B", "s/4/next")
    assert given["input_tokens"] == fake.input_tokens
    assert given["output_tokens"] == fake.output_tokens
    assert fake.refusals == {}
    sent = str(fake.requests[0].body)
    assert "Open b." in sent
    assert "D) read(c)" in sent
    assert INSTRUCTIONS[:40] in sent


def test_the_question_alone_is_sent_once_so_that_the_view_can_be_cached() -> None:
    request = question_request("anthropic", QUESTION, VIEW, max_output_tokens=50, counter=ESTIMATE)
    assert (request.once, len(request.messages)) == (1, 3)
    assert "Open b." in str(request.messages[0])


def test_without_a_view_the_model_is_told_to_guess() -> None:
    _, fake, _ = answer("B", view=NOTHING)
    assert fake.requests[0].body["messages"][1]["content"] == "The record of the session is not shown. Guess."


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        ("A", "wrong"),
        ("?", "unknown"),
        ("I would rather not say.", "unreadable"),
        (FakeReply("I cannot help with that.", finish_reason="refusal"), "refused"),
        (FakeReply("Let me think about", finish_reason="length"), "cut"),
        (FakeReply("B", finish_reason="length"), "right"),
    ],
)
def test_an_answer_that_is_not_right_says_how(reply: Any, outcome: str) -> None:
    assert answer(reply)[0]["outcome"] == outcome


def test_a_busy_server_is_waited_for_and_asked_again() -> None:
    busy = FakeReply(status=429, retry_after_seconds=7)
    given, fake, waits = answer([busy, busy, "B"])
    assert given["outcome"] == "right"
    assert [wait.wait_seconds >= 7 for wait in waits] == [True, True]
    assert fake.faults == {"429": 2}


def test_an_error_of_the_provider_is_raised() -> None:
    with pytest.raises(ProviderError, match="no such key"):
        answer(FakeReply(status=401, message="no such key"))


@pytest.mark.parametrize(
    ("reply", "letter"),
    [
        ("B", "B"),
        (" **B** ", "B"),
        ("(C).", "C"),
        ("?", "?"),
        ("The answer is C.", "C"),
        ("A looks right at first. Answer: **D**", "D"),
        ("Option A is too old, so the answer is B", "B"),
        ("Answer: ?", "?"),
        ("B) open(b)", "B"),
        ("B: it was asked for", "B"),
        ("It was open(b), I think.", "B"),
        ("A user wants b, or so I think", ""),
        ("A) open(a)\nB) open(b)", ""),
        ("E", ""),
        ("", ""),
        ("The answer is Elephant", ""),
    ],
)
def test_a_letter_is_read_however_it_is_said_and_never_guessed(reply: str, letter: str) -> None:
    assert chosen_letter(reply, QUESTION.options) == letter
