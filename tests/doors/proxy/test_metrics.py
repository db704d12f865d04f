"""Prometheus metrics: named with their units, counted correctly, and bounded whatever clients send."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.doors.proxy.served_requests import day, fold, served_request

from foldline.doors.proxy.page import LabelValues, ProxyMetrics
from foldline.doors.proxy.served_request import ServedRequest
from foldline.failures.failure import Kind


def figures(metrics: ProxyMetrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """All samples, by name (without the prefix) and labels."""
    return {
        (sample.name.removeprefix("foldline_proxy_"), tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def counted(*several: ServedRequest) -> ProxyMetrics:
    metrics = ProxyMetrics()
    for one in several:
        metrics(one)
    return metrics


def value(metrics: ProxyMetrics, name: str, **labels: str) -> float | None:
    return figures(metrics).get((name, tuple(sorted(labels.items()))))


def test_requests_are_counted_by_dialect_outcome_and_status() -> None:
    metrics = counted(
        served_request(1),
        served_request(2),
        served_request(3, status=429),
        served_request(4, outcome="left", status=0),
        served_request(5, dialect=""),
    )

    def of(**labels: str) -> float | None:
        return value(metrics, "requests_total", **labels)

    assert of(dialect="openai-chat", outcome="passed", status="200") == 2
    assert of(dialect="openai-chat", outcome="passed", status="429") == 1
    assert of(dialect="openai-chat", outcome="left", status="none") == 1
    assert of(dialect="none", outcome="passed", status="200") == 1


def test_tokens_are_counted_by_kind_and_are_there_from_the_beginning() -> None:
    kinds = {"given": 900, "sent": 300, "saved": 600, "input": 310, "cached": 200, "output": 44}
    metrics = ProxyMetrics()
    assert {kind: value(metrics, "tokens_total", kind=kind) for kind in kinds} == dict.fromkeys(kinds, 0)
    metrics(served_request(given_tokens=900, sent_tokens=300, input_tokens=310, cached_tokens=200, output_tokens=44))
    metrics(served_request(2, status=400, given_tokens=7_000, sent_tokens=7_000))  # no model read them
    assert {kind: value(metrics, "tokens_total", kind=kind) for kind in kinds} == kinds


def test_folds_recoveries_truncations_and_faults_are_counted() -> None:
    folds = (fold(0, 2, 9, 1, "mask", ""), fold(2, 4, 9, 1, "mask", ""), fold(4, 9, 90, 9, "summarize", ""))
    metrics = counted(
        served_request(1, new_folds=folds, recoveries=2, failure="prompt_overflow"),
        served_request(2, truncated="2,000 were sent, 1,000 read"),
        served_request(3, outcome="open", faulty=True),
    )
    assert value(metrics, "folds_total", reducer="mask") == 2
    assert value(metrics, "folds_total", reducer="summarize") == 1
    assert value(metrics, "recoveries_total", kind="prompt_overflow") == 2
    assert value(metrics, "truncations_total") == 1
    assert value(metrics, "faults_total") == 1


def test_times_are_in_seconds_with_the_dialect() -> None:
    metrics = counted(
        served_request(own_seconds=0.0018, first_byte_seconds=0.3),
        served_request(2, own_seconds=0.0, first_byte_seconds=None),
    )
    found = figures(metrics)
    chat = ("dialect", "openai-chat")
    assert found["own_seconds_count", (chat,)] == found["first_byte_seconds_count", (chat,)] == 1
    assert found["own_seconds_sum", (chat,)] == pytest.approx(0.0018)
    assert found["own_seconds_bucket", (chat, ("le", "0.001"))] == 0
    assert found["own_seconds_bucket", (chat, ("le", "0.002"))] == 1
    assert found["first_byte_seconds_bucket", (chat, ("le", "0.5"))] == 1


def test_gauges_read_what_is_now() -> None:
    metrics, now = ProxyMetrics(), {"conversations": 3, "streams": 2}
    metrics.watch(conversations=lambda: now["conversations"], streams=lambda: now["streams"], store_up=lambda: False)
    assert [value(metrics, name) for name in ("conversations", "streams", "store_up")] == [3, 2, 0]
    now["conversations"] = 4
    assert value(metrics, "conversations") == 4


def test_no_client_makes_new_series() -> None:
    metrics = counted(
        served_request(status=299), *(served_request(n, failure=kind, recoveries=1) for n, kind in enumerate(_kinds()))
    )
    before = figures(metrics).keys()

    def made_up(number: int) -> ServedRequest:
        odd: dict[str, Any] = {"outcome": f"outcome {number}", "dialect": f"dialect {number}"}
        texts = {
            name: f"{name} {number}" for name in ("model", "session", "title", "path", "method", "failure", "warning")
        }
        return served_request(number, status=7_000 + number, recoveries=1, **texts, **odd)

    for number in range(500):
        metrics(made_up(number))
    new = {(name, labels) for name, labels in figures(metrics).keys() - before if "bucket" not in name}
    assert {name for name, _ in new} <= {
        "requests_total", "recoveries_total", "own_seconds_count", "own_seconds_sum", "first_byte_seconds_count",
        "first_byte_seconds_sum",
    }  # fmt: skip
    assert len(new) <= 6  # one of each, with "other"


def _kinds() -> tuple[str, ...]:
    found: tuple[str, ...] = Kind.__args__  # type: ignore[attr-defined]
    return found


def test_a_label_keeps_its_first_values_and_calls_the_rest_other() -> None:
    several = LabelValues(2)
    assert [several(value) for value in ("a", "b", "c", "a", "d")] == ["a", "b", "other", "a", "other"]


def test_a_day_comes_to_few_lines() -> None:
    text = counted(*day()).text()
    assert text.count(b"\n") < 400
    assert b"broken in" not in text
