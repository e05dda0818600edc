"""Targets whose name has several addresses, some of which do not answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proxy.delivery.deliverer import ACKED, Deliverer, TargetDown
from proxy.delivery.deliverers import make_deliverer
from proxy.settings.delivery import DeliverySettings
from proxy.settings.sinks.push import PushSettings
from proxy.settings.sinks.redis import RedisSettings
from tests.integration.delivery.test_http_push import DELIVERY
from tests.support.receiver_access import access

FIRST, SECOND = "127.0.0.1", "127.0.0.2"
SINKS = ["push", "redis"]


@pytest.fixture
async def several(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let localhost have two addresses."""

    async def getaddrinfo(_host: str, port: int, **_options: Any) -> list[Any]:
        kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        return [(*kind, (address, port)) for address in (FIRST, SECOND)]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)


def silence(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Let nothing answer an attempt to connect to *addresses*."""
    loop = asyncio.get_running_loop()
    connect = loop.sock_connect

    async def sock_connect(of: socket.socket, address: Any) -> None:
        if address[0] in addresses:
            await asyncio.Event().wait()
        await connect(of, address)

    monkeypatch.setattr(loop, "sock_connect", sock_connect)


@asynccontextmanager
async def target(sink: str, port: int, *, timeout_s: float) -> AsyncIterator[Deliverer]:
    settings: DeliverySettings
    if sink == "push":
        urls = [f"http://localhost:{port}/"]
        settings = PushSettings.model_validate({"urls": urls, "timeout_s": timeout_s})
    else:
        given = {"url": f"redis://localhost:{port}", "commands": [["SET", "a", "b"]]}
        settings = RedisSettings.model_validate({**given, "timeout_s": timeout_s})
    made = make_deliverer(DELIVERY.group, DELIVERY.topic, settings, access=access())
    try:
        yield made
    finally:
        await made.close()


async def is_down(sink: str) -> None:
    """Deliver within the time limit of an attempt, at which ``TopicDelivery`` ends it."""
    async with target(sink, 1, timeout_s=1.0) as made:
        with pytest.raises(TargetDown):
            async with asyncio.timeout(1.0):
                await made.deliver(DELIVERY)


@asynccontextmanager
async def answering(address: str) -> AsyncIterator[int]:
    """Answer every request of both protocols at *address*; yield the port."""

    served: list[asyncio.Task[Any] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(asyncio.current_task())
        while asked := await reader.read(65_536):
            if asked.startswith(b"*"):
                writer.write(b"+OK\r\n" * asked.count(b"*"))
            else:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, address, 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        await asyncio.gather(*filter(None, served))


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("sink", SINKS)
async def test_a_target_of_which_no_address_answers_is_down_and_costs_no_attempt(
    sink: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    silence(monkeypatch, FIRST, SECOND)
    await is_down(sink)


@pytest.mark.parametrize("sink", SINKS)
async def test_a_name_that_is_not_resolved_in_time_is_a_target_that_is_down(
    sink: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def getaddrinfo(*_given: Any, **_options: Any) -> list[Any]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    await is_down(sink)


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("sink", SINKS)
async def test_the_next_address_is_used_where_the_first_one_refuses(sink: str) -> None:
    async with answering(SECOND) as port, target(sink, port, timeout_s=10.0) as made:
        assert await made.deliver(DELIVERY) == ACKED


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("sink", SINKS)
async def test_the_next_address_is_used_where_the_first_one_does_not_answer(
    sink: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with answering(SECOND) as port, target(sink, port, timeout_s=10.0) as made:
        silence(monkeypatch, FIRST)
        assert await made.deliver(DELIVERY) == ACKED
