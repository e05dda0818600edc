"""Tracing through the queue: messages carry the W3C trace context in their properties."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from thin_client.message import Message

#: Names of the properties, equal to W3C's headers.
TRACE_PARENT, TRACE_STATE = "traceparent", "tracestate"


class Tracer:
    """Adds trace properties to sent messages, and wraps handlers. Override methods as needed."""

    def inject(self, properties: dict[str, str]) -> None:
        """Add ``traceparent``, and ``tracestate`` if present, to the properties of a message."""

    def handling(self, message: Message) -> AbstractContextManager[object]:
        """Return a context for the handler of *message*; its exceptions pass through it."""
        return nullcontext()


def opentelemetry_tracer(name: str = "orderlane") -> Tracer:
    """Return a tracer for OpenTelemetry: handlers run in spans that continue the producer's trace.

    Raises ImportError without the package ``opentelemetry-api``.
    """
    from opentelemetry import propagate, trace  # an optional dependency

    tracer = trace.get_tracer(name)

    class OpenTelemetry(Tracer):
        def inject(self, properties: dict[str, str]) -> None:
            propagate.inject(properties)

        def handling(self, message: Message) -> AbstractContextManager[object]:
            span: AbstractContextManager[object] = tracer.start_as_current_span(
                f"{message.topic} process",
                context=propagate.extract(message.properties),
                kind=trace.SpanKind.CONSUMER,
                attributes={
                    "messaging.system": "orderlane",
                    "messaging.operation.type": "process",
                    "messaging.destination.name": message.topic,
                    "messaging.message.id": message.message_id or "",
                },
            )
            return span

    return OpenTelemetry()
