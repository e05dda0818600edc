"""Log lines of the consumers, by which an operator follows a client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from orderlane import Consumer, Message
from testkit.scripted_proxy import HangUp, Request, ScriptedProxy
from tests.integration.thin_client.async_consumers import QUICK, consumer_of


@pytest.fixture
async def proxy() -> AsyncIterator[ScriptedProxy]:
    async with ScriptedProxy() as scripted:
        yield scripted


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="orderlane")


def of_level(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == level]


async def test_a_life_in_four_lines(proxy: ScriptedProxy, caplog: pytest.LogCaptureFixture) -> None:
    async with consumer_of(proxy, group="billing", client_id="me") as consumer:
        await proxy.put("a")
        async with await anext(consumer):
            pass
    assert of_level(caplog, logging.INFO) == [
        "group billing: consuming orders as client me, 8 at a time",
        f"group billing: connected to {proxy.address}",
        "group billing: stopped",
    ]


@pytest.mark.sockets
async def test_without_asyncio_too(proxy: ScriptedProxy, caplog: pytest.LogCaptureFixture) -> None:
    await proxy.put("a")

    def consume() -> None:
        with Consumer(proxy.address, group="billing", client_id="me", timing=QUICK) as consumer:
            next(consumer).ack()

    await asyncio.to_thread(consume)
    assert of_level(caplog, logging.INFO) == [
        "group billing: consuming all topics as client me, 8 at a time",
        f"group billing: connected to {proxy.address}",
        "group billing: stopped",
    ]


async def test_a_lost_connection_is_reported_until_it_is_back(
    proxy: ScriptedProxy, caplog: pytest.LogCaptureFixture
) -> None:
    async def hang_up(request: Request) -> None:
        raise HangUp

    proxy.script("pull", hang_up)
    await proxy.put("a")
    async with consumer_of(proxy, group="billing") as consumer:
        await (await anext(consumer)).ack()
    assert of_level(caplog, logging.WARNING)[0].startswith("group billing: pull failed, retrying: ")
    assert of_level(caplog, logging.INFO)[2:4] == [
        f"group billing: reconnecting to {proxy.address}",
        f"group billing: connected to {proxy.address}",
    ]


async def test_a_failure_names_group_key_queue_offset_and_attempt(
    proxy: ScriptedProxy, caplog: pytest.LogCaptureFixture
) -> None:
    await proxy.put("anna")
    consumer = consumer_of(proxy, group="billing")

    async def handle(message: Message) -> None:
        consumer.stop()
        raise ValueError("no amount")

    await consumer.run(handle, handle_signals=False)
    (record,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    queue = record.__dict__["queue"]
    assert record.getMessage() == (
        f"group billing, key 'anna': handling orders/{queue} at offset 0 (attempt 1) failed;"
        " it will be retried"
    )
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "no amount"
    about = {"group": "billing", "key": "anna", "topic": "orders", "offset": 0, "attempt": 1}
    assert {name: record.__dict__[name] for name in about} == about
