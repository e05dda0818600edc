"""L3 end to end: concurrent sends are stored in the order of a producer's calls."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path

import pytest

from broker_core.tasks import spawn
from proxy.upstream.records.queue_range import read_range
from testkit.brokers import Brokers
from testkit.eventually import eventually
from testkit.gateway import Gateway, run_gateway
from thin_client import AsyncProducer, Outgoing

_KEYS = ("a", "b", "c", "😀")
_ROUNDS = 40
_TIMEOUT_S = 150


@pytest.mark.feature("sends keep their order while the broker is killed")
async def test_sends_keep_their_order_while_the_broker_is_killed(
    brokers: Brokers, tmp_path: Path
) -> None:
    """Three producers over two proxies; no message answered OK is missing."""
    async with run_gateway(tmp_path, brokers=brokers, queues=4) as gateway:
        proxies = [(await gateway.start_proxy())[1].thrift for _ in range(2)]
        done: set[bytes] = set()
        sending = [
            spawn(_send(gateway, proxies[number % 2], str(number), done), name=f"sender {number}")
            for number in range(3)
        ]
        for count in (100, 200):
            await _kill_after(gateway, done, count)
        await asyncio.gather(*sending)
        logs = await _read(gateway, done)

    assert len(done) == 3 * len(_KEYS) * _ROUNDS
    found: dict[tuple[bytes, bytes], list[list[int]]] = defaultdict(list)
    for log in logs:
        own: dict[tuple[bytes, bytes], list[int]] = defaultdict(list)
        for body in dict.fromkeys(log):  # retries may have stored messages twice
            sender, key, number = body.split(b":")
            own[sender, key].append(int(number))
        for which, numbers in own.items():
            found[which].append(numbers)
    assert len(found) == 3 * len(_KEYS)
    for numbers_by_queue in found.values():
        assert numbers_by_queue == [list(range(_ROUNDS))]


async def _kill_after(gateway: Gateway, done: set[bytes], count: int) -> None:
    await eventually(lambda: len(done) >= count, within_s=_TIMEOUT_S)
    await gateway.cluster.restart_broker(crash=True)


async def _send(gateway: Gateway, proxy: str, name: str, done: set[bytes]) -> None:
    """Send concurrently: single messages, and sometimes one of each key as a batch."""

    async def one(key: str, number: int) -> None:
        body = f"{name}:{key}:{number}".encode()
        await producer.send(gateway.topic, body, key=key)
        done.add(body)

    async def batch(number: int) -> None:
        bodies = [f"{name}:{key}:{number}".encode() for key in _KEYS]
        messages = [
            Outgoing(gateway.topic, body, key=key) for body, key in zip(bodies, _KEYS, strict=True)
        ]
        await producer.send_batch(messages)
        done.update(bodies)

    async with AsyncProducer(proxy, timeout_s=_TIMEOUT_S) as producer:
        calls = []
        for number in range(_ROUNDS):
            calls += [batch(number)] if number % 3 else [one(key, number) for key in _KEYS]
        await asyncio.gather(*calls)


async def _read(gateway: Gateway, done: set[bytes]) -> list[list[bytes]]:
    """Return each queue from its start, once all messages answered OK are visible."""
    client = gateway.client
    queues = await client.queues(gateway.topic, fresh=True)
    async with asyncio.timeout(60):  # a broker may show messages with a delay
        while True:
            logs = [
                [
                    message.body
                    async for message in read_range(
                        client,
                        queue,
                        group=gateway.group,
                        start=0,
                        end=await client.max_offset(queue),
                    )
                ]
                for queue in queues
            ]
            if done <= set().union(*logs):
                return logs
            await asyncio.sleep(0.05)
