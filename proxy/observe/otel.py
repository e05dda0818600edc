"""Spans of OpenTelemetry. The only module that needs the packages of the extra ``tracing``."""

from __future__ import annotations

import os
from collections.abc import Mapping

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

#: What spans of a proxy are known by, if the environment does not say otherwise.
SERVICE = "orderlane-proxy"


class OpenTelemetrySpans:
    """Spans below those of producers, by their W3C trace context."""

    def __init__(self, provider: TracerProvider) -> None:
        """*provider* is shut down by ``close``."""
        self._provider = provider
        self._tracer = provider.get_tracer("orderlane")
        self._propagator = TraceContextTextMapPropagator()

    def context_of(self, properties: Mapping[str, str]) -> Context | None:
        """The context in the *properties* of a message; None if there is none that is right, or
        its trace is not sampled.
        """
        context = self._propagator.extract(properties)
        of_producer = trace.get_current_span(context).get_span_context()
        sampled = of_producer.is_valid and of_producer.trace_flags.sampled
        return context if sampled else None

    def span(
        self,
        name: str,
        context: object,
        *,
        begin_ns: int,
        end_ns: int,
        attributes: Mapping[str, str | int],
        failed: bool = False,
    ) -> None:
        """One span that is over, below the span of *context*. Times are ns since 1970."""
        if not isinstance(context, Context):
            raise TypeError(f"expected a context of OpenTelemetry, got {type(context).__name__}")
        span = self._tracer.start_span(
            name, context=context, attributes=dict(attributes), start_time=begin_ns
        )
        if failed:
            span.set_status(trace.StatusCode.ERROR)
        span.end(end_ns)

    def close(self) -> None:
        """Send what is left; waits for the collector, for seconds at most."""
        self._provider.shutdown()


def spans_to(endpoint: str, *, instance: str) -> OpenTelemetrySpans:
    """Spans that go to the collector at the URL *endpoint*, in batches, by a thread of its own. Of
    OpenTelemetry's environment variables those of the exporter, of batches and of the resource
    count: OTEL_EXPORTER_OTLP_HEADERS, OTEL_SERVICE_NAME, … *instance* names this process.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    exporter: SpanExporter = OTLPSpanExporter(endpoint=endpoint)
    attributes = {SERVICE_INSTANCE_ID: instance}
    if "OTEL_SERVICE_NAME" not in os.environ:
        attributes[SERVICE_NAME] = SERVICE
    provider = TracerProvider(resource=Resource.create(attributes))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return OpenTelemetrySpans(provider)
