"""Simulations with observed times take as long as the gateway: broker, proxy and client run in
virtual time, with handlers that sleep, and report what a simulation needs.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from zlib import crc32

import pytest

from broker_core.clock import now_ns
from broker_core.remoting.key_hash import java_hash
from broker_core.remoting.message import OutgoingMessage
from proxy.cli.demo.flights import flight_rows
from proxy.operator.order_key_desk import reported
from proxy.tuning.handling import Handling
from proxy.tuning.service_times import ServiceTimes
from proxy.tuning.simulator import play
from testkit.gateway import run_gateway
from testkit.simulation.pytest_loop import PytestLoop
from tests.support.samples import Queues, by_key, sample_of
from thin_client import AsyncConsumer, Message

HANDLERS, QUEUES = 32, 8
LATENCY_NS = 150_000


def in_queues(keys: list[str | None]) -> Queues:
    """Return *keys* by queue, as a producer with a sharding key sends them."""
    queues: list[list[str | None]] = [[] for _ in range(QUEUES)]
    for number, key in enumerate(keys):
        queues[(number if key is None else abs(java_hash(key))) % QUEUES].append(key)
    return queues


def zipf(messages: int) -> Queues:
    """Return orders of 1,000 customers, of which the hottest has a quarter."""
    weights = [1 / rank**1.2 for rank in range(1, 1001)]
    names = [f"customer-{rank}" for rank in range(1, 1001)]
    return in_queues(list(Random(7).choices(names, weights, k=messages)))


def flights(messages: int) -> Queues:
    """Return flights of real aircraft."""
    return in_queues([row["tailnum"] or None for row in flight_rows(str(messages))])


class Sleeps:
    """Handlers' times: those of each key spread over the same distribution."""

    def __init__(self, p50_ms: float, p99_ms: float) -> None:
        self._service = ServiceTimes(p50_ms, p99_ms)
        self._handled: Counter[str | None] = Counter()

    def next_s(self, key: str | None) -> float:
        self._handled[key] += 1
        turn = (crc32((key or "").encode()) / 2**32 + self._handled[key] * 0.618034) % 1
        return self._service.at_ns(turn) / 1e9


async def ran(queues: Queues, sleeps: Sleeps, folder: Path) -> tuple[float, Handling]:
    """Handle a backlog. Return the seconds from the first start to the last end, and what the
    client reported.
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, PytestLoop)
    loop.network.steady(LATENCY_NS)
    async with run_gateway(folder, queues=QUEUES) as gateway:
        writable = await gateway.client.writable_queues(gateway.topic)
        for place, keys in enumerate(queues):
            messages = [OutgoingMessage(gateway.topic, b"{}", key=key) for key in keys]
            for start in range(0, len(messages), 500):
                await gateway.client.send_batch(writable[place], messages[start : start + 500])
        proxy, at = await gateway.start_proxy()
        consumer = AsyncConsumer(at.thrift, group=str(gateway.group), concurrency=HANDLERS)
        times_ns: list[int] = []
        left = sum(map(len, queues))

        async def handle(message: Message) -> None:
            nonlocal left
            times_ns.append(now_ns())
            await asyncio.sleep(sleeps.next_s(message.key))
            times_ns.append(now_ns())
            left -= 1
            if not left:
                consumer.stop()

        await consumer.run(handle, handle_signals=False)
        (lane,) = proxy.lanes
        return (times_ns[-1] - times_ns[0]) / 1e9, reported(lane)


#: The end of a run with few hot keys is that of its last long message: many messages are needed.
LONG = pytest.mark.slow


@pytest.mark.parametrize(
    ("make", "messages", "p50_ms", "p99_ms"),
    [
        (zipf, 800, 1, 1),
        (zipf, 800, 4, 40),
        pytest.param(zipf, 3000, 40, 400, marks=LONG),
        (flights, 1000, 1, 1),
        pytest.param(flights, 5000, 4, 40, marks=LONG),
        pytest.param(flights, 5000, 40, 400, marks=LONG),
    ],
)
async def test_a_run_takes_as_long_as_its_observed_times_predict(
    make: Callable[[int], Queues], messages: int, p50_ms: float, p99_ms: float, tmp_path: Path
) -> None:
    queues = make(messages)
    seconds, handling = await ran(queues, Sleeps(p50_ms, p99_ms), tmp_path)
    plan = handling.plan(None, None, round_trip_ns=None)
    played = play(sample_of(queues), "KEY", by_key(), plan)

    assert (handling.handlers, sum(handling.times.values())) == (HANDLERS, messages)
    assert plan.round_trip_ns == pytest.approx(2 * LATENCY_NS, rel=0.1)
    assert played.total_ns / 1e9 == pytest.approx(seconds, rel=0.1)
