"""Traces that go through the queue: W3C trace context travels in a message's properties."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from thin_client.message import Message

#: Names of the properties, as W3C calls its headers.
TRACE_PARENT, TRACE_STATE = "traceparent", "tracestate"


class Tracer:
    """Says what a producer puts into messages, and surrounds handlers. Override what you need."""

    def inject(self, properties: dict[str, str]) -> None:
        """Add ``traceparent``, and ``tracestate`` if there is one, to a message that is sent."""

    def handling(self, message: Message) -> AbstractContextManager[object]:
        """Entered while *message* is with its handler; a failure of the handler goes through it."""
        return nullcontext()


def opentelemetry_tracer(name: str = "orderlane") -> Tracer:
    """Spans of OpenTelemetry: handlers run in one that continues the producer's.

    Needs the package ``opentelemetry-api``; raises ImportError without it.
    """
    from opentelemetry import propagate, trace  # an option of the application's

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
