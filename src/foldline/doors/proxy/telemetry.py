"""Spans and metrics of the proxy's requests, by OpenTelemetry's conventions for generative AI, without any content.

Names and buckets: OpenTelemetry semantic conventions, "Semantic conventions for generative AI systems" (status
Development; spans, metrics), as in opentelemetry-semantic-conventions 0.66b2, read on 28 November 2026. Attributes that
these do not define begin with `foldline.`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from foldline.codecs import dialect_named
from foldline.doors.proxy.served_request import ServedRequest, counts_tokens
from foldline.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider

__all__ = ["Telemetry", "otlp_providers"]

SERVICE_NAME: Final = "foldline-proxy"
"""The default name of the service; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override it."""

CLOSE_SECONDS: Final = 5.0
"""Time to send the rest at the end. The SDK itself would try for more than half a minute."""

_SCOPE: Final = "foldline.proxy"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TOKEN_BUCKETS: Final = tuple(4**power for power in range(14))  # 1 to 67,108,864
_SECOND_BUCKETS: Final = tuple(0.01 * 2**power for power in range(14))  # 0.01 to 81.92

# Well-known values of gen_ai.provider.name, by the ends of host names.
_PROVIDERS: Final[Mapping[str, str]] = {
    "anthropic.com": "anthropic",
    "openai.com": "openai",
    "openai.azure.com": "azure.ai.openai",
    "services.ai.azure.com": "azure.ai.inference",
    "amazonaws.com": "aws.bedrock",
    "deepseek.com": "deepseek",
    "groq.com": "groq",
    "mistral.ai": "mistral_ai",
    "perplexity.ai": "perplexity",
    "x.ai": "x_ai",
    "cohere.com": "cohere",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
}

# A model's name is the client's text. Metrics keep so many names apart, so that no client can create endless series.
_MAX_MODELS: Final = 200

_NAME_CHARS: Final = 200  # backends cut or refuse long attributes

# The purpose of a model call that no client made; the conventions define no attribute for it.
_PURPOSE: Final = "foldline.purpose"


class Telemetry:
    """A listener that exports a span and metrics of each request of a dialect.

    `upstream` is the base URL of the upstream. Without providers, those of `otlp_providers()` are used, and `close`
    shuts them down. Costs about 0.2 ms of processor time a request; OpenTelemetry's own threads do the sending. Raises
    MissingExtra without the extra `otel`, InvalidInput if an OTEL_* variable has an unsupported value.
    """

    def __init__(
        self,
        upstream: str,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        try:
            from opentelemetry import trace
            from opentelemetry.trace import SpanKind, StatusCode
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ModuleNotFoundError:
            raise MissingExtra("otel", "telemetry") from None
        self._own: tuple[TracerProvider, MeterProvider] | None = None
        if tracer_provider is None or meter_provider is None:
            self._own = own_tracers, own_meters = otlp_providers()
            tracer_provider, meter_provider = tracer_provider or own_tracers, meter_provider or own_meters
        self._traces = TraceContextTextMapPropagator()
        self._kind, self._error, self._status_of = SpanKind.CLIENT, StatusCode.ERROR, trace.Status
        self._tracer = tracer_provider.get_tracer(_SCOPE)
        self._server = _server(upstream)
        self._host = str(self._server.get("server.address", ""))
        self._models: set[str] = set()
        meter = meter_provider.get_meter(_SCOPE)
        # Histograms with explicit buckets: the SDK's default buckets end at 10,000, below the tokens of most requests.
        self._usage = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=_TOKEN_BUCKETS,
        )
        self._duration = meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="GenAI operation duration.",
            explicit_bucket_boundaries_advisory=_SECOND_BUCKETS,
        )
        self._saved = meter.create_counter(
            "foldline.tokens.saved", unit="{token}", description="Tokens that were given and not sent on."
        )

    def __call__(self, served: ServedRequest) -> None:
        """Export a request that has ended, unless it only passed through."""
        if not served.dialect:
            return
        operation = "count_tokens" if counts_tokens(served) else "chat"
        common: dict[str, Any] = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": _provider(self._host, served.dialect),
            **self._server,
        }
        if error := _error_type(served):
            common["error.type"] = error
        self._span(served, operation, common)
        self._measure(served, operation, common)

    def close(self) -> None:
        """Send the rest, for at most five seconds: an unreachable collector must not hold up a stop."""
        ending = [Thread(target=provider.shutdown, daemon=True) for provider in self._own or ()]
        for thread in ending:
            thread.start()
        end = monotonic() + CLOSE_SECONDS
        for thread in ending:
            thread.join(max(0.0, end - monotonic()))

    def _span(self, served: ServedRequest, operation: str, common: Mapping[str, Any]) -> None:
        model = served.model[:_NAME_CHARS]
        began = _nanoseconds(served)
        # Made after the fact, with the times of the request: an open span would have to follow it between tasks.
        span = self._tracer.start_span(
            f"{operation} {model}".rstrip(),
            context=self._parent(served),
            kind=self._kind,
            start_time=began,
            attributes={**common, **_request_attributes(served, model), **_foldline_attributes(served)},
        )
        for fold in served.new_folds:  # without the reason, which may quote the messages
            span.add_event(
                "foldline.fold",
                {
                    "foldline.fold.reducer": fold.reducer,
                    "foldline.fold.before_tokens": fold.before_tokens,
                    "foldline.fold.tokens": fold.tokens,
                },
                timestamp=began + int(served.own_seconds * 1e9),
            )
        if "error.type" in common:
            span.set_status(self._status_of(self._error))
        span.end(end_time=began + int(served.seconds * 1e9))

    def _parent(self, served: ServedRequest) -> Any:
        """The trace of the client's own span, if the request names one."""
        return self._traces.extract({"traceparent": served.traceparent}) if served.traceparent else None

    def _measure(self, served: ServedRequest, operation: str, common: Mapping[str, Any]) -> None:
        labels = dict(common)
        if served.model:
            labels["gen_ai.request.model"] = self._model(served.model[:_NAME_CHARS])
        self._duration.record(served.seconds, labels)
        self._measure_summaries(served, common)
        if operation != "chat":
            return
        # By the conventions error.type belongs to the duration, not to the token usage.
        plain = {name: value for name, value in labels.items() if name != "error.type"}
        for kind, tokens in (("input", served.input_tokens), ("output", served.output_tokens)):
            if tokens is not None:
                self._usage.record(tokens, {**plain, "gen_ai.token.type": kind})
        if served.outcome == "folded" and served.saved_tokens and "error.type" not in labels:
            self._saved.add(served.saved_tokens, plain)

    def _measure_summaries(self, served: ServedRequest, common: Mapping[str, Any]) -> None:
        """Record the tokens of each summary call. They are paid for even if the request itself failed."""
        labels = {name: value for name, value in common.items() if name != "error.type"}
        labels |= {"gen_ai.operation.name": "chat", _PURPOSE: "summary"}
        if model := (served.summary_model or served.model)[:_NAME_CHARS]:
            labels["gen_ai.request.model"] = self._model(model)
        for usage in served.summaries:
            for kind, tokens in (("input", usage.input_tokens), ("output", usage.output_tokens)):
                self._usage.record(tokens, {**labels, "gen_ai.token.type": kind})

    def _model(self, model: str) -> str:
        if model not in self._models:
            if len(self._models) >= _MAX_MODELS:
                return "_OTHER"
            self._models.add(model)
        return model


