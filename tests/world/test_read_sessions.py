"""Reads of all queues by one request, by one request per queue, and both at the same time.

The checker judges all of them in the same way: order, loss and liveness do not depend on how the
queues are read.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from broker_core.broker.pulling.session_processor import SessionProcessor
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting_channel import RemotingChannel
from testkit.simulation.world import BrokerNode
from tests.support.variants import first_of
from tests.world.stage import Flow, Stage, play
from tests.world.stuck_worlds import keys_of_queue

GROUP: dict[str, Any] = {
    "name": "billing",
    "topics": [{"name": "orders", "order_key": "KEY", "visibility_timeout_s": 3.0}],
}
KEYS = tuple(f"k{number}" for number in range(30))
#: Queues that a broker admits to sessions: none, some, all.
MODES = (1000, 3, 0)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Requests for reads of many queues, by the peer's address."""
    seen: Counter[str] = Counter()
    real = SessionProcessor.handlers

    def handlers(self: SessionProcessor) -> Any:
        def counted(request: RemotingCommand, channel: RemotingChannel) -> Any:
            seen[channel.peer.rpartition(":")[0]] += 1
            return read(request, channel)

        served = real(self)
        if not served:
            return served
        read = served[RequestCode.READ_QUEUES]
        return {RequestCode.READ_QUEUES: counted}

    monkeypatch.setattr(SessionProcessor, "handlers", handlers)
    return seen


async def begin(stage: Stage, most: int, *, proxies: int = 2, **settings: Any) -> BrokerNode:
    """Start a world with eight queues and a consumer at each proxy."""
    await stage.start(
        groups=[GROUP],
        topics={"orders": 8},
        brokers={"broker-a": {"max_session_queues": most}},
        proxies=proxies,
        **settings,
    )
    for number in range(proxies):
        stage.consume(f"consumer-{number}", "billing", proxy=number)
    (broker,) = stage.world.brokers
    return broker


def finished(stage: Stage) -> set[tuple[Any, Any]]:
    return {(each["queue"], each["offset"]) for each in stage.of("finish")}


async def handle(stage: Stage, count: int, *, total: int) -> None:
    await stage.send("orders", KEYS, count)
    await stage.until(lambda: len(finished(stage)) >= total, within_s=90)


@first_of("most", MODES)
def test_queues_are_read_whatever_happens_to_the_processes(most: int, asked: Counter[str]) -> None:
    """The broker crashes and returns, a proxy is killed, the other one is cut off and frozen."""

    async def main(stage: Stage) -> None:
        broker = await begin(stage, most)
        one, two = stage.world.proxies
        await handle(stage, 100, total=100)
        broker.kill()
        await asyncio.sleep(3)
        await broker.start()
        await handle(stage, 100, total=200)
        one.kill()
        await handle(stage, 100, total=300)
        await one.start()
        stage.world.loop.network.cut(two.name, broker.name)
        await asyncio.sleep(4)
        stage.world.loop.network.heal(two.name, broker.name)
        await handle(stage, 100, total=400)
        two.pause()
        await asyncio.sleep(20)
        two.resume()
        await handle(stage, 100, total=500)

    assert play(main) == {}
    assert bool(asked) == (most > 0)


@first_of("versions", [(1000, 2), (1000, 0), (0, 1000)])
def test_a_broker_of_another_version_returns(
    versions: tuple[int, int], asked: Counter[str]
) -> None:
    """Reads of one kind go over into those of the other while messages arrive."""
    before, after = versions

    async def main(stage: Stage) -> None:
        broker = await begin(stage, before)
        await handle(stage, 100, total=100)
        asked.clear()
        await broker.stop()
        broker.configure(max_session_queues=after)
        await broker.start()
        await handle(stage, 200, total=300)

    assert play(main) == {}
    assert bool(asked) == (after > 0)


def test_idle_queues_cost_one_request_per_wait(asked: Counter[str]) -> None:
    async def main(stage: Stage) -> None:
        await begin(stage, 1000, proxies=1)
        await handle(stage, 50, total=50)
        await asyncio.sleep(5)
        asked.clear()
        await asyncio.sleep(150)
        assert 9 <= sum(asked.values()) <= 11, "held for 15 s each, for all eight queues"

    assert play(main) == {}


@first_of("most", MODES)
def test_a_queue_without_room_delays_no_other(most: int, asked: Counter[str]) -> None:
    """The window of one queue is full of messages of a stuck key; the others go on at once."""
    small = {"max_jobs_in_memory": 20, "max_jobs_per_key_in_memory": 20}
    group = {**GROUP, "topics": [{**GROUP["topics"][0], **small}]}
    (stuck,) = keys_of_queue("stuck", 0, of=4, count=1)
    others = [key for queue in (1, 2, 3) for key in keys_of_queue("o", queue, of=4, count=10)]

    async def main(stage: Stage) -> None:
        await stage.start(
            groups=[group],
            topics={"orders": 4},
            brokers={"broker-a": {"max_session_queues": most}},
        )
        stage.habits.stuck.add(("billing", stuck))
        stage.consume("consumer", "billing")
        await stage.send("orders", [stuck], 60)
        await stage.send("orders", others, 200)
        await stage.until(lambda: len(finished(stage)) == 200, within_s=20)
        stage.habits.cure()
        await stage.until(lambda: len(finished(stage)) == 260)

    assert play(main) == {}
    assert bool(asked) == (most > 0)


@first_of("most", MODES)
def test_under_load_fewer_answers_carry_the_messages(most: int) -> None:
    """The messages of a fast sender gather at the broker or the proxy; a later one goes at once."""

    keys = tuple(f"k{number}" for number in range(150))

    def answers_for(batch_wait_ms: int) -> int:
        answers: list[int] = []

        async def main(stage: Stage) -> None:
            await stage.start(
                groups=[GROUP],
                topics={"orders": 1},
                brokers={"broker-a": {"max_session_queues": most, "batch_wait_ms": batch_wait_ms}},
                limits__batch_wait_ms=batch_wait_ms,
            )
            stage.consume("consumer", "billing", concurrency=64)
            await stage.producer.send(Flow("orders", keys, 0.003, 150))
            await stage.until(lambda: len(finished(stage)) == 150)
            answers.append(len({each["at_ns"] for each in stage.of("deliver")}))
            await asyncio.sleep(1)
            await stage.send("orders", KEYS, 1)
            await stage.until(lambda: len(finished(stage)) == 151)
            sent, delivered = stage.of("send")[-1], stage.of("deliver")[-1]
            assert delivered["t_ns"] - sent["t_ns"] < 15_000_000

        assert play(main) == {}
        return answers[0]

    assert answers_for(batch_wait_ms=20) < answers_for(batch_wait_ms=0) / 2
