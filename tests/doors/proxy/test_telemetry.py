"""Spans and metrics by OpenTelemetry's conventions: right names, the request's own times, and no content."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as known
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from opentelemetry.semconv.attributes import error_attributes, http_attributes, server_attributes
from opentelemetry.trace import SpanKind, StatusCode
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from tests.doors.proxy.served_requests import day, fold, served_request
from tests.serving import serve

from foldline.doors.proxy.served_request import ServedRequest
from foldline.doors.proxy.telemetry import Telemetry
from foldline.errors import InvalidInput
from foldline.view.transcript import Usage

UPSTREAM = "https://api.openai.com/v1"


@dataclass(slots=True)
class Heard:
    """Telemetry with exporters in memory."""

    upstream: str = UPSTREAM
    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    reader: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)

    def tell(self, *several: ServedRequest) -> None:
        tracers = TracerProvider(shutdown_on_exit=False)
        tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        meters = MeterProvider([self.reader], shutdown_on_exit=False)
        telemetry = Telemetry(self.upstream, tracer_provider=tracers, meter_provider=meters)
        for one in several:
            telemetry(one)

    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def points(self, name: str) -> list[Any]:
        """The data points of a metric."""
        data = json.loads(self.reader.get_metrics_data().to_json())  # type: ignore[union-attr]
        metrics = [m for r in data["resource_metrics"] for s in r["scope_metrics"] for m in s["metrics"]]
        return [point for metric in metrics if metric["name"] == name for point in metric["data"]["data_points"]]


def heard(*several: ServedRequest, upstream: str = UPSTREAM) -> Heard:
    found = Heard(upstream)
    found.tell(*several)
    return found


def attributes(*several: ServedRequest, upstream: str = UPSTREAM) -> dict[str, Any]:
    """Those of the only span."""
    (span,) = heard(*several, upstream=upstream).spans()
    return dict(span.attributes or {})


# --- spans -----------------------------------------------------------------------------------------------------------


def test_a_request_is_a_client_span_with_its_own_times() -> None:
    at = datetime(2026, 11, 28, 9, 15, 2, 123_457, tzinfo=UTC)
    (span,) = heard(served_request(at=at, seconds=2.5)).spans()
    assert (span.name, span.kind, span.parent) == ("chat gpt-5", SpanKind.CLIENT, None)
    assert span.start_time == 1_795_857_302_123_457_000
    assert span.end_time == span.start_time + 2_500_000_000
    assert span.status.status_code == StatusCode.UNSET


def test_a_span_stands_in_the_trace_that_its_client_named() -> None:
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    (span,) = heard(served_request(traceparent=f"00-{trace}-{parent}-01")).spans()
    assert span.parent is not None
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (trace, parent)
    (alone,) = heard(served_request(traceparent="nonsense")).spans()
    assert alone.parent is None


def test_names_are_those_of_the_conventions() -> None:
    found = attributes(
        served_request(
            input_tokens=700, cached_tokens=600, output_tokens=44, given_tokens=900, sent_tokens=650, folds=2
        )
    )
    assert found[known.GEN_AI_OPERATION_NAME] == "chat"
    assert found[known.GEN_AI_PROVIDER_NAME] == "openai"
    assert found[known.GEN_AI_REQUEST_MODEL] == "gpt-5"
    assert found[known.GEN_AI_REQUEST_STREAM] is True
    assert found[known.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK] == 0.34
    assert found[known.GEN_AI_CONVERSATION_ID] == "4f1c9a20b7d3e865"
    assert found[known.GEN_AI_USAGE_INPUT_TOKENS] == 700
    assert found[known.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS] == 600
    assert found[known.GEN_AI_USAGE_OUTPUT_TOKENS] == 44
    assert found[server_attributes.SERVER_ADDRESS] == "api.openai.com"
    assert found[server_attributes.SERVER_PORT] == 443
    assert found[http_attributes.HTTP_RESPONSE_STATUS_CODE] == 200
    assert error_attributes.ERROR_TYPE not in found
    ours = {name: value for name, value in found.items() if name.startswith("foldline.tokens.")}
    assert ours == {"foldline.tokens.given": 900, "foldline.tokens.sent": 650, "foldline.tokens.saved": 250}
    assert (found["foldline.folds"], found["foldline.outcome"]) == (2, "passed")


def test_what_is_not_known_is_left_out() -> None:
    found = attributes(
        served_request(model="", session="", streamed=False, status=0, outcome="left"), upstream="http://[::1]:8080"
    )
    assert found["server.address"] == "::1"
    assert found["server.port"] == 8080
    assert {name for name in found if name.startswith(("gen_ai.", "http."))} == {
        "gen_ai.operation.name",
        "gen_ai.provider.name",
    }


@pytest.mark.parametrize(
    ("upstream", "dialect", "provider"),
    [
        ("https://api.anthropic.com", "anthropic", "anthropic"),
        ("https://mine.openai.azure.com/openai/v1", "openai-chat", "azure.ai.openai"),
        ("https://bedrock-runtime.eu-west-1.amazonaws.com", "anthropic", "aws.bedrock"),
        ("https://api.x.ai/v1", "openai-chat", "x_ai"),
        ("https://notx.ai/v1", "openai-chat", "openai"),
        ("http://127.0.0.1:8080", "anthropic", "anthropic"),
        ("http://127.0.0.1:8080", "openai-responses", "openai"),
    ],
)
def test_the_provider_is_told_by_the_host_or_else_by_the_dialect(upstream: str, dialect: str, provider: str) -> None:
    assert attributes(served_request(dialect=dialect), upstream=upstream)["gen_ai.provider.name"] == provider
    assert provider in {one.value for one in known.GenAiProviderNameValues}


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"status": 429, "failure": "rate"}, "rate"),
        ({"status": 503, "failure": "other"}, "503"),
        ({"status": 418}, "418"),
        ({"status": 400, "outcome": "refused"}, "refused"),
        ({"status": 200, "outcome": "cut"}, "cut"),
    ],
)
def test_errors_have_a_type_of_few_values(given: dict[str, Any], error: str) -> None:
    found = heard(served_request(**given))
    (span,) = found.spans()
    assert (span.attributes or {})["error.type"] == error
    assert span.status.status_code == StatusCode.ERROR
    (point,) = found.points("gen_ai.client.operation.duration")
    assert point["attributes"]["error.type"] == error


def test_a_recovered_request_and_one_whose_client_left_are_no_errors() -> None:
    for one in (served_request(recoveries=1, failure="prompt_overflow"), served_request(outcome="left")):
        assert "error.type" not in attributes(one)


def test_counting_tokens_is_an_operation_of_its_own_and_other_paths_are_none() -> None:
    counting = served_request(dialect="anthropic", path="/v1/messages/count_tokens", input_tokens=7)
    found = heard(counting, served_request(2, dialect="", path="/v1/models"))
    (span,) = found.spans()
    assert span.name == "count_tokens gpt-5"
    assert found.points("gen_ai.client.token.usage") == []


def test_folds_are_events_of_the_span() -> None:
    one = served_request(new_folds=(fold(2, 9, 41_000, 1_000, "mask", "why"),), own_seconds=0.5)
    (span,) = heard(one).spans()
    (event,) = span.events
    assert event.name == "foldline.fold"
    assert dict(event.attributes or {}) == {
        "foldline.fold.reducer": "mask",
        "foldline.fold.before_tokens": 41_000,
        "foldline.fold.tokens": 1_000,
    }
    assert event.timestamp == (span.start_time or 0) + 500_000_000


def test_nothing_that_was_said_is_told() -> None:
    secret = "Agent Orange meets at noon"
    one = served_request(
        title=secret, warning=secret, truncated=secret, new_folds=(fold(0, 2, 9, 1, "mask", secret),), path=f"/{secret}"
    )
    found = heard(one)
    assert secret not in "".join(span.to_json() for span in found.spans())
    data = found.reader.get_metrics_data()
    assert data is not None
    assert secret not in data.to_json()


# --- metrics ---------------------------------------------------------------------------------------------------------


def test_metrics_are_those_of_the_conventions() -> None:
    found = heard(
        served_request(
            1, input_tokens=700, output_tokens=44, seconds=2.5, outcome="folded", given_tokens=900, sent_tokens=300
        )
    )
    usage = {p["attributes"]["gen_ai.token.type"]: p for p in found.points(gen_ai_metrics.GEN_AI_CLIENT_TOKEN_USAGE)}
    assert {kind: point["sum"] for kind, point in usage.items()} == {"input": 700, "output": 44}
    assert usage["input"]["explicit_bounds"][:3] == [1, 4, 16]
    assert usage["input"]["explicit_bounds"][-1] == 67_108_864
    assert usage["input"]["attributes"] == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5",
        "gen_ai.token.type": "input",
        "server.address": "api.openai.com",
        "server.port": 443,
    }
    (duration,) = found.points(gen_ai_metrics.GEN_AI_CLIENT_OPERATION_DURATION)
    assert duration["sum"] == 2.5
    assert (duration["explicit_bounds"][0], duration["explicit_bounds"][-1]) == (0.01, 81.92)
    assert [point["value"] for point in found.points("foldline.tokens.saved")] == [600]


def test_calls_for_summaries_are_measured_as_calls_of_their_model_and_told_apart() -> None:
    calls = (Usage(input_tokens=5_000, output_tokens=300), Usage(input_tokens=7_000, output_tokens=200))
    one = served_request(1, input_tokens=700, output_tokens=44, status=500, summaries=calls, summary_model="gpt-5-mini")
    found = heard(one, served_request(2, input_tokens=10, output_tokens=1, summaries=calls[:1]))
    points = found.points(gen_ai_metrics.GEN_AI_CLIENT_TOKEN_USAGE)
    summed = {
        (a["gen_ai.request.model"], a["gen_ai.token.type"], a.get("foldline.purpose")): (point["count"], point["sum"])
        for point in points
        for a in (point["attributes"],)
    }
    assert summed == {
        ("gpt-5", "input", None): (2, 710),
        ("gpt-5", "output", None): (2, 45),
        ("gpt-5-mini", "input", "summary"): (2, 12_000),
        ("gpt-5-mini", "output", "summary"): (2, 500),
        ("gpt-5", "input", "summary"): (1, 5_000),
        ("gpt-5", "output", "summary"): (1, 300),
    }
    assert not any("error.type" in point["attributes"] for point in points)
    first = dict(found.spans()[0].attributes or {})
    assert (first["foldline.summaries"], first["foldline.summaries.tokens"]) == (2, 12_500)


def test_no_client_makes_endless_series() -> None:
    found = heard(
        *(served_request(n, model=f"model {n}", session=f"s{n}", input_tokens=n, failure=f"f{n}") for n in range(500))
    )
    points = found.points("gen_ai.client.operation.duration")
    assert len(points) == 201
    assert "_OTHER" in {point["attributes"]["gen_ai.request.model"] for point in points}


# --- over the wire ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Collector:
    """An OTLP/HTTP receiver: what has come, and with which headers."""

    traces: list[ExportTraceServiceRequest] = field(default_factory=list)
    metrics: list[ExportMetricsServiceRequest] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        body = await request.body()
        if request.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.headers.append(dict(request.headers))
        if scope["path"] == "/v1/traces":
            self.traces.append(ExportTraceServiceRequest.FromString(body))
        else:
            self.metrics.append(ExportMetricsServiceRequest.FromString(body))
        await Response(b"", media_type="application/x-protobuf")(scope, receive, send)


@contextmanager
def environment(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Iterator[None]:
    with monkeypatch.context() as patched:
        for name, value in variables.items():
            patched.setenv(name, value)
        yield


def test_spans_and_metrics_reach_a_collector_as_the_standard_variables_say(monkeypatch: pytest.MonkeyPatch) -> None:
    collector = Collector()
    with (
        serve(collector) as served,
        environment(
            monkeypatch,
            OTEL_EXPORTER_OTLP_ENDPOINT=served.url,
            OTEL_EXPORTER_OTLP_HEADERS="x-tenant=blue",
            OTEL_EXPORTER_OTLP_COMPRESSION="gzip",
            OTEL_RESOURCE_ATTRIBUTES="deployment.environment.name=test",
        ),
    ):
        telemetry = Telemetry(UPSTREAM)
        for one in day():
            telemetry(one)
        telemetry.close()
    spans = [s for t in collector.traces for r in t.resource_spans for c in r.scope_spans for s in c.spans]
    dialects = [one for one in day() if one.dialect]
    assert len(spans) == len(dialects)
    assert {span.name for span in spans} >= {"chat gpt-5", "chat claude-sonnet-4-5", "chat qwen3-coder-30b"}
    assert sum(len(span.events) for span in spans) == sum(len(one.new_folds) for one in dialects)
    resource = {a.key: a.value.string_value for a in collector.traces[0].resource_spans[0].resource.attributes}
    assert resource["service.name"] == "foldline-proxy"
    assert resource["deployment.environment.name"] == "test"
    names = {m.name for t in collector.metrics for r in t.resource_metrics for c in r.scope_metrics for m in c.metrics}
    assert names == {"gen_ai.client.token.usage", "gen_ai.client.operation.duration", "foldline.tokens.saved"}
    assert {headers["x-tenant"] for headers in collector.headers} == {"blue"}
    sent = b"".join(one.SerializeToString() for one in collector.traces)
    sent += b"".join(one.SerializeToString() for one in collector.metrics)
    assert b"importer" not in sent  # which stands in the title of most


def test_the_service_has_the_name_that_the_variables_give_it(monkeypatch: pytest.MonkeyPatch) -> None:
    collector = Collector()
    with (
        serve(collector) as served,
        environment(
            monkeypatch,
            OTEL_EXPORTER_OTLP_ENDPOINT=served.url,
            OTEL_SERVICE_NAME="gateway",
            OTEL_METRICS_EXPORTER="none",
        ),
    ):
        telemetry = Telemetry(UPSTREAM)
        telemetry(served_request())
        telemetry.close()
    resource = {a.key: a.value.string_value for a in collector.traces[0].resource_spans[0].resource.attributes}
    assert resource["service.name"] == "gateway"
    assert collector.metrics == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_TRACES_EXPORTER", "zipkin"),
        ("OTEL_METRICS_EXPORTER", "prometheus"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
    ],
)
def test_what_there_is_not_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    with environment(monkeypatch, **{name: value}), pytest.raises(InvalidInput) as refused:
        Telemetry(UPSTREAM)
    assert refused.value.place == name
    assert value in str(refused.value)


def test_without_the_extra_it_says_how_to_install_it() -> None:
    code = """
import sys
class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Gone())
from foldline.errors import MissingExtra
from foldline.doors.proxy.telemetry import Telemetry, otlp_providers
for make in (lambda: Telemetry("http://127.0.0.1:1"), otlp_providers):
    try:
        make()
    except MissingExtra as missing:
        print(missing)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["telemetry needs an extra: pip install 'foldline[otel]'"] * 2
