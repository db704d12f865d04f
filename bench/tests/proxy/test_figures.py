from __future__ import annotations

import json
from collections import Counter

import pytest

from foldline_bench.proxy.figures import RoundReport, figures, table
from foldline_bench.proxy.load import LoadReport


def seen(first_ms: list[float], *, seconds: float = 10.0, **given: int) -> LoadReport:
    count = len(first_ms)
    return LoadReport(
        requests=count,
        seconds=seconds,
        answered=given.get("answered", count),
        lasted_seconds=seconds + 5,
        sent_bytes=1_000 * count,
        late=given.get("late", 0),
        first_byte_seconds=[one / 1e3 for one in first_ms],
        over_seconds=[2 * one / 1e3 for one in first_ms],
    )


def test_what_is_added_is_the_difference_of_percentiles_over_all_rounds() -> None:
    measured = [
        RoundReport("direct", "busy", 0, seen([1.0, 1.0])),
        RoundReport("foldline", "busy", 0, seen([3.0, 3.0])),
        RoundReport("direct", "busy", 1, seen([2.0, 2.0, 2.0])),
        RoundReport("foldline", "busy", 1, seen([4.0, 4.0, 9.0])),
    ]
    direct, ours = figures(measured)
    assert direct.added_ms is None
    assert direct.first_byte_ms == pytest.approx({"p50": 2.0, "p95": 2.0, "p99": 2.0})
    assert ours.added_ms == pytest.approx({"p50": 2.0, "p95": 7.0, "p99": 7.0})
    assert ours.over_ms["p50"] == pytest.approx(8.0)


def test_the_rate_is_the_median_of_the_rounds_and_every_round_is_told() -> None:
    rounds = [RoundReport("direct", "saturated", n, seen([1.0] * count)) for n, count in enumerate((10, 50, 20))]
    [row] = figures(rounds)
    assert row.rates == (1.0, 5.0, 2.0)
    assert row.rate == 2.0
    assert row.requests == 80
    assert row.body_bytes == 1_000


def test_loads_are_never_compared_with_each_other() -> None:
    measured = [RoundReport("direct", "busy", 0, seen([1.0])), RoundReport("foldline", "saturated", 0, seen([5.0]))]
    assert [row.added_ms for row in figures(measured)] == [None, None]


def test_processor_time_is_per_answer_and_warming_up_counts_on_both_sides() -> None:
    used = {"clients": 3.0, "upstream": 1.5, "proxy": 6.0}
    one = RoundReport("foldline", "busy", 0, seen([1.0] * 4, answered=6), used, {"proxy": 50 * 2**20, "clients": 7})
    [row] = figures([one, one])
    assert row.cpu_ms == pytest.approx(1_000.0)
    assert row.cores == pytest.approx({"clients": 0.2, "upstream": 0.1, "proxy": 0.4})
    assert row.peak_rss_mib == 50


def test_faults_and_late_requests_are_told_and_a_way_that_answered_nothing_has_dashes() -> None:
    lost = seen([])
    lost.faults = Counter({"status 500": 3})
    [direct, row] = figures(
        [RoundReport("direct", "busy", 0, seen([1.0], late=2)), RoundReport("litellm", "busy", 0, lost)]
    )
    assert (direct.late, row.faults, row.added_ms, row.rate, row.cpu_ms) == (2, {"status 500": 3}, None, 0.0, None)
    assert json.loads(json.dumps(row.as_json()))["faults"] == {"status 500": 3}
    printed = table([direct, row])
    assert "faults of litellm: {'status 500': 3}" in printed
    assert any(line.startswith("litellm") and "–" in line for line in printed.splitlines())
