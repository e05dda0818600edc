"""Blanks around a key are no part of it: with or without them, its messages form one chain."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from testkit.explorer.player import judge
from testkit.simulation.clients import Flow, Habits, ProducerNode, add_consumer, add_producer
from testkit.simulation.world import ProxyNode, World, simulate

SPELLINGS = ("k", "k ", " k", "\tk", "k\r\n")


def run(
    seed: int, *, keys: tuple[str, ...] = SPELLINGS, native: bool = False, order_key: str = "KEY"
) -> list[dict[str, Any]]:
    """Return the history of 40 messages of *keys*, sent by two producers to eight queues."""

    async def main(world: World) -> list[dict[str, Any]]:
        await begin(world, order_key)
        producers = [add_producer(world, f"producer-{number}") for number in range(2)]
        for producer in producers:
            producer.begin([world.proxies[0].thrift])
        add_consumer(world, "consumer").begin(
            [world.proxies[0].thrift], group="billing", topics=None, habits=Habits(work_s=0.2)
        )

        def send(producer: ProducerNode) -> Any:
            flow = Flow("orders", keys, 0.02, 20)
            return producer.send_natively(flow) if native else producer.send(flow)

        await asyncio.gather(*map(send, producers))
        await asyncio.sleep(60)
        assert world.failures == []
        return world.events

    return simulate(main, seed=seed)


async def begin(world: World, order_key: str) -> None:
    topic = {"name": "orders", "order_key": order_key}
    world.write_settings([{"name": "billing", "topics": [topic]}])
    await world.start({"broker-a": {}})
    await world.make_topic("orders", 8)
    await world.add(ProxyNode, "proxy").start()


def places(events: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """Return the queues and chains of the deliveries."""
    return {(each["queue"], each["order"]) for each in events if each["e"] == "deliver"}


def most_at_once(events: list[dict[str, Any]]) -> int:
    at_work = most = 0
    for each in events:
        at_work += {"handle_start": 1, "handle_end": -1}.get(each["e"], 0)
        most = max(most, at_work)
    return most


@pytest.mark.parametrize("native", [False, True], ids=["through the proxy", "to the broker"])
def test_a_key_with_blanks_around_it_is_one_chain_of_one_queue(native: bool) -> None:
    events = run(1, native=native)
    assert len({order for _, order in places(events)}) == len(places(events)) == 1
    assert {order for _, order in places(events)} == {"k"}
    assert most_at_once(events) == 1
    assert judge(events) == {}


def test_a_text_in_a_body_with_blanks_around_it_is_the_same_key() -> None:
    events = run(2, order_key="$.id")
    assert {order for _, order in places(events)} == {"k"}
    assert most_at_once(events) == 1


def test_blanks_inside_and_those_of_other_scripts_belong_to_a_key() -> None:
    keys = ("a b", "a  b", "ab", "\u00a0ab", "ab\u3000")
    events = run(3, keys=keys)
    assert {order for _, order in places(events)} == set(keys)
    assert judge(events) == {}


def test_a_key_of_blanks_alone_is_none() -> None:
    events = run(4, keys=(" ", "\t "))
    assert {order for _, order in places(events)} == {"0xff"}  # by the queue
    assert len(places(events)) > 1  # queues alternate
    assert judge(events) == {}


def test_what_operators_write_is_the_key_without_blanks() -> None:
    async def main(world: World) -> None:
        await begin(world, "KEY")
        proxy = world.proxies[0]
        producer, habits = add_producer(world, "producer"), Habits()
        habits.failing.add(("billing", "k "))
        producer.begin([proxy.thrift])
        consumer = add_consumer(world, "consumer")
        consumer.begin([proxy.thrift], group="billing", topics=None, habits=habits)
        await producer.send(Flow("orders", ("k ",), 0.1, 3))
        await asyncio.sleep(5)
        path = "/api/groups/billing/topics/orders/keys"

        async def act(verb: str, key: str) -> Any:
            return await world.http(proxy, f"{path}/{verb}", {"key": key, "reason": "looked at"})

        for verb, key in (("pause", " k"), ("resume", "k\t"), ("park", "  k ")):
            status, answer = await act(verb, key)
            assert (status, answer["key"]) == (200, "k"), (verb, answer)
        await asyncio.sleep(5)
        _, parked = await world.http(proxy, f"{path}/parked")
        assert [each["key"] for each in parked] == ["k"]
        _, rows = await world.http(proxy, f"{path}/show?key=%20k%20%20")
        assert [each["key"] for each in rows] == ["k"]
        _, found = await world.http(proxy, "/api/groups/billing/topics/orders/messages?key=k%20%20")
        assert [each["keys"] for each in found["messages"]] == ["k ", "k ", "k "]  # as sent
        habits.cure()
        assert (await act("redrive", "k "))[0] == 200
        await asyncio.sleep(30)
        assert judge(world.events).keys() <= {"I1"}  # which is about the properties of copies

    simulate(main, seed=5)
