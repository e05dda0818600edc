"""Faults of a tracer are logged, and decide nothing about a message."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from thin_client.aio_handlers import traced
from thin_client.delivery import UNIQUE_ID, Outgoing, Stamp, deliveries
from thin_client.message import Message
from thin_client.tracing import Handling, Tracer

MESSAGE = Message("orders", "broker-a_0#1", 0, b"1", "k", b"k", None, {}, 1, None, None, 1, 1)


def raising(properties: dict[str, str]) -> None:
    properties["traceparent"] = "00-1-2-01"
    raise RuntimeError("no span")


@pytest.mark.parametrize(
    "inject",
    [
        raising,
        lambda properties: properties.update(traceparent=7),
        lambda properties: properties.update(traceparent="\ud800"),
    ],
    ids=["raises", "number", "surrogate"],
)
def test_a_message_is_sent_without_the_trace_of_a_failing_tracer(
    inject: Callable[[dict[str, Any]], None], caplog: pytest.LogCaptureFixture
) -> None:
    stamp = Stamp(None, inject, lambda: 0.0)
    message = Outgoing("orders", b"1", properties={"a": "b"})
    (request,) = deliveries([message], deadline_ns=1, stamp=stamp)
    (sent,) = request.messages
    assert sent.properties == {"a": "b", UNIQUE_ID: request.message_ids[0]}  # type: ignore[union-attr]
    assert "a tracer failed; the message is sent without its trace" in caplog.text


def test_a_property_of_the_application_counts_before_that_of_a_tracer() -> None:
    """As in the other languages."""
    stamp = Stamp(None, lambda given: given.update(traceparent="tracer", more="x"), lambda: 0.0)
    message = Outgoing("orders", b"1", properties={"traceparent": "own"})
    (request,) = deliveries([message], deadline_ns=1, stamp=stamp)
    (sent,) = request.messages
    assert sent.properties is not None  # type: ignore[union-attr]
    assert (sent.properties["traceparent"], sent.properties["more"]) == ("own", "x")


class Entering(Tracer):
    def handling(self, message: Message) -> contextlib.AbstractContextManager[object]:
        raise RuntimeError("no span")


class Leaving(Tracer):
    @contextlib.contextmanager
    def handling(self, message: Message) -> Iterator[None]:
        with contextlib.suppress(ValueError):
            yield
        raise RuntimeError("no exporter")


class Suppressing(Tracer):
    def handling(self, message: Message) -> contextlib.AbstractContextManager[object]:
        return contextlib.suppress(ValueError)


@pytest.mark.parametrize("tracer", [Entering(), Leaving()], ids=["enter", "leave"])
async def test_a_handler_runs_whatever_the_tracer_does(
    tracer: Tracer, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Message] = []

    async def handle(message: Message) -> None:
        seen.append(message)

    await traced(handle, tracer)(MESSAGE)
    assert seen == [MESSAGE]
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "a tracer failed" in record.message


@pytest.mark.parametrize("tracer", [Entering(), Leaving(), Suppressing(), Tracer()])
def test_an_exception_of_a_handler_is_its_own(tracer: Tracer) -> None:
    with pytest.raises(ValueError, match="bad"), Handling(tracer, MESSAGE):
        raise ValueError("bad")


def test_an_exception_that_passes_through_a_tracer_is_not_its_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Passing(Tracer):
        @contextlib.contextmanager
        def handling(self, message: Message) -> Iterator[None]:
            yield

    with pytest.raises(ValueError, match="bad"), Handling(Passing(), MESSAGE):
        raise ValueError("bad")
    assert not caplog.records
