"""OpenTelemetry spans. Only this module needs the packages of the extra ``tracing``."""

from __future__ import annotations

import os
from collections.abc import Mapping

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

#: Service name of the spans, unless the environment sets one.
SERVICE = "orderlane-proxy"


class OpenTelemetrySpans:
    """Spans that are children of the producers' spans, by W3C trace context."""

    def __init__(self, provider: TracerProvider) -> None:
        """``close`` shuts *provider* down."""
        self._provider = provider
        self._tracer = provider.get_tracer("orderlane")
        self._propagator = TraceContextTextMapPropagator()

    def context_of(self, properties: Mapping[str, str]) -> Context | None:
        """Return the trace context in a message's *properties*; None if it is missing, invalid or
        not sampled.
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
        """Record a finished span as a child of *context*. Times are ns since 1970."""
        if not isinstance(context, Context):
            raise TypeError(f"expected a context of OpenTelemetry, got {type(context).__name__}")
        span = self._tracer.start_span(
            name, context=context, attributes=dict(attributes), start_time=begin_ns
        )
        if failed:
            span.set_status(trace.StatusCode.ERROR)
        span.end(end_ns)

    def close(self) -> None:
        """Export the remaining spans; blocks for a few seconds at most."""
        self._provider.shutdown()


def spans_to(endpoint: str, *, instance: str) -> OpenTelemetrySpans:
    """Return spans that a thread exports in batches to the collector at the URL *endpoint*.

    OpenTelemetry's environment variables for the exporter, batches and the resource apply, such as
    OTEL_EXPORTER_OTLP_HEADERS and OTEL_SERVICE_NAME. *instance* names this process.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    exporter: SpanExporter = OTLPSpanExporter(endpoint=endpoint)
    attributes = {SERVICE_INSTANCE_ID: instance}
    if "OTEL_SERVICE_NAME" not in os.environ:
        attributes[SERVICE_NAME] = SERVICE
    provider = TracerProvider(resource=Resource.create(attributes))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return OpenTelemetrySpans(provider)
