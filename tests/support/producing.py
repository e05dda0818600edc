"""A client of a producer service that sends through queues in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from proxy.downstream.port.server import ThriftServer
from proxy.downstream.producer_service import ProducerService
from proxy.downstream.send_counts import SendCounts
from proxy.history.record import History, NullHistory
from proxy.settings.proxy_settings import LimitSettings
from testkit.thrift_client import ThriftClient, connect
from tests.support.fake_broker_client import FakeBrokerClient


@asynccontextmanager
async def sending(
    broker: FakeBrokerClient, *, history: History | None = None, max_body_bytes: int = 4_194_304
) -> AsyncIterator[ThriftClient]:
    """Return a client of a producer service that sends through *broker*."""
    async with counted(broker, history=history, max_body_bytes=max_body_bytes) as (client, _):
        yield client


@asynccontextmanager
async def counted(
    broker: FakeBrokerClient, *, history: History | None = None, max_body_bytes: int = 4_194_304
) -> AsyncIterator[tuple[ThriftClient, SendCounts]]:
    """As ``sending``, with the counts of the service."""
    service = ProducerService(
        broker,  # type: ignore[arg-type]
        history or NullHistory(),
        max_body_bytes=max_body_bytes,
    )
    server = ThriftServer(service.entries(), LimitSettings())
    try:
        async with connect(await server.listen("127.0.0.1", 0)) as client:
            yield client, service.counts
    finally:
        await server.close()
