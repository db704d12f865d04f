"""Old results described by a model: the results that a mask would take, with a bounded question about each."""

from __future__ import annotations

import pytest
from tests.reducers.views import LINE, asks_of, call, commit_all, contents, folds_of, result, user, view_of

from foldline.errors import SummaryError
from foldline.reducers.describe import Describe
from foldline.reducers.mask import Mask, viewed
from foldline.view.transcript import Fold

MASK = Mask(keep_first=0, keep_last=1, placeholder=viewed)
SESSION = [
    user("read them"),
    *(m for n in range(3) for m in (call(f"c{n}", arguments=f'{{"n": {n}}}'), result(f"c{n}", LINE * 60))),
    call("c3"),
    result("c3", "ok"),
    call("c4"),
    result("c4", LINE * 60),
]


def test_it_asks_about_each_result_that_the_mask_would_take_and_that_is_large_enough() -> None:
    view = view_of(SESSION)
    assert [(ask.start, ask.stop) for ask in asks_of(Describe(MASK), view)] == [(2, 3), (4, 5), (6, 7)]
    assert asks_of(Describe(MASK, least_tokens=10**6), view) == []


def test_the_question_holds_the_call_and_the_result_and_no_more_than_it_may() -> None:
    ask, *_ = asks_of(Describe(MASK, input_chars=400), view_of(SESSION))
    text = ask.prompt[1]["content"]
    assert text.startswith('call: read {"n": 0}\n<<<result\n')
    body = text.partition("<<<result\n")[2].removesuffix("\nresult>>>")
    assert 300 < len(body) <= 400


def test_what_was_described_is_not_masked_or_described_again() -> None:
    view = view_of(SESSION)
    made = [ask.finish("It has\nlines. ") for ask in asks_of(Describe(MASK), view)]
    commit_all(view, [fold for fold in made if isinstance(fold, Fold)])
    assert contents(view.wires()[0])[2:7:2] == ["[Previously viewed: It has lines.]"] * 3
    assert asks_of(Describe(MASK), view) == []
    assert folds_of(MASK, view) == []


@pytest.mark.parametrize("answer", ["", " \n", "I'm sorry, I can't.", LINE * 61])
def test_an_answer_that_says_nothing_or_too_much_is_rejected(answer: str) -> None:
    ask, *_ = asks_of(Describe(MASK), view_of(SESSION))
    with pytest.raises(SummaryError):
        ask.finish(answer)
