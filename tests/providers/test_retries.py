"""Which failures are tried again, how often, and after what pause."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from foldline.failures.classification import classify
from foldline.failures.failure import Failure, Kind
from foldline.providers.retries import FAULT_RETRIES, RATE_RETRIES, pause, requested_pause, retries

NOW = datetime(2026, 11, 28, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    "kind",
    [
        "prompt_overflow",
        "output_overflow",
        "bytes_overflow",
        "image",
        "malformed",
        "auth",
        "quota",
        "request_too_large_for_rate",
        "ambiguous",
    ],
)
def test_what_a_repetition_cannot_help_is_not_repeated(kind: Kind) -> None:
    assert retries(Failure(kind, status=500)) == 0


@pytest.mark.parametrize("status", [408, 409, 500, 502, 503, 504, 520])
def test_faults_of_a_server_are_tried_again(status: int) -> None:
    assert retries(Failure("other", status=status)) == FAULT_RETRIES


@pytest.mark.parametrize("status", [400, 404, 405, 422, 301, 501])
def test_a_request_that_is_wrong_stays_wrong(status: int) -> None:
    assert retries(Failure("other", status=status)) == 0


@pytest.mark.parametrize("status", [429, 529])
def test_a_busy_server_is_waited_for(status: int) -> None:
    assert retries(classify(status, "")) == RATE_RETRIES


def test_an_error_inside_a_stream_is_a_fault_unless_it_names_the_request() -> None:
    assert retries(Failure("other", status=200, code="server_error")) == FAULT_RETRIES
    assert retries(Failure("other", status=200, code="invalid_request_error")) == 0


def test_the_server_has_the_last_word() -> None:
    assert retries(Failure("rate", status=429), advice="false") == 0
    assert retries(Failure("other", status=418), advice="true") == FAULT_RETRIES
    assert retries(Failure("auth", status=401), advice="true") == 0


def test_pauses_double_and_last_over_a_minute_for_a_rate_limit() -> None:
    pauses = [pause(number, Failure("rate"), lambda: 0.0) for number in range(1, RATE_RETRIES + 1)]
    assert pauses == [0.5, 1, 2, 4, 8, 16, 32]


def test_chance_spreads_the_pauses() -> None:
    assert pause(3, Failure("rate"), lambda: 1.0) == 1.5


def test_the_pause_that_a_server_asks_for_is_never_cut_short() -> None:
    assert pause(1, Failure("rate", retry_after_seconds=20), lambda: 0.0) == 20
    assert pause(1, Failure("rate", retry_after_seconds=20), lambda: 1.0) == 20.5
    assert pause(1, Failure("rate", retry_after_seconds=61), lambda: 0.0) is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "9", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "Sat, 28 Nov 2026 12:00:30 GMT"}, 30),
        ({"retry-after": "Sat, 28 Nov 2026 12:00:30"}, 30),
        ({"retry-after": "Sat, 28 Nov 2026 11:00:00 GMT"}, 0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
    ],
)
def test_headers_say_how_long_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert requested_pause(headers, NOW) == seconds
