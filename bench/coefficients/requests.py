"""Cost of each kind of proxy request to a broker, measured separately."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from bench.cpu import cpu_s
from bench.site import Brokers
from broker_core.client import BrokerClient
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.bodies import ConsumerData, Heartbeat, Subscription
from broker_core.remoting.message import OutgoingMessage

_GROUP, _CROWD = Group("asking"), Group("crowded")
_TOPIC = Topic("asked")
_QUEUES = 1024
_MEMBERS = 500
_RECORD_BYTES = 120
#: The machine sometimes runs at half speed, so kinds alternate and medians count.
_ROUNDS = 5
_SETTLE_S = 1.0

Ask = Callable[[], Awaitable[object]]


def measured(brokers: Brokers, *, times: int) -> dict[str, float]:
    """Return the broker's processor time in µs: per request of each kind, per extra queue in a lock
    request, per extra member in a list.
    """
    brokers.create_topic(_TOPIC, queues=_QUEUES)
    return asyncio.run(_measured(brokers, times))


async def _measured(brokers: Brokers, times: int) -> dict[str, float]:
    async with _client(brokers) as client:
        queues = await client.queues(_TOPIC, fresh=True)
        broker, first = queues[0].broker, queues[0]
        for number in range(_MEMBERS + 1):
            await _heartbeat(client, broker, _CROWD, f"m{number:04}@1#1234567890123456789")
        beat = partial(_heartbeat, client, broker, _GROUP, "one")
        await beat()
        await asyncio.sleep(_SETTLE_S)  # members receive their notices meanwhile
        asks: dict[str, Ask] = {
            "heartbeat": beat,
            "list": partial(client.consumer_ids, _GROUP, _TOPIC),
            "lock": partial(client.lock, _GROUP, [first]),
            "look": partial(client.max_offset, first),
            "commit": partial(client.commit_offset, _GROUP, first, 0),
            "record": partial(_record, client, first, b"r" * _RECORD_BYTES),
        }
        large: dict[str, Ask] = {
            "lock": partial(client.lock, _GROUP, queues),
            "list": partial(client.consumer_ids, _CROWD, _TOPIC),
        }

        async def each_us(ask: Ask, count: int) -> float:
            await ask()
            before_s = cpu_s(brokers.broker_pid)
            for _ in range(count):
                await ask()
            return (cpu_s(brokers.broker_pid) - before_s) / count * 1e6

        many, few = max(times // _ROUNDS, 4), max(times // 10 // _ROUNDS, 2)
        rounds = []
        for _ in range(_ROUNDS):
            one = {name: await each_us(ask, many) for name, ask in asks.items()}
            more = {name: await each_us(ask, few) - one[name] for name, ask in large.items()}
            one["locked_queue"] = more["lock"] / (_QUEUES - 1)
            one["listed_member"] = more["list"] / _MEMBERS
            rounds.append(one)
        return {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}


async def _heartbeat(client: BrokerClient, broker: str, group: Group, name: str) -> None:
    consumer = ConsumerData(group=group, subscriptions=(Subscription(topic=_TOPIC, version=1),))
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
