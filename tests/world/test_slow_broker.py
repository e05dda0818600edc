"""A slow or silent broker delays nothing at the others."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from testkit.simulation.clients import Flow, ProducerNode
from tests.world.stage import Stage, play

GROUP = {"name": "billing", "topics": [{"name": "orders", "order_key": "KEY"}]}
KEYS = tuple(f"k{number}" for number in range(20))


async def two_brokers(stage: Stage, **settings: object) -> None:
    """Start two brokers with two queues each of a topic with constant traffic; each producer uses
    one broker.
    """
    await stage.start(
        groups=[GROUP, {"name": "late", "topics": [{"name": "late", "order_key": "KEY"}]}],
        topics={"orders": 2},
        brokers={"broker-a": {}, "broker-b": {}},
        **settings,
    )
    stage.consume("consumer", "billing")
    await stage.producer.send_natively(Flow("orders", KEYS, 0.01, 200))
    keys: dict[str, dict[str, None]] = {}
    for each in stage.of("send_ok"):
        keys.setdefault(each["queue"].partition("_")[0], {})[each["key"]] = None
    for broker, those in keys.items():
        flow = Flow("orders", tuple(those), 0.1, 10_000)
        producer = stage.world.add(ProducerNode, f"to {broker}")
        producer.begin([])
        stage.background(producer.send_natively(flow))
    await stage.until(lambda: len({each["queue"] for each in stage.of("record")}) == 4)


def longest_gap_s(stage: Stage, name: str, broker: str, since_ns: int) -> float:
    """Return the longest time without such an event in any queue of *broker*."""
    longest = 0
    for queue in (f"{broker}_0", f"{broker}_1"):
        times = [each["t_ns"] for each in stage.of(name, queue=queue) if each["t_ns"] >= since_ns]
        assert len(times) > 3, (name, queue, times)
        longest = max(longest, *(later - earlier for earlier, later in pairwise(times)))
    return longest / 1e9


def places(stage: Stage, name: str) -> set[tuple[str, int]]:
    return {(each["queue"], each["offset"]) for each in stage.of(name) if "queue" in each}


def slow_b(stage: Stage) -> int:
    """Slow broker B down to 2 s per write, which is within limits; return when that is in
    effect.
    """
    process = stage.world.nodes["broker-b"].process
    assert process is not None
    process.slow_disk(2)
    return stage.world.loop.now_ns


@pytest.mark.slow
def test_queues_of_one_broker_are_recorded_while_another_takes_seconds_for_a_record() -> None:
    async def main(stage: Stage) -> None:
        await two_brokers(stage)
        since_ns = slow_b(stage)
        await asyncio.sleep(30)
        assert longest_gap_s(stage, "record", "broker-a", since_ns) < 2.5
        at_b = [each for each in stage.of("record") if each["queue"].startswith("broker-b")]
        assert at_b[-1]["t_ns"] > since_ns
        stage.end()  # of the traffic: what is under way would count as lost
        await stage.until(lambda: places(stage, "send_ok") <= places(stage, "finish"))

    assert play(main) == {}


@pytest.mark.slow
@pytest.mark.parametrize(("event", "most_s"), [("record", 2.5), ("commit", 2.5)])
def test_the_rounds_of_a_broker_go_on_while_another_does_not_answer(
    event: str, most_s: float
) -> None:
    async def main(stage: Stage) -> None:
        await two_brokers(stage, commit_every_s=0.5)
        stage.world.nodes["broker-b"].pause()
        since_ns = stage.world.loop.now_ns
        await asyncio.sleep(30)
        assert longest_gap_s(stage, event, "broker-a", since_ns) < most_s
        lost = [each for each in stage.of("own-") if each["queue"].startswith("broker-a")]
        assert lost == []

    play(main)


def test_a_group_begins_at_a_broker_while_another_does_not_answer() -> None:
    """Heartbeats to that broker are always in progress."""

    async def main(stage: Stage) -> None:
        await two_brokers(stage)
        stage.world.nodes["broker-b"].pause()
        await asyncio.sleep(10)
        await stage.world.make_topic("late", 2, broker="broker-a")
        await asyncio.sleep(0.7)
        since_ns = stage.world.loop.now_ns
        stage.consume("latecomer", "late")
        await stage.until(lambda: len(stage.of("own+", topic="late")) == 2)
        assert stage.world.loop.now_ns - since_ns < 1_500_000_000

    play(main)


def test_topics_of_one_broker_are_shared_while_another_does_not_answer() -> None:
    """Each topic there would cost a timeout of its own before the next look."""

    async def main(stage: Stage) -> None:
        silent = [f"silent-{number}" for number in range(8)]
        topics = [{"name": name, "order_key": "KEY"} for name in (*silent, "late")]
        await stage.start(
            groups=[{"name": "billing", "topics": topics}],
            topics={},
            brokers={"broker-a": {}, "broker-b": {}},
        )
        for name in silent:
            await stage.world.make_topic(name, 2, broker="broker-b")
        stage.consume("consumer", "billing", silent)
        await stage.until(lambda: len(stage.of("own+")) == 16)
        stage.world.nodes["broker-b"].pause()
        await asyncio.sleep(10)
        await stage.world.make_topic("late", 2, broker="broker-a")
        since_ns = stage.world.loop.now_ns
        stage.consume("latecomer", "billing", ["late"])
        await stage.until(lambda: len(stage.of("own+", topic="late")) == 2)
        took_s = (stage.world.loop.now_ns - since_ns) / 1e9
        assert took_s < 10, took_s

    play(main)
