"""Membership against a scripted broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from broker_core.client import BrokerClient, Membership
from broker_core.client.connection_pool import ConnectionPool
from broker_core.names import Group, Topic
from broker_core.nameserver.server import NameServer
from broker_core.remoting.bodies import Heartbeat
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting_channel import RemotingChannel
from tests.integration.broker.client.scripted_broker import ScriptedBroker, scripted_broker

ORDERS = Topic("orders")
GROUP = Group("billing")


@pytest.fixture
async def nameserver() -> AsyncIterator[NameServer]:
    nameserver = NameServer()
    await nameserver.start()
    yield nameserver
    await nameserver.close()


@pytest.fixture
async def broker(nameserver: NameServer) -> AsyncIterator[ScriptedBroker]:
    async with scripted_broker(nameserver.address) as broker:
        await broker.add_topic("orders", queues=4)
        for code in (RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT):
            broker.answer(code, lambda r: r.response())
        yield broker


@pytest.fixture
async def client(nameserver: NameServer) -> AsyncIterator[BrokerClient]:
    client = BrokerClient(
        nameservers=[nameserver.address], client_id="me@1", request_timeout_s=20.0
    )
    yield client
    await client.close()


async def heartbeats(broker: ScriptedBroker, count: int) -> list[Heartbeat]:
    """Wait for *count* heartbeats."""
    async with asyncio.timeout(30):
        while broker.codes().count(RequestCode.HEART_BEAT) < count:
            await broker.seen.wait()
    return [Heartbeat.from_json(r.body) for r in broker.asked if r.code == RequestCode.HEART_BEAT]


async def test_joining_tells_the_broker_before_it_returns(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    membership = Membership(client)
    await membership.join(GROUP, [ORDERS])
    (heartbeat, *_) = await heartbeats(broker, 1)
    await membership.close()

    assert heartbeat.client_id == "me@1"
    (consumer,) = heartbeat.consumers
    assert (consumer.group, consumer.consume_type) == (GROUP, "CONSUME_PASSIVELY")
    assert consumer.message_model == "CLUSTERING"
    (subscription,) = consumer.subscriptions
    assert (subscription.topic, subscription.expression) == (ORDERS, "*")


async def test_a_second_join_notifies_only_brokers_that_may_not_know(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    """A group is joined again at each look at its members: that should cost brokers nothing."""

    def told() -> int:
        return broker.codes().count(RequestCode.HEART_BEAT)

    membership = Membership(client, heartbeat_s=3600)
    await membership.join(GROUP, [ORDERS])
    await heartbeats(broker, 2)  # its own, and that of the new connection
    for _ in range(3):
        await membership.join(GROUP, [ORDERS])
    assert told() == 2
    membership.unlisted()
    await membership.join(GROUP, [ORDERS])
    assert told() == 3
    broker.answer(RequestCode.HEART_BEAT, lambda r: r.response(1, "no"))
    await membership.join(Group("other"), [ORDERS])
    broker.answer(RequestCode.HEART_BEAT, lambda r: r.response())
    await membership.join(Group("other"), [ORDERS])
    assert told() == 5, "the refused one was made up for"
    await membership.close()


async def test_heartbeats_go_on_with_one_fixed_subscription_version(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    membership = Membership(client, heartbeat_s=0.02)
    await membership.join(GROUP, [ORDERS])
    beats = await heartbeats(broker, 4)
    await membership.close()
    assert len({beat.consumers for beat in beats}) == 1


async def test_who_wants_to_be_forgotten_soon_says_so_three_times_as_often(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    membership = Membership(client, expiry_s=0.06)
    await membership.join(GROUP, [ORDERS])
    beats = await heartbeats(broker, 4)
    await membership.close()
    assert {beat.expiry_ms for beat in beats} == {60}


async def test_a_broker_that_forgot_us_hears_from_us_on_the_next_connection(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    membership = Membership(client, heartbeat_s=3600)
    await membership.join(GROUP, [ORDERS])
    broker.answer(RequestCode.GET_MAX_OFFSET, lambda r: r.response(ext={"offset": "0"}))
    _, port = broker.address.split(":")
    await broker.restart(int(port))
    broker.asked.clear()
    (queue, *_) = await client.queues(ORDERS)
    await client.max_offset(queue)  # any request that connects
    (heartbeat, *_) = await heartbeats(broker, 1)
    await membership.close()
    assert heartbeat.consumers[0].group == GROUP


async def test_a_slow_broker_delays_no_heartbeat_to_a_broker_that_forgot_us(
    nameserver: NameServer, broker: ScriptedBroker, client: BrokerClient
) -> None:
    """Other members would take it for a client that has left."""
    async with scripted_broker(nameserver.address, "broker-b") as slow:
        await slow.add_topic("payments", queues=1)
        slow.answer(RequestCode.HEART_BEAT, lambda r: r.response())
        membership = Membership(client, heartbeat_s=2)
        await membership.join(GROUP, [ORDERS, Topic("payments")])
        slow.on[RequestCode.HEART_BEAT] = lambda _request, _channel: None
        slow.asked.clear()
        async with asyncio.timeout(5):
            while RequestCode.HEART_BEAT not in slow.codes():
                await slow.seen.wait()
        broker.answer(RequestCode.GET_MAX_OFFSET, lambda r: r.response(ext={"offset": "0"}))
        _, port = broker.address.split(":")
        await broker.restart(int(port))
        broker.asked.clear()
        (queue, *_) = await client.queues(ORDERS)
        await client.max_offset(queue)
        async with asyncio.timeout(1):
            await heartbeats(broker, 1)
        await membership.close()


async def test_a_silent_nameserver_delays_no_heartbeat(
    nameserver: NameServer, broker: ScriptedBroker
) -> None:
    """Topics without a route are looked for beside the heartbeats."""
    pool, is_silent = ConnectionPool(), False

    async def relay(request: RemotingCommand, _channel: RemotingChannel) -> RemotingCommand | None:
        if is_silent:
            return None
        asked = RemotingCommand(RequestCode(request.code), ext=dict(request.ext))
        answer = await pool.request(nameserver.address, asked, timeout_s=5)
        return request.response(answer.code, answer.remark, body=bytes(answer.body))

    async with scripted_broker(nameserver.address, "between") as between:
        for code in (RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO):
            between.on[code] = relay
        client = BrokerClient(nameservers=[between.address], client_id="me@1")
        membership = Membership(client, heartbeat_s=1)
        await membership.join(GROUP, [ORDERS, *(Topic(f"a{number}") for number in range(20))])
        is_silent = True
        broker.asked.clear()
        async with asyncio.timeout(6):
            await heartbeats(broker, 4)
        await membership.close()
        await client.close()
    await pool.close()


async def test_leaving_unregisters_and_ends_the_heartbeats(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    membership = Membership(client)
    await membership.join(GROUP, [ORDERS])
    await membership.join(Group("other"), [ORDERS])
    await membership.leave(GROUP)
    last = broker.asked[-1]
    assert last.code == RequestCode.UNREGISTER_CLIENT
    assert last.ext == {"clientID": "me@1", "consumerGroup": GROUP}
    membership.unlisted()
    await membership.join(Group("other"), [ORDERS])
    beat = Heartbeat.from_json(broker.asked[-1].body)
    await membership.close()
    assert [consumer.group for consumer in beat.consumers] == ["other"]


async def test_joining_without_a_broker_does_not_fail(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    broker.answer(RequestCode.HEART_BEAT, lambda r: r.response(1, "no"))
    membership = Membership(client)
    await membership.join(GROUP, [ORDERS, Topic("nope")])
    await membership.leave(GROUP)
    await membership.close()


def producers(broker: ScriptedBroker) -> tuple[Group, ...]:
    """Return the producer groups of the last heartbeat."""
    beats = [r for r in broker.asked if r.code == RequestCode.HEART_BEAT]
    return Heartbeat.from_json(beats[-1].body).producers


def withdrawn(broker: ScriptedBroker) -> list[str]:
    """Return the signs that the broker was asked to forget."""
    asked = [r for r in broker.asked if r.code == RequestCode.UNREGISTER_CLIENT]
    return [r.ext["producerGroup"] for r in asked if "producerGroup" in r.ext]


async def test_signs_are_shown_with_the_group_and_withdrawn_at_once(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    membership = Membership(client, heartbeat_s=3600)
    one, two, other = Group("sign/1"), Group("sign/2"), Group("sign/3")
    await membership.join(GROUP, [ORDERS], signs=[one])
    await membership.join(Group("other"), [ORDERS], signs=[other])
    await membership.join(GROUP, [ORDERS], signs=[one, two])
    assert producers(broker) == (one, two, other)
    assert withdrawn(broker) == []
    await membership.join(GROUP, [ORDERS], signs=[two])
    assert withdrawn(broker) == [one]
    await membership.leave(GROUP)
    assert withdrawn(broker) == [one, two]
    membership.unlisted()
    await membership.join(Group("other"), [ORDERS], signs=[other])
    assert producers(broker) == (other,)
    await membership.close()


async def test_a_sign_that_a_broker_did_not_forget_is_withdrawn_again(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    membership = Membership(client, heartbeat_s=3600)
    one, two = Group("sign/1"), Group("sign/2")
    await membership.join(GROUP, [ORDERS], signs=[one, two])
    broker.answer(RequestCode.UNREGISTER_CLIENT, lambda r: r.response(1, "no"))
    await membership.join(GROUP, [ORDERS], signs=[])
    await membership.join(GROUP, [ORDERS], signs=[two])
    broker.answer(RequestCode.UNREGISTER_CLIENT, lambda r: r.response())
    broker.asked.clear()
    await membership.join(GROUP, [ORDERS], signs=[two])
    assert withdrawn(broker) == [one], "the other one is shown again"
    await membership.join(GROUP, [ORDERS], signs=[two])
    assert withdrawn(broker) == [one]
    await membership.close()
