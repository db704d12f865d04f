"""What a run has saved is the sum of what its proxies report, and nothing is claimed that was not measured."""

from __future__ import annotations

from typing import Any

import pytest
from tests.doors.proxy.served_requests import served_request

from foldline.catalog.models import lookup
from foldline.doors.wrap.figures import RunFigures

MODEL = "claude-sonnet-4-5"


def figures_of(*requests: Any) -> RunFigures:
    figures = RunFigures()
    for one in requests:
        figures(one)
    return figures


def answered(**named: Any) -> Any:
    usual = {"model": MODEL, "status": 200, "given_tokens": 50_000, "sent_tokens": 20_000, "window_tokens": 32_000}
    return served_request(**{**usual, **named})


def test_tokens_and_dollars_are_those_of_the_report() -> None:
    figures = figures_of(answered(input_tokens=21_000, output_tokens=500))
    assert (figures.requests, figures.given_tokens, figures.sent_tokens, figures.too_large) == (1, 50_000, 20_000, 1)
    assert figures.paid_usd == lookup(MODEL).usd(21_000, 0, 500)
    price = lookup(MODEL).input_usd_per_million
    assert price is not None
    assert figures.saved_usd == pytest.approx(30_000 * price / 1e6)
    first, second = figures.lines()
    assert "20,000 tokens in place of 50,000 (60% less)" in first
    assert "in place of $" in first
    assert second == "1 request was larger than the window; none refused"


def test_a_model_without_a_price_has_no_dollars() -> None:
    (first, _) = figures_of(answered(model="my-own")).lines()
    assert "$" not in first
    (first, _) = figures_of(answered(model="my-own"), answered()).lines()
    assert "(1 request without a known price)" in first


def test_what_was_not_answered_saves_nothing() -> None:
    figures = figures_of(answered(status=400, outcome="refused"), answered(status=429))
    assert (figures.requests, figures.saved_usd, figures.refused, figures.failed) == (0, 0.0, 1, 2)
    assert list(figures.lines()) == ["2 requests failed, none was answered"]


def test_a_run_without_a_request_says_so() -> None:
    assert list(RunFigures().lines()) == ["no request for an answer came through the proxy"]


def test_a_run_that_fits_has_one_line() -> None:
    (line,) = figures_of(answered(given_tokens=900, sent_tokens=900)).lines()
    assert "nothing had to be left out" in line
