"""Tracing through the queue: messages carry the W3C trace context in their properties."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType

from thin_client.message import Message

_log = logging.getLogger("orderlane")

#: Names of the properties, equal to W3C's headers.
TRACE_PARENT, TRACE_STATE = "traceparent", "tracestate"


class Tracer:
    """Adds trace properties to sent messages, and wraps handlers. Override methods as needed.

    Exceptions of the methods are logged; the message is sent or handled all the same.
    """

    def inject(self, properties: dict[str, str]) -> None:
        """Add ``traceparent``, and ``tracestate`` if present, to the properties of a message."""

    def handling(self, message: Message) -> AbstractContextManager[object]:
        """Return a context for the handler of *message*; its exceptions pass through it."""
        return nullcontext()


class Handling:
    """The context that *tracer* returns for the handler of *message*.

    Its own faults are logged, and it suppresses no exception: both would decide about the message.
    """

    __slots__ = ("_context", "_message", "_tracer")

    def __init__(self, tracer: Tracer, message: Message) -> None:
        self._tracer, self._message = tracer, message
        self._context: AbstractContextManager[object] | None = None

    def __enter__(self) -> None:
        try:
            context = self._tracer.handling(self._message)
            context.__enter__()
            self._context = context
        except Exception:
            _log.exception("a tracer failed; %s is handled without its trace", self._message)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        context, self._context = self._context, None
        if context is None:
            return
        try:
            context.__exit__(kind, error, traceback)
        except Exception as fault:
            if fault is not error:  # the handler's may pass through it
                _log.exception("a tracer failed after the handling of %s", self._message)


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
