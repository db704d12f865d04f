"""Questions that go on from a session, as laws on random sessions in three dialects, under every policy."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from foldline.catalog.models import CACHE_RULES
from foldline.catalog.prices import request_price
from foldline.engine.context import Context, Request
from foldline.engine.one_shot import check
from foldline.errors import DoesNotFit
from tests.property.depth import dear
from tests.property.sessions import DIALECTS, Wire, legal

RULE = replace(CACHE_RULES["anthropic"], minimum_tokens=1)

policies = st.sampled_from(("sliding", "checkpoint", "cost", "economical"))
"""Those that leave room for a question when they ask it, in windows as small as these."""

windows = st.integers(1_000, 2_400)


@dataclass
class Asks:
    """A summariser that goes on from the session; with `fails` never with success."""

    dialect: str
    fails: bool = False
    model: str = ""
    seen: list[Request] = field(default_factory=list)
    prompts: list[int] = field(default_factory=list)

    def __call__(self, messages: list[dict[str, str]], max_output_tokens: int, /) -> str:
        self.prompts.append(max_output_tokens)
        return "Goal: go on."

    def continued(self, request: Request, /) -> str:
        self.seen.append(request)
        return "" if self.fails else "Goal: go on."


def sent(dialect: str, wires: list[Wire], policy: str, window: int, asks: Any) -> list[tuple[Request, list[Request]]]:
    """The requests that fitted, each with the questions that were put for it."""
    context = Context(dialect=dialect, policy=policy, window=window, max_output_tokens=0, cache_rule=RULE)
    out: list[tuple[Request, list[Request]]] = []
    for number, wire in enumerate(wires):
        context.append(wire)
        if number % 3 == 2 or number == len(wires) - 1:
            before = len(getattr(asks, "seen", ()))
            try:
                request = context.prepare(asks)
            except DoesNotFit:
                continue
            out.append((request, list(getattr(asks, "seen", ()))[before:]))
    return out


@dear
@given(data=st.data(), dialect=st.sampled_from(DIALECTS), policy=policies, window=windows)
def test_a_question_is_what_was_sent_last_and_valid_and_fits_and_is_read_from_the_cache(
    data: st.DataObject, dialect: str, policy: str, window: int
) -> None:
    wires = data.draw(legal(dialect, 20))
    asks = Asks(dialect)
    last: Request | None = None
    for request, questions in sent(dialect, wires, policy, window, asks):
        for question in questions:
            assert last is not None
            known = len(question.messages) - question.once
            assert question.messages[:known] == last.messages
            assert (question.system, question.tools) == (last.system, last.tools)
            assert not check(question.messages, dialect=dialect)
            assert question.tokens + question.max_output_tokens <= window
            assert request_price(RULE, question.tokens, last.tokens) < question.tokens
        last = request


@dear
@given(data=st.data(), dialect=st.sampled_from(DIALECTS), policy=policies, window=windows)
def test_a_question_that_brings_nothing_leaves_every_request_as_prompts_alone_would(
    data: st.DataObject, dialect: str, policy: str, window: int
) -> None:
    wires = data.draw(legal(dialect, 20))
    asks, plain = Asks(dialect, fails=True), Asks(dialect, model="another")
    one = sent(dialect, wires, policy, window, asks)
    other = sent(dialect, wires, policy, window, plain)
    assert [request.messages for request, _ in one] == [request.messages for request, _ in other]
    assert asks.prompts == plain.prompts
    assert len(asks.seen) <= 1
