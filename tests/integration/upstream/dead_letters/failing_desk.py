"""A handler that fails on demand, and the resulting dead letters."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict

from broker_core.errors import BrokerError
from broker_core.names import Group
from broker_core.remoting.message import StoredMessage
from testkit.gateway import Gateway
from thin_client import Message


class Desk:
    """A handler that records messages and raises the ``verdicts`` of a body, one each time."""

    def __init__(self, **verdicts: list[Exception]) -> None:
        self.verdicts = verdicts
        self.seen: list[tuple[str, int]] = []  # body, attempt
        self.at: dict[str, list[float]] = defaultdict(list)

    async def __call__(self, message: Message) -> None:
        body = message.body.decode()
        self.seen.append((body, message.attempt))
        self.at[body].append(time.monotonic())
        if verdicts := self.verdicts.get(body):
            raise verdicts.pop(0)

    @property
    def bodies(self) -> list[str]:
        return [body for body, _ in self.seen]


async def dead_letters(gateway: Gateway) -> list[StoredMessage]:
    client = gateway.client
    try:
        (queue,) = await client.queues(gateway.dead_letter_topic, fresh=True)
    except BrokerError:
        return []
    pulled = await client.pull(queue, group=Group("undertaker"), offset=0, suspend_ms=0)
    return list(pulled.messages)


async def until_dead(gateway: Gateway, count: int) -> list[StoredMessage]:
    async with asyncio.timeout(30):
        while len(found := await dead_letters(gateway)) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return found
