"""One OpenTelemetry trace from the producer through broker, queue and lease to the handler."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path

import pytest
from opentelemetry import propagate
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from broker_core.remoting.message import OutgoingMessage
from proxy.errors import SettingsError
from proxy.lane.tracing import spans_of
from proxy.observe.otel import OpenTelemetrySpans
from proxy.settings.proxy_settings import TracingSettings
from testkit.eventually import eventually
from testkit.gateway import Gateway, run_gateway
from tests.integration.delivery.receiver import running_receiver, says
from thin_client import AsyncConsumer, Message, Tracer

SECRET = "a-customers-name"


def recorded() -> tuple[InMemorySpanExporter, TracerProvider]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter, provider


async def send(gateway: Gateway, context: dict[str, str]) -> None:
    queue = sorted(await gateway.client.writable_queues(gateway.topic))[0]
    message = OutgoingMessage(topic=gateway.topic, body=b"1", key=SECRET, properties=dict(context))
    await gateway.client.send_batch(queue, [message])


class Handling(Tracer):
    """Handlers run in a span that continues the producer's, as the client's own tracer does."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("client")

    def handling(self, message: Message) -> AbstractContextManager[object]:
        return self._tracer.start_as_current_span(
            f"{message.topic} process", context=propagate.extract(message.properties)
        )


async def consume(
    address: str,
    gateway: Gateway,
    provider: TracerProvider,
    verdict: Callable[[int], None],
    many: int,
) -> None:
    """Handle *count* messages; *verdict* may raise, depending on the number of the delivery."""
    seen = 0
    each = AsyncConsumer(address, group=gateway.group, tracer=Handling(provider))

    async def handle(_message: Message) -> None:
        nonlocal seen
        seen += 1
        if seen == many:
            each.stop()
        verdict(seen)

    await asyncio.wait_for(each.run(handle, handle_signals=False), 60)


def said(span: ReadableSpan, name: str) -> object:
    """Return the attribute ``orderlane.<name>``."""
    return (span.attributes or {})[f"orderlane.{name}"]


def by_offset(spans: Sequence[ReadableSpan], offset: int) -> dict[str, list[ReadableSpan]]:
    """Return the spans of one message by their last name, in the order of their ends."""
    found: dict[str, list[ReadableSpan]] = {}
    for span in spans:
        if said(span, "offset") == offset:
            found.setdefault(span.name.partition(" ")[2], []).append(span)
    return found


async def test_one_trace_goes_from_the_producer_to_the_ack(tmp_path: Path) -> None:
    exporter, provider = recorded()

    def fails_once(number: int) -> None:
        if number == 1:
            raise RuntimeError("not now")

    async with run_gateway(tmp_path, queues=1, topic={"retry_intervals_ms": [10]}) as gateway:
        _, at = await gateway.start_proxy(spans=OpenTelemetrySpans(provider))
        with provider.get_tracer("producer").start_as_current_span("order") as order:
            context: dict[str, str] = {}
            propagate.inject(context)
            await send(gateway, context)
        await send(gateway, context)  # it waits behind the first message of its key
        await consume(at.thrift, gateway, provider, fails_once, 3)
        await eventually(lambda: len(gateway.events("finish")) == 2, within_s=30)
    wanted = order.get_span_context()
    spans = exporter.get_finished_spans()
    assert {span.get_span_context().trace_id for span in spans} == {wanted.trace_id}
    of_proxy = [span for span in spans if span.instrumentation_scope.name == "orderlane"]
    assert all(
        span.parent is not None and span.parent.span_id == wanted.span_id for span in of_proxy
    )
    names = [span.name.removeprefix(f"{gateway.topic} ") for span in spans]
    assert {name: names.count(name) for name in sorted(set(names))} == {
        "in broker": 2,
        "key wait": 1,
        "lease": 3,
        "order": 1,
        "process": 3,
        "queue wait": 3,
    }
    first = by_offset(of_proxy, 0)
    assert [said(each, "outcome") for each in first["lease"]] == ["failed", "acked"]
    assert [said(each, "attempt") for each in first["lease"]] == [1, 2]
    second = by_offset(of_proxy, 1)
    chain = [second[name][0] for name in ("in broker", "key wait", "queue wait", "lease")]
    for before, after in pairwise(chain):
        assert before.end_time is not None
        assert after.start_time is not None
        assert (before.start_time or 0) <= before.end_time == after.start_time
    assert SECRET not in str([(span.name, dict(span.attributes or {})) for span in of_proxy])


