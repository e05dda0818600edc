"""What the requests of a proxy cost a broker, each kind alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from bench.frame.cpu import cpu_s
from bench.site import Brokers
from broker_core.client import BrokerClient
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.bodies import ConsumerData, Heartbeat, Subscription
from broker_core.remoting.message import OutgoingMessage

_GROUP = Group("asking")
_TOPIC = Topic("asked")
_QUEUES = 1024
_MEMBERS = 500
_RECORD_BYTES = 120

Ask = Callable[[], Awaitable[object]]


def measured(brokers: Brokers, *, times: int) -> dict[str, float]:
    """Processor time of the broker, µs: for one request of each kind, for each queue more in a lock
    request, for each member more in a list.
    """
    brokers.create_topic(_TOPIC, queues=_QUEUES)
    return asyncio.run(_measured(brokers, times))


async def _measured(brokers: Brokers, times: int) -> dict[str, float]:
    async with _client(brokers) as client:
        queues = await client.queues(_TOPIC, fresh=True)
        broker, first = queues[0].broker, queues[0]
        await _heartbeat(client, broker, "one")

        async def each_us(ask: Ask, count: int = times) -> float:
            await ask()
            before_s = cpu_s(brokers.broker_pid)
            for _ in range(count):
                await ask()
            return (cpu_s(brokers.broker_pid) - before_s) / count * 1e6

        body = b"r" * _RECORD_BYTES
        list_members = partial(client.consumer_ids, _GROUP, _TOPIC)
        few = max(times // 10, 10)
        found = {
            "heartbeat": await each_us(partial(_heartbeat, client, broker, "one")),
            "list": await each_us(list_members),
            "lock": await each_us(partial(client.lock, _GROUP, [first])),
            "look": await each_us(partial(client.max_offset, first)),
            "commit": await each_us(partial(client.commit_offset, _GROUP, first, 0)),
            "record": await each_us(partial(_record, client, first, body)),
        }
        locks_us = await each_us(partial(client.lock, _GROUP, queues), few)
        for number in range(_MEMBERS):
            await _heartbeat(client, broker, f"m{number:04}@1#1234567890123456789")
        lists_us = await each_us(list_members, few)
        return {
            **found,
            "locked_queue": (locks_us - found["lock"]) / (_QUEUES - 1),
            "listed_member": (lists_us - found["list"]) / _MEMBERS,
        }


async def _heartbeat(client: BrokerClient, broker: str, name: str) -> None:
    consumer = ConsumerData(group=_GROUP, subscriptions=(Subscription(topic=_TOPIC, version=1),))
    await client.heartbeat(broker, Heartbeat(client_id=name, consumers=(consumer,)))


async def _record(client: BrokerClient, queue: QueueName, body: bytes) -> None:
    await client.send(queue, OutgoingMessage(topic=queue.topic, body=body))


@asynccontextmanager
async def _client(brokers: Brokers) -> AsyncIterator[BrokerClient]:
    client = BrokerClient(nameservers=[brokers.nameserver], client_id="asking@1")
    await client.start()
    try:
        yield client
    finally:
        await client.close()
