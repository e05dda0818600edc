"""Requests for the offsets of many queues: a silent broker keeps no other waiting."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker_core.client.queue_ranges import QueueRanges
from broker_core.errors import RequestTimeout
from broker_core.names import QueueName, Topic
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand


class Requests:
    """Broker A does not answer, broker B refuses at once."""

    async def ask(self, broker: str, code: RequestCode, *_: Any, **__: Any) -> RemotingCommand:
        if broker == "broker-a":
            await asyncio.sleep(3)
            raise RequestTimeout("no answer")
        raise RequestTimeout(f"{broker} refuses {code.name}")


async def test_many_requests_to_a_silent_broker_delay_none_to_another() -> None:
    requests: Any = Requests()
    ranges = QueueRanges(requests)

    async def read(broker: str, topic: str) -> None:
        with pytest.raises(RequestTimeout):
            await ranges.read([QueueName(Topic(topic), broker, 0)], None)

    silent = [read("broker-a", f"topic-{number}") for number in range(12)]
    waiting = asyncio.gather(*silent)
    await asyncio.sleep(0)
    began = asyncio.get_running_loop().time()
    await read("broker-b", "orders")
    assert asyncio.get_running_loop().time() - began < 0.1
    await waiting