def otlp_providers() -> tuple[TracerProvider, MeterProvider]:
    """Providers that export by OTLP over HTTP, set by the standard variables (OTEL_EXPORTER_OTLP_ENDPOINT, …_HEADERS…).

    OTEL_TRACES_EXPORTER and OTEL_METRICS_EXPORTER may be "otlp" (the default) or "none". Raises MissingExtra without
    the extra `otel`, InvalidInput for another exporter or protocol.
    """
    spans, metrics = _exports("traces"), _exports("metrics")
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError:
        raise MissingExtra("otel", "telemetry") from None
    resource = Resource.create()
    if str(resource.attributes.get("service.name", "unknown_service")).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": SERVICE_NAME}))
    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)  # `close` does that, in bounded time
    if spans:
        tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    readers = [PeriodicExportingMetricReader(OTLPMetricExporter())] if metrics else []
    return tracers, MeterProvider(readers, resource=resource, shutdown_on_exit=False)


def _exports(signal: str) -> bool:
    """Whether a signal is exported. Raises InvalidInput for an unsupported exporter or protocol."""
    name = f"OTEL_{signal.upper()}_EXPORTER"
    exporter = os.environ.get(name, "").strip() or "otlp"
    if exporter not in {"otlp", "none"}:
        raise InvalidInput(f'"otlp" and "none" are there, not {exporter[:80]!r}', place=name)
    for variable in (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        protocol = os.environ.get(variable, "").strip()
        if protocol and exporter == "otlp":
            if protocol != "http/protobuf":
                raise InvalidInput(f'"http/protobuf" is there, not {protocol[:80]!r}', place=variable)
            break  # the variable of the signal takes precedence
    return exporter == "otlp"


def _request_attributes(served: ServedRequest, model: str) -> dict[str, Any]:
    """Attributes that the conventions define; unknown values are left out."""
    attributes = {
        "gen_ai.request.model": model or None,
        "gen_ai.request.stream": served.streamed or None,
        "gen_ai.conversation.id": served.session or None,
        "gen_ai.usage.input_tokens": served.input_tokens,
        "gen_ai.usage.output_tokens": served.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": served.cached_tokens,
        "gen_ai.response.time_to_first_chunk": served.first_byte_seconds if served.streamed else None,
        "http.response.status_code": served.status or None,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _foldline_attributes(served: ServedRequest) -> dict[str, Any]:
    return {
        "foldline.outcome": served.outcome,
        "foldline.mode": served.mode,
        "foldline.tokens.given": served.given_tokens,
        "foldline.tokens.sent": served.sent_tokens,
        "foldline.tokens.saved": served.saved_tokens,
        "foldline.window.tokens": served.window_tokens,
        "foldline.folds": served.folds,
        "foldline.folds.made": len(served.new_folds),
        "foldline.summaries": len(served.summaries),
        "foldline.summaries.tokens": served.summary_tokens,
        "foldline.recoveries": served.recoveries,
        "foldline.truncated": bool(served.truncated),
        "foldline.own.seconds": served.own_seconds,
    }


def _error_type(served: ServedRequest) -> str:
    """The kind of a refusal, else the status; "" for a success or a client that disconnected."""
    if served.outcome == "refused":
        return "refused"
    if served.outcome == "cut":
        return "cut"
    if served.status >= 400:
        return served.failure if served.failure not in {"", "other"} else str(served.status)
    return ""


def _server(upstream: str) -> dict[str, Any]:
    parts = urlsplit(upstream)
    if not parts.hostname:
        return {}
    return {"server.address": parts.hostname, "server.port": parts.port or (80 if parts.scheme == "http" else 443)}


_MAKERS: Final = {"openai": "openai", "anthropic": "anthropic", "gemini": "gcp.gemini"}


def _provider(host: str, dialect: str) -> str:
    """The provider by its host. Of an unknown host, only the dialect is known."""
    for end, name in _PROVIDERS.items():
        if host == end or host.endswith(f".{end}"):
            return name
    return _MAKERS[dialect_named(dialect).maker]


def _nanoseconds(served: ServedRequest) -> int:
    """The arrival in nanoseconds since 1970, by whole numbers: a float would lose the microseconds."""
    return (served.at - _EPOCH) // timedelta(microseconds=1) * 1000