async def test_a_trace_that_is_not_sampled_and_a_message_without_one_make_no_spans(
    tmp_path: Path,
) -> None:
    exporter, provider = recorded()
    async with run_gateway(tmp_path, queues=1) as gateway:
        _, at = await gateway.start_proxy(spans=OpenTelemetrySpans(provider))
        unsampled: dict[str, str] = {}
        with TracerProvider(sampler=ALWAYS_OFF).get_tracer("x").start_as_current_span("order"):
            propagate.inject(unsampled)
        assert not int(unsampled["traceparent"][-2:], 16) & 1
        for context in (unsampled, {}, {"traceparent": "no context"}):
            await send(gateway, context)
        await consume(at.thrift, gateway, TracerProvider(), lambda _: None, 3)
        await eventually(lambda: len(gateway.events("finish")) == 3, within_s=30)
    assert exporter.get_finished_spans() == ()


@pytest.mark.sockets
async def test_a_collector_gets_the_spans_by_otlp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=ours")
    producer = TracerProvider().get_tracer("producer")
    async with running_receiver() as collector, run_gateway(tmp_path, queues=1) as gateway:
        endpoint = f"{collector.url}/v1/traces"
        proxy, at = await gateway.start_proxy(tracing={"endpoint": endpoint})
        with producer.start_as_current_span("order") as order:
            context: dict[str, str] = {}
            propagate.inject(context)
        await send(gateway, context)
        await consume(at.thrift, gateway, TracerProvider(), lambda _: None, 1)
        await eventually(lambda: len(gateway.events("finish")) == 1, within_s=30)
        await proxy.close()  # sends the remaining spans
    assert {each.path for each in collector.received} == {"/orders/v1/traces"}
    assert {each.headers["x-tenant"] for each in collector.received} == {"ours"}
    got = [ExportTraceServiceRequest.FromString(each.body) for each in collector.received]
    resources = [each for request in got for each in request.resource_spans]
    for each in resources:
        told = {pair.key: pair.value.string_value for pair in each.resource.attributes}
        assert told["service.name"] == "orderlane-proxy"
        assert told["service.instance.id"]
    spans = [span for each in resources for scope in each.scope_spans for span in scope.spans]
    wanted = order.get_span_context()
    assert {span.trace_id for span in spans} == {wanted.trace_id.to_bytes(16, "big")}
    assert {span.parent_span_id for span in spans} == {wanted.span_id.to_bytes(8, "big")}
    assert sorted(span.name.removeprefix(f"{gateway.topic} ") for span in spans) == [
        "in broker",
        "lease",
        "queue wait",
    ]


@pytest.mark.sockets
async def test_a_collector_that_refuses_all_spans_costs_no_message(tmp_path: Path) -> None:
    producer = TracerProvider().get_tracer("producer")
    async with running_receiver() as collector, run_gateway(tmp_path, queues=1) as gateway:
        collector.always_answer(says(400))
        proxy, at = await gateway.start_proxy(tracing={"endpoint": collector.url})
        for _ in range(20):
            with producer.start_as_current_span("order"):
                context: dict[str, str] = {}
                propagate.inject(context)
            await send(gateway, context)
        await consume(at.thrift, gateway, TracerProvider(), lambda _: None, 20)
        await eventually(lambda: len(gateway.events("finish")) == 20, within_s=30)
        await proxy.close()
    assert collector.received


async def test_a_proxy_without_an_endpoint_traces_nothing(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, queues=1) as gateway:
        proxy, at = await gateway.start_proxy()
        await send(gateway, {})
        await consume(at.thrift, gateway, TracerProvider(), lambda _: None, 1)
        assert [lane.tracing for lane in proxy.lanes] == [None]


def test_without_its_packages_an_endpoint_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "proxy.observe.otel", None)
    settings = TracingSettings(endpoint="http://collector:4318/v1/traces")
    with pytest.raises(SettingsError, match=r"pip install 'orderlane\[tracing\]'"):
        spans_of(settings, instance="one")
