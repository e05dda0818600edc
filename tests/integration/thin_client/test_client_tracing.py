"""A trace continues from the producer through the queue into the handler, with OpenTelemetry."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from testkit.scripted_proxy import ScriptedProxy
from thin_client import AsyncConsumer, AsyncProducer, Consumer, Message, opentelemetry_tracer
from thrift_idl import consumer

pytestmark = pytest.mark.sockets


@pytest.fixture(scope="module")
def spans() -> InMemorySpanExporter:
    """Finished spans; a process can have only one provider."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


async def handled(proxy: ScriptedProxy, form: type[Any], *, plain: bool) -> list[int]:
    """Run a consumer over one message; return its handler's trace IDs."""
    traces: list[int] = []
    each = form(proxy.address, group="g", tracer=opentelemetry_tracer())

    def handle(message: Message) -> None:
        traces.append(trace.get_current_span().get_span_context().trace_id)
        assert message.traceparent is not None
        each.stop()

    async def handle_async(message: Message) -> None:
        handle(message)

    if form is Consumer:
        await asyncio.to_thread(each.run, handle, handle_signals=False)
    else:
        await each.run(handle if plain else handle_async, handle_signals=False)
    return traces


@pytest.mark.parametrize(
    ("form", "plain"), [(AsyncConsumer, False), (AsyncConsumer, True), (Consumer, True)]
)
async def test_the_handler_is_in_its_producers_trace(
    spans: InMemorySpanExporter, form: type[Any], plain: bool
) -> None:
    spans.clear()
    async with ScriptedProxy() as proxy:
        async with AsyncProducer(proxy.address, tracer=opentelemetry_tracer()) as sender:
            with trace.get_tracer("test").start_as_current_span("order") as order:
                await sender.send("orders", b"1")
        (stored,) = proxy.stored
        delivered = consumer.Message(
            value=stored.body, offset=0, leaseId=1, properties=stored.properties
        )

        async def give(_request: Any) -> Any:
            return proxy.batch(delivered)

        proxy.script("pull", give)
        traces = await asyncio.wait_for(handled(proxy, form, plain=plain), 40)
    wanted = order.get_span_context()
    assert traces == [wanted.trace_id]
    (span,) = [each for each in spans.get_finished_spans() if each.name == "orders process"]
    assert span.parent is not None
    assert span.parent.span_id == wanted.span_id
