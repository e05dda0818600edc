"""Messages without a key of their own are handled one at a time in each queue, not in all."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from broker_core.remoting.message import OutgoingMessage
from testkit.gateway import run_gateway
from thin_client import AsyncConsumer, Message

QUEUES, OF_A_QUEUE = 4, 3


@pytest.mark.parametrize("order_key", ["QID", "KEY"])
async def test_one_client_handles_the_queues_in_parallel(order_key: str, tmp_path: Path) -> None:
    async with run_gateway(tmp_path, queues=QUEUES, order_key=order_key) as gateway:
        for queue in await gateway.client.writable_queues(gateway.topic):
            messages = [OutgoingMessage(gateway.topic, b"{}") for _ in range(OF_A_QUEUE)]
            await gateway.client.send_batch(queue, messages)
        _, at = await gateway.start_proxy()
        consumer = AsyncConsumer(at.thrift, group=str(gateway.group), concurrency=16)
        busy: Counter[str] = Counter()
        most, left = 0, QUEUES * OF_A_QUEUE

        async def handle(message: Message) -> None:
            nonlocal most, left
            busy[message.queue] += 1
            assert busy[message.queue] == 1, "two messages of a queue at once"
            most = max(most, busy.total())
            await asyncio.sleep(1)
            busy[message.queue] -= 1
            left -= 1
            if not left:
                consumer.stop()

        await consumer.run(handle, handle_signals=False)
        assert most == QUEUES
