"""Sends to a topic that was created again, moved or lost queues: stored, or reported as not
stored.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker_core.client import BrokerClient, TransactionProducer
from broker_core.client.transactions import TransactionState
from broker_core.errors import RemotingError
from broker_core.names import Group, Topic
from broker_core.remoting.message import OutgoingMessage
from testkit.explorer.player import judge
from testkit.simulation.clients import Flow, Habits, add_consumer, add_producer
from testkit.simulation.world import ProxyNode, World, simulate
from thin_client import AsyncProducer, Outgoing, SendFailed

KEYS = tuple(f"k{number}" for number in range(16))
Change = Callable[[World], Awaitable[None]]


async def begin(world: World, *, brokers: int = 1, auto_create: bool = False) -> None:
    topic = {"name": "orders", "order_key": "KEY"}
    world.write_settings([{"name": "billing", "topics": [topic]}])
    settings = {"auto_create_topics": auto_create, "default_queues": 8}
    await world.start({f"broker-{'ab'[number]}": settings for number in range(brokers)})
    await world.make_topic("orders", 8)
    await world.add(ProxyNode, "proxy").start()


async def told(world: World, topic: str, what: str) -> None:
    world.nemesis.write("topic", topic=topic, what=what)


async def fewer(world: World) -> None:
    await world.delete_topic("orders")
    await told(world, "orders", "deleted")
    await world.make_topic("orders", 4)
    await told(world, "orders", "created")


async def deleted(world: World) -> None:
    await world.delete_topic("orders")
    await told(world, "orders", "deleted")
    await told(world, "orders", "created")  # by the first send


async def shrunk(world: World) -> None:
    await world.make_topic("orders", 8, write_queues=3)


def sends(change: Change, *, native: bool = False, **parts: Any) -> list[dict[str, Any]]:
    """Return the history of sends before *change* and immediately after it."""

    async def main(world: World) -> list[dict[str, Any]]:
        await begin(world, **parts)
        producer = add_producer(world, "producer")
        producer.begin([world.proxies[0].thrift])
        add_consumer(world, "consumer").begin(
            [world.proxies[0].thrift], group="billing", topics=None, habits=Habits()
        )
        send = producer.send_natively if native else producer.send
        await send(Flow("orders", KEYS, 0.02, 30))
        await change(world)
        await send(Flow("orders", KEYS, 0.02, 30))
        await asyncio.sleep(60)
        assert world.failures == []
        return world.events

    return simulate(main, seed=7)


def outcomes(events: list[dict[str, Any]]) -> Counter[str]:
    kinds = ("send_ok", "send_info", "send_fail")
    return Counter(each["e"] for each in events if each["e"] in kinds and of_producer(each))


def of_producer(event: dict[str, Any]) -> bool:
    return event["node"] == "producer"


@pytest.mark.parametrize("native", [False, True], ids=["through the proxy", "to the broker"])
@pytest.mark.parametrize("change", [fewer, shrunk])
def test_a_key_whose_queue_is_gone_goes_to_another_one_at_once(
    change: Change, native: bool
) -> None:
    events = sends(change, native=native)
    assert outcomes(events) == {"send_ok": 60}
    began, stored = (
        [each["t_ns"] for each in events if each["e"] == kind and of_producer(each)]
        for kind in ("send", "send_ok")
    )
    assert max(b - a for a, b in zip(began, stored, strict=True)) < 1e9
    if change is shrunk:
        assert judge(events) == {}


def test_a_topic_that_comes_back_by_a_send_has_all_its_queues() -> None:
    events = sends(deleted, auto_create=True)
    assert outcomes(events) == {"send_ok": 60}
    after = max(each["t_ns"] for each in events if each["e"] == "topic")
    stored = [each for each in events if each["e"] == "send_ok" and each["node"] == "proxy"]
    queues = {each["queue"] for each in stored if each["t_ns"] > after}
    assert queues > {f"broker-a_{number}" for number in range(4, 8)}


def in_world(main: Callable[[World], Awaitable[None]]) -> None:
    simulate(main, seed=11)  # type: ignore[arg-type]


async def as_client(world: World, work: Awaitable[Any]) -> Any:
    node = world.nodes.get("client") or add_producer(world, "client")
    if node.process is None:
        node.new_process()
    return await node.do(work)  # type: ignore[arg-type]


def test_a_batch_is_sent_to_the_queues_that_are_there() -> None:
    async def main(world: World) -> None:
        await begin(world)

        async def send(producer: AsyncProducer) -> int:
            return len(await producer.send_batch([Outgoing("orders", b"x", key) for key in KEYS]))

        producer = AsyncProducer(world.proxies[0].thrift)
        assert await as_client(world, send(producer)) == 16
        await fewer(world)
        assert await as_client(world, send(producer)) == 16

    in_world(main)


def test_a_delayed_message_and_a_transaction_find_the_queues_that_are_there() -> None:
    async def main(world: World) -> None:
        await begin(world)
        delaying = AsyncProducer(world.proxies[0].thrift)
        client = BrokerClient(
            nameservers=[world.nameserver.address], client_id="c@1", request_timeout_s=5
        )

        async def rollback(_message: Any) -> TransactionState:
            return TransactionState.ROLLBACK

        transactions = TransactionProducer(client, group=Group("tx"), check=rollback)

        async def send() -> None:
            for key in KEYS:
                await delaying.send("orders", b"x", key=key, delay_s=1)
                message = OutgoingMessage(Topic("orders"), b"x", key=key)
                await (await transactions.prepare(message)).commit()

        await as_client(world, client.start())
        await as_client(world, send())
        await fewer(world)
        await as_client(world, send())

    in_world(main)


def test_a_topic_that_moved_to_another_broker_is_found_there() -> None:
    async def main(world: World) -> None:
        await begin(world, brokers=2)
        producer = AsyncProducer(world.proxies[0].thrift)

        async def send() -> None:
            for key in KEYS:
                await producer.send("orders", b"x", key=key)

        await as_client(world, send())
        await world.delete_topic("orders")
        away, *_ = world.brokers
        away.pause()
        await world.make_topic("orders", 4, broker="broker-b")
        away.resume()
        await as_client(world, send())

    in_world(main)


def test_keys_of_a_broker_that_left_go_to_the_others() -> None:
    async def main(world: World) -> None:
        await begin(world, brokers=2)
        producer = AsyncProducer(world.proxies[0].thrift, timeout_s=5)

        async def send() -> None:
            for key in KEYS:
                await producer.send("orders", b"x", key=key)

        await as_client(world, send())
        await world.brokers[0].stop()
        await as_client(world, send())

    in_world(main)


def test_what_is_refused_for_want_of_a_topic_is_known_not_to_be_stored() -> None:
    async def main(world: World) -> None:
        await begin(world)
        producer = AsyncProducer(world.proxies[0].thrift)
        await as_client(world, producer.send("orders", b"x", key="k1"))
        await world.delete_topic("orders")
        for send in (
            producer.send("orders", b"x", key="k1"),
            producer.send("orders", b"x"),
            producer.send("orders", b"x", queue=5),
        ):
            with pytest.raises(SendFailed) as refused:
                await as_client(world, send)
            assert not refused.value.outcome_unknown
            assert refused.value.code == 14

    in_world(main)


def test_who_sends_to_the_broker_itself_learns_that_nothing_was_stored() -> None:
    async def main(world: World) -> None:
        await begin(world, auto_create=True)
        client = BrokerClient(
            nameservers=[world.nameserver.address],
            client_id="c@1",
            request_timeout_s=5,
            sends_create_topics=False,
        )
        await as_client(world, client.start())
        (*_, last) = await as_client(world, client.writable_queues(Topic("orders")))
        await world.delete_topic("orders")
        with pytest.raises(RemotingError, match="code 17"):
            await as_client(world, client.send(last, OutgoingMessage(Topic("orders"), b"x")))
        assert Topic("orders") not in await as_client(world, client.topics())

    in_world(main)


@pytest.mark.parametrize(("count", "number"), [(1, 8), (1, 99), (2, 16), (2, 2**31 - 1)])
def test_a_queue_that_no_broker_of_the_topic_has_is_refused(count: int, number: int) -> None:
    async def main(world: World) -> None:
        await begin(world, brokers=count)
        producer = AsyncProducer(world.proxies[0].thrift)
        sends = [Outgoing("orders", b"x", queue=each) for each in (0, number, 8 * count - 1)]
        with pytest.raises(SendFailed, match=f"topic orders has no queue {number}") as refused:
            await as_client(world, producer.send_batch(sends))
        assert (refused.value.code, refused.value.outcome_unknown) == (11, False)
        assert len(refused.value.failures) == 1  # the others are stored
        last = "ab"[count - 1]
        stored = [each["queue"] for each in world.events if each["e"] == "send_ok"]
        assert sorted(stored) == ["broker-a_0", f"broker-{last}_7"]

    in_world(main)


def test_a_queue_that_was_taken_away_is_refused_and_not_another_one_taken() -> None:
    async def main(world: World) -> None:
        await begin(world)
        producer = AsyncProducer(world.proxies[0].thrift)
        await as_client(world, producer.send("orders", b"x", queue=6))
        await shrunk(world)
        with pytest.raises(
            SendFailed, match="topic orders has no queue 6: expected a number from 0 to 2"
        ):
            await as_client(world, producer.send("orders", b"x", queue=6))

    in_world(main)
